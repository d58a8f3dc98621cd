"""Nothing of a `bench` outlives it, not even of one that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from harness.errors import BusyError
from harness.lab import host, session

OWNER = """
import subprocess, sys, time
from harness.lab.session import open_session
with open_session() as opened:
    # A child that ignores SIGTERM, and a grandchild that left its process group.
    code = "import signal, subprocess, sys, time; signal.signal(15, signal.SIG_IGN); " \\
           "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True); " \\
           "print('up', flush=True); time.sleep(600)"
    child = opened.spawn([sys.executable, "-c", code], {}, subprocess.PIPE)
    child.stdout.readline()
    print(opened.folder, flush=True)
    time.sleep(600)
"""


def start_owner() -> tuple[subprocess.Popen[str], Path]:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    return owner, Path(owner.stdout.readline().strip())


def wait_until_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def test_what_a_killed_bench_left_is_found_and_removed_by_the_next() -> None:
    owner, folder = start_owner()
    owner.kill()
    owner.wait()
    assert owner.stdout is not None
    owner.stdout.close()
    left = session.marked_processes(folder)
    assert len(left) == 2
    assert folder.exists()
    assert folder in session.sweep()
    wait_until_gone(left)
    assert not folder.exists()


def test_a_living_bench_is_left_alone_by_the_next() -> None:
    owner, folder = start_owner()
    try:
        assert folder not in session.sweep()
        assert len(session.marked_processes(folder)) == 2
    finally:
        owner.send_signal(signal.SIGINT)
        owner.wait(20)
        assert owner.stdout is not None
        owner.stdout.close()
    assert not folder.exists()
    assert not session.marked_processes(folder)


def test_a_process_number_that_was_given_again_is_not_taken_for_the_owner(temporary_folder: Path) -> None:
    folder = temporary_folder / f"{session.FOLDER_PREFIX}old"
    folder.mkdir()
    (folder / "owner.json").write_text(f'{{"pid": {os.getpid()}, "created_at_s": 1.0}}')
    assert folder in session.sweep()


@pytest.mark.parametrize("content", ["", "{", '{"pid": "x"}', "[]"])
def test_a_folder_whose_owner_is_not_readable_is_swept(temporary_folder: Path, content: str) -> None:
    folder = temporary_folder / f"{session.FOLDER_PREFIX}broken"
    folder.mkdir()
    (folder / "owner.json").write_text(content)
    assert folder in session.sweep()


def test_a_second_run_on_this_host_is_refused_and_told_who_holds_it() -> None:
    with host.exclusive("run A"):
        started = time.monotonic()
        code = "from harness.lab import host\nwith host.exclusive('run B'): pass"
        second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert time.monotonic() - started < 10
    assert second.returncode != 0
    assert BusyError.__name__ in second.stderr
    assert f"run A, process {os.getpid()}" in second.stderr
