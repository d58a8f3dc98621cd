"""What a client did, from the link's log alone: requests, connections, what was in flight, and what most likely bounds it.

A rule looks at the facts of one trial and answers in words, or not at all. The first of the list that answers is the likely
bound; others that answer as well are told beside it. None may answer: then there is no single bound, and that is said.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness import units
from harness.model import Ceilings, Link, Measured, Measurement, Record, Run, RunSet, SentRequest, Trace
from harness.statistics import median
from harness.validity import BOUND_SHARE

NO_SINGLE_BOUND = "no single bound"
BRIEF_SHARE = 0.05
"""Of the time with anything in flight: levels above are passed for less, such as two requests that overlap for a moment."""
HELD_SHARE = 0.5
"""Of the time with anything in flight: a level that is kept for more is held."""
SEQUENTIAL_SHARE = 0.75
CPU_CORES = 0.85
IDLE_SHARE = 0.5
STREAM_SHARE = 0.8
"""Of the time that a body needs at the link's rate, below which the rate isn't what it waits for."""
LATENCY_SHARE = 0.7


@dataclass(frozen=True)
class Facts:
    """What the link saw of one trial, and what is known of it besides."""

    client: str
    case: str
    sequence: int
    wall_us: int
    requests: tuple[SentRequest, ...]
    by_kind: Mapping[str, int]
    """E.g. `GET object 206`: how many."""
    connection_count: int
    levels: Mapping[int, float]
    """Requests in flight: the share of the window at each level, 0 included."""
    peak: int
    main_peak: int
    """The highest level that isn't passed briefly."""
    mean: float
    """Over the time with anything in flight."""
    first_byte_us: float | None
    """Median, from the start of a request."""
    transfer_us: float | None
    """Median, from the first byte of the answer to its end."""
    gap_us: int
    """Of the window, with nothing in flight."""
    bytes_per_s: float
    concurrency: int
    pool_size: int | None
    cpu_cores: float | None
    """CPU time of the client's process over the window's length."""
    link: Link | None
    ceilings: Ceilings | None

    @property
    def busy_share(self) -> float:
        return 1.0 - self.levels.get(0, 0.0)

    def share_at(self, level: int) -> float:
        """Return the share of the time with anything in flight at exactly `level`."""
        return self.levels.get(level, 0.0) / self.busy_share if self.busy_share else 0.0

    @property
    def allowed(self) -> int:
        """Return how many requests may be in flight by the settings."""
        return min(self.concurrency, self.pool_size or self.concurrency)


@dataclass(frozen=True)
class Explanation:
    facts: Facts
    bound: str
    rule: str
    """Name of the rule that found the bound; empty where none did."""
    also: tuple[str, ...]


Rule = Callable[[Facts], str | None]


def traced(run_set: RunSet, case_key: str, client: str) -> list[tuple[Record, Trace]]:
    """Return the trials of a case and client whose requests were kept, in their order."""
    return [
        (record, run_set.traces[record.trial.sequence])
        for record in run_set.records
        if record.trial.sequence in run_set.traces
        and record.trial.case.key == case_key
        and record.trial.client == client
    ]


def explain(run: Run, record: Record, trace: Trace) -> Explanation:
    return judge(gather(run, record, trace))


def judge(facts: Facts) -> Explanation:
    found = [(name, words) for name, rule in RULES.items() if (words := rule(facts)) is not None]
    if not found:
        return Explanation(facts, NO_SINGLE_BOUND, "", ())
    (name, words), *others = found
    return Explanation(facts, words, name, tuple(text for _, text in others))


# --- facts -----------------------------------------------------------------------------------------------------------


