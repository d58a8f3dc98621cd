"""The likely bound of a trial, from its requests alone: read from recorded ones, and rule by rule from made ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness import explain
from harness.explain import NO_SINGLE_BOUND, Explanation
from harness.model import SCHEMA_VERSION, Ceilings, Link, Record, Run, RunSet, SentRequest, Trace
from harness.report import explained
from tests.factories import make_case, make_measured, make_record, make_run

MIB = 1 << 20


class Recorded(msgspec.Struct, frozen=True):
    """A trial as a real run left it, and the rule that a reader of its requests would name."""

    rule: str
    links: tuple[Link, ...]
    ceilings: Ceilings
    record: Record
    trace: Trace

    @property
    def run(self) -> Run:
        return make_run(link=self.links[0], more_links=self.links[1:], ceilings=self.ceilings)

    def explained(self) -> Explanation:
        return explain.explain(self.run, self.record, self.trace)


RECORDED = msgspec.json.decode((Path(__file__).parent / "recorded_traces.json").read_bytes(), type=list[Recorded])


def recorded(key: str, client: str) -> Explanation:
    return next(
        each.explained()
        for each in RECORDED
        if each.record.trial.case.key == key and each.record.trial.client == client
    )


@pytest.mark.parametrize("each", RECORDED, ids=lambda each: f"{each.record.trial.case.key} {each.record.trial.client}")
def test_a_recorded_trial_is_explained_as_a_reader_would(each: Recorded) -> None:
    found = each.explained()
    assert (found.rule, found.bound == NO_SINGLE_BOUND) == (each.rule, not each.rule)
    assert found.facts.connection_count >= 1
    assert sum(found.facts.levels.values()) == pytest.approx(1)


def test_how_many_ranges_pyathena_keeps_in_flight_is_found_in_its_requests() -> None:
    download, read = (
        recorded("get_file/64MiB/c8/b8MiB", "pyathena-aio"),
        recorded("read/64MiB/c8/b8MiB", "pyathena-aio"),
    )
    assert (download.facts.peak, round(download.facts.mean, 1)) == (2, 1.1)
    assert (read.facts.peak, read.facts.main_peak) == (8, 8)
    assert recorded("read/64MiB/c8/b8MiB", "s3fs").facts.peak == 1


def test_a_pool_of_ten_is_named() -> None:
    found = recorded("pool/50x1MiB/c50/b8MiB/p10", "aioboto3")
    assert "10" in found.bound
    assert "the pool" in found.bound


# --- made requests ---------------------------------------------------------------------------------------------------


def sent(
    start_ms: float, end_ms: float, connection: int = 0, first_ms: float | None = None, size: int = 2 * MIB
) -> SentRequest:
    first = end_ms if first_ms is None else first_ms
    return SentRequest(
        round(start_ms * 1000), round(first * 1000), round(end_ms * 1000), "GET", "object", 206, connection, 0, size, "bytes=0-"
    )  # fmt: skip


def judged(
    requests: list[SentRequest],
    *,
    wall_ms: float = 1000,
    concurrency: int = 8,
    pool_size: int = 50,
    cpu_ms: float = 100,
    link: Link | None = None,
    ceilings: Ceilings | None = None,
) -> Explanation:
    case = make_case(concurrency=concurrency)
    outcome = make_measured(round(wall_ms * 1e6), cpu_user_ns=round(cpu_ms * 1e6), cpu_system_ns=0)
    outcome = msgspec.structs.replace(outcome, applied={"pool_size": pool_size})
    record = make_record(3, outcome, case=case, client="s3fs")
    trace = Trace(SCHEMA_VERSION, 3, round(wall_ms * 1000), tuple(requests))
    return explain.explain(
        make_run(cases=[case], link=msgspec.structs.replace(link or Link(""), name=case.link), ceilings=ceilings),
        record,
        trace,
    )


def rows(count: int, each_ms: float, streams: int, **more: Any) -> list[SentRequest]:
    """Return requests back to back on each of some connections."""
    return [
        sent(turn * each_ms, (turn + 1) * each_ms, stream, **more)
        for turn in range(count // streams)
        for stream in range(streams)
    ]


@pytest.mark.parametrize(
    ("rule", "requests", "settings"),
    [
        ("sequential", rows(10, 100, 1), {}),
        ("one-as-asked", rows(10, 100, 1), {"concurrency": 1}),
        ("pinned-at-the-pool", rows(100, 100, 10), {"concurrency": 50, "pool_size": 10}),
        ("pinned-at-the-concurrency", rows(80, 100, 8), {}),
        ("few-in-flight", rows(30, 100, 3), {}),
        ("client-cpu", rows(80, 100, 8), {"cpu_ms": 990}),
        ("client-idle", [sent(place * 200, place * 200 + 50) for place in range(5)], {}),
        ("server-bound", rows(80, 100, 8), {"ceilings": Ceilings(160 * MIB, 100 * MIB, 10_000, 10_000)}),
        ("server-bound", rows(80, 100, 8, size=10), {"ceilings": Ceilings(1 << 40, 1 << 40, 85, 85)}),
        (
            "stream-rate",
            [*rows(30, 100, 3), *rows(10, 100, 1, size=10), *[sent(0, 500, 7), sent(0, 500, 8)]],
            {"link": Link("", stream_rate_bytes_per_s=20 * MIB)},
        ),
        (
            "latency",
            [sent(place * 13, place * 13 + 60, place % 5, place * 13 + 55, 10) for place in range(70)],
            {"link": Link("", delay_ms=50)},
        ),
        ("", [sent(place * 13, place * 13 + 60, place % 5) for place in range(70)], {}),
    ],
)  # fmt: skip
def test_each_rule_finds_its_bound(rule: str, requests: list[SentRequest], settings: dict[str, Any]) -> None:
    found = judged(requests, **settings)
    assert found.rule == rule, found.bound
    assert (found.bound == NO_SINGLE_BOUND) == (not rule)


def test_a_pool_that_is_never_passed_is_named_though_it_isnt_held() -> None:
    waves = [sent(wave * 100, wave * 100 + 5 + stream * 9, stream) for wave in range(10) for stream in range(10)]
    assert judged(waves, concurrency=50, pool_size=10).rule == "stops-at-the-pool"
    assert judged(waves, concurrency=50, pool_size=20).rule != "stops-at-the-pool"


def test_brief_overlaps_are_no_second_request_in_flight() -> None:
    overlapping = [sent(place * 100, place * 100 + 101, place % 2) for place in range(10)]
    found = judged(overlapping)
    assert (found.rule, found.facts.peak, found.facts.main_peak) == ("sequential", 2, 1)


def test_shares_count_the_window_alone_and_add_up() -> None:
    requests = [sent(-50, 100, 0), sent(100, 300, 1), sent(200, 1500, 2)]
    shares = explain.in_flight_shares(requests, 1_000_000)
    assert shares == {1: pytest.approx(0.9), 2: pytest.approx(0.1)}
    assert explain.in_flight_shares([], 1_000_000) == {0: 1.0}


def test_no_request_at_all_has_no_bound_but_the_client() -> None:
    assert judged([]).rule == "client-idle"


# --- words and picture -----------------------------------------------------------------------------------------------


def test_words_tell_the_first_trial_and_where_others_differ() -> None:
    one, other = judged(rows(10, 100, 1)), judged(rows(80, 100, 8))
    text = "\n".join(explained.words([one, one, other]))
    assert "Bound: one request in flight: sequential (rule sequential)" in text
    assert "2 of 3 traced trials say the same." in text
    assert "in flight pinned at 8" in text
    assert "10 GET object 206; on 1 connection" in text


def test_the_line_is_as_high_as_what_was_in_flight() -> None:
    line = explained.sparkline(rows(10, 50, 1) + [sent(500, 1000, place) for place in range(2)], 1_000_000)
    assert line == "▄" * 32 + "█" * 32 + " 2"


def test_the_same_facts_go_to_scripts_and_the_picture_is_written(tmp_path: Path) -> None:
    found = recorded("get_file/64MiB/c8/b8MiB", "pyathena-aio")
    data = json.loads(json.dumps(explained.as_data(found)))
    assert (data["in_flight_peak"], data["rule"], data["connection_count"]) == (2, "sequential", 2)
    explained.draw(found, tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_only_trials_whose_requests_were_kept_are_explained() -> None:
    case = make_case()
    records = tuple(make_record(number, case=case, block=number + 1) for number in range(3))
    traces = {1: Trace(SCHEMA_VERSION, 1, 10, ())}
    found = explain.traced(RunSet(make_run(cases=[case]), records, traces), case.key, "s3fs")
    assert [record.trial.sequence for record, _ in found] == [1]
