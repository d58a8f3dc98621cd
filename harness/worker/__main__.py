"""The program that runs beside a client, inside the client's own environment. Standard library only.

    python -I harness/worker describe ADAPTER          what this environment offers, as one JSON line on stdout
    python -I harness/worker trial ADAPTER CLIENT FD   one trial: order and "go" on stdin, JSON lines on descriptor FD

An adapter is one file that defines CLIENTS, a mapping of names to classes with

    OPERATIONS                 operation -> the call that it times, in the client's words; what is missing is unsupported
    __init__(connection)       construct the client; see Connection
    applied()                  the settings as read back from the constructed client; None where it has no such setting
    warm_up(bucket, key)       one small request, so that credentials, TLS and service model are in place
    <operation>(job)           the operation and nothing else; see Job. One that answers a question returns its facts, a
                               flat mapping; what it raises is an answer too
    close()

and, where the client has an event loop within reach,

    EVENT_LOOP = True
    event_loop()               the loop, running or not
"""

from __future__ import annotations

import concurrent.futures
import gc
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

MESSAGE_LIMIT = 2000
"""Characters of an exception's text that are passed on."""

PIECE_BYTES = 1 << 20

TICK_NS = 5_000_000


class Connection(NamedTuple):
    """How to reach the store, and the settings that every client is told. Credentials come from the environment."""

    endpoint_url: str | None
    region: str
    bucket: str
    concurrency: int
    block_bytes: int | None  # None: the client's own default
    pool_size: int  # connections; at least the concurrency, or the pool is what is measured
    retry_mode: str
    retry_attempts: int  # in total, the first included
    timeout_s: int | None  # to connect, and to wait for the next bytes; None: the client's own default


