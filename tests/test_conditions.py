"""What else the host did: read beside each window, judged by rules that never look at a result."""

from __future__ import annotations

import gzip
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from harness.conditions import disturbed_blocks, excluded
from harness.lab import conditions as lab
from harness.lab.conditions import TICK_NS, Sampler, Watch, between, cpu_ns_of
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
    watch.client_used(5 * TICK_NS)
    seen = watch.conditions()
    assert seen is not None
    assert (seen.busy_ns, seen.steal_ns, seen.load_1min) == (40 * TICK_NS, 10 * TICK_NS, 0.5)
    assert seen.cpu_total_ns == 2 * seen.wall_ns
    assert 5 * TICK_NS <= seen.ours_ns < 10 * TICK_NS


def test_a_system_without_such_accounts_says_nothing(tmp_path: Path) -> None:
    watch = Watch([], tmp_path)
    watch.opens()
    watch.closed()
    assert watch.conditions() is None


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="the kernel's accounts are Linux's")
def test_a_strangers_work_is_seen_and_our_own_is_not() -> None:
    burn = [sys.executable, "-c", "import time\nend = time.time() + 30\nwhile time.time() < end: pass"]

    def foreign_share(watch: Watch) -> float:
        watch.opens()
        time.sleep(1)
        watch.closed()
        watch.client_used(0)
        seen = watch.conditions()
        assert seen is not None
        return seen.foreign_ns / 1e9

    with subprocess.Popen(burn) as stranger:
        as_stranger = foreign_share(Watch([]))
        as_servant = foreign_share(Watch([stranger.pid]))
        stranger.kill()
    assert as_stranger > 0.5
    assert as_stranger - as_servant > 0.4


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


def host(root: Path, ticks: str, cpus: int = 2, config: str | None = None) -> Path:
    """Lay out a /proc whose first line of `stat` has these counters."""
    (root / "proc").mkdir(exist_ok=True)
    each = "".join(f"cpu{number} {ticks}\n" for number in range(cpus))
    (root / "proc/stat").write_text(f"cpu  {ticks}\n{each}intr 5 0 0\nctxt 7\n", encoding="utf-8")
    (root / "proc/loadavg").write_text("0.52 0.40 0.30 1/100 4711\n", encoding="utf-8")
    if config is not None:
        (root / "proc/config.gz").write_bytes(gzip.compress(config.encode()))
    return root


def span(
    wall_s: float = 1.0, steal_s: float = 0.0, foreign_s: float = 0.0, ours_s: float = 0.5, cpus: int = 2
) -> Conditions:
    def ns(seconds: float) -> int:
        return round(seconds * SECOND)

    return Conditions(
        wall_ns=ns(wall_s),
        cpu_total_ns=ns(wall_s * cpus),
        busy_ns=ns(ours_s + foreign_s),
        steal_ns=ns(steal_s),
        ours_ns=ns(ours_s),
        load_1min=0.5,
    )


# --- reading ----------------------------------------------------------------------------------------------------------


def test_a_snapshot_adds_up_the_processors_time_and_counts_guests_once(tmp_path: Path) -> None:
    # user nice system idle iowait irq softirq steal guest guest_nice
    root = host(tmp_path, "100 10 40 800 20 3 4 5 50 6", cpus=4)
    taken = Sampler(root).snapshot()
    assert taken is not None
    tick_ns = TICK_NS
    assert taken.busy_ns == 150 * tick_ns
    assert taken.idle_ns == 820 * tick_ns
    assert taken.steal_ns == 5 * tick_ns
    assert taken.cpu_count == 4
    assert taken.load_1min == 0.52


@pytest.mark.parametrize(
    ("config", "busy_ticks"),
    [
        ("CONFIG_IRQ_TIME_ACCOUNTING=y\n", 150),
        ("# CONFIG_IRQ_TIME_ACCOUNTING is not set\n", 157),
        (None, 150),
    ],
)
def test_interrupts_count_as_busy_only_where_processes_are_charged_with_them(
    tmp_path: Path, config: str | None, busy_ticks: int
) -> None:
    taken = Sampler(host(tmp_path, "100 10 40 800 20 3 4 5 0 0", config=config)).snapshot()
    assert taken is not None
    assert taken.busy_ns == busy_ticks * TICK_NS


def test_how_the_kernel_was_built_is_also_found_where_distributions_put_it(tmp_path: Path) -> None:
    (tmp_path / "boot").mkdir()
    path = tmp_path / "boot" / f"config-{platform.release()}"
    path.write_text("# CONFIG_IRQ_TIME_ACCOUNTING is not set\n", encoding="utf-8")
    assert not lab.interrupts_apart(tmp_path)


@pytest.mark.parametrize("ticks", ["0 0 0 0 0 0 0 0 0 0", "1 2 3", "a b c d e f g h"])
def test_counters_that_say_nothing_give_no_snapshot(tmp_path: Path, ticks: str) -> None:
    assert Sampler(host(tmp_path, ticks)).snapshot() is None


