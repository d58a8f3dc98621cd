"""What happened on the host while a window was open: time that the hypervisor took, and processors that others used."""

from __future__ import annotations

import functools
import gzip
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.model import Conditions

HERE = Path("/")
TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
"""Unit of the kernel's counters in /proc: 10 ms wherever Linux runs today."""


@dataclass(frozen=True)
class Snapshot:
    """The kernel's counters at one moment, since boot."""

    clock_ns: int
    cpu_count: int
    busy_ns: int
    idle_ns: int
    steal_ns: int
    load_1min: float


class Sampler:
    """Reads the counters; some tens of microseconds a time. On large hosts the kernel takes longer to write them down."""

    def __init__(self, root: Path = HERE) -> None:
        self._stat = root / "proc/stat"
        self._load = root / "proc/loadavg"
        self._interrupts_apart = interrupts_apart(root)

    def snapshot(self) -> Snapshot | None:
        """Return None where there are no counters: off Linux, and in sandboxes that fill them with zeros."""
        try:
            lines = self._stat.read_bytes()
            load_1min = float(self._load.read_bytes().split()[0])
            return parse(lines, load_1min, time.perf_counter_ns(), self._interrupts_apart)
        except (OSError, ValueError, IndexError):
            return None


def parse(stat: bytes, load_1min: float, clock_ns: int, interrupts_apart: bool) -> Snapshot | None:
    """Read the text of /proc/stat. Guests' time is part of `user` and `nice` there, so it isn't added again."""
    fields = stat.split(b"\n", 1)[0].split()[1:9]
    user, nice, system, idle, waiting, interrupts, soft_interrupts, steal = (int(field) * TICK_NS for field in fields)
    processes_ns = user + nice + system
    interrupts_ns = interrupts + soft_interrupts
    if processes_ns + idle == 0:
        return None
    return Snapshot(
        clock_ns=clock_ns,
        cpu_count=stat.count(b"\ncpu"),
        busy_ns=processes_ns if interrupts_apart else processes_ns + interrupts_ns,
        idle_ns=idle + waiting,
        steal_ns=steal,
        load_1min=load_1min,
    )


@functools.cache
def interrupts_apart(root: Path = HERE) -> bool:
    """Say whether the kernel leaves the time of interrupts out of the time of the processes that they interrupt.

    On loopback every byte passes through soft interrupts, a quarter of all time at full rate. Where processes are charged
    with them they must stand on both sides of the subtraction, and elsewhere on neither: or else traffic of ours would
    look like other processes, most so in the cases that move most. Where the kernel doesn't show how it was built, they
    are left out: foreign time is then a lower bound.
    """
    for path in (root / "proc/config.gz", root / "boot" / f"config-{platform.release()}"):
        try:
            content = path.read_bytes()
            config = gzip.decompress(content) if path.suffix == ".gz" else content
        except (OSError, EOFError):
            continue
        return b"CONFIG_IRQ_TIME_ACCOUNTING=y" in config or b"CONFIG_VIRT_CPU_ACCOUNTING_NATIVE=y" in config
    return True


def between(before: Snapshot | None, after: Snapshot | None, ours_ns: int) -> Conditions | None:
    """Return what happened from one snapshot to the other; `ours_ns` is what `cpu_ns_of` rose by in the same span."""
    if before is None or after is None:
        return None
    wall_ns = after.clock_ns - before.clock_ns
    return Conditions(
        wall_ns=wall_ns,
        # Not the sum of the counters: the kernel loses ticks of processors that doze and wake, a tenth under traffic.
        cpu_total_ns=wall_ns * after.cpu_count,
        busy_ns=max(0, after.busy_ns - before.busy_ns),
        steal_ns=max(0, after.steal_ns - before.steal_ns),
        ours_ns=max(0, ours_ns),
        load_1min=after.load_1min,
    )


class Watch:
    """Reads the counters right before a window opens and right after it closed, never within.

    `servants` are the processes that serve the client, store and link; the client's own time is told by its trial.
    """

    def __init__(self, servants: Sequence[int], root: Path = HERE) -> None:
        self._sampler = Sampler(root)
        self._servants = servants
        self._before = self._look()
        self._after: tuple[Snapshot | None, int] | None = None
        self._client_ns: int | None = None

    def opens(self) -> None:
        self._before = self._look()

    def closed(self) -> None:
        self._after = self._look()

    def client_used(self, cpu_ns: int) -> None:
        """Hear what the client itself used, from its own trial."""
        self._client_ns = cpu_ns

    def conditions(self) -> Conditions | None:
        """Return what went on between; None without a window, and on a system that keeps no such counters.

        None, too, when the client never told what it used: its own work would look like somebody else's.
        """
        if self._after is None or self._client_ns is None:
            return None
        (before, before_ns), (after, after_ns) = self._before, self._after
        return between(before, after, after_ns - before_ns + self._client_ns)

    def _look(self) -> tuple[Snapshot | None, int]:
        return self._sampler.snapshot(), cpu_ns_of([*self._servants, os.getpid()])


# --- processor time of processes --------------------------------------------------------------------------------------


def cpu_ns_of(pids: Iterable[int]) -> int:
    """Return the processor time of these processes since their start, all threads, children not; 0 for vanished ones.

    A difference of two calls holds only for processes that lived at both.
    """
    return sum(_cpu_ns(pid) for pid in pids)


def _cpu_ns(pid: int) -> int:
    readers: tuple[Callable[[int], int | None], ...] = (cpu_ns_by_clock, cpu_ns_by_ticks, cpu_ns_by_psutil)
    return next((cpu_ns for read in readers if (cpu_ns := read(pid)) is not None), 0)


def cpu_ns_by_clock(pid: int) -> int | None:
    """Read the process's own clock: exact, and in half a microsecond, for on Linux every process has one."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        # The number that clock_getcpuclockid() returns; Python has no name for it.
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        return None


def cpu_ns_by_ticks(pid: int, root: Path = HERE) -> int | None:
    """Read user and system time from /proc, each in whole ticks of 10 ms."""
    try:
        text = (root / "proc" / str(pid) / "stat").read_bytes()
        # The name before the last bracket may hold blanks and brackets itself.
        fields = text.rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_NS
    except (OSError, ValueError, IndexError):
        return None


def cpu_ns_by_psutil(pid: int) -> int | None:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return None
    return round((times.user + times.system) * 1e9)
