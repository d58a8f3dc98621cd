"""What the harness measured of the known client, and of its own links, held against what is true."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from harness import units
from harness.lab.probe import LinkFigures
from harness.model import Case, Failed, Measured, Measurement, Noun, Record
from harness.statistics import Spread, median, spread

MILLISECOND_NS = 1_000_000

RSS_TOLERANCE = 0.01
CPU_TOLERANCE = 0.01
CPU_TOLERANCE_NS = 2 * MILLISECOND_NS
"""The larger of the two counts."""
WALL_TOLERANCE_NS = MILLISECOND_NS
WINDOW_TOLERANCE_NS = 50_000
DELAY_TOLERANCE_US = 2000
RATE_TOLERANCE = 0.05
ABORT_LEVEL = 0.999
"""A link aborts as it should when its count lies within the middle 99.9 % of the binomial distribution."""


class Check(Noun, frozen=True):
    """One figure that is known, and what was measured of it."""

    subject: str
    figure: str
    unit: str
    """A unit that `harness.units` knows."""
    true: float
    measured: Spread
    low: float
    """The least that is allowed."""
    high: float
    exact: bool
    """Every single value must lie within the bounds; else their median must."""

    @property
    def ok(self) -> bool:
        lowest, highest = (
            (self.measured.low, self.measured.high) if self.exact else (self.measured.median, self.measured.median)
        )
        return self.low <= lowest and highest <= self.high


@dataclass(frozen=True)
class _Truth:
    figure: str
    unit: str
    of: Callable[[Measurement], float]
    true: Callable[[Case], float]
    tolerance: Callable[[float], float]
    exact: bool = False


def _rss_increase(m: Measurement) -> float:
    return m.rss_peak_bytes - m.rss_base_bytes


def _threads_added(m: Measurement) -> float:
    return m.threads_peak - m.threads_base


def _milliseconds(case: Case) -> float:
    return case.objects.count * MILLISECOND_NS


def _requests(method: str) -> Callable[[Measurement], float]:
    def of(m: Measurement) -> float:
        # Any other request would be one too many.
        others = m.requests is None or set(m.requests.by_method_and_status) != {f"{method} 200"}
        return -1 if others or m.requests is None else m.requests.total

    return of


def _exactly(_true: float) -> float:
    return 0.0


def _cpu_tolerance(true: float) -> float:
    return max(CPU_TOLERANCE * true, CPU_TOLERANCE_NS)


_TRUTHS: dict[str, tuple[_Truth, ...]] = {
    "allocate": (
        _Truth(
            "peak RSS, increase",
            "bytes",
            _rss_increase,
            lambda case: case.objects.size_bytes,
            lambda true: RSS_TOLERANCE * true,
        ),
    ),
    "hold_threads": (
        _Truth("threads added", "count", _threads_added, lambda case: case.settings.concurrency, _exactly, exact=True),
    ),
    "burn_cpu": (_Truth("CPU", "ns", lambda m: m.cpu_ns, _milliseconds, _cpu_tolerance),),
    "pause": (_Truth("wall time", "ns", lambda m: m.wall_ns, _milliseconds, lambda _: WALL_TOLERANCE_NS),),
    "cat": (
        _Truth("requests", "count", _requests("GET"), lambda case: case.objects.count, _exactly, exact=True),
        _Truth(
            "bytes sent by the link",
            "bytes",
            lambda m: m.requests.sent_bytes if m.requests else -1,
            lambda case: case.objects.total_bytes,
            _exactly,
            exact=True,
        ),
    ),
    "pipe": (
        _Truth("requests", "count", _requests("PUT"), lambda case: case.objects.count, _exactly, exact=True),
        _Truth(
            "bytes received by the link",
            "bytes",
            lambda m: m.requests.received_bytes if m.requests else -1,
            lambda case: case.objects.total_bytes,
            _exactly,
            exact=True,
        ),
    ),
}


def check_known(records: Iterable[Record], known: str, null: str) -> list[Check]:
    """Compare the measured trials of the known client with its truths, and the null client's window with its bound.

    A trial that failed leaves a check without enough values, which `failures` tells.
    """
    by_case: dict[Case, list[Measurement]] = {}
    windows: list[float] = []
    for record in records:
        if not isinstance(record.outcome, Measured):
            continue
        if record.trial.client == known:
            by_case.setdefault(record.trial.case, []).append(record.outcome.measurement)
        elif record.trial.client == null:
            windows.append(record.outcome.measurement.wall_ns)
    checks = [_check(truth, case, by_case[case]) for case in by_case for truth in _TRUTHS[case.operation]]
    if windows:
        checks.append(
            Check("nothing at all", "wall time", "ns", 0, spread(windows), 0, WINDOW_TOLERANCE_NS, exact=False)
        )
    return checks


def _check(truth: _Truth, case: Case, measurements: Sequence[Measurement]) -> Check:
    true = truth.true(case)
    allowed = truth.tolerance(true)
    # A pause can't be shorter than it was.
    low = true if truth.figure == "wall time" else true - allowed
    values = [truth.of(m) for m in measurements]
    return Check(case.scenario, truth.figure, truth.unit, true, spread(values), low, true + allowed, truth.exact)


def failures(records: Iterable[Record]) -> list[str]:
    return [
        f"{record.trial.client} on {record.trial.case.key}: {record.outcome.reason}"
        for record in records
        if isinstance(record.outcome, Failed)
    ]


def check_link(figures: LinkFigures) -> list[Check]:
    """Compare a link's figures with its settings."""
    link = figures.link
    base = median(figures.direct_first_byte_us)
    delays = [value - base for value in figures.first_byte_us]
    set_us = link.delay_ms * 1000
    checks = [
        Check(
            f"link {link.name}",
            "delay",
            "us",
            set_us,
            spread(delays),
            set_us - DELAY_TOLERANCE_US,
            set_us + DELAY_TOLERANCE_US,
            exact=False,
        )
    ]
    for direction, rates in figures.rates_bytes_per_s.items():
        rate = float(link.stream_rate_bytes_per_s or 0)
        bounds = (rate * (1 - RATE_TOLERANCE), rate * (1 + RATE_TOLERANCE))
        checks.append(
            Check(
                f"link {link.name}", f"{direction}, a stream", "bytes_per_s", rate, spread(rates), *bounds, exact=False
            )
        )
    low, high = _binomial_bounds(figures.request_count, link.abort_percent / 100)
    expected = figures.request_count * link.abort_percent / 100
    aborted = Spread(figures.aborted_count, figures.aborted_count, figures.aborted_count, figures.request_count)
    checks.append(Check(f"link {link.name}", "aborts", "count", expected, aborted, low, high, exact=True))
    return checks


