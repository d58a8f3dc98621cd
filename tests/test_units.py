"""Numbers are written with three digits and their unit."""

from __future__ import annotations

import pytest

from harness import units


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "0"),
        (0.012345, "0.0123"),
        (1.2345, "1.23"),
        (9.996, "10.0"),
        (99.96, "100"),
        (123.4, "123"),
        (12345, "12,300"),
    ],
)
def test_a_number_has_three_significant_digits(value: float, written: str) -> None:
    assert units.number(value) == written


def test_a_size_takes_the_largest_unit_that_leaves_at_least_one() -> None:
    assert units.size(1023) == "1,020 B"
    assert units.size(1 << 20) == "1.00 MiB"
    assert units.size(3 << 29) == "1.50 GiB"


def test_a_rate_stays_in_mebibytes_so_that_rows_compare() -> None:
    assert units.rate(300 << 20) == "300 MiB/s"
    assert units.rate(4 << 30) == "4,100 MiB/s"


@pytest.mark.parametrize(
    ("duration_ns", "written"),
    [
        (850, "0.850 µs"),
        (41_200, "41.2 µs"),
        (20_000_000, "20.0 ms"),
        (1_500_000_000, "1.50 s"),
        (90 * 10**9, "1.50 min"),
    ],
)
def test_a_duration_is_written_in_the_unit_of_its_size(duration_ns: int, written: str) -> None:
    assert units.duration(duration_ns) == written


def test_cpu_names_what_it_is_divided_by() -> None:
    assert units.quantity(3.35e9, "ns_per_gib") == "3.35 s/GiB"
    assert units.quantity(2.47e6, "ns_per_object") == "2.47 ms/object"


def test_a_count_is_exact_and_a_median_between_two_says_so() -> None:
    assert units.count(1234) == "1,234"
    assert units.count(20.5) == "20.5"


def test_a_ratio_claims_two_digits() -> None:
    assert [units.ratio(value) for value in (0.4312, 1, 2.345, 33.4)] == ["0.43x", "1.0x", "2.3x", "33x"]
