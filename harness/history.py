"""Entries that outlive a run: a Markdown page each, derived from records and a title alone, and an index of them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from harness import records, units
from harness.compare import compare_clients
from harness.decide import decide
from harness.errors import BenchError, InvalidFileError, UnknownNameError
from harness.model import Case, Decision, Run, RunSet
from harness.report import build, markdown, verdicts, view
from harness.report.observations import observation_table
from harness.statistics import Interval, Spread, median_interval
from harness.summary import Metric, Summary, summarise

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


@dataclass(frozen=True)
class Line:
    """One client, in one version, on one case in one entry."""

    entry: str
    date: str
    client: str
    version: str
    surroundings: str
    """Link, TLS and kind of host: figures of different ones can't be compared."""
    interval: Interval
    """The median with its exact 95 % interval; from least to most where there are too few trials for one."""
    is_exact: bool


def trace(case_key: str, metric: Metric, history_folder: Path, results: Path) -> list[Line]:
    """Return one metric of a case over all entries: by surroundings, then client by client, oldest first.

    Raises UnknownNameError when no entry has the case, and BenchError when none has the metric.
    """
    found: list[Line] = []
    known: set[str] = set()
    for path in reversed(_entries(history_folder)):
        header = _read_header(path, path.read_text(encoding="utf-8"))
        summary = summarise(records.read(results / header.run))
        known |= {case.key for case in summary.run.cases}
        for case in (case for case in summary.run.cases if case.key == case_key):
            found += _lines(summary, case, metric, path)
    if case_key not in known:
        raise UnknownNameError("case", case_key, sorted(known))
    if not found:
        raise BenchError(f"no entry has {metric.title.lower()} of {case_key}")
    return sorted(found, key=lambda line: (line.surroundings, line.client, line.date, line.version))


def _lines(summary: Summary, case: Case, metric: Metric, path: Path) -> Iterator[Line]:
    run = summary.run
    tls = "TLS" if run.tls else "no TLS"
    where = f"{build.link_words(run)}; {tls}; {run.host.cpu_model}, {run.host.cpu_count} cores"
    for client in summary.clients:
        result = summary.results[case, client.name]
        spread = result.spreads.get(metric.name)
        if client.role != "client" or spread is None:
            continue
        interval = median_interval(result.values[metric.name])
        shown = interval or Interval(spread.median, spread.low, spread.high, spread.n)
        version = client.version or f"Python {client.python}"
        yield Line(path.name, path.name[:10], client.name, version, where, shown, interval is not None)


def figure(case_key: str, metric: Metric, lines: Sequence[Line]) -> view.Figure:
    """Lay the lines out as a figure: a row of points for each of the surroundings."""
    highest = max(line.interval.high for line in lines)
    scale = units.scale_of(metric.unit, highest)
    better = "more" if metric.better == "up" else "less"
    rows = []
    for surroundings in dict.fromkeys(line.surroundings for line in lines):
        points = tuple(
            view.Point(
                view.plain(f"{line.client} {line.version}, {line.date}"),
                Spread(line.interval.estimate, line.interval.low, line.interval.high, line.interval.n),
                "",
            )
            for line in lines
            if line.surroundings == surroundings
        )
        panel = view.Panel(f"{metric.title}, {scale.label} ({better} is better)", scale, points)
        rows.append((view.plain(surroundings), (panel,)))
    name = re.sub(r"[^a-z0-9]+", "-", f"{case_key} {metric.name}".lower()).strip("-")
    caption = (
        "Medians with their exact 95 % interval; below 6 trials from least to most. Only points of one row compare."
    )
    return view.Figure(name, view.plain(case_key), caption, tuple(rows))


# --- entries ---------------------------------------------------------------------------------------------------------


def _entry(run_set: RunSet, header: Header) -> str:
    run, summary = run_set.run, summarise(run_set)
    whole = build.build(run_set)
    whole = replace(whole, sections=(*_verdict_sections(run_set, header), *whole.sections))
    cases = _main_cases(run)
    tables = (build.throughput_table(summary, cases), observation_table(summary, cases))
    main = "\n\n".join(markdown.table(each) for each in tables if each.rows)
    folder = f"../reports/{run.id}/report.md"
    blocks = (
        _header_line(header),
        markdown.render(whole, with_figures=False, title=header.title).rstrip("\n"),
        "## Main numbers",
        "Each scenario's largest case.",
        _MAIN_BEGINS,
        main,
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
