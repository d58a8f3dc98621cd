"""Disturbed blocks: which are left out, by rules that were declared before and never look at a result."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from harness.model import Case, Conditions, Record, Rules, RunSet


def disturbed_blocks(run_set: RunSet) -> dict[tuple[Case, int], str]:
    """Return the blocks of each case that break the run's rules, with the reason in words.

    A block is left out for all clients alike, because a pair of trials is compared within it.
    """
    rules = run_set.run.rules
    if rules is None:
        return {}
    by_block: dict[tuple[Case, int], list[Record]] = defaultdict(list)
    for record in run_set.records:
        by_block[record.trial.case, record.trial.block].append(record)
    reasons = {place: excluded([record.conditions for record in records], rules) for place, records in by_block.items()}
    return {place: reason for place, reason in reasons.items() if reason}


def excluded(conditions: Sequence[Conditions | None], rules: Rules) -> str | None:
    """Say why a block of one case doesn't count, or None. `conditions` are of the block's trials, of all clients.

    They are summed before anything is judged: the block is kept or dropped for all clients alike.
    """
    known = [each for each in conditions if each is not None]
    capacity_ns = sum(each.cpu_total_ns for each in known)
    if capacity_ns == 0 or sum(each.wall_ns for each in known) < rules.min_span_ns:
        return None
    steal_share = sum(each.steal_ns for each in known) / capacity_ns
    if steal_share > rules.max_steal_share:
        return f"steal {_above(steal_share, rules.max_steal_share)}"
    # Not the sum of foreign_ns: what ticks put below 0 in one trial must cancel what they put above in another.
    foreign_share = sum(each.busy_ns - each.ours_ns for each in known) / capacity_ns
    if foreign_share > rules.max_foreign_share:
        return f"other processes used {_above(foreign_share, rules.max_foreign_share)}"
    return None


def _above(share: float, allowed: float) -> str:
    return f"{100 * share:.1f} % of the processors' time, above the {100 * allowed:g} % allowed"
