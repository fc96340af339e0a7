"""The compiled cost scaling for whole networks; callers use `flowsched.network`."""

from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

_Ints = NDArray[np.int64]

__test__: Final[dict[str, str]]

@final
class Scaling:
    def __init__(self, *args: object, **kwargs: object) -> None: ...
    def set_budget(self, proof: int, /) -> None: ...
    def solve(self, epsilon: int, stop: int, time_limit: float, /) -> tuple[int, Any, Any, dict[str, Any]]: ...

def solve(
    tail: NDArray[np.int32],
    head: NDArray[np.int32],
    capacity: _Ints,
    cost: _Ints,
    supply: _Ints,
    lower: _Ints,
    time_limit: float,
    flow: _Ints,
    potential: _Ints,
    epsilon: int,
    stop: int,
    /,
) -> tuple[int, Any, Any, dict[str, Any]]: ...
