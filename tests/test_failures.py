"""A client's failure is a record of its kind, and the run goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest

from harness import plan, suites
from harness.lab.environments import InstalledClient
from harness.lab.lab import Lab
from harness.model import Failed, FailureKind, Filters, Link, Measured, Record, Unsupported
from harness.run import Bench, execute
from tests.conftest import TINY

DIRECT = Link("direct")
Runner = Callable[..., list[Record]]


@pytest.fixture(scope="module")
def run(lab: Lab, misbehaving: dict[str, InstalledClient]) -> Iterator[Runner]:
    suite = suites.load(TINY, None)
    with lab.dataset("failures", 7) as dataset, lab.link(DIRECT) as server:
        dataset.prepare(suite.cases, lambda _: None)
        bench = Bench("r", lab, server, dataset, misbehaving, limit_s=lambda _: 4)

        def run(scenario: str, *clients: str) -> list[Record]:
            filters = Filters(clients=clients, scenarios=(scenario,))
            return list(execute(bench, plan.trials(plan.narrow(suite, filters, tuple(misbehaving)), 1)))

        yield run


@pytest.mark.parametrize(
    ("scenario", "client", "kind", "words"),
    [
        ("read", "raises", FailureKind.RAISED, "ValueError in window: no bytes today"),
        ("read", "raises-at-setup", FailureKind.RAISED, "RuntimeError in setup"),
        ("cat", "returns-exception", FailureKind.RAISED, "swallowed by the batch"),
        ("read", "hangs", FailureKind.TIMEOUT, "limit of 4 s"),
        ("read", "killed", FailureKind.KILLED, "signal 9"),
        ("read", "exits", FailureKind.NO_ANSWER, "code 7"),
        ("read", "nonsense", FailureKind.NONSENSE, "wall_ns"),
        ("read", "endless", FailureKind.NONSENSE, "longer than"),
        ("read", "wrong-bytes", FailureKind.WRONG_BYTES, "1 of them wrong"),
        ("read", "short-bytes", FailureKind.WRONG_BYTES, "1 of them wrong"),
        ("read", "deaf", FailureKind.SETTINGS, "concurrency is 1, not 8"),
    ],
)
def test_a_failing_client_is_a_failed_record_and_the_next_trial_runs(
    run: Runner, scenario: str, client: str, kind: FailureKind, words: str
) -> None:
    outcomes = {record.trial.client: record.outcome for record in run(scenario, client, "behaves")}
    failed = outcomes[client]
    assert isinstance(failed, Failed)
    assert failed.kind is kind
    assert words in failed.reason
    assert isinstance(outcomes["behaves"], Measured)


def test_a_failed_record_holds_the_last_lines_that_the_client_printed(run: Runner) -> None:
    (record,) = run("read", "raises")
    assert isinstance(record.outcome, Failed)
    assert "no bytes today" in record.outcome.log


def test_what_a_client_prints_is_never_taken_for_its_answer(run: Runner) -> None:
    (record,) = run("read", "noisy")
    assert isinstance(record.outcome, Measured)
    assert record.outcome.measurement.wall_ns > 1000


def test_a_client_that_aborts_after_its_work_is_measured_and_its_exit_is_told(run: Runner) -> None:
    (record,) = run("read", "aborts-at-exit")
    assert isinstance(record.outcome, Measured)
    assert record.outcome.exit_code == -6


def test_what_a_client_does_not_offer_is_unsupported(run: Runner) -> None:
    (record,) = run("rm", "behaves")
    assert isinstance(record.outcome, Unsupported)


def test_no_record_holds_a_secret(run: Runner, lab: Lab) -> None:
    (record,) = run("read", "leaks-secret")
    assert isinstance(record.outcome, Failed)
    assert "[redacted]" in record.outcome.reason
    written = msgspec.json.encode(record).decode()
    assert not [secret for secret in lab.secrets if secret in written]


def test_the_measurement_says_what_went_over_the_link(run: Runner) -> None:
    (one,) = run("read", "behaves")
    (many,) = run("cat", "behaves")
    assert isinstance(one.outcome, Measured)
    assert isinstance(many.outcome, Measured)
    requests = one.outcome.measurement.requests
    assert requests is not None
    # The warm-up request came before the window, and is not the operation's.
    assert requests.by_method_and_status == {"GET 200": 1}
    assert requests.sent_bytes == one.outcome.measurement.byte_count == 1 << 20
    batch = many.outcome.measurement.requests
    assert batch is not None
    assert batch.by_method_and_status == {"GET 200": 5}
    assert batch.connection_count == 5
    assert 1 < batch.in_flight_peak <= 5


def test_time_threads_and_memory_are_those_of_the_window(run: Runner) -> None:
    by_client = {record.trial.client: record.outcome for record in run("read", "slow", "behaves")}
    slow, quick = by_client["slow"], by_client["behaves"]
    assert isinstance(slow, Measured)
    assert isinstance(quick, Measured)
    assert slow.measurement.wall_ns - quick.measurement.wall_ns == pytest.approx(300e6, rel=0.3)
    assert slow.measurement.threads_peak == 1
    assert slow.measurement.rss_peak_bytes >= slow.measurement.rss_base_bytes
    assert slow.measurement.rss_peak_bytes - slow.measurement.rss_base_bytes < 8 << 20