def gather(run: Run, record: Record, trace: Trace) -> Facts:
    """Collect what is known of one trial. A request that began before the window counts from its opening."""
    case, outcome = record.trial.case, record.outcome
    measurement: Measurement | None = getattr(outcome, "measurement", None)
    applied = outcome.applied if isinstance(outcome, Measured) else getattr(outcome, "applied", {})
    pool = applied.get("pool_size")
    last_us = max((each.end_us for each in trace.requests), default=1)
    wall_us = trace.wall_us or last_us
    levels = in_flight_shares(trace.requests, wall_us)
    busy = 1.0 - levels.get(0, 0.0)
    moved = sum(each.sent_bytes + each.received_bytes for each in trace.requests)
    answered = [each for each in trace.requests if each.first_byte_us is not None]
    return Facts(
        client=record.trial.client,
        case=case.key,
        sequence=record.trial.sequence,
        wall_us=wall_us,
        requests=trace.requests,
        by_kind=dict(Counter(f"{each.method} {each.what} {each.status}" for each in trace.requests).most_common()),
        connection_count=len({each.connection for each in trace.requests}),
        levels=levels,
        peak=max(levels, default=0),
        main_peak=_main_peak(levels),
        mean=sum(level * share for level, share in levels.items()) / busy if busy else 0.0,
        first_byte_us=median([(e.first_byte_us or 0) - e.start_us for e in answered]) if answered else None,
        transfer_us=median([e.end_us - (e.first_byte_us or 0) for e in answered]) if answered else None,
        gap_us=round(levels.get(0, 0.0) * wall_us),
        bytes_per_s=moved * 1e6 / wall_us,
        concurrency=case.settings.concurrency,
        pool_size=pool if isinstance(pool, int) else case.settings.pool_size,
        cpu_cores=measurement.cpu_ns / 1000 / wall_us if measurement else None,
        link=next((each for each in run.links if each.name == case.link), None),
        ceilings=run.ceilings,
    )


def in_flight_shares(requests: Sequence[SentRequest], wall_us: int) -> dict[int, float]:
    """Return the share of the window at each number of requests in flight."""
    steps = steps_of(requests, wall_us)
    shares: Counter[int] = Counter()
    for (start_us, level), (end_us, _) in zip(steps, [*steps[1:], (wall_us, 0)], strict=True):
        shares[level] += end_us - start_us
    return {level: time_us / wall_us for level, time_us in sorted(shares.items()) if time_us > 0}


def steps_of(requests: Sequence[SentRequest], wall_us: int) -> list[tuple[int, int]]:
    """Return the times in the window at which the number in flight changes, and the number from then on."""
    changes: Counter[int] = Counter()
    for each in requests:
        start_us, end_us = max(0, each.start_us), min(wall_us, each.end_us)
        if start_us < end_us:
            changes[start_us] += 1
            changes[end_us] -= 1
    steps, level = [(0, 0)], 0
    for time_us, change in sorted(changes.items()):
        level += change
        if time_us == 0:
            steps[0] = (0, level)
        elif time_us < wall_us:
            steps.append((time_us, level))
    return steps


def level_at(steps: Sequence[tuple[int, int]], time_us: float) -> int:
    """Return how many requests were in flight at a time."""
    return steps[bisect.bisect_right(steps, (time_us, 1 << 30)) - 1][1]


def _main_peak(levels: Mapping[int, float]) -> int:
    busy = sum(share for level, share in levels.items() if level)
    above = 0.0
    for level in sorted((level for level in levels if level), reverse=True):
        above += levels[level]
        if above > BRIEF_SHARE * busy:
            return level
    return 0


# --- rules -----------------------------------------------------------------------------------------------------------


def _server_bound(facts: Facts) -> str | None:
    if facts.ceilings is None or not facts.requests:
        return None
    down = sum(each.sent_bytes for each in facts.requests) * 1e6 / facts.wall_us
    up = sum(each.received_bytes for each in facts.requests) * 1e6 / facts.wall_us
    per_s = len(facts.requests) * 1e6 / facts.wall_us
    reads = sum(each.method in {"GET", "HEAD"} for each in facts.requests) * 2 > len(facts.requests)
    asked = facts.ceilings.gets_per_s if reads else facts.ceilings.puts_per_s
    if down >= BOUND_SHARE * facts.ceilings.download_bytes_per_s:
        return f"server-bound: {units.rate(down)} of the {units.rate(facts.ceilings.download_bytes_per_s)} that the store gives at most"
    if up >= BOUND_SHARE * facts.ceilings.upload_bytes_per_s:
        return f"server-bound: {units.rate(up)} of the {units.rate(facts.ceilings.upload_bytes_per_s)} that the store takes at most"
    if per_s >= BOUND_SHARE * asked:
        return f"server-bound: {per_s:.0f} requests/s of the {asked} that the store answers at most"
    return None


