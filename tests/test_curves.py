"""What only several cases together say: memory over size, and the knee of concurrency."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import curves, prices
from harness.curves import Growth
from harness.model import Case, Record, RunSet
from harness.report import markdown, write_report
from harness.report.build import build
from harness.report.view import Chart
from harness.statistics import Slope, slope_interval, spread
from harness.summary import summarise
from tests.factories import MIB, make_case, make_measured, make_record, make_run

SIZES = (64 * MIB, 256 * MIB, 1024 * MIB)


def run_of(cases: tuple[Case, ...], outcome: Callable[[Case], tuple[int, int]], blocks: int = 4) -> RunSet:
    """Measure each case with one client; `outcome` gives wall time in ns and the increase of RSS in bytes."""
    records: list[Record] = []
    for block in range(1, blocks + 1):
        for case in cases:
            wall_ns, increase_bytes = outcome(case)
            measured = make_measured(
                wall_ns,
                case.objects.total_bytes,
                case.objects.count,
                rss_base_bytes=60 * MIB,
                rss_peak_bytes=60 * MIB + increase_bytes,
            )
            records.append(make_record(len(records), measured, client="s3fs", block=block, case=case))
    return RunSet(make_run(("s3fs",), cases, trial_count=len(records)), tuple(records))


def test_the_slope_of_a_line_is_known_to_the_last_digit() -> None:
    found = slope_interval([1, 2, 3, 4], [3, 5, 7, 9])
    assert (found.estimate, found.low, found.high, found.n) == (2, 2, 2, 4)


def test_a_slopes_interval_agrees_with_a_published_regression() -> None:
    # Anscombe's first set (The American Statistician 27, 1973): slope 0.5001, standard error 0.1179, 9 degrees of freedom.
    x = [10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5]
    y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68]
    found = slope_interval(x, y)
    assert found.estimate == pytest.approx(0.5001, abs=1e-4)
    assert (found.high - found.low) / 2 == pytest.approx(2.2622 * 0.1179, abs=1e-3)


def test_a_slopes_interval_holds_the_truth_as_often_as_it_says() -> None:
    dice = random.Random(20261204)
    held = 0
    for _ in range(1000):
        x = [1.0, 1.0, 4.0, 4.0, 4.0, 16.0, 16.0]
        found = slope_interval(x, [0.3 * place + dice.gauss(0, 1) for place in x])
        held += found.low <= 0.3 <= found.high
    # 950 are expected of 1,000; 0.999 of all such simulations lie between these.
    assert 926 <= held <= 971


@pytest.mark.parametrize("places", [[1.0, 2.0], [3.0, 3.0, 3.0]])
def test_a_slope_without_an_interval_is_refused(places: list[float]) -> None:
    with pytest.raises(ValueError, match="3 points"):
        slope_interval(places, [1.0] * len(places))


@pytest.mark.parametrize(
    ("share", "noise_bytes", "verdict"),
    [
        (0.0, 3 * MIB, Growth.CONSTANT),
        (1.0, 3 * MIB, Growth.GROWS),
        (0.1, 200 * MIB, Growth.INCONCLUSIVE),
    ],
)
def test_memory_is_judged_by_the_slopes_interval(share: float, noise_bytes: int, verdict: Growth) -> None:
    dice = random.Random(4)
    cases = tuple(make_case("get_file", size=size, scenario="download-managed") for size in SIZES)
    run_set = run_of(
        cases,
        lambda case: (10**9, round(30 * MIB + share * case.objects.size_bytes + abs(dice.gauss(0, noise_bytes)))),
    )
    (found,) = curves.memory(summarise(run_set))
    assert found.verdict is verdict
    assert found.slope is not None
    assert found.slope.n == 12


def test_two_sizes_decide_nothing() -> None:
    cases = tuple(make_case("get_file", size=size, scenario="download-managed") for size in SIZES[:2])
    (found,) = curves.memory(summarise(run_of(cases, lambda case: (10**9, case.objects.size_bytes))))
    assert (found.verdict, found.slope) == (Growth.INCONCLUSIVE, None)
    assert "3 and 6 are needed" in found.reason


@pytest.mark.parametrize(
    ("slope", "verdict"),
    [
        (Slope(0.2, 0.11, 0.3, 9), Growth.GROWS),
        (Slope(0.05, 0.01, 0.09, 9), Growth.CONSTANT),
        (Slope(0.2, 0.09, 0.3, 9), Growth.INCONCLUSIVE),
    ],
)
def test_the_whole_interval_must_lie_on_one_side(slope: Slope, verdict: Growth) -> None:
    assert curves.growth_of(slope) is verdict


@pytest.mark.parametrize(
    ("rates", "knee"),
    [
        ({1: 10, 2: 20, 4: 40, 8: 80}, 8),
        ({1: 10, 2: 19, 4: 34, 8: 38, 16: 80}, 4),
        ({1: 10, 2: 9}, 1),
        # Fourfold in two doublings at once is as good as twice twofold; 2.2 times isn't.
        ({1: 10, 4: 40}, 4),
        ({1: 10, 4: 22}, 1),
    ],
)
def test_the_knee_is_where_doubling_stops_paying(rates: dict[int, float], knee: int) -> None:
    assert curves.knee_of({level: spread([rate]) for level, rate in rates.items()}) == knee


def concurrency_run() -> RunSet:
    """Each object takes 10 ms a worker, and 8 workers are all that ever work."""
    cases = tuple(
        make_case("cat", count=8 * level, size=4096, concurrency=level, scenario="curve")
        for level in (1, 2, 4, 8, 16, 32)
    )
    return run_of(cases, lambda case: (case.objects.count * 10**7 // min(case.settings.concurrency, 8), MIB))


def test_a_curve_finds_the_pool_that_a_client_stops_at() -> None:
    run_set = concurrency_run()
    (found,) = curves.concurrency(run_set, summarise(run_set))
    assert (found.client, found.knee) == ("s3fs", 8)
    assert found.points[32].median == pytest.approx(800)


def test_the_report_shows_both_and_draws_the_curve(tmp_path: Path) -> None:
    run_set = concurrency_run()
    view = build(run_set)
    table = next(table for each in view.sections for table in each.tables if table.title == "Concurrency: curve")
    assert [row.label for row in table.rows[:7]] == ["1", "2", "4", "8", "16", "32", "knee"]
    chart = next(figure for each in view.sections for figure in each.figures if isinstance(figure, Chart))
    assert chart.lines[0].knee == 8
    write_report(run_set, tmp_path)
    assert (tmp_path / "figures" / "curve.png").stat().st_size > 10_000
    assert "curve.png" in markdown.render(view)


@pytest.mark.parametrize(
    ("method", "what", "price"),
    [
        ("GET", "object", "read"),
        ("HEAD", "object", "read"),
        ("GET", "list", "write"),
        ("PUT", "part", "write"),
        ("POST", "uploads", "write"),
        ("POST", "delete", "free"),
        ("DELETE", "object", "free"),
    ],
)
def test_requests_are_priced_by_their_class(method: str, what: str, price: str) -> None:
    assert prices.class_of(method, what) == price


def test_a_million_reads_cost_forty_cents() -> None:
    assert prices.requests_usd({"read": 1_000_000, "free": 5}) == pytest.approx(0.4)