def _binomial_bounds(count: int, share: float) -> tuple[float, float]:
    """Return the least and the most of `count` that are not too rare, each end with half of what is left out."""
    beyond = (1 - ABORT_LEVEL) / 2
    shares = [math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(count + 1)]
    below = list(itertools.accumulate(shares))
    low = next(k for k, cumulated in enumerate(below) if cumulated > beyond)
    high = next(k for k, cumulated in enumerate(below) if cumulated >= 1 - beyond - 1e-12)
    return low, high


HEADERS = ("what", "true", "median", "least to most, n", "allowed", "")
_DIGITS = 4
"""A tolerance of one per cent would vanish in three."""


def rows(checks: Iterable[Check]) -> list[tuple[str, ...]]:
    """Return the checks as rows of words, one for each of HEADERS."""
    return [_row(check) for check in checks]


def _row(check: Check) -> tuple[str, ...]:
    scale = units.scale_of(check.unit, check.true or check.high)

    def words(value: float) -> str:
        return units.in_scale(value, check.unit, scale, _DIGITS)

    seen = check.measured
    allowed = words(check.low) if check.low == check.high else f"{words(check.low)} to {words(check.high)}"
    return (
        f"{check.subject}: {check.figure}",
        units.quantity(check.true, check.unit, scale, _DIGITS),
        words(seen.median),
        f"{words(seen.low)} to {words(seen.high)}, n={seen.n}",
        allowed,
        "ok" if check.ok else "FAILED",
    )