class Job(NamedTuple):
    """What one operation works on. Which fields are filled depends on the operation."""

    bucket: str
    keys: list[str]  # of objects to read, remove or write
    targets: list[str]  # keys to copy to, one for each of `keys`
    paths: list[str]  # local files to upload from or download to, one for each of `keys`
    payloads: list[bytes]  # contents to write, one for each of `keys`
    prefix: str  # to list
    object_bytes: int  # size of each object
    concurrency: int
    block_bytes: int | None

    def concurrently(self, call: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Run `call` on each item in a pool of `concurrency` threads: the same pool for every client that needs one."""
        with concurrent.futures.ThreadPoolExecutor(self.concurrency) as pool:
            return list(pool.map(call, items))

    def pieces(self) -> Iterator[memoryview]:
        """Yield the first payload in pieces of 1 MiB, as a program writes to a file: given whole, it would be one part."""
        view = memoryview(self.payloads[0])
        for start in range(0, len(view), PIECE_BYTES):
            yield view[start : start + PIECE_BYTES]


def load_adapter(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("adapter", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["adapter"] = module
    spec.loader.exec_module(module)
    return module


def describe(adapter_path: str) -> None:
    """Print what is installed here and what each client offers."""
    adapter = load_adapter(adapter_path)
    packages = {d.metadata["Name"].lower(): d.version for d in importlib.metadata.distributions()}
    clients = {name: dict(client.OPERATIONS) for name, client in adapter.CLIENTS.items()}
    print(json.dumps({"python": platform.python_version(), "packages": packages, "clients": clients}))


def status_bytes(field: str) -> int | None:
    """Read a field such as VmHWM from the kernel's own account of this process; None where there is no such account."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def reset_peak() -> None:
    # Without this the peak of imports and preparation would be taken for the operation's. ru_maxrss can't be reset
    # and survives exec, so it is never used.
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as clear_refs:
            clear_refs.write("5")
    except OSError:
        pass


def thread_count() -> int | None:
    try:
        return os.stat("/proc/self/task").st_nlink - 2
    except OSError:
        return None


def cpu_ns() -> tuple[int, int]:
    """User and system time of this process and its ended children."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return (
        round((own.ru_utime + children.ru_utime) * 1e9),
        round((own.ru_stime + children.ru_stime) * 1e9),
    )


def timed(operation: Callable[[Job], Any], job: Job) -> tuple[Any, dict[str, int | None]]:
    """Run the operation in the timed window; nothing else happens between the two clock readings."""
    reset_peak()
    user_before, system_before = cpu_ns()
    started = time.perf_counter_ns()
    value = operation(job)
    wall_ns = time.perf_counter_ns() - started
    user_after, system_after = cpu_ns()
    return value, {
        "wall_ns": wall_ns,
        "cpu_user_ns": user_after - user_before,
        "cpu_system_ns": system_after - system_before,
        "rss_peak_bytes": status_bytes("VmHWM"),
    }


def values_of(result: Any) -> list[Any]:
    """Return the single values of a call's result; raise the first exception that was returned as a value."""
    values = (
        list(result.values())
        if isinstance(result, dict)
        else list(result)
        if isinstance(result, (list, tuple))
        else [result]
    )
    for value in values:
        if isinstance(value, BaseException):
            raise value
    return values


def evidence(leaves: str, job: Job, result: Any) -> dict[str, Any]:
    """Return what the parent needs to check the result: it knows the truth, and this process does not."""
    if leaves == "bytes":
        if isinstance(result, dict):
            by_key = {str(name).removeprefix(job.bucket + "/"): value for name, value in result.items()}
            values_of(by_key)
            result = [by_key.get(key) for key in job.keys]
        values = values_of(result)
        return {"digests": [None if value is None else hashlib.sha256(value).hexdigest() for value in values]}
    values = [] if result is None else values_of(result)
    if leaves == "names":
        return {"names": [str(value).removeprefix(job.bucket + "/") for value in values]}
    if leaves == "sizes":
        return {"sizes": [int(value) for value in values]}
    return {}


def answering(operation: Callable[[Job], Any]) -> Callable[[Job], Any]:
    """Return an operation that never raises: what the client raised is part of the answer."""

    def answer(job: Job) -> dict[str, Any]:
        try:
            return dict(operation(job) or {})
        except Exception as error:
            traceback.print_exception(error)
            return {"raised": f"{type(error).__name__}: {str(error)[:MESSAGE_LIMIT]}"}

    return answer


class LoopWatch:
    """A ticker on an event loop: how late it wakes up is how long something else kept the loop."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._lags_ns: list[int] = []
        self._due_ns = 0
        self._stopped = False

    def start(self) -> None:
        self._loop.call_soon_threadsafe(self._schedule)

    def _schedule(self) -> None:
        if not self._stopped:
            self._due_ns = time.perf_counter_ns() + TICK_NS
            self._loop.call_later(TICK_NS / 1e9, self._tick)

    def _tick(self) -> None:
        if not self._stopped:
            self._lags_ns.append(time.perf_counter_ns() - self._due_ns)
            self._schedule()

    def stop(self) -> dict[str, int] | None:
        """Return count, period, 99th percentile (nearest rank) and maximum; None without a tick in the window."""
        self._stopped = True
        lags = sorted(self._lags_ns)
        if not lags:
            return None
        p99 = lags[-(-99 * len(lags) // 100) - 1]
        return {
            "tick_count": len(lags),
            "period_us": TICK_NS // 1000,
            "p99_us": max(0, p99) // 1000,
            "max_us": max(0, lags[-1]) // 1000,
        }


class Channel:
    """The descriptor on which this process answers: whatever the client prints can't be mistaken for an answer."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor

    def send(self, event: str, **facts: Any) -> None:
        view = memoryview(json.dumps({"event": event, **facts}).encode() + b"\n")
        while view:
            view = view[os.write(self._descriptor, view) :]

    def send_error(self, phase: str, error: BaseException) -> None:
        traceback.print_exception(error)
        self.send("error", phase=phase, type=type(error).__name__, message=str(error)[:MESSAGE_LIMIT])


def run_trial(adapter_path: str, client_name: str, channel: Channel) -> None:
    phase = "setup"
    try:
        # The parent may start this process while it still checks the trial before; imports need no order.
        client_class = load_adapter(adapter_path).CLIENTS[client_name]
        order = json.loads(sys.stdin.readline() or "null")
        if order is None:
            return  # the parent is gone
        connection, job = Connection(**order["connection"]), Job(**order["job"])
        client = client_class(connection)
        client.warm_up(connection.bucket, order["warm_up_key"])
        operation = getattr(client, order["operation"])
        if order["answers"]:
            operation = answering(operation)
        watches = order["watch_loop"] and getattr(client_class, "EVENT_LOOP", False)
        watch = LoopWatch(client.event_loop()) if watches else None
        payloads = [Path(path).read_bytes() for path in order["payload_paths"]]
        job = job._replace(payloads=payloads)
        gc.collect()
        channel.send(
            "ready", applied=client.applied(), rss_base_bytes=status_bytes("VmRSS"), threads_base=thread_count()
        )
        if sys.stdin.readline().strip() != "go":
            return  # the parent is gone
        phase = "window"
        if watch is not None:
            watch.start()
        result, figures = timed(operation, job)
        channel.send("window", **figures, loop_lag=None if watch is None else watch.stop())
        phase = "check"
        facts = {"facts": result} if order["answers"] else evidence(order["leaves"], job, result)
        client.close()
        channel.send("result", **facts)
    except Exception as error:
        channel.send_error(phase, error)
        sys.exit(1)


def main() -> None:
    if sys.argv[1] == "describe":
        describe(sys.argv[2])
    else:
        run_trial(sys.argv[2], sys.argv[3], Channel(int(sys.argv[4])))


if __name__ == "__main__":
    main()
