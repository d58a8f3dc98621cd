"""Records -> ratios with intervals: clients of one run against a baseline, or the same clients in two runs.

Within a run, two trials of one block are adjacent in time and make a pair: what the host did in that minute reaches
both, and cancels out. Two runs share no such moment. Their blocks bear the same numbers and nothing else in common, so
they are compared as two independent groups, by Welch's t. Such an interval knows the spread within each session and
nothing of what moved a whole session: a warmer host, another neighbour. Clients that are alike in both runs
(`Comparisons.unchanged`) show how much that was. To compare two versions surely, run both in one run.

A run shows many ratios, some of which differ by chance. So the verdicts of one metric, over all its cases and clients,
rest on p-values adjusted by Holm; the intervals shown are plain ones, each with its own level. An interval may
therefore leave out 1 beside the words "no difference shown".
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from harness import units
from harness.conditions import disturbed_blocks
from harness.errors import BenchError, UnknownNameError
from harness.model import (
    CONTROL,
    Case,
    ClientInfo,
    Failed,
    Measured,
    Phase,
    Record,
    Run,
    RunSet,
    Unsupported,
    digest_of,
)
from harness.statistics import (
    LEVEL,
    MINIMUM_BLOCKS,
    TWO_LOOKS_LEVEL,
    ExactInterval,
    Interval,
    LogRatio,
    holm,
    outliers,
    p_differs,
    paired_log_ratio,
    rank_ratio_interval,
    unpaired_log_ratio,
)
from harness.summary import METRIC, METRICS, Metric

JSON_VERSION = 1

NOT_COMPARED = frozenset({"harness_cpu_ns", "requests_per_s", "list_price_usd_per_million"})
"""The first is the harness's own. The second tells how near a case is to the store's ceiling: more is no merit. The
third follows from the requests, which are compared."""

COMPARED: tuple[Metric, ...] = tuple(metric for metric in METRICS if metric.name not in NOT_COMPARED)

INSTRUMENTS = frozenset({CONTROL, "null"})
"""Roles left out: the control is its twin's mirror, and the null client does nothing."""

FAILED_SHARE_MAX = 0.1
"""Of a client's trials of a case. With more, those that succeeded are no fair sample."""

ABSENT = "none"


# --- nouns -----------------------------------------------------------------------------------------------------------


class Difference(StrEnum):
    """What may be said of the numerator against the denominator, given the direction in which the metric is better."""

    BETTER = "better"
    WORSE = "worse"
    NO_DIFFERENCE_SHOWN = "no difference shown"
    """Which is not the same as none: see `statistics.p_within`."""
    INCONCLUSIVE = "inconclusive"
    """Too few blocks, too many failures, or no ratio; `Comparison.reason` says which."""


@dataclass(frozen=True)
class Side:
    """One client on one case in one run. Only measured blocks count."""

    run: str
    client: str
    attempted: int
    """Trials that succeeded or failed."""
    failed: int
    excluded: int
    """Successful trials of disturbed blocks, left out for all clients alike."""


@dataclass(frozen=True)
class Comparison:
    """One case and metric: numerator over denominator."""

    case: Case
    metric: str
    numerator: Side
    denominator: Side
    paired: bool
    n: int
    """Pairs; of unpaired sides, the smaller number of values."""
    log_ratio: LogRatio | None
    """For other tests than that of equality; None where there is no ratio."""
    ratio: Interval | None
    """Geometric mean ratio with its t interval, not adjusted for the other comparisons."""
    rank_ratio: ExactInterval | None
    """Hodges-Lehmann; None of unpaired sides, and of too few pairs for the level."""
    outlier_blocks: tuple[int, ...]
    """Whose ratio lies far from the others'; of unpaired sides, in which either's own figure does. All count."""
    p_value: float | None
    """Two-sided, of a true ratio of 1."""
    adjusted_p_value: float | None
    """By Holm over all conclusive comparisons of this metric in the set; of a single one, its own; else None."""
    verdict: Difference
    reason: str
    """Why it is inconclusive; else empty."""

    @property
    def log_sd(self) -> float | None:
        """Spread of one block's log-ratio, as `statistics.blocks_needed` takes it."""
        return None if self.log_ratio is None else self.log_ratio.log_sd


class Weight(StrEnum):
    """What a difference between two runs does to their comparison."""

    REFUSES = "refuses"
    """Other surroundings were measured: the ratio would be theirs."""
    AFFECTS = "affects"
    """The numbers may have moved by it alone, or something else may have been timed."""
    TOLD = "told"


@dataclass(frozen=True)
class Change:
    """One thing that differs between two runs."""

    what: str
    then: str
    now: str
    weight: Weight


