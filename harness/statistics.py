"""Pure maths: floats in, numbers out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """A median never travels without its extremes and the number of values behind it."""

    median: float
    low: float
    high: float
    n: int


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of `values` lies, interpolated linearly between neighbours."""
    if not values:
        raise ValueError("no values, no quantile")
    if not 0 <= share <= 1:
        raise ValueError(f"a share lies between 0 and 1, not at {share}")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below, above = ordered[math.floor(place)], ordered[math.ceil(place)]
    return below + (above - below) * (place - math.floor(place))


def median(values: Sequence[float]) -> float:
    return quantile(values, 0.5)


def spread(values: Sequence[float]) -> Spread:
    return Spread(median=median(values), low=min(values), high=max(values), n=len(values))
