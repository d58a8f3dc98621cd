"""A link measured by plain requests of the harness's own, one after another, to hold it against its settings."""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config

from harness.lab.bucket import Bucket
from harness.lab.embedded import Credentials
from harness.lab.lab import Lab
from harness.lab.link import SLOW_DOWN, LinkServer
from harness.model import Link

DELAY_REQUESTS = 60
ABORT_REQUESTS = 400
"""For a link that aborts: enough that a share off by a quarter shows."""
RATE_REPEATS = 3
SHORT_S, LONG_S = 0.3, 1.3
"""How long the smaller and the larger body should take: by the difference of the two, what is the same in both drops out."""
TIMEOUT_S = 60


@dataclass(frozen=True)
class LinkFigures:
    """What a link did to plain requests of the harness's own."""

    link: Link
    first_byte_us: tuple[float, ...]
    direct_first_byte_us: tuple[float, ...]
    """The same requests through an unlimited link without delay."""
    rates_bytes_per_s: dict[str, tuple[float, ...]]
    """By direction, `downloads` and `uploads`; empty where the link sets no rate."""
    request_count: int
    aborted_count: int


class _Requests:
    """One kept connection to a link, and URLs signed for it."""

    def __init__(self, lab: Lab, server: LinkServer, link: Link, credentials: Credentials) -> None:
        url = server.endpoint_url(link.name)
        self._signer: Any = boto3.client(
            "s3",
            endpoint_url=url,
            region_name=lab.info.region,
            aws_access_key_id=credentials.access_key,
            aws_secret_access_key=credentials.secret_key,
            config=Config(s3={"addressing_style": "path"}, signature_version="s3v4"),
        )
        self._bucket = lab.info.bucket
        host = urllib.parse.urlsplit(url).netloc
        if server.tls:
            context = ssl.create_default_context(cafile=str(server.authority_file))
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, timeout=TIMEOUT_S, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(host, timeout=TIMEOUT_S)

    def get(self, key: str) -> tuple[int, float, float]:
        """Return the status, and the microseconds until the answer began and until it ended."""
        return self._send("GET", self._sign("get_object", key), None)

    def put(self, key: str, body: bytes) -> tuple[int, float, float]:
        return self._send("PUT", self._sign("put_object", key), body)

    def close(self) -> None:
        self._connection.close()
        self._signer.close()

    def _sign(self, operation: str, key: str) -> str:
        return str(self._signer.generate_presigned_url(operation, Params={"Bucket": self._bucket, "Key": key}))

    def _send(self, method: str, url: str, body: bytes | None) -> tuple[int, float, float]:
        parts = urllib.parse.urlsplit(url)
        started_ns = time.perf_counter_ns()
        self._connection.request(method, f"{parts.path}?{parts.query}", body=body)
        answer = self._connection.getresponse()
        began_ns = time.perf_counter_ns()
        answer.read()
        ended_ns = time.perf_counter_ns()
        return answer.status, (began_ns - started_ns) / 1000, (ended_ns - started_ns) / 1000


def measure(lab: Lab, links: Sequence[Link]) -> list[LinkFigures]:
    """Measure each link: first-byte times, rates both ways, aborted requests. Takes some seconds a link."""
    assert lab.embedded_store is not None
    credentials = lab.embedded_store.credentials
    small = f"{lab.bucket.prefix}/probe/small"
    lab.bucket.put(small, b"x")
    direct = _first_bytes(lab, Link("direct"), credentials, small)
    found = [_measure(lab, link, credentials, small, direct) for link in links]
    lab.bucket.remove(f"{lab.bucket.prefix}/probe/")
    return found


def _first_bytes(lab: Lab, link: Link, credentials: Credentials, key: str) -> tuple[float, ...]:
    with lab.link(link) as server:
        assert server is not None
        requests = _Requests(lab, server, link, credentials)
        requests.get(key)
        times = tuple(requests.get(key)[1] for _ in range(DELAY_REQUESTS))
        requests.close()
    return times


def _measure(lab: Lab, link: Link, credentials: Credentials, small: str, direct: tuple[float, ...]) -> LinkFigures:
    with lab.link(link) as server:
        assert server is not None
        requests = _Requests(lab, server, link, credentials)
        requests.get(small)
        count = ABORT_REQUESTS if link.abort_percent else DELAY_REQUESTS
        answers = [requests.get(small) for _ in range(count)]
        rates = _rates(lab.bucket, requests, link, f"{lab.bucket.prefix}/probe/rate") if not link.abort_percent else {}
        requests.close()
    return LinkFigures(
        link=link,
        first_byte_us=tuple(began for _, began, _ in answers),
        direct_first_byte_us=direct,
        rates_bytes_per_s=rates,
        request_count=count,
        aborted_count=sum(status == SLOW_DOWN for status, _, _ in answers),
    )


def _rates(bucket: Bucket, requests: _Requests, link: Link, key: str) -> dict[str, tuple[float, ...]]:
    rate = link.stream_rate_bytes_per_s
    if rate is None:
        return {}
    bodies = {size: bytes(size) for size in (round(rate * SHORT_S), round(rate * LONG_S))}
    for size, body in bodies.items():
        bucket.put(f"{key}-{size}", body)
    downloads, uploads = [], []
    for _ in range(RATE_REPEATS):
        downloads.append(_slope({size: requests.get(f"{key}-{size}")[2] for size in bodies}))
        uploads.append(_slope({size: requests.put(f"{key}-up", body)[2] for size, body in bodies.items()}))
    return {"downloads": tuple(downloads), "uploads": tuple(uploads)}


def _slope(times_us: dict[int, float]) -> float:
    """Return bytes a second between a smaller and a larger body."""
    (small, small_us), (large, large_us) = times_us.items()
    return (large - small) / (large_us - small_us) * 1e6
