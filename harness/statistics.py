"""Pure maths: floats in, numbers out.

Ratios are compared on the logarithmic scale, where a ratio and its reciprocal lie equally far from 1.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# The functions beneath scipy.stats: that module alone would add two seconds to the start of every command.
import scipy.special

MINIMUM_BLOCKS = 6
"""Fewer give no verdict: the least number for which a 95 % interval exists that assumes nothing of the distribution."""

RECORDED_BLOCKS = 8
"""Least number behind a verdict that is recorded."""

LEVEL = 0.95

TWO_LOOKS_LEVEL = 0.975
"""Level of each of the two looks of a run that may be extended once; see `level_per_look`."""

MAD_TO_SD = 1.482602218505602
"""Median absolute deviations of a normal distribution in one standard deviation: 1 over its quantile at 3/4."""

MOST_BLOCKS = 10_000
"""Nobody will run more, so a need beyond it can't be met."""


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


@dataclass(frozen=True)
class ExactInterval(Interval):
    """An interval between two ordered values: `level` is the one it has, at least as high as asked."""

    level: float


@dataclass(frozen=True)
class LogRatio:
    """The mean logarithm of a ratio and what is known of its error: every interval and test is made from these."""

    mean: float
    error: float
    """Standard error of the mean; 0 when all values were alike."""
    freedom: float
    """Degrees of freedom; a fraction where two variances were joined."""
    n: int
    """Pairs; of unpaired values, those of the smaller group."""

    @property
    def log_sd(self) -> float:
        """Standard deviation of one pair's logarithm, or its like where nothing was paired: error * sqrt(n)."""
        return self.error * math.sqrt(self.n)

    def interval(self, level: float = LEVEL) -> Interval:
        """Return the geometric mean ratio with its two-sided t interval, exp(mean +- t * error).

        Without any error the interval has no width.
        """
        half = _t_quantile((1 + _checked_level(level)) / 2, self.freedom) * self.error
        return Interval(math.exp(self.mean), math.exp(self.mean - half), math.exp(self.mean + half), self.n)


# --- ratios ----------------------------------------------------------------------------------------------------------


def paired_log_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> LogRatio:
    """Return the mean of the logarithms of paired ratios: what reaches both of a pair alike cancels out.

    Values must be above zero and come in at least two pairs, else ValueError.
    """
    logs = _paired_logs(numerators, denominators)
    if len(logs) < 2:
        raise ValueError("a single pair has no spread, hence no interval")
    mean, deviation = _moments(logs)
    return LogRatio(mean, deviation / math.sqrt(len(logs)), len(logs) - 1, len(logs))


def unpaired_log_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> LogRatio:
    """Return the difference of two independent groups' mean logarithms, by Welch's t with Satterthwaite's freedom.

    The spread within each group is all that its error knows of: what moved a whole group is taken for the difference.
    Values must be above zero, at least two in each group, else ValueError.
    """
    if min(len(numerators), len(denominators)) < 2:
        raise ValueError("a group of one value has no spread, hence no interval")
    (one, one_sd), (other, other_sd) = (_moments(_logs(values)) for values in (numerators, denominators))
    n, m = len(numerators), len(denominators)
    one_part, other_part = one_sd**2 / n, other_sd**2 / m
    total = one_part + other_part
    # B. L. Welch, Biometrika 34 (1947) 28-35.
    freedom = total**2 / (one_part**2 / (n - 1) + other_part**2 / (m - 1)) if total > 0 else n + m - 2
    return LogRatio(one - other, math.sqrt(total), freedom, min(n, m))


def ratio_interval(numerators: Sequence[float], denominators: Sequence[float], level: float = LEVEL) -> Interval:
    """Return the geometric mean of paired ratios with its t interval: exp(mean +- t * sd / sqrt(n)) of the logarithms.

    Values must be above zero and come in at least two pairs, else ValueError. Ratios that are all alike give an
    interval without width. What few blocks seldom show, the interval does not know: where one client alone is twice as
    slow in one trial of twenty, a 95 % interval of 6 to 20 blocks holds the mean in 80 to 88 % of runs
    (tests/test_statistics.py).
    """
    return paired_log_ratio(numerators, denominators).interval(level)


def rank_ratio_interval(
    numerators: Sequence[float], denominators: Sequence[float], level: float = LEVEL
) -> ExactInterval | None:
    """Return the Hodges-Lehmann estimate of the paired ratio: the median of all means of two log-ratios, exponentiated.

    Its interval is exact for log-ratios of any symmetric distribution, from the null distribution of Wilcoxon's signed
    rank sum; of ratios that tie it has at least its level. An outlier moves it little. None when there are too few
    pairs for the level: fewer than 6 at 95 %, fewer than 7 at 97.5 %. Values must be above zero and come in pairs,
    else ValueError.
    Source: Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3rd edition, sections 3.2 and 3.3.
    """
    logs = _paired_logs(numerators, denominators)
    means = sorted((one + other) / 2 for place, one in enumerate(logs) for other in logs[place:])
    return _between_order_statistics(means, _signed_rank_shares(len(logs)), len(logs), level, math.exp)


