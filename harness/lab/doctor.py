"""Is this host fit to measure on? What was found, how bad it is, why it matters, what to do. It changes nothing.

Each check is a sentence or two and a small function from values to a finding. What can't be read is unknown, never an error.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import resource
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness import units
from harness.errors import BusyError
from harness.lab import host
from harness.lab.conditions import HERE, Sampler, between, cpu_ns_of
from harness.model import Conditions, Finding, Level, Rules
from harness.paths import RESULTS

SAMPLE_S = 1.0
UNREADABLE = (OSError, ValueError, LookupError, AttributeError, RuntimeError, psutil.Error)
"""What asking a system raises for what it hasn't or doesn't show."""


def worst(findings: Iterable[Finding]) -> Level:
    """Return the gravest level: bad, then warn, then unknown, then ok."""
    gravity = list(Level)
    return max((finding.level for finding in findings), key=gravity.index, default=Level.OK)


def headlines(findings: Iterable[Finding]) -> list[str]:
    """Return one line for each finding that is not well."""
    return [
        f"{each.level}: {each.name}: {each.fact}. {each.advice}"
        for each in findings
        if each.level in {Level.WARN, Level.BAD}
    ]


@dataclass(frozen=True)
class Check:
    """What all findings of one name share."""

    name: str
    why: str
    advice: str

    def finding(self, level: Level, fact: str, value: float | str | None = None) -> Finding:
        return Finding(self.name, level, fact, value, self.why, self.advice if level in {Level.WARN, Level.BAD} else "")

    def above(self, value: float, warn: float, bad: float, fact: str) -> Finding:
        """Judge a value that is better the smaller it is."""
        level = Level.BAD if value > bad else Level.WARN if value > warn else Level.OK
        return self.finding(level, fact, value)

    def below(self, value: float, warn: float, bad: float, fact: str) -> Finding:
        """Judge a value that is better the larger it is."""
        level = Level.BAD if value < bad else Level.WARN if value < warn else Level.OK
        return self.finding(level, fact, value)

    def unknown(self, fact: str) -> Finding:
        return self.finding(Level.UNKNOWN, fact)


def examine(
    root: Path = HERE,
    results: Path = RESULTS,
    sample_s: float | None = None,
    environment: Mapping[str, str] = os.environ,
) -> tuple[Finding, ...]:
    """Look at everything; takes `sample_s`, SAMPLE_S by default, in which this process rests, and some tenths of a second."""
    seen = observe(root, SAMPLE_S if sample_s is None else sample_s)
    cores = os.cpu_count() or 1
    looks: tuple[tuple[Check, Callable[[], Finding]], ...] = (
        (CORES, lambda: judge_cores(cores, psutil.cpu_count(logical=False), usable_cores(cores))),
        (QUOTA, lambda: judge_quota(cpu_quota(root), cores)),
        (LOAD, lambda: judge_load(os.getloadavg()[0], cores)),
        (OTHERS, lambda: judge_others(seen, cores)),
        (STEAL, lambda: judge_steal(seen.conditions)),
        (MACHINE, lambda: judge_machine(machine_hints(root))),
        (GOVERNOR, lambda: judge_governor(governors(root))),
        (TURBO, lambda: judge_turbo(turbo(root))),
        (THROTTLING, lambda: judge_throttling(seen.throttles_before, seen.throttles_after)),
        (TEMPERATURE, lambda: judge_temperature(temperatures_c(root))),
        (MEMORY, lambda: judge_memory(psutil.virtual_memory().available)),
        (MEMORY_LIMIT, lambda: judge_memory_limit(memory_limit(root), psutil.virtual_memory().total)),
        (SWAP, lambda: judge_swap(swap_used(root), seen.swapped_bytes)),
        (TEMPORARY_DISK, lambda: judge_disk(TEMPORARY_DISK, Path(tempfile.gettempdir()), 16 << 30, 2 << 30)),
        (RESULTS_DISK, lambda: judge_disk(RESULTS_DISK, results, 1 << 30, 100 << 20)),
        (CLOCK_SOURCE, lambda: judge_clock_source(_text(root / CLOCK_SOURCE_FILE))),
        (CLOCK, lambda: judge_clock(*measure_clock())),
        (FILES, lambda: judge_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])),
        (PORTS, lambda: judge_ports(port_range(root), time_wait_count(root))),
        (ALONE, judge_alone),
        (PYTHON, lambda: judge_python(is_debug_build(), environment)),
    )
    return tuple(_guarded(check, look) for check, look in looks)


def _guarded(check: Check, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except UNREADABLE as error:
        return check.unknown(f"can't be read on this system ({type(error).__name__})")


def _text(path: Path) -> str | None:
    """Return the content of a file of /proc or /sys; None where there is none, or it isn't ours to read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _numbers(paths: Iterable[Path]) -> list[int]:
    texts = (_text(path) for path in paths)
    return [int(text) for text in texts if text is not None and text.lstrip("-").isdigit()]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