@dataclass(frozen=True)
class Comparisons:
    """All that was compared; `then` and `now` are one and the same where clients of one run were."""

    then: Run
    now: Run
    baseline: str | None
    """None of two runs, where each client is compared with itself."""
    level: float
    """Of each interval, and of the verdicts of each metric together."""
    changes: tuple[Change, ...]
    """Heaviest first."""
    unchanged: tuple[str, ...]
    """Of two runs: clients that are installed alike in both, adapter included. They can't differ by themselves."""
    comparisons: tuple[Comparison, ...]


# --- clients of one run ----------------------------------------------------------------------------------------------


def compare_clients(run_set: RunSet, baseline: str | None = None, level: float | None = None) -> Comparisons:
    """Compare every client of a run with `baseline` (by default the run's own), in pairs by block.

    Without a `level` it is what `level_of` says of the run.

    Raises UnknownNameError when the baseline took no part.
    """
    run = run_set.run
    chosen = baseline or run.baseline
    _check_known("client", chosen, [client.name for client in run.clients])
    chosen_level = level or level_of(run)
    trials = _trials(run_set)
    found = (
        _compare(metric, trials[case, label], trials[case, chosen], chosen_level, paired=True)
        for case in run.cases
        for label in _compared_clients(run)
        if label != chosen
        for metric in COMPARED
    )
    comparisons = _judge([each for each in found if each], chosen_level)
    return Comparisons(run, run, chosen, chosen_level, (), (), comparisons)


def compare_pair(
    run_set: RunSet,
    case: Case,
    metric: str,
    numerator: str,
    denominator: str,
    level: float | None = None,
    against: Case | None = None,
) -> Comparison | None:
    """Compare two clients of a run on one case and metric; None where either has no such figure and no failure either.

    With `against` the denominator is measured on that other case: two ways to the same end, paired by block like two
    clients, though not side by side in it. The p-value is adjusted for no other comparison: whoever makes several must adjust them together.
    Raises UnknownNameError for a metric that is not compared, and for a client or case that the run has not.
    """
    _check_known("metric", metric, [each.name for each in COMPARED])
    for client in (numerator, denominator):
        _check_known("client", client, [each.name for each in run_set.run.clients])
    other_case = against or case
    for each in (case, other_case):
        if each not in run_set.run.cases:
            raise UnknownNameError("case", each.key, [known.key for known in run_set.run.cases])
    trials = _trials(run_set)
    chosen_level = level or level_of(run_set.run)
    return _compare(METRIC[metric], trials[case, numerator], trials[other_case, denominator], chosen_level, paired=True)


def level_of(*runs: Run) -> float:
    """Return the level of one interval: a run declared extendable pays for its second look, had or not."""
    return LEVEL if all(run.decision is None for run in runs) else TWO_LOOKS_LEVEL


def _check_known(what: str, name: str, known: list[str]) -> None:
    if name not in known:
        raise UnknownNameError(what, name, known)


# --- two runs --------------------------------------------------------------------------------------------------------


def compare_runs(then: RunSet, now: RunSet, level: float | None = None) -> Comparisons:
    """Compare each client with itself, now over then, on the cases whose digest both runs share; nothing is paired.

    Without a `level` it is what `level_of` says of the two.

    Raises BenchError when the two measured in different surroundings, or have no case or no client in common.
    """
    refuse_if_incomparable(then.run, now.run)
    chosen_level = level or level_of(then.run, now.run)
    before, after = _trials(then), _trials(now)
    found = (
        _compare(metric, after[case, label], before[case, label], chosen_level, paired=False)
        for case in _common_cases(then.run, now.run)
        for label in _common_clients(then.run, now.run)
        for metric in COMPARED
    )
    comparisons = _judge([each for each in found if each], chosen_level)
    told, unchanged = changes(then.run, now.run), _unchanged(then.run, now.run)
    return Comparisons(then.run, now.run, None, chosen_level, told, unchanged, comparisons)


def refuse_if_incomparable(then: Run, now: Run) -> None:
    """Raise BenchError that names every reason why the two runs can't be compared.

    Clients may differ in version, packages and adapter: that is what runs are compared for. An adapter that differs may
    time another call, which `changes` tells first.
    """
    refusing = [change for change in changes(then, now) if change.weight is Weight.REFUSES]
    reasons = [f"{change.what}: {change.then} then, {change.now} now" for change in refusing]
    if not _common_cases(then, now):
        reasons.append("no case of the one is a case of the other, to the last setting")
    if not _common_clients(then, now):
        reasons.append("no client took part in both")
    if reasons:
        raise BenchError(
            f"runs {then.id} and {now.id} can't be compared: {'; '.join(reasons)}",
            "Only the clients may differ between two runs. Best of all, let both versions take part in one.",
        )


