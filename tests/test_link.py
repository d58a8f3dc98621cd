"""The link's delay and rate, both ways, and what is counted from its log."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from harness.lab.bucket import Bucket
from harness.lab.lab import Lab
from harness.lab.link import Entry, summarise, trace
from harness.model import Link

MIB = 1 << 20


def through(lab: Lab, link: Link, call: Callable[[Bucket], object]) -> float:
    """Return how many seconds `call` takes through `link`, its connection made before."""
    assert lab.embedded_store is not None
    with lab.link(link) as server:
        assert server is not None
        plain = server.endpoint_url(link.name)
        bucket = Bucket(plain, lab.info.region, lab.embedded_store.credentials, lab.info.bucket, lab.bucket.prefix)
        bucket.sizes(f"{lab.bucket.prefix}/none/")
        started = time.monotonic()
        call(bucket)
        took_s = time.monotonic() - started
        bucket.close()
        return took_s


@pytest.fixture(scope="module")
def plain_lab(lab: Lab) -> Lab:
    """Return the same lab without TLS: the harness's own client trusts no certificate of a run."""
    return Lab(lab.session, lab.bucket, lab.info, lab.embedded_store, tls=False, _credentials=lab._credentials)


def test_a_delay_comes_before_the_first_byte_of_each_request(plain_lab: Lab) -> None:
    def ten_looks(bucket: Bucket) -> None:
        for _ in range(10):
            bucket.sizes(f"{bucket.prefix}/none/")

    direct = through(plain_lab, Link("direct"), ten_looks)
    delayed = through(plain_lab, Link("delayed", delay_ms=60), ten_looks)
    assert (delayed - direct) / 10 == pytest.approx(0.060, rel=0.25)


@pytest.mark.parametrize("direction", ["down", "up"])
def test_a_rate_limits_each_stream_both_ways(plain_lab: Lab, direction: str) -> None:
    key = f"{plain_lab.bucket.prefix}/rate"
    plain_lab.bucket.put(key, bytes(6 * MIB))

    def move(bucket: Bucket) -> None:
        if direction == "down":
            bucket.digests([key])
        else:
            bucket.put(key, bytes(6 * MIB))

    limited = Link("limited", stream_rate_bytes_per_s=4 * MIB)
    # What fits into the buffers on the way passes at once, so the limit is not seen whole on few bytes.
    assert through(plain_lab, limited, move) > 0.6
    assert through(plain_lab, limited, move) > 3 * through(plain_lab, Link("direct"), move)


def test_a_server_side_copy_has_a_delay_of_its_own(plain_lab: Lab) -> None:
    source, target = f"{plain_lab.bucket.prefix}/copy-source", f"{plain_lab.bucket.prefix}/copy-target"
    plain_lab.bucket.put(source, b"x")
    link = Link("copies", delay_ms=1, copy_delay_ms=300)
    assert 0.29 < through(plain_lab, link, lambda bucket: bucket.copy_many([source], [target])) < 1.5
    assert through(plain_lab, link, lambda bucket: bucket.put(source, b"x")) < 0.29


def entry(start_us: int, took_us: int, connection: int = 1, **changes: object) -> Entry:
    values: dict[str, object] = {
        "method": "GET", "path": "/b/k", "status": 206, "received_bytes": 0, "sent_bytes": 100, "connection": connection,
        "range": "bytes=0-99", "flags": "-", "start_s": f"{start_us // 10**6}.{start_us % 10**6:06d}000",
        "duration_us": took_us, "duration_ms": took_us // 1000, "first_byte_us": took_us // 2,
        "answer_us": took_us // 2,
    }  # fmt: skip
    return Entry(**(values | changes))  # type: ignore[arg-type]


def test_requests_that_follow_each_other_are_not_in_flight_together() -> None:
    one_after_another = [entry(1_000_000 + n * 1000, 1000) for n in range(5)]
    assert summarise(one_after_another).in_flight_peak == 1


def test_requests_are_counted_by_method_and_status_and_connection() -> None:
    entries = [
        entry(1_000_000, 9000, 1),
        entry(1_004_000, 9000, 2),
        entry(1_008_000, 9000, 3, status=0, duration_us=None, duration_ms=9, first_byte_us=None),
        entry(1_030_000, 1000, 3, method="HEAD", status=200, sent_bytes=0),
    ]
    requests = summarise(entries)
    assert requests.by_method_and_status == {"GET 0": 1, "GET 206": 2, "HEAD 200": 1}
    assert requests.total == 4
    assert (requests.sent_bytes, requests.connection_count, requests.in_flight_peak) == (300, 3, 3)
    assert requests.first_byte is not None
    assert (requests.first_byte.request_count, requests.first_byte.median_us) == (3, 4500)


def test_no_requests_are_none_and_not_an_error() -> None:
    requests = summarise([])
    assert (requests.total, requests.in_flight_peak, requests.first_byte) == (0, 0, None)


def test_a_trace_counts_from_the_opening_of_the_window_and_names_no_key() -> None:
    entries = [
        entry(1_000_500, 900, connection=9, path="/b/secret-key?partNumber=2&uploadId=x", method="PUT", range=None),
        entry(1_000_100, 400, connection=4),
    ]
    found = trace(entries, 7, 1_000_000, 2_000)
    assert (found.sequence, found.wall_us) == (7, 2_000)
    assert [(r.start_us, r.first_byte_us, r.end_us, r.what, r.connection) for r in found.requests] == [
        (100, 300, 500, "object", 0),
        (500, 950, 1400, "part", 1),
    ]
    assert "secret" not in repr(found)
