"""`FlowProblem`: a minimum-cost flow problem as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from flowsched.exceptions import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["FlowProblem"]

_INT64 = np.iinfo(np.int64)


class FlowArguments(TypedDict):
    """The arrays of a problem by name."""

    tail: NDArray[np.int64]
    head: NDArray[np.int64]
    capacity: NDArray[np.int64]
    cost: NDArray[np.int64]
    supply: NDArray[np.int64]
    lower: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FlowProblem:
    """A minimum-cost flow problem as arrays; nodes and arcs are numbered from 0.

    Parameters
    ----------
    tail, head : array_like of int, shape (m,)
        The nodes that each arc leaves and enters.
    capacity, cost : array_like of int, shape (m,)
        Largest flow of each arc and its cost per unit.
    supply : array_like of int, shape (n,)
        Supply of each node: it sends (positive) or takes (negative).
    lower : array_like of int, shape (m,), optional
        Least flow of each arc; 0 by default.

    Raises
    ------
    InputError
        If the arrays of the arcs differ in length, or one of them is not a vector of integers.

    Examples
    --------
    >>> problem = FlowProblem(tail=[0], head=[1], capacity=[5], cost=[2], supply=[3, -3])
    >>> problem.lower
    array([0])
    """

    tail: NDArray[np.int64]
    head: NDArray[np.int64]
    capacity: NDArray[np.int64]
    cost: NDArray[np.int64]
    supply: NDArray[np.int64]
    lower: NDArray[np.int64] = None  # type: ignore[assignment]  # an array from __post_init__ on

    def __post_init__(self) -> None:
        arcs = len(np.atleast_1d(self.tail))
        if self.lower is None:
            object.__setattr__(self, "lower", np.zeros(arcs, np.int64))
        for name in ("tail", "head", "capacity", "cost", "lower", "supply"):
            values = _int_vector(name, getattr(self, name))
            if name != "supply" and len(values) != arcs:
                raise InputError(f"{name}: {len(values)} values for {arcs} arcs")
            object.__setattr__(self, name, values)

    def arguments(self) -> FlowArguments:
        """Return the arrays by name, as ``min_cost_flow(**problem.arguments())`` takes them."""
        return {
            "tail": self.tail,
            "head": self.head,
            "capacity": self.capacity,
            "cost": self.cost,
            "supply": self.supply,
            "lower": self.lower,
        }


def _int_vector(name: str, values: ArrayLike) -> NDArray[np.int64]:
    """Return ``values`` as an int64 vector; InputError if they are none."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"{name}: expected one dimension, got shape {array.shape}")
    if array.size == 0:
        return np.zeros(0, np.int64)
    if array.dtype.kind not in "iu":
        raise InputError(f"{name}: expected integers that fit in 64 bits, got {array.dtype}")
    if array.dtype.kind == "u" and int(array.max()) > _INT64.max:
        raise InputError(f"{name}[{int(array.argmax())}] = {int(array.max())} does not fit in 64 bits")
    return array.astype(np.int64, copy=False)