# --- what happens in a second -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """Two looks at what only counts up, and the time between them."""

    wall_ns: int
    conditions: Conditions | None
    users: Mapping[str, int]
    """Processor time in ns of other processes by name, of those that used any."""
    swapped_bytes: int | None
    throttles_before: int | None
    throttles_after: int | None


def observe(root: Path = HERE, sample_s: float = SAMPLE_S) -> Seen:
    sampler, started_ns = Sampler(root), time.perf_counter_ns()
    processes, swapped, throttles = _process_times(), swapped_bytes(root), throttle_count(root)
    ours_ns, before = cpu_ns_of([os.getpid()]), sampler.snapshot()
    time.sleep(sample_s)
    after, ours_after_ns = sampler.snapshot(), cpu_ns_of([os.getpid()])
    swapped_after = swapped_bytes(root)
    users = _users(processes, _process_times())
    return Seen(
        wall_ns=time.perf_counter_ns() - started_ns,
        conditions=between(before, after, ours_after_ns - ours_ns),
        users=users,
        swapped_bytes=None if swapped is None or swapped_after is None else swapped_after - swapped,
        throttles_before=throttles,
        throttles_after=throttle_count(root),
    )


def _process_times() -> dict[psutil.Process, float]:
    """Return the processor time of every other process that may be looked at, in seconds."""
    found = {}
    # Outside, for a system that shows no list of processes; inside, for a process that ends or isn't ours to look at.
    with contextlib.suppress(*UNREADABLE):
        for process in psutil.process_iter():
            with contextlib.suppress(*UNREADABLE):
                if process.pid != os.getpid():
                    times = process.cpu_times()
                    found[process] = times.user + times.system
    return found


def _users(before: Mapping[psutil.Process, float], after: Mapping[psutil.Process, float]) -> dict[str, int]:
    used_ns: dict[str, int] = {}
    for process, cpu_s in after.items():
        # One that started meanwhile has used all of its time meanwhile.
        rise_ns = round((cpu_s - before.get(process, 0.0)) * 1e9)
        if rise_ns > 0:
            with contextlib.suppress(*UNREADABLE):
                name = plain_name(process.name())
                used_ns[name] = used_ns.get(name, 0) + rise_ns
    return used_ns


def plain_name(name: str) -> str:
    """Cut a process's name to what can only be a name: some write their arguments into it, and those may hold secrets."""
    return re.split(r"[^\w.+-]", name.strip(), maxsplit=1)[0][:15] or "unnamed"


def swapped_bytes(root: Path = HERE) -> int | None:
    """Return what was moved to and from swap since boot."""
    text = _text(root / "proc/vmstat")
    if text is not None:
        pages = re.findall(r"^pswp(?:in|out) (\d+)$", text, re.MULTILINE)
        return sum(map(int, pages)) * resource.getpagesize() if pages else None
    try:
        memory = psutil.swap_memory()
    except UNREADABLE:
        return None
    return int(memory.sin + memory.sout)


def throttle_count(root: Path = HERE) -> int | None:
    """Return how often the processors slowed down because of heat since boot."""
    folder = root / "sys/devices/system/cpu"
    counts = _numbers(folder.glob("cpu[0-9]*/thermal_throttle/*_throttle_count"))
    return sum(counts) if counts else None


# --- processors -------------------------------------------------------------------------------------------------------

CORES = Check(
    "cores",
    "store, link, client and harness share the processors: with fewer than 4 they wait for each other, "
    "and the client is measured with the store's work",
    "Measure on a host with 4 cores or more, or trust only CPU time and memory, not throughput.",
)


