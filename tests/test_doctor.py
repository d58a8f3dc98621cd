"""Whether a host is fit to measure on is told in facts, with why and what to do."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from harness.lab import doctor, host
from harness.lab.doctor import Seen
from harness.model import Conditions, Finding, Level

BENCH = Path(sys.executable).parent / "bench"
SECOND_NS = 10**9
CPU = "sys/devices/system/cpu"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SAMPLE_S", 0.01)


def named(findings: tuple[Finding, ...], name: str) -> Finding:
    return next(finding for finding in findings if finding.name == name)


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_every_finding_has_a_level_and_a_fact(quick: None) -> None:
    findings = doctor.examine()
    assert len({finding.name for finding in findings}) == len(findings) >= 15
    for finding in findings:
        assert finding.level in list(Level)
        assert finding.fact
        assert finding.level not in (Level.WARN, Level.BAD) or (finding.why and finding.advice)


def test_what_a_system_does_not_say_is_unknown_and_no_crash(quick: None, tmp_path: Path) -> None:
    findings = doctor.examine(tmp_path)
    for name in ("steal", "frequency governor", "throttling", "ports"):
        assert named(findings, name).level == Level.UNKNOWN


@pytest.mark.parametrize(
    ("path", "text", "name", "level"),
    [
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n", "frequency governor", Level.WARN),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n", "frequency governor", Level.OK),
        ("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "3\n", "throttling", Level.WARN),
        ("sys/fs/cgroup/cpu.max", "50000 100000\n", "processor quota", Level.BAD),
        ("sys/fs/cgroup/cpu.max", "max 100000\n", "processor quota", Level.OK),
        ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n", "clock source", Level.BAD),
    ],
)
def test_the_kernels_files_are_understood(
    quick: None, tmp_path: Path, path: str, text: str, name: str, level: str
) -> None:
    write(tmp_path, path, text)
    write(tmp_path, "proc/self/cgroup", "0::/\n")
    assert named(doctor.examine(tmp_path), name).level == level


@pytest.mark.parametrize(("waiting", "level"), [(10, Level.OK), (20000, Level.BAD)])
def test_ports_that_wait_for_their_end_are_counted(quick: None, tmp_path: Path, waiting: int, level: str) -> None:
    write(tmp_path, "proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n")
    write(tmp_path, "proc/net/sockstat", f"sockets: used 100\nTCP: inuse 9 orphan 0 tw {waiting} alloc 9 mem 1\n")
    finding = named(doctor.examine(tmp_path), "ports")
    assert (finding.level, f"{waiting:,}" in finding.fact) == (level, True)


def test_debugging_in_the_interpreter_is_bad(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONMALLOC", "debug")
    assert named(doctor.examine(), "python").level == Level.BAD


def test_another_run_is_named() -> None:
    code = """
import time
from harness.lab import host
with host.exclusive("run 20261201-somebody"):
    print("held", flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        finding = named(doctor.examine(), "another run")
        holder.kill()
    assert finding.level == Level.BAD
    assert "20261201-somebody" in finding.fact
    assert named(doctor.examine(), "another run").level == Level.OK


def test_the_worst_level_counts() -> None:
    levels = tuple(Finding("n", level, "f", None, "", "") for level in (Level.OK, Level.WARN, Level.UNKNOWN))
    assert doctor.worst(levels) == "warn"
    assert doctor.worst([]) == "ok"


def test_the_command_ends_with_1_only_when_something_is_bad() -> None:
    ran = subprocess.run([BENCH, "doctor", "--json"], capture_output=True, text=True, check=False, timeout=60)
    findings = json.loads(ran.stdout)
    assert {"cores", "steal", "clock"} <= {finding["name"] for finding in findings}
    assert ran.returncode == int(any(finding["level"] == "bad" for finding in findings))


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n", encoding="utf-8")
    return root


def seen(foreign_s: float = 0.0, steal_s: float = 0.0, users: dict[str, float] | None = None) -> Seen:
    busy_ns, steal_ns = round(foreign_s * SECOND_NS), round(steal_s * SECOND_NS)
    return Seen(
        wall_ns=SECOND_NS,
        conditions=Conditions(SECOND_NS, 4 * SECOND_NS, busy_ns, steal_ns, 0, 0.1),
        users={name: round(used_s * SECOND_NS) for name, used_s in (users or {}).items()},
        swapped_bytes=0,
        throttles_before=0,
        throttles_after=0,
    )


def test_advice_is_given_only_where_something_is_amiss() -> None:
    assert doctor.judge_cores(8, 4, 8).advice == ""
    assert "4 cores" in doctor.judge_cores(2, 1, 2).advice


def test_a_look_that_the_system_refuses_is_unknown() -> None:
    def look() -> Finding:
        raise psutil.AccessDenied

    refused = doctor._guarded(doctor.STEAL, look)
    assert (refused.name, refused.level, refused.value) == ("steal", Level.UNKNOWN, None)
    assert "AccessDenied" in refused.fact


# --- processors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("logical", "usable", "level"),
    [(4, 4, Level.OK), (3, 3, Level.WARN), (1, 1, Level.BAD), (64, 2, Level.WARN)],
)
def test_fewer_than_four_processors_for_this_process_are_a_warning(logical: int, usable: int, level: Level) -> None:
    assert doctor.judge_cores(logical, None, usable).level is level


