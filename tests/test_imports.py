"""Imports go down only, and the worker knows nothing of the harness."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from harness import paths

HARNESS = paths.ROOT / "harness"
LAYERS = (
    ("harness.cli",),
    ("harness.commands", "harness.run_commands"),
    (
        "harness.run",
        "harness.manifest",
        "harness.report",
        "harness.history",
        "harness.selftest",
        "harness.console",
        "harness.cost",
    ),
    ("harness.curves",),
    ("harness.decide", "harness.explain"),
    ("harness.compare", "harness.control", "harness.decisions", "harness.requirements", "harness.validity"),
    ("harness.summary",),
    ("harness.lab", "harness.conditions", "harness.findings", "harness.records", "harness.plan", "harness.suites"),
    ("harness.toml", "harness.output"),
    (
        "harness.statistics",
        "harness.units",
        "harness.model",
        "harness.operations",
        "harness.prices",
        "harness.errors",
        "harness.paths",
    ),
)
WITHIN_A_LAYER = {("harness.history", "harness.report")}
"""Rooms beside each other that may look in: an entry is a report's Markdown."""


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(paths.ROOT).with_suffix("").parts).removesuffix(".__init__")


def room_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def layer_of(module: str) -> int:
    return next(depth for depth, rooms in enumerate(LAYERS) if room_of(module) in rooms)


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = node.module == "harness"
            found |= {f"harness.{alias.name}" for alias in node.names} if whole else {node.module}
    return found


MODULES = [path for path in HARNESS.rglob("*.py") if "worker" not in path.parts and path != HARNESS / "__init__.py"]


@pytest.mark.parametrize("path", MODULES, ids=module_of)
def test_imports_go_down_only(path: Path) -> None:
    module = module_of(path)
    for imported in imports_of(path):
        if not imported.startswith("harness.") or imported == "harness.__version__":
            continue
        same_room = room_of(imported) == room_of(module)
        beside = (room_of(module), room_of(imported)) in WITHIN_A_LAYER
        assert same_room or beside or layer_of(imported) > layer_of(module), f"{module} imports {imported}"


def test_the_worker_imports_the_standard_library_only() -> None:
    for path in (HARNESS / "worker").glob("*.py"):
        foreign = {name.split(".")[0] for name in imports_of(path)} - set(sys.stdlib_module_names)
        assert not foreign


def test_the_harness_does_not_import_the_worker() -> None:
    assert not [path for path in MODULES if any(name.startswith("harness.worker") for name in imports_of(path))]