def usable_cores(cores: int) -> int:
    """Return the processors that this process may run on."""
    if sys.platform.startswith("linux"):
        return len(os.sched_getaffinity(0))
    return cores


def judge_cores(logical: int, physical: int | None, usable: int) -> Finding:
    fact = f"{logical} logical, {'unknown' if physical is None else physical} physical"
    fact += f", {usable} of them for this process" if usable < logical else ""
    return CORES.below(min(usable, logical), 4, 2, fact)


QUOTA = Check(
    "processor quota",
    "a control group that has used up its share of a period is stopped until the next one: pauses of tens of "
    "milliseconds in the middle of a timed window",
    "Give the container whole processors in place of a quota (e.g. a set of processors, or no limit).",
)


def cpu_quota(root: Path = HERE) -> float | None:
    """Return the tightest limit on this process in processors; None without one."""
    quotas = []
    for folder in group_folders(root, "cpu"):
        limit, _, period = (_text(folder / "cpu.max") or "").partition(" ")
        pair = limit, period
        if not limit:
            pair = _text(folder / "cpu.cfs_quota_us") or "", _text(folder / "cpu.cfs_period_us") or ""
        if all(number.isdigit() and int(number) > 0 for number in pair):
            quotas.append(int(pair[0]) / int(pair[1]))
    return min(quotas, default=None)


def group_folders(root: Path, controller: str) -> list[Path]:
    """Return the folders of this process's control groups and of those above, in both versions of the interface."""
    base, folders = root / "sys/fs/cgroup", []
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        tops = [base / controller, base / controllers] if controllers else [base, base / "unified"]
        # Within a container the path may be the host's, and only the top is there; what isn't there has no limit.
        group = Path() if ".." in path else Path(path.lstrip("/"))
        folders += [top / each for top in tops for each in (group, *group.parents)]
    return list(dict.fromkeys(folders))


def judge_quota(quota: float | None, cores: int) -> Finding:
    if quota is None:
        return QUOTA.finding(Level.OK, "none")
    level = Level.BAD if quota < cores else Level.OK
    return QUOTA.finding(level, f"{units.number(quota)} of {cores} processors", quota)


LOAD = Check(
    "load",
    "whatever else runs takes processors, caches and memory bandwidth from what is measured",
    "Close what isn't needed, and wait: this is an average over the last minute.",
)


def judge_load(load_1min: float, cores: int) -> Finding:
    finding = LOAD.above(load_1min / cores, 0.25, 0.75, f"{load_1min:.2f} over the last minute, on {cores} processors")
    return LOAD.finding(finding.level, finding.fact, load_1min)


OTHERS = Check(
    "other processes",
    "what they use in a timed window the client can't have, and each trial meets another share of it",
    "Stop them, or wait until they are done. Indexers, backups, browsers and editors are the usual ones.",
)


def judge_others(seen: Seen, cores: int) -> Finding:
    """Judge the share of all processors; by the kernel's sum where there is one, for some processes come and go between."""
    summed = sum(seen.users.values()) / (seen.wall_ns * cores)
    conditions = seen.conditions
    share = summed if conditions is None else max(summed, conditions.foreign_ns / conditions.cpu_total_ns)
    largest = sorted(seen.users.items(), key=lambda item: -item[1])[:3]
    names = [
        f"{name} {_percent(used_ns / seen.wall_ns)}" for name, used_ns in largest if used_ns >= 0.02 * seen.wall_ns
    ]
    fact = f"{_percent(share)} of the processors' time" + (f"; of one processor: {', '.join(names)}" if names else "")
    allowed = Rules().max_foreign_share
    return OTHERS.above(share, allowed / 2, allowed, fact)


STEAL = Check(
    "steal",
    "the hypervisor ran another machine while this one had work: the clock went on and the work didn't",
    "Measure at another time, on a larger or dedicated machine, or on one without burst credits.",
)


def judge_steal(conditions: Conditions | None) -> Finding:
    if conditions is None:
        return STEAL.unknown("not counted by this system")
    share, allowed = conditions.steal_ns / conditions.cpu_total_ns, Rules().max_steal_share
    fact = f"{_percent(share)} of the processors' time over {units.duration(conditions.wall_ns)}"
    return STEAL.above(share, allowed / 5, allowed, fact)


