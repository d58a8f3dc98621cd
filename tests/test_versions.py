"""Another version of a client runs beside the locked one, in an environment that is named by what it holds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness import paths, plan, suites
from harness.errors import BenchError, EnvironmentFailedError
from harness.lab import environments, versions
from harness.model import Filters


@pytest.fixture
def envs(tmp_path: Path) -> Path:
    """Copies of the environments' sources, so that nothing derived is left in the checkout."""
    folder = tmp_path / "envs"
    for name in ("pyathena", "null"):
        shutil.copytree(paths.ENVS / name, folder / name, ignore=shutil.ignore_patterns(".venv", "__pycache__"))
    return folder


@pytest.mark.parametrize(
    ("text", "package", "label"),
    [
        ("pyathena==4.2.0", "pyathena", "4.2.0"),
        ("PyAthena == 4.2.0", "pyathena", "4.2.0"),
        (
            "pyathena @ git+https://example.org/p.git@0123456789abcdef0123456789abcdef01234567",
            "pyathena",
            "0123456789",
        ),
    ],
)
def test_one_version_is_named(text: str, package: str, label: str) -> None:
    version = versions.parse(text)
    assert (version.package, version.label) == (package, label)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pyathena", "leaves the version open"),
        ("pyathena>=4.2", "leaves the version open"),
        ("pyathena==4.*", "leaves the version open"),
        ("pyathena==4.2.0,!=4.2.1", "leaves the version open"),
        ("pyathena @ git+https://example.org/p.git@main", "a branch moves"),
        ("pyathena @ https://example.org/p.whl", "a branch moves"),
        ("not a requirement", "not understood"),
        ("./nosuch", "no checkout"),
    ],
)
def test_what_names_no_version_for_good_is_refused(text: str, words: str) -> None:
    with pytest.raises(BenchError, match=words):
        versions.parse(text)


def test_a_version_of_nobody_is_refused(envs: Path) -> None:
    known = environments.discover(envs)
    with pytest.raises(BenchError, match="no client of this run is of requests") as caught:
        versions.of_clients(known, list(known), ["requests==1.0"])
    assert "pyathena" in caught.value.hint


def test_every_client_of_the_package_gets_a_column_right_behind_its_own() -> None:
    suite = suites.load(suites.find(paths.SCENARIOS, "filesystem"), "standard")
    narrowed = plan.narrow(suite, Filters(clients=("pyathena-sync", "pyathena-aio", "boto3-threads")))
    labels = versions.of_clients(environments.discover(paths.ENVS), narrowed.clients[:3], ["pyathena==4.2.0"])
    assert plan.with_labels(narrowed, tuple(labels)).clients == (
        *("pyathena-sync", "pyathena-sync@4.2.0", "pyathena-aio", "pyathena-aio@4.2.0"),
        *("boto3-threads", "boto3-threads@control"),
    )


def test_a_released_version_is_installed_beside_the_locked_one_and_differs_in_nothing_else(envs: Path) -> None:
    known = environments.discover(envs)
    derived = versions.derive(known["pyathena-sync"], versions.parse("pyathena==4.2.0"))
    label = "pyathena-sync@4.2.0"
    prepared = environments.prepare(envs, ["pyathena-sync", label], lambda _: None, {label: derived})
    locked, other = prepared["pyathena-sync"], prepared[label]
    assert (locked.info.version, other.info.version) == ("4.2.1", "4.2.0")
    assert (other.name, other.info.requirement, locked.info.requirement) == ("pyathena-sync", "pyathena==4.2.0", "")
    changed = {name for name, version in locked.info.packages.items() if other.info.packages.get(name) != version}
    assert changed == {"pyathena"}
    assert other.info.environment != locked.info.environment
    assert other.info.lock_digest != locked.info.lock_digest
    assert other.info.adapter_digest == locked.info.adapter_digest
    again = versions.derive(known["pyathena-sync"], versions.parse("pyathena==4.2.0"))
    assert again.folder == derived.folder


def test_a_version_that_does_not_exist_is_told_and_leaves_nothing_to_trip_over(envs: Path) -> None:
    known = environments.discover(envs)
    for _ in range(2):
        with pytest.raises(EnvironmentFailedError, match=r"pyathena==99\.9"):
            versions.derive(known["pyathena-sync"], versions.parse("pyathena==99.9"))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A package of our own under the name of the client's."""
    folder = tmp_path / "my checkout"
    (folder / "pyathena").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "PyAthena"\nversion = "0.1.dev0"\ndependencies = ["boto3"]\n'
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    )
    (folder / "pyathena/__init__.py").write_text("mark = 1\n")
    return folder


def test_a_path_holds_from_any_folder(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkout.parent)
    assert versions.absolute("./my checkout") == str(checkout.resolve())
    assert versions.absolute("pyathena==4.2.0") == "pyathena==4.2.0"


def test_a_checkout_is_named_by_its_content(checkout: Path) -> None:
    before = versions.parse(str(checkout))
    assert before.package == "pyathena"
    assert before.label.startswith("my-checkout-")
    (checkout / "pyathena/__init__.py").write_text("mark = 2\n")
    (checkout / "__pycache__").mkdir()
    (checkout / "__pycache__/x.pyc").write_text("no content")
    after = versions.parse(str(checkout))
    assert after.label != before.label
    (checkout / "__pycache__/x.pyc").write_text("other")
    assert versions.parse(str(checkout)) == after


def test_a_checkout_is_built_anew_when_its_code_changes(envs: Path, checkout: Path) -> None:
    base = environments.discover(envs)["pyathena-sync"]
    for mark in ("mark = 1\n", "mark = 2\n"):
        (checkout / "pyathena/__init__.py").write_text(mark)
        derived = versions.derive(base, versions.parse(str(checkout)))
        environments.sync(derived)
        (installed,) = (derived.folder / ".venv").glob("lib/*/site-packages/pyathena/__init__.py")
        assert installed.read_text() == mark
    assert sorted(path.name for path in checkout.iterdir()) == ["pyathena", "pyproject.toml"]
