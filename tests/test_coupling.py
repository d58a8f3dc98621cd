"""A subpackage's ties are read from an installed package that is never imported."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from harness import paths
from harness.errors import EnvironmentFailedError, UnknownNameError
from harness.lab import coupling, environments
from harness.lab.coupling import Coupling, Tie
from harness.lab.environments import Declaration, DeclaredClient, Environment


@pytest.fixture(scope="module")
def prepared() -> list[Environment]:
    installed = environments.prepare(paths.ENVS, ["pyathena-sync", "s3fs"], print)
    return [each.environment for each in installed.values()]


@pytest.fixture(scope="module")
def found(prepared: list[Environment]) -> Coupling:
    return coupling.examine(prepared, "pyathena", "pyathena.filesystem")


def made(folder: Path, files: dict[str, str]) -> Environment:
    """Return an environment that holds a package of these files."""
    site = folder / ".venv" / "lib" / "python3" / "site-packages"
    for name, text in files.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Environment(folder, Declaration("whole", {"whole": DeclaredClient("Whole", "client")}))


def test_the_published_size_of_the_filesystem_is_found(found: Coupling) -> None:
    assert (found.environment, found.version) == ("pyathena", "4.2.1")
    assert (found.line_count, len(found.modules)) == (10_971, 11)


def test_ties_go_out_of_the_subpackage_and_into_it(found: Coupling) -> None:
    assert Tie("pyathena.filesystem.s3", "pyathena.util", typing_only=False) in found.imports
    assert Tie("pyathena.s3fs.result_set", "pyathena.filesystem.s3", typing_only=False) in found.imported_by
    for tie in found.imports:
        assert tie.importer.startswith("pyathena.filesystem")
        assert not tie.imported.startswith("pyathena.filesystem")
    for tie in found.imported_by:
        assert tie.imported.startswith("pyathena.filesystem")
        assert not tie.importer.startswith("pyathena.filesystem")


def test_third_parties_are_distributions_with_their_versions(found: Coupling) -> None:
    assert [each.distribution for each in found.third_party] == ["boto3", "botocore", "fsspec"]
    assert all(each.version and each.importers for each in found.third_party)


def test_the_subpackage_may_be_named_without_its_package(prepared: list[Environment], found: Coupling) -> None:
    assert coupling.examine(prepared, "pyathena", "filesystem") == found


def test_nothing_is_imported_and_the_search_path_stays(prepared: list[Environment]) -> None:
    before = list(sys.path)
    coupling.examine(prepared, "s3fs", "core")
    assert sys.path == before
    assert "s3fs" not in sys.modules


def test_a_package_that_the_harness_uses_too_is_read_from_the_client(tmp_path: Path) -> None:
    # msgspec is imported here, in another version and with other modules.
    other = made(tmp_path, {"msgspec/__init__.py": "", "msgspec/part.py": "import msgspec\n"})
    found = coupling.examine([other], "msgspec", "part")
    assert [module.name for module in found.modules] == ["msgspec.part"]
    assert found.version == ""


def test_what_only_a_type_checker_sees_is_told_apart(tmp_path: Path) -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from whole import b\ndef f():\n    import whole.c, optional\n"
    files = {"whole/__init__.py": "", "whole/part/__init__.py": text, "whole/b.py": "", "whole/c.py": ""}
    found = coupling.examine([made(tmp_path, files)], "whole", "whole.part")
    assert [(tie.imported, tie.typing_only) for tie in found.imports] == [("whole.b", True), ("whole.c", False)]
    assert [(each.distribution, each.version) for each in found.third_party] == [("optional", "")]
    assert coupling.rows(found)[0] == ("part", "5", "b (typing), c", "", "optional")


def test_code_that_is_no_python_is_told(tmp_path: Path) -> None:
    environment = made(tmp_path, {"whole/__init__.py": "", "whole/part.py": "def (:\n"})
    with pytest.raises(EnvironmentFailedError, match="imports of whole can't be read"):
        coupling.examine([environment], "whole", "part")


@pytest.mark.parametrize(
    ("package", "subpackage", "there_is"),
    [
        ("nosuch", "part", "pyathena"),
        ("../pyathena", "part", "pyathena"),
        ("pyathena", "nosuch", "pyathena.filesystem"),
        ("pyathena", "filesystem.nosuch.deeper", "pyathena.filesystem.s3"),
        ("pyathena", "pyathena", "pyathena.filesystem"),
        ("six", "part", "dateutil"),
    ],
)
def test_what_is_not_there_is_told_with_what_there_is(
    prepared: list[Environment], package: str, subpackage: str, there_is: str
) -> None:
    with pytest.raises(UnknownNameError) as caught:
        coupling.examine(prepared, package, subpackage)
    assert there_is in caught.value.hint
    assert caught.value.exit_code == 2


def test_where_nothing_is_prepared_there_is_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError) as caught:
        coupling.examine([Environment(tmp_path, Declaration("", {}))], "whole", "part")
    assert caught.value.hint == "There is: none."


def test_the_table_has_a_row_a_module_and_one_for_all(found: Coupling) -> None:
    rows = coupling.rows(found)
    assert {len(row) for row in rows} == {len(coupling.HEADERS)}
    assert len(rows) == 12
    assert rows[-1][:2] == ("in all 11", "10,971")


def test_what_was_found_comes_back_from_json(found: Coupling) -> None:
    assert msgspec.json.decode(msgspec.json.encode(found), type=Coupling) == found
