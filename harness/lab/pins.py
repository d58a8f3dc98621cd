"""How much a requirement leaves open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from packaging.specifiers import Specifier, SpecifierSet
from packaging.version import Version


class Narrowness(StrEnum):
    """The narrowest first. A patch series is all that shares its first two numbers, as 1.43.115 and 1.43.118 do."""

    EXACT = "exact pin"
    PATCHES = "part of a patch series"
    """It ends before the series does."""
    SERIES = "one patch series"
    BOUNDED = "bounded above"
    OPEN = "open above"


def narrowness(specifiers: SpecifierSet) -> Narrowness:
    return rank(specifiers)[0]


def rank(specifiers: SpecifierSet) -> tuple[Narrowness, int]:
    """Return the kind, and for a part of a patch series how many patches it spans."""
    if any(_is_exact(each) for each in specifiers):
        return Narrowness.EXACT, 1
    lowest, limits = _bounds(specifiers)
    if not limits:
        return Narrowness.OPEN, 0
    end = min(limits)
    if end[:2] == lowest[:2]:
        return Narrowness.PATCHES, end[2] - lowest[2]
    if end == (lowest[0], lowest[1] + 1, 0):
        return Narrowness.SERIES, 0
    return Narrowness.BOUNDED, 0


def order(narrow: Narrowness) -> int:
    return list(Narrowness).index(narrow)


def _is_exact(specifier: Specifier) -> bool:
    return specifier.operator == "===" or (specifier.operator == "==" and not specifier.version.endswith(".*"))


def _bounds(specifiers: Iterable[Specifier]) -> tuple[tuple[int, int, int], list[tuple[int, int, int]]]:
    """Return the lowest release that is admitted, and for each upper bound the first release that no longer is."""
    lowest, limits = (0, 0, 0), []
    for each in specifiers:
        release = Version(each.version.removesuffix(".*")).release
        if each.operator in {">", ">=", "~=", "=="}:
            lowest = max(lowest, _three(release))
        if each.operator == "<":
            limits.append(_three(release))
        elif each.operator == "<=":
            major, minor, patch = _three(release)
            limits.append((major, minor, patch + 1))
        elif each.operator in {"~=", "=="}:
            # ~=1.4.2 admits what ==1.4.* does, from 1.4.2 on.
            series = release[:-1] if each.operator == "~=" else release
            limits.append(_three((*series[:-1], series[-1] + 1)))
    return lowest, limits


def _three(release: Sequence[int]) -> tuple[int, int, int]:
    major, minor, patch = (*release, 0, 0, 0)[:3]
    return major, minor, patch
