"""Real store, real link, real processes; in a temporary folder of the tests' own, so that a run elsewhere isn't disturbed."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.lab import environments
from harness.lab.environments import InstalledClient
from harness.lab.lab import Lab, open_lab

TESTS = Path(__file__).parent
ENVS = TESTS / "envs"
TINY = TESTS / "scenarios" / "tiny.toml"


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Let the tests' children hear Ctrl-C: a shell that started these tests in the background has them ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def temporary_folder() -> Iterator[Path]:
    """Let nothing of a test meet a run under way: lock, sessions and leftovers are found by the temporary folder."""
    # Short, because the path of a socket below it may have only about a hundred characters.
    with tempfile.TemporaryDirectory(prefix="bt-", dir=tempfile.gettempdir(), ignore_cleanup_errors=True) as folder:
        before = os.environ.get("TMPDIR")
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        yield Path(folder)
        tempfile.tempdir = None
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before


@pytest.fixture(scope="session")
def lab(temporary_folder: Path) -> Iterator[Lab]:
    """One embedded store for all tests that need no store of their own."""
    with open_lab(None, "tests", tls=True, tell=lambda _: None) as opened:
        yield opened


@pytest.fixture(scope="session")
def misbehaving() -> dict[str, InstalledClient]:
    return environments.prepare(ENVS, environments.discover(ENVS), lambda _: None)
