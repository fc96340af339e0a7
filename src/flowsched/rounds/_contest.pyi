"""Compiled comparison of classes that want one machine; see `flowsched.rounds.contest`."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_Ints = NDArray[np.int64]

__test__: Final[dict[str, str]]

def contest(
    inventory: Any,
    mirror: Any,
    heads: Any,
    classes: _Ints,
    units: _Ints,
    ends: NDArray[np.float64],
    row: int,
    now: float,
    /,
) -> list[int] | None: ...
