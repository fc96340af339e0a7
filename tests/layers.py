"""Which part of the package may import which: rules, and a reader of import statements that checks them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "flowsched"
SOURCE = Path(__file__).resolve().parents[1] / "src" / PACKAGE

ROOMS = {
    "exceptions": "exceptions files quoting version _guard",
    "kernel": "_cs _ns",
    "network": "network edits arrays simple flowstate",
    "dimacs": "dimacs dimacs_stream dimacs_live",
    "nx": "nx_backend nx_graph nx_numbers",
    "cluster": "cluster",
    "policy": "policy",
    "sharing": "sharing",
    "rounds": "rounds reasons sharereport",
    "builder": "builder places preemption verify turns shares claimants tally outlets gangs reclaim holds nearness proposals racks stays outcome",
    "journal": "log wire graph journal image recovery portable accounts",
    "scheduler": "scheduler kept commits",
    "front": "__init__",
    "fgm": "fgm",
    "hrm": "hrm",
    "sim": "sim",
    "experiments": "experiments",
    "cli": "cli cli_ends cli_simulate cli_solve cli_bench cli_journal cli_replay __main__",
}
"""Rooms, and the modules and subpackages in each."""

WORLD = "exceptions cluster policy sharing rounds scheduler"

MAY = {
    "exceptions": "",
    "kernel": "exceptions",
    "network": "exceptions kernel dimacs",
    "dimacs": "exceptions network",
    "nx": "exceptions network front",
    "cluster": "exceptions",
    "policy": "exceptions cluster",
    "sharing": "exceptions cluster policy",
    "rounds": "exceptions cluster policy",
    "builder": "exceptions network cluster policy sharing rounds",
    "journal": "exceptions network cluster policy rounds builder",
    "scheduler": "exceptions network cluster policy sharing rounds builder journal",
    "front": "network dimacs journal " + WORLD,
    "fgm": WORLD,
    "hrm": WORLD,
    "sim": "fgm hrm front " + WORLD,
    "experiments": "network dimacs fgm hrm sim front " + WORLD,
    "cli": " ".join(room for room in ROOMS if room not in ("kernel", "cli")),
}
"""What each room may import beside itself; the kernel is `network`'s alone, and nothing imports `cli`."""

CORE = frozenset(
    "exceptions kernel network dimacs cluster policy sharing rounds builder scheduler journal front".split()
)
"""Rooms that need NumPy and nothing else."""

EXTRAS = {
    "nx": "networkx",
    "fgm": "scipy psutil",
    "hrm": "sqlalchemy psycopg psutil pynvml scipy ray dask",
    "sim": "simpy matplotlib",
    "experiments": "matplotlib simpy ortools pylmcf networkx pynetgen scipy",
    "cli": "click rich _flowsched_cli",
}
"""What the other rooms may import beside NumPy."""


def room_of(module: str) -> str:
    """Return the room of a module, given without the package's name ("" for the package itself)."""
    top = module.partition(".")[0] or "__init__"
    for room, names in ROOMS.items():
        if top in names.split():
            return room
    raise LookupError(f"{PACKAGE}.{module} is in no room: name it in tests/layers.py")


def imports(text: str, module: str, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """Yield (line, module imported) for every import of a source text, wherever it stands; relative ones resolved.

    Imports for type checkers only, under ``if TYPE_CHECKING``, count as well: a type is knowledge too.
    """
    here = [PACKAGE, *module.split(".")] if module else [PACKAGE]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + is_package] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{name}.{alias.name}"


def faults(text: str, module: str, modules: frozenset[str], is_package: bool = False) -> list[str]:
    """Return what a module imports against the rules; `modules` are all of the package, without its name."""
    room = room_of(module)
    found = []
    for line, name in imports(text, module, is_package):
        top, _, rest = name.partition(".")
        where = f"{PACKAGE}.{module}:{line}" if module else f"{PACKAGE}:{line}"
        if top == PACKAGE:
            while rest and rest not in modules:  # a name out of a module
                rest = rest.rpartition(".")[0]
            other = room_of(rest)
            if other != room and other not in MAY[room].split():
                found.append(f"{where}: {room} must not import {other} ({name})")
        elif top not in sys.stdlib_module_names and top not in ("numpy", *EXTRAS.get(room, "").split()):
            found.append(f"{where}: {room} must not import {top}")
    return found


def sources() -> dict[str, Path]:
    """Return all modules written in Python: name without the package's, and file."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def all_modules() -> frozenset[str]:
    """Return the names of all modules, compiled ones with them, without the package's."""
    compiled = {".".join(p.relative_to(SOURCE).with_suffix("").parts) for p in SOURCE.rglob("*.pyx")}
    return frozenset(sources()) | compiled
