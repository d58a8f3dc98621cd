"""Records -> what each client did on each case: counts, failures, and one spread a metric."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from harness.conditions import disturbed_blocks
from harness.model import (
    CONTROL,
    Case,
    ClientInfo,
    Failed,
    LoopLag,
    Measured,
    Measurement,
    Observed,
    Phase,
    Record,
    Requests,
    Run,
    RunSet,
    Unsupported,
)
from harness.prices import requests_usd
from harness.statistics import Spread, spread
from harness.units import GIB

JSON_VERSION = 1


@dataclass(frozen=True)
class Metric:
    name: str
    title: str
    unit: str
    """A unit that `harness.units` knows."""
    better: Literal["up", "down"]
    of: Callable[[Record], float | None]
    """None where the record holds no such figure: a failed trial holds none at all."""


def _measured(figure: Callable[[Measurement], float | None]) -> Callable[[Record], float | None]:
    def of(record: Record) -> float | None:
        return figure(record.outcome.measurement) if isinstance(record.outcome, Measured) else None

    return of


def _requested(figure: Callable[[Requests], float | None]) -> Callable[[Record], float | None]:
    return _measured(lambda m: None if m.requests is None else figure(m.requests))


def _lag(figure: Callable[[LoopLag], float]) -> Callable[[Record], float | None]:
    return _measured(lambda m: None if m.loop_lag is None else figure(m.loop_lag))


def _first_byte_us(requests: Requests) -> float | None:
    return requests.first_byte.median_us if requests.first_byte else None


def _objects_per_s(record: Record) -> float | None:
    # For a single object that moves bytes it would be the same news as bytes/s, less well told.
    told_by_bytes = record.trial.case.objects.count == 1
    return _measured(
        lambda m: m.object_count * 1e9 / m.wall_ns if m.object_count and not (m.byte_count and told_by_bytes) else None
    )(record)


# A client that moves nothing (the null client) has neither bytes nor objects, hence no throughput and no cost of them.
METRICS: tuple[Metric, ...] = (
    Metric(
        "throughput_bytes_per_s",
        "Throughput",
        "bytes_per_s",
        "up",
        _measured(lambda m: m.byte_count * 1e9 / m.wall_ns if m.byte_count else None),
    ),
    Metric("throughput_objects_per_s", "Throughput", "objects_per_s", "up", _objects_per_s),
    Metric("wall_ns", "Wall time", "ns", "down", _measured(lambda m: m.wall_ns)),
    Metric(
        "cpu_ns_per_gib",
        "CPU",
        "ns_per_gib",
        "down",
        _measured(lambda m: m.cpu_ns * GIB / m.byte_count if m.byte_count else None),
    ),
    Metric(
        "cpu_ns_per_object",
        "CPU",
        "ns_per_object",
        "down",
        _measured(
            lambda m: m.cpu_ns / m.object_count if m.object_count > 1 or (m.object_count and not m.byte_count) else None
        ),
    ),
    Metric("rss_peak_bytes", "Peak RSS", "bytes", "down", _measured(lambda m: m.rss_peak_bytes)),
    Metric(
        "rss_increase_bytes",
        "RSS increase",
        "bytes",
        "down",
        _measured(lambda m: m.rss_peak_bytes - m.rss_base_bytes),
    ),
    Metric("threads_peak", "Threads", "count", "down", _measured(lambda m: m.threads_peak)),
    Metric("requests_total", "Requests", "count", "down", _requested(lambda r: r.total)),
    Metric(
        "requests_per_s",
        "Requests a second",
        "requests_per_s",
        "up",
        _measured(lambda m: m.requests.total * 1e9 / m.wall_ns if m.requests else None),
    ),
    Metric(
        "list_price_usd_per_million",
        "List price of its requests, for a million such operations",
        "usd_per_million",
        "down",
        _requested(lambda r: None if r.by_price is None else requests_usd(r.by_price) * 1e6),
    ),
    Metric("connection_count", "Connections", "count", "down", _requested(lambda r: r.connection_count)),
    Metric("in_flight_peak", "In flight, peak", "count", "up", _requested(lambda r: r.in_flight_peak)),
    Metric(
        "first_byte_median_us",
        "First byte",
        "us",
        "down",
        _requested(_first_byte_us),
    ),
    Metric("loop_lag_p99_us", "Event loop lag, 99th percentile", "us", "down", _lag(lambda lag: lag.p99_us)),
    Metric("loop_lag_max_us", "Event loop lag, largest", "us", "down", _lag(lambda lag: lag.max_us)),
    Metric("harness_cpu_ns", "The harness's own CPU", "ns", "down", _measured(lambda m: m.harness_cpu_ns)),
)

METRIC: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}
THROUGHPUTS = (METRIC["throughput_bytes_per_s"], METRIC["throughput_objects_per_s"])


@dataclass(frozen=True)
class Failure:
    trial: int
    block: int
    phase: Phase
    kind: str
    reason: str
    log: str


@dataclass(frozen=True)
class Result:
    """One client on one case. `measured` counts successful trials of measured blocks; nothing else enters a spread."""

    measured: int
    failures: tuple[Failure, ...]
    unsupported: str | None
    exit_codes: Mapping[int, int]
    """How many measured trials left with which code, other than 0, their work done."""
    spreads: Mapping[str, Spread]
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """By metric, what each spread is of, block by block."""
    excluded: int = 0
    """Successful trials of measured blocks that were disturbed, and therefore left out."""
    observed: tuple[Observed, ...] = ()
    """Answers of measured blocks: what a client does under a fault is not disturbed by a busy processor."""
    planned: bool = True
    """False where the run is complete, and the client takes no part in the case."""

    @property
    def failed(self) -> int:
        """Failures in measured blocks; those in warm-up are told but not counted."""
        return sum(failure.phase is Phase.MEASURED for failure in self.failures)

    @property
    def failed_by_kind(self) -> dict[str, int]:
        return dict(Counter(failure.kind for failure in self.failures if failure.phase is Phase.MEASURED))


@dataclass(frozen=True)
class Summary:
    run: Run
    record_count: int
    results: Mapping[tuple[Case, str], Result]
    """By case and client's name."""
    disturbed: Mapping[tuple[Case, int], str]
    """By case and block, why the block is left out."""

    @property
    def clients(self) -> tuple[ClientInfo, ...]:
        """Return the columns of a table: the control is no client beside the others, but its twin's mirror."""
        return tuple(client for client in self.run.clients if client.role != CONTROL)

    @property
    def has_baseline(self) -> bool:
        return any(client.name == self.run.baseline for client in self.clients)

    def label(self, case: Case) -> str:
        """Return the case's key, with its link where two cases of the run differ in nothing else that the key says."""
        shared = sum(other.key == case.key for other in self.run.cases) > 1
        return f"{case.key}@{case.link}" if shared else case.key

    def throughput(self, case: Case) -> Metric | None:
        """Return the throughput that this case is about: bytes where any were moved, else objects, if any."""
        return next((metric for metric in THROUGHPUTS if self.has(case, metric)), None)

    def has(self, case: Case, metric: Metric) -> bool:
        return any(metric.name in self.results[case, client.name].spreads for client in self.clients)

    def ratio(self, case: Case, client: str) -> float | None:
        """Return median throughput over the baseline's. It has no interval, so no verdict may rest on it."""
        metric = self.throughput(case)
        if metric is None or not self.has_baseline:
            return None
        own = self.results[case, client].spreads.get(metric.name)
        base = self.results[case, self.run.baseline].spreads.get(metric.name)
        return own.median / base.median if own and base else None


