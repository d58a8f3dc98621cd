"""Whether a host is fit to measure on is told in facts, with why and what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.lab import doctor
from harness.model import Finding, Level

BENCH = Path(sys.executable).parent / "bench"


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
