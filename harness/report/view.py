"""The one view model: what a report says, as typed cells, before any format. Renderers lay it out and decide nothing."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from harness import summary as summaries
from harness import units
from harness.statistics import Interval, Spread
from harness.summary import Summary
from harness.units import Scale

TO = "\N{EN DASH}"
NOTHING = "\N{EN DASH}"
OF_TRIALS = f"Median (min{TO}max) of n measured trials."

Place: TypeAlias = Literal["everywhere", "terminal", "document"]


# --- cells -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SpreadCell:
    spread: Spread
    unit: str
    scale: Scale | None = None
    """None leaves it to the row, or where that has another unit, to the size of the number."""
    ratio: float | None = None
    failed: int = 0


@dataclass(frozen=True)
class RatioCell:
    """A ratio with its interval, e.g. of paired trials."""

    interval: Interval
    remark: str = ""


@dataclass(frozen=True)
class TextCell:
    text: str


@dataclass(frozen=True)
class FailedCell:
    """No trial succeeded."""

    count: int


@dataclass(frozen=True)
class UnsupportedCell:
    reason: str


@dataclass(frozen=True)
class AbsentCell:
    why: str


Cell: TypeAlias = SpreadCell | RatioCell | TextCell | FailedCell | UnsupportedCell | AbsentCell


@dataclass(frozen=True)
class Row:
    label: str
    cells: tuple[Cell, ...]
    unit: str | None = None
    """Of the cells that don't carry another."""
    scale: Scale | None = None
    """One for the whole row, so that its numbers can be compared at a glance."""
    group: str = ""
    """Rows of one group belong together."""

    ratio_to: str = ""
    """The client over whose median the ratios are taken."""

    n: int | None = None
    """Number of values behind a cell that says no other."""

    remarks: tuple[str, ...] = ()
    """More that holds for the whole row, such as a word of warning: `store-bound`."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what holds for the whole row: unit and n, then what the ratios are to."""
        unit = [self.scale.label] if self.scale and self.scale.label else []
        n = [] if self.n is None else [f"n={self.n}"]
        ratio = [f"ratio to {self.ratio_to}"] if self.ratio_to else []
        return tuple(filter(None, (", ".join(unit + n), *ratio, *self.remarks)))


def usual_n(cells: Iterable[Cell]) -> int | None:
    """Return the number of values behind most cells, and of two as frequent the larger."""
    counts = Counter(cell.spread.n for cell in cells if isinstance(cell, SpreadCell))
    return max(counts, key=lambda n: (counts[n], n), default=None)


@dataclass(frozen=True)
class Shown:
    """A cell in words, for a renderer to lay out."""

    value: str
    spread: str = ""
    remarks: tuple[str, ...] = ()


def show(cell: Cell, row: Row) -> Shown:
    match cell:
        case SpreadCell():
            return _show_spread(cell, row)
        case RatioCell(interval=interval, remark=remark):
            value, low, high = (units.number(figure) for figure in (interval.estimate, interval.low, interval.high))
            return Shown(f"{value}x", f"({low}{TO}{high})", (remark,) if remark else ())
        case TextCell(text=text):
            return Shown(text)
        case FailedCell(count=count):
            return Shown(f"failed ({count})")
        case UnsupportedCell():
            return Shown("unsupported")
        case AbsentCell(why=why):
            return Shown(why)


def _show_spread(cell: SpreadCell, row: Row) -> Shown:
    of_row = row.scale if cell.scale is None and cell.unit == row.unit else None
    scale = of_row or cell.scale or units.scale_of(cell.unit, cell.spread.median)
    value, low, high = (
        units.in_scale(figure, cell.unit, scale) for figure in (cell.spread.median, cell.spread.low, cell.spread.high)
    )
    remarks = [units.ratio(cell.ratio)] if cell.ratio is not None else []
    remarks += [f"n={cell.spread.n}"] if cell.spread.n != row.n else []
    remarks += [f"{cell.failed} failed"] if cell.failed else []
    return Shown(value if of_row else f"{value} {scale.label}".rstrip(), f"({low}{TO}{high})", tuple(remarks))


# --- larger parts ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    title: str
    caption: str
    label_title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    stacked: bool = False
    """Value, spread and remarks below each other: for many narrow columns."""


@dataclass(frozen=True)
class Note:
    """Text with something to be shown letter by letter, such as a log."""

    text: str
    code: str


@dataclass(frozen=True)
class Point:
    client: str
    spread: Spread | None
    remark: str
    """Said in place of a point."""


@dataclass(frozen=True)
class Panel:
    title: str
    scale: Scale
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Figure:
    """One operation: a row of panels a case, a column a metric, a line a client."""

    name: str
    title: str
    caption: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]


@dataclass(frozen=True)
class Line:
    client: str
    points: tuple[tuple[int, Spread], ...]
    knee: int
    """The place that is marked."""


@dataclass(frozen=True)
class Chart:
    """A line a client over a quantity that doubles."""

    name: str
    title: str
    caption: str
    across: str
    up: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Section:
    title: str
    place: Place = "everywhere"
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[Note, ...] = ()
    figures: tuple[Figure | Chart, ...] = ()

    @property
    def says_something(self) -> bool:
        return bool(self.paragraphs or self.tables or self.notes or self.figures)


@dataclass(frozen=True)
class View:
    title: str
    summary: Summary
    sections: tuple[Section, ...]


def to_json(view: View) -> str:
    """Return the tables' numbers for scripts."""
    return summaries.to_json(view.summary)


# --- text from outside -----------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """Return `text` on one line, harmless to print: without control characters, escape sequences or reversed writing."""
    return " ".join(plain_lines(text).split())


def plain_lines(text: str) -> str:
    """Return `text` harmless to print, its lines kept."""
    without_colours = re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]", "", text)
    return "".join(
        letter if letter in "\n\t" or not unicodedata.category(letter).startswith("C") else "�"
        for letter in without_colours.replace("\r\n", "\n").replace("\r", "\n")
    )
