"""The view on a terminal: throughput, cost, failures. Wide tables are split to the width there is, never squeezed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from harness.report.view import (
    AbsentCell,
    Cell,
    FailedCell,
    Note,
    Row,
    Section,
    Table,
    TextCell,
    UnsupportedCell,
    View,
    show,
)

COLUMN_GAP = 2
LOGS_SHOWN = 5
ALARMS = frozenset({"FAILED", "bad"})
UNBROKEN = 30
"""Up to this width words of a table, such as a case, are not broken."""
_DIM, _BOLD, _ALARM = "dim", "bold", "bold red"


def render(view: View, console: Console) -> None:
    """Print the view. Text from records is never read as markup."""
    render_sections(view.title, view.sections, console)


def render_sections(title: str, sections: Sequence[Section], console: Console) -> None:
    console.print(Text(title, style=_BOLD))
    for section in sections:
        if section.place != "document":
            _section(section, console)


def render_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], console: Console) -> None:
    """Print a table of plain words; a word that says that something is wrong stands out."""
    table = RichTable(title=title, title_justify="left", title_style=_BOLD, box=box.SIMPLE_HEAD, pad_edge=False)
    for header in headers:
        table.add_column(Text(header), overflow="fold")
    for row in rows:
        table.add_row(*(Text(word, style=_ALARM if word in ALARMS else "") for word in row))
    console.print(table)


def _section(section: Section, console: Console) -> None:
    for paragraph in section.paragraphs:
        console.print(Text(paragraph))
    if section.paragraphs:
        console.print()
    for table in section.tables:
        _table(table, console)
    for note in section.notes[:LOGS_SHOWN]:
        _note(note, console)
    left = len(section.notes) - LOGS_SHOWN
    if left > 0:
        console.print(Text(f"{left} more logs are in the records and in the report.", style=_DIM))


def _note(note: Note, console: Console) -> None:
    console.print(Text(note.text, style=_DIM))
    console.print(Padding(Text(note.code), (0, 0, 1, 2)))


def _table(table: Table, console: Console) -> None:
    console.print(Text(table.title, style=_BOLD))
    if table.caption:
        console.print(Text(table.caption, style=_DIM))
    if all(isinstance(cell, TextCell) for row in table.rows for cell in row.cells):
        console.print(_prose_table(table))
        console.print()
        return
    for laid_out in _number_tables(table, console.width):
        console.print(laid_out, no_wrap=True, overflow="ignore", crop=False)
        console.print()


# --- tables of numbers -----------------------------------------------------------------------------------------------
# Laid out here and not by rich, which shortens what does not fit: half a number is worse than none.


@dataclass(frozen=True)
class _Column:
    heading: Text
    contents: list[Text]
    """One a row."""
    right: bool

    @property
    def width(self) -> int:
        lines = (line for text in (self.heading, *self.contents) for line in text.plain.splitlines())
        return max(map(cell_len, lines), default=0)


def _number_tables(table: Table, width: int) -> Iterator[Text]:
    """Divide the columns into as few tables as fit, each beginning with the rows' labels."""
    labels = _Column(Text(table.label_title, style=_BOLD), [_label(row, table) for row in table.rows], right=False)
    chosen = [labels]
    for index, title in enumerate(table.columns):
        contents = [_content(row.cells[index], row, table) for row in table.rows]
        column = _Column(Text(title.replace("-", "-\n"), style=_BOLD), contents, right=True)
        if len(chosen) > 1 and sum(each.width + COLUMN_GAP for each in chosen) + column.width > width:
            yield _lay_out(table, chosen)
            chosen = [labels]
        chosen.append(column)
    yield _lay_out(table, chosen)


def _lay_out(table: Table, columns: Sequence[_Column]) -> Text:
    total = sum(column.width + COLUMN_GAP for column in columns) - COLUMN_GAP
    lines = [*_lines([column.heading for column in columns], columns, bottom=True), Text("─" * total, style=_DIM)]
    for index, row in enumerate(table.rows):
        if not table.stacked and (index == 0 or table.rows[index - 1].group != row.group):
            lines.append(Text(row.group, style=_BOLD))
        lines += _lines([column.contents[index] for column in columns], columns)
    return Text("\n").join(lines)


def _lines(cells: Sequence[Text], columns: Sequence[_Column], *, bottom: bool = False) -> Iterator[Text]:
    """Set cells of several lines side by side."""
    split = [list(cell.split("\n")) for cell in cells]
    height = max(map(len, split))
    filled = [[Text()] * (height - len(lines)) + lines if bottom else lines for lines in split]
    for place in range(height):
        line = Text()
        for lines, column in zip(filled, columns, strict=True):
            piece = lines[place] if place < len(lines) else Text()
            blank = " " * (column.width - piece.cell_len)
            line.append(blank if column.right else "").append_text(piece)
            line.append("" if column.right else blank).append(" " * COLUMN_GAP)
        line.rstrip()
        yield line


def _label(row: Row, table: Table) -> Text:
    if not table.stacked:
        return Text(" " + row.label)
    return Text("\n").join([Text(row.label), *(Text(note, style=_DIM) for note in row.notes)])


def _content(cell: Cell, row: Row, table: Table) -> Text:
    shown = show(cell, row)
    style = {FailedCell: _ALARM, UnsupportedCell: _DIM, AbsentCell: _DIM}.get(type(cell), "")
    lines = [Text(shown.value, style=style or (_BOLD if table.stacked else ""))]
    lines += [Text(shown.spread, style=_DIM)] if shown.spread else []
    lines += [Text(remark, style=_ALARM if "failed" in remark else "") for remark in shown.remarks]
    return Text("\n" if table.stacked else " ").join(lines)


# --- tables of words -------------------------------------------------------------------------------------------------


def _prose_table(table: Table) -> RichTable:
    laid_out = RichTable(box=box.SIMPLE_HEAD, padding=(0, COLUMN_GAP - 1, 0, 0), pad_edge=False, show_edge=False)
    rows = [[row.label, *(show(cell, row).value for cell in row.cells)] for row in table.rows]
    for index, title in enumerate((table.label_title, *table.columns)):
        short = max(cell_len(row[index]) for row in rows) <= UNBROKEN
        laid_out.add_column(Text(title, style=_BOLD), overflow="fold", no_wrap=short and index < len(table.columns))
    for row in rows:
        laid_out.add_row(*map(Text, row))
    return laid_out
