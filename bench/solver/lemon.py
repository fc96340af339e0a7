"""LEMON's network simplex and cost scaling, compiled from its C++ headers at the first use."""

from __future__ import annotations

import atexit
import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from flowsched.cli.solvers import Infeasible
from flowsched.network.problem import FlowProblem

__all__ = ["METHODS", "absent", "solve", "version"]

METHODS = ("network simplex", "cost scaling")
_FLAGS = ["-O3", "-DNDEBUG", "-w", "-shared", "-fPIC"]
_SOURCE = Path(__file__).with_name("lemon.cpp")


def absent() -> str | None:
    """Return the reason why LEMON is not available; None if it is."""
    found = _library()
    return found if isinstance(found, str) else None


def solve(problem: FlowProblem, method: str) -> tuple[int, tuple[float, float, float]]:
    """Solve with LEMON.

    Parameters
    ----------
    problem : FlowProblem
        Without lower bounds.
    method : str
        One of `METHODS`.

    Returns
    -------
    cost : int
    seconds : tuple of float
        Build, solve and read, measured inside, so that the call from Python is not charged to LEMON.

    Raises
    ------
    Infeasible
    RuntimeError
        LEMON is absent, or finds no optimum for another reason.
    """
    why = absent()
    if why:
        raise RuntimeError(why)
    n, m = len(problem.supply), len(problem.tail)
    flow, seconds = np.zeros(m, np.int64), np.zeros(3)
    columns = (problem.tail, problem.head, problem.capacity, problem.cost, problem.supply, flow, seconds)
    pointers = [ctypes.c_void_p(np.ascontiguousarray(column).ctypes.data) for column in columns]
    status = _library().lemon_solve(METHODS.index(method), ctypes.c_int64(n), ctypes.c_int64(m), *pointers)
    if status == 0:
        raise Infeasible(f"LEMON's {method} finds no flow that meets the supplies")
    if status != 1:
        raise RuntimeError(f"LEMON's {method} found no optimum: status {status}")
    return int(problem.cost @ flow), (float(seconds[0]), float(seconds[1]), float(seconds[2]))


def version() -> str:
    """Return the version of LEMON's headers."""
    text: bytes = _library().lemon_version()
    return text.decode()


@functools.cache
def _library() -> Any:
    """Return the compiled library, or the reason why there is none."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        return "no C++ compiler"
    folder = tempfile.mkdtemp(prefix="flowsched-lemon-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = Path(folder) / "lemon.so"
    command = [compiler, *_FLAGS, "-o", str(target), str(_SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        missing = "lemon/" in done.stderr and "No such file" in done.stderr
        return (
            "no LEMON headers (Debian: liblemon-dev)" if missing else f"lemon.cpp does not compile: {done.stderr[:200]}"
        )
    library = ctypes.CDLL(str(target))
    library.lemon_solve.restype = ctypes.c_int
    library.lemon_version.restype = ctypes.c_char_p
    return library
