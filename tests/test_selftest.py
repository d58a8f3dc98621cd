"""The harness measures what is known, through all of its real machinery; and would say so if it did not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness import selftest
from harness.lab import probe
from harness.lab.lab import Lab
from harness.model import Failed, FailureKind, Link, Objects, Phase, Requests, Settings
from harness.statistics import Spread, median
from tests.factories import make_case, make_measured, make_record

MIB = 1 << 20
BENCH = Path(sys.executable).parent / "bench"


def test_the_known_client_is_measured_as_what_it_is() -> None:
    ran = subprocess.run(
        [BENCH, "selftest", "--no-links", "--json"], capture_output=True, text=True, check=False, timeout=300
    )
    document = json.loads(ran.stdout)
    figures = {(check["subject"], check["figure"]) for check in document["checks"]}
    assert figures >= {
        ("allocate", "peak RSS, increase"),
        ("hold_threads", "threads added"),
        ("burn_cpu", "CPU"),
        ("pause", "wall time"),
        ("cat", "bytes sent by the link"),
        ("pipe", "bytes received by the link"),
        ("nothing at all", "wall time"),
    }
    assert not [check for check in document["checks"] if not check["ok"]]
    assert document["failures"] == []
    assert ran.returncode == 0


def known(operation: str, objects: Objects, concurrency: int = 1, **figures: object) -> list[selftest.Check]:
    case = make_case(operation, settings=Settings(concurrency, None), objects=objects)
    records = [make_record(n, make_measured(**figures), client="known", case=case) for n in range(3)]  # type: ignore[arg-type]
    return selftest.check_known(records, "known", "null")


@pytest.mark.parametrize(
    ("increase", "ok"), [(200 * MIB, True), (198.1 * MIB, True), (197 * MIB, False), (203 * MIB, False)]
)
def test_memory_must_be_seen_within_one_per_cent(increase: float, ok: bool) -> None:
    (check,) = known("allocate", Objects(1, 200 * MIB), rss_base_bytes=MIB, rss_peak_bytes=MIB + round(increase))
    assert check.ok is ok


@pytest.mark.parametrize(("seen", "ok"), [(18, True), (17, False), (19, False)])
def test_threads_must_be_seen_exactly(seen: int, ok: bool) -> None:
    (check,) = known("hold_threads", Objects(1, 1), 17, threads_base=1, threads_peak=seen)
    assert check.ok is ok


@pytest.mark.parametrize(("cpu_ms", "ok"), [(505, True), (494, False), (506, False)])
def test_cpu_must_be_seen_within_one_per_cent(cpu_ms: int, ok: bool) -> None:
    (check,) = known("burn_cpu", Objects(500, 1), cpu_user_ns=(cpu_ms - 1) * 10**6, cpu_system_ns=10**6)
    assert check.ok is ok


def test_of_a_short_time_two_milliseconds_of_cpu_are_allowed() -> None:
    (check,) = known("burn_cpu", Objects(10, 1), cpu_user_ns=12 * 10**6, cpu_system_ns=0)
    assert check.ok


@pytest.mark.parametrize(("wall_ms", "ok"), [(250.0, True), (250.9, True), (251.1, False), (249.9, False)])
def test_a_pause_takes_no_less_than_its_time_and_a_millisecond_more_at_most(wall_ms: float, ok: bool) -> None:
    (check,) = known("pause", Objects(250, 1), wall_ns=round(wall_ms * 1e6))
    assert check.ok is ok


@pytest.mark.parametrize(
    ("counts", "sent", "oks"),
    [
        ({"GET 200": 7}, 7 * 1024, [True, True]),
        ({"GET 200": 8}, 7 * 1024, [False, True]),
        ({"GET 200": 7, "HEAD 200": 1}, 7 * 1024, [False, True]),
        ({"GET 200": 7}, 7 * 1024 - 1, [True, False]),
    ],
)
def test_requests_and_bytes_must_be_counted_exactly(counts: dict[str, int], sent: int, oks: list[bool]) -> None:
    checks = known("cat", Objects(7, 1024), requests=Requests(counts, 0, sent, 1, 1, None))
    assert [check.ok for check in checks] == oks


def test_one_wrong_value_among_exact_ones_is_enough() -> None:
    assert not selftest.Check("s", "f", "count", 7, Spread(7, 7, 8, 9), 7, 7, exact=True).ok
    assert selftest.Check("s", "f", "ns", 7, Spread(7, 6, 9, 9), 7, 7, exact=False).ok


def test_a_failed_trial_is_told() -> None:
    failed = make_record(0, Failed(FailureKind.RAISED, "no memory", ""), client="known", phase=Phase.MEASURED)
    assert "no memory" in selftest.failures([failed])[0]


@pytest.mark.parametrize(
    "link",
    [Link("slow", delay_ms=30, stream_rate_bytes_per_s=8 * MIB), Link("throttled", delay_ms=5, abort_percent=20)],
    ids=lambda link: link.name,
)
def test_a_link_does_what_it_is_set_to(lab: Lab, link: Link) -> None:
    (figures,) = probe.measure(lab, [link])
    checks = {check.figure: check for check in selftest.check_link(figures)}
    assert checks["aborts"].ok, checks["aborts"]
    assert checks["delay"].measured.median == pytest.approx(link.delay_ms * 1000, abs=4000)
    for rates in figures.rates_bytes_per_s.values():
        assert median(rates) == pytest.approx(link.stream_rate_bytes_per_s, rel=0.1)
    if link.stream_rate_bytes_per_s:
        assert set(figures.rates_bytes_per_s) == {"downloads", "uploads"}


@pytest.mark.parametrize(("aborted", "ok"), [(80, True), (60, True), (50, False), (110, False)])
def test_aborts_must_lie_within_the_binomial_bound(aborted: int, ok: bool) -> None:
    figures = probe.LinkFigures(Link("t", abort_percent=20), (1.0,), (1.0,), {}, 400, aborted)
    check = next(check for check in selftest.check_link(figures) if check.figure == "aborts")
    assert check.ok is ok


def test_a_link_that_is_too_late_or_too_slow_fails() -> None:
    link = Link("s3", delay_ms=20, stream_rate_bytes_per_s=90 * MIB)
    figures = probe.LinkFigures(
        link, (23_000.0,), (500.0,), {"downloads": (85.0 * MIB,), "uploads": (90.0 * MIB,)}, 60, 0
    )
    oks = {check.figure: check.ok for check in selftest.check_link(figures)}
    assert oks == {"delay": False, "downloads, a stream": False, "uploads, a stream": True, "aborts": True}
