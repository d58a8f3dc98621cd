"""A client under another version beside the locked one: a derived environment, named by its content."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from harness.errors import BenchError, EnvironmentFailedError
from harness.lab.environments import SYNC_LIMIT_S, Environment, uv_program, uv_variables

DERIVED = ".derived"
"""Beside the environments that are committed: those that were made from them."""
WHEELS = "wheels"
"""In a derived environment: the wheel that was built of a checkout."""
IGNORED = frozenset({".git", ".venv", ".tox", "__pycache__", "build", "dist", "node_modules"})
_FORMS = "Write e.g. 'pyathena==4.2.0', 'pyathena @ git+https://host/project@COMMIT', or the path of a checkout."


@dataclass(frozen=True)
class Version:
    """Another version of a package, as asked for by `--with`."""

    package: str
    """Its canonical name."""
    label: str
    """What follows the `@` in the label of a client."""
    requirement: str
    """As it stands in a derived environment's pyproject.toml."""
    checkout: Path | None
    content: str
    """Digest of a checkout's files; empty for a version that is named."""


def absolute(text: str) -> str:
    """Return a value of `--with` as it holds from any folder: a run may be resumed from another."""
    return str(Path(text).expanduser().resolve()) if _is_path(text) else text


def _is_path(text: str) -> bool:
    return text.startswith((".", "/", "~"))


def parse(text: str) -> Version:
    """Read one value of `--with`; raise BenchError for what doesn't name one version for good."""
    if _is_path(text):
        return _of_checkout(Path(text).expanduser().resolve())
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise BenchError(f"--with {text!r} is not understood: {str(error).splitlines()[0]}", _FORMS) from error
    package = canonicalize_name(requirement.name)
    if requirement.url is not None:
        commit = re.search(r"@([0-9a-f]{7,40})(?:#|$)", requirement.url)
        if not requirement.url.startswith("git+") or commit is None:
            raise BenchError(f"--with {text!r}: a branch moves; name a commit", _FORMS)
        return Version(package, commit[1][:10], text, None, "")
    pins = [each for each in requirement.specifier if each.operator == "==" and not each.version.endswith(".*")]
    if len(pins) != 1 or len(requirement.specifier) != 1:
        raise BenchError(f"--with {text!r} leaves the version open", _FORMS)
    return Version(package, pins[0].version, text, None, "")


def _of_checkout(folder: Path) -> Version:
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        package = canonicalize_name(str(project["name"]))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise BenchError(
            f"--with {folder} is no checkout of a package: its pyproject.toml names none", _FORMS
        ) from error
    content = _digest_of_tree(folder)
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", folder.name)
    return Version(package, f"{name}-{content[:6]}", package, folder, content)


def _digest_of_tree(folder: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not IGNORED.intersection(path.relative_to(folder).parts):
            total.update(f"{path.relative_to(folder)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def of_clients(known: Mapping[str, Environment], clients: Sequence[str], specs: Sequence[str]) -> dict[str, Version]:
    """Return the labels that `specs` add to `clients`, e.g. `pyathena-sync@4.2.0`, each with its version."""
    found: dict[str, Version] = {}
    for spec in specs:
        version = parse(spec)
        takers = [
            name for name in clients if canonicalize_name(known[name].declaration.package or "-") == version.package
        ]
        if not takers:
            packages = sorted({known[name].declaration.package for name in clients} - {""})
            raise BenchError(
                f"--with {spec!r}: no client of this run is of {version.package}", f"There is: {', '.join(packages)}."
            )
        found |= {f"{name}@{version.label}": version for name in takers}
    return found


def derive(base: Environment, version: Version) -> Environment:
    """Make, or find again, the environment that differs from `base` in one package; its lock keeps the others where it can."""
    project = tomllib.loads((base.folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = _pyproject(project, version)
    parts = [
        text,
        version.content,
        *((base.folder / name).read_text(encoding="utf-8") for name in ("uv.lock", "adapter.py")),
    ]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:10]
    folder = base.folder.parent / DERIVED / f"{base.name}-{digest}"
    derived = replace(
        base, folder=folder, requirement=version.requirement if version.checkout is None else str(version.checkout)
    )
    if not (folder / "locked").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in ("uv.lock", "adapter.py"):
            shutil.copy(base.folder / name, folder / name)
        source = "" if version.checkout is None else _source(version.package, _build(version.checkout, folder))
        (folder / "pyproject.toml").write_text(text + source, encoding="utf-8")
        _lock(folder, version)
        (folder / "locked").touch()
    return derived


def _pyproject(project: Mapping[str, object], version: Version) -> str:
    listed = project.get("dependencies", [])
    assert isinstance(listed, list)
    others = [each for each in listed if canonicalize_name(Requirement(each).name) != version.package]
    lines = [
        "[project]",
        f"name = {json.dumps(project['name'])}",
        'version = "0"',
        f"requires-python = {json.dumps(project['requires-python'])}",
        f"dependencies = {json.dumps([version.requirement, *others])}",
        "[tool.uv]",
        "package = false",
    ]
    return "\n".join(lines) + "\n"


def _source(package: str, wheel: Path) -> str:
    return f"[tool.uv.sources]\n{package} = {{ path = {json.dumps(f'{WHEELS}/{wheel.name}')} }}\n"


def _build(checkout: Path, folder: Path) -> Path:
    """Make a wheel of the checkout as it is now.

    By itself uv would look at its pyproject.toml alone to see whether it has changed. A copy is built, for a build leaves
    files behind.
    """
    copy = folder / "checkout"
    shutil.copytree(checkout, copy, ignore=shutil.ignore_patterns(*(IGNORED - {".git"})), symlinks=True)
    _uv(["build", "--wheel", "--out-dir", str(folder / WHEELS), str(copy)], f"the checkout {checkout} can't be built")
    shutil.rmtree(copy)
    (wheel,) = (folder / WHEELS).glob("*.whl")
    return wheel


def _lock(folder: Path, version: Version) -> None:
    command = ["lock", "--project", str(folder), "--upgrade-package", version.package]
    _uv(command, f"{version.requirement} can't be installed")


def _uv(arguments: Sequence[str], failure: str) -> None:
    answer = subprocess.run(
        [uv_program(), *arguments],
        env=uv_variables(),
        capture_output=True,
        text=True,
        check=False,
        timeout=SYNC_LIMIT_S,
    )
    if answer.returncode:
        raise EnvironmentFailedError(
            f"{failure}: {answer.stderr.strip()[-1500:]}",
            "See that this version exists, and that its requirements can be met.",
        )
