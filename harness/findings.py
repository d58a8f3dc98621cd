"""What a trial's facts answer, where the question isn't how fast: one judge an operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from harness.model import Measurement, Observed, Trial

Facts: TypeAlias = dict[str, int | float | str | None]


@dataclass(frozen=True)
class Seen:
    """What is known of a trial when its question is to be answered."""

    trial: Trial
    facts: Facts
    """As the worker reported them; `raised` is what the client raised."""
    measurement: Measurement
    applied: Mapping[str, int | str | None]

    def answer(self, answer: str, good: bool | None, evidence: str, **more: float | str | None) -> Observed:
        facts = {**self.facts, **more}
        return Observed(answer, good, evidence, facts, self.measurement, dict(self.applied))

    def number(self, name: str) -> float:
        """Return a fact that must be a number; 0 where the client didn't come so far."""
        value = self.facts.get(name)
        return value if isinstance(value, int | float) else 0

    def text(self, name: str) -> str:
        value = self.facts.get(name)
        return "" if value is None else str(value)


def _unread_bodies(seen: Seen) -> Observed:
    """Say what becomes of a third request while two bodies are left unread on a pool of two, and after closing them."""
    if seen.text("raised"):
        return seen.answer("raised", None, seen.text("raised"))
    waited_ms, error, after_ms = seen.number("third_ms"), seen.text("third_error"), seen.number("after_close_ms")
    afterwards = (
        f"; after closing them it took {after_ms:.0f} ms" if seen.facts.get("after_close_ms") is not None else ""
    )
    if error == "limit":
        return seen.answer(
            "waits on", False, f"the third request still waited after {waited_ms / 1000:.1f} s{afterwards}"
        )
    if error:
        return seen.answer(
            "times out", None, f"the third request raised {error} after {waited_ms / 1000:.1f} s{afterwards}"
        )
    return seen.answer("goes on", None, f"the third request took {waited_ms:.0f} ms with two bodies unread{afterwards}")


def _cat_throttled(seen: Seen) -> Observed:
    """Say what arrives when some requests are answered 503, after how many requests and how long a wait."""
    if seen.text("raised"):
        return seen.answer("raised", False, seen.text("raised"))
    asked, arrived = seen.number("asked"), seen.number("arrived")
    sent = seen.measurement.requests.total if seen.measurement.requests else None
    amplification = None if sent is None or not asked else sent / asked
    told = "" if amplification is None else f", {amplification:.2f} requests sent for each asked"
    errors = f"; {seen.text('errors')}" if seen.text("errors") else ""
    evidence = (
        f"{arrived:.0f} of {asked:.0f} arrived in {seen.measurement.wall_ns / 1e9:.1f} s{told}, "
        f"longest wait {seen.number('longest_ms') / 1000:.1f} s{errors}"
    )
    answer = "all arrived" if arrived == asked else "some failed"
    more = {"wall_ms": seen.measurement.wall_ns // 10**6, "requests_sent": sent, "amplification_ratio": amplification}
    return seen.answer(answer, arrived == asked, evidence, **more)


def _incomplete_upload(seen: Seen) -> Observed:
    """Say whether an upload that is neither completed nor aborted stays listed, and until when."""
    if seen.text("raised"):
        return seen.answer("raised", None, seen.text("raised"))
    before, later, after = (seen.number(f"listed_{when}") for when in ("at_once", "later", "after_abort"))
    evidence = f"listed {before:.0f} at once, {later:.0f} after {seen.number('waited_ms') / 1000:.0f} s, {after:.0f} after abort"
    stays = before == later == 1 and after == 0
    return seen.answer("stays until aborted" if stays else "listed otherwise", None, evidence)


def _refused_upload(seen: Seen) -> Observed:
    """Say with which code an upload is refused that breaks a rule of the store, if it is."""
    if seen.text("raised"):
        return seen.answer("raised", None, seen.text("raised"))
    code = seen.text("code")
    if not code:
        return seen.answer("taken", None, f"the store took it: {seen.text('what')}")
    return seen.answer(code, None, f"{seen.text('what')}: {code}, at {seen.text('refused_at')}")


JUDGES: dict[str, Callable[[Seen], Observed]] = {
    "unread_bodies": _unread_bodies,
    "cat_throttled": _cat_throttled,
    "incomplete_upload": _incomplete_upload,
    "small_parts": _refused_upload,
    "too_many_parts": _refused_upload,
}
"""By operation; an operation of the kind `finding` has one."""
