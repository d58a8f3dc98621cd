"""What each client brings along: distributions, bytes, time to import, pins, and whom it can be installed beside."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import itertools
import platform
import statistics
import subprocess
import sys
import time
import tomllib
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.tags import Tag, sys_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from harness import units
from harness.errors import EnvironmentFailedError
from harness.lab.environments import Environment, isolated_environment
from harness.lab.pins import Narrowness, order, rank
from harness.lab.resolving import Fit, Resolution, resolve
from harness.model import Noun

IMPORT_PAIRS = 7
NEIGHBOUR = "boto3"
"""What most programs that speak to S3 already have, and want to keep up to date."""
IMPORT_LIMIT_S = 60
UNKNOWN = "unknown"


class Distribution(Noun, frozen=True):
    """One distribution of a client's closure. A size of None is unknown."""

    name: str
    version: str
    download_bytes: int | None
    """Of the wheel that fits this interpreter, as the lock states; of the source where no wheel fits."""
    installed_bytes: int | None
    """Of the files that its RECORD names, as they are on disk, without bytecode."""
    bytecode_bytes: int
    """Of the bytecode that was compiled from them."""


class ImportTime(Noun, frozen=True):
    """Wall time of an interpreter that imports, less that of an empty one that was started right before or after it."""

    statement: str
    pair_count: int
    median_ns: int
    min_ns: int
    max_ns: int


class Pin(Noun, frozen=True):
    """One requirement within a client's closure."""

    requirer: str
    package: str
    specifier: str
    narrowness: Narrowness
    installed: str


class Beside(Noun, frozen=True):
    """Whether a client's package, at its locked version, can be installed with the newest boto3."""

    fit: Fit
    chosen: str
    """The boto3 that uv chooses beside the client when it is free to; empty when that is unknown."""
    reason: str
    """What uv says when it doesn't fit, or is unknown."""


class ClientDependencies(Noun, frozen=True):
    """What the clients of one environment bring along."""

    environment: str
    clients: tuple[str, ...]
    package: str
    version: str
    distributions: tuple[Distribution, ...]
    import_time: ImportTime
    pins: tuple[Pin, ...]
    """The narrowest first."""
    beside: Beside


class Move(Noun, frozen=True):
    """A package that is at another version beside another client than it would be alone."""

    environment: str
    package: str
    alone: str
    together: str


class Pair(Noun, frozen=True):
    """Whether the packages of two environments, at their locked versions, can be installed together."""

    first: str
    second: str
    fit: Fit
    reason: str
    moves: tuple[Move, ...]


class Dependencies(Noun, frozen=True):
    """Everything that was found."""

    python: str
    system: str
    """Tag of the wheels that fit best, e.g. `cp311-cp311-linux_x86_64`: sizes hold for it alone."""
    newest: str
    """The newest boto3; empty when the registry was not reached."""
    clients: tuple[ClientDependencies, ...]
    pairs: tuple[Pair, ...]


# --- the whole -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Subject:
    """A client's environment and its package, at the version that is installed."""

    environment: Environment
    root: Requirement

    @property
    def name(self) -> str:
        return self.environment.name


def examine(
    prepared: Iterable[Environment], tell: Callable[[str], None], import_pairs: int = IMPORT_PAIRS
) -> Dependencies:
    """Measure the environments of clients, and resolve each with the newest boto3 and with each other.

    They must be prepared; those of instruments are left out. `tell` hears of each step. What can't be resolved is
    unknown, with the reason: no network is needed for the rest.
    """
    subjects = [_Subject(each, _root(each)) for each in prepared if clients_of(each)]
    tell(f"resolve: the newest {NEIGHBOUR}")
    newest = resolve([NEIGHBOUR])
    alone = {each.name: _alone(each.root, newest, tell) for each in subjects}
    return Dependencies(
        python=platform.python_version(),
        system=str(next(sys_tags())),
        newest=newest.versions.get(NEIGHBOUR, ""),
        clients=tuple(
            _measure(each, _beside(each.root, alone[each.name], newest, tell), import_pairs, tell) for each in subjects
        ),
        pairs=tuple(_pair(first, second, alone, tell) for first, second in itertools.combinations(subjects, 2)),
    )


def clients_of(environment: Environment) -> tuple[str, ...]:
    """Return the clients of an environment that are measured for their own sake: none where it holds an instrument."""
    declaration = environment.declaration
    return tuple(name for name, each in declaration.clients.items() if declaration.package and each.role == "client")


