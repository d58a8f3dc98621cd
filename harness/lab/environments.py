"""The clients' environments: each folder of envs/ is a uv project, prepared from its lock and asked what it holds."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import msgspec

from harness.errors import EnvironmentFailedError, InvalidFileError, UnknownNameError
from harness.model import CONTROL, ClientInfo, client_name
from harness.paths import WORKER

SYNC_LIMIT_S = 1800
DESCRIBE_LIMIT_S = 120


class DeclaredClient(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    role: str


class Declaration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [tool.bench] of an environment's pyproject.toml."""

    package: str
    """Distribution whose version is the clients' version; empty where there is none."""
    clients: dict[str, DeclaredClient]


class Description(msgspec.Struct, frozen=True):
    """What the worker answers when it is asked to describe an environment."""

    python: str
    packages: dict[str, str]
    clients: dict[str, dict[str, str]]


@dataclass(frozen=True)
class Environment:
    folder: Path
    declaration: Declaration
    requirement: str = ""
    """What replaced the locked version, in an environment that was derived from a committed one."""

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def interpreter(self) -> Path:
        return self.folder / ".venv" / "bin" / "python"

    @property
    def adapter(self) -> Path:
        return self.folder / "adapter.py"

    @property
    def lock_digest(self) -> str:
        return _digest(self.folder / "uv.lock")


@dataclass(frozen=True)
class InstalledClient:
    """A client that is ready to run."""

    environment: Environment
    info: ClientInfo

    @property
    def name(self) -> str:
        """Name under which the adapter knows it."""
        return client_name(self.info.name)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def discover(envs: Path) -> dict[str, Environment]:
    """Map the name of each client to the environment that declares it."""
    found: dict[str, Environment] = {}
    for pyproject in sorted(envs.glob("*/pyproject.toml")):
        environment = Environment(pyproject.parent, _read_declaration(pyproject))
        for name in environment.declaration.clients:
            if name in found:
                raise InvalidFileError(pyproject, f"tool.bench.clients.{name}", f"also in envs/{found[name].name}")
            found[name] = environment
    return found


def _read_declaration(pyproject: Path) -> Declaration:
    try:
        table = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidFileError(pyproject, "", f"not valid TOML: {error}") from error
    bench = table.get("tool", {}).get("bench")
    if bench is None:
        raise InvalidFileError(
            pyproject, "tool.bench", "missing", "It names the package and the clients that adapter.py defines."
        )
    try:
        return msgspec.convert(bench, Declaration)
    except msgspec.ValidationError as error:
        raise InvalidFileError(pyproject, "tool.bench", str(error)) from error


def prepare(
    envs: Path,
    labels: Iterable[str],
    tell: Callable[[str], None],
    derived: Mapping[str, Environment] = MappingProxyType({}),
) -> dict[str, InstalledClient]:
    """Install what `labels` need, exactly as locked, and return them in that order. `tell` hears of each step.

    `derived` names the environments of labels that don't run in the committed one.
    """
    known = discover(envs)
    found: dict[str, Environment] = {}
    for label in labels:
        if client_name(label) not in known:
            raise UnknownNameError("client", client_name(label), sorted(known))
        found[label] = derived.get(label, known[client_name(label)])
    described: dict[str, Description] = {}
    for environment in {each.name: each for each in found.values()}.values():
        tell(f"environment {environment.name}")
        sync(environment)
        described[environment.name] = _describe(environment)
    return {
        label: InstalledClient(environment, _client_info(label, environment, described[environment.name]))
        for label, environment in found.items()
    }


def uv_program() -> str:
    """Return the uv that runs this program, or the one on the path."""
    found = os.environ.get("UV") or shutil.which("uv")
    if not found:
        raise EnvironmentFailedError(
            "uv is not on the path, and it prepares the clients' environments",
            "Start bench with `uv run bench ...`, as the README shows.",
        )
    return found


def uv_variables() -> dict[str, str]:
    """Return this process's variables without those that would point uv at the harness's own environment."""
    theirs = ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if name not in theirs}


def sync(environment: Environment) -> None:
    """Install an environment exactly as its lock says; raise EnvironmentFailedError when that fails."""
    # Bytecode is made now: else the first trial of each client would pay for it.
    command = [
        uv_program(),
        "sync",
        "--locked",
        "--compile-bytecode",
        "--project",
        str(environment.folder),
        "--python",
        sys.executable,
    ]
    try:
        answer = subprocess.run(
            command, env=uv_variables(), capture_output=True, text=True, check=False, timeout=SYNC_LIMIT_S
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFailedError(f"preparing envs/{environment.name} took longer than {SYNC_LIMIT_S} s") from error
    if answer.returncode:
        raise EnvironmentFailedError(
            f"envs/{environment.name} could not be prepared from its lock: {answer.stderr.strip()[-1500:]}",
            "See that the package registry is reachable, and that `uv lock --check` passes in that folder.",
        )


def isolated_environment() -> dict[str, str]:
    """Return the variables that a client's process gets: nothing of the user's that could change what is measured."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    return kept | {"HOME": "/nonexistent", "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}


def _describe(environment: Environment) -> Description:
    command = [str(environment.interpreter), "-I", str(WORKER), "describe", str(environment.adapter)]
    answer = subprocess.run(
        command, env=isolated_environment(), capture_output=True, text=True, check=False, timeout=DESCRIBE_LIMIT_S
    )
    try:
        description = msgspec.json.decode(answer.stdout.splitlines()[-1], type=Description)
    except (IndexError, msgspec.DecodeError) as error:
        raise EnvironmentFailedError(
            f"the adapter of envs/{environment.name} can't say what it offers: {answer.stderr.strip()[-1000:] or error}"
        ) from error
    if set(description.clients) != set(environment.declaration.clients):
        raise InvalidFileError(
            environment.folder / "pyproject.toml",
            "tool.bench.clients",
            f"declares {sorted(environment.declaration.clients)}, but adapter.py defines {sorted(description.clients)}",
        )
    return description


def _client_info(label: str, environment: Environment, description: Description) -> ClientInfo:
    name = client_name(label)
    declared = environment.declaration.clients[name]
    package = environment.declaration.package
    return ClientInfo(
        name=label,
        title=declared.title,
        environment=environment.name,
        role=CONTROL if label == f"{name}@{CONTROL}" else declared.role,
        version=description.packages.get(package.lower(), "") if package else f"python {description.python}",
        python=description.python,
        packages=dict(sorted(description.packages.items())),
        lock_digest=environment.lock_digest,
        adapter_digest=_digest(environment.adapter),
        operations=description.clients[name],
        requirement=environment.requirement,
    )


def differences(then: Mapping[str, ClientInfo], now: Mapping[str, ClientInfo]) -> list[str]:
    """Say in words what of the clients has changed since `then`."""
    changed = []
    for name, old in then.items():
        new = now.get(name)
        if new is None:
            changed.append(f"{name} is gone")
        elif old != new:
            fields = [field for field in old.__struct_fields__ if getattr(old, field) != getattr(new, field)]
            changed.append(f"{name}: {', '.join(fields)}")
    return changed