MACHINE = Check(
    "machine",
    "a virtual machine or a container shares its hardware with others that can't be seen from inside",
    "",
)


def machine_hints(root: Path = HERE) -> list[str]:
    hints = []
    flags = re.search(r"^flags\s*:.*\bhypervisor\b", _text(root / "proc/cpuinfo") or "", re.MULTILINE)
    if flags or (root / "sys/hypervisor/type").exists():
        product = _text(root / "sys/class/dmi/id/product_name")
        hints.append("virtual machine" + (f" ({product})" if product else ""))
    if (root / ".dockerenv").exists() or (root / "run/.containerenv").exists():
        hints.append("container")
    return hints


def judge_machine(hints: Sequence[str]) -> Finding:
    fact = ", in it a ".join(hints) or "no sign of a virtual machine or a container"
    return MACHINE.finding(Level.OK, fact, "+".join(hint.split(" (")[0] for hint in hints) or "none seen")


GOVERNOR = Check(
    "frequency governor",
    "a governor that saves power raises the frequency only after work has begun: short windows run slower than long ones",
    "Choose `performance`: sudo cpupower frequency-set -g performance",
)


def governors(root: Path = HERE) -> set[str]:
    files = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    return {text for text in map(_text, files) if text}


def judge_governor(names: set[str]) -> Finding:
    if not names:
        return GOVERNOR.unknown("not visible, as on most virtual machines")
    listed = ", ".join(sorted(names))
    return GOVERNOR.finding(Level.OK if names == {"performance"} else Level.WARN, listed, listed)


TURBO = Check(
    "turbo",
    "the frequency above the nominal one depends on heat and on how many cores work: it drifts during a run",
    "For figures to be kept, switch it off: no_turbo of intel_pstate to 1, or cpufreq/boost to 0.",
)


def turbo(root: Path = HERE) -> bool | None:
    """Say whether it is on; None where that isn't visible."""
    folder = root / "sys/devices/system/cpu"
    if (no_turbo := _text(folder / "intel_pstate/no_turbo")) is not None:
        return no_turbo == "0"
    if (boost := _text(folder / "cpufreq/boost")) is not None:
        return boost == "1"
    return None


def judge_turbo(is_on: bool | None) -> Finding:
    if is_on is None:
        return TURBO.unknown("not visible, as on most virtual machines")
    return TURBO.finding(Level.WARN, "on", "on") if is_on else TURBO.finding(Level.OK, "off", "off")


THROTTLING = Check(
    "throttling",
    "a processor that got too hot slows down, and later trials run on a slower machine than earlier ones",
    "Let it cool down, clear its vents, or measure on a machine with better cooling.",
)


def judge_throttling(before: int | None, after: int | None) -> Finding:
    if before is None or after is None:
        return THROTTLING.unknown("not visible, as on most virtual machines")
    level = Level.BAD if after > before else Level.WARN if after else Level.OK
    fact = f"{units.count(after)} times since boot, {after - before} of them right now"
    return THROTTLING.finding(level, fact, after)


TEMPERATURE = Check(
    "temperature",
    "near its limit a processor lowers its frequency",
    "Let it cool down before the run.",
)
CPU_SENSORS = re.compile(r"x86_pkg_temp|cpu|coretemp|k10temp|zenpower", re.IGNORECASE)


def temperatures_c(root: Path = HERE) -> list[float]:
    """Return what the processors' sensors say, in degrees Celsius; those of disks and batteries are left out."""
    chips = [
        *((zone / "type", zone.glob("temp")) for zone in (root / "sys/class/thermal").glob("thermal_zone*")),
        *((chip / "name", chip.glob("temp*_input")) for chip in (root / "sys/class/hwmon").glob("hwmon*")),
    ]
    found = [value for name, files in chips if CPU_SENSORS.search(_text(name) or "") for value in _numbers(files)]
    # Some sensors that are off say 0, or less than any room is.
    return [value / 1000 for value in found if value > 0]


def judge_temperature(found_c: Sequence[float]) -> Finding:
    if not found_c:
        return TEMPERATURE.unknown("not visible, as on most virtual machines")
    return TEMPERATURE.above(max(found_c), 80.0, 95.0, f"{max(found_c):.0f} °C at the hottest sensor of the processors")


