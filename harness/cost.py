"""What a run will ask of a store that isn't ours, before it asks."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness.lab.dataset import COPIES
from harness.model import Case, Trial
from harness.operations import OPERATIONS, Leaves, Source
from harness.prices import requests_usd

DEFAULT_BLOCK_BYTES = 8 << 20


class Estimate(msgspec.Struct, frozen=True):
    write_requests: int
    read_requests: int
    moved_bytes: int
    """By the clients and by the harness, which prepares every object and reads back every object written."""

    @property
    def usd(self) -> float:
        """Requests alone: in the bucket's own region transfer is free."""
        return requests_usd({"write": self.write_requests, "read": self.read_requests})


def estimate(trials: Sequence[Trial]) -> Estimate:
    """Estimate, rather too high than too low, what `trials` cost in requests and bytes."""
    writes = reads = moved = 0
    for trial in trials:
        case, requests, operation = trial.case, _requests(trial.case), OPERATIONS[trial.case.operation]
        if operation.leaves is Leaves.OBJECTS:
            # Written once and read back whole by the harness; a copy moves no bytes to the client.
            writes, reads = writes + requests, reads + case.objects.count + 2
            moved += case.objects.total_bytes * (1 if operation.copies else 2)
        elif operation.source is Source.OWN_OBJECTS:
            writes, reads = writes + case.objects.count + requests, reads + 2
        else:
            reads += requests + 2
            moved += case.objects.total_bytes if operation.moves else 0
    read = (trial.case for trial in trials if OPERATIONS[trial.case.operation].reads)
    for case in {case.objects: case for case in read}.values():
        writes += COPIES * _requests(case)
        moved += COPIES * case.objects.total_bytes
    return Estimate(writes, reads, moved)


def _requests(case: Case) -> int:
    block = case.settings.block_bytes or DEFAULT_BLOCK_BYTES
    return case.objects.count * (2 + max(1, -(-case.objects.size_bytes // block)))