def changes(then: Run, now: Run) -> tuple[Change, ...]:
    """Return what differs between two runs, heaviest first: what refuses, what affects the numbers, and the rest.

    What differs between any two runs is left out: identity, time, command, and the plan that seed, suite and filters
    give.
    """
    shared = sorted({client.name for client in then.clients} & {client.name for client in now.clients})
    links = sorted({link.name for link in then.more_links} & {link.name for link in now.more_links})
    pairs = zip(_facts(then, shared, links), _facts(now, shared, links), strict=True)
    found = [
        Change(one.what, _differing(one.parts, other.parts), _differing(other.parts, one.parts), one.weight)
        for one, other in pairs
        if one.parts != other.parts
    ]
    return tuple(sorted(found, key=lambda change: list(Weight).index(change.weight)))


def _common_cases(then: Run, now: Run) -> list[Case]:
    """Return the cases of both; a case is equal to another exactly when its digest is."""
    earlier = set(then.cases)
    return [case for case in now.cases if case in earlier]


def _common_clients(then: Run, now: Run) -> list[str]:
    earlier = set(_compared_clients(then))
    return [label for label in _compared_clients(now) if label in earlier]


def _compared_clients(run: Run) -> list[str]:
    return [client.name for client in run.clients if client.role not in INSTRUMENTS]


def _unchanged(then: Run, now: Run) -> tuple[str, ...]:
    before, after = ({client.name: client for client in run.clients} for run in (then, now))
    return tuple(label for label in _common_clients(then, now) if before[label] == after[label])


# --- what two runs may differ in -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Fact:
    what: str
    weight: Weight
    parts: Mapping[str, str]
    """Written out only where they differ."""


def _facts(run: Run, labels: Iterable[str], links: Iterable[str]) -> Iterator[_Fact]:
    """Yield the facts of a run, in the same order for every run with the same `labels` and further `links`."""
    clients = {client.name: client for client in run.clients}
    shared = [clients[label] for label in labels]
    yield from _surroundings(run, links)
    yield from _influences(run, shared)
    yield _Fact("clients", Weight.TOLD, {name: client.version or "present" for name, client in clients.items()})
    for client in shared:
        yield _Fact(f"{client.name}: packages", Weight.TOLD, client.packages)
        yield _Fact(f"{client.name}: installation", Weight.TOLD, _parts(client, _INSTALLATION))
    yield _Fact("cases", Weight.TOLD, {f"{case.key}@{case.link}": case.digest for case in run.cases})
    yield _Fact("suite", Weight.TOLD, _parts(run, ("suite", "suite_file", "suite_title", "baseline", "seed")))
    decision = f"{run.decision.name} {digest_of(run.decision)}" if run.decision else ABSENT
    yield _Fact("decision that may extend it", Weight.TOLD, {"": decision})
    yield _Fact("profile", Weight.TOLD, _parts(run.profile))
    yield _Fact("filters", Weight.TOLD, _parts(run.filters))
    yield _Fact("store's ceilings", Weight.TOLD, _ceilings(run))


def _surroundings(run: Run, links: Iterable[str]) -> Iterator[_Fact]:
    # The link's name says nothing that its settings don't, and each case's digest holds it anyway.
    settings = ("delay_ms", "copy_delay_ms", "stream_rate_bytes_per_s", "abort_percent")
    limited = {"uploads limited": str(run.upload_rate_limited)}
    yield _Fact("link", Weight.REFUSES, {**_parts(run.link, settings), **limited})
    # A run may have more links; only one that both have must be the same in both.
    more = {each.name: each for each in run.more_links}
    for name in links:
        yield _Fact(f"link {name}", Weight.REFUSES, _parts(more[name], settings))
    yield _Fact("TLS", Weight.REFUSES, {"": "on" if run.tls else "off"})
    yield _Fact("kind of host", Weight.REFUSES, _parts(run.host, ("system", "machine", "cpu_model", "cpu_count")))
    yield _Fact("store", Weight.REFUSES, _parts(run.store, ("kind", "endpoint", "region")))


