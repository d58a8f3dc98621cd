"""What a client brings along is read from its lock and its environment, and resolved by uv for real."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import sys_tags

from harness import paths
from harness.errors import EnvironmentFailedError
from harness.lab import dependencies, environments, pins, resolving
from harness.lab.dependencies import ClientDependencies, Dependencies, Distribution
from harness.lab.environments import Environment
from harness.lab.resolving import Fit

MIB = 1 << 20


@pytest.fixture(scope="module")
def prepared() -> list[Environment]:
    installed = environments.prepare(paths.ENVS, ["pyathena-sync", "pyathena-aio", "s3fs", "known", "null"], print)
    return list({each.environment.name: each.environment for each in installed.values()}.values())


@pytest.fixture(scope="module")
def found(prepared: list[Environment]) -> Dependencies:
    return dependencies.examine(prepared, print, import_pairs=3)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))


def of(found: Dependencies, environment: str) -> ClientDependencies:
    return next(each for each in found.clients if each.environment == environment)


def test_clients_are_examined_and_instruments_are_left_out(found: Dependencies) -> None:
    assert [each.environment for each in found.clients] == ["pyathena", "s3fs"]
    assert of(found, "pyathena").clients == ("pyathena-sync", "pyathena-aio")


def test_every_distribution_of_a_closure_has_its_sizes(found: Dependencies) -> None:
    for each in found.clients:
        for one in each.distributions:
            assert one.download_bytes is not None, one
            assert one.download_bytes > 0
            assert one.installed_bytes is not None, one
    botocore = next(one for one in of(found, "s3fs").distributions if one.name == "botocore")
    assert 10 * MIB < (botocore.download_bytes or 0) < (botocore.installed_bytes or 0) < 100 * MIB
    assert botocore.bytecode_bytes > MIB


def test_the_closure_is_what_the_environment_installs(found: Dependencies, prepared: list[Environment]) -> None:
    by_name = {each.name: each for each in prepared}
    for each in found.clients:
        installed = dependencies.installed_distributions(by_name[each.environment])
        assert {one.name: one.version for one in each.distributions} == {
            name: one.version for name, one in installed.items()
        }


def test_importing_takes_longer_than_an_empty_interpreter(found: Dependencies) -> None:
    for each in found.clients:
        measured = each.import_time
        assert 0 < measured.min_ns <= measured.median_ns <= measured.max_ns
        assert measured.median_ns > 20e6
        assert measured.pair_count == 3
    assert of(found, "s3fs").import_time.statement == "from s3fs import S3FileSystem"


def test_what_the_adapter_needs_of_others_is_what_is_imported(tmp_path: Path) -> None:
    adapter = tmp_path / "adapter.py"
    adapter.write_text("from __future__ import annotations\nimport os\nimport a.b\nfrom c import d as e\nimport json\n")
    assert dependencies.import_statement(adapter) == "import a.b; from c import d as e"


def test_an_import_that_fails_is_told(prepared: list[Environment], tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(prepared[0].folder / ".venv")
    (tmp_path / "adapter.py").write_text("import nosuch\n")
    broken = Environment(tmp_path, prepared[0].declaration)
    with pytest.raises(EnvironmentFailedError, match="No module named 'nosuch'"):
        dependencies.import_time(broken, 1)


def test_published_requirements_are_found(found: Dependencies) -> None:
    s3fs = {(pin.requirer, pin.package): pin for pin in of(found, "s3fs").pins}
    assert SpecifierSet(s3fs["s3fs", "aiobotocore"].specifier) == SpecifierSet(">=2.19.0,<4.0.0")
    assert s3fs["s3fs", "fsspec"].narrowness is pins.Narrowness.PATCHES
    assert SpecifierSet(s3fs["aiobotocore", "botocore"].specifier) == SpecifierSet(">=1.43.115,<1.43.118")
    pyathena = {pin.package: pin.narrowness for pin in of(found, "pyathena").pins if pin.requirer == "pyathena"}
    assert pyathena == dict.fromkeys(["boto3", "botocore", "fsspec", "tenacity", "tzdata"], pins.Narrowness.OPEN)


def test_the_narrowest_pins_come_first(found: Dependencies) -> None:
    for each in found.clients:
        places = [pins.order(pin.narrowness) for pin in each.pins]
        assert places == sorted(places)
    assert of(found, "s3fs").pins[0].package == "fsspec"


@pytest.mark.parametrize(
    ("specifier", "narrowness"),
    [
        ("==2.25.1", "exact pin"),
        ("===2.25.1", "exact pin"),
        (">=1.43.115,<1.43.118", "part of a patch series"),
        ("<2026.9.1,>=2026.9.0", "part of a patch series"),
        (">=1.43.115,<=1.43.117", "part of a patch series"),
        ("~=1.4.2", "one patch series"),
        ("==1.4.*", "one patch series"),
        ("<1.45.0,>=1.44.8", "one patch series"),
        ("<0.20,>=0.19", "one patch series"),
        ("~=1.4", "bounded above"),
        ("==1.*", "bounded above"),
        ("<2.0a.0,>=1.37.4", "bounded above"),
        (">=2.19,<4", "bounded above"),
        ("<4", "bounded above"),
        (">=1.0", "open above"),
        ("!=2.2.0,>=1", "open above"),
        ("", "open above"),
    ],
)
def test_what_a_requirement_leaves_open_is_told(specifier: str, narrowness: str) -> None:
    assert pins.narrowness(SpecifierSet(specifier)).value == narrowness


def wheel(name: str, size: int | None) -> dict[str, Any]:
    return {"url": f"https://example.org/files/{name}"} | ({} if size is None else {"size": size})


def test_the_wheel_that_fits_this_interpreter_is_what_is_downloaded() -> None:
    preference = {tag: place for place, tag in enumerate(sys_tags())}
    best = next(iter(preference))
    package: dict[str, Any] = {
        "sdist": {"url": "https://example.org/files/a-1.tar.gz", "size": 1},
        "wheels": [wheel("a-1-cp30-cp30-win32.whl", 2), wheel("a-1-py3-none-any.whl", 3), wheel(f"a-1-{best}.whl", 4)],
    }
    assert dependencies.download_bytes(package, preference) == 4
    assert dependencies.download_bytes({**package, "wheels": package["wheels"][:2]}, preference) == 3
    assert dependencies.download_bytes({**package, "wheels": package["wheels"][:1]}, preference) == 1
    assert dependencies.download_bytes({"wheels": [wheel("a-1-py3-none-any.whl", None)]}, preference) is None


def test_an_unknown_size_is_never_counted_as_nothing() -> None:
    assert dependencies.total([MIB, None, MIB]) == "2.00 MiB and 1 unknown"
    assert dependencies.total([None]) == "unknown"


def test_a_client_beside_the_newest_boto3_is_resolved_for_real(found: Dependencies) -> None:
    assert found.newest
    pyathena, s3fs = of(found, "pyathena").beside, of(found, "s3fs").beside
    assert (pyathena.fit, pyathena.chosen) == (Fit.FITS, found.newest)
    # Whether aiobotocore has caught up with boto3 changes from day to day.
    assert s3fs.fit in {Fit.FITS, Fit.CONFLICT}
    assert bool(s3fs.reason) is (s3fs.fit is Fit.CONFLICT)
    assert s3fs.chosen


def test_a_pair_that_fits_says_what_gives_way(prepared: list[Environment]) -> None:
    roots = ("aioboto3==15.5.0", "s3fs==2026.9.0")
    alone = {root: resolving.resolve([root]) for root in roots}
    # One environment stands for both: only its name is used.
    one, other = (dependencies._Subject(replace(prepared[0], folder=Path(root)), Requirement(root)) for root in roots)
    pair = dependencies._pair(one, other, alone, print)
    assert pair.fit is Fit.FITS
    moves = {(move.environment, move.package): move for move in pair.moves}
    assert moves["s3fs==2026.9.0", "aiobotocore"].together == "2.25.1"
    assert not [move for move in pair.moves if move.alone == move.together]


def test_a_conflict_is_told_in_uv_s_words(monkeypatch: pytest.MonkeyPatch) -> None:
    # Exported by some shells; uv would break its lines there.
    monkeypatch.setenv("COLUMNS", "60")
    resolution = resolving.resolve(["aioboto3==15.5.0", "boto3==1.44.8"])
    assert resolution.fit is Fit.CONFLICT
    assert "aiobotocore==2.25.1 depends on botocore>=1.40.46,<1.40.62" in resolution.reason
    assert "unsatisfiable" not in resolution.reason
    assert resolving.resolve(["boto3==1.44.8", "boto3==1.44.7"]).reason.startswith("Because you require")


@pytest.mark.usefixtures("no_network")
def test_without_a_network_nothing_is_called_a_conflict() -> None:
    resolution = resolving.resolve(["s3fs==2026.9.0"])
    assert resolution.fit is Fit.UNKNOWN
    assert resolution.reason.startswith("could not be resolved: Because ")


def test_a_registry_that_does_not_answer_is_told_without_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    resolution = resolving.resolve(["s3fs==2026.9.0"])
    assert resolution.fit is Fit.UNKNOWN
    assert resolution.reason.startswith("could not be resolved: ")
    assert "127.0.0.1" not in resolution.reason


def test_a_uv_that_hangs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("uv", resolving.RESOLVE_LIMIT_S)

    monkeypatch.setattr(subprocess, "run", hang)
    resolution = resolving.resolve(["boto3"])
    assert (resolution.fit, "took longer" in resolution.reason) == (Fit.UNKNOWN, True)


@pytest.mark.usefixtures("no_network")
def test_sizes_and_pins_need_no_network(prepared: list[Environment]) -> None:
    found = dependencies.examine(prepared, print, import_pairs=1)
    assert found.newest == ""
    for each in found.clients:
        assert each.beside.fit is Fit.UNKNOWN
        assert "could not be resolved" in each.beside.reason
        assert each.distributions
        assert each.pins
    assert [pair.fit for pair in found.pairs] == [Fit.UNKNOWN]
    assert [row[-2:] for row in dependencies.rows(found)] == [
        ("unknown", "s3fs (unknown)"),
        ("unknown", "pyathena (unknown)"),
    ]


def test_what_cannot_be_met_alone_is_no_conflict_with_another() -> None:
    newest = resolving.resolve(["boto3"])
    root = Requirement("boto3==0.0.0")
    assert dependencies._alone(root, newest, print).fit is Fit.UNKNOWN


def test_every_table_has_a_cell_a_header(found: Dependencies) -> None:
    tables = [
        (dependencies.HEADERS, dependencies.rows(found)),
        (dependencies.PIN_HEADERS, dependencies.pin_rows(found)),
        (dependencies.TOGETHER_HEADERS, dependencies.together_rows(found)),
    ]
    for headers, rows in tables:
        assert rows
        assert {len(row) for row in rows} == {len(headers)}
    assert any("fsspec" in line for line in dependencies.details(found))


def test_what_was_found_comes_back_from_json(found: Dependencies) -> None:
    text = msgspec.json.encode(found)
    assert msgspec.json.decode(text, type=Dependencies) == found
    assert b"://" not in text


def test_bytecode_is_counted_apart(tmp_path: Path) -> None:
    source = tmp_path / "one.py"
    source.write_text("x = 1\n")
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(tmp_path)], check=True)
    info = tmp_path / "one-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: one\nVersion: 1\n")
    (info / "RECORD").write_text("one.py,,\none-1.dist-info/METADATA,,\n__pycache__/one.cpython-311.pyc,,\ngone.py,,\n")
    distribution = next(iter(importlib.metadata.distributions(path=[str(tmp_path)])))
    sized = dependencies._sized(distribution, {})
    metadata_bytes = (info / "METADATA").stat().st_size
    assert sized.download_bytes is None
    assert sized.installed_bytes == source.stat().st_size + metadata_bytes
    assert sized.bytecode_bytes > 0
    assert isinstance(sized, Distribution)
