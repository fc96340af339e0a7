"""Repeatable measurements: each experiment is a module here, run by ``python -m bench NAME``.

An experiment has::

    TITLE: str                                                  # the measured quantity, in one line
    def run(*, quick: bool, seed: int = 0, say: Callable[[str], None], keep: Keep = forget) -> Outcome
    def plot(outcome: Outcome, folder: Path) -> list[Path]      # imports Matplotlib itself; returns the files written

``quick`` asks for about a minute.  ``say`` reports progress to the user.  ``keep`` receives at the beginning a function
that returns the rows so far; they are kept if the run breaks off.  An experiment may state its ``CLOCK``, and the versions
of peers that are not Python packages, ``versions()``.

A ``run`` with a parameter ``data`` gets the directory of recorded inputs, or None.  Without it, only the other rows are
measured; a note names the rows that are left out and the source of their input.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from bench.rows import Keep, Outcome, Row, forget
from flowsched.exceptions import InputError

__all__ = ["NAMES", "Outcome", "Row", "load", "run"]

NAMES = ("solver", "sirius", "fgm", "real", "hrm", "sequence", "openb", "decision", "round", "backlog", "kubernetes")


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


def run(
    experiment: ModuleType,
    *,
    quick: bool,
    seed: int,
    say: Callable[[str], None],
    data: Path | None = None,
    keep: Keep = forget,
    **options: object,
) -> Outcome:
    """Run an experiment, with the directory of recorded inputs and the keeper of its rows if it has parameters for them.

    `options` are those of the experiment's own.
    """
    asked = inspect.signature(experiment.run).parameters
    more = {name: value for name, value in {"data": data, "keep": keep}.items() if name in asked}
    outcome: Outcome = experiment.run(quick=quick, seed=seed, say=say, **more, **options)
    return outcome
