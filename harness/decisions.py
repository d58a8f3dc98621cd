"""Decision files: TOML in, a `Decision` out; as strict as suite files, by the same reader."""

from __future__ import annotations

import math
from pathlib import Path

from harness.errors import BenchError, UnknownNameError
from harness.model import Criterion, Decision, Expectation, Requirement
from harness.summary import METRIC
from harness.toml import Table, as_text, open_toml

RULES = {"at_least": "at-least", "at_most": "at-most", "same_within": "same-within"}
DISTRIBUTIONS = "distribution_count"
"""Packages in a client's environment: a metric of the client, the same in every case and exact."""
SHORT = {
    "throughput": "throughput_bytes_per_s",
    "objects": "throughput_objects_per_s",
    "wall": "wall_ns",
    "cpu": "cpu_ns_per_gib",
    "cpu_per_object": "cpu_ns_per_object",
    "rss_peak": "rss_peak_bytes",
    "threads": "threads_peak",
    "requests": "requests_total",
    "distributions": DISTRIBUTIONS,
}
"""What files may say in place of a metric's whole name."""


def find(folder: Path, name: str) -> Path:
    """Return the file of the decision called `name`."""
    known = sorted(path.stem for path in folder.glob("*.toml"))
    if name not in known:
        raise UnknownNameError("decision", name, known)
    return folder / f"{name}.toml"


def of_suite(folder: Path, suite: str) -> list[Path]:
    """Return the files that decide something about runs of `suite`."""
    return [path for path in sorted(folder.glob("*.toml")) if load(path).suite == suite]


def load(path: Path) -> Decision:
    top = open_toml(path)
    top.allow("name", "question", "suite", "otherwise", "expectation", "criterion", "requirement")
    if top.text("name") != path.stem:
        raise top.error("name", f"must be the file's name, {path.stem!r}, not {top.text('name')!r}")
    requirements = _requirements(top)
    # A decision that only requires something asks nothing of speed.
    is_asked = not requirements or "expectation" in top.values
    tables = top.tables("expectation") if is_asked else {}
    expectations = tuple(_expectation(name, table) for name, table in tables.items())
    known = [each.name for each in expectations]
    criteria: list[Criterion] = []
    for name, table in (top.tables("criterion") if is_asked else {}).items():
        if name in known:
            raise top.error(f"criterion.{name}", "another expectation or criterion has this name")
        criteria.append(_criterion(name, table, known))
        known.append(name)
    return Decision(
        name=top.text("name"),
        question=top.text("question"),
        suite=top.text("suite"),
        expectations=expectations,
        criteria=tuple(criteria),
        otherwise=top.text("otherwise"),
        requirements=requirements,
    )


def _requirements(top: Table) -> tuple[Requirement, ...]:
    tables = top.tables("requirement") if "requirement" in top.values else {}
    for table in tables.values():
        table.allow("title", "cases", "broken_by")
    return tuple(
        Requirement(
            name=name,
            title=table.text("title"),
            cases=table.many("cases", as_text),
            broken_by=table.many("broken_by", as_text) if "broken_by" in table.values else (),
        )
        for name, table in tables.items()
    )


def _expectation(name: str, table: Table) -> Expectation:
    table.allow("title", "cases", "metric", "numerator", "denominator", "published", "against", *RULES)
    metric = table.choice("metric", [*SHORT, *METRIC])
    metric = SHORT.get(metric, metric)
    given = [rule for rule in RULES if rule in table.values]
    if len(given) != 1:
        raise table.error("at_least", f"say one of {', '.join(RULES)}, not {len(given)} of them")
    cases = table.many("cases", as_text) if metric != DISTRIBUTIONS else ()
    return Expectation(
        name=name,
        title=table.text("title"),
        cases=cases,
        metric=metric,
        numerator=table.text("numerator"),
        denominator=table.text("denominator"),
        rule=RULES[given[0]],
        threshold=table.one(given[0], _above_zero),
        published=table.text("published") if "published" in table.values else "",
        against=table.text("against") if "against" in table.values else "",
    )


def _above_zero(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise BenchError(f"must be a number above zero, not {value!r}")
    return float(value)


def _criterion(name: str, table: Table, known: list[str]) -> Criterion:
    table.allow("title", "any_of", "all_of", "recommendation")
    named = {key: table.many(key, as_text) if key in table.values else () for key in ("any_of", "all_of")}
    if not named["any_of"] and not named["all_of"]:
        raise table.error("any_of", "say any_of or all_of: which expectations, or criteria above this one")
    for key, names in named.items():
        for each in names:
            if each not in known:
                raise table.error(key, f"{each!r} is unknown", f"There is: {', '.join(known)}.")
    recommendation = table.text("recommendation") if "recommendation" in table.values else ""
    return Criterion(name, table.text("title"), named["any_of"], named["all_of"], recommendation)
