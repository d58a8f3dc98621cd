"""Asks uv whether requirements can be met together, in one environment of this Python on this system."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from harness.lab.environments import uv_program, uv_variables

RESOLVE_LIMIT_S = 180


class Fit(StrEnum):
    FITS = "fits"
    CONFLICT = "conflict"
    """uv had all that it asked for, and found that no versions meet the requirements."""
    UNKNOWN = "unknown"
    """Could not be resolved: the registry was not reached, or holds no such package."""


@dataclass(frozen=True)
class Resolution:
    fit: Fit
    versions: dict[str, str]
    """Canonical name to version; empty unless it fits."""
    reason: str
    """What uv says, without any address; empty when it fits."""


def resolve(requirements: Sequence[str]) -> Resolution:
    """Resolve `requirements` from nothing, as `uv pip install` into an empty environment would."""
    # Run elsewhere: in a project's folder uv would add that project's own constraints.
    command = [uv_program(), "pip", "compile", "--no-header", "--no-annotate", "--color", "never"]
    command += ["--python", sys.executable, "-"]
    try:
        answer = subprocess.run(
            command,
            input="\n".join(requirements) + "\n",
            cwd=tempfile.gettempdir(),
            # A line that was broken at a terminal's width is read only in part.
            env=uv_variables() | {"UV_NO_WRAP": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=RESOLVE_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return Resolution(Fit.UNKNOWN, {}, f"could not be resolved: uv took longer than {RESOLVE_LIMIT_S} s")
    if answer.returncode:
        return _refused(answer.stderr)
    return Resolution(Fit.FITS, _versions(answer.stdout), "")


def _versions(compiled: str) -> dict[str, str]:
    pins = [Requirement(line) for line in compiled.splitlines() if line.strip() and not line.startswith("#")]
    return {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in pins if pin.specifier}


def _refused(message: str) -> Resolution:
    # Without a network uv may also say "No solution found", for it counts what it can't see as not there.
    unseen = re.search(r"not found in|(?:was|were) (?:disabled|unavailable)", message)
    if "No solution found" in message and not unseen:
        return Resolution(Fit.CONFLICT, {}, explanation(message))
    return Resolution(Fit.UNKNOWN, {}, f"could not be resolved: {explanation(message)}")


def explanation(message: str) -> str:
    """Shorten what uv says to the two sentences on which its conclusion rests, without addresses.

    It begins with every version that it ruled out, page after page, and ends with "your requirements are unsatisfiable".
    """
    told = re.sub(r"[\[(<`'\"]*\w+(?:\+\w+)?://[^\s)\]>`'\"]*[\])>`'\"]*", "", message)
    told = re.split(r"^hint: ", told, flags=re.MULTILINE)[0]
    sentences = [
        re.sub(r", we can conclude that [^,]* depends on one of:$", ".", line.strip()).removeprefix("cause: ")
        for line in told.splitlines()
        if re.match(r"\s*(?:cause: )?(?:And because|Because) ", line)
    ]
    if len(sentences) > 1 and "because you require" in sentences[-1]:
        del sentences[-1]
    if not sentences:
        lines = [re.sub(r"\s*\(\s*\)|:?\s*$", "", line.strip()) for line in told.splitlines() if line.strip()]
        return "; ".join(line.removeprefix("error: ").removeprefix("cause: ") for line in [*lines[:1], *lines[1:][-1:]])
    return " ".join(re.sub(r"^And because", "Because", sentence) for sentence in sentences[-2:])
