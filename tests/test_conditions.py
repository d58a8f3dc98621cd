"""What else the host did: read beside each window, judged by rules that never look at a result."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.conditions import disturbed_blocks, excluded
from harness.lab.conditions import TICK_NS, Watch
from harness.model import Conditions, Phase, Rules, RunSet
from harness.summary import summarise
from tests.factories import make_case, make_measured, make_record, make_run

SECOND = 10**9


def conditions(busy: float = 0.0, ours: float = 0.0, steal: float = 0.0, capacity: float = 2.0) -> Conditions:
    return Conditions(
        round(capacity * SECOND / 2),
        round(capacity * SECOND),
        round(busy * SECOND),
        round(steal * SECOND),
        round(ours * SECOND),
        0.5,
    )


def test_a_window_is_told_from_the_kernels_own_accounts(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/loadavg").write_text("0.50 0.40 0.30 1/2 3\n")
    stat = tmp_path / "proc/stat"
    stat.write_text("cpu  100 10 50 1000 5 3 2 8 0 0\ncpu0 1\ncpu1 1\n")
    watch = Watch([], tmp_path)
    watch.opens()
    stat.write_text("cpu  130 10 60 1140 5 3 2 18 0 0\ncpu0 1\ncpu1 1\n")
    watch.closed()
    seen = watch.conditions(client_ns=5 * TICK_NS)
    assert seen is not None
    assert (seen.busy_ns, seen.steal_ns, seen.load_1min) == (40 * TICK_NS, 10 * TICK_NS, 0.5)
    assert seen.cpu_total_ns == 2 * seen.wall_ns
    assert 5 * TICK_NS <= seen.ours_ns < 10 * TICK_NS


def test_a_system_without_such_accounts_says_nothing(tmp_path: Path) -> None:
    watch = Watch([], tmp_path)
    watch.opens()
    watch.closed()
    assert watch.conditions(0) is None


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="the kernel's accounts are Linux's")
def test_a_strangers_work_is_seen_and_our_own_is_not() -> None:
    burn = [sys.executable, "-c", "import time\nend = time.time() + 30\nwhile time.time() < end: pass"]

    def foreign_share(watch: Watch) -> float:
        watch.opens()
        time.sleep(1)
        watch.closed()
        seen = watch.conditions(0)
        assert seen is not None
        return seen.foreign_ns / 1e9

    with subprocess.Popen(burn) as stranger:
        as_stranger = foreign_share(Watch([]))
        as_servant = foreign_share(Watch([stranger.pid]))
        stranger.kill()
    assert as_stranger > 0.5
    assert as_stranger - as_servant > 0.4


def test_reading_takes_less_than_a_sampling_period() -> None:
    watch = Watch([os.getpid()])
    started = time.perf_counter()
    for _ in range(100):
        watch.opens()
    assert (time.perf_counter() - started) / 100 < 0.002


@pytest.mark.parametrize(
    ("of_a_block", "words"),
    [
        ([conditions(busy=1, ours=1)] * 4, ""),
        ([conditions(steal=0.2)] * 4, "steal 10.0 %"),
        ([conditions(steal=0.05)] * 4, ""),
        ([conditions(busy=1, ours=0.5)] * 4, "other processes used 25.0 %"),
        ([conditions(busy=2, ours=0.5), *[conditions()] * 9], ""),
        ([conditions(busy=0.3, steal=0.3, capacity=0.5)], ""),
        ([None, None], ""),
    ],
)
def test_a_block_is_judged_as_a_whole_and_only_when_enough_is_known(
    of_a_block: list[Conditions | None], words: str
) -> None:
    said = excluded(of_a_block, Rules()) or ""
    assert words in said
    assert bool(words) == bool(said)


def disturbed_run(rules: Rules | None) -> RunSet:
    """Return a run of two blocks, the second of which was disturbed while one of its clients ran."""
    case = make_case()
    quiet, loud = conditions(busy=1, ours=1), conditions(busy=2, ours=1)
    records = [
        make_record(
            block * 2 + position,
            make_measured(wall_ns=(block + 1) * SECOND),
            block=block + 1,
            position=position,
            client=client,
            case=case,
            phase=Phase.MEASURED,
            conditions=loud if block == 1 and position == 0 else quiet,
        )
        for block in range(2)
        for position, client in enumerate(("s3fs", "pyathena-sync"))
    ]
    return RunSet(make_run(cases=[case], rules=rules), tuple(records))


def test_a_disturbed_block_is_left_out_for_all_clients() -> None:
    summary = summarise(disturbed_run(Rules()))
    assert [block for _, block in summary.disturbed] == [2]
    for result in summary.results.values():
        assert (result.measured, result.excluded) == (1, 1)
        assert result.spreads["wall_ns"].high == SECOND


def test_a_run_from_before_the_rules_is_read_as_it_was() -> None:
    assert disturbed_blocks(disturbed_run(None)) == {}
