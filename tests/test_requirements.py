"""What was seen of a client is told with its evidence, and one bad answer breaks a requirement, however many are good."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import decide, decisions, history
from harness.errors import InvalidFileError
from harness.model import Decision, Failed, FailureKind, Observed, Outcome, Phase, RunSet
from harness.report.build import build
from harness.report.markdown import render
from harness.report.verdicts import decision_sections
from harness.report.view import View
from harness.requirements import Holds
from harness.summary import summarise
from tests.factories import make_case, make_client, make_record, make_run

CASE = make_case("unread_bodies", 3, 1 << 20)
FILE = """
name = "case"
suite = "safety"
question = "Is it safe?"
otherwise = "Mend one first."

[requirement.whole]
title = "No mixed bytes"
cases = ["unread_bodies/*"]
{broken_by}
"""


def decision(tmp_path: Path, broken_by: str = "") -> Decision:
    path = tmp_path / "case.toml"
    path.write_text(FILE.format(broken_by=broken_by), encoding="utf-8")
    return decisions.load(path)


def answer(answer: str, good: bool | None, evidence: str = "as seen", **facts: float) -> Observed:
    return Observed(answer, good, evidence, dict(facts))


def run_of(**outcomes: list[Outcome]) -> RunSet:
    records = [
        make_record(0, outcome, phase=Phase.MEASURED, block=block, position=place, client=client, case=CASE)
        for place, (client, of_client) in enumerate(outcomes.items())
        for block, outcome in enumerate(of_client, start=1)
    ]
    clients = tuple(make_client(name) for name in outcomes)
    return RunSet(make_run(clients, (CASE,), trial_count=len(records)), tuple(records))


def verdicts(run_set: RunSet, chosen: Decision) -> dict[str, Holds]:
    return {each.client: each.verdict for each in decide.decide(run_set, chosen).held}


def test_one_bad_answer_breaks_a_requirement_and_shows_its_evidence(tmp_path: Path) -> None:
    good, bad = answer("new", True), answer("mixed", False, "7 of 24 MiB are of the old object")
    run_set = run_of(ours=[good, good, bad], theirs=[good, good, good])
    decided = decide.decide(run_set, decision(tmp_path))
    assert verdicts(run_set, decision(tmp_path)) == {"ours": Holds.BROKEN, "theirs": Holds.MET}
    broken = decided.held[0]
    assert (broken.n, broken.broken, broken.case) == (3, 1, CASE)
    text = render(View("t", summarise(run_set), decision_sections(decided)))
    assert "fail, 1 of 3" in text
    assert "7 of 24 MiB are of the old object" in text
    assert decided.recommendation == "Every requirement is met by theirs; one or more are broken by ours."


def test_without_answers_nothing_is_said_of_a_client(tmp_path: Path) -> None:
    failed = Failed(FailureKind.KILLED, "ended by signal 9", "")
    run_set = run_of(ours=[answer("new", True), failed], theirs=[])
    assert set(verdicts(run_set, decision(tmp_path)).values()) == {Holds.INCONCLUSIVE}
    told = decide.decide(run_set, decision(tmp_path)).recommendation
    assert told == "No client meets every requirement; of ours, theirs it can't be said. Mend one first."


def test_a_requirement_may_name_the_answers_that_break_it(tmp_path: Path) -> None:
    run_set = run_of(ours=[answer("slow", False)], theirs=[answer("mixed", None)])
    named = decision(tmp_path, 'broken_by = ["mixed"]')
    assert verdicts(run_set, named) == {"ours": Holds.MET, "theirs": Holds.BROKEN}


@pytest.mark.parametrize("change", ['broken_by = "mixed"', "extra = 1", "broken_by = []"])
def test_a_bad_requirement_is_told_with_file_and_field(tmp_path: Path, change: str) -> None:
    with pytest.raises(InvalidFileError, match=r"requirement\.whole"):
        decision(tmp_path, change)


def test_answers_stand_in_reports_with_counts_evidence_and_the_spread_of_their_figures() -> None:
    seen: list[Outcome] = [
        answer("goes on", None, wait_ms=3.0),
        answer("goes on", None, wait_ms=5.0),
        answer("times out", False, "it waited | 3 s", wait_ms=3000.0),
    ]
    text = render(build(run_of(ours=seen)))
    assert "goes on (2), ✗ times out (1)" in text
    assert "it waited &#124; 3 s" in text
    assert "5.00 (3.00 to 3,000)" in text
    assert "## Throughput" not in text


def test_an_entry_of_answers_alone_has_them_as_its_main_numbers(tmp_path: Path) -> None:
    run_set = run_of(ours=[answer("mixed", False)])
    text = history.add(run_set, "What goes wrong", tmp_path).read_text(encoding="utf-8")
    main = text.partition("<!-- main numbers -->")[2]
    assert "✗ mixed" in main