def _measure(subject: _Subject, beside: Beside, import_pairs: int, tell: Callable[[str], None]) -> ClientDependencies:
    tell(f"sizes and imports of {subject.name}")
    environment, root = subject.environment, subject.root
    installed = installed_distributions(environment)
    names, requirements = closure(root, installed)
    downloads = _downloads(environment.folder / "uv.lock")
    return ClientDependencies(
        environment=environment.name,
        clients=clients_of(environment),
        package=root.name,
        version=installed[canonicalize_name(root.name)].version,
        distributions=tuple(_sized(installed[name], downloads) for name in sorted(names)),
        import_time=import_time(environment, import_pairs),
        pins=tuple(_pins(requirements, installed)),
        beside=beside,
    )


# --- what is installed -----------------------------------------------------------------------------------------------


def find_site_packages(environment: Environment) -> Path | None:
    """Return the folder into which an environment's distributions are installed; None while it isn't prepared."""
    return next((environment.folder / ".venv" / "lib").glob("python*/site-packages"), None)


def installed_distributions(environment: Environment) -> dict[str, importlib.metadata.Distribution]:
    """Map canonical names to what is installed."""
    folder = find_site_packages(environment)
    found = importlib.metadata.distributions(path=[] if folder is None else [str(folder)])
    return {canonicalize_name(each.metadata["Name"]): each for each in found}


