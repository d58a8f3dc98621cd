"""One trial's process: started fresh, ordered, watched from outside, heard on a descriptor of its own."""

from __future__ import annotations

import math
import os
import re
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import psutil

from harness.lab.session import Session, stop_process
from harness.model import Failed, FailureKind, LoopLag
from harness.paths import WORKER

SAMPLE_PERIOD_S = 0.005
ANSWER_LIMIT_BYTES = 8 << 20
LOG_TAIL_BYTES = 4096
EXIT_LIMIT_S = 10.0


class Ready(msgspec.Struct, frozen=True, tag="ready", tag_field="event", forbid_unknown_fields=True):
    applied: dict[str, int | str | None]
    rss_base_bytes: int | None
    threads_base: int | None


class Window(msgspec.Struct, frozen=True, tag="window", tag_field="event", forbid_unknown_fields=True):
    wall_ns: int
    cpu_user_ns: int
    cpu_system_ns: int
    rss_peak_bytes: int | None
    loop_lag: LoopLag | None = None


class Result(msgspec.Struct, frozen=True, tag="result", tag_field="event", forbid_unknown_fields=True):
    digests: list[str | None] | None = None
    names: list[str] | None = None
    sizes: list[int] | None = None
    facts: dict[str, int | float | str | None] | None = None


class Raised(msgspec.Struct, frozen=True, tag="error", tag_field="event", forbid_unknown_fields=True):
    phase: str
    type: str
    message: str


Message: TypeAlias = Ready | Window | Result | Raised
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


@dataclass(frozen=True)
class Program:
    """Which client's process to start, and with which variables."""

    interpreter: Path
    adapter: Path
    client: str
    environment: Mapping[str, str]
    secrets: Sequence[str] = ()


@dataclass(frozen=True)
class Order:
    """What a started process is to do, and how long it may take."""

    content: Mapping[str, Any]
    """As the worker reads it from its standard input."""
    limit_s: float


@dataclass(frozen=True)
class Answer:
    """A trial that ran to its end; its bytes are not verified yet."""

    window: Window
    result: Result
    applied: dict[str, int | str | None]
    """Settings as the worker read them back."""
    rss_base_bytes: int
    rss_peak_bytes: int
    threads_base: int
    threads_peak: int
    harness_cpu_ns: int