def median_interval(values: Sequence[float], level: float = LEVEL) -> ExactInterval | None:
    """Return the median with an exact interval that assumes nothing of the distribution, from the binomial of n halves.

    None when there are too few values for the level: fewer than 6 at 95 %. No values: ValueError.
    """
    n = len(values)
    shares = [math.comb(n, below) / 2**n for below in range(n + 1)]
    return _between_order_statistics(sorted(values), shares, n, level, float)


def _between_order_statistics(
    ordered: Sequence[float], shares: Sequence[float], n: int, level: float, scale: Callable[[float], float]
) -> ExactInterval | None:
    """Leave out as many values at either end as keep the level; `shares[k]`: the chance that k lie beyond the truth."""
    estimate, limit = median(ordered), (1 - _checked_level(level)) / 2
    beyond = list(itertools.accumulate(shares))
    left_out = sum(chance <= limit for chance in beyond)
    if left_out == 0:
        return None
    low, high = ordered[left_out - 1], ordered[-left_out]
    return ExactInterval(scale(estimate), scale(low), scale(high), n, 1 - 2 * beyond[left_out - 1])


def _signed_rank_shares(n: int) -> list[float]:
    """Return the chance of each sum of the positive ranks of 1 to n, when every rank's sign is a fair coin's."""
    ways = [1]
    for rank in range(1, n + 1):
        without, with_it = ways + [0] * rank, [0] * rank + ways
        ways = [one + other for one, other in zip(without, with_it, strict=True)]
    return [count / 2**n for count in ways]


