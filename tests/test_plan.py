"""The order of a run is random where it may be, balanced where it must be, and the same for the same seed."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import msgspec
import pytest

from harness import plan
from harness.errors import BenchError, UnknownNameError
from harness.model import Case, Filters, Link, Objects, Phase, Profile, Scenario, Settings, Suite

MIB = 1 << 20
CLIENTS = ("a", "b", "c", "d")


def scenario(name: str, *objects: Objects) -> Scenario:
    settings = Settings(concurrency=8, block_bytes=8 * MIB)
    return Scenario(name, name, name, tuple(Case(name, name, each, settings, "direct") for each in objects))


def suite(measured: int = 8, warmup: int = 1, clients: tuple[str, ...] = CLIENTS) -> Suite:
    sizes = (Objects(1, 64 * MIB), Objects(1, 256 * MIB))
    return Suite(
        name="small",
        title="Small",
        profile=Profile("quick", measured_blocks=measured, warmup_blocks=warmup),
        clients=clients,
        baseline="a",
        scenarios=(scenario("read", *sizes), scenario("write", *sizes), scenario("cat", Objects(1000, MIB))),
        links=(Link("direct"), Link("s3", delay_ms=20)),
        default_link="direct",
    )


@pytest.mark.parametrize("warmup", [0, 1, 2])
def test_each_block_holds_each_case_once_with_every_client_adjacent(warmup: int) -> None:
    cases = suite().cases
    planned = plan.trials(suite(measured=3, warmup=warmup), 1)
    groups = [(place, list(group)) for place, group in groupby(planned, lambda trial: (trial.block, trial.case))]
    assert Counter(place for place, _ in groups) == {(block, case): 1 for block in range(3 + warmup) for case in cases}
    for _, group in groups:
        assert sorted(trial.client for trial in group) == sorted(CLIENTS)
        assert [trial.position for trial in group] == [0, 1, 2, 3]
    assert [trial.sequence for trial in planned] == list(range(len(planned)))
    assert [trial.block for trial in planned] == sorted(trial.block for trial in planned)
    assert all((trial.phase is Phase.WARMUP) == (trial.block < warmup) for trial in planned)


def positions(measured: int, warmup: int, clients: tuple[str, ...]) -> dict[tuple[str, str], list[int]]:
    """Return the positions that each client takes on each case in measured blocks."""
    found: dict[tuple[str, str], list[int]] = {}
    for trial in plan.trials(suite(measured, warmup, clients), 7):
        if trial.phase is Phase.MEASURED:
            found.setdefault((trial.case.key, trial.client), []).append(trial.position)
    return found


@pytest.mark.parametrize("warmup", [0, 1])
@pytest.mark.parametrize("measured", [2, 6, 8, 10])
@pytest.mark.parametrize("clients", [CLIENTS[:2], CLIENTS[:3], CLIENTS])
def test_over_two_blocks_each_client_has_the_same_mean_position(
    measured: int, warmup: int, clients: tuple[str, ...]
) -> None:
    for taken in positions(measured, warmup, clients).values():
        assert sum(taken) * 2 == measured * (len(clients) - 1)


@pytest.mark.parametrize("clients", [CLIENTS[:2], CLIENTS[:3], CLIENTS])
def test_over_enough_blocks_each_client_takes_each_position_equally_often(clients: tuple[str, ...]) -> None:
    for taken in positions(2 * len(clients), 1, clients).values():
        assert Counter(taken) == dict.fromkeys(range(len(clients)), 2)


def test_who_goes_before_whom_changes_from_block_to_block() -> None:
    planned = [trial.client for trial in plan.trials(suite(2, 0), 7) if trial.case.key == "read/64MiB/c8/b8MiB"]
    assert planned[:4] == planned[:3:-1]


def test_a_control_takes_part_once_more_under_a_label_of_its_own() -> None:
    with_control = plan.narrow(suite(), Filters(control="b"))
    assert with_control.clients == (*CLIENTS, "b@control")
    assert {trial.client for trial in plan.trials(with_control, 1)} == {*CLIENTS, "b@control"}


def test_a_control_is_the_profiles_unless_told_otherwise() -> None:
    profile = Profile("standard", 8, 1, control="b")
    planned = msgspec.structs.replace(suite(), profile=profile)
    assert plan.narrow(planned, Filters()).clients[-1] == "b@control"
    assert plan.narrow(planned, Filters(control="none")).clients == CLIENTS
    assert plan.narrow(planned, Filters(clients=("c", "d"))).clients == ("c", "d", "c@control")
    with pytest.raises(UnknownNameError, match="no client matches 'b'"):
        plan.narrow(planned, Filters(clients=("c", "d"), control="b"))


def test_the_seed_alone_decides_the_order() -> None:
    assert plan.trials(suite(), 1) == plan.trials(suite(), 1)
    assert plan.digest(plan.trials(suite(), 1)) == plan.digest(plan.trials(suite(), 1))
    assert len({plan.digest(plan.trials(suite(), seed)) for seed in range(10)}) == 10
    orders = {tuple(trial.case.key for trial in plan.trials(suite(1, 0), seed)) for seed in range(10)}
    assert len(orders) > 5


def test_a_recorded_seed_gives_the_recorded_order() -> None:
    first = plan.trials(suite(clients=("a", "b")), 42)[:6]
    assert [(trial.case.key, trial.client) for trial in first] == [
        ("read/256MiB/c8/b8MiB", "a"),
        ("read/256MiB/c8/b8MiB", "b"),
        ("write/64MiB/c8/b8MiB", "b"),
        ("write/64MiB/c8/b8MiB", "a"),
        ("write/256MiB/c8/b8MiB", "a"),
        ("write/256MiB/c8/b8MiB", "b"),
    ]


def test_cases_are_shuffled_anew_in_each_block() -> None:
    planned = plan.trials(suite(), 1)
    orders = {tuple(trial.case.key for trial in planned if trial.block == block) for block in range(9)}
    assert len(orders) > 5


@pytest.mark.parametrize(
    "filters", [Filters(scenarios=("write", "cat")), Filters(sizes=("256MiB",)), Filters(blocks=2), Filters(link="s3")]
)
def test_narrowing_keeps_the_order_of_what_remains(filters: Filters) -> None:
    narrowed = plan.narrow(suite(), filters)
    kept = {case.key for case in narrowed.cases}
    block_count = narrowed.profile.measured_blocks + 1
    places = [(t.block, t.case.key, t.position, t.client) for t in plan.trials(suite(), 5)]
    expected = [place for place in places if place[0] < block_count and place[1] in kept]
    assert [(t.block, t.case.key, t.position, t.client) for t in plan.trials(narrowed, 5)] == expected


def test_no_filter_changes_nothing() -> None:
    assert plan.narrow(suite(), Filters()) == suite()


@pytest.mark.parametrize(
    ("wanted", "known", "kept"),
    [(("c", "a"), (), ("a", "c")), (("new", "b"), ("b", "new"), ("b", "new")), (("a", "a"), (), ("a",))],
)
def test_clients_keep_the_order_of_the_suite(
    wanted: tuple[str, ...], known: tuple[str, ...], kept: tuple[str, ...]
) -> None:
    assert plan.narrow(suite(), Filters(clients=wanted), known).clients == kept


@pytest.mark.parametrize(
    ("sizes", "shapes"),
    [
        (("64MiB",), ["read/64MiB", "write/64MiB"]),
        (("64 mib",), ["read/64MiB", "write/64MiB"]),
        (("1000 X 1 MiB",), ["cat/1000x1MiB"]),
        (("1000x1MiB", "256MiB"), ["read/256MiB", "write/256MiB", "cat/1000x1MiB"]),
    ],
)
def test_a_size_matches_the_shape_of_a_case(sizes: tuple[str, ...], shapes: list[str]) -> None:
    narrowed = plan.narrow(suite(), Filters(sizes=sizes))
    assert ["/".join(case.key.split("/")[:2]) for case in narrowed.cases] == shapes
    assert all(scenario.cases for scenario in narrowed.scenarios)


def test_blocks_and_link_replace_those_of_the_suite() -> None:
    narrowed = plan.narrow(suite(), Filters(blocks=2, link="s3"))
    assert narrowed.profile == Profile("quick", measured_blocks=2, warmup_blocks=1)
    assert narrowed.default_link == "s3"
    assert {case.link for case in narrowed.cases} == {"s3"}


@pytest.mark.parametrize(
    ("filters", "message", "there_is"),
    [
        (Filters(clients=("a", "x")), "no client matches 'x'", "a, b, c, d, new"),
        (Filters(scenarios=("x",)), "no scenario matches 'x'", "read, write, cat"),
        (Filters(sizes=("1 MiB",)), "no size matches '1 MiB'", "64MiB, 256MiB, 1000x1MiB"),
        (Filters(scenarios=("cat",), sizes=("64MiB",)), "no size matches '64MiB'", "1000x1MiB"),
        (Filters(link="x"), "no link matches 'x'", "direct, s3"),
    ],
)
def test_a_filter_that_matches_nothing_lists_what_there_is(filters: Filters, message: str, there_is: str) -> None:
    with pytest.raises(UnknownNameError, match=message) as caught:
        plan.narrow(suite(), filters, ("new",))
    assert caught.value.hint == f"There is: {there_is}."


@pytest.mark.parametrize("blocks", [0, -1])
def test_a_run_needs_a_measured_block(blocks: int) -> None:
    with pytest.raises(BenchError, match="at least 1 measured block"):
        plan.narrow(suite(), Filters(blocks=blocks))


@pytest.mark.parametrize(
    ("objects", "limit_s"), [(Objects(1, 64 * MIB), 124.5), (Objects(1000, MIB), 1560), (Objects(1, 512 * 1024), 61)]
)
def test_a_time_limit_grows_with_bytes_and_objects(objects: Objects, limit_s: float) -> None:
    assert plan.time_limit_s(scenario("read", objects).cases[0]) == limit_s
