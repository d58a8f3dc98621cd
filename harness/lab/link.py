"""The link: Envoy from its wheel, between client and store. It adds delay and rate, and its log says what was sent."""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import trustme

from harness.errors import StoreError, StoreLostError
from harness.lab.embedded import program
from harness.lab.ports import LOOPBACK, free_ports
from harness.lab.session import Session, stop_process
from harness.model import SCHEMA_VERSION, FirstByte, Link, Requests, SentRequest, Trace
from harness.prices import class_of

START_LIMIT_S = 30.0
MARK_LIMIT_S = 10.0
MARK_PATH = "/bench-mark/"
WARM_UP = "warm-up"
"""How the key ends that clients look up before their window."""
SO_MAX_PACING_RATE = 47
UNLIMITED = 2**31 - 1
SLOW_DOWN = 503
_SLOW_DOWN_REPLY = {
    # What S3 answers when it throttles: a client's retries may look at the code in the body.
    "filter": {"response_flag_filter": {"flags": ["FI"]}},
    "body": {
        "inline_string": '<?xml version="1.0" encoding="UTF-8"?>\n'
        "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
    },
    "body_format_override": {"text_format": "%LOCAL_REPLY_BODY%", "content_type": "application/xml"},
}

_LOG_FORMAT = {
    "method": "%REQ(:METHOD)%",
    "path": "%REQ(:PATH)%",
    "status": "%RESPONSE_CODE%",
    "received_bytes": "%BYTES_RECEIVED%",
    "sent_bytes": "%BYTES_SENT%",
    "connection": "%CONNECTION_ID%",
    "range": "%REQ(RANGE)%",
    "flags": "%RESPONSE_FLAGS%",
    "start_s": "%START_TIME(%s.%9f)%",
    "duration_us": "%COMMON_DURATION(DS_RX_BEG:DS_TX_END:us)%",
    "duration_ms": "%DURATION%",
    "first_byte_us": "%COMMON_DURATION(DS_RX_END:DS_TX_BEG:us)%",
    "answer_us": "%COMMON_DURATION(DS_RX_BEG:DS_TX_BEG:us)%",
}


class Entry(msgspec.Struct, frozen=True):
    """One request as the link saw it."""

    method: str | None
    path: str | None
    status: int
    received_bytes: int
    sent_bytes: int
    connection: int
    range: str | None
    flags: str | None
    start_s: str
    duration_us: int | None
    duration_ms: int
    first_byte_us: int | None
    """From the end of the request."""
    answer_us: int | None
    """From the start of the request to the first byte of its answer."""

    @property
    def start_us(self) -> int:
        seconds, _, fraction = self.start_s.partition(".")
        return int(seconds) * 1_000_000 + int(fraction[:6] or 0)

    @property
    def end_us(self) -> int:
        # A request that the client dropped has no end of its answer; Envoy then knows only whole milliseconds.
        return self.start_us + (self.duration_ms * 1000 if self.duration_us is None else self.duration_us)


