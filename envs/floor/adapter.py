"""The floor: the least work that Python can do for an S3 operation, with the standard library alone.

Presigned URLs, `http.client` on kept connections (one a thread), `recv_into` a buffer that is reused or is the result
itself, ranges and parts in parallel threads. It retries nothing but a kept connection that the server had closed.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import hashlib
import hmac
import http.client
import mmap
import os
import re
import ssl
import threading
import urllib.parse
import xml.sax.saxutils
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

BUFFER_BYTES = 1 << 20
DEFAULT_BLOCK_BYTES = 8 << 20
SINGLE_COPY_LIMIT_BYTES = 5 << 30
DELETE_BATCH = 1000
EXPIRES_S = 3600


def quoted(text: str, safe: str = "") -> str:
    """Percent-encode as AWS does."""
    return urllib.parse.quote(text, safe=safe + "-_.~")


class Signer:
    """Presigns URLs with AWS signature version 4 (docs.aws.amazon.com, "Authenticating requests: query parameters")."""

    def __init__(self, region: str) -> None:
        self.region = region
        self.access_key = os.environ["AWS_ACCESS_KEY_ID"]
        self.secret_key = os.environ["AWS_SECRET_ACCESS_KEY"]
        self.token = os.environ.get("AWS_SESSION_TOKEN")
        self.day = ""
        self.key = b""

    def _signing_key(self, day: str) -> bytes:
        if day != self.day:
            key = ("AWS4" + self.secret_key).encode()
            for part in (day, self.region, "s3", "aws4_request"):
                key = hmac.new(key, part.encode(), hashlib.sha256).digest()
            self.day, self.key = day, key
        return self.key

    def presign(self, method: str, host: str, path: str, query: dict[str, str], headers: dict[str, str]) -> str:
        """Return path and query of a signed URL; `headers` (lower case) must be sent exactly as given."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{now[:8]}/{self.region}/s3/aws4_request"
        signed = {"host": host, **headers}
        names = ";".join(sorted(signed))
        parameters = {
            **query,
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": f"{self.access_key}/{scope}",
            "X-Amz-Date": now,
            "X-Amz-Expires": str(EXPIRES_S),
            "X-Amz-SignedHeaders": names,
        }
        if self.token:
            parameters["X-Amz-Security-Token"] = self.token
        encoded = "&".join(f"{quoted(name)}={quoted(value)}" for name, value in sorted(parameters.items()))
        header_lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
        canonical = f"{method}\n{path}\n{encoded}\n{header_lines}\n{names}\nUNSIGNED-PAYLOAD"
        to_sign = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        signature = hmac.new(self._signing_key(now[:8]), to_sign.encode(), hashlib.sha256).hexdigest()
        return f"{path}?{encoded}&X-Amz-Signature={signature}"


