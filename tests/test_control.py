"""One client twice: what separates it from itself is noise, and a session that says otherwise is not to be trusted."""

from __future__ import annotations

import random

import msgspec
import pytest

from harness import control, validity
from harness.model import Ceilings, Phase, Record, Requests, RunSet
from harness.report.build import build
from harness.report.markdown import render
from harness.summary import summarise
from tests.factories import make_case, make_client, make_measured, make_record, make_run

MIB = 1 << 20
CASES = (make_case("read"), make_case("cat", count=20, size=MIB))
TWICE = (make_client("s3fs"), make_client("s3fs@control", role="control"), make_client("floor", role="floor"))


def aa_run(blocks: int = 8, slower: float = 1.0, noise: float = 0.03, seed: int = 1) -> RunSet:
    """Return a run whose control is `slower` times as slow as its twin."""
    draw = random.Random(seed)
    records: list[Record] = []
    for block in range(1, blocks + 1):
        for case in CASES:
            for position, client in enumerate(TWICE):
                factor = slower if client.role == "control" else 1.0
                wall_ns = round(10**9 * factor * draw.lognormvariate(0, noise))
                outcome = make_measured(wall_ns, case.objects.total_bytes, case.objects.count)
                records.append(
                    make_record(
                        len(records),
                        outcome,
                        block=block,
                        position=position,
                        client=client.name,
                        case=case,
                        phase=Phase.MEASURED,
                    )
                )
    return RunSet(make_run(TWICE, CASES), tuple(records))


def test_a_run_without_a_control_has_none() -> None:
    assert control.find(RunSet(make_run(), ())) is None


def test_a_client_that_is_like_itself_passes() -> None:
    found = control.find(aa_run())
    assert found is not None
    assert (found.verdict, found.client, found.block_count) == ("ok", "s3fs", 8)
    assert set(found.by_case) == set(CASES)
    assert 0.005 < found.noise["throughput"] < 0.2


def test_a_client_that_differs_from_itself_fails_the_session() -> None:
    found = control.find(aa_run(slower=1.2))
    assert found is not None
    assert found.verdict == "failed"
    assert [ratio.figure for ratio in found.missed] == ["throughput"]
    assert found.pooled[0].interval.estimate == pytest.approx(1 / 1.2, rel=0.05)


def test_too_few_blocks_say_nothing() -> None:
    found = control.find(aa_run(blocks=5))
    assert found is not None
    assert found.verdict == "inconclusive"


def test_sound_sessions_fail_as_often_as_declared() -> None:
    failed = sum(
        found is not None and found.verdict == "failed"
        for found in (control.find(aa_run(seed=seed)) for seed in range(300))
    )
    assert failed <= 0.05 * 300


def test_the_report_tells_the_noise_and_keeps_the_control_out_of_the_tables() -> None:
    view = build(aa_run(slower=1.2))
    text = render(view)
    assert "Control failed: throughput of one and the same client" in text
    throughput = next(section for section in view.sections if section.title == "Throughput")
    assert throughput.tables[0].columns == ("s3fs", "floor")


def with_ceilings(ceilings: Ceilings, requests: Requests | None = None) -> RunSet:
    run_set = aa_run()
    run = msgspec.structs.replace(run_set.run, ceilings=ceilings)
    if requests is None:
        return RunSet(run, run_set.records)
    records = [
        msgspec.structs.replace(
            record,
            outcome=msgspec.structs.replace(
                record.outcome,
                measurement=msgspec.structs.replace(record.outcome.measurement, requests=requests),  # type: ignore[union-attr, type-var]
            ),
        )
        for record in run_set.records
    ]
    return RunSet(run, tuple(records))


HIGH = Ceilings(10_000 * MIB, 10_000 * MIB, 100_000, 100_000)


@pytest.mark.parametrize(
    ("ceilings", "bound"),
    [
        (HIGH, set()),
        # 64 MiB and 20 MiB a second are moved.
        (msgspec.structs.replace(HIGH, download_bytes_per_s=70 * MIB), {"read"}),
        (msgspec.structs.replace(HIGH, download_bytes_per_s=75 * MIB), set()),
        (msgspec.structs.replace(HIGH, download_bytes_per_s=20 * MIB), {"read", "cat"}),
        (msgspec.structs.replace(HIGH, upload_bytes_per_s=MIB), set()),
    ],
)
def test_a_case_within_a_tenth_of_the_ceiling_is_store_bound(ceilings: Ceilings, bound: set[str]) -> None:
    found = validity.store_bound(summarise(with_ceilings(ceilings)))
    assert {case.scenario for case in found} == bound


def test_requests_have_a_ceiling_of_their_own() -> None:
    many = Requests({"GET 200": 95}, 0, 0, 8, 8, None)
    ceilings = msgspec.structs.replace(HIGH, gets_per_s=100)
    found = validity.store_bound(summarise(with_ceilings(ceilings, many)))
    assert "requests/s" in found[CASES[0]]


def test_a_store_bound_case_is_flagged_in_the_table() -> None:
    text = render(build(with_ceilings(msgspec.structs.replace(HIGH, download_bytes_per_s=70 * MIB))))
    assert "store-bound" in text
    assert "that the store gives at most" in text
