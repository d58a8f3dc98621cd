"""Entries that outlive a run: a Markdown page each, derived from records and a title alone, and an index of them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from harness import records
from harness.compare import compare_clients
from harness.decide import decide
from harness.errors import BenchError, InvalidFileError
from harness.model import Case, Decision, Run, RunSet
from harness.report import build, markdown, verdicts, view
from harness.summary import summarise

INDEX = "README.md"
_MARK = "<!-- bench history: "
_MAIN_BEGINS, _MAIN_ENDS = "<!-- main numbers -->", "<!-- end of main numbers -->"


FORM = 2
"""Of entries that are written now; those of form 1 hold no comparison and no decision."""


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What an entry holds that its records don't: by it the entry can be rendered again."""

    kind: str
    run: str
    title: str
    form: int = 1
    decision: Decision | None = None
    """Whole, so that an entry keeps its verdicts when the decision's file changes later."""
    remark: str = ""
    """What was not expected, in the words of whoever wrote the entry."""


def add(run_set: RunSet, title: str, history_folder: Path, decision: Decision | None = None, remark: str = "") -> Path:
    """Write a run's entry and the index. The same records and words give the same bytes; no other entry is replaced."""
    if not view.plain(title):
        raise BenchError("an entry needs a title", "Say in one line what it is about.")
    path = history_folder / _file_name(run_set.run, title)
    content = _entry(run_set, Header("run", run_set.run.id, title, FORM, decision, remark))
    if path.exists() and path.read_text(encoding="utf-8") != content:
        raise BenchError(f"{path} exists and says something else", "Choose another title; entries are not overwritten.")
    history_folder.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    (history_folder / INDEX).write_text(_index(history_folder), encoding="utf-8")
    return path


def check(history_folder: Path, results: Path) -> list[str]:
    """Render every entry and the index again, and say where one differs from what its records give."""
    found = [difference for path in _entries(history_folder) for difference in _differences(path, results)]
    index = history_folder / INDEX
    if not found and (index.exists() or _entries(history_folder)):
        present = index.read_text(encoding="utf-8") if index.exists() else ""
        found += _difference(index, present, _index(history_folder))
    return found


# --- entries ---------------------------------------------------------------------------------------------------------


def _entry(run_set: RunSet, header: Header) -> str:
    run, summary = run_set.run, summarise(run_set)
    whole = build.build(run_set)
    whole = replace(whole, sections=(*_verdict_sections(run_set, header), *whole.sections))
    main = build.throughput_table(summary, _main_cases(run))
    folder = f"../reports/{run.id}/report.md"
    blocks = (
        _header_line(header),
        markdown.render(whole, with_figures=False, title=header.title).rstrip("\n"),
        "## Main numbers",
        "Each scenario's largest case.",
        _MAIN_BEGINS,
        markdown.table(main),
        _MAIN_ENDS,
        f"Records: results/{markdown.escape(run.id)}. Report with figures, where it was written: {markdown.escape(folder)}.",
    )
    return "\n\n".join(blocks) + "\n"


def _verdict_sections(run_set: RunSet, header: Header) -> Iterator[view.Section]:
    """Yield what the entry is about before what it rests on."""
    if header.decision is not None:
        yield from verdicts.decision_sections(decide(run_set, header.decision))
    if header.remark:
        yield view.Section("What was not expected", paragraphs=(view.plain(header.remark),))
    if header.form > 1 and run_set.run.baseline in {client.name for client in run_set.run.clients}:
        yield from verdicts.comparison_sections(compare_clients(run_set))


def _main_cases(run: Run) -> list[Case]:
    """Choose by what a case asks, never by how it went: of each scenario the most bytes, and of those the last."""
    largest: dict[str, Case] = {}
    for case in run.cases:
        known = largest.get(case.scenario)
        if known is None or case.objects.total_bytes >= known.objects.total_bytes:
            largest[case.scenario] = case
    return list(largest.values())


def _header_line(header: Header) -> str:
    # Neither `>` nor `--` may stand within a comment, or a title could end it.
    text = msgspec.json.encode(header).decode()
    for ending, harmless in (("<", "\\u003c"), (">", "\\u003e"), ("--", "-\\u002d")):
        text = text.replace(ending, harmless)
    return f"{_MARK}{text} -->"


def _read_header(path: Path, content: str) -> Header:
    first = content.partition("\n")[0]
    try:
        return msgspec.json.decode(first.removeprefix(_MARK).removesuffix(" -->"), type=Header)
    except msgspec.DecodeError as error:
        raise InvalidFileError(path, "line 1", "does not say which run it is derived from", str(error)) from error


def _file_name(run: Run, title: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60].strip("-")
    return f"{run.created_at[:10]}-{slug or 'run'}.md"


def _entries(folder: Path) -> list[Path]:
    return sorted((path for path in folder.glob("*.md") if path.name != INDEX), reverse=True)


# --- the index -------------------------------------------------------------------------------------------------------


def _index(folder: Path) -> str:
    blocks = [
        "# History",
        "Recorded runs, newest first, each with its scenarios' largest cases. `bench history add` writes this.",
    ]
    for path in _entries(folder):
        content = path.read_text(encoding="utf-8")
        title = markdown.escape(view.plain(_read_header(path, content).title))
        blocks += [f"## {path.name[:10]}: [{title}]({path.name})", _main(content)]
    return "\n\n".join(blocks) + "\n"


def _main(content: str) -> str:
    """Lift an entry's main numbers as they stand. The last marks are the entry's own: only logs, above them, are verbatim."""
    return content.rpartition(_MAIN_BEGINS)[2].partition(_MAIN_ENDS)[0].strip("\n")


# --- checking --------------------------------------------------------------------------------------------------------


def _differences(path: Path, results: Path) -> list[str]:
    content = path.read_text(encoding="utf-8")
    try:
        header = _read_header(path, content)
        run_set = records.read(results / header.run)
    except InvalidFileError as error:
        return [f"{path.name}: {error}"]
    expected_name = _file_name(run_set.run, header.title)
    if path.name != expected_name:
        return [f"{path.name}: by its records and title its name is {expected_name}"]
    return _difference(path, content, _entry(run_set, header))


def _difference(path: Path, present: str, expected: str) -> list[str]:
    if present == expected:
        return []
    changes = list(
        difflib.unified_diff(present.splitlines(), expected.splitlines(), "as it is", "as derived", n=0, lineterm="")
    )
    return [f"{path.name}: differs from what its records give\n" + "\n".join(changes[:12])]
