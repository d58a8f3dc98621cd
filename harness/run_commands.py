"""What the commands do that look into one run's trials."""

from __future__ import annotations

import fnmatch
import json
import sys
from pathlib import Path

from harness import records
from harness.errors import BenchError, UnknownNameError
from harness.explain import explain, traced
from harness.model import Run
from harness.output import err, out
from harness.report import explained


def explain_trials(*, run_name: str, case: str, client: str, as_json: bool, figure: Path | None, results: Path) -> None:
    run_set = records.read(records.find(results, run_name))
    key = _case_key(run_set.run, case)
    labels = [each.name for each in run_set.run.clients]
    if client not in labels:
        raise UnknownNameError("client", client, labels)
    found = [explain(run_set.run, record, trace) for record, trace in traced(run_set, key, client)]
    if not found:
        raise BenchError(
            f"run {run_set.run.id} kept no requests of {client} on {key}",
            "Requests are kept of the first measured blocks, where a link stands between client and store, since bench keeps them at all.",
        )
    if as_json:
        sys.stdout.write(json.dumps([explained.as_data(each) for each in found], indent=2) + "\n")
    else:
        for line in explained.words(found):
            out.print(line, markup=False, highlight=False, soft_wrap=True)
    if figure is not None:
        explained.draw(found[0], figure)
        err.print(f"written: {figure}", markup=False)


def _case_key(run: Run, named: str) -> str:
    """Return the key of the one case that is named, whole, by its scenario or by a pattern."""
    keys = list(dict.fromkeys(case.key for case in run.cases))
    matches = [key for key in keys if key == named] or [
        key for key in keys if fnmatch.fnmatchcase(key, named) or key.split("/")[0] == named
    ]
    if not matches:
        raise UnknownNameError("case", named, keys)
    if len(matches) > 1:
        raise BenchError(f"{named!r} names {len(matches)} cases", f"Name one: {', '.join(matches)}.")
    return matches[0]
