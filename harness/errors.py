"""Every error that a user can mend. Each says what happened and what to do; the command line catches it once."""

from __future__ import annotations


class BenchError(Exception):
    """A sentence, a hint and an exit code. Exit code 2: mend the input; 3: the surroundings gave way in mid-run."""

    exit_code = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class InvalidFileError(BenchError):
    """A file from outside does not hold what it must."""

    def __init__(self, path: object, where: str, problem: str, hint: str = "") -> None:
        place = f"{path}: {where}" if where else str(path)
        super().__init__(f"{place}: {problem}", hint)


class UnknownNameError(BenchError):
    """A filter or a name matches nothing."""

    def __init__(self, what: str, given: str, known: list[str] | tuple[str, ...]) -> None:
        there_is = ", ".join(known) if known else "none"
        super().__init__(f"no {what} matches {given!r}", f"There is: {there_is}.")


class EnvironmentFailedError(BenchError):
    """A client's environment could not be prepared."""


class StoreError(BenchError):
    """The store refuses, or can't be reached, before anything was measured."""


class StoreLostError(BenchError):
    """The store or the link died while a run was under way."""

    exit_code = 3


class BusyError(BenchError):
    """Another run holds this host."""


class ResumeRefusedError(BenchError):
    """What was planned and what is here now differ."""


class DiskFullError(BenchError):
    """Too little room, before or during a run."""
