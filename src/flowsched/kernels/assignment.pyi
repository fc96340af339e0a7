"""Compiled dense assignment; callers use `flowsched.network`."""

from typing import Final, final

import numpy as np
from numpy.typing import NDArray

__test__: Final[dict[str, str]]

def match(cost: NDArray[np.int64], /) -> tuple[NDArray[np.int32], NDArray[np.int64]]: ...

@final
class Assignment:
    def __init__(self, cost: NDArray[np.int64]) -> None: ...
