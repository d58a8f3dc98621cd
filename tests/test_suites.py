"""Suite files say what they mean, or say which field doesn't."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import suites
from harness.errors import BenchError, InvalidFileError, UnknownNameError
from harness.model import Link, Objects, Settings

SCENARIOS = Path(__file__).parent.parent / "scenarios"
FILESYSTEM = SCENARIOS / "filesystem.toml"
MIB = 1 << 20

SMALL = """\
name = "small"
title = "Small"
clients = ["ours", "theirs"]
baseline = "theirs"
default_profile = "quick"
default_link = "direct"
[profiles.quick]
measured_blocks = 3
warmup_blocks = 1
[profiles.full]
measured_blocks = 8
warmup_blocks = 0
[links.direct]
[links.slow]
delay_ms = 20
copy_delay_ms = 200
stream_rate = "90 MiB/s"
[links.scaled]
stream_rate = "scaled"
[defaults.one]
objects = ["1 MiB"]
concurrency = [4]
block = ["8 MiB", "default"]
[defaults.one.full]
objects = ["2 MiB"]
[scenario.read]
title = "Read"
[scenario.big]
title = "Read more"
operation = "read"
objects = ["3 MiB"]
[scenario.big.full]
concurrency = [5]
[scenario.cat]
title = "Cat"
objects = ["10 x 4 KiB"]
concurrency = [2]
block = ["8 MiB"]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "small.toml"
    path.write_text(text)
    return path


def keys(path: Path, profile: str | None) -> list[str]:
    return [case.key for case in suites.load(path, profile).cases]


def test_the_default_profile_and_link_apply_where_none_is_chosen(tmp_path: Path) -> None:
    suite = suites.load(write(tmp_path, SMALL), None)
    assert (suite.name, suite.clients, suite.baseline) == ("small", ("ours", "theirs"), "theirs")
    assert (suite.profile.name, suite.profile.measured_blocks, suite.profile.warmup_blocks) == ("quick", 3, 1)
    assert {case.link for case in suite.cases} == {"direct"}
    assert suite.links == (
        Link("direct"),
        Link("slow", delay_ms=20, copy_delay_ms=200, stream_rate_bytes_per_s=90 * MIB),
        Link("scaled", scaled=True),
    )


def test_a_scenario_overrides_its_kind_and_a_profile_overrides_both(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL)
    quick = ["read/1MiB/c4/b8MiB", "read/1MiB/c4/bdefault", "big/3MiB/c4/b8MiB", "big/3MiB/c4/bdefault"]
    full = ["read/2MiB/c4/b8MiB", "read/2MiB/c4/bdefault", "big/3MiB/c5/b8MiB", "big/3MiB/c5/bdefault"]
    assert keys(path, "quick") == [*quick, "cat/10x4KiB/c2/b8MiB"]
    assert keys(path, "full") == [*full, "cat/10x4KiB/c2/b8MiB"]
    assert suites.load(path, None).cases[2].operation == "read"