def test_cores_that_are_kept_from_this_process_are_named() -> None:
    assert doctor.judge_cores(64, 32, 2).fact == "64 logical, 32 physical, 2 of them for this process"


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "150000 100000"}, 1.5),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, None),
        (
            {
                "proc/self/cgroup": "0::/user/job",
                "sys/fs/cgroup/user/job/cpu.max": "max 100000",
                "sys/fs/cgroup/user/cpu.max": "200000 100000",
            },
            2.0,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/\n2:cpu,cpuacct:/docker/1f",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
            0.5,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu:/",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            None,
        ),
        ({"proc/self/cgroup": "0::/../../job", "sys/fs/cgroup/cpu.max": "100000 100000"}, 1.0),
        ({}, None),
    ],
)
def test_the_tightest_quota_of_all_groups_above_is_found(
    tmp_path: Path, files: dict[str, str], quota: float | None
) -> None:
    assert doctor.cpu_quota(tree(tmp_path, files)) == quota


def test_a_quota_below_the_cores_is_bad() -> None:
    assert doctor.judge_quota(1.5, 4).level is Level.BAD
    assert doctor.judge_quota(1.5, 4).fact == "1.50 of 4 processors"
    assert doctor.judge_quota(4.0, 4).level is Level.OK
    assert doctor.judge_quota(None, 4).level is Level.OK


@pytest.mark.parametrize(("load", "level"), [(0.5, Level.OK), (1.5, Level.WARN), (3.5, Level.BAD)])
def test_load_is_judged_against_the_cores(load: float, level: Level) -> None:
    judged = doctor.judge_load(load, 4)
    assert (judged.level, judged.value) == (level, load)


@pytest.mark.parametrize(("foreign_s", "level"), [(0.1, Level.OK), (0.3, Level.WARN), (0.5, Level.BAD)])
def test_other_processes_are_judged_by_their_share_of_all_processors(foreign_s: float, level: Level) -> None:
    assert doctor.judge_others(seen(foreign_s), 4).level is level


def test_the_largest_users_are_named_and_the_small_ones_are_not() -> None:
    users = {"backup": 0.9, "idler": 0.001, "editor": 0.2, "browser": 0.3, "shell": 0.1}
    fact = doctor.judge_others(seen(users=users), 4).fact
    assert fact == "37.5 % of the processors' time; of one processor: backup 90.0 %, browser 30.0 %, editor 20.0 %"


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("python3.11", "python3.11"),
        ("worker --token=hunter2", "worker"),
        ("sync:hunter2@host", "sync"),
        ("a-name-that-is-long-enough-to-hold-something", "a-name-that-is-"),
        ("\x1b[31mred", "unnamed"),
        ("", "unnamed"),
    ],
)
def test_a_process_is_named_without_what_it_was_told(name: str, plain: str) -> None:
    assert doctor.plain_name(name) == plain


@pytest.mark.parametrize(("steal_s", "level"), [(0.0, Level.OK), (0.08, Level.WARN), (0.3, Level.BAD)])
def test_steal_is_judged_by_its_share(steal_s: float, level: Level) -> None:
    assert doctor.judge_steal(seen(steal_s=steal_s).conditions).level is level


def test_steal_that_nobody_counts_is_unknown() -> None:
    assert doctor.judge_steal(None).level is Level.UNKNOWN


def test_a_virtual_machine_and_a_container_leave_signs(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm",
            "sys/class/dmi/id/product_name": "m7i.xlarge",
            ".dockerenv": "",
        },
    )
    judged = doctor.judge_machine(doctor.machine_hints(root))
    assert judged.fact == "virtual machine (m7i.xlarge), in it a container"
    assert judged.value == "virtual machine+container"
    assert doctor.machine_hints(tree(tmp_path / "bare", {"proc/cpuinfo": "flags\t: fpu vme"})) == []


