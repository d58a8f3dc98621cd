"""The command line from the outside: what works, what is refused, what survives."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness import records
from harness.lab import session
from harness.model import Measured, Phase
from tests.conftest import ENVS, TINY

BENCH = Path(sys.executable).parent / "bench"
RUN = ("run", "--suite", str(TINY), "--envs", str(ENVS), "--seed", "5")


def bench(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BENCH, *arguments], capture_output=True, text=True, timeout=240, check=False,
        env=os.environ | environment, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def own_folder(temporary_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder for the `bench` of one test, so that what is left in it was left by that one.

    Asks for `tmp_path`, so that pytest's own folder isn't made inside of this one.
    """
    with tempfile.TemporaryDirectory(prefix="b-", dir=temporary_folder, ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


def start(results: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [BENCH, *RUN, "--results", str(results), *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


def wait_for_records(results: Path, count: int, limit_s: float = 120) -> Path:
    """Wait until a run has recorded `count` trials, and return its folder."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        for path in results.glob("*/records.jsonl"):
            if path.read_bytes().count(b"\n") >= count:
                return path.parent
        time.sleep(0.02)
    raise AssertionError(f"no {count} records within {limit_s} s")


def lab_processes(own_folder: Path) -> list[psutil.Process]:
    return [p for folder in own_folder.glob(session.FOLDER_PREFIX + "*") for p in session.marked_processes(folder)]


def end(process: subprocess.Popen[str]) -> str:
    """Wait for the end of a run and return what it said."""
    _, said = process.communicate(timeout=120)
    return said


def test_a_run_prints_a_table_and_can_be_read_again(results: Path, tmp_path: Path) -> None:
    ran = bench(*RUN, "--client", "behaves", "--client", "raises", "--results", str(results))
    assert ran.returncode == 0, ran.stderr
    assert "read/1MiB" in ran.stdout
    assert "no bytes today" in ran.stdout
    shown = bench("show", "latest", "--results", str(results))
    assert shown.stdout == ran.stdout
    numbers = json.loads(bench("show", "--json", "--results", str(results)).stdout)
    assert numbers
    listed = bench("list", "--results", str(results))
    assert "behaves" in listed.stdout
    reported = bench("report", "--results", str(results), "--reports", str(tmp_path / "reports"))
    page = Path(reported.stdout.strip().replace("\n", ""))
    assert page.name == "report.md"
    assert "no bytes today" in page.read_text()


def test_the_same_seed_repeats_the_order(results: Path) -> None:
    for _ in range(2):
        assert (
            bench(
                *RUN, "--scenario", "read", "--client", "behaves", "--client", "noisy", "--results", str(results)
            ).returncode
            == 0
        )
    orders = [
        [(record.trial.case.key, record.trial.client) for record in records.read(folder).records]
        for folder in results.iterdir()
    ]
    assert len(orders) == 2
    assert orders[0] == orders[1]


def test_list_says_what_would_run_and_runs_nothing(results: Path) -> None:
    listed = bench(*RUN, "--list", "--results", str(results))
    assert listed.returncode == 0
    assert "read/1MiB/c8/b8MiB" in listed.stdout
    assert not results.exists()


def test_a_killed_run_is_resumed_with_every_trial_once_and_nothing_left_behind(results: Path, own_folder: Path) -> None:
    process = start(results, "--scenario", "read", "--client", "slow", "--client", "behaves", "--blocks", "6")
    folder = wait_for_records(results, 3)
    process.kill()
    end(process)
    assert lab_processes(own_folder)
    before = records.read(folder).records
    assert 3 <= len(before) < 12
    resumed = bench("resume", folder.name, "--results", str(results), "--envs", str(ENVS))
    assert resumed.returncode == 0, resumed.stderr
    after = records.read(folder)
    assert after.records[: len(before)] == before
    assert [record.trial.sequence for record in after.records] == list(range(12))
    assert not lab_processes(own_folder)
    again = bench("resume", folder.name, "--results", str(results), "--envs", str(ENVS))
    assert "is complete" in again.stderr
    assert records.read(folder) == after


def test_resuming_refuses_what_has_changed_and_says_what(results: Path) -> None:
    process = start(results, "--scenario", "read", "--client", "slow", "--blocks", "20")
    folder = wait_for_records(results, 1)
    process.kill()
    end(process)
    manifest = folder / "run.json"
    manifest.write_text(re.sub(r'("cpu_count": )\d+', r"\g<1>999", manifest.read_text()))
    refused = bench("resume", folder.name, "--results", str(results), "--envs", str(ENVS))
    assert refused.returncode == 2
    assert "host cpu_count: 999 then" in refused.stderr.replace("\n", " ")


def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(results: Path, own_folder: Path) -> None:
    process = start(results, "--scenario", "read", "--client", "slow", "--blocks", "50")
    folder = wait_for_records(results, 2)
    process.send_signal(signal.SIGINT)
    said = end(process)
    assert process.returncode == 130
    assert f"bench resume {folder.name}" in said.replace("\n", " ")
    assert "Traceback" not in said
    assert not lab_processes(own_folder)
    assert len(records.read(folder).records) >= 2


@pytest.mark.parametrize("victim", ["weed", "envoy"])
def test_the_death_of_store_or_link_ends_the_run_with_code_3(results: Path, own_folder: Path, victim: str) -> None:
    process = start(results, "--scenario", "read", "--client", "slow", "--blocks", "50")
    folder = wait_for_records(results, 2)
    for each in lab_processes(own_folder):
        if victim in each.name():
            each.kill()
    said = end(process)
    assert process.returncode == 3, said
    assert "died" in said
    assert "bench resume" in said
    assert "Traceback" not in said
    assert all(isinstance(record.outcome, Measured) for record in records.read(folder).records)


def test_a_second_run_on_the_host_is_refused(results: Path) -> None:
    process = start(results, "--scenario", "read", "--client", "slow", "--blocks", "50")
    folder = wait_for_records(results, 1)
    second = bench(*RUN, "--results", str(results))
    process.send_signal(signal.SIGINT)
    end(process)
    assert second.returncode == 2
    assert f"run {folder.name}" in second.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--suite", "nosuch"), "There is: cpu, filesystem"),
        (("run", "--client", "nosuch"), "s3fs"),
        (("run", "--scenario", "nosuch"), "get_file"),
        (("run", "--size", "3 MiB"), "24MiB"),
        (("run", "--size", "x"), "x"),
        (("run", "--link", "nosuch"), "s3-scaled"),
        (("run", "--profile", "nosuch"), "standard"),
        (("run", "--blocks", "0"), "--blocks"),
        (("run", "--nosuch"), "--nosuch"),
        (("run", "--endpoint-url", "http://127.0.0.1:1"), "--bucket"),
        (("run", "--bucket", "b", "--region", "r", "--endpoint-url", "ftp://x"), "http://"),
        (("run", "--bucket", "b", "--region", "r", "--link", "s3"), "--link"),
        (("run", "--bucket", "b", "--region", "r", "--endpoint-url", "http://127.0.0.1:1"), "--yes"),
        (("show", "nosuch"), "nosuch"),
        (("resume", "nosuch"), "nosuch"),
    ],
)
def test_what_cannot_be_done_is_one_clear_sentence_and_code_2(
    results: Path, arguments: tuple[str, ...], words: str
) -> None:
    refused = bench(*arguments, "--results", str(results))
    assert refused.returncode == 2
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not results.exists()


@pytest.fixture(scope="module")
def foreign_store(temporary_folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A store that isn't ours: its address, and the variables that a user of it has set."""
    from harness.lab.bucket import Bucket
    from harness.lab.embedded import REGION, EmbeddedStore

    with session.open_session() as opened:
        store = EmbeddedStore(opened)
        store.start()
        bucket = Bucket(store.endpoint_url, REGION, store.credentials, "theirs", "keep")
        bucket.create()
        bucket.put("keep/me", b"theirs")
        yield store.endpoint_url, store.credentials.environment
        assert list(bucket.sizes("keep/")) == ["keep/me"]
        bucket.close()
        store.stop()


def on_foreign(endpoint_url: str, bucket: str = "theirs", region: str = "us-east-1") -> tuple[str, ...]:
    return (*RUN, "--client", "behaves", "--bucket", bucket, "--endpoint-url", endpoint_url, "--region", region)


def test_a_store_that_is_not_ours_is_used_below_one_prefix_and_left_as_it_was(
    results: Path, foreign_store: tuple[str, dict[str, str]]
) -> None:
    from harness.lab.bucket import Bucket
    from harness.lab.embedded import Credentials

    endpoint_url, variables = foreign_store
    ran = bench(*on_foreign(endpoint_url), "--prefix", "mine", "--yes", "--results", str(results), **variables)
    assert ran.returncode == 0, ran.stderr
    assert "USD" in ran.stderr
    (folder,) = results.iterdir()
    read = records.read(folder)
    assert read.run.store.prefix == f"mine/{folder.name}"
    assert [r for r in read.records if r.trial.phase is Phase.MEASURED and isinstance(r.outcome, Measured)]
    credentials = Credentials(variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"])
    bucket = Bucket(endpoint_url, "us-east-1", credentials, "theirs", "mine")
    assert not bucket.sizes("mine/")
    bucket.close()
    written = (folder / "run.json").read_text() + (folder / "records.jsonl").read_text() + ran.stdout + ran.stderr
    assert not [secret for secret in credentials.secrets if secret in written]


@pytest.mark.parametrize(
    ("bucket", "variables", "words"),
    [
        ("nosuch", {}, "there is no bucket"),
        ("theirs", {"AWS_ACCESS_KEY_ID": "WRONG"}, "credentials"),
        ("theirs", {"AWS_SECRET_ACCESS_KEY": "wrong"}, "credentials"),
    ],
)
def test_a_store_that_refuses_is_told_before_anything_is_written(
    results: Path, foreign_store: tuple[str, dict[str, str]], bucket: str, variables: dict[str, str], words: str
) -> None:
    endpoint_url, theirs = foreign_store
    refused = bench(*on_foreign(endpoint_url, bucket), "--yes", "--results", str(results), **(theirs | variables))
    assert refused.returncode == 2, refused.stderr
    assert words in refused.stderr.replace("\n", " ")
    assert "Traceback" not in refused.stderr
    assert not results.exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("[scenario.read]", "[scenario.read"), "line"),
        (('"1 MiB"', '"1 parsec"'), "defaults.one.objects"),
        (("[scenario.cat]", "[scenario.cat]\nconcurency = [8]"), "concurency"),
    ],
)
def test_a_bad_suite_file_is_told_with_file_and_field(
    results: Path, tmp_path: Path, change: tuple[str, str], words: str
) -> None:
    suite = tmp_path / "tiny.toml"
    suite.write_text(TINY.read_text().replace(*change))
    refused = bench("run", "--suite", str(suite), "--envs", str(ENVS), "--results", str(results))
    assert refused.returncode == 2
    assert str(suite) in refused.stderr
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not results.exists()


def test_an_unreachable_endpoint_is_told(results: Path) -> None:
    variables = {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "B"}
    refused = bench(*on_foreign("http://127.0.0.1:1"), "--yes", "--results", str(results), **variables)
    assert refused.returncode == 2
    assert "can't be reached" in refused.stderr
    assert not results.exists()


def test_what_a_killed_run_left_on_a_foreign_store_is_removed_by_the_next(
    results: Path, foreign_store: tuple[str, dict[str, str]]
) -> None:
    from harness.lab.bucket import Bucket
    from harness.lab.embedded import Credentials

    endpoint_url, variables = foreign_store
    arguments = (*on_foreign(endpoint_url), "--prefix", "mine", "--yes", "--results", str(results))
    process = subprocess.Popen(
        [BENCH, *arguments, "--client", "slow", "--blocks", "30"],
        env=os.environ | variables, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    wait_for_records(results, 1)
    process.kill()
    end(process)
    credentials = Credentials(variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"])
    bucket = Bucket(endpoint_url, "us-east-1", credentials, "theirs", "mine")
    assert bucket.sizes("mine/")
    following = bench(*RUN, "--client", "behaves", "--scenario", "read", "--results", str(results), **variables)
    assert following.returncode == 0, following.stderr
    assert "removed what a killed run left" in following.stderr
    assert not bucket.sizes("mine/")
    bucket.close()


def test_too_little_room_is_told_before_anything_is_written(results: Path, tmp_path: Path) -> None:
    suite = tmp_path / "huge.toml"
    suite.write_text(TINY.read_text().replace('name = "tiny"', 'name = "huge"').replace("1 MiB", "100000 GiB"))
    refused = bench("run", "--suite", str(suite), "--envs", str(ENVS), "--scenario", "read", "--results", str(results))
    assert refused.returncode == 2
    assert "MiB are free" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not results.exists()


def test_an_entry_is_derived_from_its_records_and_a_changed_one_is_found(results: Path, tmp_path: Path) -> None:
    assert bench(*RUN, "--scenario", "read", "--client", "behaves", "--results", str(results)).returncode == 0
    where = ("--results", str(results), "--history", str(tmp_path / "history"))
    added = bench("history", "add", "latest", "--title", "A first | look", *where)
    assert added.returncode == 0, added.stderr
    entry = next(path for path in (tmp_path / "history").glob("*.md") if path.name != "README.md")
    assert entry.name.endswith("-a-first-look.md")
    assert bench("history", "check", *where).returncode == 0
    entry.write_text(entry.read_text().replace("Throughput", "Throughput, improved", 1))
    changed = bench("history", "check", *where)
    assert changed.returncode == 1
    assert entry.name in changed.stderr


def test_the_store_can_be_used_by_hand(own_folder: Path) -> None:
    server = subprocess.Popen([BENCH, "store", "serve"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stdout is not None
    variables = {}
    while "SSL_CERT_FILE" not in variables or "AWS_ENDPOINT_URL" not in variables:
        line = server.stdout.readline()
        assert line, server.communicate()
        name, _, value = line.removeprefix("export ").strip().partition("=")
        variables[name] = value
    code = """
import boto3
client = boto3.client("s3")
client.put_object(Bucket="bench", Key="k", Body=b"v")
print(client.get_object(Bucket="bench", Key="k")["Body"].read())
"""
    used = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | variables, capture_output=True, text=True, check=False
    )
    server.send_signal(signal.SIGINT)
    _, said = server.communicate(timeout=60)
    assert used.stdout.strip() == "b'v'", used.stderr
    assert server.returncode == 130
    assert "Traceback" not in said
    assert not lab_processes(own_folder)


DECISION = """
name = "tiny-decision"
suite = "tiny"
question = "Is the slow one slow?"
otherwise = "No."

[expectation.slow]
title = "It is slower"
cases = ["read/*"]
metric = "throughput"
numerator = "slow"
denominator = "behaves"
at_most = 0.9

[expectation.twin]
title = "A client is at least as fast as itself, which no number of blocks can show"
cases = ["read/*"]
metric = "throughput"
numerator = "behaves@control"
denominator = "behaves"
at_least = 1

[criterion.slow-it-is]
title = "It is slower"
all_of = ["slow"]
recommendation = "Leave it."
"""


@pytest.fixture
def decided_run(results: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Return the folder of a run that was extended as declared, and the decision that it was declared with."""
    decision = tmp_path / "tiny-decision.toml"
    decision.write_text(DECISION)
    ran = bench(
        *RUN, "--client", "behaves", "--client", "slow", "--scenario", "read", "--scenario", "cat", "--blocks", "6",
        "--control", "behaves", "--until-decided", str(decision), "--results", str(results),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "undecided yet, hence extended as declared: read/1MiB" in ran.stderr
    assert "Control" in ran.stdout
    (folder,) = results.glob("*-tiny-*")
    return folder, decision


def test_what_is_undecided_is_extended_once_and_then_decided(decided_run: tuple[Path, Path], results: Path) -> None:
    folder, decision = decided_run
    read = records.read(folder)
    blocks = {
        scenario: {r.trial.block for r in read.records if r.trial.case.scenario == scenario}
        for scenario in ("read", "cat")
    }
    assert blocks == {"read": set(range(12)), "cat": set(range(6))}
    assert len(read.records) > read.run.trial_count
    where = ("--results", str(results))
    decided = json.loads(bench("decide", folder.name, "--json", *where).stdout)[0]
    verdicts = {each["name"]: each["verdict"] for each in decided["expectations"]}
    assert verdicts == {"slow": "confirmed", "twin": "inconclusive"}
    assert (decided["recommendation"], decided["looks"], decided["level"]) == ("Leave it.", 2, 0.975)
    assert "Is the slow one slow?" in bench("decide", folder.name, "--decision", str(decision), *where).stdout
    again = bench("resume", folder.name, "--envs", str(ENVS), *where)
    assert again.returncode == 0, again.stderr
    assert "is complete" in again.stderr
    compared = json.loads(bench("compare", folder.name, "--json", *where).stdout)
    ratio = next(c for c in compared["comparisons"] if c["metric"] == "wall_ns" and c["case"].startswith("read"))
    assert ratio["ratio"]["low"] > 1
    with_itself = bench("compare", folder.name, folder.name, *where)
    assert with_itself.returncode == 0, with_itself.stderr
    assert "1.00x" in with_itself.stdout
    entry = ("--history", str(folder.parent / "history"), *where)
    assert bench("history", "add", folder.name, "--title", "Decided", *entry).returncode == 0
    assert bench("history", "check", *entry).returncode == 0
    drawn = bench("history", "plot", "read/1MiB/c8/b8MiB", *entry)
    assert drawn.returncode == 0, drawn.stderr
    (picture,) = (folder.parent / "history/figures").glob("*.png")
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("decide", "nosuch"), "nosuch"),
        (("compare", "nosuch"), "nosuch"),
        (("run", "--until-decided", "nosuch"), "pyathena-vs-s3fs"),
        (("run", "--with", "pyathena"), "leaves the version open"),
        (("run", "--control", "nosuch"), "s3fs"),
    ],
)
def test_what_cannot_be_decided_is_one_clear_sentence_and_code_2(
    results: Path, arguments: tuple[str, ...], words: str
) -> None:
    refused = bench(*arguments, "--results", str(results))
    assert refused.returncode == 2
    assert words in refused.stderr
