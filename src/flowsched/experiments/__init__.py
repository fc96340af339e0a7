"""Repeatable measurements: each experiment is a module here, run by ``flowsched bench NAME``.

An experiment has::

    TITLE: str                                                  # one line: what is measured
    def run(*, quick: bool, seed: int = 0, say: Callable[[str], None]) -> Outcome
    def plot(outcome: Outcome, folder: Path) -> list[Path]      # imports Matplotlib itself; returns the files written

``quick`` asks for about a minute.  ``say`` reports progress to the user.  A ``run`` that has a parameter ``data`` is
given the directory of recorded inputs (`Path`), and raises `FileNotFoundError` if one is missing.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from flowsched.exceptions import InputError
from flowsched.experiments.rows import Outcome, Row

__all__ = ["NAMES", "Outcome", "Row", "load", "run"]

NAMES = ("solver", "sirius", "fgm", "hrm", "sequence", "openb", "round", "backlog")


def load(name: str) -> ModuleType:
    """Import an experiment.

    Parameters
    ----------
    name : str
        One of `NAMES`.

    Returns
    -------
    module
        With ``TITLE``, ``run`` and ``plot``.

    Raises
    ------
    InputError
        There is no such experiment.
    """
    module = f"{__name__}.{name}"
    if name not in NAMES or importlib.util.find_spec(module) is None:
        raise InputError(f"name: this version has no experiment {name!r}")
    return importlib.import_module(module)


def run(experiment: ModuleType, *, quick: bool, seed: int, say: Callable[[str], None], data: Path) -> Outcome:
    """Run an experiment, with the directory of recorded inputs if it asks for one."""
    more = {"data": data} if "data" in inspect.signature(experiment.run).parameters else {}
    outcome: Outcome = experiment.run(quick=quick, seed=seed, say=say, **more)
    return outcome
