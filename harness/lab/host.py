"""This host: what it is, and that one run has it to itself."""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import filelock
import psutil

from harness.errors import BusyError, DiskFullError
from harness.model import Host
from harness.paths import ROOT

LOCK, HOLDER = "bench-run.lock", "bench-run.holder"
"""In the temporary folder: held while a run measures, and the name of who holds it."""


def inspect() -> Host:
    return Host(
        name=platform.node(),
        system=platform.system(),
        kernel=platform.release(),
        machine=platform.machine(),
        cpu_model=_cpu_model(),
        cpu_count=os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        python=platform.python_version(),
    )


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def differences(then: Host, now: Host) -> list[str]:
    """Say in words what of the host has changed since `then`."""
    fields = [field for field in then.__struct_fields__ if getattr(then, field) != getattr(now, field)]
    return [f"host {field}: {getattr(then, field)} then, {getattr(now, field)} now" for field in fields]


def commit() -> str:
    """Return the commit of the harness, with `+changes` where what measures differs from it."""

    def git(*arguments: str) -> str:
        answer = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False, timeout=30
        )
        return answer.stdout.strip()

    if shutil.which("git") is None or not (revision := git("rev-parse", "HEAD")):
        return "unknown"
    changed = git("status", "--porcelain", "--", "harness", "envs", "scenarios", "pyproject.toml", "uv.lock")
    return revision + ("+changes" if changed else "")


def _holder_words(folder: Path) -> str:
    path = folder / HOLDER
    return path.read_text(encoding="utf-8").strip() if path.exists() else "an unnamed process"


@contextlib.contextmanager
def exclusive(purpose: str) -> Iterator[None]:
    """Hold this host for one measurement; raise BusyError naming the holder when somebody else does."""
    folder = Path(tempfile.gettempdir())
    holder = folder / HOLDER
    lock = filelock.FileLock(folder / LOCK, mode=0o666)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise BusyError(
            f"this host is measuring already: {_holder_words(folder)}",
            "Two runs at once would measure each other. Wait for it, or stop it.",
        ) from error
    try:
        holder.write_text(f"{purpose}, process {os.getpid()} of {getpass.getuser()}\n", encoding="utf-8")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def require_room(folder: Path, needed_bytes: int, what: str) -> None:
    """Raise DiskFullError unless `folder` has `needed_bytes` free."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise DiskFullError(
            f"{what} needs about {needed_bytes >> 20} MiB in {folder}, and {free_bytes >> 20} MiB are free",
            "Free some room, set TMPDIR to a larger disk, or narrow the run with --scenario or --size.",
        )
