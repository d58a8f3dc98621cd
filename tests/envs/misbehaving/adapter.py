"""Clients that fail in every way a client may fail, and two that don't; standard library only.

They read through the link with a signed request, so that the good ones return what is really on the store.
"""

from __future__ import annotations

import atexit
import datetime
import hashlib
import hmac
import http.client
import json
import os
import signal
import ssl
import sys
import time
import urllib.parse
from typing import Any


def signed_get(connection: Any, bucket: str, key: str) -> bytes:
    """GET one object with an AWS signature version 4 in the headers."""
    url = urllib.parse.urlsplit(connection.endpoint_url)
    path = f"/{bucket}/{urllib.parse.quote(key)}"
    stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{stamp[:8]}/{connection.region}/s3/aws4_request"
    payload = "UNSIGNED-PAYLOAD"
    headers = {"host": url.netloc, "x-amz-content-sha256": payload, "x-amz-date": stamp}
    names = ";".join(headers)
    canonical = "\n".join(["GET", path, "", *[f"{k}:{v}" for k, v in headers.items()], "", names, payload])
    to_sign = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    secret = ("AWS4" + os.environ["AWS_SECRET_ACCESS_KEY"]).encode()
    for part in scope.split("/"):
        secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(secret, to_sign.encode(), hashlib.sha256).hexdigest()
    credential = f"{os.environ['AWS_ACCESS_KEY_ID']}/{scope}"
    headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
    if url.scheme == "https":
        server: Any = http.client.HTTPSConnection(url.netloc, context=ssl.create_default_context())
    else:
        server = http.client.HTTPConnection(url.netloc)
    server.request("GET", path, headers=headers)
    answer = server.getresponse()
    body: bytes = answer.read()
    server.close()
    if answer.status != 200:
        raise OSError(f"GET answered {answer.status}: {body[:200]!r}")
    return body


class Behaves:
    OPERATIONS = {"read": "GET", "cat": "GET each"}

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def applied(self) -> dict[str, Any]:
        return {"concurrency": self.connection.concurrency}

    def warm_up(self, bucket: str, key: str) -> None:
        signed_get(self.connection, bucket, key)

    def read(self, job: Any) -> Any:
        return signed_get(self.connection, job.bucket, job.keys[0])

    def cat(self, job: Any) -> Any:
        return job.concurrently(lambda key: signed_get(self.connection, job.bucket, key), job.keys)

    def close(self) -> None:
        pass


class Raises(Behaves):
    def read(self, job: Any) -> Any:
        raise ValueError("no bytes today")


class RaisesAtSetup(Behaves):
    def __init__(self, connection: Any) -> None:
        raise RuntimeError("no construction today")


class ReturnsException(Behaves):
    def cat(self, job: Any) -> Any:
        values: list[Any] = super().cat(job)
        values[-1] = PermissionError("swallowed by the batch")
        return values


class Hangs(Behaves):
    def read(self, job: Any) -> Any:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)


class Killed(Behaves):
    def read(self, job: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


class Exits(Behaves):
    def read(self, job: Any) -> Any:
        os._exit(7)


class Nonsense(Behaves):
    def read(self, job: Any) -> Any:
        os.write(int(sys.argv[4]), b'{"event": "window", "wall_ns": "soon"}\n')
        return super().read(job)


class Endless(Behaves):
    def read(self, job: Any) -> Any:
        while True:
            os.write(int(sys.argv[4]), b"x" * 65536)


class Noisy(Behaves):
    def read(self, job: Any) -> Any:
        print(json.dumps({"event": "window", "wall_ns": 1, "cpu_user_ns": 1, "cpu_system_ns": 1, "rss_peak_bytes": 1}))
        print("\x00\xff" * 1000, file=sys.stderr)
        return super().read(job)


class WrongBytes(Behaves):
    def read(self, job: Any) -> Any:
        return bytes(len(super().read(job)))


class ShortBytes(Behaves):
    def read(self, job: Any) -> Any:
        return super().read(job)[:-1]


class Deaf(Behaves):
    def applied(self) -> dict[str, Any]:
        return {"concurrency": 1}


class AbortsAtExit(Behaves):
    def close(self) -> None:
        atexit.register(os.abort)


class LeaksSecret(Behaves):
    def read(self, job: Any) -> Any:
        print("my secret is", os.environ["AWS_SECRET_ACCESS_KEY"])
        raise ValueError(f"denied for {os.environ['AWS_ACCESS_KEY_ID']}:{os.environ['AWS_SECRET_ACCESS_KEY']}")


class Slow(Behaves):
    def read(self, job: Any) -> Any:
        time.sleep(0.3)
        return super().read(job)


CLIENTS = {
    "raises": Raises,
    "raises-at-setup": RaisesAtSetup,
    "returns-exception": ReturnsException,
    "hangs": Hangs,
    "killed": Killed,
    "exits": Exits,
    "nonsense": Nonsense,
    "endless": Endless,
    "noisy": Noisy,
    "wrong-bytes": WrongBytes,
    "short-bytes": ShortBytes,
    "deaf": Deaf,
    "aborts-at-exit": AbortsAtExit,
    "leaks-secret": LeaksSecret,
    "behaves": Behaves,
    "slow": Slow,
}