def _root(environment: Environment) -> Requirement:
    """Return the client's package at its installed version, with the extras that its environment asks for."""
    package = environment.declaration.package
    project = tomllib.loads((environment.folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [Requirement(text) for text in project.get("dependencies", [])]
    extras = {
        extra for each in asked if canonicalize_name(each.name) == canonicalize_name(package) for extra in each.extras
    }
    installed = installed_distributions(environment).get(canonicalize_name(package))
    if installed is None:
        raise EnvironmentFailedError(f"envs/{environment.name} does not install {package}, which it declares")
    listed = f"[{','.join(sorted(extras))}]" if extras else ""
    return Requirement(f"{package}{listed}=={installed.version}")


def closure(
    root: Requirement, installed: Mapping[str, importlib.metadata.Distribution]
) -> tuple[set[str], list[tuple[str, Requirement]]]:
    """Follow what is required from `root` on: the canonical names met, and each requirement with its requirer."""
    names: set[str] = set()
    edges: dict[tuple[str, str], Requirement] = {}
    visited: set[tuple[str, str]] = set()
    waiting = [root]
    while waiting:
        asked = waiting.pop()
        name = canonicalize_name(asked.name)
        if name not in installed:
            continue
        names.add(name)
        for extra in {"", *asked.extras} - {extra for known, extra in visited if known == name}:
            visited.add((name, extra))
            for requirement in _required(installed[name], extra):
                edges[name, str(requirement)] = requirement
                waiting.append(requirement)
    return names, [(requirer, requirement) for (requirer, _), requirement in edges.items()]


def _required(distribution: importlib.metadata.Distribution, extra: str) -> Iterator[Requirement]:
    """Yield what `distribution` needs here, for one of its extras or, with an empty one, for none."""
    for text in distribution.requires or ():
        requirement = Requirement(text)
        # The clients' interpreter is this one: environments.sync names it.
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def _sized(distribution: importlib.metadata.Distribution, downloads: Mapping[tuple[str, str], int]) -> Distribution:
    name = canonicalize_name(distribution.metadata["Name"])
    installed_bytes, bytecode_bytes = _on_disk(distribution)
    return Distribution(
        name=name,
        version=distribution.version,
        download_bytes=downloads.get((name, distribution.version)),
        installed_bytes=installed_bytes,
        bytecode_bytes=bytecode_bytes,
    )


def _on_disk(distribution: importlib.metadata.Distribution) -> tuple[int | None, int]:
    """Return the bytes of a distribution's files, and of their bytecode, which its RECORD may or may not name."""
    if distribution.files is None:
        return None, 0
    files = {Path(str(distribution.locate_file(file))) for file in distribution.files}
    sources = {path for path in files if path.suffix != ".pyc" and path.is_file()}
    compiled = {Path(importlib.util.cache_from_source(str(path))) for path in sources if path.suffix == ".py"}
    return sum(path.stat().st_size for path in sources), sum(path.stat().st_size for path in compiled if path.is_file())


# --- what is downloaded ----------------------------------------------------------------------------------------------


def _downloads(lock: Path) -> dict[tuple[str, str], int]:
    """Map name and version to the bytes that the lock says are fetched for this interpreter."""
    preference = {tag: position for position, tag in enumerate(sys_tags())}
    packages = tomllib.loads(lock.read_text(encoding="utf-8")).get("package", [])
    sizes = {(each["name"], each.get("version", "")): download_bytes(each, preference) for each in packages}
    return {key: size for key, size in sizes.items() if size is not None}


def download_bytes(package: Mapping[str, Any], preference: Mapping[Tag, int]) -> int | None:
    """Return the size of the wheel of a lock's package that fits best, else of its source; None where none is stated."""
    ranked = [
        (min(preference[tag] for tag in fitting), position)
        for position, wheel in enumerate(package.get("wheels", []))
        if (fitting := _tags(wheel) & preference.keys())
    ]
    chosen = package["wheels"][min(ranked)[1]] if ranked else package.get("sdist", {})
    size = chosen.get("size")
    return size if isinstance(size, int) else None


def _tags(wheel: Mapping[str, Any]) -> frozenset[Tag]:
    place = wheel.get("filename") or wheel.get("url") or wheel.get("path") or ""
    try:
        return parse_wheel_filename(urllib.parse.unquote(str(place).rsplit("/", 1)[-1]))[3]
    except InvalidWheelFilename:
        return frozenset()


# --- time to import --------------------------------------------------------------------------------------------------


def import_statement(adapter: Path) -> str:
    """Return what an adapter imports of others at its top: what a program must import to use the client."""
    tree = ast.parse(adapter.read_text(encoding="utf-8"))
    foreign = [node for node in tree.body if set(_roots(node)) - sys.stdlib_module_names]
    return "; ".join(ast.unparse(node) for node in foreign)


def _roots(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name.split(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module.split(".")[0]


def import_time(environment: Environment, pair_count: int) -> ImportTime:
    """Time the adapter's imports in fresh interpreters; the environment was compiled beforehand."""
    statement = import_statement(environment.adapter)
    # Unpaired first: it brings the files into the page cache, as any earlier use of them would have.
    _start_ns(environment, statement)
    differences = []
    for turn in range(pair_count):
        # Who goes first changes, so that a host that gets slower or faster favours neither.
        order = ("pass", statement) if turn % 2 else (statement, "pass")
        wall_ns = {program: _start_ns(environment, program) for program in order}
        differences.append(wall_ns[statement] - wall_ns["pass"])
    return ImportTime(
        statement=statement,
        pair_count=pair_count,
        median_ns=round(statistics.median(differences)),
        min_ns=min(differences),
        max_ns=max(differences),
    )


def _start_ns(environment: Environment, program: str) -> int:
    command = [str(environment.interpreter), "-I", "-c", program]
    started = time.perf_counter_ns()
    answer = subprocess.run(
        command, env=isolated_environment(), capture_output=True, text=True, check=False, timeout=IMPORT_LIMIT_S
    )
    wall_ns = time.perf_counter_ns() - started
    if answer.returncode:
        raise EnvironmentFailedError(f"envs/{environment.name}: {program!r} fails: {answer.stderr.strip()[-500:]}")
    return wall_ns


# --- pins ------------------------------------------------------------------------------------------------------------


def _pins(
    requirements: Iterable[tuple[str, Requirement]], installed: Mapping[str, importlib.metadata.Distribution]
) -> Iterator[Pin]:
    """Yield the requirements of a closure, the narrowest first."""
    ranked = [(rank(requirement.specifier), requirer, requirement) for requirer, requirement in requirements]
    ranked.sort(key=lambda each: (order(each[0][0]), each[0][1], each[1], each[2].name))
    for (narrowness, _), requirer, requirement in ranked:
        name = canonicalize_name(requirement.name)
        version = installed[name].version if name in installed else ""
        yield Pin(requirer, name, str(requirement.specifier), narrowness, version)


# --- beside others ---------------------------------------------------------------------------------------------------


def _alone(root: Requirement, newest: Resolution, tell: Callable[[str], None]) -> Resolution:
    """Resolve a client's package by itself: what can't even be met alone conflicts with nobody."""
    if newest.fit is not Fit.FITS:
        # The registry was not reached for one name; the same wait for each further one would tell nothing new.
        return Resolution(Fit.UNKNOWN, {}, newest.reason)
    tell(f"resolve: {root}")
    found = resolve([str(root)])
    if found.fit is Fit.CONFLICT:
        return Resolution(Fit.UNKNOWN, {}, f"could not be resolved: {found.reason}")
    return found


def _beside(root: Requirement, alone: Resolution, newest: Resolution, tell: Callable[[str], None]) -> Beside:
    if alone.fit is not Fit.FITS:
        return Beside(Fit.UNKNOWN, "", alone.reason)
    version = newest.versions[NEIGHBOUR]
    tell(f"resolve: {root}, {NEIGHBOUR}=={version}")
    found = resolve([str(root), f"{NEIGHBOUR}=={version}"])
    if found.fit is not Fit.CONFLICT:
        return Beside(found.fit, found.versions.get(NEIGHBOUR, ""), found.reason)
    free = resolve([str(root), NEIGHBOUR])
    return Beside(found.fit, free.versions.get(NEIGHBOUR, ""), found.reason)


def _pair(first: _Subject, second: _Subject, alone: Mapping[str, Resolution], tell: Callable[[str], None]) -> Pair:
    names = (first.name, second.name)
    for name in names:
        if alone[name].fit is not Fit.FITS:
            return Pair(*names, Fit.UNKNOWN, alone[name].reason, ())
    tell(f"resolve: {first.root}, {second.root}")
    found = resolve([str(first.root), str(second.root)])
    moves = [
        Move(name, package, version, found.versions[package])
        for name in names
        for package, version in alone[name].versions.items()
        if found.versions.get(package, version) != version
    ]
    return Pair(*names, found.fit, found.reason, tuple(moves))


# --- for tables ------------------------------------------------------------------------------------------------------

HEADERS = (
    "package",
    "distributions",
    "download",
    "installed",
    "bytecode",
    "import: median (min to max, n)",
    f"beside the newest {NEIGHBOUR}",
    "in conflict with",
)


def rows(found: Dependencies) -> list[tuple[str, ...]]:
    """Return one row a client's environment."""
    return [
        (
            f"{each.package} {each.version}",
            units.count(len(each.distributions)),
            total([one.download_bytes for one in each.distributions]),
            total([one.installed_bytes for one in each.distributions]),
            total([one.bytecode_bytes for one in each.distributions]),
            _spread(each.import_time),
            _beside_words(each.beside, found.newest),
            _conflicts(each.environment, found.pairs),
        )
        for each in found.clients
    ]


def total(sizes: Sequence[int | None]) -> str:
    """Write a sum of bytes, and of how many the size is unknown."""
    known = [size for size in sizes if size is not None]
    missing = len(sizes) - len(known)
    if not known:
        return UNKNOWN
    return units.size(sum(known)) + (f" and {missing} {UNKNOWN}" if missing else "")


def _spread(measured: ImportTime) -> str:
    low, high = units.duration(measured.min_ns), units.duration(measured.max_ns)
    return f"{units.duration(measured.median_ns)} ({low} to {high}, {measured.pair_count})"


def _beside_words(beside: Beside, newest: str) -> str:
    if beside.fit is Fit.UNKNOWN:
        return UNKNOWN
    if beside.fit is Fit.FITS:
        return f"{newest} {beside.fit}"
    return f"{newest} in {beside.fit}" + (f", {beside.chosen} {Fit.FITS}" if beside.chosen else "")


def _conflicts(environment: str, pairs: Iterable[Pair]) -> str:
    others = {
        fit: [
            pair.second if pair.first == environment else pair.first
            for pair in pairs
            if environment in {pair.first, pair.second} and pair.fit is fit
        ]
        for fit in Fit
    }
    told = [*others[Fit.CONFLICT], *(f"{name} ({UNKNOWN})" for name in others[Fit.UNKNOWN])]
    return ", ".join(told) or "none"


PIN_HEADERS = ("client", "package", "requires", "how narrow", "installed")


def pin_rows(found: Dependencies, widest: Narrowness = Narrowness.SERIES) -> list[tuple[str, ...]]:
    """Return one row a requirement that is as narrow as `widest` or narrower."""
    return [
        (each.environment, pin.requirer, f"{pin.package} {pin.specifier}".rstrip(), pin.narrowness.value, pin.installed)
        for each in found.clients
        for pin in each.pins
        if order(pin.narrowness) <= order(widest)
    ]


TOGETHER_HEADERS = ("client", "together with", "outcome", "why, or what gives way")


def together_rows(found: Dependencies) -> list[tuple[str, ...]]:
    """Return one row for each client with the newest boto3, and one for each pair of clients."""
    newest = f"{NEIGHBOUR} {found.newest}" if found.newest else f"the newest {NEIGHBOUR}"
    beside = [(each.environment, newest, each.beside.fit.value, each.beside.reason) for each in found.clients]
    pairs = [(each.first, each.second, each.fit.value, each.reason or _moved(each.moves)) for each in found.pairs]
    return [*beside, *pairs]


def _moved(moves: Iterable[Move]) -> str:
    return "; ".join(f"{each.environment}'s {each.package} {each.alone} -> {each.together}" for each in moves)


def details(found: Dependencies) -> list[str]:
    """Return a sentence for each narrow pin and each pair that doesn't simply fit, and one on what this holds for."""
    pins = [
        f"{client}: {package} requires {required}: {narrow}"
        for client, package, required, narrow, _ in pin_rows(found, Narrowness.PATCHES)
    ]
    pairs = [
        f"{one} with {other}: {fit}: {why}" for one, other, fit, why in together_rows(found) if why or fit != Fit.FITS
    ]
    return [
        *pins,
        *pairs,
        f"On Python {found.python}, {found.system}; imports are wall time beyond an empty interpreter's.",
    ]
