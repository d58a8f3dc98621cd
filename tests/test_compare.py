"""Ratios of clients within a run, ratios of two runs, and when there is none to be had."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from statistics import stdev
from typing import Any

import msgspec
import pytest

from harness.compare import (
    COMPARED,
    Change,
    Comparison,
    Comparisons,
    Difference,
    Weight,
    as_data,
    changes,
    compare_clients,
    compare_pair,
    compare_runs,
)
from harness.errors import BenchError, UnknownNameError
from harness.model import (
    CONTROL,
    Case,
    Ceilings,
    Conditions,
    Decision,
    Failed,
    FailureKind,
    Filters,
    Link,
    Outcome,
    Phase,
    Profile,
    Record,
    Rules,
    Run,
    RunSet,
    Unsupported,
    digest_of,
)
from harness.statistics import TWO_LOOKS_LEVEL, p_at_least, ratio_interval
from harness.summary import METRIC
from tests.factories import (
    LINK,
    make_case,
    make_client,
    make_measured,
    make_record,
    make_run,
    make_run_set,
    realistic_run_set,
)

FAILED = Failed(FailureKind.RAISED, "it broke", "log")
replace = msgspec.structs.replace


def measured(wall_s: Sequence[float], **changes: Any) -> list[Outcome]:
    return [make_measured(round(seconds * 1e9), **changes) for seconds in wall_s]


def noisy(seconds: float, n: int = 8, seed: int = 0) -> list[Outcome]:
    dice = random.Random(seed)
    return measured([seconds * dice.lognormvariate(0, 0.05) for _ in range(n)])


def of(compared: Comparisons, metric: str = "wall_ns", client: str = "fast", case: int = 0) -> Comparison:
    wanted = compared.now.cases[case]
    found = [
        each
        for each in compared.comparisons
        if (each.metric, each.numerator.client, each.case) == (metric, client, wanted)
    ]
    assert len(found) == 1, f"{len(found)} comparisons of {client} by {metric}"
    return found[0]


def log_of(comparison: Comparison) -> tuple[float, float, float]:
    assert comparison.ratio is not None
    return math.log(comparison.ratio.estimate), math.log(comparison.ratio.low), math.log(comparison.ratio.high)


# --- clients of one run ----------------------------------------------------------------------------------------------


def test_clients_are_compared_in_pairs_by_block() -> None:
    own, base = [1.0, 2.1, 2.9, 4.2, 5.0, 6.1], [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]
    found = of(compare_clients(make_run_set({"s3fs": measured(base), "fast": measured(own)})))
    assert found.ratio == ratio_interval([s * 1e9 for s in own], [s * 1e9 for s in base])
    assert found.rank_ratio is not None
    assert (found.paired, found.n) == (True, 6)
    assert found.log_sd == pytest.approx(stdev(math.log(one / two) for one, two in zip(own, base, strict=True)))
    assert found.rank_ratio.low < 0.5 < found.rank_ratio.high


def test_a_block_in_which_one_failed_makes_no_pair_and_is_counted() -> None:
    own: list[Outcome] = [*measured([1.0] * 10), FAILED]
    found = of(compare_clients(make_run_set({"s3fs": [FAILED, *measured([2.0] * 10)], "fast": own})))
    assert found.n == 9
    assert (found.numerator.failed, found.numerator.attempted) == (1, 11)
    assert (found.denominator.failed, found.denominator.attempted) == (1, 11)
    assert found.verdict is Difference.BETTER


def test_pairs_are_found_by_block_in_whatever_order_the_records_come() -> None:
    run_set = make_run_set({"s3fs": noisy(2, seed=1), "fast": noisy(1, seed=2)})
    shuffled = random.Random(3).sample(run_set.records, len(run_set.records))
    assert compare_clients(RunSet(run_set.run, tuple(shuffled))).comparisons == compare_clients(run_set).comparisons


def test_warm_up_makes_no_pair() -> None:
    run_set = make_run_set({"s3fs": noisy(2, seed=1), "fast": noisy(1, seed=2)})
    warm_up = [
        make_record(900 + place, make_measured(10**12), client=client, block=0, phase=Phase.WARMUP)
        for place, client in enumerate(("s3fs", "fast"))
    ]
    warmed = RunSet(run_set.run, (*warm_up, *run_set.records))
    assert compare_clients(warmed).comparisons == compare_clients(run_set).comparisons


def test_a_disturbed_block_makes_no_pair_and_is_counted() -> None:
    run_set = make_run_set({"s3fs": noisy(2, seed=1), "fast": noisy(1, seed=2)}, rules=Rules())
    stolen = Conditions(
        wall_ns=10**10, cpu_total_ns=2 * 10**10, busy_ns=10**10, steal_ns=10**10, ours_ns=10**10, load_1min=1.0
    )
    records = (replace(each, conditions=stolen) if each.trial.block == 3 else each for each in run_set.records)
    found = of(compare_clients(RunSet(run_set.run, tuple(records))))
    assert (found.n, found.numerator.excluded, found.numerator.attempted) == (7, 1, 8)


def test_every_metric_that_both_have_is_compared_but_the_harnesss_own_and_the_load_on_the_store() -> None:
    compared = compare_clients(make_run_set({"s3fs": noisy(2), "fast": noisy(1)}))
    metrics = {each.metric for each in compared.comparisons}
    not_measured = {"throughput_objects_per_s", "cpu_ns_per_object", "loop_lag_p99_us", "loop_lag_max_us"}
    assert metrics == {metric.name for metric in COMPARED} - not_measured
    assert not metrics & {"harness_cpu_ns", "requests_per_s"}


@pytest.mark.parametrize(
    ("metric", "verdict"),
    [
        ("throughput_bytes_per_s", Difference.WORSE),
        ("wall_ns", Difference.WORSE),
        ("rss_peak_bytes", Difference.BETTER),
        ("threads_peak", Difference.BETTER),
        ("requests_total", Difference.NO_DIFFERENCE_SHOWN),
    ],
)
def test_a_verdict_follows_the_direction_of_its_metric(metric: str, verdict: Difference) -> None:
    slow_and_small = measured([2, 2.1, 1.9, 2, 2.05, 2.1], threads_peak=3, rss_peak_bytes=70 << 20)
    compared = compare_clients(make_run_set({"s3fs": measured([1, 1.1, 1, 0.9, 1, 1]), "fast": slow_and_small}))
    assert of(compared, metric).verdict is verdict


def test_an_equal_client_shows_no_difference() -> None:
    found = of(compare_clients(make_run_set({"s3fs": noisy(1, seed=1), "fast": noisy(1, seed=2)})))
    assert found.verdict is Difference.NO_DIFFERENCE_SHOWN
    assert found.p_value is not None
    assert found.p_value > 0.05


def test_fewer_than_six_blocks_are_inconclusive_however_far_apart() -> None:
    found = of(compare_clients(make_run_set({"s3fs": measured([9.0] * 5), "fast": measured([1.0] * 5)})))
    assert (found.verdict, found.reason) == (Difference.INCONCLUSIVE, "5 of at least 6 blocks")
    assert found.ratio is not None
    assert (found.rank_ratio, found.adjusted_p_value) == (None, None)


def test_a_single_block_has_no_interval() -> None:
    found = of(compare_clients(make_run_set({"s3fs": measured([2.0]), "fast": measured([1.0])})))
    assert (found.n, found.ratio, found.log_sd, found.verdict) == (1, None, None, Difference.INCONCLUSIVE)


def test_more_failures_than_a_tenth_are_inconclusive_on_either_side() -> None:
    some: list[Outcome] = [FAILED, FAILED, *measured([1.0] * 8)]
    sound = measured([2.0] * 10)
    for outcomes in ({"s3fs": sound, "fast": some}, {"s3fs": some, "fast": sound}):
        found = of(compare_clients(make_run_set(outcomes)))
        assert found.verdict is Difference.INCONCLUSIVE
        assert found.reason.startswith("2 of 10 trials of ")


def test_a_client_that_always_failed_is_told_and_has_no_ratio() -> None:
    found = of(compare_clients(make_run_set({"s3fs": noisy(1), "fast": [FAILED] * 8})))
    assert (found.n, found.ratio, found.verdict) == (0, None, Difference.INCONCLUSIVE)
    assert found.reason == "8 of 8 trials of fast failed"


def test_what_a_client_does_not_offer_is_not_compared() -> None:
    run_set = make_run_set({"s3fs": noisy(1), "fast": [Unsupported("declares no read")] * 8})
    assert compare_clients(run_set).comparisons == ()


def test_where_nobody_succeeded_there_is_nothing_to_compare() -> None:
    assert compare_clients(make_run_set({"s3fs": [FAILED] * 8, "fast": [FAILED] * 8})).comparisons == ()


def test_a_figure_of_zero_has_no_ratio() -> None:
    flat = measured([1.0] * 8, rss_base_bytes=100 << 20, rss_peak_bytes=100 << 20)
    found = of(compare_clients(make_run_set({"s3fs": noisy(1), "fast": flat})), "rss_increase_bytes")
    assert (found.ratio, found.verdict) == (None, Difference.INCONCLUSIVE)
    assert found.reason == "a figure of zero or below has no ratio"


def test_an_outlier_is_flagged_and_counts() -> None:
    walls = [1.0, 1.02, 0.98, 1.01, 5.0, 0.99, 1.0, 1.01]
    found = of(compare_clients(make_run_set({"s3fs": measured([1.0] * 8), "fast": measured(walls)})))
    assert (found.outlier_blocks, found.n) == ((5,), 8)


def test_the_control_and_the_null_client_are_not_compared() -> None:
    clients = ("s3fs", "fast", make_client(f"s3fs@{CONTROL}", role=CONTROL), make_client("null"))
    run = make_run(clients)
    records = [make_record(block, client=client.name, block=block) for client in run.clients for block in range(1, 9)]
    assert {each.numerator.client for each in compare_clients(RunSet(run, tuple(records))).comparisons} == {"fast"}


def test_either_baseline_gives_the_reciprocal() -> None:
    run_set = realistic_run_set()
    forth = compare_clients(run_set, "s3fs")
    back = compare_clients(run_set, "pyathena-sync")
    by_place = {(each.case, each.metric): each for each in back.comparisons if each.numerator.client == "s3fs"}
    compared = [each for each in forth.comparisons if each.numerator.client == "pyathena-sync"]
    assert len(compared) == len(by_place) > 50
    for each in compared:
        estimate, low, high = log_of(by_place[each.case, each.metric])
        assert log_of(each) == pytest.approx((-estimate, -high, -low))
        assert each.p_value == pytest.approx(by_place[each.case, each.metric].p_value)
        assert each.n == by_place[each.case, each.metric].n


def test_the_runs_own_baseline_is_the_default_and_must_have_taken_part() -> None:
    run_set = make_run_set({"s3fs": noisy(1), "fast": noisy(1)})
    assert compare_clients(run_set).baseline == "s3fs"
    with pytest.raises(UnknownNameError, match="no client matches 'nobody'"):
        compare_clients(run_set, "nobody")
    with pytest.raises(UnknownNameError, match="no client matches 's3fs'"):
        compare_clients(make_run_set({"fast": noisy(1)}))


def test_verdicts_of_one_metric_are_adjusted_for_all_its_cases_and_the_intervals_are_plain() -> None:
    cases = tuple(make_case(size=size << 20) for size in range(1, 41))
    run_set = _many_cases(cases)
    compared = compare_clients(run_set)
    first = of(compared)
    alone = compare_pair(run_set, cases[0], "wall_ns", "fast", "s3fs")
    assert alone is not None
    assert first.p_value == alone.p_value == alone.adjusted_p_value
    assert first.p_value is not None
    assert first.adjusted_p_value == pytest.approx(40 * first.p_value)
    assert alone.verdict is Difference.WORSE
    assert first.verdict is Difference.NO_DIFFERENCE_SHOWN
    assert first.ratio == alone.ratio
    assert first.ratio is not None
    assert first.ratio.low > 1


def _many_cases(cases: tuple[Case, ...]) -> RunSet:
    """Build a run of which the first case differs a little, and no other at all."""
    walls = [1.02, 1.10, 1.04, 1.16, 0.99, 1.06, 1.12, 1.01]
    equal = [1.02, 0.98, 1.02, 0.98, 1.02, 0.98, 1.02, 0.98]
    records: list[Record] = []
    for case in cases:
        for block in range(1, 9):
            own = (walls if case is cases[0] else equal)[block - 1]
            for client, seconds in (("s3fs", 1.0), ("fast", own)):
                outcome = make_measured(round(seconds * 1e9))
                records.append(make_record(len(records), outcome, client=client, block=block, case=case))
    return RunSet(make_run(("s3fs", "fast"), cases), tuple(records))


def test_an_inconclusive_comparison_is_no_part_of_the_family() -> None:
    cases = tuple(make_case(size=size << 20) for size in range(1, 41))
    run_set = _many_cases(cases)
    short = tuple(each for each in run_set.records if each.trial.case is cases[0] or each.trial.block <= 5)
    first = of(compare_clients(RunSet(run_set.run, short)))
    assert first.adjusted_p_value == first.p_value
    assert first.verdict is Difference.WORSE


DECISION = Decision("which", "Which one?", "filesystem", (), (), "Neither.")


def test_a_run_that_was_declared_extendable_pays_with_its_level() -> None:
    run_set = make_run_set({"s3fs": noisy(1.0, seed=1), "fast": noisy(1.0, seed=2)})
    declared = RunSet(replace(run_set.run, decision=DECISION), run_set.records)
    assert compare_clients(declared).level == TWO_LOOKS_LEVEL
    assert compare_clients(declared).comparisons == compare_clients(run_set, level=TWO_LOOKS_LEVEL).comparisons
    assert compare_runs(run_set, declared).level == compare_runs(declared, run_set).level == TWO_LOOKS_LEVEL
    plain, strict = of(compare_clients(run_set)), of(compare_clients(declared))
    assert log_of(strict)[1] < log_of(plain)[1]
    assert strict.rank_ratio is not None
    assert strict.rank_ratio.level >= TWO_LOOKS_LEVEL


def test_a_pair_gives_what_a_threshold_is_held_against() -> None:
    run_set = make_run_set({"s3fs": measured([2.0] * 8), "fast": measured([1.0] * 8)})
    found = compare_pair(run_set, run_set.run.cases[0], "throughput_bytes_per_s", "fast", "s3fs")
    assert found is not None
    assert found.log_ratio is not None
    assert (p_at_least(found.log_ratio, 1.9), p_at_least(found.log_ratio, 2.1)) == (0, 1)
    assert compare_pair(run_set, run_set.run.cases[0], "cpu_ns_per_object", "fast", "s3fs") is None


def test_a_pair_of_unknown_names_is_refused() -> None:
    run_set = make_run_set({"s3fs": noisy(1), "fast": noisy(1)})
    case = run_set.run.cases[0]
    for arguments in ((case, "speed", "fast", "s3fs"), (case, "wall_ns", "fast", "nobody")):
        with pytest.raises(UnknownNameError):
            compare_pair(run_set, *arguments)
    with pytest.raises(UnknownNameError, match="no case matches"):
        compare_pair(run_set, make_case("write"), "wall_ns", "fast", "s3fs")


# --- two runs --------------------------------------------------------------------------------------------------------


def a_run(outcomes: dict[str, list[Outcome]], name: str = "20261127-then", **changes: Any) -> RunSet:
    return make_run_set(outcomes, id=name, **changes)


def two_runs() -> tuple[RunSet, RunSet]:
    then = a_run({"s3fs": noisy(2.0, 8, seed=1), "fast": noisy(1.0, 8, seed=2)})
    now = a_run({"s3fs": noisy(2.0, 12, seed=3), "fast": noisy(0.5, 12, seed=4)}, "20261128-now")
    return then, now


def test_a_client_is_compared_with_itself_now_over_then() -> None:
    then, now = two_runs()
    found = of(compare_runs(then, now))
    assert (found.numerator.run, found.denominator.run) == ("20261128-now", "20261127-then")
    assert log_of(found)[0] == pytest.approx(math.log(0.5), abs=0.1)
    assert found.verdict is Difference.BETTER
    assert of(compare_runs(then, now), client="s3fs").verdict is Difference.NO_DIFFERENCE_SHOWN


def test_blocks_of_two_runs_are_no_pairs() -> None:
    then, now = two_runs()
    found = of(compare_runs(then, now))
    assert (found.paired, found.n, found.rank_ratio) == (False, 8, None)
    renumbered = tuple(replace(each, trial=replace(each.trial, block=50 - each.trial.block)) for each in now.records)
    assert log_of(of(compare_runs(then, RunSet(now.run, renumbered)))) == pytest.approx(log_of(found))


def test_either_order_of_runs_gives_the_reciprocal_and_the_opposite_verdict() -> None:
    then, now = two_runs()
    forth, back = compare_runs(then, now), compare_runs(now, then)
    opposite = {Difference.BETTER: Difference.WORSE, Difference.WORSE: Difference.BETTER}
    assert len(forth.comparisons) == len(back.comparisons) > 15
    for one, other in zip(forth.comparisons, back.comparisons, strict=True):
        estimate, low, high = log_of(other)
        assert (one.case, one.metric) == (other.case, other.metric)
        assert log_of(one) == pytest.approx((-estimate, -high, -low))
        assert one.adjusted_p_value == pytest.approx(other.adjusted_p_value)
        assert one.verdict is opposite.get(other.verdict, other.verdict)
    assert [(each.then, each.now) for each in forth.changes] == [(each.now, each.then) for each in back.changes]


def test_only_cases_to_the_last_setting_equal_are_compared() -> None:
    read, write, wider = make_case("read"), make_case("write"), make_case("write", concurrency=40)
    then = RunSet(make_run(["s3fs"], (read, write)), tuple(_records("s3fs", (read, write))))
    now = RunSet(make_run(["s3fs"], (wider, read)), tuple(_records("s3fs", (wider, read))))
    compared = compare_runs(then, now)
    assert {each.case for each in compared.comparisons} == {read}
    cases = next(each for each in compared.changes if each.what == "cases")
    assert "write/64MiB/c40/b8MiB@s3-scaled none" in cases.then
    assert f"write/64MiB/c8/b8MiB@s3-scaled {write.digest}" in cases.then


def _records(client: str, cases: Sequence[Case]) -> list[Record]:
    return [make_record(block, client=client, block=block, case=case) for case in cases for block in range(1, 9)]


def test_clients_that_are_installed_alike_in_both_runs_are_named() -> None:
    then, now = two_runs()
    newer = make_client("fast", version="2026.10.0", lock_digest="aa")
    compared = compare_runs(then, RunSet(replace(now.run, clients=(make_client(), newer)), now.records))
    assert compared.unchanged == ("s3fs",)


def test_runs_that_are_alike_show_no_change() -> None:
    run = make_run()
    later = replace(run, id="later", created_at="2027", command="bench run", plan_digest="ff", trial_count=9)
    assert changes(run, later) == ()


HOST, STORE, PROFILE = make_run().host, make_run().store, make_run().profile

DIFFERENCES: list[tuple[str, dict[str, Any], Change]] = [
    (
        "the link's delay",
        {"link": replace(LINK, delay_ms=100)},
        Change("link", "delay_ms 20", "delay_ms 100", Weight.REFUSES),
    ),
    (
        "the link's rate",
        {"link": replace(LINK, stream_rate_bytes_per_s=None)},
        Change("link", f"stream_rate_bytes_per_s {20 << 20}", "stream_rate_bytes_per_s none", Weight.REFUSES),
    ),
    (
        "limited uploads",
        {"upload_rate_limited": False},
        Change("link", "uploads limited True", "uploads limited False", Weight.REFUSES),
    ),
    ("TLS", {"tls": False}, Change("TLS", "on", "off", Weight.REFUSES)),
    (
        "the processor",
        {"host": replace(HOST, cpu_model="Other", cpu_count=4)},
        Change(
            "kind of host", "cpu_count 2, cpu_model Some CPU @ 3 GHz", "cpu_count 4, cpu_model Other", Weight.REFUSES
        ),
    ),
    (
        "the architecture",
        {"host": replace(HOST, machine="aarch64")},
        Change("kind of host", "machine x86_64", "machine aarch64", Weight.REFUSES),
    ),
    (
        "the store",
        {"store": replace(STORE, kind="endpoint", endpoint="Amazon S3")},
        Change("store", "endpoint loopback, kind embedded", "endpoint Amazon S3, kind endpoint", Weight.REFUSES),
    ),
    (
        "the region",
        {"store": replace(STORE, region="eu-west-1")},
        Change("store", "region us-east-1", "region eu-west-1", Weight.REFUSES),
    ),
    (
        "an adapter",
        {"clients": (make_client("s3fs", adapter_digest="ab"), make_client("pyathena-sync"))},
        Change("s3fs: adapter", "fedcba9876543210", "ab", Weight.AFFECTS),
    ),
    (
        "what is timed",
        {"clients": (make_client("s3fs", operations={"read": "other()"}), make_client("pyathena-sync"))},
        Change(
            "s3fs: calls that are timed",
            "read s3fs.open(path).read(), rm s3fs.rm(paths)",
            "read other(), rm none",
            Weight.AFFECTS,
        ),
    ),
    (
        "the harness",
        {"bench_commit": "new"},
        Change("bench", "bench_commit 3f15293", "bench_commit new", Weight.AFFECTS),
    ),
    (
        "the store's version",
        {"store": replace(STORE, versions={"store": "4.49", "link": "1.40.0"})},
        Change("store's versions", "store 4.48", "store 4.49", Weight.AFFECTS),
    ),
    (
        "the host of the same kind",
        {"host": replace(HOST, name="box-2", kernel="6.19.0")},
        Change("host", "kernel 6.18.0, name box", "kernel 6.19.0, name box-2", Weight.AFFECTS),
    ),
    (
        "the rules",
        {"rules": Rules()},
        Change(
            "rules for disturbed blocks",
            ", ".join(f"{field} none" for field in sorted(Rules.__struct_fields__)),
            ", ".join(f"{field} {getattr(Rules(), field)}" for field in sorted(Rules.__struct_fields__)),
            Weight.AFFECTS,
        ),
    ),
    (
        "a client's version",
        {"clients": (make_client("s3fs", version="2026.10.0"), make_client("pyathena-sync"))},
        Change("clients", "s3fs 2026.9.0", "s3fs 2026.10.0", Weight.TOLD),
    ),
    (
        "who took part",
        {"clients": (make_client("s3fs"), make_client("floor"))},
        Change("clients", "floor none, pyathena-sync 2026.9.0", "floor present, pyathena-sync none", Weight.TOLD),
    ),
    (
        "a package",
        {"clients": (make_client("s3fs", packages={"botocore": "2.0", "new": "1"}), make_client("pyathena-sync"))},
        Change("s3fs: packages", "botocore 1.43.117, new none", "botocore 2.0, new 1", Weight.TOLD),
    ),
    (
        "a lock",
        {"clients": (make_client("s3fs", lock_digest="ff"), make_client("pyathena-sync"))},
        Change("s3fs: installation", "lock_digest 0123456789abcdef", "lock_digest ff", Weight.TOLD),
    ),
    ("the seed", {"seed": 8}, Change("suite", "seed 7", "seed 8", Weight.TOLD)),
    (
        "the profile",
        {"profile": Profile("full", 20, 1)},
        Change("profile", "measured_blocks 8, name standard", "measured_blocks 20, name full", Weight.TOLD),
    ),
    (
        "the decision",
        {"decision": DECISION},
        Change("decision that may extend it", "none", f"which {digest_of(DECISION)}", Weight.TOLD),
    ),
    (
        "the filters",
        {"filters": Filters(sizes=("1MiB", "2MiB"))},
        Change("filters", "sizes none", "sizes 1MiB and 2MiB", Weight.TOLD),
    ),
    (
        "the ceilings",
        {"ceilings": Ceilings(310 << 20, 200 << 20, 4000, 3000)},
        Change(
            "store's ceilings",
            "GETs none, PUTs none, upload none",
            "GETs 4,000 requests/s, PUTs 3,000 requests/s, upload 200 MiB/s",
            Weight.TOLD,
        ),
    ),
]


@pytest.mark.parametrize(("what", "differing", "change"), DIFFERENCES, ids=[each[0] for each in DIFFERENCES])
def test_what_differs_is_told_and_refuses_only_when_other_surroundings_were_measured(
    what: str, differing: dict[str, Any], change: Change
) -> None:
    then, now = (RunSet(make_run(id=name, **run), ()) for name, run in (("then", {}), ("now", differing)))
    assert changes(then.run, now.run) == (change,)
    if change.weight is Weight.REFUSES:
        with pytest.raises(BenchError, match="runs then and now can't be compared") as refused:
            compare_runs(then, now)
        assert f"{change.what}: {change.then} then, {change.now} now" in str(refused.value)
        assert (refused.value.exit_code, bool(refused.value.hint)) == (2, True)
    else:
        assert compare_runs(then, now).changes == (change,)


def test_every_field_of_a_manifest_is_told_or_left_out_on_purpose() -> None:
    told = {
        *(
            "suite",
            "suite_file",
            "suite_title",
            "decision",
            "baseline",
            "seed",
            "profile",
            "filters",
            "tls",
            "link",
            "more_links",
            "ceilings",
        ),
        *("ceiling_bytes_per_s", "upload_rate_limited", "store", "host", "clients", "cases", "rules", "fitness"),
        *("schema", "bench_version", "bench_commit"),
    }
    of_any_run = {"id", "created_at", "command", "trial_count", "plan_digest"}
    assert told | of_any_run == set(Run.__struct_fields__)


def test_a_further_link_that_both_runs_have_must_be_the_same_in_both() -> None:
    slow, fast, other = Link("slow", delay_ms=100), Link("slow", delay_ms=20), Link("other")
    then = make_run(more_links=(slow,))
    told = {change.what for change in changes(then, make_run(more_links=(fast,)))}
    assert told == {"link slow"}
    assert not changes(then, make_run(more_links=(slow, other)))


def test_the_heaviest_changes_come_first() -> None:
    other = make_run(
        seed=8,
        tls=False,
        bench_commit="new",
        clients=(make_client("s3fs", adapter_digest="ab", version="3"), make_client("pyathena-sync")),
    )
    weights = [each.weight for each in changes(make_run(), other)]
    assert weights == [Weight.REFUSES, Weight.AFFECTS, Weight.AFFECTS, Weight.TOLD, Weight.TOLD]


def test_all_reasons_to_refuse_are_named_at_once() -> None:
    then = make_run(id="then")
    now = make_run(["boto3-threads"], (make_case("write"),), id="now", tls=False)
    with pytest.raises(BenchError) as refused:
        compare_runs(RunSet(then, ()), RunSet(now, ()))
    for reason in ("TLS: on then, off now", "no case of the one", "no client took part in both"):
        assert reason in str(refused.value)


def test_runs_that_share_only_a_control_or_the_null_client_have_none_in_common() -> None:
    null = make_client("null")
    with pytest.raises(BenchError, match="no client took part in both"):
        compare_runs(RunSet(make_run(["s3fs", null]), ()), RunSet(make_run(["boto3-threads", null]), ()))


# --- for scripts -----------------------------------------------------------------------------------------------------


def test_all_of_it_is_plain_data_for_json() -> None:
    then, now = two_runs()
    for compared in (compare_clients(realistic_run_set()), compare_runs(then, now)):
        document = json.loads(json.dumps(as_data(compared), allow_nan=False))
        assert document == as_data(compared)
        assert len(document["comparisons"]) == len(compared.comparisons) > 0
        for told, each in zip(document["comparisons"], compared.comparisons, strict=True):
            assert (told["case"], told["case_digest"]) == (each.case.key, each.case.digest)
            assert told["better"] == METRIC[each.metric].better
            assert told["verdict"] == each.verdict
            assert (told["ratio"] or {}).get("estimate") == (each.ratio.estimate if each.ratio else None)
            assert told["numerator"]["failed"] == each.numerator.failed
