"""What the harness does to what it measures: `uv run python -m benchmarks.disturbance [--pairs N] [EXPERIMENT ...]`.

Each experiment runs one operation in two ways, in pairs whose order turns round each time (ABBA), and prints, for wall time,
CPU and peak RSS, the second over the first with its 95 % interval. `bare` holds a script of ten lines without any harness
against a trial of `bench`; the others hold a way of measuring that could be chosen against the one that was.
Takes about half an hour for all, and wants a quiet host.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from harness import paths
from harness.lab import environments, process
from harness.lab.lab import Lab, open_lab
from harness.lab.link import LinkServer
from harness.model import Case, Link, Measured, Measurement, Objects, Phase, Settings, Trial
from harness.run import Bench, execute, order_content
from harness.statistics import ratio_interval, spread

LINK = Link("ms20", delay_ms=20)
"""A delay, but no limit of the rate: a client that waits for bytes would hide what is done to it."""
READ = Case("read", "read", Objects(1, 64 << 20), Settings(8, 8 << 20), LINK.name)
CAT = Case("cat", "cat", Objects(200, 64 << 10), Settings(8, 8 << 20), LINK.name)
LIMIT = 0.02
CLIENTS = ("boto3-threads", "s3fs", "pyathena-aio")

_BARE_END = """
time.sleep(0.05)
t, c = time.perf_counter_ns(), time.process_time_ns()
result = operation()
t, c = time.perf_counter_ns() - t, time.process_time_ns() - c
peak = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([t, c, peak]))
"""
# With the settings that every client of `bench` is told, and a moment of rest before the operation: a trial waits for its
# window, and a process that has just waited finds caches cold. Both are what a trial is, not what watching it does.
_BARE_START = "import json, os, sys, time\nbucket, key, url, warm = sys.argv[1:5]\n"
BARE = {
    "boto3-threads": _BARE_START
    + """import boto3
from botocore.config import Config
config = Config(max_pool_connections=10, retries={"mode": "standard", "total_max_attempts": 3}, s3={"addressing_style": "path"})
client = boto3.client("s3", endpoint_url=url, config=config)
client.head_object(Bucket=bucket, Key=warm)
operation = lambda: client.get_object(Bucket=bucket, Key=key)["Body"].read()
"""
    + _BARE_END,
    "s3fs": _BARE_START
    + """import s3fs
fs = s3fs.S3FileSystem(endpoint_url=url, default_block_size=8 << 20, max_concurrency=8)
fs.info(bucket + "/" + warm)
operation = lambda: fs.open(bucket + "/" + key, "rb").read()
"""
    + _BARE_END,
}
"""By client, its `read` as somebody would time it who has never heard of `bench`."""

ZYGOTE = """
import importlib.util, os, socket, sys
spec = importlib.util.spec_from_file_location("worker", sys.argv[1])
worker = importlib.util.module_from_spec(spec)
sys.modules["worker"] = worker
spec.loader.exec_module(worker)
worker.load_adapter(sys.argv[2])
control = socket.socket(fileno=int(sys.argv[3]))
while True:
    name, descriptors, _, _ = socket.recv_fds(control, 100, 2)
    if not name:
        break
    child = os.fork()
    if child == 0:
        os.dup2(descriptors[0], 0)
        sys.stdin = open(0)
        try:
            worker.run_trial(sys.argv[2], name.decode(), worker.Channel(descriptors[1]))
        finally:
            os._exit(0)
    for descriptor in descriptors:
        os.close(descriptor)
    os.waitpid(child, 0)
