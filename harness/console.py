"""What a person sees while work is under way: a live line on a terminal, one line a step in a log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from harness.model import Failed, Measured, Observed, Record, Unsupported

LOG_PERIOD_S = 10.0
"""Least time between two progress lines where there is no terminal; failures are told at once."""


class Progress:
    """Progress of one run. It draws between trials only: nothing of it runs while a timed window is open."""

    def __init__(self, console: Console, total: int, done: int) -> None:
        self._console = console
        self._total = total
        self.done = self._done_before = done
        self._started_s = time.monotonic()
        self._logged_s = self._started_s
        self._failed = 0
        self._live: Live | None = None

    @contextmanager
    def shown(self) -> Iterator[Progress]:
        if not self._console.is_terminal:
            yield self
            return
        with Live(self._line(None), console=self._console, auto_refresh=False, transient=True) as self._live:
            yield self

    def advance(self, record: Record) -> None:
        self.done += 1
        if isinstance(record.outcome, Failed):
            self._failed += 1
            self._console.print(Text(_failure_line(record), style="red"))
        if self._live is not None:
            self._live.update(self._line(record), refresh=True)
        elif time.monotonic() - self._logged_s >= LOG_PERIOD_S or self.done == self._total:
            self._logged_s = time.monotonic()
            self._console.print(self._line(record))

    def _line(self, record: Record | None) -> Text:
        what = f"  {record.trial.case.key}  {record.trial.client}  {_result(record)}" if record else ""
        failed = f", {self._failed} failed" if self._failed else ""
        return Text(
            f"{self.done}/{self._total} trials{failed}, {self._left()}{what}", no_wrap=True, overflow="ellipsis"
        )

    def _left(self) -> str:
        finished = self.done - self._done_before
        if finished < 5:
            return "time left: not known yet"
        per_trial_s = (time.monotonic() - self._started_s) / finished
        left_s = round(per_trial_s * (self._total - self.done))
        return f"{left_s // 60} min {left_s % 60:02d} s left"


def _result(record: Record) -> str:
    match record.outcome:
        case Measured(measurement=measurement):
            return f"{measurement.wall_ns / 1e6:,.1f} ms"
        case Observed(answer=answer):
            return answer
        case Unsupported():
            return "unsupported"
        case Failed(kind=kind):
            return f"failed: {kind}"


def _failure_line(record: Record) -> str:
    assert isinstance(record.outcome, Failed)
    trial, outcome = record.trial, record.outcome
    return f"failed: {trial.case.key} {trial.client} block {trial.block}: {outcome.kind}: {outcome.reason[:300]}"
