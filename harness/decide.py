"""Expectations -> verdicts -> recommendation: the only place that decides.

Each expectation is held against each case that it names. Its verdict rests on the interval of the paired ratio; all tests
of a decision share one error by Holm, so that 5 % of decisions, not of lines, hold a wrong "confirmed" or "refuted".
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from harness import control, plan, requirements, validity
from harness.compare import FAILED_SHARE_MAX, Comparison, compare_pair
from harness.decisions import DISTRIBUTIONS
from harness.model import Case, Criterion, Decision, Expectation, RunSet
from harness.requirements import Held, Holds
from harness.statistics import (
    MINIMUM_BLOCKS,
    Interval,
    LogRatio,
    blocks_needed,
    holm,
    level_per_look,
    p_at_least,
    p_at_most,
    p_within,
)
from harness.summary import summarise

LOOKS = 2
"""Of a run that was declared extendable: one after its blocks, one after the extension."""


class Verdict(StrEnum):
    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"
    INVALID = "invalid"
    """The numbers can't carry a verdict, however clear they look; the reason says why."""


@dataclass(frozen=True)
class Judgement:
    """One expectation on one case."""

    expectation: Expectation
    case: Case | None
    """None for what no case of the run matches, and for a metric of the clients themselves."""
    ratio: Interval | None
    """Plain, at the run's level for one look."""
    verdict: Verdict
    reason: str
    blocks_needed: int | None = None
    """For an inconclusive one: blocks in all that would settle it in four runs of five, if the truth is as seen."""
    against: Case | None = None
    """The denominator's, where it is another than `case`."""


@dataclass(frozen=True)
class Outcome:
    """What became of an expectation over all of its cases, or of a criterion."""

    name: str
    title: str
    verdict: Verdict


@dataclass(frozen=True)
class Decided:
    """A decision held against a run."""

    decision: Decision
    run: str
    level: float
    looks: int
    judgements: tuple[Judgement, ...]
    expectations: tuple[Outcome, ...]
    criteria: tuple[Outcome, ...]
    recommendation: str
    """Empty while an open criterion stands before one that holds."""
    open_because: str
    held: tuple[Held, ...] = ()
    """The decision's requirements, each against each client."""

    @property
    def undecided_cases(self) -> tuple[Case, ...]:
        """Return the cases that more blocks may settle, those of denominators included."""
        open_ones = [each for each in self.judgements if each.verdict is Verdict.INCONCLUSIVE]
        wanted = [case for each in open_ones for case in (each.case, each.against) if case is not None]
        return tuple(dict.fromkeys(wanted))


@dataclass(frozen=True)
class _Test:
    """An expectation on a case before all tests are judged together."""

    expectation: Expectation
    case: Case | None
    comparison: Comparison | None
    obstacle: Verdict | None
    reason: str
    p_confirmed: float = 1.0
    p_refuted: float = 1.0
    against: Case | None = None

    @property
    def p_value(self) -> float:
        """Two-sided: either answer would be taken."""
        return min(1.0, 2 * min(self.p_confirmed, self.p_refuted))


def decide(run_set: RunSet, decision: Decision) -> Decided:
    """Hold a decision against a run."""
    looks = LOOKS if run_set.run.decision is not None else 1
    level = level_per_look(looks)
    bound, session = validity.store_bound(summarise(run_set)), control.find(run_set)
    tests = [
        test
        for expectation in decision.expectations
        for test in _tests(run_set, expectation, level, bound | _control_misses(run_set, session, expectation.metric))
    ]
    conclusive = [test for test in tests if test.obstacle is None]
    adjusted = dict(zip(map(id, conclusive), holm([test.p_value for test in conclusive]), strict=True))
    judgements = tuple(_judge(test, adjusted.get(id(test), 1.0), level, len(conclusive)) for test in tests)
    expectations = tuple(_over_cases(each, judgements) for each in decision.expectations)
    criteria = _criteria(decision.criteria, expectations)
    held = requirements.hold(run_set, decision.requirements)
    recommendation, why_open = _recommend(decision, criteria) if criteria else _required(decision, held)
    return Decided(
        decision, run_set.run.id, level, looks, judgements, expectations, criteria, recommendation, why_open, held
    )


# --- tests -----------------------------------------------------------------------------------------------------------