"""
"""A parent that has imported the client already, and forks a trial in place of starting it."""


@dataclass(frozen=True)
class Figures:
    wall_ns: int
    cpu_ns: int
    rss_peak_bytes: int
    harness_cpu_ns: int = 0


Arm = Callable[[], Figures]


@dataclass(frozen=True)
class Experiment:
    name: str
    client: str
    first: tuple[str, Arm]
    second: tuple[str, Arm]


class Bed:
    """Store, link, data and clients that all experiments share."""

    def __init__(self, lab: Lab, server: LinkServer, bench: Bench) -> None:
        self.lab, self.server, self.bench = lab, server, bench
        self._sequence = itertools.count()

    def trial(self, client: str, case: Case) -> Trial:
        return Trial(next(self._sequence), 1, 0, Phase.MEASURED, client, case)

    def measured(self, client: str, case: Case) -> Figures:
        """Run one trial through `bench`."""
        (record,) = execute(self.bench, [self.trial(client, case)])
        assert isinstance(record.outcome, Measured), record.outcome
        return figures(record.outcome.measurement)

    def bare(self, client: str) -> Figures:
        """Run the script of ten lines on the same object."""
        trial = self.trial(client, READ)
        task = self.bench.dataset.lay_out(trial)
        installed = self.bench.clients[client]
        where = (
            self.lab.info.bucket,
            task.keys[0],
            self.server.endpoint_url(LINK.name),
            self.bench.dataset.warm_up_key,
        )
        command = [str(installed.environment.interpreter), "-I", "-c", BARE[client], *where]
        answer = subprocess.run(
            command, env=self.lab.client_environment(self.server), capture_output=True, text=True, check=True
        )
        self.bench.dataset.clear(trial, task)
        return Figures(*json.loads(answer.stdout))

    def conversed(self, client: str, case: Case, start: Callable[[int, int], Callable[[], None]]) -> Figures:
        """Run one trial of a worker that `start` starts on two descriptors, without the harness's watching."""
        trial = self.trial(client, case)
        task = self.bench.dataset.lay_out(trial)
        order_reading, order_writing = os.pipe()
        reading, writing = os.pipe()
        finish = start(order_reading, writing)
        os.close(order_reading)
        os.close(writing)
        with os.fdopen(order_writing, "wb", buffering=0) as orders, os.fdopen(reading, "rb") as answers:
            orders.write(msgspec.json.encode(order_content(self.bench, trial, task)) + b"\n")
            expect(answers.readline(), "ready")
            orders.write(b"go\n")
            window = expect(answers.readline(), "window")
            expect(answers.readline(), "result")
        finish()
        self.bench.dataset.clear(trial, task)
        return Figures(window["wall_ns"], window["cpu_user_ns"] + window["cpu_system_ns"], window["rss_peak_bytes"])

    def fresh(self, client: str, case: Case) -> Figures:
        installed = self.bench.clients[client]

        def start(orders: int, channel: int) -> Callable[[], None]:
            command = [
                *(installed.environment.interpreter, "-I", paths.WORKER, "trial", installed.environment.adapter),
                *(client, str(channel)),
            ]
            started = self.lab.session.spawn(
                command, self.lab.client_environment(self.server), subprocess.DEVNULL, stdin=orders, pass_fds=(channel,)
            )
            return lambda: (started.wait(), None)[1]

        return self.conversed(client, case, start)

    @contextlib.contextmanager
    def zygote(self, client: str) -> Iterator[Callable[[Case], Figures]]:
        """Lend a way to run trials as forks of one preloaded parent."""
        installed = self.bench.clients[client]
        ours, theirs = socket.socketpair()
        command = [
            *(installed.environment.interpreter, "-I", "-c", ZYGOTE),
            *(paths.WORKER / "__main__.py", installed.environment.adapter),
            str(theirs.fileno()),
        ]
        parent = self.lab.session.spawn(
            command, self.lab.client_environment(self.server), subprocess.DEVNULL, pass_fds=(theirs.fileno(),)
        )
        theirs.close()

        def start(orders: int, channel: int) -> Callable[[], None]:
            socket.send_fds(ours, [client.encode()], [orders, channel])
            return lambda: None

        yield lambda case: self.conversed(client, case, start)
        ours.close()
        parent.wait()


def figures(m: Measurement) -> Figures:
    return Figures(m.wall_ns, m.cpu_ns, m.rss_peak_bytes, m.harness_cpu_ns)


def expect(line: bytes, event: str) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(line)
    assert message["event"] == event, message
    return message


@contextlib.contextmanager
def sampling_every(period_s: float) -> Iterator[None]:
    before, process.SAMPLE_PERIOD_S = process.SAMPLE_PERIOD_S, period_s
    yield
    process.SAMPLE_PERIOD_S = before


@contextlib.contextmanager
def worker_with(change: tuple[str, str]) -> Iterator[None]:
    """Use a worker in which one piece of text is another."""
    before: Path = vars(process)["WORKER"]
    with tempfile.TemporaryDirectory() as folder:
        source = (before / "__main__.py").read_text(encoding="utf-8")
        assert change[0] in source
        (Path(folder) / "__main__.py").write_text(source.replace(*change), encoding="utf-8")
        vars(process)["WORKER"] = Path(folder)
        yield
        vars(process)["WORKER"] = before


