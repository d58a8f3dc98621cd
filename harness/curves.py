"""Several cases of one scenario -> one verdict: does memory grow with the object, and where is the knee of concurrency."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from harness import explain
from harness.model import Case, RunSet
from harness.operations import OPERATIONS, Kind
from harness.statistics import Slope, Spread, median, slope_interval
from harness.summary import Summary

GROWING_SHARE = 0.1
"""Bytes of memory for each byte of the object, from which on memory grows with it."""
LEAST_SIZES = 3
LEAST_POINTS = 6
LEAST_LEVELS = 4
KNEE_GAIN = 1.5
"""Of a doubled concurrency; with less, doubling no longer pays: two would be all of it."""


class Growth(StrEnum):
    CONSTANT = "constant memory"
    GROWS = "grows with the object"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Memory:
    """How the increase of a client's peak RSS follows the size of the object, in one scenario."""

    scenario: str
    concurrency: int
    client: str
    slope: Slope | None
    """Bytes of memory for each byte of the object."""
    verdict: Growth
    reason: str
    points: Mapping[int, Spread]
    """By size of the object in bytes, the increase in bytes."""


@dataclass(frozen=True)
class Concurrency:
    """Objects a second over concurrency, of one client in one scenario."""

    scenario: str
    client: str
    points: Mapping[int, Spread]
    """By concurrency, in objects a second."""
    knee: int
    """The concurrency up to which each doubling gains at least 1.5 times."""
    bounds: Mapping[int, str]
    """By concurrency, what bounds the trials whose requests were kept."""


def memory(summary: Summary) -> Iterator[Memory]:
    """Yield a verdict for each client in each scenario that moves one object of several sizes."""
    grouped: dict[tuple[str, int], list[Case]] = defaultdict(list)
    for case in summary.run.cases:
        operation = OPERATIONS[case.operation]
        if operation.kind is Kind.ONE and operation.moves and not operation.copies:
            grouped[case.scenario, case.settings.concurrency].append(case)
    for (scenario, concurrency), cases in grouped.items():
        if len({case.objects.size_bytes for case in cases}) < 2:
            continue
        for client in summary.clients:
            found = _memory(summary, scenario, concurrency, client.name, cases)
            if found is not None and client.role == "client":
                yield found


def _memory(summary: Summary, scenario: str, concurrency: int, client: str, cases: list[Case]) -> Memory | None:
    results = {case: summary.results[case, client] for case in cases}
    values = {case: result.values.get("rss_increase_bytes", ()) for case, result in results.items()}
    pairs = [(float(case.objects.size_bytes), value) for case, own in values.items() for value in own]
    if not pairs:
        return None
    points = {
        case.objects.size_bytes: result.spreads["rss_increase_bytes"]
        for case, result in results.items()
        if values[case]
    }
    if len(points) < LEAST_SIZES or len(pairs) < LEAST_POINTS:
        reason = f"{len(points)} sizes and {len(pairs)} trials; {LEAST_SIZES} and {LEAST_POINTS} are needed"
        return Memory(scenario, concurrency, client, None, Growth.INCONCLUSIVE, reason, points)
    slope = slope_interval([size for size, _ in pairs], [value for _, value in pairs])
    return Memory(scenario, concurrency, client, slope, growth_of(slope), "", points)


def growth_of(slope: Slope) -> Growth:
    """Call it by the whole interval: above a tenth of a byte for each byte it grows, below it is constant."""
    if slope.low > GROWING_SHARE:
        return Growth.GROWS
    return Growth.CONSTANT if slope.high < GROWING_SHARE else Growth.INCONCLUSIVE


def concurrency(run_set: RunSet, summary: Summary) -> Iterator[Concurrency]:
    """Yield a curve for each client in each scenario that was measured at four levels of concurrency or more."""
    grouped: dict[str, list[Case]] = defaultdict(list)
    for case in summary.run.cases:
        if OPERATIONS[case.operation].kind is Kind.MANY:
            grouped[case.scenario].append(case)
    for scenario, cases in grouped.items():
        by_level = {case.settings.concurrency: case for case in cases}
        if len(by_level) < LEAST_LEVELS or len(by_level) != len(cases):
            continue
        for client in summary.clients:
            points = dict(_points(summary, by_level, client.name))
            if len(points) >= LEAST_LEVELS:
                bounds = {level: _bound(run_set, by_level[level], client.name) for level in points}
                yield Concurrency(scenario, client.name, points, knee_of(points), bounds)


def _points(summary: Summary, by_level: Mapping[int, Case], client: str) -> Iterator[tuple[int, Spread]]:
    for level, case in sorted(by_level.items()):
        values = summary.results[case, client].values.get("wall_ns", ())
        rates = sorted(case.objects.count * 1e9 / value for value in values)
        if rates:
            yield level, Spread(median(rates), rates[0], rates[-1], len(rates))


def knee_of(points: Mapping[int, Spread]) -> int:
    """Return the level up to which more concurrency pays: each step gains at least as much as 1.5 a doubling.

    Steps that aren't doublings are held against the same power of their factor.
    """
    levels = sorted(points)
    knee = levels[0]
    for lower, higher in itertools.pairwise(levels):
        doublings = math.log2(higher / lower)
        if points[higher].median < points[lower].median * KNEE_GAIN**doublings:
            break
        knee = higher
    return knee


def _bound(run_set: RunSet, case: Case, client: str) -> str:
    found = [
        explain.explain(run_set.run, record, trace).bound for record, trace in explain.traced(run_set, case.key, client)
    ]
    return max(dict.fromkeys(found), key=found.count) if found else ""
