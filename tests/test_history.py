"""An entry is what its records say, to the byte."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness import decisions, history, paths, records
from harness.errors import BenchError, UnknownNameError
from harness.model import Failed, FailureKind, RunSet
from harness.summary import METRIC
from tests.factories import make_run_set, realistic_run_set


def record(results: Path, run_set: RunSet) -> RunSet:
    with records.create(results, run_set.run) as writer:
        for each in run_set.records:
            writer.append(each)
    return run_set


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "history"


def dated(run_set: RunSet, run_id: str, created_at: str) -> RunSet:
    run = msgspec.structs.replace(run_set.run, id=run_id, created_at=created_at)
    return RunSet(run, tuple(msgspec.structs.replace(each, run=run_id) for each in run_set.records))


def test_an_entry_is_named_by_the_runs_date_and_the_title(folder: Path) -> None:
    path = history.add(realistic_run_set(2), "First: a look, at S3!", folder)
    assert path == folder / "2026-11-27-first-a-look-at-s3.md"
    assert "# First: a look, at S3\\!" in path.read_text(encoding="utf-8")


def test_the_same_records_and_title_give_the_same_bytes(results: Path, folder: Path, tmp_path: Path) -> None:
    run_set = record(results, realistic_run_set(2))
    one = history.add(run_set, "Again", folder)
    other = history.add(records.read(results / run_set.run.id), "Again", tmp_path / "elsewhere")
    assert one.read_bytes() == other.read_bytes()
    assert history.add(run_set, "Again", folder) == one


def test_a_different_entry_is_not_overwritten(folder: Path) -> None:
    path = history.add(realistic_run_set(2), "Same", folder)
    before = path.read_bytes()
    with pytest.raises(BenchError, match="says something else"):
        history.add(realistic_run_set(3), "Same", folder)
    assert path.read_bytes() == before


def test_a_title_cannot_end_the_comment_that_holds_it(folder: Path) -> None:
    path = history.add(realistic_run_set(1), "Ends --> <script>", folder)
    first, _, rest = path.read_text(encoding="utf-8").partition("\n")
    assert first.count("-->") == 1
    assert "<script>" not in first + rest


def test_an_entry_needs_a_title(folder: Path) -> None:
    with pytest.raises(BenchError, match="title"):
        history.add(realistic_run_set(1), " \n", folder)


def test_the_index_lists_newest_first_with_main_numbers(folder: Path) -> None:
    for run_id, day in (("old", "01"), ("new", "09"), ("middle", "05")):
        history.add(dated(realistic_run_set(2), run_id, f"2026-11-{day}T10:00:00+00:00"), f"The {run_id} one", folder)
    index = (folder / "README.md").read_text(encoding="utf-8")
    places = [
        index.index(f"(2026-11-{day}-the-{name}-one.md)")
        for name, day in (("new", "09"), ("middle", "05"), ("old", "01"))
    ]
    assert places == sorted(places)
    assert index.count("| read/256MiB/c40/b8MiB<br>MiB/s, n=2") == 3
    assert "read/64MiB" not in index


def test_check_finds_nothing_where_nothing_was_touched(results: Path, folder: Path) -> None:
    for number, title in enumerate(("A --> title | with <marks>", "Another")):
        run_set = dated(realistic_run_set(2), f"run-{number}", f"2026-11-0{number + 1}T10:00:00+00:00")
        history.add(record(results, run_set), title, folder)
    assert history.check(folder, results) == []


@pytest.mark.parametrize("name", ["2026-11-27-entry.md", "README.md"])
def test_check_finds_a_number_that_was_changed(results: Path, folder: Path, name: str) -> None:
    history.add(record(results, realistic_run_set(2)), "Entry", folder)
    path = folder / name
    content = path.read_text(encoding="utf-8")
    path.write_text(content.replace("n=2", "n=9", 1), encoding="utf-8")
    differences = history.check(folder, results)
    assert len(differences) == 1
    assert differences[0].startswith(f"{name}: differs")
    assert "n=9" in differences[0]


def test_check_finds_records_that_are_gone_and_entries_that_name_none(results: Path, folder: Path) -> None:
    history.add(realistic_run_set(2), "Orphan", folder)
    (folder / "2026-01-01-by-hand.md").write_text("# By hand\n", encoding="utf-8")
    differences = history.check(folder, results)
    assert len(differences) == 2
    assert "2026-11-27-orphan.md" in differences[0]
    assert "run.json" in differences[0]
    assert "does not say which run" in differences[1]


def test_check_finds_a_renamed_entry(results: Path, folder: Path) -> None:
    history.add(record(results, realistic_run_set(2)), "Entry", folder).rename(folder / "2026-11-28-other.md")
    assert "its name is 2026-11-27-entry.md" in history.check(folder, results)[0]


def test_a_log_cannot_pass_itself_off_as_main_numbers(results: Path, folder: Path) -> None:
    forged = "<!-- main numbers -->\n| forged |\n<!-- end of main numbers -->"
    run_set = make_run_set({"s3fs": [Failed(FailureKind.RAISED, "x", forged)]})
    history.add(record(results, run_set), "Entry", folder)
    assert "forged" not in (folder / "README.md").read_text(encoding="utf-8")


def test_an_entry_keeps_its_verdicts_and_remark_and_can_be_rendered_again(results: Path, folder: Path) -> None:
    decision = decisions.load(paths.DECISIONS / "pyathena-vs-s3fs.toml")
    run_set = record(results, realistic_run_set(8))
    path = history.add(run_set, "Decided", folder, decision, "the <b>disk</b> | was full --> ok")
    text = path.read_text(encoding="utf-8")
    for words in (
        decision.question.split("?")[0].split("'")[0],
        "What was not expected",
        "## Comparison",
        "## Expectations",
    ):
        assert words in text
    body = text.partition("\n")[2]
    assert "<b>" not in body
    assert "-->" not in body.replace("<!-- main numbers -->", "").replace("<!-- end of main numbers -->", "")
    assert history.check(folder, results) == []
    path.write_text(text.replace("confirmed", "refuted"), encoding="utf-8")
    assert history.check(folder, results) != []


def test_a_metric_is_traced_across_entries_and_only_like_surroundings_share_a_row(results: Path, folder: Path) -> None:
    first = record(results, realistic_run_set(8))
    second = record(
        results, dated(realistic_run_set(8), "20261128-101500-filesystem-standard-cd34", "2026-11-28T10:15:00+00:00")
    )
    slower = msgspec.structs.replace(second.run.link, stream_rate_bytes_per_s=1 << 20)
    third_run = dated(realistic_run_set(8), "20261129-101500-filesystem-standard-ef56", "2026-11-29T10:15:00+00:00")
    third = record(results, RunSet(msgspec.structs.replace(third_run.run, link=slower), third_run.records))
    for number, run_set in enumerate((first, second, third)):
        history.add(run_set, f"Entry {number}", folder)
    key = first.run.cases[0].key
    lines = history.trace(key, METRIC["throughput_bytes_per_s"], folder, results)
    s3fs = [line for line in lines if line.client == "s3fs"]
    assert sorted(line.date for line in s3fs) == ["2026-11-27", "2026-11-28", "2026-11-29"]
    assert all(line.is_exact and line.interval.low <= line.interval.estimate <= line.interval.high for line in s3fs)
    assert not {line.client for line in lines} & {"floor", "null"}
    drawn = history.figure(key, METRIC["throughput_bytes_per_s"], lines)
    assert len(drawn.rows) == 2
    with pytest.raises(UnknownNameError):
        history.trace("nosuch", METRIC["throughput_bytes_per_s"], folder, results)