class Floor:
    """One pool of threads, one kept connection in each."""

    OPERATIONS = {
        "read": "parallel ranged GETs into one buffer",
        "write": "parallel UploadPart from memory",
        "copy": "CopyObject, above 5 GiB parallel UploadPartCopy",
        "put_file": "parallel UploadPart from a memory map",
        "get_file": "parallel ranged GETs, pwrite from a reused buffer",
        "cat": "GET each in threads",
        "pipe": "PUT each in threads",
        "put": "PUT each from a memory map in threads",
        "get": "GET each through a reused buffer in threads",
        "copy_many": "CopyObject each in threads",
        "rm": "DeleteObjects in thousands",
        "find": "ListObjectsV2, page by page",
        "info": "HEAD each in threads",
    }

    def __init__(self, connection: Any) -> None:
        url = urllib.parse.urlsplit(connection.endpoint_url or f"https://s3.{connection.region}.amazonaws.com")
        self.host = url.netloc
        self.tls = ssl.create_default_context() if url.scheme == "https" else None
        self.signer = Signer(connection.region)
        self.bucket = connection.bucket
        self.concurrency = connection.concurrency
        self.block_bytes = connection.block_bytes or DEFAULT_BLOCK_BYTES
        self.pool = ThreadPoolExecutor(connection.concurrency)
        self.local = threading.local()
        self.servers: list[http.client.HTTPConnection] = []

    def applied(self) -> dict[str, Any]:
        """Return the settings in use; it keeps no pool beside its threads, and has no retries to set."""
        return {"concurrency": self.concurrency, "block_bytes": self.block_bytes}

    def warm_up(self, bucket: str, key: str) -> None:
        """Look one object up."""
        self._size(key)

    # --- requests ---

    def _server(self) -> tuple[http.client.HTTPConnection, bool]:
        """Return this thread's connection, and whether it was used before."""
        server = getattr(self.local, "server", None)
        if server is not None:
            return server, server.sock is not None
        if self.tls is None:
            server = http.client.HTTPConnection(self.host, timeout=60)
        else:
            server = http.client.HTTPSConnection(self.host, timeout=60, context=self.tls)
        self.local.server = server
        self.servers.append(server)
        return server, False

    def _send(
        self,
        method: str,
        key: str,
        query: dict[str, str] | None = None,
        body: Any = None,
        signed_headers: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> http.client.HTTPResponse:
        """Send one request; the answer's body must be read before this thread sends another."""
        path = f"/{self.bucket}/{quoted(key, safe='/')}" if key else f"/{self.bucket}"
        signed = signed_headers or {}
        target = self.signer.presign(method, self.host, path, query or {}, signed)
        for is_last in (False, True):
            server, was_used = self._server()
            try:
                server.request(method, target, body=body, headers={**signed, **(headers or {})})
                answer = server.getresponse()
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                server.close()
                if is_last or not was_used:
                    raise
                continue
            if answer.status >= 300:
                raise OSError(f"{method} answered {answer.status}: {answer.read()[:300]!r}")
            return answer
        raise AssertionError

    def _whole(self, answer: http.client.HTTPResponse) -> bytearray:
        """Receive a body whose length is known into memory allocated once."""
        data = bytearray(answer.length or 0)
        receive(answer, memoryview(data))
        return data

    def _size(self, key: str) -> int:
        answer = self._send("HEAD", key)
        answer.read()
        return int(answer.headers["Content-Length"])

    # --- one object ---

    def read(self, job: Any) -> bytearray:
        """Read one object by parallel ranges into one buffer."""
        key = job.keys[0]
        size = self._size(key)
        data = bytearray(size)
        view = memoryview(data)

        def fetch(start: int) -> None:
            receive(self._range(key, start, size), view[start : min(start + self.block_bytes, size)])

        list(self.pool.map(fetch, range(0, size, self.block_bytes)))
        return data

    def _range(self, key: str, start: int, size: int) -> http.client.HTTPResponse:
        last = min(start + self.block_bytes, size) - 1
        return self._send("GET", key, headers={"Range": f"bytes={start}-{last}"})

    def get_file(self, job: Any) -> None:
        """Download one object by parallel ranges."""
        key = job.keys[0]
        size = self._size(key)
        descriptor = os.open(job.paths[0], os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o666)
        try:
            starts = range(0, size, self.block_bytes)
            list(self.pool.map(lambda start: self._save(self._range(key, start, size), descriptor, start), starts))
        finally:
            os.close(descriptor)

    def _save(self, answer: http.client.HTTPResponse, descriptor: int, position: int) -> None:
        buffer = getattr(self.local, "buffer", None)
        if buffer is None:
            buffer = self.local.buffer = memoryview(bytearray(BUFFER_BYTES))
        length, received = answer.length or 0, 0
        while count := answer.readinto(buffer):
            os.pwrite(descriptor, buffer[:count], position + received)
            received += count
        # readinto() takes a connection that was cut for the end of the body.
        if received != length:
            raise OSError(f"the body ended after {received} of {length} bytes")

    def write(self, job: Any) -> None:
        """Write one object from memory."""
        self._upload(job.keys[0], memoryview(job.payloads[0]))

    def put_file(self, job: Any) -> None:
        """Upload one file."""
        with mapped(job.paths[0]) as view:
            self._upload(job.keys[0], view)

    def _upload(self, key: str, data: memoryview) -> None:
        if len(data) <= self.block_bytes:
            self._put(key, data)
            return

        def send(number: int, upload: dict[str, str]) -> str:
            start = number * self.block_bytes
            with data[start : start + self.block_bytes] as part:
                answer = self._send("PUT", key, {"partNumber": str(number + 1), **upload}, body=part)
            answer.read()
            return str(answer.headers["ETag"])

        self._multipart(key, -(-len(data) // self.block_bytes), send)

    def _multipart(self, key: str, count: int, send: Any) -> None:
        """Run a multipart upload whose parts `send(number, upload)` delivers in threads."""
        created = self._send("POST", key, {"uploads": ""}).read().decode()
        found = re.search(r"<UploadId>([^<]+)</UploadId>", created)
        if found is None:
            raise OSError(f"no upload id: {created[:300]!r}")
        upload = {"uploadId": found[1]}
        try:
            etags = list(self.pool.map(lambda number: send(number, upload), range(count)))
            parts = "".join(
                f"<Part><PartNumber>{n}</PartNumber><ETag>{e}</ETag></Part>" for n, e in enumerate(etags, 1)
            )
            body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
            completed = self._send("POST", key, upload, body=body).read()
        except BaseException:
            self._send("DELETE", key, upload).read()
            raise
        if b"<Error>" in completed:
            raise OSError(f"not completed: {completed[:300]!r}")

    def copy(self, job: Any) -> None:
        """Copy one object within the store."""
        key, target = job.keys[0], job.targets[0]
        size = self._size(key)
        if size <= SINGLE_COPY_LIMIT_BYTES:
            self._copy(key, target)
            return

        def send(number: int, upload: dict[str, str]) -> str:
            last = min((number + 1) * self.block_bytes, size) - 1
            headers = {
                "x-amz-copy-source": self._source(key),
                "x-amz-copy-source-range": f"bytes={number * self.block_bytes}-{last}",
            }
            query = {"partNumber": str(number + 1), **upload}
            return copied(self._send("PUT", target, query, signed_headers=headers).read())

        self._multipart(target, -(-size // self.block_bytes), send)

    def _source(self, key: str) -> str:
        return f"/{self.bucket}/{quoted(key, safe='/')}"

    def _copy(self, key: str, target: str) -> None:
        copied(self._send("PUT", target, signed_headers={"x-amz-copy-source": self._source(key)}).read())

    def _put(self, key: str, data: Any) -> None:
        self._send("PUT", key, body=data, headers={"Content-Length": str(len(data))}).read()

    # --- many objects ---

    def cat(self, job: Any) -> list[bytearray]:
        """Read many objects."""
        return list(self.pool.map(lambda key: self._whole(self._send("GET", key)), job.keys))

    def pipe(self, job: Any) -> None:
        """Write many objects from memory."""
        list(self.pool.map(self._put, job.keys, job.payloads))

    def put(self, job: Any) -> None:
        """Upload many files."""

        def upload(path: str, key: str) -> None:
            with mapped(path) as view:
                self._put(key, view)

        list(self.pool.map(upload, job.paths, job.keys))

    def get(self, job: Any) -> None:
        """Download many objects to files."""

        def download(key: str, path: str) -> None:
            descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o666)
            try:
                self._save(self._send("GET", key), descriptor, 0)
            finally:
                os.close(descriptor)

        list(self.pool.map(download, job.keys, job.paths))

    def copy_many(self, job: Any) -> None:
        """Copy many objects within the store."""
        list(self.pool.map(self._copy, job.keys, job.targets))

    def rm(self, job: Any) -> None:
        """Remove many objects."""
        for start in range(0, len(job.keys), DELETE_BATCH):
            keys = job.keys[start : start + DELETE_BATCH]
            objects = "".join(f"<Object><Key>{xml.sax.saxutils.escape(key)}</Key></Object>" for key in keys)
            body = f"<Delete><Quiet>true</Quiet>{objects}</Delete>".encode()
            digest = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
            answer = self._send("POST", "", {"delete": ""}, body=body, headers={"Content-MD5": digest}).read()
            if b"<Error>" in answer:
                raise OSError(f"not removed: {answer[:300]!r}")

    def find(self, job: Any) -> list[str]:
        """List a prefix."""
        keys: list[str] = []
        query = {"list-type": "2", "prefix": job.prefix}
        while True:
            page = ElementTree.fromstring(self._send("GET", "", query).read())  # noqa: S314
            space = page.tag.partition("}")[0] + "}" if page.tag.startswith("{") else ""
            keys += [str(entry.text) for entry in page.iterfind(f"{space}Contents/{space}Key")]
            token = page.findtext(f"{space}NextContinuationToken")
            if not token:
                return keys
            query = {**query, "continuation-token": token}

    def info(self, job: Any) -> list[int]:
        """Look many objects up."""
        return list(self.pool.map(self._size, job.keys))

    def close(self) -> None:
        """Close threads and connections."""
        self.pool.shutdown()
        for server in self.servers:
            server.close()


@contextlib.contextmanager
def mapped(path: str) -> Iterator[memoryview]:
    """Lend a file's contents without a copy.

    As a view, not as the map: `http.client` would read a map like a file, 8 KiB at a time, and send only what is left of
    it when a stale connection makes it send again.
    """
    with Path(path).open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            yield memoryview(b"")  # an empty file can't be mapped
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole, memoryview(whole) as view:
            yield view


def receive(answer: http.client.HTTPResponse, view: memoryview) -> None:
    """Fill `view` with the answer's body; raise when it is shorter."""
    received = 0
    while received < len(view):
        count = answer.readinto(view[received:])
        if not count:
            raise OSError(f"the body ended after {received} of {len(view)} bytes")
        received += count
    answer.read()


def copied(answer: bytes) -> str:
    """Return the ETag of a copy; an answer of 200 may still hold an error."""
    found = re.search(rb"<ETag>([^<]+)</ETag>", answer)
    if found is None:
        raise OSError(f"not copied: {answer[:300]!r}")
    return found[1].decode()


CLIENTS = {"floor": Floor}