def summarise(run_set: RunSet) -> Summary:
    grouped: dict[tuple[Case, str], list[Record]] = defaultdict(list)
    for record in run_set.records:
        grouped[record.trial.case, record.trial.client].append(record)
    run, disturbed = run_set.run, disturbed_blocks(run_set)
    pairs = [(case, client.name) for case in run.cases for client in run.clients]
    complete = len(run_set.records) >= run.trial_count
    results = {pair: _result(grouped[pair], disturbed, planned=not complete or pair in grouped) for pair in pairs}
    return Summary(run, len(run_set.records), results, disturbed)


def _result(records: Iterable[Record], disturbed: Container[tuple[Case, int]], *, planned: bool) -> Result:
    ordered = sorted(records, key=lambda record: record.trial.sequence)
    succeeded = [r for r in ordered if r.trial.phase is Phase.MEASURED and isinstance(r.outcome, Measured)]
    counted = [r for r in succeeded if (r.trial.case, r.trial.block) not in disturbed]
    unsupported = next((r.outcome.reason for r in ordered if isinstance(r.outcome, Unsupported)), None)
    codes = Counter(r.outcome.exit_code for r in counted if isinstance(r.outcome, Measured) and r.outcome.exit_code)
    values = _values(counted)
    spreads = {name: spread(own) for name, own in values.items()}
    return Result(
        len(counted),
        tuple(_failures(ordered)),
        unsupported,
        dict(codes),
        spreads,
        values,
        len(succeeded) - len(counted),
        tuple(r.outcome for r in ordered if r.trial.phase is Phase.MEASURED and isinstance(r.outcome, Observed)),
        planned,
    )


def _failures(records: Iterable[Record]) -> Iterable[Failure]:
    for record in records:
        match record:
            case Record(trial=trial, outcome=Failed(kind=kind, reason=reason, log=log)):
                yield Failure(trial.sequence, trial.block, trial.phase, str(kind), reason, log)


def _values(records: list[Record]) -> dict[str, tuple[float, ...]]:
    figures = {metric.name: [metric.of(record) for record in records] for metric in METRICS}
    known = {name: tuple(value for value in values if value is not None) for name, values in figures.items()}
    return {name: values for name, values in known.items() if values}


# --- for scripts -----------------------------------------------------------------------------------------------------


def to_json(summary: Summary) -> str:
    """Return the numbers of every table, unrounded, with the unit last in each name."""
    run = summary.run
    document = {
        "version": JSON_VERSION,
        "run": run.id,
        "suite": run.suite,
        "profile": run.profile.name,
        "baseline": run.baseline if summary.has_baseline else None,
        "link": run.link,
        "seed": run.seed,
        "trial_count": run.trial_count,
        "record_count": summary.record_count,
        "cases": [_case_json(summary, case) for case in run.cases],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def _case_json(summary: Summary, case: Case) -> dict[str, Any]:
    return {
        "key": case.key,
        "digest": case.digest,
        "scenario": case.scenario,
        "operation": case.operation,
        "link": case.link,
        "clients": [_result_json(summary, case, client) for client in summary.run.clients],
    }


def _result_json(summary: Summary, case: Case, client: ClientInfo) -> dict[str, Any]:
    result = summary.results[case, client.name]
    return {
        "client": client.name,
        "client_version": client.version,
        "measured_count": result.measured,
        "failed_count": result.failed,
        "excluded_count": result.excluded,
        "failed_by_kind": result.failed_by_kind,
        "unsupported": result.unsupported,
        "metrics": result.spreads,
        "throughput_to_baseline_ratio": summary.ratio(case, client.name),
        "failures": result.failures,
        "observed": [
            {"answer": o.answer, "good": o.good, "evidence": o.evidence, "facts": o.facts} for o in result.observed
        ],
    }