def test_the_span_between_two_snapshots_is_what_the_counters_rose_by(tmp_path: Path) -> None:
    before = lab.parse(b"cpu  100 0 50 800 0 0 0 5 0 0\ncpu0 .\ncpu1 .\n", 0.1, 7 * SECOND, True)
    after = lab.parse(b"cpu  160 0 70 910 0 0 0 15 0 0\ncpu0 .\ncpu1 .\n", 0.9, 8 * SECOND, True)
    found = between(before, after, ours_ns=SECOND // 2)
    assert found == Conditions(
        wall_ns=SECOND,
        cpu_total_ns=2 * SECOND,
        busy_ns=80 * TICK_NS,
        steal_ns=10 * TICK_NS,
        ours_ns=SECOND // 2,
        load_1min=0.9,
    )
    assert found.foreign_ns == 80 * TICK_NS - SECOND // 2


def test_a_counter_that_ran_backwards_is_no_time_at_all() -> None:
    before = lab.parse(b"cpu  100 0 50 800 0 0 0 5 0 0\ncpu0 .\n", 0.1, 0, True)
    after = lab.parse(b"cpu  99 0 50 800 0 0 0 4 0 0\ncpu0 .\n", 0.1, SECOND, True)
    found = between(before, after, ours_ns=-1)
    assert found is not None
    assert (found.busy_ns, found.steal_ns, found.ours_ns, found.foreign_ns) == (0, 0, 0, 0)


def test_conditions_and_rules_survive_being_written_down() -> None:
    for noun in (span(), Rules()):
        assert msgspec.json.decode(msgspec.json.encode(noun), type=type(noun)) == noun


# --- processes --------------------------------------------------------------------------------------------------------


def test_ticks_of_a_process_are_read_past_brackets_and_blanks_in_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "proc/42"
    folder.mkdir(parents=True)
    fields = "S 1 42 42 0 -1 4194304 100 0 0 0 150 30 9 9 20 0 4 0 1000 0 0"
    (folder / "stat").write_text(f"42 (a) odd) name) {fields}\n", encoding="utf-8")
    assert lab.cpu_ns_by_ticks(42, tmp_path) == 180 * TICK_NS
    assert lab.cpu_ns_by_ticks(43, tmp_path) is None


def test_a_process_that_has_vanished_has_used_nothing() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert cpu_ns_of([gone.pid]) == 0


def test_every_way_of_reading_a_process_agrees_with_its_own_clock() -> None:
    own_ns = time.process_time_ns()
    readings = [read(os.getpid()) for read in (lab.cpu_ns_by_psutil, lab.cpu_ns_by_ticks)]
    readings += [lab.cpu_ns_by_clock(os.getpid()), cpu_ns_of([os.getpid()])]
    for reading in readings:
        # None where the system has no such clock or no /proc. User and system time are each cut to whole ticks.
        assert reading is None or abs(reading - own_ns) < 100_000_000


def test_processes_are_summed() -> None:
    once, twice = cpu_ns_of([os.getpid()]), cpu_ns_of([os.getpid(), os.getpid()])
    assert twice >= 2 * once > 0


# --- the rule ---------------------------------------------------------------------------------------------------------


def test_steal_above_the_rule_drops_the_block_and_says_so() -> None:
    reason = excluded([span(steal_s=0.3), span(steal_s=0.0), span(steal_s=0.132)], Rules())
    assert reason == "steal 7.2 % of the processors' time, above the 5 % allowed"


def test_other_processes_above_the_rule_drop_the_block_and_say_so() -> None:
    reason = excluded([span(foreign_s=0.4), span(foreign_s=0.1)], Rules())
    assert reason == "other processes used 12.5 % of the processors' time, above the 10 % allowed"


def test_what_is_allowed_exactly_is_kept() -> None:
    assert excluded([span(steal_s=0.1, foreign_s=0.2)], Rules()) is None


def test_a_stated_rule_replaces_the_default() -> None:
    strict = Rules(max_steal_share=0.01, max_foreign_share=0.02, min_span_ns=SECOND // 10)
    assert excluded([span(wall_s=0.2, steal_s=0.02)], strict) == (
        "steal 5.0 % of the processors' time, above the 1 % allowed"
    )


def test_one_disturbed_trial_is_judged_with_the_whole_block() -> None:
    disturbed, quiet = span(foreign_s=0.5), span()
    assert excluded([disturbed], Rules()) is not None
    assert excluded([disturbed, quiet, quiet, quiet], Rules()) is None


def test_the_order_of_the_trials_changes_nothing() -> None:
    block = [span(wall_s=0.5, foreign_s=0.4), span(wall_s=3.0), span(wall_s=0.1, steal_s=0.1)]
    assert excluded(block, Rules()) == excluded(block[::-1], Rules())


def test_a_span_too_short_for_ticks_is_not_judged() -> None:
    assert excluded([span(wall_s=0.3, foreign_s=0.3)] * 3, Rules()) is None
    assert excluded([span(wall_s=0.3, foreign_s=0.3)] * 4, Rules()) is not None


def test_ticks_below_zero_in_one_trial_cancel_those_above_in_another() -> None:
    # Counted apart, the trials with too much would make 15 % of time that nobody used.
    block = [span(foreign_s=0.3), span(foreign_s=-0.3)] * 4
    assert block[1].foreign_ns == 0
    assert excluded(block, Rules()) is None


# --- this host --------------------------------------------------------------------------------------------------------


def test_this_host_gives_conditions_of_a_sensible_shape() -> None:
    sampler, own = Sampler(), [os.getpid()]
    before, before_ns = sampler.snapshot(), cpu_ns_of(own)
    time.sleep(0.05)
    found = between(before, sampler.snapshot(), cpu_ns_of(own) - before_ns)
    if not Path("/proc/stat").exists():
        assert found is None
        return
    assert found is not None
    assert found.wall_ns >= 50_000_000
    assert found.cpu_total_ns % found.wall_ns == 0
    assert min(found.busy_ns, found.steal_ns, found.foreign_ns) >= 0
    assert found.ours_ns < found.wall_ns


def test_a_client_that_never_told_what_it_used_is_not_taken_for_a_stranger() -> None:
    watch = Watch([])
    watch.opens()
    watch.closed()
    assert watch.conditions() is None
