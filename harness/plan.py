"""What is run in which order: pure, so that one suite, filter and seed always give the same trials."""

from __future__ import annotations

import fnmatch
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from harness.errors import BenchError, UnknownNameError
from harness.model import CONTROL, Case, Filters, Phase, Scenario, Suite, Trial, client_name, digest_of
from harness.operations import OPERATIONS, Kind

T = TypeVar("T")

NO_CONTROL = "none"
FINDING_LIMIT_S = 300.0

_MIB = 1 << 20


def narrow(suite: Suite, filters: Filters, known_clients: Sequence[str] = ()) -> Suite:
    """Keep what `filters` name; `known_clients` may be named though the suite doesn't list them."""
    scenarios = _narrow_sizes(_narrow_scenarios(suite.scenarios, filters.scenarios), filters.sizes)
    narrowed = msgspec.structs.replace(
        suite, clients=_narrow_clients(suite.clients, filters.clients, known_clients), scenarios=scenarios
    )
    if filters.blocks is not None:
        narrowed = _with_blocks(narrowed, filters.blocks)
    if filters.link is not None:
        narrowed = _with_link(narrowed, filters.link)
    return _with_control(narrowed, filters.control)


def with_labels(suite: Suite, labels: Sequence[str]) -> Suite:
    """Add other versions of the suite's clients, each right behind the one that it is a version of."""
    clients: list[str] = []
    for name in suite.clients:
        clients += [name, *(label for label in labels if client_name(label) == name != label)]
    return msgspec.structs.replace(suite, clients=tuple(clients))


def trials(suite: Suite, seed: int) -> tuple[Trial, ...]:
    """Order a run in randomised complete blocks: each holds each case once, and in it every client once, adjacent.

    Clients of one case are adjacent in time, so that a drift of the host reaches all of them alike. Their order is one
    permutation a case. The second of two blocks has the reverse order of the first, so that each client's mean position
    is the same, and who goes before whom changes. Every two blocks the start moves on by one, so that over the blocks
    each client takes each position.
    """
    return tuple(
        Trial(sequence, block, position, phase, client, case)
        for sequence, (block, phase, case, position, client) in enumerate(_places(suite, seed))
    )


def extension(suite: Suite, seed: int, cases: Sequence[Case], first_sequence: int) -> tuple[Trial, ...]:
    """Order as many measured blocks again for some of the cases, with block numbers and sequence going on."""
    profile = suite.profile
    longer = msgspec.structs.replace(
        suite, profile=msgspec.structs.replace(profile, measured_blocks=2 * profile.measured_blocks)
    )
    first_block = profile.warmup_blocks + profile.measured_blocks
    places = (place for place in _places(longer, seed) if place[0] >= first_block and place[2] in cases)
    return tuple(
        Trial(sequence, block, position, phase, client, case)
        for sequence, (block, phase, case, position, client) in enumerate(places, first_sequence)
    )


def digest(planned: Sequence[Trial]) -> str:
    return digest_of(planned)


def time_limit_s(case: Case) -> float:
    """Return how long a trial may take before it counts as hung: a minute, plus the time of a very slow client.

    A question that isn't of speed may take as long as a client's longest patience.
    """
    if OPERATIONS[case.operation].kind is Kind.FINDING:
        return FINDING_LIMIT_S
    return 60 + case.objects.total_bytes / _MIB + 0.5 * case.objects.count


def matches(case: Case, patterns: Sequence[str]) -> bool:
    """Tell whether one of the patterns, e.g. `read/*MiB/c8/*`, is like the case's key."""
    return any(fnmatch.fnmatchcase(case.key, pattern) for pattern in patterns)


def shape(case: Case) -> str:
    """Return the part of a case's key that a size filter matches, e.g. `64MiB` or `200x1MiB`."""
    return case.key.split("/")[1]


def _with_control(suite: Suite, wanted: str | None) -> Suite:
    """Have one client take part twice; where the profile's isn't among the clients, the first of them."""
    profile = suite.profile
    if wanted is None and profile.control is not None:
        wanted = profile.control if profile.control in suite.clients else suite.clients[0]
    if wanted in (None, NO_CONTROL):
        return msgspec.structs.replace(suite, profile=msgspec.structs.replace(profile, control=None))
    if wanted not in suite.clients:
        raise UnknownNameError("client", wanted, suite.clients)
    return msgspec.structs.replace(
        suite,
        profile=msgspec.structs.replace(profile, control=wanted),
        clients=(*suite.clients, f"{wanted}@{CONTROL}"),
    )


