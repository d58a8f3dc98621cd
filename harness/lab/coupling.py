"""How a subpackage hangs together with the rest of its package: what it imports from there, and who imports it."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from harness import units
from harness.errors import EnvironmentFailedError, UnknownNameError
from harness.lab.dependencies import find_site_packages
from harness.lab.environments import Environment, isolated_environment
from harness.model import Noun

GRAPH_LIMIT_S = 120
IMPORT_GRAPH = Path(__file__).parent / "import_graph.py"


class Tie(Noun, frozen=True):
    """One module imports another."""

    importer: str
    imported: str
    typing_only: bool
    """Only a type checker sees it: it costs nothing at run time, but has to be moved along."""


class Module(Noun, frozen=True):
    name: str
    line_count: int
    """Of its source, blank lines and comments included."""


class ThirdParty(Noun, frozen=True):
    """A distribution that the subpackage imports; without a version where it isn't installed, as one that is optional."""

    distribution: str
    version: str
    importers: tuple[str, ...]


class Coupling(Noun, frozen=True):
    """What would have to be cut to make the subpackage a package of its own.

    Statements anywhere in a module count, also within functions. What Python runs besides, the `__init__` of each
    package above an imported module, does not.
    """

    environment: str
    package: str
    version: str
    subpackage: str
    modules: tuple[Module, ...]
    imports: tuple[Tie, ...]
    """Of the rest of the package, by the subpackage."""
    imported_by: tuple[Tie, ...]
    """Of the subpackage, by the rest of the package."""
    third_party: tuple[ThirdParty, ...]

    @property
    def line_count(self) -> int:
        return sum(module.line_count for module in self.modules)


class _Graph(msgspec.Struct, frozen=True):
    """What import_graph.py answers."""

    modules: list[str]
    imports: list[tuple[str, str, bool]]


def examine(environments: Iterable[Environment], package: str, subpackage: str) -> Coupling:
    """Read the imports of a package that is installed in one of `environments`; it is never imported.

    Raise UnknownNameError for what isn't there. `subpackage` may leave out the package's name.
    """
    environment, site = _holder(environments, package)
    graph = _read(site, package)
    name = subpackage if subpackage.startswith(f"{package}.") else f"{package}.{subpackage}"
    inside = [module for module in graph.modules if _within(module, name)]
    if not inside:
        raise UnknownNameError(f"part of {package}", subpackage, _parts_near(graph, name))
    ties = [Tie(*each) for each in graph.imports]
    owners = _owners(site)
    out = [tie for tie in ties if _within(tie.importer, name)]
    return Coupling(
        environment=environment.name,
        package=package,
        version=owners[package].version if package in owners else "",
        subpackage=name,
        modules=tuple(Module(module, _line_count(site, module)) for module in inside),
        imports=tuple(tie for tie in out if _within(tie.imported, package) and not _within(tie.imported, name)),
        imported_by=tuple(tie for tie in ties if _within(tie.imported, name) and not _within(tie.importer, name)),
        third_party=tuple(_third_party([tie for tie in out if not _within(tie.imported, package)], owners)),
    )


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _holder(environments: Iterable[Environment], package: str) -> tuple[Environment, Path]:
    """Find the environment whose clients are of `package`, or else the first that has it installed."""
    wanted = canonicalize_name(package)
    known = sorted(environments, key=lambda each: canonicalize_name(each.declaration.package or "-") != wanted)
    sites = [(each, site) for each in known if (site := find_site_packages(each)) is not None]
    for environment, site in sites:
        if package.isidentifier() and (site / package / "__init__.py").is_file():
            return environment, site
    there_is = {path.parent.name for _, site in sites for path in site.glob("*/__init__.py")}
    raise UnknownNameError("package of the clients' environments", package, sorted(there_is))


def _read(site: Path, package: str) -> _Graph:
    command = [sys.executable, "-I", str(IMPORT_GRAPH), str(site), package]
    answer = subprocess.run(
        command, env=isolated_environment(), capture_output=True, text=True, check=False, timeout=GRAPH_LIMIT_S
    )
    if answer.returncode:
        raise EnvironmentFailedError(f"the imports of {package} can't be read: {answer.stderr.strip()[-500:]}")
    return msgspec.json.decode(answer.stdout, type=_Graph)


def _parts_near(graph: _Graph, name: str) -> list[str]:
    """Return what there is beneath the closest parent of `name` that exists."""
    parent = name.rpartition(".")[0]
    while parent not in graph.modules:
        parent = parent.rpartition(".")[0]
    return [module for module in graph.modules if module.rpartition(".")[0] == parent] or [parent]


def _line_count(site: Path, module: str) -> int:
    path = site.joinpath(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    # Bytes end their lines at line feeds and carriage returns alone; text would also at form feeds.
    return len(source.read_bytes().splitlines())


def _owners(site: Path) -> dict[str, importlib.metadata.Distribution]:
    """Map the top-level names that can be imported to the distributions that hold them."""
    return {
        file.parts[0].removesuffix(".py"): distribution
        for distribution in importlib.metadata.distributions(path=[str(site)])
        for file in distribution.files or ()
        if file.suffix in {".py", ".so"}
    }


def _third_party(ties: Iterable[Tie], owners: dict[str, importlib.metadata.Distribution]) -> Iterator[ThirdParty]:
    importers: dict[tuple[str, str], set[str]] = {}
    for tie in ties:
        top = tie.imported.partition(".")[0]
        if top not in sys.stdlib_module_names:
            owner = owners.get(top)
            named = (top, "") if owner is None else (canonicalize_name(owner.metadata["Name"]), owner.version)
            importers.setdefault(named, set()).add(tie.importer)
    for (distribution, version), modules in sorted(importers.items()):
        yield ThirdParty(distribution, version, tuple(sorted(modules)))


# --- for a table -----------------------------------------------------------------------------------------------------

HEADERS = ("module", "lines", "imports from the rest", "imported by the rest", "third party")
TYPING = " (typing)"
"""Marks an import that only a type checker sees."""


def rows(found: Coupling) -> list[tuple[str, ...]]:
    """Return one row a module, and one for all of them; names leave out the package's."""
    each_module = [
        (
            _short(module.name, found.package),
            units.count(module.line_count),
            _listed(((tie.imported, tie) for tie in found.imports if tie.importer == module.name), found.package),
            _listed(((tie.importer, tie) for tie in found.imported_by if tie.imported == module.name), found.package),
            ", ".join(each.distribution for each in found.third_party if module.name in each.importers),
        )
        for module in found.modules
    ]
    whole = (
        f"in all {len(found.modules)}",
        units.count(found.line_count),
        f"in all {len({tie.imported for tie in found.imports})}",
        f"in all {len({tie.importer for tie in found.imported_by})}",
        ", ".join(f"{each.distribution} {each.version or 'not installed'}" for each in found.third_party),
    )
    return [*each_module, whole]


def _listed(named: Iterable[tuple[str, Tie]], package: str) -> str:
    return ", ".join(_short(name, package) + TYPING * tie.typing_only for name, tie in named)


def _short(module: str, package: str) -> str:
    return module.removeprefix(f"{package}.")
