"""Which part of the package may import which: rules, and a reader of import statements that checks them.

Compiled modules (``.pyx`` with its ``.pxd``) are read as well, and ``cimport`` counts as ``import``.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = "flowsched"
SOURCE = Path(__file__).resolve().parents[2] / "src" / PACKAGE

ROOMS = {
    "ground": "exceptions boundary version _guard _faults",
    "kernel": "_cs kernels",
    "network": "network",
    "nx_backend": "nx_backend",
    "cluster": "cluster",
    "sharing": "sharing",
    "policy": "policy",
    "builder": "builder",
    "rounds": "rounds",
    "journal": "journal",
    "scheduler": "scheduler",
    "metrics": "metrics",
    "front": "__init__",
    "fgm": "fgm",
    "hrm": "hrm",
    "run": "run",
    "serve": "serve",
    "sim": "sim",
    "cli": "cli __main__",
}
"""Rooms, and the modules and subpackages in each."""

WORLD = "ground cluster sharing policy rounds"

MAY = {
    "ground": "",
    "kernel": "ground",
    "network": "ground kernel",
    "nx_backend": "ground network",
    "cluster": "ground",
    "sharing": "ground",
    "policy": "ground cluster sharing",
    "builder": "ground network cluster sharing policy",
    "rounds": "ground network cluster sharing policy builder",
    "journal": "ground network cluster sharing policy builder rounds",
    "scheduler": "ground network cluster sharing policy builder rounds journal",
    "metrics": "ground rounds",
    "front": "ground network cluster sharing policy rounds journal scheduler",
    "fgm": "journal scheduler " + WORLD,
    "hrm": "scheduler " + WORLD,
    "run": "fgm hrm scheduler metrics " + WORLD,
    "serve": "journal scheduler metrics " + WORLD,
    "sim": "fgm hrm run front scheduler " + WORLD,
    "cli": " ".join(room for room in ROOMS if room not in ("kernel", "cli")),
}
"""Rooms that each room may import, itself apart; the kernel is `network`'s alone, and nothing imports `cli`."""

CORE = frozenset("ground kernel network cluster sharing policy builder rounds journal scheduler front".split())
"""Rooms that need NumPy and nothing else."""

EXTRAS = {
    "nx_backend": "networkx",
    "metrics": "prometheus_client opentelemetry",
    "fgm": "scipy psutil",
    "hrm": "sqlalchemy psycopg psutil pynvml scipy ray dask",
    "run": "psutil dask distributed ray asyncssh kubernetes aiohttp prometheus_client",
    "serve": "starlette uvicorn prometheus_client",
    "sim": "simpy matplotlib scipy dask distributed ray",
    "cli": "click rich ortools pylmcf _flowsched_cli",
}
"""Packages that the other rooms may import, NumPy apart."""


CYTHON = ("cython", "cpython", "libc")
"""What Cython brings along."""


def room_of(module: str) -> str:
    """Return the room of a module, given without the package's name ("" for the package itself)."""
    top = module.partition(".")[0] or "__init__"
    for room, names in ROOMS.items():
        if top in names.split():
            return room
    raise LookupError(f"{PACKAGE}.{module} is in no room: name it in tests/support/layers.py")


def imports(text: str, module: str, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """Yield (line, module imported) for every import of a source text, wherever it stands; relative ones resolved.

    Imports for type checkers only, under ``if TYPE_CHECKING``, count as well: a type is knowledge too.
    """
    here = [PACKAGE, *module.split(".")] if module else [PACKAGE]
    try:
        tree = ast.parse(text)
    except SyntaxError:  # Cython
        yield from _cython_imports(text)
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + is_package] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{name}.{alias.name}"


_STATEMENT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+c?import[ \t]+(\([^)]*\)|[^\n#]+)|c?import[ \t]+([\w., \t]+))", re.M
)


def _cython_imports(text: str) -> Iterator[tuple[int, str]]:
    for found in _STATEMENT.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        base, names, modules = found.groups()
        for name in (names or modules).strip("() \n").split(","):
            if name.strip():
                yield line, f"{base}.{name.split()[0]}" if base else name.split()[0]


def module_of(name: str, modules: frozenset[str]) -> str:
    """Return the module that an imported name is, or is out of; both without the package's name."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def faults(text: str, module: str, modules: frozenset[str], is_package: bool = False) -> list[str]:
    """Return what a module imports against the rules; `modules` are all of the package, without its name."""
    room = room_of(module)
    found = []
    for line, name in imports(text, module, is_package):
        top, _, rest = name.partition(".")
        where = f"{PACKAGE}.{module}:{line}" if module else f"{PACKAGE}:{line}"
        if top == PACKAGE:
            other = room_of(module_of(rest, modules))
            if other != room and other not in MAY[room].split():
                found.append(f"{where}: {room} must not import {other} ({name})")
        elif top not in sys.stdlib_module_names and top not in ("numpy", *CYTHON, *EXTRAS.get(room, "").split()):
            found.append(f"{where}: {room} must not import {top}")
    return found


def graph() -> dict[str, set[str]]:
    """Return which file imports which, by module name; a package's face stands for all that it imports."""
    modules = all_modules()
    found: dict[str, set[str]] = {}
    for module, path in sources().items():
        others = {
            module_of(name.partition(".")[2], modules)
            for _, name in imports(source(path), module, path.name == "__init__.py")
            if name.partition(".")[0] == PACKAGE
        }
        found[module] = others - {module}
    return found


def order(graph: dict[str, set[str]]) -> list[str]:
    """Return the files so that each stands behind all that it imports.

    Raises
    ------
    graphlib.CycleError
        Files that import each other, in its second argument.
    """
    return list(TopologicalSorter(graph).static_order())


def sources() -> dict[str, Path]:
    """Return all modules: name without the package's, and file, the ``.pxd`` alone where there is no other."""
    found = {}
    for path in (path for ending in ("pxd", "pyx", "py") for path in sorted(SOURCE.rglob(f"*.{ending}"))):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def source(path: Path) -> str:
    """Return the text of a module; of a compiled one with its declarations."""
    declared = path.with_suffix(".pxd")
    return path.read_text() + (declared.read_text() if path.suffix == ".pyx" and declared.exists() else "")


def all_modules() -> frozenset[str]:
    """Return the names of all modules, without the package's."""
    return frozenset(sources())