# --- order -----------------------------------------------------------------------------------------------------------


def _places(suite: Suite, seed: int) -> Iterator[tuple[int, Phase, Case, int, str]]:
    warmup_blocks = suite.profile.warmup_blocks
    for block in range(warmup_blocks + suite.profile.measured_blocks):
        phase = Phase.WARMUP if block < warmup_blocks else Phase.MEASURED
        for case in _shuffled(suite.cases, f"{seed}/{block}", lambda case: case.key):
            if case.blocks is not None and not 0 <= block - warmup_blocks < case.blocks:
                continue
            clients = suite.clients_of(case)
            for position, client in enumerate(_clients_of(clients, seed, case, block - warmup_blocks)):
                yield block, phase, case, position, client


def _clients_of(clients: Sequence[str], seed: int, case: Case, block: int) -> list[str]:
    """Return the order in a block; measured blocks count from 0, so that their pairs are whole."""
    order = _shuffled(clients, f"{seed}/{case.key}", str)
    if not order:
        return []
    start = block // 2 % len(order)
    rotated = order[start:] + order[:start]
    return rotated[::-1] if block % 2 else rotated


def _shuffled(items: Sequence[T], seed: str, name: Callable[[T], str]) -> list[T]:
    """Sort by one draw per item, seeded by its own name: leaving items out keeps the order of the others."""
    return sorted(items, key=lambda item: (random.Random(f"{seed}/{name(item)}").random(), name(item)))  # noqa: S311


# --- filters ---------------------------------------------------------------------------------------------------------


def _narrow_clients(clients: tuple[str, ...], wanted: tuple[str, ...], known: Sequence[str]) -> tuple[str, ...]:
    if not wanted:
        return clients
    there_is = tuple(dict.fromkeys((*clients, *known)))
    for name in wanted:
        if name not in there_is:
            raise UnknownNameError("client", name, there_is)
    return tuple(name for name in there_is if name in wanted)


def _narrow_scenarios(scenarios: tuple[Scenario, ...], wanted: tuple[str, ...]) -> tuple[Scenario, ...]:
    if not wanted:
        return scenarios
    there_is = tuple(scenario.name for scenario in scenarios)
    for name in wanted:
        if name not in there_is:
            raise UnknownNameError("scenario", name, there_is)
    return tuple(scenario for scenario in scenarios if scenario.name in wanted)


def _narrow_sizes(scenarios: tuple[Scenario, ...], sizes: tuple[str, ...]) -> tuple[Scenario, ...]:
    """Keep cases of these sizes, and scenarios that have any; every size must match in the scenarios left so far."""
    if not sizes:
        return scenarios
    there_is = tuple(dict.fromkeys(shape(case) for scenario in scenarios for case in scenario.cases))
    wanted = {_plain(size) for size in sizes}
    for size in sizes:
        if _plain(size) not in map(_plain, there_is):
            raise UnknownNameError("size", size, there_is)
    kept = (
        _with_cases(each, tuple(case for case in each.cases if _plain(shape(case)) in wanted)) for each in scenarios
    )
    return tuple(scenario for scenario in kept if scenario.cases)


def _plain(size: str) -> str:
    return "".join(size.split()).lower()


def _with_cases(scenario: Scenario, cases: tuple[Case, ...]) -> Scenario:
    return msgspec.structs.replace(scenario, cases=cases)


def _with_blocks(suite: Suite, blocks: int) -> Suite:
    if blocks < 1:
        raise BenchError(f"a run needs at least 1 measured block, not {blocks}")
    return msgspec.structs.replace(suite, profile=msgspec.structs.replace(suite.profile, measured_blocks=blocks))


def _with_link(suite: Suite, link: str) -> Suite:
    there_is = tuple(each.name for each in suite.links)
    if link not in there_is:
        raise UnknownNameError("link", link, there_is)
    # Cases that differed in their link alone are one now.
    scenarios = tuple(
        _with_cases(scenario, tuple(dict.fromkeys(msgspec.structs.replace(case, link=link) for case in scenario.cases)))
        for scenario in suite.scenarios
    )
    return msgspec.structs.replace(suite, scenarios=scenarios, default_link=link)
