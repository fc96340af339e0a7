"""Results of the solver: an optimal flow with its proof; for a kept network, the cost and the arcs that changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

import flowsched._cs as _cs

__all__ = ["INF", "Algorithm", "FlowResult", "FlowSolution", "Int64Array"]

INF: Final = _cs.INF
"""Capacity of an arc without limit (2**62; a larger capacity counts as unlimited, too)."""

Int64Array = NDArray[np.int64]

Algorithm = Literal["auto", "repair", "cost_scaling", "network_simplex"]
"""Names of the algorithms, for annotations."""

_NOTHING: Final[Int64Array] = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class FlowResult:
    """Optimal flow of one problem.

    Attributes
    ----------
    flow : ndarray of int64, shape (m,)
    cost : int
        Exact, of any size.
    potential : ndarray of int64, shape (n,)
        ``cost + potential[tail] - potential[head]`` is >= 0 where flow < capacity, and <= 0 where flow > lower.
    stats : mapping
        ``algorithm``, ``seconds``, ``warm``, ``gap`` (0: optimal) and the kernel's counters (pushes, relabels, augmentations, ...; of the
        simplex pivots, ..., and ``resumed``: True if it went on from its last basis, ``local``: True if it did
        so without a look at all arcs).  ``start`` names where the simplex began:
        ``"shortest_paths"``, ``"coarse"`` (one phase of push-relabel at a coarse epsilon), ``"flow"`` (that of another
        algorithm) or ``"basis"``; ``sketched`` counts the scans of the coarse phase.
    unshipped : ndarray of int64, shape (n,)
        With ``partial=True``: the supply that each node keeps (> 0), or the demand that is not met (< 0).  The flow ships the supplies ``supply - unshipped``;
        the potentials prove that it is optimal for these.  Of length 0 without ``partial``.
    """

    flow: Int64Array
    cost: int
    potential: Int64Array
    stats: Mapping[str, Any]
    unshipped: Int64Array = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True)
class FlowSolution:
    """Result of `FlowNetwork.solve`.

    Attributes
    ----------
    cost : int
        Exact, of any size.
    changed : ndarray of int64
        Ids of the arcs whose flow differs from the previous solution (before the first one it counts as 0), ascending.
        Arcs removed since are not listed.
    stats : mapping
        As in `FlowResult`.
    unshipped : ndarray of int64
        With ``partial=True``, by node id: the supply that each node keeps (> 0), or the demand that is not met (< 0).  Of length 0 without it.
    """

    cost: int
    changed: Int64Array
    stats: Mapping[str, Any]
    unshipped: Int64Array = field(default_factory=lambda: _NOTHING)