@pytest.mark.parametrize(
    ("names", "level"),
    [
        (("performance", "performance"), Level.OK),
        (("performance", "powersave"), Level.WARN),
        ((), Level.UNKNOWN),
    ],
)
def test_every_processor_must_have_the_fast_governor(tmp_path: Path, names: tuple[str, ...], level: Level) -> None:
    root = tree(tmp_path, {f"{CPU}/cpu{n}/cpufreq/scaling_governor": name for n, name in enumerate(names)})
    assert doctor.judge_governor(doctor.governors(root)).level is level


@pytest.mark.parametrize(
    ("files", "is_on"),
    [
        ({f"{CPU}/intel_pstate/no_turbo": "1"}, False),
        ({f"{CPU}/intel_pstate/no_turbo": "0"}, True),
        ({f"{CPU}/cpufreq/boost": "1"}, True),
        ({}, None),
    ],
)
def test_turbo_is_read_from_either_driver(tmp_path: Path, files: dict[str, str], is_on: bool | None) -> None:
    assert doctor.turbo(tree(tmp_path, files)) is is_on
    levels = {True: Level.WARN, False: Level.OK, None: Level.UNKNOWN}
    assert doctor.judge_turbo(is_on).level is levels[is_on]


def test_throttling_is_bad_while_it_happens_and_a_warning_afterwards(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            f"{CPU}/cpu0/thermal_throttle/core_throttle_count": "2",
            f"{CPU}/cpu1/thermal_throttle/core_throttle_count": "3",
            f"{CPU}/cpu1/thermal_throttle/package_throttle_count": "4",
        },
    )
    assert doctor.throttle_count(root) == 9
    assert doctor.judge_throttling(9, 10).level is Level.BAD
    assert doctor.judge_throttling(9, 9).level is Level.WARN
    assert doctor.judge_throttling(0, 0).level is Level.OK
    assert doctor.judge_throttling(None, None).level is Level.UNKNOWN


def test_only_sensors_of_processors_are_read(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "sys/class/thermal/thermal_zone0/type": "x86_pkg_temp",
            "sys/class/thermal/thermal_zone0/temp": "61000",
            "sys/class/hwmon/hwmon0/name": "nvme",
            "sys/class/hwmon/hwmon0/temp1_input": "99000",
            "sys/class/hwmon/hwmon1/name": "coretemp",
            "sys/class/hwmon/hwmon1/temp1_input": "83000",
            "sys/class/hwmon/hwmon1/temp2_input": "0",
        },
    )
    assert sorted(doctor.temperatures_c(root)) == [61.0, 83.0]
    assert doctor.judge_temperature([61.0, 83.0]).level is Level.WARN
    assert doctor.judge_temperature([97.0]).level is Level.BAD
    assert doctor.judge_temperature([]).level is Level.UNKNOWN


# --- memory and disk --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("free", "level"), [(8 << 30, Level.OK), (2 << 30, Level.WARN), (1 << 29, Level.BAD)])
def test_little_free_memory_is_amiss(free: int, level: Level) -> None:
    assert doctor.judge_memory(free).level is level


def test_a_memory_limit_counts_only_below_the_memory(tmp_path: Path) -> None:
    root = tree(tmp_path, {"proc/self/cgroup": "0::/job", "sys/fs/cgroup/job/memory.max": str(2 << 30)})
    assert doctor.memory_limit(root) == 2 << 30
    assert doctor.judge_memory_limit(2 << 30, 16 << 30).level is Level.WARN
    assert doctor.judge_memory_limit(9223372036854771712, 16 << 30).fact == "none"
    assert doctor.judge_memory_limit(None, 16 << 30).level is Level.OK


def test_swap_is_bad_when_it_moves_and_harmless_when_it_rests(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/meminfo": "SwapCached:     0 kB\nSwapTotal:   2048 kB\nSwapFree:   1024 kB",
            "proc/vmstat": "nr_free_pages 5\npswpin 3\npswpout 4",
        },
    )
    assert doctor.swap_used(root) == 1 << 20
    assert doctor.swapped_bytes(root) == 7 * os.sysconf("SC_PAGESIZE")
    assert doctor.judge_swap(1 << 20, 0).level is Level.OK
    assert doctor.judge_swap(1 << 30, 0).level is Level.WARN
    assert doctor.judge_swap(1 << 20, 4096).level is Level.BAD
    assert "activity unknown" in doctor.judge_swap(0, None).fact


