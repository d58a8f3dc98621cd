"""What two changes to the harness gained, in pairs against the harness without them: `uv run python -m benchmarks.gain`.

The harness without a change is a copy of this one in a temporary folder with the change taken back, so that both run the
same code otherwise. `load`: records are left alone by the garbage collector while 100,000 of them are read and tabulated.
`overlap`: a client's process ends while its bytes are verified, in place of before. Takes some five minutes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.speed import TABULATE, large_run
from harness import paths
from harness.statistics import ratio_interval, spread

RECORDS = 100_000
TRIALS = 12

OVERLAP = f"""
import json, time
from harness import paths
from harness.lab import environments
from harness.lab.lab import open_lab
from harness.model import Case, Link, Measured, Objects, Phase, Settings, Trial
from harness.run import Bench, execute
case = Case("read", "read", Objects(1, 8 << 20), Settings(8, 2 << 20), "ms20")
quiet = lambda text: None
with open_lab(None, "gain", tls=True, tell=quiet) as lab:
    clients = environments.prepare(paths.ENVS, ["boto3-threads"], quiet)
    with lab.dataset("data", 1) as dataset, lab.link(Link("ms20", delay_ms=20)) as server:
        dataset.prepare([case], quiet)
        trials = [Trial(n, 1, 0, Phase.MEASURED, "boto3-threads", case) for n in range({TRIALS} + 1)]
        for record in execute(Bench("gain", lab, server, dataset, clients), trials):
            assert isinstance(record.outcome, Measured), record.outcome
            if record.trial.sequence == 0:
                started = time.perf_counter()
print(json.dumps([(time.perf_counter() - started) / {TRIALS}]))
"""


@dataclass(frozen=True)
class Change:
    name: str
    unit: str
    module: str
    """Of the harness, in which the change is taken back."""
    now: str
    before: str
    program: str
    arguments: tuple[str, ...] = ()


def without(change: Change, folder: Path) -> Path:
    """Return a copy of the checkout's code in which the change is taken back."""
    copy = folder / change.name
    shutil.copytree(paths.ROOT / "harness", copy / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "envs").symlink_to(paths.ENVS)
    module = copy / "harness" / change.module
    text = module.read_text(encoding="utf-8")
    assert text.count(change.now) == 1, f"{change.module} no longer says {change.now!r}"
    module.write_text(text.replace(change.now, change.before), encoding="utf-8")
    return copy


def seconds(change: Change, root: Path) -> float:
    command = [sys.executable, "-c", change.program, *change.arguments]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root)
    return float(json.loads(answer.stdout.splitlines()[-1])[0])


def run(change: Change, pair_count: int, folder: Path) -> None:
    """Print how long it takes with the change over without it, in pairs in the order ABBA."""
    roots = (without(change, folder), paths.ROOT)
    found: tuple[list[float], list[float]] = ([], [])
    for root in roots:
        seconds(change, root)
    for pair in range(pair_count):
        for which in (0, 1) if pair % 2 == 0 else (1, 0):
            found[which].append(seconds(change, roots[which]))
    ratio = ratio_interval(found[1], found[0])
    before, now = (spread(each) for each in found)
    print(
        f"{change.name}: {now.median:.3f} s ({now.low:.3f} to {now.high:.3f}) {change.unit}, without it {before.median:.3f} s "
        f"({before.low:.3f} to {before.high:.3f}): {ratio.estimate:.2f} ({ratio.low:.2f} to {ratio.high:.2f}), n={ratio.n} pairs",
        flush=True,
    )


def changes(folder: Path) -> dict[str, Callable[[], Change]]:
    return {
        "load": lambda: Change(
            "load", f"for {RECORDS:,} records", "model.py", "forbid_unknown_fields=True, gc=False",
            "forbid_unknown_fields=True, gc=True", TABULATE, (str(large_run(folder, RECORDS)),),
        ),
        "overlap": lambda: Change(
            "overlap", "a trial", "run.py", "    if not is_null and (failed :=",
            "    process.exit_code()\n    if not is_null and (failed :=", OVERLAP,
        ),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("changes", nargs="*", metavar="CHANGE", help="load, overlap")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for change, make in changes(Path(name)).items():
            if not wanted.changes or change in wanted.changes:
                run(make(), wanted.pairs, Path(name))


if __name__ == "__main__":
    main()