def _influences(run: Run, clients: Iterable[ClientInfo]) -> Iterator[_Fact]:
    for client in clients:
        yield _Fact(f"{client.name}: adapter", Weight.AFFECTS, {"": client.adapter_digest})
        yield _Fact(f"{client.name}: calls that are timed", Weight.AFFECTS, client.operations)
    yield _Fact("bench", Weight.AFFECTS, _parts(run, ("schema", "bench_version", "bench_commit")))
    yield _Fact("store's versions", Weight.AFFECTS, run.store.versions)
    yield _Fact("store's settings", Weight.AFFECTS, run.store.settings)
    yield _Fact("bucket", Weight.AFFECTS, _parts(run.store, ("bucket",)))
    yield _Fact("host", Weight.AFFECTS, _parts(run.host, ("name", "kernel", "memory_bytes", "python")))
    yield _Fact("fitness of the host", Weight.AFFECTS, {finding.name: finding.level for finding in run.fitness})
    yield _Fact("rules for disturbed blocks", Weight.AFFECTS, _parts(run.rules))


_INSTALLATION = tuple(
    field
    for field in ClientInfo.__struct_fields__
    if field not in {"name", "title", "role", "version", "packages", "adapter_digest", "operations"}
)
"""Fields that no other fact tells, so that one that is added is told."""


def _parts(noun: msgspec.Struct | None, fields: Iterable[str] = ()) -> dict[str, str]:
    """Write the named fields, or all; of nothing, none."""
    return {} if noun is None else {field: _text(getattr(noun, field)) for field in fields or noun.__struct_fields__}


def _text(value: object) -> str:
    if value is None or value == ():
        return ABSENT
    return " and ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _ceilings(run: Run) -> dict[str, str]:
    if run.ceilings is None:
        # Runs from before there were ceilings of four kinds.
        return {} if run.ceiling_bytes_per_s is None else {"download": units.rate(run.ceiling_bytes_per_s)}
    return {
        "download": units.rate(run.ceilings.download_bytes_per_s),
        "upload": units.rate(run.ceilings.upload_bytes_per_s),
        "GETs": units.quantity(run.ceilings.gets_per_s, "requests_per_s"),
        "PUTs": units.quantity(run.ceilings.puts_per_s, "requests_per_s"),
    }


def _differing(own: Mapping[str, str], other: Mapping[str, str]) -> str:
    """Write the parts of `own` that `other` has not, or has otherwise."""
    names = sorted(name for name in {**own, **other} if own.get(name) != other.get(name))
    return ", ".join(f"{name} {own.get(name, ABSENT)}".strip() for name in names)


# --- one comparison --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Trials:
    """One client on one case in one run."""

    case: Case
    side: Side
    measured: Mapping[int, Record]
    """By block, those that succeeded."""
    disturbed: frozenset[int]
    """Blocks that don't count."""
    unsupported: bool

    def values(self, metric: Metric) -> dict[int, float]:
        """Return the figures that count, by block."""
        figures = {block: metric.of(record) for block, record in self.measured.items() if block not in self.disturbed}
        return {block: figure for block, figure in sorted(figures.items()) if figure is not None}

    def has(self, metric: Metric) -> bool:
        return any(metric.of(record) is not None for record in self.measured.values())

    def might_have(self, metric: Metric) -> bool:
        """Whether it has such a figure, or nothing but failures stands against it."""
        return self.has(metric) or (not (self.unsupported or self.measured) and self.side.failed > 0)


def _trials(run_set: RunSet) -> dict[tuple[Case, str], _Trials]:
    """Return the trials of measured blocks, by case and client of the run."""
    grouped: dict[tuple[Case, str], list[Record]] = defaultdict(list)
    for record in run_set.records:
        if record.trial.phase is Phase.MEASURED:
            grouped[record.trial.case, record.trial.client].append(record)
    disturbed: dict[Case, set[int]] = defaultdict(set)
    for case, block in disturbed_blocks(run_set):
        disturbed[case].add(block)
    run = run_set.run
    return {
        (case, client.name): _group(run.id, case, client.name, grouped[case, client.name], frozenset(disturbed[case]))
        for case in run.cases
        for client in run.clients
    }


def _group(run: str, case: Case, client: str, records: Sequence[Record], disturbed: frozenset[int]) -> _Trials:
    measured = {record.trial.block: record for record in records if isinstance(record.outcome, Measured)}
    failed = sum(isinstance(record.outcome, Failed) for record in records)
    unsupported = any(isinstance(record.outcome, Unsupported) for record in records)
    side = Side(run, client, len(measured) + failed, failed, len(measured.keys() & disturbed))
    return _Trials(case, side, measured, disturbed, unsupported)