class LinkServer:
    """A running Envoy with one listener for each link. Speaks TLS as S3 does unless told not to."""

    def __init__(self, session: Session, links: Sequence[Link], store_port: int, *, tls: bool) -> None:
        self.tls = tls
        self._session = session
        self._folder = Path(tempfile.mkdtemp(prefix="link-", dir=session.folder))
        self._access_log = self._folder / "access.jsonl"
        self._output = self._folder / "envoy.log"
        self._links = tuple(links)
        self._store_port = store_port
        self._admin_port, *ports = free_ports(len(links) + 1)
        self._ports = {link.name: port for link, port in zip(links, ports, strict=True)}
        self._process: subprocess.Popen[bytes] | None = None
        self._read_to = 0
        self._marks = 0

    @property
    def authority_file(self) -> Path:
        """Certificate of the authority, made for this run, that signed the link's certificate."""
        return self._folder / "authority.pem"

    def endpoint_url(self, link_name: str) -> str:
        return f"{'https' if self.tls else 'http'}://{LOOPBACK}:{self._ports[link_name]}"

    def start(self) -> None:
        self._access_log.touch()
        if self.tls:
            self._make_certificate()
        config = self._folder / "envoy.json"
        config.write_text(json.dumps(self._config()))
        command = [
            program("envoy"), "-c", config, "--concurrency", "1", "--disable-hot-restart", "--log-level", "warning",
            # Every line goes out at once: a trial's log is read right after it.
            "--file-flush-min-size-kb", "0", "--file-flush-interval-msec", "20",
        ]  # fmt: skip
        with self._output.open("wb") as output:
            self._process = self._session.spawn(command, {"PATH": os.defpath, "HOME": str(self._folder)}, output)
        deadline = time.monotonic() + START_LIMIT_S
        while not self._is_ready():
            if not self.alive or time.monotonic() > deadline:
                raise StoreError(f"the link did not start: {self.last_words()}")
            time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            stop_process(self._process, grace_s=1.0)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def check(self) -> None:
        """Raise StoreLostError if the link has died."""
        if not self.alive:
            raise StoreLostError(
                f"the link died: {self.last_words()}",
                "What was measured is kept. `bench resume` starts a new link and goes on from there.",
            )

    def last_words(self) -> str:
        text = self._output.read_text(errors="replace") if self._output.exists() else ""
        return " / ".join(text.splitlines()[-3:])[-500:] or "it printed nothing"

    def entries_since_mark(self, link_name: str) -> list[Entry]:
        """Return what passed since the last call.

        Envoy writes a line when a request ends, by one thread in order. So a request of our own, sent now and awaited in
        the log, follows every line of a request that ended before.
        """
        self._marks += 1
        path = f"{MARK_PATH}{self._marks}"
        self._send_mark(link_name, path)
        deadline = time.monotonic() + MARK_LIMIT_S
        while time.monotonic() < deadline:
            with self._access_log.open("rb") as log:
                log.seek(self._read_to)
                text = log.read()
            if f'"{path}"'.encode() in text and text.endswith(b"\n"):
                self._read_to += len(text)
                entries = msgspec.json.decode(b"[" + b",".join(text.splitlines()) + b"]", type=list[Entry])
                return [entry for entry in entries if not (entry.path or "").startswith(MARK_PATH)]
            time.sleep(0.001)
        self.check()
        raise StoreLostError(f"the link's log did not show a mark within {MARK_LIMIT_S:.0f} s")

    def _send_mark(self, link_name: str, path: str) -> None:
        context = ssl.create_default_context(cafile=str(self.authority_file)) if self.tls else None
        try:
            with urllib.request.urlopen(  # noqa: S310
                self.endpoint_url(link_name) + path, timeout=MARK_LIMIT_S, context=context
            ) as answer:
                answer.read()
        except OSError as error:
            self.check()
            raise StoreLostError(f"the link does not answer: {error}") from error

    def _make_certificate(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.authority_file)
        authority.issue_cert(LOOPBACK, "localhost").private_key_and_cert_chain_pem.write_to_path(
            self._folder / "server.pem"
        )

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self._admin_port}/ready", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _config(self) -> dict[str, Any]:
        return {
            "admin": {"address": _address(self._admin_port)},
            "static_resources": {
                "listeners": [self._listener(link) for link in self._links],
                "clusters": [_cluster(link, self._store_port) for link in self._links],
            },
        }

    def _listener(self, link: Link) -> dict[str, Any]:
        chain: dict[str, Any] = {"filters": [_connection_manager(link, self._access_log)]}
        if self.tls:
            pem = {"filename": str(self._folder / "server.pem")}
            certificates = [{"certificate_chain": pem, "private_key": pem}]
            chain["transport_socket"] = {
                "name": "envoy.transport_sockets.tls",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
                    "common_tls_context": {"tls_certificates": certificates, "alpn_protocols": ["http/1.1"]},
                },
            }
        return {"name": link.name, "address": _address(self._ports[link.name]), "filter_chains": [chain]}


def limits_uploads() -> bool:
    """Tell whether this system can pace what the link sends on to the store: a socket option of Linux."""
    return sys.platform == "linux"


def version() -> str:
    """Return the link's version as the program states it."""
    answer = subprocess.run([program("envoy"), "--version"], capture_output=True, text=True, check=False, timeout=30)
    found = re.search(r"/(\d+\.\d+\.\d+)/", answer.stdout)
    return f"Envoy {found[1]}" if found else "Envoy, version unknown"


def trace(entries: Sequence[Entry], sequence: int, opened_at_us: int, wall_us: int | None) -> Trace:
    """Return what was sent, with times from `opened_at_us`, a wall-clock time like the log's."""
    ordered = sorted(entries, key=lambda entry: entry.start_us)
    connections: dict[int, int] = {}
    for entry in ordered:
        connections.setdefault(entry.connection, len(connections))
    requests = tuple(_sent(entry, connections[entry.connection], opened_at_us) for entry in ordered)
    return Trace(SCHEMA_VERSION, sequence, wall_us, requests)


def _sent(entry: Entry, connection: int, opened_at_us: int) -> SentRequest:
    start_us = entry.start_us - opened_at_us
    return SentRequest(
        start_us=start_us,
        first_byte_us=None if entry.answer_us is None else start_us + entry.answer_us,
        end_us=entry.end_us - opened_at_us,
        method=entry.method or "?",
        what=_what(entry.path or ""),
        status=entry.status,
        connection=connection,
        received_bytes=entry.received_bytes,
        sent_bytes=entry.sent_bytes,
        range=entry.range or "",
    )


def _what(path: str) -> str:
    """Say what a request is about by its query: keys and signatures are nobody's business."""
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query, keep_blank_values=True)
    for name, what in (
        ("partNumber", "part"),
        ("uploadId", "upload"),
        ("uploads", "uploads"),
        ("delete", "delete"),
        ("list-type", "list"),
    ):
        if name in query:
            return what
    return "object"