@pytest.mark.parametrize(
    ("old", "new", "where", "problem"),
    [
        ('name = "small"', 'name = "large"', "name", "must be the file's name"),
        ('title = "Small"', "", "title", "missing"),
        ('title = "Small"', 'title = ""', "title", "must be text"),
        ('title = "Small"', 'title = "Small"\ntilte = 1', "tilte", "unknown key"),
        ('["ours", "theirs"]', "[]", "clients", "at least one item"),
        ('["ours", "theirs"]', '"ours"', "clients", "must be a list"),
        ('["ours", "theirs"]', '["ours", "ours"]', "clients", "'ours' twice"),
        ('["ours", "theirs"]', '["ours/x"]', "clients", "a name must be"),
        ('baseline = "theirs"', 'baseline = "nobody"', "baseline", "'nobody' is unknown"),
        ('default_profile = "quick"', 'default_profile = "slow"', "default_profile", "'slow' is unknown"),
        ('default_link = "direct"', 'default_link = "moon"', "default_link", "'moon' is unknown"),
        ("measured_blocks = 3", "measured_blocks = 0", "profiles.quick.measured_blocks", "at least 1, not 0"),
        ("measured_blocks = 3", "measured_blocks = true", "profiles.quick.measured_blocks", "not True"),
        ("measured_blocks = 3", "", "profiles.quick.measured_blocks", "missing"),
        ("warmup_blocks = 1", "warmup_blocks = -1", "profiles.quick.warmup_blocks", "at least 0, not -1"),
        ("warmup_blocks = 1", "warmup = 1\nwarmup_blocks = 1", "profiles.quick.warmup", "unknown key"),
        ("delay_ms = 20\n", "delay_ms = -1\n", "links.slow.delay_ms", "at least 0"),
        ("delay_ms = 20\n", "delay_ms = 2.5\n", "links.slow.delay_ms", "whole number"),
        ("delay_ms = 20\n", "latency = 20\n", "links.slow.latency", "unknown key"),
        ('"90 MiB/s"', '"90 MiB"', "links.slow.stream_rate", "is not a rate"),
        ('"90 MiB/s"', '"0 MiB/s"', "links.slow.stream_rate", "above zero"),
        ('"90 MiB/s"', "90", "links.slow.stream_rate", "must be text"),
        ("[defaults.one]", "[defaults.two]", "defaults.two", "unknown key"),
        ("[defaults.one.full]", "[defaults.one.slow]", "defaults.one.slow", "unknown key"),
        ('objects = ["1 MiB"]', 'objects = ["1 MB"]', "defaults.one.objects", "'1 MB' is not a size"),
        ('objects = ["2 MiB"]', 'objects = ["2 x 2 MiB"]', "defaults.one.full.objects", "handles one object"),
        ('objects = ["2 MiB"]', "size = 1", "defaults.one.full.size", "unknown key"),
        ("concurrency = [5]", "concurrency = [0]", "scenario.big.full.concurrency", "at least 1"),
        ("concurrency = [5]", "workers = [5]", "scenario.big.full.workers", "unknown key"),
        ("[scenario.big.full]\nconcurrency = [5]", "full = 5", "scenario.big.full", "must be a table"),
        ('operation = "read"', 'operation = "fly"', "scenario.big.operation", "'fly' is unknown"),
        ("[scenario.read]", "[scenario.fly]", "scenario.fly.operation", "'fly' is unknown"),
        ("[scenario.read]", '[scenario."a b"]', "scenario.a b", "a name must be"),
        ('title = "Read"', "", "scenario.read.title", "missing"),
        ('objects = ["10 x 4 KiB"]', "", "scenario.cat.quick.objects", "missing"),
        ('objects = ["10 x 4 KiB"]', 'objects = ["0 x 4 KiB"]', "scenario.cat.objects", "above zero"),
        ('objects = ["10 x 4 KiB"]', 'objects = ["-1 x 4 KiB"]', "scenario.cat.objects", "is not a size"),
        ('objects = ["3 MiB"]', 'objects = ["1 GiB", "1024 MiB"]', "scenario.big.objects", "'1024 MiB' twice"),
        ('objects = ["3 MiB"]', "objects = [3]", "scenario.big.objects", "must be text"),
        ('block = ["8 MiB"]', 'block = ["0 MiB"]', "scenario.cat.block", "above zero"),
        ('block = ["8 MiB"]', "block = []", "scenario.cat.block", "at least one item"),
        ("[scenario.read]", "[scenario.cat]\n[scenario.read]", "", "is not TOML: Cannot declare"),
        ("baseline =", "baseline", "", "(at line 4, column"),
    ],
)
def test_what_a_file_gets_wrong_is_named_with_file_and_field(
    tmp_path: Path, old: str, new: str, where: str, problem: str
) -> None:
    assert old in SMALL
    path = write(tmp_path, SMALL.replace(old, new, 1))
    with pytest.raises(InvalidFileError) as caught:
        suites.load(path, "quick")
    assert str(caught.value).startswith(f"{path}: {where}: " if where else f"{path}: ")
    assert problem in str(caught.value)


