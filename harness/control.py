"""The A/A pair: one client under two labels, and what its difference from itself says of a session."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass

from harness.conditions import disturbed_blocks
from harness.model import CONTROL, Case, Measured, Measurement, Phase, RunSet
from harness.statistics import MINIMUM_BLOCKS, Interval, median, ratio_interval
from harness.summary import METRIC

FIGURES: dict[str, Callable[[Measurement], float]] = {
    "throughput": lambda m: 1e9 / m.wall_ns,
    "CPU": lambda m: m.cpu_ns,
    "peak RSS": lambda m: m.rss_peak_bytes,
}
"""On one case the work is the same, so the time alone tells the throughput."""

_BY_UNIT = {
    "bytes_per_s": "throughput",
    "objects_per_s": "throughput",
    "ns": "throughput",
    "ns_per_gib": "CPU",
    "ns_per_object": "CPU",
}

LEVEL = 0.05
"""Share of sound sessions that may fail; divided among the figures, of which each is a chance to fail."""


def figure_of(metric: str) -> str | None:
    """Return the figure whose noise a metric shares; None for one that has no noise to speak of, such as a count."""
    if metric in ("rss_peak_bytes", "rss_increase_bytes"):
        return "peak RSS"
    return _BY_UNIT.get(METRIC[metric].unit)


@dataclass(frozen=True)
class Ratio:
    """The control over its twin."""

    figure: str
    interval: Interval


@dataclass(frozen=True)
class Control:
    """What a session's A/A pair showed."""

    client: str
    label: str
    pooled: tuple[Ratio, ...]
    """One a figure: the mean over all cases in each block, with the interval over the blocks."""
    by_case: dict[Case, tuple[Ratio, ...]]
    block_count: int

    @property
    def noise(self) -> dict[str, float]:
        """By figure, how far the upper end of a case's 95 % interval lies above its estimate, in the median of the cases."""
        found: dict[str, list[float]] = {figure: [] for figure in FIGURES}
        for ratios in self.by_case.values():
            for ratio in ratios:
                found[ratio.figure].append(ratio.interval.high / ratio.interval.estimate - 1)
        return {figure: median(values) for figure, values in found.items() if values}

    @property
    def missed(self) -> tuple[Ratio, ...]:
        """Figures in which the client differs from itself by more than chance."""
        return tuple(ratio for ratio in self.pooled if not ratio.interval.low <= 1 <= ratio.interval.high)

    @property
    def verdict(self) -> str:
        if self.block_count < MINIMUM_BLOCKS:
            return "inconclusive"
        return "failed" if self.missed else "ok"


def find(run_set: RunSet) -> Control | None:
    """Compare the run's control with its twin; None where there is none, or fewer than two blocks of both."""
    label = next((client.name for client in run_set.run.clients if client.name.endswith(f"@{CONTROL}")), None)
    if label is None:
        return None
    client = label.removesuffix(f"@{CONTROL}")
    disturbed = disturbed_blocks(run_set)
    logs = {case: list(_pairs(run_set, disturbed, case, client, label)) for case in run_set.run.cases}
    by_case = {case: _ratios(pairs, 1 - LEVEL) for case, pairs in logs.items() if len(pairs) >= 2}
    pooled = _pool(logs)
    if len(pooled) < 2:
        return None
    return Control(client, label, _ratios(pooled, 1 - LEVEL / len(FIGURES)), by_case, len(pooled))


LogRatios = dict[str, float]


def _pairs(
    run_set: RunSet, disturbed: Container[tuple[Case, int]], case: Case, client: str, label: str
) -> Iterator[tuple[int, LogRatios]]:
    """Yield each block in which both were measured, and the logarithms of the control's figures over its twin's."""
    found: dict[tuple[int, str], Measurement] = {}
    for record in run_set.records:
        counts = record.trial.case == case and record.trial.phase is Phase.MEASURED
        if counts and (case, record.trial.block) not in disturbed and isinstance(record.outcome, Measured):
            found[record.trial.block, record.trial.client] = record.outcome.measurement
    for block in sorted({block for block, _ in found}):
        own, control = found.get((block, client)), found.get((block, label))
        if own is not None and control is not None:
            yield (
                block,
                {
                    figure: math.log(of(control) / of(own))
                    for figure, of in FIGURES.items()
                    if of(own) > 0 and of(control) > 0
                },
            )


def _pool(logs: dict[Case, list[tuple[int, LogRatios]]]) -> list[tuple[int, LogRatios]]:
    """Return for each block the means over the cases; a block that lacks a case is left out."""
    complete = [pairs for pairs in logs.values() if pairs]
    blocks = set.intersection(*({block for block, _ in pairs} for pairs in complete)) if complete else set()
    return [(block, {figure: _mean(complete, block, figure) for figure in FIGURES}) for block in sorted(blocks)]


def _mean(logs: list[list[tuple[int, LogRatios]]], block: int, figure: str) -> float:
    values = [ratios[figure] for pairs in logs for at, ratios in pairs if at == block and figure in ratios]
    return sum(values) / len(values) if values else 0.0


def _ratios(pairs: list[tuple[int, LogRatios]], level: float) -> tuple[Ratio, ...]:
    found = []
    for figure in FIGURES:
        ratios = [math.exp(logs[figure]) for _, logs in pairs if figure in logs]
        if len(ratios) >= 2:
            found.append(Ratio(figure, ratio_interval(ratios, [1.0] * len(ratios), level)))
    return tuple(found)
