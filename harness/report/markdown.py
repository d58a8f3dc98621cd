"""The view as GitHub-flavoured Markdown. Whatever comes from records is escaped: it can't break a table, or mark up."""

from __future__ import annotations

import re
from collections.abc import Iterator

from harness.report.view import Cell, Note, RatioCell, Row, Section, Shown, SpreadCell, Table, View, show

FIGURES_FOLDER = "figures"

# Entities where a backslash would not do: `|` ends a cell before backslashes are read, `<` must survive any renderer.
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "@": "&#64;"} | {
    letter: "\\" + letter for letter in "\\`*_[]#~!$"
}
_AUTOLINKS = ((re.compile(r"://"), "&#58;//"), (re.compile(r"\bwww\.", re.IGNORECASE), "www&#46;"))


def escape(text: str) -> str:
    """Return `text` as one line that Markdown shows letter by letter."""
    escaped = "".join(_ESCAPES.get(letter, letter) for letter in " ".join(text.split()))
    for link, harmless in _AUTOLINKS:
        escaped = link.sub(harmless, escaped)
    return escaped


def fence(code: str) -> str:
    """Return a code block whose fence is longer than any run of backticks within."""
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    marks = "`" * max(3, longest + 1)
    return f"{marks}text\n{code}\n{marks}"


def render(view: View, *, with_figures: bool = True, title: str | None = None) -> str:
    """Return the whole document; figures are linked relative to it."""
    blocks = [f"# {escape(title or view.title)}"]
    for section in view.sections:
        if section.place != "terminal" and (with_figures or not section.figures):
            blocks += _section(section)
    return "\n\n".join(blocks) + "\n"


def _section(section: Section) -> Iterator[str]:
    yield f"## {escape(section.title)}"
    for paragraph in section.paragraphs:
        yield escape(paragraph)
    for laid_out in section.tables:
        if len(section.tables) > 1 and laid_out.title != section.title:
            yield f"### {escape(laid_out.title)}"
        yield table(laid_out)
    for note in section.notes:
        yield _note(note)
    for figure in section.figures:
        yield f"### {escape(figure.title)}"
        yield f"![{escape(figure.title)}: medians and spreads]({FIGURES_FOLDER}/{figure.name}.png)"


def _note(note: Note) -> str:
    return f"{escape(note.text)}\n\n{fence(note.code)}"


def table(laid_out: Table) -> str:
    numbers = any(isinstance(cell, SpreadCell | RatioCell) for row in laid_out.rows for cell in row.cells)
    heads = [escape(title) for title in (laid_out.label_title, *laid_out.columns)]
    rules = [":--"] + ["--:" if numbers else ":--"] * len(laid_out.columns)
    lines = [_line(heads), _line(rules)]
    lines += [_line([_label(row), *(_cell(cell, row) for cell in row.cells)]) for row in laid_out.rows]
    caption = f"{escape(laid_out.caption)}\n\n" if laid_out.caption else ""
    return caption + "\n".join(lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _label(row: Row) -> str:
    return "<br>".join(map(escape, (row.label, *row.notes)))


def _cell(cell: Cell, row: Row) -> str:
    shown = show(cell, row)
    value = f"**{escape(shown.value)}**" if isinstance(cell, SpreadCell | RatioCell) else escape(shown.value)
    return "<br>".join([value, *_below(shown)])


def _below(shown: Shown) -> Iterator[str]:
    if shown.spread:
        yield escape(shown.spread)
    if shown.remarks:
        yield escape(", ".join(shown.remarks))