def test_the_disk_of_a_folder_that_is_yet_to_be_made_is_the_one_above(tmp_path: Path) -> None:
    folder = tmp_path / "yet" / "to be made"
    assert doctor.judge_disk(doctor.RESULTS_DISK, folder, 0, 0).level is Level.OK
    assert doctor.judge_disk(doctor.RESULTS_DISK, folder, 1 << 60, 0).level is Level.WARN
    assert doctor.judge_disk(doctor.RESULTS_DISK, folder, 1 << 60, 1 << 60).level is Level.BAD


# --- clock, limits, other runs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "level"),
    [
        ("tsc", Level.OK),
        ("kvm-clock", Level.OK),
        ("arch_sys_counter", Level.OK),
        ("xen", Level.WARN),
        ("hpet", Level.BAD),
        (None, Level.UNKNOWN),
    ],
)
def test_a_clock_source_is_good_when_reading_it_needs_no_device(source: str | None, level: Level) -> None:
    assert doctor.judge_clock_source(source).level is level


def test_a_clock_that_is_slow_or_coarse_is_amiss() -> None:
    assert doctor.judge_clock(50.0, 40).level is Level.OK
    assert doctor.judge_clock(900.0, 40).level is Level.WARN
    assert doctor.judge_clock(50.0, 10_000_000).level is Level.BAD
    assert doctor.judge_clock(50.0, 0).level is Level.BAD


@pytest.mark.parametrize(("limit", "level"), [(4096, Level.OK), (1024, Level.WARN), (-1, Level.OK)])
def test_few_open_files_are_a_warning(limit: int, level: Level) -> None:
    assert doctor.judge_files(resource.RLIM_INFINITY if limit == -1 else limit).level is level


def test_ports_are_counted_against_their_range(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/sys/net/ipv4/ip_local_port_range": "32768\t60999",
            "proc/net/sockstat": "sockets: used 52\nTCP: inuse 12 orphan 0 tw 146 alloc 12 mem 0\nUDP: inuse 0 mem 0",
        },
    )
    assert (doctor.port_range(root), doctor.time_wait_count(root)) == (28_232, 146)
    assert doctor.judge_ports(28_232, 146).level is Level.OK
    assert doctor.judge_ports(28_232, 10_000).level is Level.WARN
    assert doctor.judge_ports(28_232, 20_000).level is Level.BAD
    assert doctor.judge_ports(1_000, 0).level is Level.WARN
    assert doctor.judge_ports(None, 5).level is Level.UNKNOWN


def test_the_run_that_asks_is_not_another_run(temporary_folder: Path) -> None:
    assert doctor.judge_alone().fact == "none"
    with host.exclusive("run mine"):
        assert doctor.judge_alone().level is Level.OK
        (temporary_folder / "bench-run.holder").write_text("run theirs, process 0 of somebody\n", encoding="utf-8")
        theirs = doctor.judge_alone()
    assert theirs.level is Level.BAD
    assert "run theirs" in theirs.fact


def test_an_interpreter_that_checks_or_traces_is_bad() -> None:
    assert doctor.judge_python(False, {"PYTHONUNBUFFERED": "1", "PYTHONMALLOC": ""}).level is Level.OK
    judged = doctor.judge_python(True, {"PYTHONMALLOC": "debug", "PYTHONDEVMODE": "1"})
    assert (judged.level, judged.value) == (Level.BAD, "debug build, PYTHONDEVMODE, PYTHONMALLOC")


# --- whole ------------------------------------------------------------------------------------------------------------


def test_files_that_hold_nonsense_are_unknown_and_no_error(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/stat": "cpu nonsense",
            "proc/loadavg": "nonsense",
            "proc/self/cgroup": "nonsense",
            "proc/sys/net/ipv4/ip_local_port_range": "nonsense",
            "proc/vmstat": "nonsense",
            "proc/meminfo": "nonsense",
            "sys/fs/cgroup/cpu.max": "nonsense",
        },
    )
    findings = {each.name: each for each in doctor.examine(root, tmp_path, sample_s=0.0, environment={})}
    assert {findings[name].level for name in ("processor quota", "memory limit", "ports", "steal")} == {Level.UNKNOWN}


def test_this_host_is_examined_in_two_seconds_with_a_reason_for_everything() -> None:
    started_s = time.monotonic()
    findings = doctor.examine()
    assert time.monotonic() - started_s < 5.0, "2 s on a host at rest; twice that and more when it is busy"
    assert len({each.name for each in findings}) == len(findings) == 21
    for each in findings:
        assert each.fact
        assert each.why
        assert bool(each.advice) == (each.level in {Level.WARN, Level.BAD})
    assert msgspec.json.decode(msgspec.json.encode(findings), type=tuple[Finding, ...]) == findings
