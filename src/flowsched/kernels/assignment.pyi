"""Compiled dense assignment; callers use `flowsched.network`."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__test__: Final[dict[str, str]]

def assign(
    cost: Any, maximize: bool, /
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | NDArray[np.int64] | NDArray[np.float64] | None: ...
def match(cost: NDArray[np.int64], /) -> tuple[NDArray[np.int32], NDArray[np.int64]]: ...
def rounded(cost: NDArray[np.float64], maximize: bool, /) -> tuple[NDArray[np.int64], float]: ...
def confirmed(
    cost: NDArray[np.float64], maximize: bool, columns: NDArray[np.int64], prices: NDArray[np.int64], /
) -> NDArray[np.int64] | None: ...
