"""Which cases can't carry a verdict, whatever their numbers: those that the store bounds."""

from __future__ import annotations

from harness import units
from harness.model import Case
from harness.operations import OPERATIONS, Kind, Leaves
from harness.summary import Summary

BOUND_SHARE = 0.9
"""A case in which a client comes within 10 % of the store's ceiling measures the store."""


def store_bound(summary: Summary) -> dict[Case, str]:
    """Return the cases that the embedded store bounds, each with the reason in words."""
    found = {case: _reason(summary, case) for case in summary.run.cases}
    return {case: reason for case, reason in found.items() if reason}


def _reason(summary: Summary, case: Case) -> str:
    ceilings = summary.run.ceilings
    if ceilings is None:
        return ""
    operation = OPERATIONS[case.operation]
    if operation.kind is Kind.FINDING:
        return ""
    downloads, looks = (
        operation.leaves in {Leaves.BYTES, Leaves.FILES},
        operation.leaves in {Leaves.NAMES, Leaves.SIZES},
    )
    if operation.moves and not operation.copies:
        ceiling = ceilings.download_bytes_per_s if downloads else ceilings.upload_bytes_per_s
        client, rate = _fastest(summary, case, "throughput_bytes_per_s")
        if rate >= BOUND_SHARE * ceiling:
            return f"{client} moves {units.rate(rate)}, {rate / ceiling:.0%} of the {units.rate(ceiling)} that the store gives at most"
    ceiling = ceilings.gets_per_s if downloads or looks else ceilings.puts_per_s
    client, rate = _fastest(summary, case, "requests_per_s")
    if rate >= BOUND_SHARE * ceiling:
        return f"{client} sends {rate:.0f} requests/s, {rate / ceiling:.0%} of the {ceiling} that the store answers at most"
    return ""


def _fastest(summary: Summary, case: Case, metric: str) -> tuple[str, float]:
    """Return the client with the highest median; instruments count too, for they share the same store."""
    rates = {
        client.name: spread.median
        for client in summary.run.clients
        if (spread := summary.results[case, client.name].spreads.get(metric)) is not None
    }
    return max(rates.items(), key=lambda item: item[1], default=("", 0.0))