@pytest.mark.parametrize(("table", "problem"), [("scenario", "missing"), ("links", "missing"), ("profiles", "missing")])
def test_a_suite_needs_profiles_links_and_scenarios(tmp_path: Path, table: str, problem: str) -> None:
    kept = [part for part in SMALL.split("\n[") if not part.startswith(table)]
    path = write(tmp_path, "\n[".join(kept))
    with pytest.raises(InvalidFileError, match=rf"small\.toml: {table}: {problem}"):
        suites.load(path, None)
    path = write(tmp_path, "\n[".join([*kept, f"{table}]"]))
    with pytest.raises(InvalidFileError, match=rf"small\.toml: {table}: must hold at least one table"):
        suites.load(path, None)


def test_a_profile_that_was_not_chosen_is_checked_too(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL.replace('["2 MiB"]', '["2 MB"]'))
    with pytest.raises(InvalidFileError, match=r"defaults\.one\.full\.objects"):
        suites.load(path, "quick")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidFileError, match=r"none\.toml: can't be read"):
        suites.load(tmp_path / "none.toml", None)


def test_an_unknown_suite_or_profile_lists_what_there_is(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL)
    assert suites.find(tmp_path, "small") == path
    with pytest.raises(UnknownNameError, match="no suite matches 'smal'") as caught:
        suites.find(tmp_path, "smal")
    assert caught.value.hint == "There is: small."
    with pytest.raises(UnknownNameError, match="no profile matches 'slow'") as caught:
        suites.load(path, "slow")
    assert caught.value.hint == "There is: quick, full."


@pytest.mark.parametrize(
    ("text", "count", "size_bytes"),
    [
        ("64 MiB", 1, 64 * MIB),
        ("64mib", 1, 64 * MIB),
        ("200 x 1 MiB", 200, MIB),
        ("200x1KiB", 200, 1024),
        (" 7 B ", 1, 7),
        ("6 GiB", 1, 6 << 30),
    ],
)
def test_objects_are_read_as_written(text: str, count: int, size_bytes: int) -> None:
    assert suites.parse_shape(text).objects == Objects(count=count, size_bytes=size_bytes)


@pytest.mark.parametrize("text", ["", "64", "64 MB", "1.5 MiB", "-1 MiB", "0 MiB", "0 x 1 MiB", "2 x", "2 x 3 x 1 MiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(BenchError):
        suites.parse_shape(text)


def test_the_filesystem_suite_holds_what_a_filesystem_does() -> None:
    suite = suites.load(suites.find(SCENARIOS, "filesystem"), None)
    assert suites.profile_names(FILESYSTEM) == ("quick", "standard", "full")
    assert (suite.profile.name, suite.default_link, suite.baseline) == ("quick", "s3-scaled", "s3fs")
    assert [scenario.operation for scenario in suite.scenarios] == [
        "read", "write", "copy", "put_file", "get_file", "cat", "pipe", "put", "get", "copy_many", "rm", "find", "info"
    ]  # fmt: skip
    assert {case.settings for case in suite.cases} == {Settings(concurrency=8, block_bytes=8 * MIB)}


@pytest.mark.parametrize(
    ("profile", "scenario", "shapes", "case_count"),
    [
        ("quick", "read", {"24MiB"}, 1),
        ("quick", "cat", {"20x256KiB"}, 1),
        ("standard", "read", {"64MiB"}, 1),
        ("full", "find", {"1000x1MiB"}, 1),
        ("full", "write", {"64MiB", "256MiB", "1GiB"}, 12),
        ("full", "copy", {"64MiB", "256MiB", "1GiB", "6GiB"}, 16),
        ("full", "rm", {"1000x1MiB"}, 2),
    ],
)
def test_the_filesystem_suite_grows_with_its_profiles(
    profile: str, scenario: str, shapes: set[str], case_count: int
) -> None:
    found = [key for key in keys(FILESYSTEM, profile) if key.startswith(f"{scenario}/")]
    assert {key.split("/")[1] for key in found} == shapes
    assert len(found) == len(set(found)) == case_count
