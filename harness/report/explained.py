"""What a client did, in words and a picture: a bar a request, and under it how many were in flight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness import units
from harness.explain import Explanation, Facts, level_at, steps_of
from harness.model import SentRequest

BLOCKS = " ▁▂▃▄▅▆▇█"
WIDTH = 64
"""Characters of the line that shows what was in flight over time."""
BARS_MOST = 400
"""Requests that are drawn; of more, the first ones, for later ones look alike and would be thinner than a line."""


def words(explanations: Sequence[Explanation]) -> Iterator[str]:
    """Yield lines that say what was seen: the first trial in full, and where the others differ."""
    first = explanations[0]
    yield from _of_one(first)
    others = explanations[1:]
    same = sum(each.bound == first.bound for each in others)
    if others:
        yield f"{same + 1} of {len(explanations)} traced trials say the same."
    for each in others:
        if each.bound != first.bound:
            yield f"Trial {each.facts.sequence}: {each.bound}."


def _of_one(explanation: Explanation) -> Iterator[str]:
    facts = explanation.facts
    yield f"{facts.client} on {facts.case}, trial {facts.sequence}: {units.duration(facts.wall_us * 1000)} in the window"
    yield f"Bound: {explanation.bound}" + (f" (rule {explanation.rule})" if explanation.rule else "")
    for also in explanation.also:
        yield f"Also:  {also}"
    kinds = ", ".join(f"{count} {kind}" for kind, count in facts.by_kind.items()) or "none"
    yield f"Requests: {kinds}; on {_counted(facts.connection_count, 'connection')}"
    yield f"In flight: mean {facts.mean:.1f} while any was, peak {facts.peak}; {_levels(facts)}"
    yield f"           {sparkline(facts.requests, facts.wall_us)}"
    if facts.first_byte_us is not None and facts.transfer_us is not None:
        yield (
            f"A request, at the median: {units.quantity(facts.first_byte_us, 'us')} to its first byte, "
            f"{units.quantity(facts.transfer_us, 'us')} of transfer"
        )
    cpu = "" if facts.cpu_cores is None else f"; CPU {facts.cpu_cores:.2f} cores"
    yield f"Nothing in flight for {units.quantity(facts.gap_us, 'us')} ({facts.gap_us / facts.wall_us:.0%}){cpu}"


def _levels(facts: Facts) -> str:
    longest = sorted((level for level in facts.levels if level), key=lambda level: -facts.levels[level])[:3]
    return ", ".join(f"{level} for {facts.share_at(level):.0%} of that time" for level in longest)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def sparkline(requests: Sequence[SentRequest], wall_us: int) -> str:
    """Return a line of blocks, one a slice of the window, as high as the number in flight in its middle."""
    steps = steps_of(requests, wall_us)
    levels = [level_at(steps, (place + 0.5) * wall_us / WIDTH) for place in range(WIDTH)]
    most = max(levels, default=0) or 1
    return "".join(BLOCKS[-(-level * (len(BLOCKS) - 1) // most)] for level in levels) + f" {most}"


def as_data(explanation: Explanation) -> dict[str, Any]:
    """Return plain data for scripts, times in microseconds."""
    facts = explanation.facts
    return {
        "client": facts.client,
        "case": facts.case,
        "trial": facts.sequence,
        "bound": explanation.bound,
        "rule": explanation.rule or None,
        "also": list(explanation.also),
        "wall_us": facts.wall_us,
        "requests": dict(facts.by_kind),
        "connection_count": facts.connection_count,
        "in_flight_mean": facts.mean,
        "in_flight_peak": facts.peak,
        "in_flight_main_peak": facts.main_peak,
        "in_flight_shares": {str(level): share for level, share in facts.levels.items()},
        "first_byte_median_us": facts.first_byte_us,
        "transfer_median_us": facts.transfer_us,
        "gap_us": facts.gap_us,
        "cpu_cores": facts.cpu_cores,
        "pool_size": facts.pool_size,
        "concurrency": facts.concurrency,
    }


def draw(explanation: Explanation, path: Path) -> None:
    """Write the picture: a bar a request, its wait for the first byte lighter, and below how many were in flight."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    facts = explanation.facts
    bars = facts.requests[:BARS_MOST]
    with mpl.rc_context({"font.family": "DejaVu Sans", "font.size": 9, "text.usetex": False, "text.parse_math": False}):
        canvas = Canvas(figsize=(11.0, 6.5), dpi=130, layout="constrained")
        FigureCanvasAgg(canvas)
        above, below = canvas.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        _bars(above, bars)
        left_out = (
            f"; the first {len(bars)} of {len(facts.requests)} requests" if len(bars) < len(facts.requests) else ""
        )
        above.set_title(f"{facts.client}, {facts.case}\n{explanation.bound}{left_out}", loc="left", fontsize=10)
        steps = steps_of(facts.requests, facts.wall_us)
        times_ms = [time_us / 1000 for time_us, _ in steps] + [facts.wall_us / 1000]
        below.step(times_ms, [level for _, level in steps] + [0], where="post", color="#0072B2", linewidth=1.2)
        below.set_ylabel("in flight")
        below.set_xlabel("ms from the opening of the window")
        below.set_ylim(bottom=0)
        below.set_xlim(0, facts.wall_us / 1000)
        for axes in (above, below):
            axes.grid(axis="x", color="#e6e6e6", linewidth=0.8)
            for side in ("top", "right"):
                axes.spines[side].set_visible(False)
        canvas.savefig(path, metadata={"Software": None})


def _bars(axes: Any, bars: Sequence[SentRequest]) -> None:
    for place, each in enumerate(bars):
        first_us = each.end_us if each.first_byte_us is None else each.first_byte_us
        axes.barh(place, (first_us - each.start_us) / 1000, left=each.start_us / 1000, color="#a6cbe3", height=0.9)
        axes.barh(place, (each.end_us - first_us) / 1000, left=first_us / 1000, color="#0072B2", height=0.9)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_ylabel("request, in the order of their start; lighter: wait for the first byte")
