"""The patterns suite on real clients, store and links: every way works, and the shapes that must appear do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from harness import paths, plan, suites
from harness.lab import environments
from harness.lab.lab import Lab
from harness.model import Measured, Measurement, Observed, Record, Trace
from harness.run import Bench, execute

SUITE = suites.load(suites.find(paths.SCENARIOS, "patterns"), "quick")


@dataclass(frozen=True)
class Seen:
    records: tuple[Record, ...]
    traces: dict[int, Trace]

    def measured(self, scenario: str, client: str = "aioboto3", *, key: str = "") -> Measurement:
        outcome = self.record(scenario, client, key).outcome
        assert isinstance(outcome, Measured)
        return outcome.measurement

    def observed(self, scenario: str, client: str = "aioboto3", *, key: str = "") -> Observed:
        outcome = self.record(scenario, client, key).outcome
        assert isinstance(outcome, Observed)
        return outcome

    def record(self, scenario: str, client: str, key: str) -> Record:
        return next(
            each
            for each in self.records
            if (each.trial.case.scenario, each.trial.client) == (scenario, client) and key in each.trial.case.key
        )


@pytest.fixture(scope="module")
def seen(lab: Lab) -> Iterator[Seen]:
    """Every case of the quick profile, once."""
    clients = environments.prepare(paths.ENVS, SUITE.clients, lambda _: None)
    traces: dict[int, Trace] = {}
    with lab.dataset("patterns", 5) as dataset, lab.link(*SUITE.links) as server:
        dataset.prepare(SUITE.cases, lambda _: None)
        bench = Bench(
            "r",
            lab,
            server,
            dataset,
            clients,
            keep_trace=lambda t: traces.update({t.sequence: t}),
            traced_before_block=9,
        )
        yield Seen(tuple(execute(bench, plan.trials(SUITE, 5))), traces)


def requests(measurement: Measurement) -> int:
    assert measurement.requests is not None
    return measurement.requests.total


def in_flight(measurement: Measurement) -> int:
    assert measurement.requests is not None
    return measurement.requests.in_flight_peak


def test_every_way_ends_as_it_must_for_every_client_that_offers_it(seen: Seen) -> None:
    bad = [each for each in seen.records if not isinstance(each.outcome, Measured | Observed)]
    assert [(each.trial.case.key, each.trial.client, each.outcome) for each in bad] == []
    assert {each.trial.case for each in seen.records} == set(SUITE.cases)


def test_a_pool_is_what_limits_the_bodies_that_are_open(seen: Seen) -> None:
    assert in_flight(seen.measured("pool", key="/p10")) <= 10
    assert in_flight(seen.measured("pool", key="/p50")) > 20


def test_unread_bodies_keep_a_small_pool_only_where_they_are_large(seen: Seen) -> None:
    assert seen.observed("unread", key="3x1KiB").answer == "goes on"
    assert seen.observed("unread", key="3x4MiB").answer in {"times out", "waits on"}
    assert seen.observed("unread", "boto3-threads", key="3x4MiB").answer == "goes on"
    assert seen.observed("unread", key="3x4MiB").facts["after_close_ms"] is not None


def test_rules_of_multipart_uploads_are_answers_with_evidence(seen: Seen) -> None:
    for client in ("aioboto3", "boto3-threads"):
        assert seen.observed("incomplete-upload", client).answer == "stays until aborted"
        assert seen.observed("small-parts", client).answer == "EntityTooSmall"
        assert seen.observed("too-many-parts", client).answer != "taken"
        assert seen.observed("too-many-parts", client).evidence.startswith("a part numbered 10,001: ")


def test_the_link_shows_what_each_way_costs_in_requests(seen: Seen) -> None:
    alone, head_first = seen.measured("get-alone"), seen.measured("head-first")
    assert (requests(alone), requests(head_first)) == (20, 40)
    assert (requests(seen.measured("delete-bulk")), requests(seen.measured("delete-each"))) == (1, 100)
    assert requests(seen.measured("get-while-listing")) == requests(seen.measured("list-then-get")) == 122


def test_what_is_read_whole_is_held_whole(seen: Seen) -> None:
    whole, streamed = seen.measured("download-whole"), seen.measured("download-streamed")
    whole_bytes, streamed_bytes = (each.rss_peak_bytes - each.rss_base_bytes for each in (whole, streamed))
    assert whole_bytes > 16 << 20
    assert streamed_bytes < whole_bytes / 2


def test_clients_made_for_each_request_share_no_connection(seen: Seen) -> None:
    shared, each = seen.measured("shared-client").requests, seen.measured("client-each").requests
    assert shared is not None
    assert each is not None
    assert (shared.connection_count, each.connection_count) == (1, 10)


def test_throttled_requests_are_sent_again_and_what_never_arrives_is_counted(seen: Seen) -> None:
    for scenario in ("throttled-20", "throttled-60"):
        found = seen.observed(scenario)
        asked, arrived, sent = (found.facts[name] for name in ("asked", "arrived", "requests_sent"))
        assert isinstance(asked, int)
        assert isinstance(sent, int)
        assert asked == 20
        assert sent > asked
        assert found.good == (arrived == asked)


def test_the_lag_of_an_event_loop_is_seen_where_there_is_one(seen: Seen) -> None:
    for client in ("aioboto3", "boto3-to-thread"):
        lag = seen.measured("curve-ms20", client, key="/c8/").loop_lag
        assert lag is not None
        assert lag.tick_count > 0
        assert lag.p99_us <= lag.max_us
    assert seen.measured("get-alone", "boto3-threads").loop_lag is None


def test_a_trace_holds_the_requests_that_its_record_counts(seen: Seen) -> None:
    record = seen.record("get-alone", "aioboto3", "")
    trace, measurement = seen.traces[record.trial.sequence], seen.measured("get-alone")
    assert len(trace.requests) == requests(measurement) == 20
    assert trace.wall_us == measurement.wall_ns // 1000
    assert all(-5_000 < each.start_us < each.end_us <= trace.wall_us + 5_000 for each in trace.requests)
