"""Compiled built-in costs; see the head of ``_costs.pyx``."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_Ints = NDArray[np.int64]
_Recipe = tuple[tuple[tuple[int, float], ...], float, float]

__test__: Final[dict[str, str]]

KINDS: Final[Mapping[str, int]]
MOST_COSTS: Final[int]

def costs(inventory: Any, kind: int, classes: _Ints, rows: _Ints, /) -> NDArray[np.float64]: ...
def prices(inventory: Any, recipe: _Recipe, classes: _Ints, rows: _Ints, /) -> _Ints: ...
def bucket_and_due(ends: list[float], since: float, now: float) -> tuple[int, float]: ...
