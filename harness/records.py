"""The only reader and writer of results/: one folder a run, one line a trial, on disk before the next trial starts."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from harness.errors import BenchError, DiskFullError, InvalidFileError, UnknownNameError
from harness.model import SCHEMA_VERSION, Record, Run, RunSet, Trace

RUN_FILE = "run.json"
RECORDS_FILE = "records.jsonl"
TRACES_FILE = "traces.jsonl"
"""Made with the first trace; a run without a link has none."""
LATEST = "latest"

_Noun = TypeVar("_Noun", Run, Record, Trace)


class _Versioned(msgspec.Struct):
    """Read before the rest: a file of another version must be told apart from a corrupt one."""

    schema: int


# --- writing ---------------------------------------------------------------------------------------------------------


class RecordWriter:
    """Appends to one run. What `append` returned from survives kill -9 and power loss."""

    def __init__(self, folder: Path, run: Run) -> None:
        self.folder = folder
        self.run = run
        self._descriptor = os.open(folder / RECORDS_FILE, os.O_WRONLY | os.O_APPEND)

        self._traces = -1

    def append(self, record: Record) -> None:
        assert record.run == self.run.id
        self._append(self._descriptor, msgspec.json.encode(record) + b"\n", sync=True)

    def append_trace(self, trace: Trace) -> None:
        """Append the trace of a trial whose record comes next. Should that not come, the trial's next trace counts."""
        if self._traces < 0:
            self._traces = os.open(self.folder / TRACES_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        self._append(self._traces, msgspec.json.encode(trace) + b"\n")

    def _append(self, descriptor: int, line: bytes, *, sync: bool = False) -> None:
        end = os.fstat(descriptor).st_size
        try:
            _write_all(descriptor, line)
            if sync:
                os.fsync(descriptor)
        except OSError as error:
            # Half a line followed by whole ones would be a corrupt file; a missing line is only a trial to repeat.
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, end)
            raise _refused(error, self.folder) from error

    def close(self) -> None:
        for descriptor in (self._descriptor, self._traces):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._traces = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def create(results: Path, run: Run) -> RecordWriter:
    """Start a run's folder, which appears whole or not at all."""
    folder = results / run.id
    if folder.exists():
        raise BenchError(f"{folder} exists already", "A run is never overwritten: start another, or resume this one.")
    staging = results / f".{run.id}.partial"
    try:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        _write_new(staging / RUN_FILE, msgspec.json.format(msgspec.json.encode(run), indent=2) + b"\n")
        _write_new(staging / RECORDS_FILE, b"")
        _sync_folder(staging)
        staging.rename(folder)
        _sync_folder(results)
    except OSError as error:
        shutil.rmtree(staging, ignore_errors=True)
        raise _refused(error, folder, begun=False) from error
    return RecordWriter(folder, run)


def reopen(folder: Path) -> RecordWriter:
    """Open a run to go on with it. Half a last line, as kill -9 leaves it, is cut off: its trial was never recorded."""
    run = read(folder).run
    for path in (folder / RECORDS_FILE, folder / TRACES_FILE):
        if path.exists():
            whole = path.read_bytes().rfind(b"\n") + 1
            os.truncate(path, whole)
    return RecordWriter(folder, run)


def _write_all(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def _write_new(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        _write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    # A file's own fsync does not save the name it was created or renamed under.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refused(error: OSError, folder: Path, *, begun: bool = True) -> BenchError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        saved = f"what was recorded is safe, and `bench resume {folder.name}` goes on." if begun else "nothing was run."
        return DiskFullError(f"the disk that holds {folder} is full", f"Make room; {saved}")
    return BenchError(f"{folder} can't be written: {error.strerror}", "Check the folder and its permissions.")


# --- reading ---------------------------------------------------------------------------------------------------------


def read(folder: Path) -> RunSet:
    """Read a run and all its records, strictly. Half a last line is no record yet and is passed over."""
    run = read_run(folder)
    return RunSet(run, tuple(_records(folder / RECORDS_FILE, run)), _read_traces(folder / TRACES_FILE))


def read_run(folder: Path) -> Run:
    path = folder / RUN_FILE
    return _decode(_content(path), Run, path, "")


def _records(path: Path, run: Run) -> Iterator[Record]:
    cases, clients = set(run.cases), {client.name for client in run.clients}
    line_of: dict[int, int] = {}
    for number, line in enumerate(_content(path).split(b"\n")[:-1], start=1):
        place = f"line {number}"
        record = _decode(line, Record, path, place)
        trial = record.trial
        if record.run != run.id:
            raise InvalidFileError(path, place, f"belongs to run {record.run!r}, not to {run.id!r}")
        if trial.sequence in line_of:
            raise InvalidFileError(
                path, place, f"trial {trial.sequence} stands in line {line_of[trial.sequence]} already"
            )
        if trial.case not in cases or trial.client not in clients:
            raise InvalidFileError(path, place, f"{trial.client} on {trial.case.key} is not part of this run")
        line_of[trial.sequence] = number
        yield record


def _read_traces(path: Path) -> dict[int, Trace]:
    """Return traces by sequence; of two of one trial the later, for its record came after it."""
    if not path.exists():
        return {}
    lines = enumerate(_content(path).split(b"\n")[:-1], start=1)
    found = (_decode(line, Trace, path, f"line {number}") for number, line in lines)
    return {trace.sequence: trace for trace in found}


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidFileError(path, "", f"can't be read: {error.strerror}") from error


def _decode(content: bytes, kind: type[_Noun], path: Path, place: str) -> _Noun:
    try:
        schema = msgspec.json.decode(content, type=_Versioned).schema
        if schema == SCHEMA_VERSION:
            return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidFileError(path, place, str(error), "Restore the file: results are only appended to.") from error
    raise InvalidFileError(
        path, place, f"has schema version {schema}; this bench reads {SCHEMA_VERSION}", "Use the bench that wrote it."
    )


# --- finding ---------------------------------------------------------------------------------------------------------


def list_runs(results: Path) -> list[Run]:
    """Return every run in `results`, newest first."""
    runs = [read_run(results / name) for name in _names(results)]
    return sorted(runs, key=lambda run: (run.created_at, run.id), reverse=True)


def find(results: Path, name: str) -> Path:
    """Return the folder of a run, named by its id, by an id's unique beginning, as `latest`, or by its path."""
    names = _names(results)
    if name == LATEST and names:
        return results / list_runs(results)[0].id
    if name in names:
        return results / name
    if name and (Path(name) / RUN_FILE).is_file():
        return Path(name)
    matches = [known for known in names if name and known.startswith(name)]
    if len(matches) > 1:
        raise BenchError(f"{len(matches)} runs begin with {name!r}", f"Name one: {', '.join(matches)}.")
    if not matches:
        raise UnknownNameError("run", name, names)
    return results / matches[0]


def _names(results: Path) -> list[str]:
    if not results.is_dir():
        return []
    entries = [entry for entry in results.iterdir() if not entry.name.startswith(".")]
    return sorted(entry.name for entry in entries if (entry / RUN_FILE).is_file())
