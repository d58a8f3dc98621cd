"""What the harness costs: `uv run python -m benchmarks.overhead [RUN]`.

Reads a recorded run (the latest by default) and prints, from its records, the CPU that the harness's own process used while
windows were open, the null client's window, and the share of the run's wall time that lay inside timed windows. Exits
with 1 when a bound is broken. Nothing is measured anew: the figures are those of the run that people read.
"""

from __future__ import annotations

import datetime
import sys
from statistics import median

from harness import paths, records
from harness.model import Measured, Record, RunSet

HARNESS_CPU_LIMIT = 0.03
"""Of one core, over all timed windows together."""
NULL_WINDOW_LIMIT_NS = 50_000


def measured(run_set: RunSet) -> list[tuple[Record, Measured]]:
    return [(record, record.outcome) for record in run_set.records if isinstance(record.outcome, Measured)]


def harness_cpu_share(run_set: RunSet) -> tuple[float, int]:
    """Return the harness's CPU over the wall time of all windows of at least 50 ms, and how many they were.

    In a shorter one the two messages that open and close it outweigh the watching.
    """
    windows = [outcome.measurement for _, outcome in measured(run_set) if outcome.measurement.wall_ns >= 50_000_000]
    wall_ns = sum(window.wall_ns for window in windows)
    return (sum(window.harness_cpu_ns for window in windows) / wall_ns if wall_ns else 0.0), len(windows)


def null_windows_ns(run_set: RunSet) -> list[int]:
    null = {info.name for info in run_set.run.clients if info.role == "null"}
    return sorted(outcome.measurement.wall_ns for record, outcome in measured(run_set) if record.trial.client in null)


def window_share(run_set: RunSet) -> tuple[float, float, float]:
    """Return seconds in windows, seconds from the first trial's start to the last's, and their ratio."""
    in_windows_s = sum(outcome.measurement.wall_ns for _, outcome in measured(run_set)) / 1e9
    starts = [datetime.datetime.fromisoformat(record.started_at) for record in run_set.records]
    whole_s = (max(starts) - min(starts)).total_seconds()
    return in_windows_s, whole_s, in_windows_s / whole_s if whole_s else 0.0


def main() -> None:
    run_set = records.read(records.find(paths.RESULTS, sys.argv[1] if len(sys.argv) > 1 else "latest"))
    share, window_count = harness_cpu_share(run_set)
    nulls = null_windows_ns(run_set)
    in_windows_s, whole_s, ratio = window_share(run_set)
    print(f"run {run_set.run.id}, {len(run_set.records)} records")
    print(f"harness CPU in timed windows: {share:.2%} of one core (n={window_count}; at most {HARNESS_CPU_LIMIT:.0%})")
    null_ok = True
    if nulls:
        null_ok = median(nulls) < NULL_WINDOW_LIMIT_NS
        print(
            f"null client's window: median {median(nulls) / 1e3:.1f} µs, {nulls[0] / 1e3:.1f} to {nulls[-1] / 1e3:.1f} µs "
            f"(n={len(nulls)}; under {NULL_WINDOW_LIMIT_NS / 1e3:.0f} µs)"
        )
    print(f"in timed windows: {in_windows_s:.0f} s of {whole_s:.0f} s, {ratio:.0%} of the run")
    sys.exit(0 if share <= HARNESS_CPU_LIMIT and null_ok else 1)


if __name__ == "__main__":
    main()