def summarise(entries: Sequence[Entry]) -> Requests:
    """Count what a client sent."""
    counts = Counter(f"{entry.method or '?'} {entry.status}" for entry in entries)
    prices = Counter(class_of(entry.method or "?", _what(entry.path or "")) for entry in entries)
    return Requests(
        by_method_and_status=dict(sorted(counts.items())),
        received_bytes=sum(entry.received_bytes for entry in entries),
        sent_bytes=sum(entry.sent_bytes for entry in entries),
        connection_count=len({entry.connection for entry in entries}),
        in_flight_peak=_in_flight_peak(entries),
        first_byte=_first_byte(entries),
        by_price=dict(sorted(prices.items())),
    )


def _in_flight_peak(entries: Sequence[Entry]) -> int:
    # An end sorts before a start at the same microsecond: a request that follows another is not beside it.
    steps = sorted([(e.start_us, 1) for e in entries] + [(e.end_us, -1) for e in entries])
    peak = current = 0
    for _, step in steps:
        current += step
        peak = max(peak, current)
    return peak


def _first_byte(entries: Sequence[Entry]) -> FirstByte | None:
    times = [entry.first_byte_us for entry in entries if entry.first_byte_us is not None]
    return FirstByte(len(times), min(times), round(median(times)), max(times)) if times else None


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": LOOPBACK, "port_value": port}}


def _fault(delay_ms: int, rate_bytes_per_s: int | None, abort_percent: int = 0) -> dict[str, Any]:
    always = {"numerator": 100}
    fault: dict[str, Any] = {"@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault"}
    if delay_ms:
        fault["delay"] = {"fixed_delay": f"{delay_ms / 1000:.3f}s", "percentage": always}
    if rate_bytes_per_s is not None:
        kibibytes = max(1, round(rate_bytes_per_s / 1024))
        fault["response_rate_limit"] = {"fixed_limit": {"limit_kbps": kibibytes}, "percentage": always}
    if abort_percent:
        fault["abort"] = {"http_status": SLOW_DOWN, "percentage": {"numerator": abort_percent}}
    return fault


def _connection_manager(link: Link, access_log: Path) -> dict[str, Any]:
    aborts = link.abort_percent
    store = {"cluster": link.name, "timeout": "0s"}
    copies = {
        "match": {"prefix": "/", "headers": [{"name": "x-amz-copy-source", "present_match": True}]},
        "route": store,
        "typed_per_filter_config": {
            "envoy.filters.http.fault": _fault(link.copy_delay_ms or link.delay_ms, None, aborts)
        },
    }
    mark = {"match": {"prefix": MARK_PATH}, "direct_response": {"status": 200},
            "typed_per_filter_config": {"envoy.filters.http.fault": _fault(0, None)}}  # fmt: skip
    # A client that is refused before its window opens answers nothing.
    warm_up = {
        "match": {"safe_regex": {"regex": f".*/{WARM_UP}"}},
        "route": store,
        "typed_per_filter_config": {
            "envoy.filters.http.fault": _fault(link.delay_ms, link.stream_rate_bytes_per_s),
        },
    }
    routes = [mark, *([warm_up] if aborts else []), copies, {"match": {"prefix": "/"}, "route": store}]
    return {
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": link.name,
            "codec_type": "HTTP1",
            # The store checks signatures over the path and headers as the client sent them.
            "normalize_path": False,
            "generate_request_id": False,
            "use_remote_address": False,
            "skip_xff_append": True,
            "stream_idle_timeout": "0s",
            "server_header_transformation": "PASS_THROUGH",
            "access_log": [
                {
                    "name": "envoy.access_loggers.file",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
                        "path": str(access_log),
                        "log_format": {"json_format": _LOG_FORMAT},
                    },
                }
            ],
            "http_filters": [
                {
                    "name": "envoy.filters.http.fault",
                    "typed_config": _fault(link.delay_ms, link.stream_rate_bytes_per_s, aborts),
                },
                {
                    "name": "envoy.filters.http.router",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
                        "suppress_envoy_headers": True,
                    },
                },
            ],
            "local_reply_config": {"mappers": [_SLOW_DOWN_REPLY]},
            "route_config": {"virtual_hosts": [{"name": "store", "domains": ["*"], "routes": routes}]},
        },
    }


def _cluster(link: Link, store_port: int) -> dict[str, Any]:
    limits = {"max_connections": UNLIMITED, "max_pending_requests": UNLIMITED, "max_requests": UNLIMITED}
    cluster: dict[str, Any] = {
        "name": link.name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "circuit_breakers": {"thresholds": [limits]},
        "load_assignment": {
            "cluster_name": link.name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(store_port)}}]}],
        },
    }
    if link.stream_rate_bytes_per_s is not None and limits_uploads():
        # HTTP/1 has one request at a time on a connection, so pacing the connection paces the upload.
        pacing = {
            "level": 1,
            "name": SO_MAX_PACING_RATE,
            "int_value": link.stream_rate_bytes_per_s,
            "state": "STATE_PREBIND",
        }
        cluster["upstream_bind_config"] = {
            "source_address": {"address": LOOPBACK, "port_value": 0},
            "socket_options": [pacing],
        }
    return cluster