def _paired_logs(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    if len(numerators) != len(denominators):
        raise ValueError(f"{len(numerators)} and {len(denominators)} values are no pairs")
    _check_positive((*numerators, *denominators))
    return [math.log(one / other) for one, other in zip(numerators, denominators, strict=True)]


def _logs(values: Sequence[float]) -> list[float]:
    _check_positive(values)
    return [math.log(value) for value in values]


def _check_positive(values: Sequence[float]) -> None:
    wrong = next((value for value in values if not 0 < value < math.inf), None)
    if wrong is not None:
        raise ValueError(f"{wrong} has no logarithm, hence no ratio")


def _moments(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard deviation; of equal values exactly their value and 0, which rounding would spoil."""
    if min(values) == max(values):
        return values[0], 0.0
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _checked_level(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, not at {level}")
    return level


# --- tests -----------------------------------------------------------------------------------------------------------
#
# Each p-value is of the opposite of what it is named for: the smaller, the surer the named. A whole 95 % interval at or
# above a threshold is the same event as `p_at_least` of at most 0.025.


def p_at_least(ratio: LogRatio, threshold: float) -> float:
    """Return the one-sided p-value of the true ratio lying below `threshold`; small confirms "at least"."""
    return _upper_tail(ratio.mean - math.log(threshold), ratio)


def p_at_most(ratio: LogRatio, threshold: float) -> float:
    """Return the one-sided p-value of the true ratio lying above `threshold`; small confirms "at most"."""
    return _upper_tail(math.log(threshold) - ratio.mean, ratio)


def p_within(ratio: LogRatio, margin: float) -> float:
    """Return the p-value of two one-sided tests that the true ratio lies outside 1/(1 + margin) to 1 + margin.

    Small confirms "the same": at most 0.025 exactly when the whole 95 % interval is inside. The lower end is the
    reciprocal of the upper, so that swapping the two sides changes nothing. The margin must be above 0, else
    ValueError.
    Source: D. J. Schuirmann, J. Pharmacokinet. Biopharm. 15 (1987) 657-680.
    """
    if margin <= 0:
        raise ValueError(f"a margin lies above 0, not at {margin}")
    return max(p_at_least(ratio, 1 / (1 + margin)), p_at_most(ratio, 1 + margin))


def p_differs(ratio: LogRatio) -> float:
    """Return the two-sided p-value of a true ratio of 1; at most 0.05 exactly when the 95 % interval leaves 1 out."""
    if ratio.mean == 0:
        return 1.0
    return min(1.0, 2 * _upper_tail(abs(ratio.mean), ratio))


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return each p-value adjusted for all of them, in the given order: at most 0.05 then errs in 5 % of families.

    The smallest counts times their number, the next times one less, and none less than one before it. Holds however the
    tests depend on each other. Source: S. Holm, Scand. J. Statist. 6 (1979) 65-70.
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        highest = max(highest, min(1.0, p_values[place] * (len(p_values) - rank)))
        adjusted[place] = highest
    return tuple(adjusted)


def level_per_look(looks: int, level: float = LEVEL) -> float:
    """Return the level of each interval when the same question may be asked at up to `looks` moments: 97.5 % for two.

    To look, and to measure on only where the answer is still open, gives chance a second try: two looks at 95 % err in
    up to 10 % of cases. By Bonferroni the two errors of 2.5 % add up to at most 5 %, however much the second look
    shares with the first and however many blocks are added, which sharper bounds (Pocock, O'Brien and Fleming) would
    need to be told in advance. The first look pays too, hence only a run that was declared extendable before it began
    may be extended.
    """
    if looks < 1:
        raise ValueError(f"{looks} looks see nothing")
    return 1 - (1 - _checked_level(level)) / looks


def blocks_needed(log_sd: float, distance_log: float, level: float = LEVEL, power: float = 0.8) -> int | None:
    """Return how many blocks let the interval clear the threshold in a share `power` of runs, if the truth is as seen.

    `log_sd` is the spread of one block's log-ratio, `distance_log` how far the mean lies from the threshold's
    logarithm, of either sign. Never less than MINIMUM_BLOCKS; None when the distance is so small that MOST_BLOCKS
    would not do. The number is itself an estimate: of few blocks, neither spread nor distance is known well. The power
    is that of the one-sample t test, from the noncentral t distribution.
    """
    distance = abs(distance_log)
    if log_sd == 0 and distance > 0:
        return MINIMUM_BLOCKS

    def suffices(n: int) -> bool:
        critical = _t_quantile((1 + _checked_level(level)) / 2, n - 1)
        return 1 - float(scipy.special.nctdtr(n - 1, distance / log_sd * math.sqrt(n), critical)) >= power

    if distance == 0 or not suffices(MOST_BLOCKS):
        return None
    return bisect.bisect_left(range(MOST_BLOCKS), True, lo=MINIMUM_BLOCKS, key=suffices)


def _t_quantile(share: float, freedom: float) -> float:
    return float(scipy.special.stdtrit(freedom, share))


def _upper_tail(distance: float, ratio: LogRatio) -> float:
    """Return the chance of a mean at least `distance` above the truth; without error, what was seen is the truth."""
    if ratio.error == 0:
        return 0.0 if distance >= 0 else 1.0
    return float(scipy.special.stdtr(ratio.freedom, -distance / ratio.error))


# --- outliers --------------------------------------------------------------------------------------------------------


def outliers(values: Sequence[float], limit: float = 3.0) -> tuple[int, ...]:
    """Return the places of values whose logarithm lies further than `limit` scaled MADs from the median of logarithms.

    They are to be flagged, never dropped: rare slowness is part of a client. Where more than half of the values are
    equal, every other is flagged. Below MINIMUM_BLOCKS none is, for then the deviation itself is chance; even of 8
    normal values one is flagged in a fifth of series. Values must be above zero, else ValueError.
    """
    logs = _logs(values)
    if len(logs) < MINIMUM_BLOCKS:
        return ()
    middle = median(logs)
    deviations = [abs(value - middle) for value in logs]
    allowed = limit * MAD_TO_SD * median(deviations)
    return tuple(place for place, deviation in enumerate(deviations) if deviation > allowed)


@dataclass(frozen=True)
class Slope:
    """Of a line through points, with its t interval; `n` points."""

    estimate: float
    low: float
    high: float
    n: int


def slope_interval(places: Sequence[float], values: Sequence[float], level: float = LEVEL) -> Slope:
    """Return the least-squares slope of `values` over `places`.

    Its standard error is sqrt(sum of squared residuals / (n - 2) / sum of squared deviations of the places), on n - 2
    degrees of freedom (Draper and Smith, Applied Regression Analysis, section 1.4).
    Raises ValueError for fewer than 3 points, and where all places are the same.
    """
    n = len(places)
    if n != len(values) or n < 3 or len(set(places)) < 2:
        raise ValueError("a slope with an interval needs 3 points or more, at 2 places or more")
    place_mean, value_mean = sum(places) / n, sum(values) / n
    deviations = [place - place_mean for place in places]
    square_sum = sum(deviation**2 for deviation in deviations)
    slope = sum(d * (value - value_mean) for d, value in zip(deviations, values, strict=True)) / square_sum
    residuals = [value - value_mean - slope * deviation for deviation, value in zip(deviations, values, strict=True)]
    error = math.sqrt(sum(residual**2 for residual in residuals) / (n - 2) / square_sum)
    margin = _t_quantile((1 + _checked_level(level)) / 2, n - 2) * error
    return Slope(slope, slope - margin, slope + margin, n)
