"""The loop: trials in, records out, one after another. It prints nothing and writes nothing."""

from __future__ import annotations

import datetime
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness import findings, plan
from harness.errors import StoreError, StoreLostError
from harness.lab import link as links
from harness.lab.bucket import StoreRefused
from harness.lab.conditions import Watch
from harness.lab.dataset import Dataset, Task
from harness.lab.environments import InstalledClient
from harness.lab.lab import Lab
from harness.lab.link import Entry, LinkServer
from harness.lab.process import Answer, Order, Program, TrialProcess, redact
from harness.model import (
    SCHEMA_VERSION,
    Case,
    Ceilings,
    Failed,
    FailureKind,
    Link,
    Measured,
    Measurement,
    Objects,
    Outcome,
    Phase,
    Record,
    Requests,
    Settings,
    Suite,
    Trace,
    Trial,
    Unsupported,
)
from harness.operations import OPERATIONS, Kind

RETRY_MODE = "standard"
RETRY_ATTEMPTS = 3
SMALLEST_POOL = 10
"""Connections; the default of every SDK here. It grows with the concurrency, or the pool is what is measured."""

GARBAGE_LIMIT_BYTES = 4 << 30
"""Removed objects whose room the embedded store is asked to give back, between two trials; it takes some seconds."""


def _calibration(operation: str, objects: Objects, concurrency: int) -> Case:
    return Case("ceiling", operation, objects, Settings(concurrency, 8 << 20), "direct")


CALIBRATION = {
    "download_bytes_per_s": [_calibration("read", Objects(1, 64 << 20), streams) for streams in (8, 16)],
    "upload_bytes_per_s": [_calibration("write", Objects(1, 64 << 20), 8)],
    "gets_per_s": [_calibration("cat", Objects(400, 4 << 10), 32)],
    "puts_per_s": [_calibration("pipe", Objects(400, 4 << 10), 32)],
}
"""By the field of Ceilings, the cases whose fastest trial is the ceiling."""
CALIBRATION_TRIALS = 4
STREAMS_WITHIN_HALF = 8
PAST_PEAK_BYTES = 600 << 20
RATES_MIB_PER_S = (2, 3, 5, 7, 10, 15, 20, 30, 45, 60, 90)
"""Steps of a scaled link, so that two sessions on like hosts get the same link, and may be compared."""


@dataclass(frozen=True)
class Bench:
    """All that a trial needs, ready and running."""

    run_id: str
    lab: Lab
    server: LinkServer | None
    """With a listener for each link that a case names."""
    dataset: Dataset
    clients: Mapping[str, InstalledClient]
    limit_s: Callable[[Case], float] = plan.time_limit_s
    keep_trace: Callable[[Trace], None] | None = None
    """Called before the trial's record is yielded."""
    traced_before_block: int = 0
    """Measured trials of blocks from this on leave no trace; whatever else came of one always does."""


def execute(bench: Bench, trials: Iterable[Trial]) -> Iterator[Record]:
    """Run the trials in order and yield each record as soon as it exists."""
    starter, garbage_bytes = _Starter(bench), 0
    try:
        for trial, following in _with_next(trials):
            if garbage_bytes > GARBAGE_LIMIT_BYTES:
                bench.lab.reclaim()
                garbage_bytes = 0
            garbage_bytes += _garbage_bytes(trial.case)
            started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            watch = Watch(bench.lab.servants(bench.server))
            outcome = _outcome(bench, starter, trial, following, watch)
            yield _record(bench, trial, started_at, outcome, watch)
    finally:
        starter.close()


def _garbage_bytes(case: Case) -> int:
    return case.objects.total_bytes if OPERATIONS[case.operation].touches_store else 0


def _with_next(trials: Iterable[Trial]) -> Iterator[tuple[Trial, Trial | None]]:
    firsts, seconds = itertools.tee(trials)
    return itertools.zip_longest(firsts, itertools.islice(seconds, 1, None))


