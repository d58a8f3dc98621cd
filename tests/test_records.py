"""What was recorded stays, is read strictly, and survives kill -9 and a full disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest

from harness import records
from harness.errors import BenchError, DiskFullError, InvalidFileError, UnknownNameError
from harness.model import Failed, FailureKind, Unsupported
from tests.factories import RUN_ID, make_record, make_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with two records."""
    with records.create(tmp_path, make_run(trial_count=3)) as writer:
        writer.append(make_record(0))
        writer.append(make_record(1))
    return tmp_path / RUN_ID


def add_line(folder: Path, line: bytes) -> None:
    with (folder / "records.jsonl").open("ab") as file:
        file.write(line)


def test_what_is_written_is_read_back_whatever_the_outcome(tmp_path: Path) -> None:
    run = make_run()
    written = (
        make_record(0),
        make_record(1, Failed(FailureKind.TIMEOUT, "no answer | in time\n", "log `x`")),
        make_record(2, Unsupported("declares no read")),
    )
    with records.create(tmp_path, run) as writer:
        for record in written:
            writer.append(record)
    read = records.read(tmp_path / run.id)
    assert read.run == run
    assert read.records == written


def test_a_record_is_on_disk_before_append_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bytes] = []
    path = tmp_path / RUN_ID / "records.jsonl"
    with records.create(tmp_path, make_run()) as writer:
        monkeypatch.setattr(os, "fsync", lambda _: synced.append(path.read_bytes()))
        writer.append(make_record(0))
    assert len(synced) == 1
    assert synced[0].endswith(b"\n")


def test_a_run_is_never_overwritten(folder: Path) -> None:
    with pytest.raises(BenchError, match="exists already"):
        records.create(folder.parent, make_run())


def test_a_run_that_could_not_be_created_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(DiskFullError):
        records.create(tmp_path, make_run())
    assert list(tmp_path.iterdir()) == []


def test_half_a_last_line_is_no_record(folder: Path) -> None:
    add_line(folder, msgspec.json.encode(make_record(2))[:50])
    assert [record.trial.sequence for record in records.read(folder).records] == [0, 1]


def test_a_whole_last_line_without_its_newline_is_no_record_either_way(folder: Path) -> None:
    add_line(folder, msgspec.json.encode(make_record(2)))
    assert len(records.read(folder).records) == 2
    with records.reopen(folder) as writer:
        writer.append(make_record(2))
    assert len(records.read(folder).records) == 3


def test_reopening_cuts_half_a_line_off_and_goes_on(folder: Path) -> None:
    add_line(folder, b'{"schema":1,"run"')
    with records.reopen(folder) as writer:
        writer.append(make_record(2))
    assert [record.trial.sequence for record in records.read(folder).records] == [0, 1, 2]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"schema":1,\n', "line 3: .*truncated"),
        (b"\n", "line 3"),
        (b"\xff\xfe\n", "line 3"),
        (msgspec.json.encode(make_record(1)) + b"\n", "line 3: trial 1 stands in line 2 already"),
        (msgspec.json.encode(make_record(2, run="other")) + b"\n", "line 3: belongs to run 'other'"),
        (msgspec.json.encode(make_record(2, schema=9)) + b"\n", "line 3: has schema version 9"),
        (msgspec.json.encode(make_record(2, client="stranger")) + b"\n", "line 3: stranger on read/.* is not part"),
        (msgspec.json.encode(make_record(2)).replace(b'"block":', b'"blocks":') + b"\n", "line 3: .*`blocks?`"),
    ],
)
def test_a_bad_line_is_named_by_file_and_number(folder: Path, line: bytes, problem: str) -> None:
    add_line(folder, line)
    with pytest.raises(InvalidFileError, match=rf"records\.jsonl: {problem}"):
        records.read(folder)


def test_a_newer_run_file_is_told_from_a_corrupt_one(folder: Path) -> None:
    path = folder / "run.json"
    path.write_bytes(path.read_bytes().replace(b'"schema": 1', b'"schema": 2, "novelty": 0'))
    with pytest.raises(InvalidFileError, match=r"run\.json: has schema version 2"):
        records.read_run(folder)


def test_an_unknown_field_of_a_run_is_an_error(folder: Path) -> None:
    path = folder / "run.json"
    path.write_bytes(path.read_bytes().replace(b'"seed":', b'"seeds": 1, "seed":'))
    with pytest.raises(InvalidFileError, match="seeds"):
        records.read_run(folder)


def test_a_full_disk_is_one_sentence_and_leaves_whole_lines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (folder / "records.jsonl").read_bytes()
    real_write = os.write

    def write_half(descriptor: int, content: bytes) -> int:
        if len(content) < 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(descriptor, content[: len(content) - 50])

    with records.reopen(folder) as writer:
        monkeypatch.setattr(os, "write", write_half)
        with pytest.raises(DiskFullError, match="full") as caught:
            writer.append(make_record(2))
    assert f"bench resume {RUN_ID}" in caught.value.hint
    assert (folder / "records.jsonl").read_bytes() == before


def test_runs_are_listed_newest_first_and_unfinished_folders_passed_over(tmp_path: Path) -> None:
    for name, day in (("b", "02"), ("a", "03"), ("c", "01")):
        records.create(tmp_path, make_run(id=name, created_at=f"2026-11-{day}T00:00:00+00:00")).close()
    (tmp_path / ".d.partial").mkdir()
    (tmp_path / "notes").mkdir()
    assert [run.id for run in records.list_runs(tmp_path)] == ["a", "b", "c"]
    assert records.find(tmp_path, "latest") == tmp_path / "a"


def test_a_run_is_found_by_id_by_its_beginning_and_by_path(tmp_path: Path) -> None:
    for name in ("2026-one", "2026-two", "2026"):
        records.create(tmp_path, make_run(id=name)).close()
    assert records.find(tmp_path, "2026") == tmp_path / "2026"
    assert records.find(tmp_path, "2026-o") == tmp_path / "2026-one"
    assert records.find(tmp_path / "elsewhere", str(tmp_path / "2026-two")) == tmp_path / "2026-two"
    with pytest.raises(BenchError, match="2 runs begin") as caught:
        records.find(tmp_path, "2026-")
    assert "2026-one, 2026-two" in caught.value.hint


@pytest.mark.parametrize("name", ["nothing", "", "latest"])
def test_what_is_not_there_is_answered_with_what_is(tmp_path: Path, name: str) -> None:
    if name != "latest":
        records.create(tmp_path, make_run(id="only")).close()
    with pytest.raises(UnknownNameError) as caught:
        records.find(tmp_path, name)
    assert caught.value.hint == ("There is: none." if name == "latest" else "There is: only.")
