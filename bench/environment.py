"""Environment of a measurement: the facts that a reader needs to compare its figures with others."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import flowsched
from flowsched._guard import FACTS

__all__ = ["environment", "lines"]

_PEERS = {
    "OR-tools": "ortools",
    "pylmcf": "pylmcf",
    "NetworkX": "networkx",
    "pynetgen": "pynetgen",
    "SciPy": "scipy",
    "POT": "pot",
    "lapx": "lapx",
}


def environment(experiment: ModuleType) -> dict[str, Any]:
    """Return the environment of a measurement that begins now.

    Parameters
    ----------
    experiment : module
        It may state its ``CLOCK``.

    Returns
    -------
    dict
        Plain data: ``date`` (UTC), ``cpu``, ``cores``, ``load`` (average of the last minute), ``clock``, ``system``,
        ``flowsched``, ``commit`` (None outside of a checkout), ``python``, ``numpy``, ``kernel`` (compiler, flags,
        Cython and C API of the compiled modules), and the versions of ``peers``.
    """
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "clock": getattr(experiment, "CLOCK", "as the rows say"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "flowsched": flowsched.__version__,
        "commit": _commit(Path(flowsched.__file__).parents[2]),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "numpy": importlib.metadata.version("numpy"),
        "kernel": dict(FACTS),
        "peers": _versions(),
    }


def lines(found: dict[str, Any]) -> list[str]:
    """Return an environment as lines of text."""
    kernel, commit = found["kernel"], f", commit {found['commit']}" if found["commit"] else ""
    peers = ", ".join(f"{name} {version}" for name, version in found["peers"].items())
    return [
        f"{found['date']}, {found['cpu']}, {found['cores']} cores, load {found['load']} at the start, {found['system']}",
        f"Clock: {found['clock']}",
        f"flowsched {found['flowsched']}{commit}, {found['python']}, NumPy {found['numpy']}",
        f"Kernel: {kernel['compiler']} {kernel['flags']}, Cython {kernel['cython']}, {kernel['c_api']} C API",
        f"Installed peers: {peers or 'none'}",
    ]


def _versions() -> dict[str, str]:
    found = {}
    for name, package in _PEERS.items():
        try:
            found[name] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _cpu() -> str:
    """Return the model of the processor as the system names it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    if sys.platform == "darwin":
        return _said("sysctl", "-n", "machdep.cpu.brand_string") or platform.processor()
    return platform.processor() or "unknown processor"


def _commit(root: Path) -> str | None:
    """Return the commit of a checkout, with "+" if tracked files differ from it; None if this is no checkout."""
    if not (root / ".git").exists():
        return None
    commit = _said("git", "-C", str(root), "rev-parse", "--short=12", "HEAD")
    changed = _said("git", "-C", str(root), "status", "--porcelain", "--untracked-files=no")
    return f"{commit}{'+' if changed else ''}" if commit else None


def _said(*command: str) -> str:
    """Return the output of a command; nothing if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
