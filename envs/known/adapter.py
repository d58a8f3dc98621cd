"""A client whose every figure is known beforehand, for the harness to be tested on.

What it does is said by the case: `allocate` the size of its one object, `hold_threads` as many as the concurrency,
`burn_cpu` and `pause` a millisecond for each object, `cat` and `pipe` one request for each object.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import boto3
from botocore.config import Config

EARLIER_BYTES = 300 << 20
HOLD_MEMORY_S = 0.020
HOLD_THREADS_S = 0.060
SPIN_S = 0.003


class Known:
    """Does exactly what it is told, and nothing else."""

    OPERATIONS = {
        "allocate": "a bytearray of the object's size, every page written, held for 20 ms",
        "hold_threads": "as many threads as the concurrency, for 60 ms",
        "burn_cpu": "a millisecond of CPU for each object, half of it in a child process",
        "pause": "a millisecond of sleep for each object",
        "cat": "get_object each, one after another",
        "pipe": "put_object each, one after another",
    }

    def __init__(self, connection: Any) -> None:
        # Touched and freed before the window: a peak that isn't reset would show it.
        touch(EARLIER_BYTES)
        style = {} if connection.endpoint_url is None else {"addressing_style": "path"}
        retries = {"mode": connection.retry_mode, "total_max_attempts": connection.retry_attempts}
        # A checksum in the trailer would add to the bytes that are sent.
        config = Config(retries=retries, s3=style, request_checksum_calculation="when_required")
        self.client = boto3.client(
            "s3", endpoint_url=connection.endpoint_url, region_name=connection.region, config=config
        )

    def applied(self) -> dict[str, Any]:
        """Report no settings: each operation takes what it needs from its job."""
        return {}

    def warm_up(self, bucket: str, key: str) -> None:
        """Look one object up."""
        self.client.head_object(Bucket=bucket, Key=key)

    def allocate(self, job: Any) -> None:
        """Hold memory for a moment shorter than any sampling would need to see it surely."""
        held = touch(job.object_bytes)
        time.sleep(HOLD_MEMORY_S)
        del held

    def hold_threads(self, job: Any) -> None:
        """Hold threads."""
        in_threads(job.concurrency, lambda: time.sleep(HOLD_THREADS_S))

    def burn_cpu(self, job: Any) -> None:
        """Use CPU in a child process and in threads of this one."""
        half_s = len(job.keys) / 1000 / 2
        # The clock is the whole process's, so that the making of child and threads is a part of what is burnt.
        deadline_s = time.process_time() + half_s
        child = os.fork()
        if child == 0:
            burn_until(half_s)
            os._exit(0)
        in_threads(job.concurrency, lambda: burn_until(deadline_s))
        os.waitpid(child, 0)

    def pause(self, job: Any) -> None:
        """Sleep, and spin at the end: a sleep alone wakes up late by as much as the kernel likes."""
        deadline_s = time.perf_counter() + len(job.keys) / 1000
        time.sleep(max(0, deadline_s - time.perf_counter() - SPIN_S))
        while time.perf_counter() < deadline_s:
            pass

    def cat(self, job: Any) -> list[bytes]:
        """Read each object by one request."""
        return [self.client.get_object(Bucket=job.bucket, Key=key)["Body"].read() for key in job.keys]

    def pipe(self, job: Any) -> None:
        """Write each object by one request."""
        for key, payload in zip(job.keys, job.payloads, strict=True):
            self.client.put_object(Bucket=job.bucket, Key=key, Body=payload)

    def close(self) -> None:
        """Close the connections."""
        self.client.close()


def touch(size_bytes: int) -> bytearray:
    """Return memory of which every page was written."""
    return bytearray(b"x") * size_bytes


def burn_until(deadline_s: float) -> None:
    """Use CPU until this process has used `deadline_s` seconds of it."""
    while time.process_time() < deadline_s:
        pass


def in_threads(count: int, call: Callable[[], None]) -> None:
    """Run `call` in `count` threads at once."""
    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


CLIENTS = {"known": Known}
