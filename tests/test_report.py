"""A report tells what the records say: no number without spread and n, no markup from outside."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from harness.model import Failed, FailureKind, RunSet, Unsupported
from harness.report import markdown, terminal, view, write_report
from harness.report.build import build
from harness.report.view import FailedCell, Figure, SpreadCell, Table, UnsupportedCell
from tests.factories import make_case, make_client, make_measured, make_run_set, realistic_run_set

HOSTILE = "a|b\n# c `d` <img src=x onerror=y> [e](http://f) ***g*** \x1b[31mred\x1b[0m \\| \u202eh"


def printed(run_set: RunSet, width: int) -> str:
    file = io.StringIO()
    terminal.render(build(run_set), Console(file=file, width=width, highlight=False, color_system=None))
    return file.getvalue()


def table_of(run_set: RunSet, title: str) -> Table:
    return next(t for section in build(run_set).sections for t in section.tables if t.title == title)


def cells_of(line: str) -> list[str]:
    return re.split(r"(?<!\\)\|", line.strip().strip("|"))


# --- the view --------------------------------------------------------------------------------------------------------


def test_the_throughput_table_has_a_cell_of_the_right_kind_for_every_client() -> None:
    table = table_of(realistic_run_set(), "Throughput")
    of_rm = next(row for row in table.rows if row.label.startswith("rm/"))
    by_client = dict(zip(table.columns, of_rm.cells, strict=True))
    assert isinstance(by_client["s3fs"], SpreadCell)
    assert isinstance(by_client["floor"], UnsupportedCell)
    assert isinstance(by_client["null"], SpreadCell)
    assert by_client["null"].unit == "ns"
    assert by_client["null"].ratio is None


def test_a_client_that_always_failed_is_shown_as_failed_and_without_a_number() -> None:
    failed = Failed(FailureKind.WRONG_BYTES, "differs", "")
    run_set = make_run_set({"s3fs": [make_measured()] * 2, "fast": [failed] * 2})
    assert table_of(run_set, "Throughput").rows[0].cells[1] == FailedCell(2)


def test_a_cell_with_fewer_trials_than_its_row_says_so() -> None:
    run_set = make_run_set(
        {
            "s3fs": [make_measured()] * 3,
            "a": [make_measured()] * 3,
            "b": [make_measured(), Failed(FailureKind.RAISED, "x", "")],
        }
    )
    row = table_of(run_set, "Throughput").rows[0]
    assert "n=3" in row.notes[0]
    assert view.show(row.cells[1], row).remarks == ("1.0x",)
    assert view.show(row.cells[2], row).remarks == ("1.0x", "n=1", "1 failed")


def test_the_ratio_names_its_baseline_and_its_limits() -> None:
    table = table_of(realistic_run_set(), "Throughput")
    assert "ratio to s3fs" in table.rows[0].notes
    assert "ratio of medians, no interval; no verdict below 6 blocks" in table.caption


def test_without_the_baseline_there_are_no_ratios_and_the_report_says_why() -> None:
    text = printed(make_run_set({"fast": [make_measured()]}), 120)
    assert "s3fs, took no part" in text
    assert not re.search(r"\dx", text)


def test_an_incomplete_run_says_how_to_go_on() -> None:
    run_set = realistic_run_set(blocks=1)
    cut = RunSet(run_set.run, run_set.records[:20])
    assert f"20 of {run_set.run.trial_count} trials are recorded" in " ".join(printed(cut, 120).split())
    assert "bench resume" in printed(cut, 120)
    assert "bench resume" not in printed(run_set, 120)


def test_an_exit_code_after_the_work_is_told() -> None:
    aborted = msgspec.structs.replace(make_measured(), exit_code=134)
    assert "1 measured trial left with exit code 134" in markdown.render(build(make_run_set({"s3fs": [aborted]})))


def test_json_and_table_tell_the_same_numbers() -> None:
    built = build(realistic_run_set())
    table = next(t for section in built.sections for t in section.tables if t.title == "Throughput")
    told = json.loads(view.to_json(built))
    rates = {
        (case["key"], client["client"]): client["metrics"].get("throughput_bytes_per_s")
        for case in told["cases"]
        for client in case["clients"]
    }
    shown = [
        (rates[row.label, client], msgspec.to_builtins(cell.spread))
        for row in table.rows
        for client, cell in zip(table.columns, row.cells, strict=True)
        if isinstance(cell, SpreadCell) and cell.unit == "bytes_per_s"
    ]
    assert len(shown) == 4 * 6
    assert all(of_json == of_table for of_json, of_table in shown)


# --- the terminal ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(width: int) -> None:
    text = printed(realistic_run_set(), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text


def test_every_client_is_there_at_any_width() -> None:
    run_set = realistic_run_set()
    for width in (80, 120):
        text = printed(run_set, width)
        shown = table_of(run_set, "Throughput").rows[0]
        for cell in shown.cells:
            assert view.show(cell, shown).spread in text


def test_at_120_columns_one_throughput_table_holds_all_clients() -> None:
    assert len(re.findall("^case ", printed(realistic_run_set(), 120), re.MULTILINE)) == 1
    assert len(re.findall("^case ", printed(realistic_run_set(), 80), re.MULTILINE)) == 2


def test_n_stands_in_every_part_of_a_divided_table() -> None:
    parts = re.split("^(?:case|client) ", printed(realistic_run_set(), 70), flags=re.MULTILINE)
    with_numbers = [part for part in parts if re.search(r"\(\d[\d.,]*\N{EN DASH}", part)]
    assert len(with_numbers) >= 3
    assert all("n=8" in part for part in with_numbers)


def test_rich_markup_and_escape_sequences_from_records_are_only_text() -> None:
    failed = Failed(FailureKind.RAISED, "[bold red]loud[/] \x1b[2J gone", "log \x1b]0;title\x07 [link=x]y[/link]")
    text = printed(make_run_set({"s3fs": [failed]}), 120)
    assert "[bold red]loud[/]" in text
    assert "[link=x]y[/link]" in text
    assert "\x1b" not in text
    assert "\x07" not in text
    assert view.plain("\x1b[31mred\x1b[0m") == "red"


# --- markdown --------------------------------------------------------------------------------------------------------


def hostile_run_set() -> RunSet:
    hostile = make_client(HOSTILE, title=HOSTILE, version=HOSTILE)
    log = "```\n</code> | x\n````\n# heading"
    run_set = make_run_set(
        {"s3fs": [make_measured()], HOSTILE: [Failed(FailureKind.RAISED, HOSTILE, log), Unsupported(HOSTILE)]},
        cases=(make_case(scenario=HOSTILE),),
        suite_title=HOSTILE,
        command=f"bench run {HOSTILE}",
    )
    run = msgspec.structs.replace(run_set.run, clients=(run_set.run.clients[0], hostile))
    return RunSet(run, run_set.records)


def outside_fences(text: str) -> list[str]:
    lines, fence = [], ""
    for line in text.splitlines():
        mark = re.match(r"`{3,}", line)
        if mark and not fence:
            fence = mark[0]
        elif fence and line == fence:
            fence = ""
        elif not fence:
            lines.append(line)
    assert not fence
    return lines


def test_a_hostile_name_breaks_no_table() -> None:
    lines = outside_fences(markdown.render(build(hostile_run_set())))
    tables: list[list[int]] = [[]]
    for line in lines:
        if line.startswith("|"):
            tables[-1].append(len(cells_of(line)))
        elif tables[-1]:
            tables.append([])
    assert len(tables) > 10
    assert all(len(set(widths)) <= 1 for widths in tables)


def test_nothing_from_records_is_markup() -> None:
    text = "\n".join(outside_fences(markdown.render(build(hostile_run_set()))))
    assert set(re.findall(r"<[^>]*>", text)) == {"<br>"}
    assert not re.search(r"(?<!\\)`", text)
    assert not re.search(r"(?<!!)(?<!\\)\[[^\]]*(?<!\\)\]\(", text)
    assert "http://" not in text
    assert "\u202e" not in text
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert not [heading for heading in headings if heading.startswith("# c")]


def test_escaped_text_still_says_what_it_said() -> None:
    assert markdown.escape("a|b") == "a&#124;b"
    assert markdown.escape("x\ny") == "x y"
    assert markdown.escape("snake_case <b>") == r"snake\_case &lt;b&gt;"
    assert markdown.escape("read/64MiB/c8/b8MiB") == "read/64MiB/c8/b8MiB"


def test_a_fence_is_longer_than_any_within() -> None:
    assert markdown.fence("````\nx") == "`````text\n````\nx\n`````"


def test_a_report_has_all_its_sections_and_every_number_its_spread() -> None:
    text = markdown.render(build(realistic_run_set()))
    for title in ("What this is", "Throughput", "CPU", "Peak memory", "Threads", "Requests", "Requests in flight",
                  "Failures", "Unsupported", "Clients", "Method", "How to repeat this run"):  # fmt: skip
        assert f"\n## {title}\n" in text
    assert all("(" in cell for cell in re.findall(r"\*\*[^|]*", text))
    assert "bench run --suite filesystem --profile standard --seed 7" in text
    assert "ConnectionClosedError: closed" in text


def test_the_null_client_is_not_pressed_into_the_scale_of_the_others() -> None:
    row = table_of(realistic_run_set(), "Wall time").rows[0]
    assert view.show(row.cells[-1], row).value.endswith(" µs")


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_report_links_figures_that_are_there(tmp_path: Path) -> None:
    path = write_report(realistic_run_set(blocks=2), tmp_path / "run")
    links = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", path.read_text(encoding="utf-8"))
    assert path == tmp_path / "run" / "report.md"
    assert len(links) == 6
    for link in links:
        assert (path.parent / link).read_bytes().startswith(b"\x89PNG")


def test_a_figure_shows_no_point_where_nothing_was_measured() -> None:
    found = [figure for section in build(realistic_run_set()).sections for figure in section.figures]
    figures = [figure for figure in found if isinstance(figure, Figure)]
    throughput = next(figure for figure in figures if figure.name == "rm").rows[0][1][0]
    remarks = {point.client: point.remark for point in throughput.points if point.spread is None}
    assert remarks == {"floor": "unsupported", "null": "moves nothing"}
