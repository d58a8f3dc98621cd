"""The only formatter of bytes, rates, times, counts and ratios: three significant digits, and never a bare number."""

from __future__ import annotations

import math
from dataclasses import dataclass

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Scale:
    """How a quantity is written: divided by `divisor`, followed by `label`."""

    label: str
    divisor: float


def _times(per: str) -> tuple[Scale, ...]:
    return (Scale(f"µs{per}", 1e3), Scale(f"ms{per}", 1e6), Scale(f"s{per}", 1e9), Scale(f"min{per}", 60e9))


# There is no GiB/s and no MiB of objects: one unit for most of a table lets the eye compare rows.
_LADDERS: dict[str, tuple[Scale, ...]] = {
    "bytes": (Scale("B", 1), Scale("KiB", KIB), Scale("MiB", MIB), Scale("GiB", GIB)),
    "bytes_per_s": (Scale("KiB/s", KIB), Scale("MiB/s", MIB)),
    "objects_per_s": (Scale("objects/s", 1),),
    "requests_per_s": (Scale("requests/s", 1),),
    "ns": _times(""),
    "us": (Scale("µs", 1), Scale("ms", 1e3), Scale("s", 1e6)),
    "ns_per_gib": _times("/GiB"),
    "ns_per_object": _times("/object"),
    "usd_per_million": (Scale("USD/million", 1),),
    "count": (Scale("", 1),),
}


def scale_of(unit: str, value: float) -> Scale:
    """Return the largest scale of `unit` in which `value` is at least 1, or else the smallest."""
    ladder = _LADDERS[unit]
    return next((scale for scale in reversed(ladder) if abs(value) >= scale.divisor), ladder[0])


def number(value: float, digits: int = 3) -> str:
    """Write `value` with `digits` significant digits, without an exponent: 0.0123, 1.23, 1,230."""
    if value == 0:
        return "0"
    # Rounded before its digits are counted: 9.996 is 10.0, not 10.00.
    rounded = float(f"{value:.{digits - 1}e}")
    decimals = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(decimals, 0)}f}"


def count(value: float) -> str:
    """Write a count in full: one that was counted is exact. A median may fall between two."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def in_scale(value: float, unit: str, scale: Scale, digits: int = 3) -> str:
    """Write the number alone, for where the unit stands elsewhere."""
    return count(value) if unit == "count" else number(value / scale.divisor, digits)


def quantity(value: float, unit: str, scale: Scale | None = None, digits: int = 3) -> str:
    """Write the number and its unit."""
    chosen = scale or scale_of(unit, value)
    return f"{in_scale(value, unit, chosen, digits)} {chosen.label}".rstrip()


def size(byte_count: float) -> str:
    return quantity(byte_count, "bytes")


def rate(bytes_per_s: float) -> str:
    return quantity(bytes_per_s, "bytes_per_s")


def duration(duration_ns: float) -> str:
    return quantity(duration_ns, "ns")


def ratio(value: float) -> str:
    """Write a ratio with two digits: a third would claim more than a median of a few trials knows."""
    return f"{number(value, 2)}x"