class _TrialFailedError(Exception):
    def __init__(self, kind: FailureKind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


@dataclass
class _Samples:
    """The most that was seen from outside in the window."""

    threads: int = 0
    rss_bytes: int = 0


class TrialProcess:
    """A worker that was started and waits for its order, and the reading end of its channel."""

    def __init__(self, session: Session, program: Program) -> None:
        self._secrets = program.secrets
        descriptor, name = tempfile.mkstemp(prefix="trial-", suffix=".log", dir=session.folder)
        self._log = Path(name)
        self._reading, writing = os.pipe()
        command = [program.interpreter, "-I", WORKER, "trial", program.adapter, program.client, str(writing)]
        self._popen = session.spawn(
            command, program.environment, descriptor, stdin=subprocess.PIPE, pass_fds=(writing,)
        )
        os.close(descriptor)
        os.close(writing)
        self._deadline = math.inf
        self._limit_s = math.inf
        self._buffer = b""
        self._poll = select.poll()
        self._poll.register(self._reading, select.POLLIN)
        self._task_folder = f"/proc/{self._popen.pid}/task"
        self._outside = None if Path(self._task_folder).exists() else psutil.Process(self._popen.pid)

    def run(self, order: Order, on_ready: Callable[[], None], on_closed: Callable[[], None]) -> Answer | Failed:
        """Run the trial. `on_ready` is called right before the window opens, `on_closed` right after it closed."""
        self._limit_s = order.limit_s
        self._deadline = time.monotonic() + order.limit_s
        try:
            return self._converse(order, on_ready, on_closed)
        except _TrialFailedError as error:
            return Failed(error.kind, redact(str(error), self._secrets), redact(_tail(self._log), self._secrets))

    def close(self) -> None:
        """End the process if it hasn't ended, and forget what it printed."""
        stop_process(self._popen, grace_s=1.0)
        os.close(self._reading)
        if self._popen.stdin is not None:
            self._popen.stdin.close()
        self._log.unlink(missing_ok=True)

    def _converse(self, order: Order, on_ready: Callable[[], None], on_closed: Callable[[], None]) -> Answer:
        self._send(msgspec.json.encode(order.content))
        ready = _expect(self._receive(), Ready)
        on_ready()
        base, samples = self._look(), _Samples()
        harness_cpu_before_ns = time.process_time_ns()
        self._send(b"go")
        window = _expect(self._receive(samples), Window)
        harness_cpu_ns = time.process_time_ns() - harness_cpu_before_ns
        on_closed()
        result = _expect(self._receive(), Result)
        threads_base = ready.threads_base or base.threads
        rss_base_bytes = ready.rss_base_bytes or base.rss_bytes
        return Answer(
            window=window,
            result=result,
            applied=ready.applied,
            rss_base_bytes=rss_base_bytes,
            rss_peak_bytes=window.rss_peak_bytes or max(samples.rss_bytes, rss_base_bytes),
            threads_base=threads_base,
            # A window shorter than one sampling period is never seen from outside.
            threads_peak=max(samples.threads, threads_base),
            harness_cpu_ns=harness_cpu_ns,
        )

    def _send(self, line: bytes) -> None:
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(line + b"\n")
            self._popen.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def _receive(self, samples: _Samples | None = None) -> Message:
        """Wait for the next message; with `samples`, look at the process every 5 ms meanwhile."""
        while b"\n" not in self._buffer:
            if time.monotonic() > self._deadline:
                raise _TrialFailedError(
                    FailureKind.TIMEOUT, f"no answer within the trial's limit of {self._limit_s:.0f} s"
                )
            period_s = 0.5 if samples is None else SAMPLE_PERIOD_S
            if self._poll.poll(period_s * 1000):
                self._fill()
            elif samples is not None:
                self._sample(samples)
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            return _decoder.decode(line)
        except msgspec.DecodeError as error:
            raise _TrialFailedError(FailureKind.NONSENSE, f"the answer is not one of ours: {error}") from error

    def _fill(self) -> None:
        chunk = os.read(self._reading, 1 << 16)
        if not chunk:
            raise self._ended()
        self._buffer += chunk
        if len(self._buffer) > ANSWER_LIMIT_BYTES:
            raise _TrialFailedError(FailureKind.NONSENSE, f"the answer is longer than {ANSWER_LIMIT_BYTES >> 20} MiB")

    def _look(self) -> _Samples:
        samples = _Samples()
        self._sample(samples)
        return samples

    def _sample(self, samples: _Samples) -> None:
        if self._outside is not None:
            sample_by_psutil(self._outside, samples)
            return
        try:
            # The kernel counts the threads of a process as links of this folder: one cheap call, nothing to parse.
            samples.threads = max(samples.threads, os.stat(self._task_folder).st_nlink - 2)  # noqa: PTH116
        except OSError:
            return

    def _ended(self) -> _TrialFailedError:
        """Say how a process ended that closed its channel before its answer."""
        try:
            code = self._popen.wait(EXIT_LIMIT_S)
        except subprocess.TimeoutExpired:
            return _TrialFailedError(FailureKind.NO_ANSWER, "the client's process closed its channel without an answer")
        if code < 0:
            return _TrialFailedError(FailureKind.KILLED, f"the client's process was ended by signal {-code}")
        return _TrialFailedError(
            FailureKind.NO_ANSWER, f"the client's process exited with code {code} without an answer"
        )

    def exit_code(self) -> int:
        """Wait for the end of a process that has answered; one that hangs then is ended, and its code says so.

        An interpreter takes a tenth of a second to end. Its answer can be verified meanwhile.
        """
        try:
            return self._popen.wait(EXIT_LIMIT_S)
        except subprocess.TimeoutExpired:
            stop_process(self._popen, grace_s=1.0)
            return self._popen.returncode


def sample_by_psutil(process: psutil.Process, samples: _Samples) -> None:
    """Sample where there is no /proc. Memory too: such a system has no peak that can be reset, so this is the peak."""
    try:
        samples.threads = max(samples.threads, process.num_threads())
        samples.rss_bytes = max(samples.rss_bytes, process.memory_info().rss)
    except psutil.Error:
        return


def _expect(message: Message, kind: type[Any]) -> Any:
    if isinstance(message, Raised):
        reason = f"{message.type} in {message.phase}: {message.message}"
        raise _TrialFailedError(FailureKind.RAISED, reason)
    if not isinstance(message, kind):
        raise _TrialFailedError(FailureKind.NONSENSE, f"expected {kind.__name__}, got {type(message).__name__}")
    return message


def _tail(path: Path) -> str:
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
        return log.read().decode("utf-8", errors="replace")


_SIGNATURE = re.compile(
    r"(X-Amz-(?:Signature|Credential|Security-Token)=|Signature=|Credential=)[^&\s\"',]+", re.IGNORECASE
)


def redact(text: str, secrets: Sequence[str]) -> str:
    """Remove credentials, and signatures made with them, from a text that will be written down."""
    for secret in secrets:
        text = text.replace(secret, "[redacted]")
    return _SIGNATURE.sub(r"\1[redacted]", text)
