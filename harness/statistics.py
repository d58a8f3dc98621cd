"""Pure maths: floats in, numbers out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import scipy.stats


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


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval and the number of values, or pairs, behind it."""

    estimate: float
    low: float
    high: float
    n: int


def ratio_interval(numerators: Sequence[float], denominators: Sequence[float], level: float = 0.95) -> Interval:
    """Return the geometric mean of the paired ratios with its t interval: exp(mean +- t * sd / sqrt(n)) of their logarithms.

    Values must be above zero and come in at least two pairs, else ValueError. Ratios that are all alike give an interval
    without width.
    """
    if len(numerators) != len(denominators) or len(numerators) < 2:
        raise ValueError(f"{len(numerators)} and {len(denominators)} values are no pairs to compare")
    logs = [math.log(one / other) for one, other in zip(numerators, denominators, strict=True)]
    n = len(logs)
    mean = sum(logs) / n
    deviation = math.sqrt(sum((value - mean) ** 2 for value in logs) / (n - 1))
    half = float(scipy.stats.t.ppf((1 + level) / 2, n - 1)) * deviation / math.sqrt(n)
    return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half), n)
