"""How long measuring takes, and where: `uv run python -m benchmarks.speed [--trials N] [PART ...]`.

`phases`: what a trial costs besides its window, phase by phase. `help`: `bench --help` against a bare typer program, in
pairs; at most 1.5 times. `load`: reading and tabulating a run of 100,000 records against one of 10,000: at most 5 s and
500 MiB, growing linearly. Ends with code 1 when a bound is broken.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from harness import paths, records
from harness.lab import environments, process
from harness.lab.dataset import Dataset
from harness.lab.lab import open_lab
from harness.lab.link import LinkServer
from harness.lab.process import TrialProcess
from harness.model import Case, Link, Measured, Objects, Phase, Settings, Trial
from harness.run import Bench, execute
from harness.statistics import median, ratio_interval

HELP_RATIO_MAX = 1.5
LOAD_MAX_S = 5.0
LOAD_MAX_BYTES = 500 << 20
LINEAR_RATIO_MAX = 12.0
"""Of ten times the records over the time of one: a tenth beyond linear and some for noise."""
RECORDS = (10_000, 100_000)
CASES = (
    Case("read", "read", Objects(1, 8 << 20), Settings(8, 2 << 20), "ms20"),
    Case("put", "put", Objects(20, 64 << 10), Settings(8, 8 << 20), "ms20"),
)
CLIENTS = ("boto3-threads", "s3fs", "pyathena-aio")

BARE = """
import typer
app = typer.Typer(help="Nothing.")
@app.command()
def one(name: str = "x", count: int = 1) -> None:
    "Do nothing."
@app.command()
def two(name: str = "x", count: int = 1) -> None:
    "Do nothing."
