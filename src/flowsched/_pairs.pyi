"""Compiled rules over pairs of a class and a machine; see the head of ``_pairs.pyx``."""

from collections.abc import Collection, Mapping
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

_Ints = NDArray[np.int64]
_Recipe = tuple[tuple[tuple[int, float], ...], float, float]
_Numbers = tuple[_Ints, _Ints]

__test__: Final[dict[str, str]]

KINDS: Final[Mapping[str, int]]
MOST_COSTS: Final[int]

@final
class Views: ...

def fail_at(allocation: int, signal: int) -> tuple[int, int] | None: ...
def look_every(work: int) -> int: ...
def room(inventory: Any, classes: _Ints, rows: _Ints, ruled: bool) -> tuple[_Ints, NDArray[np.uint32]]: ...
def costs(inventory: Any, kind: int, classes: _Ints, rows: _Ints) -> NDArray[np.float64]: ...
def prices(inventory: Any, recipe: _Recipe, classes: _Ints, rows: _Ints) -> _Ints: ...
def worse_running(inventory: Any, classes: _Ints, rows: _Ints) -> _Ints: ...
def seats(
    inventory: Any, classes: _Ints, rows: _Ints, displacing: bool, refused: Mapping[int, Collection[int]]
) -> _Ints: ...
def refresh(
    inventory: Any,
    mirror: Any,
    classes: _Ints,
    rows: _Ints,
    recipe: _Recipe | None,
    prices: _Ints | None,
    displacing: bool,
    refused: Mapping[int, Collection[int]],
    fits: _Ints | None,
    bits: NDArray[np.uint32] | None,
) -> tuple[_Numbers | None, _Numbers | None, _Ints | None]: ...
def changed(inventory: Any, log: list[int], start: int, clock: int) -> _Ints: ...
def in_order(numbers: dict[int, int], more: _Ints, values: _Ints) -> _Numbers: ...
