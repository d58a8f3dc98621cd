"""The loop: trials in, records out, one after another. It prints nothing and writes nothing."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from harness import plan
from harness.errors import StoreError, StoreLostError
from harness.lab import link as links
from harness.lab.bucket import StoreRefused
from harness.lab.conditions import Watch
from harness.lab.dataset import MOVES_NOTHING, TO_STORE, Dataset, Task
from harness.lab.environments import InstalledClient
from harness.lab.lab import Lab
from harness.lab.link import LinkServer
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
    Trial,
    Unsupported,
)

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
    link: Link
    dataset: Dataset
    clients: Mapping[str, InstalledClient]
    limit_s: Callable[[Case], float] = plan.time_limit_s


def execute(bench: Bench, trials: Iterable[Trial]) -> Iterator[Record]:
    """Run the trials in order and yield each record as soon as it exists."""
    starter, garbage_bytes = _Starter(bench), 0
    try:
        for trial, following in _with_next(trials):
            if garbage_bytes > GARBAGE_LIMIT_BYTES:
                bench.lab.reclaim()
                garbage_bytes = 0
            garbage_bytes += trial.case.objects.total_bytes if trial.case.operation in TO_STORE | {"rm"} else 0
            started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            watch = Watch(bench.lab.servants(bench.server))
            outcome = _outcome(bench, starter, trial, following, watch)
            yield _record(bench, trial, started_at, outcome, watch)
    finally:
        starter.close()


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
    def window_opens() -> None:
        # What the client sent until now was its construction and warm-up; from here on it is the operation's.
        if bench.server is not None:
            bench.server.entries_since_mark(bench.link.name)
        watch.opens()

    order = Order(order_content(bench, trial, task), bench.limit_s(trial.case))
    answer = process.run(order, window_opens, window_closed)
    requests = None if bench.server is None else links.summarise(bench.server.entries_since_mark(bench.link.name))
    if isinstance(answer, Failed):
        bench.lab.check(bench.server)
        return answer
    watch.client_used(answer.window.cpu_user_ns + answer.window.cpu_system_ns)
    ignored = _ignored_settings(trial.case, answer.applied)
    if ignored:
        return Failed(FailureKind.SETTINGS, ignored, "")
    is_null = bench.clients[trial.client].info.role == "null"
    if not is_null and (failed := bench.dataset.verify(trial, task, answer)):
        return failed
    return Measured(_measurement(trial.case, answer, requests, is_null), answer.applied, process.exit_code())


def order_content(bench: Bench, trial: Trial, task: Task) -> dict[str, Any]:
    """Return what a worker reads from its standard input."""
    settings, info = trial.case.settings, bench.lab.info
    target_url = None if info.endpoint == "Amazon S3" else info.endpoint
    connection = {
        "endpoint_url": target_url if bench.server is None else bench.server.endpoint_url(bench.link.name),
        "region": info.region,
        "bucket": info.bucket,
        "concurrency": settings.concurrency,
        "block_bytes": settings.block_bytes,
        "pool_size": pool_size(settings),
        "retry_mode": RETRY_MODE,
        "retry_attempts": RETRY_ATTEMPTS,
    }
    job = {
        "bucket": info.bucket,
        "keys": task.keys,
        "targets": task.targets,
        "paths": [str(path) for path in task.paths],
        "payloads": [],
        "prefix": task.source.prefix,
        "object_bytes": trial.case.objects.size_bytes,
        "concurrency": settings.concurrency,
        "block_bytes": settings.block_bytes,
    }
    return {
        "operation": trial.case.operation,
        "connection": connection,
        "job": job,
        "warm_up_key": bench.dataset.warm_up_key,
        "payload_paths": [str(path) for path in task.payload_paths],
    }


def pool_size(settings: Settings) -> int:
    return max(SMALLEST_POOL, settings.concurrency)


def _ignored_settings(case: Case, applied: Mapping[str, int | str | None]) -> str:
    """Name the settings that the client holds otherwise than it was told; clients ignore misspelt ones in silence."""
    asked = {
        "concurrency": case.settings.concurrency,
        "block_bytes": case.settings.block_bytes,
        "pool_size": pool_size(case.settings),
        "retry_mode": RETRY_MODE,
        "retry_attempts": RETRY_ATTEMPTS,
    }
    wrong = [
        f"{name} is {applied[name]}, not {value}"
        for name, value in asked.items()
        if value is not None and applied.get(name) not in (None, value)
    ]
    return "; ".join(wrong)


def _measurement(case: Case, answer: Answer, requests: Requests | None, is_null: bool) -> Measurement:
    moves = case.operation not in MOVES_NOTHING and not is_null
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
        bench = Bench("ceiling", lab, server, direct, dataset, {floor.info.name: floor})
        trials = [
            Trial(sequence, block, 0, Phase.WARMUP, floor.info.name, case)
            for sequence, (block, case) in enumerate(itertools.product(range(CALIBRATION_TRIALS), cases))
        ]
        for record in execute(bench, trials):
            if not isinstance(record.outcome, Measured):
                raise StoreError(f"the store's ceiling can't be measured: {record.outcome.reason}")
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
        yield from execute(Bench("selftest", lab, server, link, dataset, clients), trials)


def scaled_rate(ceilings: Ceilings) -> int:
    """Choose the rate a stream at which 8 streams need at most half of what the store gives and takes, in bytes per second.

    It takes less than it gives, and one rate holds for both ways.
    """
    most = min(ceilings.download_bytes_per_s, ceilings.upload_bytes_per_s) / 2 / STREAMS_WITHIN_HALF
    fitting = [rate << 20 for rate in RATES_MIB_PER_S if rate << 20 <= most]
    return fitting[-1] if fitting else RATES_MIB_PER_S[0] << 20
