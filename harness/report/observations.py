"""Sections of a report on questions that aren't of speed: what was seen of each client, and what shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from harness import units
from harness.model import Case, Observed
from harness.report.view import (
    NOTHING,
    AbsentCell,
    Cell,
    FailedCell,
    Row,
    Section,
    Table,
    TextCell,
    UnsupportedCell,
    plain,
)
from harness.statistics import spread
from harness.summary import Result, Summary

MARKS = {True: "✓ ", False: "✗ ", None: ""}


def observation_sections(summary: Summary) -> Iterator[Section]:
    """Yield nothing for a run that asked no such question."""
    table = observation_table(summary, summary.run.cases)
    if table.rows:
        yield Section("What was seen", tables=(table, _evidence_table(summary)))
        figures = tuple(_figure_rows(summary))
        if figures:
            caption = "Median (least to most) of the n trials of each answer's numbers."
            yield Section(
                "Figures of what was seen",
                place="document",
                tables=(Table("Figures of what was seen", caption, "case, client", ("figure", "value", "n"), figures),),
            )


def observation_table(summary: Summary, cases: Sequence[Case]) -> Table:
    asked = [case for case in cases if any(summary.results[case, client.name].observed for client in summary.clients)]
    clients = [
        client.name for client in summary.clients if any(summary.results[case, client.name].planned for case in asked)
    ]
    rows = [_row(summary, case, clients) for case in asked]
    caption = (
        "What each client did, in how many of n trials. ✗ is what nobody should have to live with, ✓ is as it must be; "
        "without a mark it is a fact."
    )
    return Table("What was seen", caption, "case", tuple(map(plain, clients)), tuple(rows))


def worst(observed: Sequence[Observed]) -> Observed:
    """Return the answer that a reader should see first: a bad one, if there is any."""
    return min(observed, key=lambda each: {False: 0, None: 1, True: 2}[each.good])


def answers(observed: Sequence[Observed]) -> str:
    """Count equal answers, e.g. `✗ mixed (2), ✓ old (1)`."""
    counts = Counter(f"{MARKS[each.good]}{each.answer}" for each in observed)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{answer} ({count})" for answer, count in counts.most_common())


def _row(summary: Summary, case: Case, clients: Sequence[str]) -> Row:
    results = [summary.results[case, client] for client in clients]
    usual = max((len(each.observed) for each in results), default=0)
    cells = tuple(_cell(each, usual) for each in results)
    return Row(plain(summary.label(case)), cells, group=plain(case.scenario), n=usual)


def _cell(result: Result, usual: int) -> Cell:
    if result.observed:
        n = f", n={len(result.observed)}" if len(result.observed) != usual else ""
        failed = f", {result.failed} failed" if result.failed else ""
        return TextCell(plain(f"{answers(result.observed)}{n}{failed}"))
    if result.unsupported is not None:
        return UnsupportedCell(plain(result.unsupported))
    return FailedCell(result.failed) if result.failed else AbsentCell(NOTHING)


def _evidence_table(summary: Summary) -> Table:
    rows = [
        Row(plain(f"{summary.label(case)}, {client.name}"), (TextCell(plain(worst(observed).evidence)),))
        for case in summary.run.cases
        for client in summary.clients
        if (observed := summary.results[case, client.name].observed)
    ]
    return Table(
        "What shows it", "Of one trial each; of several, one of the worst.", "case, client", ("evidence",), tuple(rows)
    )


def _figure_rows(summary: Summary) -> Iterator[Row]:
    for case in summary.run.cases:
        for client in summary.clients:
            observed = summary.results[case, client.name].observed
            for name, values in _numbers(observed).items():
                found = spread(values)
                texts = [units.number(each) for each in (found.median, found.low, found.high)]
                cells = (name, f"{texts[0]} ({texts[1]} to {texts[2]})", str(found.n))
                label = f"{summary.label(case)}, {client.name}"
                yield Row(plain(label), tuple(TextCell(plain(each)) for each in cells))


def _numbers(observed: Sequence[Observed]) -> dict[str, list[float]]:
    """Return the numbers of each fact that differ between trials; what never differs says nothing as a spread."""
    names = dict.fromkeys(name for each in observed for name in each.facts)
    found = {
        name: [float(value) for each in observed if isinstance(value := each.facts.get(name), int | float)]
        for name in names
    }
    return {name: values for name, values in found.items() if len(values) > 1 and len(set(values)) > 1}
