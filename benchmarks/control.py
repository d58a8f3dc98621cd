"""How often the instrument sees a difference where there is none: `uv run python -m benchmarks.control [--sessions N]`.

Each session is a small run of one client under two labels (the A/A pair), in blocks as any run has them. A false difference
is a 95 % interval of the paired ratio that leaves out 1. Of 60 sessions and two cases, 5 % should be such, and chance
allows the binomial bound. Takes about half a minute a session. Ends with code 1 when a bound is broken.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict

import scipy.stats

from harness import paths, plan
from harness.lab import environments
from harness.lab.lab import open_lab
from harness.model import CONTROL, Case, Link, Measured, Objects, Phase, Profile, Record, Scenario, Settings, Suite
from harness.run import Bench, execute
from harness.statistics import median, ratio_interval
from harness.summary import METRIC

LINK = Link("s3-scaled", delay_ms=20, stream_rate_bytes_per_s=20 << 20, scaled=True)
CASES = (
    Case("read", "read", Objects(1, 8 << 20), Settings(8, 2 << 20), LINK.name),
    Case("cat", "cat", Objects(20, 64 << 10), Settings(8, 8 << 20), LINK.name),
)
CLIENTS = ("boto3-threads", "s3fs", "pyathena-aio")
"""In turn, one a session."""
METRICS = ("throughput_bytes_per_s", "cpu_ns_per_gib", "rss_peak_bytes")
BLOCKS = 8
LEVEL = 0.05


def suite(client: str) -> Suite:
    scenarios = tuple(Scenario(case.scenario, case.scenario, case.operation, (case,)) for case in CASES)
    labels = (client, f"{client}@{CONTROL}")
    return Suite("control", "A/A", Profile("quick", BLOCKS, 1), labels, client, scenarios, (LINK,), LINK.name)


def values(records: list[Record], case: Case, label: str, metric: str) -> list[float]:
    """Return the figures of one label on one case, block by block."""
    found = [
        METRIC[metric].of(record)
        for record in sorted(records, key=lambda record: record.trial.block)
        if record.trial.case == case and record.trial.client == label and record.trial.phase is Phase.MEASURED
    ]
    assert len(found) == BLOCKS, f"{label} on {case.key}: {len(found)} trials"
    return [value for value in found if value is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=60)
    session_count = parser.parse_args().sessions
    false: dict[tuple[str, str], int] = defaultdict(int)
    widths: dict[tuple[str, str], list[float]] = defaultdict(list)
    started = time.monotonic()
    with open_lab(None, "control", tls=True, tell=print) as lab:
        clients = environments.prepare(paths.ENVS, [label for name in CLIENTS for label in suite(name).clients], print)
        with lab.dataset("data", 1) as dataset, lab.link(LINK) as server:
            dataset.prepare(CASES, print)
            bench = Bench("control", lab, server, dataset, clients)
            for number in range(session_count):
                client = CLIENTS[number % len(CLIENTS)]
                records = list(execute(bench, plan.trials(suite(client), number)))
                assert all(isinstance(record.outcome, Measured) for record in records)
                words = []
                for case in CASES:
                    for metric in METRICS:
                        own, control = (values(records, case, label, metric) for label in suite(client).clients)
                        ratio = ratio_interval(own, control)
                        missed = not ratio.low <= 1 <= ratio.high
                        false[case.scenario, metric] += missed
                        widths[case.scenario, metric].append(ratio.high / ratio.low)
                        words.append(f"{ratio.estimate:.3f}{'!' if missed else ' '}")
                left_s = (time.monotonic() - started) / (number + 1) * (session_count - number - 1)
                print(f"session {number + 1:3} {client:14} {' '.join(words)}  {left_s / 60:.0f} min left", flush=True)
    sys.exit(report(session_count, false, widths))


def report(session_count: int, false: dict[tuple[str, str], int], widths: dict[tuple[str, str], list[float]]) -> int:
    """Print false differences by metric, against what chance allows; return the exit code."""
    broken = 0
    print("| case | metric | sessions | false differences | share | chance allows (95 %) | interval, high over low |")
    print("|:--|:--|--:|--:|--:|--:|--:|")
    for metric in METRICS:
        for cases in (*((case.scenario,) for case in CASES), tuple(case.scenario for case in CASES)):
            count = session_count * len(cases)
            seen = sum(false[case, metric] for case in cases)
            allowed = int(scipy.stats.binom.ppf(0.95, count, LEVEL))
            broken += seen > allowed
            width = median([width for case in cases for width in widths[case, metric]])
            print(
                f"| {' and '.join(cases)} | {metric} | {count} | {seen} | {seen / count:.1%} | {allowed} | {width:.3f} |"
            )
    return int(broken > 0)


if __name__ == "__main__":
    main()
