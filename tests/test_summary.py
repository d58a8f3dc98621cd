"""Only measured trials of measured blocks become numbers; a failure never does."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from harness.model import Failed, FailureKind, Outcome, Phase, RunSet, Unsupported
from harness.statistics import Spread
from harness.summary import METRIC, Result, summarise, to_json
from harness.units import GIB
from tests.factories import MIB, make_case, make_measured, make_record, make_run, make_run_set, realistic_run_set

FAILED = Failed(FailureKind.RAISED, "it broke", "log")


def result_of(outcomes: list[Outcome], client: str = "s3fs", **changes: Any) -> Result:
    run_set = make_run_set({client: outcomes}, **changes)
    return summarise(run_set).results[run_set.run.cases[0], client]


def test_throughput_is_bytes_over_the_timed_window() -> None:
    result = result_of([make_measured(wall_ns=s * 10**9, byte_count=64 * MIB) for s in (1, 2, 4)])
    assert result.spreads["throughput_bytes_per_s"] == Spread(32 * MIB, 16 * MIB, 64 * MIB, 3)
    assert "throughput_objects_per_s" not in result.spreads


def test_a_failed_trial_is_counted_and_is_never_throughput() -> None:
    result = result_of([make_measured(), FAILED, make_measured(), Failed(FailureKind.TIMEOUT, "late", "")])
    assert (result.measured, result.failed) == (2, 2)
    assert result.failed_by_kind == {"raised": 1, "timeout": 1}
    assert {spread.n for spread in result.spreads.values()} == {2}


def test_a_client_that_always_failed_has_no_numbers() -> None:
    result = result_of([FAILED, FAILED])
    assert result.spreads == {}
    assert result.measured == 0


def test_no_metric_takes_a_figure_from_a_failed_record() -> None:
    assert all(metric.of(make_record(0, FAILED)) is None for metric in METRIC.values())


def test_warm_up_never_counts_but_its_failures_are_told() -> None:
    run = make_run(["s3fs"])
    slow = make_record(0, make_measured(wall_ns=10**12), phase=Phase.WARMUP, block=0)
    broken = make_record(1, FAILED, phase=Phase.WARMUP, block=0)
    result = summarise(RunSet(run, (slow, broken, make_record(2)))).results[run.cases[0], "s3fs"]
    assert result.spreads["wall_ns"] == Spread(10**9, 10**9, 10**9, 1)
    assert (result.failed, [failure.phase for failure in result.failures]) == (0, [Phase.WARMUP])


@pytest.mark.parametrize("operation", ["rm", "find", "info"])
def test_where_no_bytes_move_objects_are_counted(operation: str) -> None:
    case = make_case(operation, count=200, size=MIB)
    result = result_of([make_measured(wall_ns=2 * 10**9, byte_count=0, object_count=200)], cases=(case,))
    assert result.spreads["throughput_objects_per_s"].median == 100
    assert result.spreads["cpu_ns_per_object"].median == 100_000_000 / 200
    assert not {"throughput_bytes_per_s", "cpu_ns_per_gib"} & result.spreads.keys()


def test_many_objects_that_move_bytes_have_both_rates() -> None:
    case = make_case("cat", count=200, size=MIB)
    result = result_of([make_measured(byte_count=200 * MIB, object_count=200)], cases=(case,))
    assert result.spreads["throughput_bytes_per_s"].median == 200 * MIB
    assert result.spreads["throughput_objects_per_s"].median == 200
    assert result.spreads["cpu_ns_per_gib"].median == 100_000_000 * GIB / (200 * MIB)


def test_the_null_client_has_a_wall_time_and_no_throughput() -> None:
    spreads = result_of([make_measured(wall_ns=5000, byte_count=0, object_count=0)], client="null").spreads
    assert spreads["wall_ns"].median == 5000
    assert not [name for name in spreads if name.startswith(("throughput", "cpu"))]


def test_without_a_link_there_are_no_requests_rather_than_zero() -> None:
    assert "requests_total" not in result_of([make_measured(requests=None)]).spreads


def test_memory_threads_and_requests_are_taken_as_measured() -> None:
    spreads = result_of([make_measured()]).spreads
    medians = {name: spreads[name].median for name in spreads}
    assert medians["rss_peak_bytes"] == 100 * MIB
    assert medians["rss_increase_bytes"] == 40 * MIB
    assert (medians["threads_peak"], medians["requests_total"], medians["connection_count"]) == (13, 8, 8)
    assert (medians["in_flight_peak"], medians["first_byte_median_us"]) == (8, 21_500)


def test_unsupported_is_neither_measured_nor_failed() -> None:
    result = result_of([Unsupported("declares no read")])
    assert (result.measured, result.failed, result.unsupported) == (0, 0, "declares no read")


def test_an_exit_code_is_kept_beside_a_measured_trial() -> None:
    aborted = msgspec.structs.replace(make_measured(), exit_code=134)
    result = result_of([aborted, make_measured()])
    assert (result.measured, result.exit_codes) == (2, {134: 1})


def test_a_ratio_is_of_medians_and_needs_both() -> None:
    run_set = make_run_set({"s3fs": [make_measured(wall_ns=4 * 10**9)], "fast": [make_measured()], "broken": [FAILED]})
    summary, case = summarise(run_set), run_set.run.cases[0]
    assert summary.ratio(case, "fast") == 4
    assert summary.ratio(case, "broken") is None
    assert summarise(make_run_set({"fast": [make_measured()]})).ratio(case, "fast") is None


def test_cases_that_differ_in_the_link_alone_are_kept_and_told_apart() -> None:
    cases = (make_case(), make_case(link="direct"))
    record = make_record(0, make_measured(), case=cases[1])
    summary = summarise(RunSet(make_run(["s3fs"], cases), (record,)))
    assert [summary.label(case) for case in cases] == ["read/64MiB/c8/b8MiB@s3-scaled", "read/64MiB/c8/b8MiB@direct"]
    assert [summary.results[case, "s3fs"].measured for case in cases] == [0, 1]


def test_json_holds_every_spread_unrounded() -> None:
    summary = summarise(realistic_run_set())
    document = json.loads(to_json(summary))
    for case, told in zip(summary.run.cases, document["cases"], strict=True):
        for client in told["clients"]:
            result = summary.results[case, client["client"]]
            assert {name: Spread(**spread) for name, spread in client["metrics"].items()} == result.spreads
            assert client["failed_count"] == result.failed
            assert client["throughput_to_baseline_ratio"] == summary.ratio(case, client["client"])
