"""Requirements: what no client may do, held against what was seen of each. One bad answer breaks one; nobody averages faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from harness import plan
from harness.model import Case, Failed, Observed, Phase, Record, Requirement, RunSet


class Holds(StrEnum):
    MET = "pass"
    BROKEN = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Held:
    """One requirement, held against one client."""

    requirement: Requirement
    client: str
    verdict: Holds
    n: int
    """Answers that were looked at."""
    broken: int
    """Of them, those that break it."""
    case: Case | None
    """Where it was broken first."""
    reason: str
    """The evidence of a broken one, or why nothing can be said."""


def hold(run_set: RunSet, requirements: tuple[Requirement, ...]) -> tuple[Held, ...]:
    """Hold each requirement against each client of the run, in the run's order."""
    clients = [client.name for client in run_set.run.clients if client.role == "client"]
    return tuple(_held(run_set, each, client) for each in requirements for client in clients)


def _held(run_set: RunSet, requirement: Requirement, client: str) -> Held:
    records = list(_records(run_set, requirement, client))
    answers = [(record.trial.case, record.outcome) for record in records if isinstance(record.outcome, Observed)]
    broken = [(case, each) for case, each in answers if _breaks(requirement, each)]
    if broken:
        case, worst = broken[0]
        return Held(
            requirement, client, Holds.BROKEN, len(answers), len(broken), case, f"{worst.answer}: {worst.evidence}"
        )
    failed = [record.outcome for record in records if isinstance(record.outcome, Failed)]
    if failed:
        why = f"{len(failed)} trials failed, so nothing was seen of them: {failed[0].reason}"
        return Held(requirement, client, Holds.INCONCLUSIVE, len(answers), 0, None, why)
    if not answers:
        return Held(requirement, client, Holds.INCONCLUSIVE, 0, 0, None, "nothing of it was seen")
    return Held(requirement, client, Holds.MET, len(answers), 0, None, "")


def _records(run_set: RunSet, requirement: Requirement, client: str) -> Iterator[Record]:
    for record in run_set.records:
        trial = record.trial
        if trial.client == client and trial.phase is Phase.MEASURED and plan.matches(trial.case, requirement.cases):
            yield record


def _breaks(requirement: Requirement, observed: Observed) -> bool:
    return observed.answer in requirement.broken_by if requirement.broken_by else observed.good is False