# --- memory and disk --------------------------------------------------------------------------------------------------

MEMORY = Check(
    "free memory",
    "the store's files are served from memory as long as they fit; when they don't, the disk is measured, "
    "and with too little a client is ended by the kernel",
    "Close what isn't needed, or narrow the run with --scenario or --size.",
)


def judge_memory(available_bytes: int) -> Finding:
    return MEMORY.below(available_bytes, 4 << 30, 1 << 30, f"{units.size(available_bytes)} available")


MEMORY_LIMIT = Check(
    "memory limit",
    "a control group at its limit drops cached files and then ends processes, whatever the host has free",
    "Raise the container's memory limit to 4 GiB or more.",
)


def memory_limit(root: Path = HERE) -> int | None:
    """Return the tightest limit of this process's control groups in bytes; None without one."""
    folders = group_folders(root, "memory")
    limits = _numbers(folder / name for folder in folders for name in ("memory.max", "memory.limit_in_bytes"))
    return min(limits, default=None)


def judge_memory_limit(limit_bytes: int | None, total_bytes: int) -> Finding:
    # The older interface writes "no limit" as a number larger than any memory.
    if limit_bytes is None or limit_bytes >= total_bytes:
        return MEMORY_LIMIT.finding(Level.OK, "none")
    return MEMORY_LIMIT.below(limit_bytes, 4 << 30, 1 << 30, f"{units.size(limit_bytes)} for this control group")


SWAP = Check(
    "swap",
    "a page that must come back from swap takes as long as a request, and swapped memory is missing from peaks",
    "Free memory until nothing is moved, or switch swap off during the run: sudo swapoff -a",
)


def swap_used(root: Path = HERE) -> int:
    """Return the bytes that lie in swap."""
    kib = dict(re.findall(r"^(Swap\w+):\s+(\d+) kB$", _text(root / "proc/meminfo") or "", re.MULTILINE))
    if kib:
        return (int(kib["SwapTotal"]) - int(kib["SwapFree"])) << 10
    return int(psutil.swap_memory().used)


def judge_swap(used_bytes: int, moved_bytes: int | None) -> Finding:
    if moved_bytes:
        return SWAP.finding(Level.BAD, f"{units.size(moved_bytes)} moved within a second", used_bytes)
    moved = "activity unknown" if moved_bytes is None else "nothing moved within a second"
    # Some pages that nobody has asked for since boot do no harm.
    level = Level.WARN if used_bytes > 256 << 20 else Level.OK
    return SWAP.finding(level, f"{units.size(used_bytes)} in use, {moved}", used_bytes)


TEMPORARY_DISK = Check(
    "free disk, temporary folder",
    "the embedded store and the files of a run lie there, and a full disk ends the run",
    "Free some room, or set TMPDIR to a larger disk.",
)
RESULTS_DISK = Check(
    "free disk, results",
    "every trial is written there before the next one starts",
    "Free some room, or name another folder with --results.",
)


def judge_disk(check: Check, folder: Path, warn_bytes: int, bad_bytes: int) -> Finding:
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    free_bytes = shutil.disk_usage(there).free
    return check.below(free_bytes, warn_bytes, bad_bytes, f"{units.size(free_bytes)} free in {folder}")


# --- clock ------------------------------------------------------------------------------------------------------------