def _tests(run_set: RunSet, expectation: Expectation, level: float, obstacles: Mapping[Case, str]) -> Iterator[_Test]:
    present = {client.name for client in run_set.run.clients}
    absent = [label for label in (expectation.numerator, expectation.denominator) if label not in present]
    if absent:
        yield _Test(expectation, None, None, Verdict.INCONCLUSIVE, f"{' and '.join(absent)} took no part")
        return
    if expectation.metric == DISTRIBUTIONS:
        yield _count_test(run_set, expectation)
        return
    cases = [case for case in run_set.run.cases if plan.matches(case, expectation.cases)]
    others = [case for case in run_set.run.cases if plan.matches(case, (expectation.against,))]
    missing = [] if cases else list(expectation.cases)
    missing += [] if others or not expectation.against else [expectation.against]
    if missing:
        yield _Test(expectation, None, None, Verdict.INCONCLUSIVE, f"no case of this run is like {', '.join(missing)}")
        return
    if len(others) > 1:
        keys = ", ".join(case.key for case in others)
        yield _Test(
            expectation, None, None, Verdict.INCONCLUSIVE, f"{expectation.against} names more than one case: {keys}"
        )
        return
    against = others[0] if others else None
    for case in cases:
        obstacle = obstacles.get(case, "") or (obstacles.get(against, "") if against else "")
        yield dataclasses.replace(_case_test(run_set, expectation, case, against, obstacle, level), against=against)


def _control_misses(run_set: RunSet, session: control.Control | None, metric: str) -> dict[Case, str]:
    """Return why no case can carry a verdict on this metric, where the control differs from itself in its figure."""
    figure = control.figure_of(metric) if metric != DISTRIBUTIONS else None
    for ratio in session.missed if session else ():
        if ratio.figure == figure:
            interval = ratio.interval
            words = f"the control differs from itself in {figure}: {interval.estimate:.3f} ({interval.low:.3f} to {interval.high:.3f})"
            return dict.fromkeys(run_set.run.cases, words)
    return {}


def _case_test(
    run_set: RunSet, expectation: Expectation, case: Case, against: Case | None, obstacle: str, level: float
) -> _Test:
    sides = (expectation.numerator, expectation.denominator)
    found = compare_pair(run_set, case, expectation.metric, *sides, level, against)
    if found is None:
        return _Test(expectation, case, None, Verdict.INCONCLUSIVE, "no such figure in this case")
    for side in (found.numerator, found.denominator):
        if side.failed > FAILED_SHARE_MAX * side.attempted:
            why = f"{side.failed} of {side.attempted} trials of {side.client} failed"
            return _Test(expectation, case, found, Verdict.INVALID, why)
    if obstacle:
        return _Test(expectation, case, found, Verdict.INVALID, obstacle)
    if found.log_ratio is None or found.n < MINIMUM_BLOCKS:
        return _Test(
            expectation, case, found, Verdict.INCONCLUSIVE, f"{found.n} blocks; at least {MINIMUM_BLOCKS} are needed"
        )
    return _Test(expectation, case, found, None, "", *_p_values(expectation, found.log_ratio))


def _p_values(expectation: Expectation, ratio: LogRatio) -> tuple[float, float]:
    """Return the one-sided p-values that would confirm and refute."""
    threshold = expectation.threshold
    if expectation.rule == "at-least":
        return p_at_least(ratio, threshold), p_at_most(ratio, threshold)
    if expectation.rule == "at-most":
        return p_at_most(ratio, threshold), p_at_least(ratio, threshold)
    beyond = min(p_at_least(ratio, 1 + threshold), p_at_most(ratio, 1 / (1 + threshold)))
    return p_within(ratio, threshold), beyond


def _count_test(run_set: RunSet, expectation: Expectation) -> _Test:
    """Compare numbers of packages, which are exact: each client's own project is left out by its environment."""
    counts = {client.name: len(client.packages) for client in run_set.run.clients}
    own, other = counts[expectation.numerator], counts[expectation.denominator]
    if not own or not other:
        return _Test(expectation, None, None, Verdict.INCONCLUSIVE, "a client has no packages")
    exact = LogRatio(math.log(own / other), 0.0, 1, 1)
    confirmed, _ = _p_values(expectation, exact)
    verdict = Verdict.CONFIRMED if confirmed == 0 else Verdict.REFUTED
    return _Test(expectation, None, None, verdict, f"{own} to {other}")


def _judge(test: _Test, adjusted_p: float, level: float, test_count: int) -> Judgement:
    comparison = test.comparison
    ratio = comparison.ratio if comparison else None
    if test.obstacle is not None:
        needed = MINIMUM_BLOCKS if test.obstacle is Verdict.INCONCLUSIVE and comparison and comparison.n else None
        return Judgement(test.expectation, test.case, ratio, test.obstacle, test.reason, needed, test.against)
    # The equivalence test may confirm and the interval yet lie beside 1: the smaller p-value is the answer.
    if adjusted_p <= 1 - level:
        verdict = Verdict.CONFIRMED if test.p_confirmed <= test.p_refuted else Verdict.REFUTED
        return Judgement(test.expectation, test.case, ratio, verdict, "", None, test.against)
    assert comparison is not None
    assert comparison.log_ratio is not None
    alone = test.p_value <= 1 - level
    reason = (
        f"clear by itself, but not among {test_count} tests together" if alone else "the interval holds the threshold"
    )
    # As sure as the strictest of all tests must be: what is still open after Holm's first steps needs a little less.
    strictest = 1 - (1 - level) / test_count
    needed = blocks_needed(comparison.log_ratio.log_sd, _distance(test.expectation, comparison.log_ratio), strictest)
    return Judgement(test.expectation, test.case, ratio, Verdict.INCONCLUSIVE, reason, needed, test.against)