def _client_cpu(facts: Facts) -> str | None:
    if facts.cpu_cores is None or facts.cpu_cores < CPU_CORES:
        return None
    cores = round(facts.cpu_cores, 1)
    return f"client CPU-bound: {cores:.1f} core{'' if cores == 1 else 's'} busy"


def _idle(facts: Facts) -> str | None:
    share = 1.0 - facts.busy_share
    return f"the client itself: nothing in flight for {share:.0%} of the window" if share >= IDLE_SHARE else None


def _sequential(facts: Facts) -> str | None:
    share = facts.share_at(1)
    if facts.allowed <= 1 or len(facts.requests) < 2 or share < SEQUENTIAL_SHARE:
        return None
    most = "" if facts.main_peak == 1 else f" for {share:.0%} of the busy time, never more than {facts.peak}"
    return f"one request in flight{most}: sequential"


def _pinned_at_pool(facts: Facts) -> str | None:
    pool = facts.pool_size
    if pool is None or pool >= facts.concurrency or facts.main_peak != pool or facts.share_at(pool) < HELD_SHARE:
        return None
    return f"in flight pinned at {pool}: the pool"


def _stops_at_pool(facts: Facts) -> str | None:
    """Return words for a pool that is never passed, though not held, for the client turns round slowly."""
    pool = facts.pool_size
    if pool is None or pool >= facts.concurrency or not facts.peak == facts.connection_count == pool:
        return None
    return f"in flight never more than {pool}, on {pool} connections: stops at the pool"


def _pinned_at_concurrency(facts: Facts) -> str | None:
    if facts.concurrency <= 1 or facts.main_peak != facts.concurrency or facts.share_at(facts.main_peak) < HELD_SHARE:
        return None
    return f"in flight pinned at {facts.concurrency}: the concurrency asked for"


def _one_at_a_time(facts: Facts) -> str | None:
    if facts.allowed == 1 and facts.main_peak == 1 and facts.busy_share >= HELD_SHARE:
        return "one request in flight, as asked for"
    return None


def _few_in_flight(facts: Facts) -> str | None:
    if not 1 < facts.main_peak <= facts.allowed / 2 or len(facts.requests) < facts.allowed:
        return None
    return f"in flight never more than {facts.main_peak} where {facts.allowed} may be: the client asks for few at once"


def _stream_rate(facts: Facts) -> str | None:
    rate = facts.link.stream_rate_bytes_per_s if facts.link else None
    bodies = [each for each in facts.requests if max(each.sent_bytes, each.received_bytes) > 1 << 20]
    if rate is None or not bodies or facts.busy_share < HELD_SHARE:
        return None
    needed_us = sum(max(each.sent_bytes, each.received_bytes) for each in bodies) * 1e6 / rate
    taken_us = sum(each.end_us - each.start_us for each in bodies)
    return f"each stream at the link's rate of {units.rate(rate)}" if needed_us >= STREAM_SHARE * taken_us else None


def _latency(facts: Facts) -> str | None:
    if facts.first_byte_us is None or facts.transfer_us is None or facts.busy_share < HELD_SHARE:
        return None
    share = facts.first_byte_us / max(1.0, facts.first_byte_us + facts.transfer_us)
    if share < LATENCY_SHARE or facts.link is None or not facts.link.delay_ms:
        return None
    return f"latency: {share:.0%} of a request is the wait for its first byte"


RULES: dict[str, Rule] = {
    "server-bound": _server_bound,
    "client-cpu": _client_cpu,
    "client-idle": _idle,
    "sequential": _sequential,
    "pinned-at-the-pool": _pinned_at_pool,
    "stops-at-the-pool": _stops_at_pool,
    "pinned-at-the-concurrency": _pinned_at_concurrency,
    "one-as-asked": _one_at_a_time,
    "few-in-flight": _few_in_flight,
    "stream-rate": _stream_rate,
    "latency": _latency,
}
"""By name, in the order in which they count."""
