"""Compiled dense transport; callers use `flowsched.network`."""

from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

_Ints = NDArray[np.int64]
_Ids = NDArray[np.int32]

__test__: Final[dict[str, str]]
KINDS: dict[str, int]

@final
class Transport:
    def __init__(
        self,
        cost: NDArray[Any],
        scale: float,
        supply: _Ints,
        demand: _Ints,
        offer: _Ints,
        price: int,
        keeping: bool,
        lacking: bool,
    ) -> None: ...
    def solve(self) -> bool: ...
    def shipped(self) -> tuple[_Ids, _Ids, _Ints, int]: ...
    def potentials(self) -> _Ints: ...
    def rests(self) -> _Ints: ...
    def counters(self) -> dict[str, int]: ...