class _Starter:
    """Starts the process of the next trial as soon as the window of the current one has closed.

    Its imports then run while the current trial is checked and cleared away. No process but the one that is measured
    lives while a window is open.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._ahead: tuple[Trial, TrialProcess] | None = None

    def take(self, trial: Trial) -> TrialProcess:
        if self._ahead is None or self._ahead[0] != trial:
            self.close()
            self.start(trial)
        assert self._ahead is not None
        _, process = self._ahead
        self._ahead = None
        return process

    def start(self, trial: Trial) -> None:
        bench, client = self._bench, self._bench.clients[trial.client]
        program = Program(
            interpreter=client.environment.interpreter,
            adapter=client.environment.adapter,
            client=client.name,
            environment=bench.lab.client_environment(bench.server),
            secrets=bench.lab.secrets,
        )
        self._ahead = trial, TrialProcess(bench.lab.session, program)

    def close(self) -> None:
        if self._ahead is not None:
            self._ahead[1].close()
            self._ahead = None


def _record(bench: Bench, trial: Trial, started_at: str, outcome: Outcome, watch: Watch) -> Record:
    info = bench.clients[trial.client].info
    # Of whatever closed its window, verified or not: what a block's rule sees must not depend on what came back.
    conditions = watch.conditions()
    return Record(SCHEMA_VERSION, bench.run_id, trial, info.version, info.lock_digest, started_at, outcome, conditions)


def _offers(bench: Bench, trial: Trial) -> bool:
    return trial.case.operation in bench.clients[trial.client].info.operations


def _outcome(bench: Bench, starter: _Starter, trial: Trial, following: Trial | None, watch: Watch) -> Outcome:
    if not _offers(bench, trial):
        return Unsupported(f"{trial.client} declares no {trial.case.operation}")

    def window_closed() -> None:
        watch.closed()
        if following is not None and _offers(bench, following):
            starter.start(following)

    process = starter.take(trial)
    try:
        task = bench.dataset.lay_out(trial)
        try:
            return _run(bench, process, trial, task, watch, window_closed)
        finally:
            bench.dataset.clear(trial, task)
    except StoreRefused as error:
        bench.lab.check(bench.server)
        text = redact(str(error), bench.lab.secrets)
        raise StoreLostError(
            f"the store no longer serves the harness itself: {text}",
            "What was measured is kept; `bench resume` goes on from there.",
        ) from error
    finally:
        process.close()


def _run(
    bench: Bench, process: TrialProcess, trial: Trial, task: Task, watch: Watch, window_closed: Callable[[], None]
) -> Outcome:
    opened_at_us = 0

    def window_opens() -> None:
        nonlocal opened_at_us
        # What the client sent until now was its construction and warm-up; from here on it is the operation's.
        _entries(bench, trial)
        watch.opens()
        opened_at_us = time.time_ns() // 1000

    order = Order(order_content(bench, trial, task), bench.limit_s(trial.case))
    answer = process.run(order, window_opens, window_closed)
    entries = _entries(bench, trial)
    outcome = _judge(bench, process, trial, task, watch, answer, None if entries is None else links.summarise(entries))
    if bench.keep_trace and entries is not None and opened_at_us and _is_traced(bench, trial, outcome):
        wall_us = None if isinstance(answer, Failed) else answer.window.wall_ns // 1000
        bench.keep_trace(links.trace(entries, trial.sequence, opened_at_us, wall_us))
    return outcome


def _entries(bench: Bench, trial: Trial) -> list[Entry] | None:
    """Return what passed the link since the last call; None where there is no link."""
    return None if bench.server is None else bench.server.entries_since_mark(trial.case.link)


def _is_traced(bench: Bench, trial: Trial, outcome: Outcome) -> bool:
    usual = trial.phase is Phase.MEASURED and trial.block < bench.traced_before_block
    return usual or not isinstance(outcome, Measured)


def _judge(
    bench: Bench,
    process: TrialProcess,
    trial: Trial,
    task: Task,
    watch: Watch,
    answer: Answer | Failed,
    requests: Requests | None,
) -> Outcome:
    """Say what came of a trial."""
    judge = findings.JUDGES.get(trial.case.operation)
    if isinstance(answer, Failed):
        bench.lab.check(bench.server)
        return answer
    watch.client_used(answer.window.cpu_user_ns + answer.window.cpu_system_ns)
    ignored = _ignored_settings(trial.case, answer.applied)
    if ignored:
        return Failed(FailureKind.SETTINGS, ignored, "")
    is_null = bench.clients[trial.client].info.role == "null"
    measurement = _measurement(trial.case, answer, requests, is_null)
    if judge is not None:
        facts = _redacted(answer.result.facts or {}, bench.lab.secrets)
        return judge(findings.Seen(trial, facts, measurement, answer.applied))
    if not is_null and (failed := bench.dataset.verify(trial, task, answer)):
        return failed
    return Measured(measurement, answer.applied, process.exit_code())


def _redacted(facts: findings.Facts, secrets: Sequence[str]) -> findings.Facts:
    return {
        redact(name, secrets): redact(value, secrets) if isinstance(value, str) else value
        for name, value in facts.items()
    }


def order_content(bench: Bench, trial: Trial, task: Task) -> dict[str, Any]:
    """Return what a worker reads from its standard input."""
    case, info = trial.case, bench.lab.info
    settings, operation = case.settings, OPERATIONS[case.operation]
    target_url = None if info.endpoint == "Amazon S3" else info.endpoint
    connection = {
        "endpoint_url": target_url if bench.server is None else bench.server.endpoint_url(case.link),
        "region": info.region,
        "bucket": info.bucket,
        "concurrency": settings.concurrency,
        "block_bytes": settings.block_bytes,
        **_connection_settings(settings),
        "timeout_s": settings.timeout_s,
    }
    job = {
        "bucket": info.bucket,
        "keys": task.keys,
        "targets": task.targets,
        "paths": [str(path) for path in task.paths],
        "payloads": [],
        "prefix": task.source.prefix,
        "object_bytes": case.objects.size_bytes,
        "concurrency": settings.concurrency,
        "block_bytes": settings.block_bytes,
    }
    return {
        "operation": case.operation,
        "answers": operation.kind is Kind.FINDING,
        "leaves": operation.leaves,
        "watch_loop": settings.watch_loop,
        "connection": connection,
        "job": job,
        "warm_up_key": bench.dataset.warm_up_key,
        "payload_paths": [str(path) for path in task.payload_paths],
    }


def _connection_settings(settings: Settings) -> dict[str, int | str]:
    """Return what every client is told of its connections, and reads back afterwards."""
    return {
        "pool_size": settings.pool_size or max(SMALLEST_POOL, settings.concurrency),
        "retry_mode": settings.retry_mode or RETRY_MODE,
        "retry_attempts": settings.retry_attempts or RETRY_ATTEMPTS,
    }


def _ignored_settings(case: Case, applied: Mapping[str, int | str | None]) -> str:
    """Name the settings that the client holds otherwise than it was told; clients ignore misspelt ones in silence."""
    asked = {
        "concurrency": case.settings.concurrency,
        "block_bytes": case.settings.block_bytes,
        **_connection_settings(case.settings),
        "timeout_s": case.settings.timeout_s,
    }
    wrong = [
        f"{name} is {applied[name]}, not {value}"
        for name, value in asked.items()
        if value is not None and applied.get(name) not in (None, value)
    ]
    return "; ".join(wrong)


def _measurement(case: Case, answer: Answer, requests: Requests | None, is_null: bool) -> Measurement:
    moves = OPERATIONS[case.operation].moves and not is_null
    return Measurement(
        wall_ns=answer.window.wall_ns,
        cpu_user_ns=answer.window.cpu_user_ns,
        cpu_system_ns=answer.window.cpu_system_ns,
        byte_count=case.objects.total_bytes if moves else 0,
        object_count=0 if is_null else case.objects.count,
        rss_base_bytes=answer.rss_base_bytes,
        rss_peak_bytes=answer.rss_peak_bytes,
        threads_base=answer.threads_base,
        threads_peak=answer.threads_peak,
        harness_cpu_ns=answer.harness_cpu_ns,
        requests=requests,
        loop_lag=answer.window.loop_lag,
    )


def measure_ceilings(lab: Lab, floor: InstalledClient, seed: int) -> Ceilings:
    """Measure the most that the embedded store delivers through an unlimited link.

    The floor client moves 64 MiB in parallel ranges and parts, then many small objects; of each kind the fastest trial
    counts, for a ceiling is what can be reached, and whatever else the host does only lowers it. It includes TLS when the
    run does, since link and client share this host's processors with the store.
    """
    direct, best = Link("direct"), dict.fromkeys(CALIBRATION, 0.0)
    cases = list(dict.fromkeys(case for cases in CALIBRATION.values() for case in cases))
    with lab.dataset("ceiling", seed) as dataset, lab.link(direct) as server:
        dataset.prepare(cases, lambda _: None)
        bench = Bench("ceiling", lab, server, dataset, {floor.info.name: floor})
        trials = [
            Trial(sequence, block, 0, Phase.WARMUP, floor.info.name, case)
            for sequence, (block, case) in enumerate(itertools.product(range(CALIBRATION_TRIALS), cases))
        ]
        for record in execute(bench, trials):
            if not isinstance(record.outcome, Measured):
                why = getattr(record.outcome, "reason", "")
                raise StoreError(f"the store's ceiling can't be measured: {why}")
            case, wall_ns = record.trial.case, record.outcome.measurement.wall_ns
            amount = case.objects.total_bytes if case.objects.count == 1 else case.objects.count
            for name in (name for name, of_name in CALIBRATION.items() if case in of_name):
                best[name] = max(best[name], amount * 1e9 / wall_ns)
    return Ceilings(**{name: round(value) for name, value in best.items()})


def measure_known(lab: Lab, suite: Suite, seed: int, clients: Mapping[str, InstalledClient]) -> Iterator[Record]:
    """Run the known client's trials, each measured like any other, and yield their records."""
    link = next(each for each in suite.links if each.name == suite.default_link)
    trials = plan.trials(suite, seed)
    # What this process once held must not show in a child: ru_maxrss, for one, is inherited by exec.
    bytearray(b"x") * PAST_PEAK_BYTES
    with lab.dataset("known", seed) as dataset, lab.link(link) as server:
        dataset.prepare(suite.cases, lambda _: None)
        yield from execute(Bench("selftest", lab, server, dataset, clients), trials)


def scaled_rate(ceilings: Ceilings) -> int:
    """Choose the rate a stream at which 8 streams need at most half of what the store gives and takes, in bytes per second.

    It takes less than it gives, and one rate holds for both ways.
    """
    most = min(ceilings.download_bytes_per_s, ceilings.upload_bytes_per_s) / 2 / STREAMS_WITHIN_HALF
    fitting = [rate << 20 for rate in RATES_MIB_PER_S if rate << 20 <= most]
    return fitting[-1] if fitting else RATES_MIB_PER_S[0] << 20