def _compare(metric: Metric, one: _Trials, other: _Trials, level: float, *, paired: bool) -> Comparison | None:
    """Compare `one` over `other`; None where the metric says nothing of the two."""
    known = one.has(metric) or other.has(metric)
    if not (known and one.might_have(metric) and other.might_have(metric)):
        return None
    own, base = one.values(metric), other.values(metric)
    if paired:
        both = own.keys() & base.keys()
        own, base = ({block: value for block, value in values.items() if block in both} for values in (own, base))
    reason = _reason((one.side, other.side), min(len(own), len(base)), (*own.values(), *base.values()))
    log_ratio = _log_ratio(own, base, paired=paired)
    p_value = None if log_ratio is None else p_differs(log_ratio)
    return Comparison(
        case=one.case,
        metric=metric.name,
        numerator=one.side,
        denominator=other.side,
        paired=paired,
        n=min(len(own), len(base)),
        log_ratio=log_ratio,
        ratio=None if log_ratio is None else log_ratio.interval(level),
        rank_ratio=_rank_ratio(own, base, level) if log_ratio is not None and paired else None,
        outlier_blocks=() if log_ratio is None else _outlier_blocks(own, base, paired=paired),
        p_value=p_value,
        adjusted_p_value=None if reason else p_value,
        verdict=_verdict(metric, log_ratio, p_value, level, reason),
        reason=reason,
    )


_ByBlock = Mapping[int, float]


def _reason(sides: Iterable[Side], n: int, values: Iterable[float]) -> str:
    """Say why there can be no verdict; empty when there can."""
    for side in sides:
        if side.failed > FAILED_SHARE_MAX * side.attempted:
            return f"{side.failed} of {side.attempted} trials of {side.client} failed"
    if any(value <= 0 for value in values):
        return "a figure of zero or below has no ratio"
    return f"{n} of at least {MINIMUM_BLOCKS} blocks" if n < MINIMUM_BLOCKS else ""


def _log_ratio(own: _ByBlock, base: _ByBlock, *, paired: bool) -> LogRatio | None:
    if min(len(own), len(base)) < 2 or any(value <= 0 for value in (*own.values(), *base.values())):
        return None
    join = paired_log_ratio if paired else unpaired_log_ratio
    return join(list(own.values()), list(base.values()))


def _rank_ratio(own: _ByBlock, base: _ByBlock, level: float) -> ExactInterval | None:
    return rank_ratio_interval(list(own.values()), list(base.values()), level)


def _outlier_blocks(own: _ByBlock, base: _ByBlock, *, paired: bool) -> tuple[int, ...]:
    series = [{block: own[block] / base[block] for block in own}] if paired else [own, base]
    return tuple(sorted({list(values)[place] for values in series for place in outliers(list(values.values()))}))


def _verdict(
    metric: Metric, log_ratio: LogRatio | None, p_value: float | None, level: float, reason: str
) -> Difference:
    if reason or log_ratio is None or p_value is None:
        return Difference.INCONCLUSIVE
    if p_value > 1 - level:
        return Difference.NO_DIFFERENCE_SHOWN
    return Difference.BETTER if (log_ratio.mean > 0) == (metric.better == "up") else Difference.WORSE


def _judge(comparisons: Sequence[Comparison], level: float) -> tuple[Comparison, ...]:
    """Adjust the p-values of each metric for one another, and give the verdicts that follow."""
    judged = list(comparisons)
    for metric in COMPARED:
        p_values = {
            place: each.p_value
            for place, each in enumerate(comparisons)
            if each.metric == metric.name and each.p_value is not None and not each.reason
        }
        for place, p_value in zip(p_values, holm(list(p_values.values())), strict=True):
            verdict = _verdict(metric, judged[place].log_ratio, p_value, level, "")
            judged[place] = dataclasses.replace(judged[place], adjusted_p_value=p_value, verdict=verdict)
    return tuple(judged)


# --- for scripts -----------------------------------------------------------------------------------------------------


def as_data(compared: Comparisons) -> dict[str, Any]:
    """Return all of it as plain data for JSON, unrounded."""
    document = {
        "version": JSON_VERSION,
        "then": compared.then.id,
        "now": compared.now.id,
        "baseline": compared.baseline,
        "level": compared.level,
        "changes": compared.changes,
        "unchanged_clients": compared.unchanged,
        "comparisons": [_comparison_data(each) for each in compared.comparisons],
    }
    # There and back, for tuples are no lists yet.
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    return plain


def _comparison_data(comparison: Comparison) -> dict[str, Any]:
    fields = {field.name: getattr(comparison, field.name) for field in dataclasses.fields(comparison)}
    case = {"case": comparison.case.key, "case_digest": comparison.case.digest, "link": comparison.case.link}
    return {**fields, **case, "better": METRIC[comparison.metric].better, "log_sd": comparison.log_sd}
