"""A median never travels alone."""

from __future__ import annotations

import pytest

from harness.statistics import Spread, median, quantile, spread


def test_the_median_of_an_even_number_lies_between_the_middle_two() -> None:
    assert median([4, 1, 3, 2]) == 2.5
    assert median([9, 1, 5]) == 5


def test_a_quantile_is_interpolated() -> None:
    assert quantile([10, 20, 30, 40, 50], 0.25) == 20
    assert quantile([0, 10], 0.9) == pytest.approx(9)
    assert (quantile([3, 1, 2], 0), quantile([3, 1, 2], 1)) == (1, 3)


def test_a_spread_holds_extremes_and_n_and_leaves_outliers_in() -> None:
    assert spread([5, 1, 100]) == Spread(median=5, low=1, high=100, n=3)


def test_nothing_has_no_median() -> None:
    with pytest.raises(ValueError, match="no values"):
        median([])


def test_a_share_beyond_one_is_refused() -> None:
    with pytest.raises(ValueError, match="share"):
        quantile([1], 1.1)
