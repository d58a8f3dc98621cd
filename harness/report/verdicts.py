"""Comparisons and decisions into the view model: which tables there are, and what each cell says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.compare import Comparison, Comparisons, Weight
from harness.decide import Decided, Judgement, Verdict
from harness.decisions import DISTRIBUTIONS
from harness.report.view import (
    NOTHING,
    AbsentCell,
    Cell,
    RatioCell,
    Row,
    Section,
    Table,
    TextCell,
    plain,
)
from harness.requirements import Held
from harness.summary import METRIC
from harness.units import count, number

MAIN_METRICS = (
    "throughput_bytes_per_s",
    "throughput_objects_per_s",
    "cpu_ns_per_gib",
    "cpu_ns_per_object",
    "rss_peak_bytes",
    "threads_peak",
    "requests_total",
)
"""What is shown unless another metric is asked for; --json has them all."""

_WEIGHTS = {
    Weight.REFUSES: "makes them incomparable",
    Weight.AFFECTS: "may move the numbers",
    Weight.TOLD: "for information",
}


# --- comparisons -----------------------------------------------------------------------------------------------------


def comparison_sections(compared: Comparisons, metrics: Sequence[str] = MAIN_METRICS) -> tuple[Section, ...]:
    """Return what differs between the two runs first, then a table a metric."""
    tables = [table for name in metrics if (table := _metric_table(compared, name)).rows]
    how = (
        "Pairs of trials side by side in time, block by block."
        if compared.baseline is not None
        else "Two sessions, not paired: such an interval knows nothing of what moved a whole session."
    )
    words = (
        f"Geometric mean ratio with its {compared.level:.1%} interval. {how} The verdicts of a metric share one error over "
        'all its rows and columns (Holm), so an interval may leave out 1 beside "no difference shown".'
    )
    return (*_change_sections(compared), Section("Comparison", paragraphs=(words,), tables=tuple(tables)))


def _change_sections(compared: Comparisons) -> Iterator[Section]:
    if compared.baseline is not None:
        return
    rows = [
        Row(plain(each.what), tuple(TextCell(plain(word)) for word in (each.then, each.now, _WEIGHTS[each.weight])))
        for each in compared.changes
    ]
    unchanged = ", ".join(compared.unchanged)
    words = (
        f"The same in both runs, so that any difference of theirs is the sessions': {unchanged}."
        if unchanged
        else "No client is the same in both runs, so nothing shows what the sessions themselves differ in."
    )
    table = Table("What differs", "", "what", ("then", "now", "weight"), tuple(rows))
    yield Section("What differs", paragraphs=(plain(words),), tables=(table,) if rows else ())


def _metric_table(compared: Comparisons, name: str) -> Table:
    metric = METRIC[name]
    own = [each for each in compared.comparisons if each.metric == name]
    clients = tuple(dict.fromkeys(each.numerator.client for each in own))
    cells = {(each.case, each.numerator.client): each for each in own}
    rows = []
    for case in dict.fromkeys(each.case for each in own):
        found = [cells.get((case, client)) for client in clients]
        usual = max((each.n for each in found if each), default=0)
        rows.append(Row(plain(case.key), tuple(_comparison_cell(each, usual) for each in found), n=usual))
    over = f"over {compared.baseline}" if compared.baseline is not None else "now over then"
    better = "more" if metric.better == "up" else "less"
    return Table(
        f"{metric.title}, {metric.unit}",
        plain(f"{over}; {better} is better."),
        "case",
        tuple(map(plain, clients)),
        tuple(rows),
        stacked=True,
    )


def _comparison_cell(comparison: Comparison | None, usual_n: int) -> Cell:
    if comparison is None:
        return AbsentCell(NOTHING)
    words = comparison.verdict.value
    if comparison.n != usual_n:
        words += f", n={comparison.n}"
    if comparison.ratio is None:
        return TextCell(plain(f"{words}: {comparison.reason}"))
    return RatioCell(comparison.ratio, words)


# --- decisions -------------------------------------------------------------------------------------------------------


def decision_sections(decided: Decided) -> tuple[Section, ...]:
    """Return the answer first, then what it rests on."""
    answer = decided.recommendation or f"Undecided: {decided.open_because}."
    rows = tuple(_judgement_row(each) for each in decided.judgements)
    looks = f" Each of {decided.looks} looks at {decided.level:.1%}." if decided.looks > 1 else ""
    caption = f"Geometric mean ratio of paired blocks with its {decided.level:.1%} interval; verdicts share one error (Holm).{looks}"
    table = Table("Expectations", caption, "expectation", ("ratio", "verdict"), rows, stacked=True)
    of_speed = (Section("Criteria", tables=(_criteria_table(decided),)), Section("Expectations", tables=(table,)))
    return (
        Section("Decision", paragraphs=(plain(decided.decision.question), plain(answer))),
        *_requirement_sections(decided.held),
        *(of_speed if decided.decision.expectations else ()),
        *_open_sections(decided),
    )


def _requirement_sections(held: Sequence[Held]) -> Iterator[Section]:
    if not held:
        return
    clients = tuple(dict.fromkeys(each.client for each in held))
    cells = {(each.requirement.name, each.client): each for each in held}
    rows = [
        Row(plain(each.title), tuple(TextCell(_held_words(cells[each.name, client])) for client in clients))
        for each in dict.fromkeys(one.requirement for one in held)
    ]
    caption = "Of n answers. One bad answer breaks a requirement, however many are good."
    table = Table("Requirements", caption, "requirement", tuple(map(plain, clients)), tuple(rows))
    shown = [
        Row(plain(f"{each.client}: {each.requirement.title}"), (TextCell(plain(_where_and_why(each))),))
        for each in held
        if each.reason
    ]
    evidence = Table("What breaks them", "", "client, requirement", ("evidence",), tuple(shown))
    yield Section("Requirements", tables=(table, evidence) if shown else (table,))


def _held_words(held: Held) -> str:
    share = f"{held.broken} of {held.n}" if held.broken else f"n={held.n}"
    return f"{held.verdict}, {share}"


def _where_and_why(held: Held) -> str:
    return f"{held.case.key}: {held.reason}" if held.case else held.reason


def _criteria_table(decided: Decided) -> Table:
    rows = [Row(plain(each.title), (TextCell(each.verdict.value),)) for each in decided.criteria]
    return Table(
        "Criteria",
        "In this order: the first that is confirmed gives the recommendation.",
        "criterion",
        ("",),
        tuple(rows),
    )


def asked(judgement: Judgement) -> str:
    """Write the rule of an expectation, e.g. `at least 2x`."""
    expectation = judgement.expectation
    if expectation.rule == "same-within":
        return f"same within {expectation.threshold:.0%}"
    return f"{expectation.rule.replace('-', ' ')} {number(expectation.threshold, 2)}x"


def _judgement_row(judgement: Judgement) -> Row:
    expectation = judgement.expectation
    what = "packages" if expectation.metric == DISTRIBUTIONS else METRIC[expectation.metric].title
    label = f"{expectation.name}: {judgement.case.key}" if judgement.case else expectation.name
    label += f" against {judgement.against.key}" if judgement.against else ""
    ratio: Cell = AbsentCell(NOTHING)
    if judgement.ratio is not None:
        ratio = RatioCell(judgement.ratio)
    elif judgement.verdict in (Verdict.CONFIRMED, Verdict.REFUTED):
        ratio = TextCell(plain(judgement.reason))
    published = f"published {expectation.published}" if expectation.published else ""
    notes = (f"{expectation.numerator} / {expectation.denominator}, {what}, {asked(judgement)}", published)
    return Row(
        plain(label),
        (ratio, TextCell(judgement.verdict.value)),
        n=judgement.ratio.n if judgement.ratio else None,
        remarks=tuple(plain(note) for note in notes if note),
    )


def _open_sections(decided: Decided) -> Iterator[Section]:
    lines = []
    for each in decided.judgements:
        if each.verdict in (Verdict.CONFIRMED, Verdict.REFUTED):
            continue
        where = f" on {each.case.key}" if each.case else ""
        lines.append(
            f"{each.expectation.name}{where}, {each.verdict.value}: {each.reason}. {_what_would_settle(each)}".strip()
        )
    if lines:
        yield Section("What is open", paragraphs=tuple(map(plain, lines)))


def _what_would_settle(judgement: Judgement) -> str:
    if judgement.verdict is Verdict.INVALID:
        return "More blocks don't help."
    if judgement.case is None:
        return "Another run is needed."
    if judgement.blocks_needed is None:
        return "It lies so near the threshold that no number of blocks one would run settles it."
    return f"About {count(judgement.blocks_needed)} blocks in all would settle it in four runs of five, if the truth is as seen."
