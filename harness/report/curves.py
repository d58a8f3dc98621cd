"""Sections on what only several cases together say: how memory follows the size, and where more concurrency stops paying."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness import curves, units
from harness.curves import Concurrency, Memory
from harness.model import RunSet
from harness.report.view import (
    NOTHING,
    OF_TRIALS,
    AbsentCell,
    Chart,
    Line,
    Row,
    Section,
    SpreadCell,
    Table,
    TextCell,
    plain,
)
from harness.summary import Summary


def curve_sections(run_set: RunSet, summary: Summary) -> Iterator[Section]:
    """Yield nothing for a run whose cases differ in neither size nor concurrency."""
    growths = tuple(curves.memory(summary))
    if growths:
        yield Section("Memory over size", tables=(memory_table(growths),))
    levels = tuple(curves.concurrency(run_set, summary))
    if levels:
        yield Section("Concurrency", tables=tuple(_concurrency_tables(levels)))
        yield Section("Concurrency, drawn", place="document", figures=tuple(_charts(levels)))


def memory_table(growths: Sequence[Memory]) -> Table:
    sizes = sorted({size for each in growths for size in each.points})
    rows = [
        Row(
            plain(f"{each.scenario}, {each.concurrency} workers, {each.client}"),
            (
                TextCell(each.verdict.value),
                TextCell(_slope(each)),
                *(
                    SpreadCell(each.points[size], "bytes") if size in each.points else AbsentCell(NOTHING)
                    for size in sizes
                ),
            ),
        )
        for each in growths
    ]
    caption = (
        f"{OF_TRIALS} Increase of peak RSS over what was resident before the window, by size of the object. The verdict is "
        f"the slope's: bytes of memory for each byte of the object, with its 95 % interval; above {curves.GROWING_SHARE:g} "
        "it grows, below it is constant, across it nothing is said."
    )
    columns = ("verdict", "bytes a byte", *map(units.size, sizes))
    return Table("Memory over size", plain(caption), "pattern", columns, tuple(rows), stacked=True)


def _slope(memory: Memory) -> str:
    if memory.slope is None:
        return memory.reason
    slope = memory.slope
    return f"{slope.estimate:.3f} ({slope.low:.3f} to {slope.high:.3f}), n={slope.n}"


def _concurrency_tables(found: Sequence[Concurrency]) -> Iterator[Table]:
    for scenario in dict.fromkeys(each.scenario for each in found):
        own = [each for each in found if each.scenario == scenario]
        levels = sorted({level for each in own for level in each.points})
        rows = [Row(str(level), tuple(_level_cell(each, level) for each in own)) for level in levels]
        rows.append(Row("knee", tuple(TextCell(str(each.knee)) for each in own)))
        rows += [
            Row(f"bound at {level}", tuple(TextCell(plain(each.bounds.get(level, "") or NOTHING)) for each in own))
            for level in levels
        ]
        caption = (
            f"{OF_TRIALS} Objects a second by concurrency. The knee is the concurrency up to which each doubling gains "
            f"at least {curves.KNEE_GAIN} times; the bound is what `bench explain` says of the traced trials."
        )
        columns = tuple(plain(each.client) for each in own)
        yield Table(f"Concurrency: {plain(scenario)}", caption, "concurrency", columns, tuple(rows), stacked=True)


def _level_cell(curve: Concurrency, level: int) -> SpreadCell | AbsentCell:
    spread = curve.points.get(level)
    return AbsentCell(NOTHING) if spread is None else SpreadCell(spread, "objects_per_s")


def _charts(found: Sequence[Concurrency]) -> Iterator[Chart]:
    for scenario in dict.fromkeys(each.scenario for each in found):
        lines = tuple(
            Line(plain(each.client), tuple(sorted(each.points.items())), each.knee)
            for each in found
            if each.scenario == scenario
        )
        yield Chart(
            plain(scenario),
            f"Objects a second over concurrency: {plain(scenario)}",
            "Median, with whiskers from least to most of n trials; the ring is the knee.",
            "concurrency",
            "objects/s",
            lines,
        )