def _distance(expectation: Expectation, ratio: LogRatio) -> float:
    """Return how far the mean lies from the nearest threshold, in logarithms."""
    if expectation.rule == "same-within":
        return math.log1p(expectation.threshold) - abs(ratio.mean)
    return ratio.mean - math.log(expectation.threshold)


# --- from verdicts to a recommendation -------------------------------------------------------------------------------


def _over_cases(expectation: Expectation, judgements: Sequence[Judgement]) -> Outcome:
    """One refuted case refutes; to be confirmed, an expectation must be in every case."""
    verdicts = [each.verdict for each in judgements if each.expectation is expectation]
    order = (Verdict.REFUTED, Verdict.INVALID, Verdict.INCONCLUSIVE)
    verdict = next((each for each in order if each in verdicts), Verdict.CONFIRMED)
    return Outcome(expectation.name, expectation.title, verdict)


def _criteria(criteria: Sequence[Criterion], expectations: Sequence[Outcome]) -> tuple[Outcome, ...]:
    known = {each.name: each.verdict for each in expectations}
    found = []
    for criterion in criteria:
        parts = [_any_of(known, criterion.any_of)] if criterion.any_of else []
        parts += [_all_of(known, criterion.all_of)] if criterion.all_of else []
        known[criterion.name] = verdict = _all(parts)
        found.append(Outcome(criterion.name, criterion.title, verdict))
    return tuple(found)


def _any_of(known: Mapping[str, Verdict], names: Sequence[str]) -> Verdict:
    verdicts = {known[name] for name in names}
    if Verdict.CONFIRMED in verdicts:
        return Verdict.CONFIRMED
    return Verdict.REFUTED if verdicts == {Verdict.REFUTED} else Verdict.INCONCLUSIVE


def _all_of(known: Mapping[str, Verdict], names: Sequence[str]) -> Verdict:
    return _all([known[name] for name in names])


def _all(verdicts: Sequence[Verdict]) -> Verdict:
    if Verdict.REFUTED in verdicts:
        return Verdict.REFUTED
    return Verdict.CONFIRMED if set(verdicts) == {Verdict.CONFIRMED} else Verdict.INCONCLUSIVE


def _recommend(decision: Decision, criteria: Sequence[Outcome]) -> tuple[str, str]:
    """Return the recommendation of the first criterion that holds, or why none can be given yet."""
    for criterion, outcome in zip(decision.criteria, criteria, strict=True):
        if not criterion.recommendation or outcome.verdict is Verdict.REFUTED:
            continue
        if outcome.verdict is Verdict.CONFIRMED:
            return criterion.recommendation, ""
        return "", f"it is open whether this holds: {criterion.title}"
    return decision.otherwise, ""


def _required(decision: Decision, held: Sequence[Held]) -> tuple[str, str]:
    """Name the clients that meet every requirement, those that break one, and those of which it can't be said."""
    by_client = {each.client: [other.verdict for other in held if other.client == each.client] for each in held}
    broken = [client for client, verdicts in by_client.items() if Holds.BROKEN in verdicts]
    met = [client for client, verdicts in by_client.items() if set(verdicts) == {Holds.MET}]
    left = [client for client in by_client if client not in {*broken, *met}]
    told = [f"every requirement is met by {', '.join(met)}" if met else "no client meets every requirement"]
    told += [f"one or more are broken by {', '.join(broken)}"] if broken else []
    told += [f"of {', '.join(left)} it can't be said"] if left else []
    words = "; ".join(told)
    return f"{words[:1].upper()}{words[1:]}." + ("" if met else f" {decision.otherwise}"), ""


# --- for scripts -----------------------------------------------------------------------------------------------------


def as_data(decided: Decided) -> dict[str, Any]:
    """Return all of it as plain data for JSON, unrounded."""
    judgements = [
        {
            "expectation": each.expectation,
            "case": each.case.key if each.case else None,
            "against": each.against.key if each.against else None,
            "ratio": each.ratio,
            "verdict": each.verdict,
            "reason": each.reason,
            "blocks_needed": each.blocks_needed,
        }
        for each in decided.judgements
    ]
    document = {
        "decision": decided.decision.name,
        "question": decided.decision.question,
        "run": decided.run,
        "level": decided.level,
        "looks": decided.looks,
        "recommendation": decided.recommendation or None,
        "open_because": decided.open_because or None,
        "criteria": decided.criteria,
        "expectations": decided.expectations,
        "judgements": judgements,
        "requirements": decided.held,
    }
    plain: dict[str, Any] = msgspec.to_builtins(document)
    return plain
