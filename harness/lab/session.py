"""The temporary folder and the child processes of one `bench`, and their removal.

By itself at the end, or by the next `bench` when this one was killed.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec
import psutil

FOLDER_PREFIX = "bench-lab-"
MARK = "BENCH_LAB"
"""Environment variable that every child carries: by it, and not by a list that could miss one, orphans are found."""

OUTSIDE = "outside.txt"
"""In a session's folder: files elsewhere that belong to it, one a line."""

STOP_GRACE_S = 5.0


class Owner(msgspec.Struct, frozen=True):
    pid: int
    created_at_s: float
    """Start of the process, so that a later process of the same number isn't taken for it."""


class Session:
    """Temporary folder and processes that live and die together."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children: list[subprocess.Popen[bytes]] = []

    def spawn(
        self,
        command: Sequence[object],
        environment: Mapping[str, str],
        output: IO[bytes] | int,
        **options: object,
    ) -> subprocess.Popen[bytes]:
        """Start a process of this session in a process group of its own: a terminal's Ctrl-C is for `bench` alone."""
        process: subprocess.Popen[bytes] = subprocess.Popen(
            [str(part) for part in command],
            env={**environment, MARK: str(self.folder)},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **options,  # type: ignore[call-overload]
        )
        self._children = [child for child in self._children if child.poll() is None]
        self._children.append(process)
        return process

    def remember(self, path: Path) -> None:
        """Have a file outside of the folder removed with it."""
        with (self.folder / OUTSIDE).open("a", encoding="utf-8") as outside:
            outside.write(f"{path}\n")

    def stop(self) -> None:
        for child in reversed(self._children):
            stop_process(child)
        remove_leftovers(self.folder)


def stop_process(process: subprocess.Popen[bytes], grace_s: float = STOP_GRACE_S) -> None:
    """Ask the process group to end, and make it after `grace_s` seconds."""
    if process.poll() is None:
        signal_group(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
    signal_group(process, signal.SIGKILL)
    process.wait()


def signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


@contextlib.contextmanager
def open_session() -> Iterator[Session]:
    """Sweep what killed predecessors left, then lend a session and remove it whole."""
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
    own = psutil.Process()
    owner = Owner(own.pid, own.create_time())
    (folder / "owner.json").write_bytes(msgspec.json.encode(owner))
    session = Session(folder)
    try:
        yield session
    finally:
        session.stop()


def sweep() -> list[Path]:
    """Remove the folders and processes of sessions whose owner is gone; returns the folders removed."""
    removed = orphaned_folders()
    for folder in removed:
        remove_leftovers(folder)
    return removed


def orphaned_folders() -> list[Path]:
    """Return the folders of this user's sessions whose owner is gone."""
    folders = Path(tempfile.gettempdir()).glob(FOLDER_PREFIX + "*")
    return [folder for folder in folders if folder.owner() == getpass.getuser() and not _owner_lives(folder)]


def _owner_lives(folder: Path) -> bool:
    try:
        owner = msgspec.json.decode((folder / "owner.json").read_bytes(), type=Owner)
        return psutil.Process(owner.pid).create_time() == owner.created_at_s
    except (OSError, msgspec.DecodeError, psutil.Error):
        return False


def remove_leftovers(folder: Path) -> None:
    for process in marked_processes(folder):
        with contextlib.suppress(psutil.Error):
            process.kill()
            process.wait(STOP_GRACE_S)
    with contextlib.suppress(OSError):
        for line in (folder / OUTSIDE).read_text(encoding="utf-8").splitlines():
            Path(line).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def marked_processes(folder: Path) -> list[psutil.Process]:
    """Find every process, however far down, that was started by the session of `folder`."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == str(folder) and process.pid != os.getpid():
                found.append(process)
    return found
