"""Reads the imports of a package that is installed in another environment, without importing it.

    python -I harness/lab/import_graph.py SITE PACKAGE     one JSON line on stdout: modules, and imports between them

A process of its own: where this program has imported a package of that name itself, grimp would find that one.
"""

from __future__ import annotations

import json
import sys

import grimp


def read(package: str, *, typing: bool) -> grimp.ImportGraph:
    """Return the graph, with or without imports that only a type checker sees."""
    return grimp.build_graph(
        package, include_external_packages=True, exclude_type_checking_imports=not typing, cache_dir=None
    )


def imports_of(graph: grimp.ImportGraph) -> set[tuple[str, str]]:
    """Return each pair of importer and imported module; of another package, only its top level."""
    return {
        (importer, imported)
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
    }


def main() -> None:
    """Print what a package's modules import."""
    site, package = sys.argv[1:]
    sys.path.insert(0, site)
    graph = read(package, typing=True)
    found, run = imports_of(graph), imports_of(read(package, typing=False))
    modules = sorted(name for name in graph.modules if name == package or name.startswith(f"{package}."))
    facts = {"modules": modules, "imports": sorted((*pair, pair not in run) for pair in found)}
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