CLOCK_SOURCE = Check(
    "clock source",
    "a clock that is read from a device costs a microsecond or more a reading, and every client reads it often",
    "Boot with clocksource=tsc if the processor's counter is stable, or measure on another host.",
)
CLOCK_SOURCE_FILE = "sys/devices/system/clocksource/clocksource0/current_clocksource"
FAST_SOURCES = frozenset({"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "timebase"})
SLOW_SOURCES = frozenset({"hpet", "acpi_pm", "refined-jiffies", "jiffies", "pit"})


def judge_clock_source(name: str | None) -> Finding:
    if not name:
        return CLOCK_SOURCE.unknown("not told by this system")
    level = Level.OK if name in FAST_SOURCES else Level.BAD if name in SLOW_SOURCES else Level.WARN
    return CLOCK_SOURCE.finding(level, name, name)


CLOCK = Check(
    "clock",
    "no window is measured finer than the clock moves, and each reading is part of what is timed",
    "Measure on another host: here the clock needs a call into the kernel or the hypervisor.",
)


def measure_clock(readings: int = 20_000) -> tuple[float, int]:
    """Return what a reading of perf_counter_ns costs and the smallest step that it makes, both in ns."""
    read = time.perf_counter_ns
    times = [read() for _ in range(readings)]
    steps = [later - earlier for earlier, later in itertools.pairwise(times) if later > earlier]
    return (times[-1] - times[0]) / (readings - 1), min(steps, default=0)


def judge_clock(cost_ns: float, step_ns: int) -> Finding:
    if step_ns == 0:
        return CLOCK.finding(Level.BAD, "it stood still while it was read", step_ns)
    fact = f"{units.duration(cost_ns)} a reading, smallest step {units.duration(step_ns)}"
    return CLOCK.above(max(cost_ns, step_ns), 500, 5_000, fact)


# --- limits and other runs --------------------------------------------------------------------------------------------

FILES = Check(
    "open files",
    "every connection and every file of a batch is one; a client at the limit fails",
    "Raise it in this shell: ulimit -n 4096",
)


def judge_files(soft_limit: int) -> Finding:
    if soft_limit == resource.RLIM_INFINITY:
        return FILES.finding(Level.OK, "no limit")
    return FILES.below(soft_limit, 4096, 0, f"{units.count(soft_limit)} a process")


PORTS = Check(
    "ports",
    "a closed connection keeps its port for a minute; when they run out, connecting fails or takes long",
    "Wait a minute, or widen the range: sysctl net.ipv4.ip_local_port_range",
)


def port_range(root: Path = HERE) -> int | None:
    """Return how many ports there are for outgoing connections."""
    text = _text(root / "proc/sys/net/ipv4/ip_local_port_range")
    if text is None:
        return None
    first, last = map(int, text.split())
    return last - first + 1


def time_wait_count(root: Path = HERE) -> int | None:
    match = re.search(r"^TCP:.*\btw (\d+)", _text(root / "proc/net/sockstat") or "", re.MULTILINE)
    return int(match[1]) if match else None


def judge_ports(available: int | None, waiting: int | None) -> Finding:
    if available is None or waiting is None:
        return PORTS.unknown("not told by this system")
    fact = f"{units.count(waiting)} of {units.count(available)} wait after their connection was closed"
    finding = PORTS.above(waiting / available, 0.25, 0.5, fact)
    level = Level.WARN if finding.level is Level.OK and available < 10_000 else finding.level
    return PORTS.finding(level, fact, waiting)


ALONE = Check(
    "another run",
    "two runs at once measure each other",
    "Wait for it, or stop it.",
)


def judge_alone() -> Finding:
    """Try the lock of a run and give it back at once; the run that asks this about itself isn't another one."""
    try:
        with host.exclusive("doctor"):
            return ALONE.finding(Level.OK, "none", "none")
    except BusyError as error:
        if f"process {os.getpid()} of" in str(error):
            return ALONE.finding(Level.OK, "none but this one", "none")
        return ALONE.finding(Level.BAD, str(error), "running")


PYTHON = Check(
    "python",
    "a debug build, or a variable that makes the interpreter check or trace, slows the harness several times over; "
    "clients' processes ignore such variables, but not such a build",
    "Use an ordinary build, and unset the variables named.",
)
SLOWING_VARIABLES = (
    "PYTHONASYNCIODEBUG",
    "PYTHONDEVMODE",
    "PYTHONDUMPREFS",
    "PYTHONMALLOC",
    "PYTHONMALLOCSTATS",
    "PYTHONPROFILEIMPORTTIME",
    "PYTHONTRACEMALLOC",
)


def is_debug_build() -> bool:
    return bool(sysconfig.get_config_var("Py_DEBUG")) or hasattr(sys, "gettotalrefcount")


def judge_python(debug: bool, environment: Mapping[str, str]) -> Finding:
    amiss = [*(["debug build"] if debug else []), *(name for name in SLOWING_VARIABLES if environment.get(name))]
    fact = ", ".join(amiss) or f"{sys.implementation.name} {sys.version.split()[0]}, ordinary build and environment"
    return PYTHON.finding(Level.BAD if amiss else Level.OK, fact, ", ".join(amiss) or None)
