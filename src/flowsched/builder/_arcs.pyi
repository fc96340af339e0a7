"""Compiled refresh of arcs from classes to machines, and the flow on them; see the head of ``_arcs.pyx``."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

from flowsched.network._edits import NetworkEdits

_Ints = NDArray[np.int64]
_Recipe = tuple[tuple[tuple[int, float], ...], float, float]

__test__: Final[dict[str, str]]

@disjoint_base
class ClassArcsColumns:
    arc: Any
    gate: Any
    capacity: Any
    cost: Any
    why: Any
    roomy: Any
    open: Any
    cursor: Any
    refused_at: Any

@disjoint_base
class RackArcsColumns:
    of: Any
    pair: Any
    node: Any
    arc: Any
    capacity: Any
    cost: Any

def seats(
    inventory: Any,
    classes: _Ints,
    rows: _Ints,
    displacing: bool,
    refused: Mapping[int, Collection[int]],
    /,
) -> _Ints: ...
def behind(mirror: Any, classes: list[int], clock: int, /) -> dict[int, list[int]]: ...
def refresh(
    batch: NetworkEdits,
    inventory: Any,
    mirror: Any,
    classes: list[int],
    clock: int,
    recipe: _Recipe | None,
    prices: _Ints | None,
    displacing: bool,
    refused: Mapping[int, Collection[int]],
    rows: _Ints | None = None,
    fits: _Ints | None = None,
    bits: NDArray[np.uint32] | None = None,
    /,
) -> tuple[_Ints, _Ints] | None: ...
def sent(
    racks: Any,
    mirror: Any,
    batch: NetworkEdits,
    classes: Collection[int],
    more: Sequence[int],
    changed: _Ints | None,
    /,
) -> dict[int, list[tuple[int, int]]]: ...
def with_room(mirror: Any, classes: list[int], /) -> list[int]: ...