@contextlib.contextmanager
def pinned(bed: Bed) -> Iterator[None]:
    """Keep clients on the first processor, and store, link and harness on the others."""
    every = os.sched_getaffinity(0)
    client, others = {min(every)}, every - {min(every)}
    spawn = bed.lab.session.spawn

    def spawn_pinned(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started = spawn(*arguments, **options)
        os.sched_setaffinity(started.pid, client)
        return started

    move(bed, others)
    bed.lab.session.spawn = spawn_pinned  # type: ignore[method-assign]
    yield
    bed.lab.session.spawn = spawn  # type: ignore[method-assign]
    move(bed, every)


def move(bed: Bed, processors: set[int]) -> None:
    """Move store, link and harness, with every thread they have now."""
    pids = [each.pid for each in (bed.lab.embedded_store, bed.server) if each is not None]
    for pid in (*pids, os.getpid()):
        for thread in threads_of(pid):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread, processors)


def threads_of(pid: int) -> list[int]:
    return [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]


def with_context(context: Callable[[], contextlib.AbstractContextManager[None]], arm: Arm) -> Arm:
    def run() -> Figures:
        with context():
            return arm()

    return run


def experiments(bed: Bed, stack: contextlib.ExitStack) -> Iterator[Experiment]:
    for client in BARE:
        yield Experiment(
            "bare",
            client,
            ("script of ten lines", lambda client=client: bed.bare(client)),  # type: ignore[misc]
            ("bench", lambda client=client: bed.measured(client, READ)),  # type: ignore[misc]
        )
    for client in CLIENTS:
        plain = lambda client=client: bed.measured(client, CAT)  # noqa: E731
        for period_ms in (1, 20):
            arm = with_context(lambda period_ms=period_ms: sampling_every(period_ms / 1000), plain)  # type: ignore[misc]
            yield Experiment("sampling", client, ("every 5 ms", plain), (f"every {period_ms} ms", arm))
        freeze = with_context(lambda: worker_with(("gc.collect()", "gc.collect(); gc.freeze()")), plain)
        yield Experiment("freeze", client, ("gc.collect", plain), ("and gc.freeze", freeze))
        yield Experiment("pinning", client, ("not pinned", plain), ("pinned", with_context(lambda: pinned(bed), plain)))
        forked = stack.enter_context(bed.zygote(client))
        yield Experiment(
            "fork",
            client,
            ("fresh process", lambda client=client: bed.fresh(client, CAT)),  # type: ignore[misc]
            ("fork of a preloaded parent", lambda forked=forked: forked(CAT)),  # type: ignore[misc]
        )


def run(experiment: Experiment, pair_count: int) -> None:
    arms = (experiment.first[1], experiment.second[1])
    found: tuple[list[Figures], list[Figures]] = ([], [])
    for arm in arms:
        arm()
    for pair in range(pair_count):
        for which in (0, 1) if pair % 2 == 0 else (1, 0):
            found[which].append(arms[which]())
    print(
        f"{experiment.name}, {experiment.client}: {experiment.second[0]} / {experiment.first[0]}, n={pair_count} pairs"
    )
    for title, metric in (("wall", "wall_ns"), ("CPU", "cpu_ns"), ("peak RSS", "rss_peak_bytes")):
        first, second = ([getattr(each, metric) for each in one] for one in found)
        ratio = ratio_interval(second, first)
        a, b = spread(first), spread(second)
        print(
            f"  {title:9} {ratio.estimate:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
            f"   spread, most over least: {a.high / a.low:.2f} and {b.high / b.low:.2f}"
        )
    harness = [sum(each.harness_cpu_ns for each in one) / sum(each.wall_ns for each in one) for one in found]
    print(f"  harness's CPU in the windows, of one core: {harness[0]:.2%} and {harness[1]:.2%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help="bare, sampling, freeze, pinning, fork")
    wanted = parser.parse_args()
    with open_lab(None, "disturbance", tls=True, tell=print) as lab, contextlib.ExitStack() as stack:
        clients = environments.prepare(paths.ENVS, CLIENTS, print)
        dataset = stack.enter_context(lab.dataset("data", 1))
        dataset.prepare([READ, CAT], print)
        server = stack.enter_context(lab.link(LINK))
        assert server is not None
        bed = Bed(lab, server, Bench("disturbance", lab, server, dataset, clients))
        for experiment in experiments(bed, stack):
            if not wanted.experiments or experiment.name in wanted.experiments:
                run(experiment, wanted.pairs)


if __name__ == "__main__":
    main()