app()
"""

TABULATE = """
import json, resource, sys, time
from pathlib import Path
from harness import records
from harness.report.build import build
started = time.perf_counter()
read = records.read(Path(sys.argv[1]))
build(read)
peak = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([time.perf_counter() - started, peak]))
"""


def timed(times: dict[str, list[float]], phase: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def run_timed(*arguments: Any, **options: Any) -> Any:
        started = time.perf_counter()
        try:
            return call(*arguments, **options)
        finally:
            times[phase].append(time.perf_counter() - started)

    return run_timed


@contextlib.contextmanager
def watched(times: dict[str, list[float]]) -> Iterator[None]:
    """Time the parts of a trial by wrapping the functions that do them."""
    parts: list[tuple[type, str, str]] = [
        (Dataset, "lay_out", "lay out objects and files"),
        (Dataset, "verify", "verify every byte"),
        (Dataset, "clear", "clear away"),
        (LinkServer, "entries_since_mark", "read the link's log, before and after"),
        (TrialProcess, "__init__", "start the process"),
        (TrialProcess, "close", "close the process"),
        (TrialProcess, "exit_code", "wait for its end"),
    ]
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in parts]
    for owner, name, phase in parts:
        setattr(owner, name, timed(times, phase, vars(owner)[name]))
    whole = vars(TrialProcess)["run"]

    def run_split(
        self: TrialProcess, order: process.Order, on_ready: Callable[[], None], on_closed: Callable[[], None]
    ) -> Any:
        started = time.perf_counter()

        def ready() -> None:
            times["wait until it is ready: imports, client, first request"].append(time.perf_counter() - started)
            on_ready()

        return whole(self, order, ready, on_closed)

    TrialProcess.run = run_split  # type: ignore[method-assign]
    yield
    TrialProcess.run = whole  # type: ignore[method-assign]
    for owner, name, function in before:
        setattr(owner, name, function)


def phases(trial_count: int) -> bool:
    """Print what a trial costs besides its window."""
    times: dict[str, list[float]] = defaultdict(list)
    link = Link("ms20", delay_ms=20)
    with open_lab(None, "speed", tls=True, tell=print) as lab:
        clients = environments.prepare(paths.ENVS, CLIENTS, print)
        with lab.dataset("data", 1) as dataset, lab.link(link) as server:
            dataset.prepare(CASES, print)
            bench = Bench("speed", lab, server, dataset, clients)
            places = [(case, client) for _ in range(trial_count) for case in CASES for client in CLIENTS]
            trials = [Trial(n, 1, 0, Phase.MEASURED, client, case) for n, (case, client) in enumerate(places)]
            windows = []
            started = time.perf_counter()
            with watched(times):
                for record in execute(bench, trials):
                    assert isinstance(record.outcome, Measured), record.outcome
                    windows.append(record.outcome.measurement.wall_ns / 1e9)
            whole = time.perf_counter() - started
    count = len(trials)
    print(
        f"{count} trials, {whole / count * 1000:.0f} ms each, of which {sum(windows) / count * 1000:.0f} ms in windows ({sum(windows) / whole:.0%})"
    )
    for phase, seconds in sorted(times.items(), key=lambda item: -sum(item[1])):
        print(
            f"  {sum(seconds) / count * 1000:7.1f} ms a trial, median {median(seconds) * 1000:7.1f} ms, n={len(seconds):4}: {phase}"
        )
    return True


def command_s(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


def help_speed(pair_count: int) -> bool:
    """Compare the start of `bench --help` with that of the smallest program that has commands."""
    bench, bare = [str(Path(sys.executable).parent / "bench"), "--help"], [sys.executable, "-c", BARE, "--help"]
    command_s(bench)
    command_s(bare)
    pairs = [(command_s(bench), command_s(bare)) for _ in range(pair_count)]
    ratio = ratio_interval([own for own, _ in pairs], [other for _, other in pairs])
    own_s, bare_s = (median([pair[place] for pair in pairs]) for place in (0, 1))
    print(
        f"bench --help {own_s * 1000:.0f} ms, bare typer {bare_s * 1000:.0f} ms, ratio {ratio.estimate:.2f} "
        f"({ratio.low:.2f} to {ratio.high:.2f}), n={ratio.n} pairs; at most {HELP_RATIO_MAX}"
    )
    return ratio.estimate <= HELP_RATIO_MAX


def large_run(folder: Path, record_count: int) -> Path:
    """Write a run of so many records, grown from a real one that is committed."""
    source = records.read(records.find(paths.RESULTS, "20261130-235024"))
    run_id = source.run.id
    grown = folder / f"{record_count}" / run_id
    grown.mkdir(parents=True)
    blocks = record_count // (len(source.run.cases) * len(source.run.clients))
    profile = msgspec.structs.replace(source.run.profile, measured_blocks=blocks)
    described = msgspec.structs.replace(source.run, profile=profile, trial_count=record_count)
    (grown / "run.json").write_bytes(msgspec.json.encode(described))
    with (grown / "records.jsonl").open("wb") as lines:
        for sequence in range(record_count):
            record = source.records[sequence % len(source.records)]
            block = 1 + sequence // (len(source.run.cases) * len(source.run.clients))
            trial = msgspec.structs.replace(record.trial, sequence=sequence, block=block, phase=Phase.MEASURED)
            lines.write(msgspec.json.encode(msgspec.structs.replace(record, trial=trial)) + b"\n")
    return grown


def load_speed() -> bool:
    """Read and tabulate runs of two sizes, each in a fresh process."""
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in RECORDS:
            path = large_run(Path(folder), count)
            answer = subprocess.run(
                [sys.executable, "-c", TABULATE, str(path)], check=True, capture_output=True, text=True
            )
            seconds, peak = figures[count] = json.loads(answer.stdout)
            print(f"{count} records: {seconds:.2f} s, peak {peak / 2**20:.0f} MiB")
    (few_s, _), (many_s, many_bytes) = (figures[count] for count in RECORDS)
    print(
        f"ten times the records take {many_s / few_s:.1f} times as long; at most {LOAD_MAX_S:.0f} s and {LOAD_MAX_BYTES >> 20} MiB"
    )
    return bool(many_s <= LOAD_MAX_S and many_bytes <= LOAD_MAX_BYTES and many_s / few_s <= LINEAR_RATIO_MAX)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=8, help="of each case and client")
    parser.add_argument("parts", nargs="*", metavar="PART", help="phases, help, load")
    wanted = parser.parse_args()
    parts = {"phases": lambda: phases(wanted.trials), "help": lambda: help_speed(15), "load": load_speed}
    sound = [part() for name, part in parts.items() if not wanted.parts or name in wanted.parts]
    sys.exit(not all(sound))


if __name__ == "__main__":
    main()
