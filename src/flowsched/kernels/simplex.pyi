"""The compiled network simplex; callers use `flowsched.network`."""

from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

_Ints = NDArray[np.int64]

__test__: Final[dict[str, str]]

STARTS: Final[dict[str, int]]

@final
class Simplex:
    def __init__(self, *args: object, **kwargs: object) -> None: ...
    def solve(
        self, time_limit: float, rescue: float = ..., allowance: int = ..., /
    ) -> tuple[int, Any, Any, dict[str, Any]]: ...
    def resume(
        self,
        arcs: _Ints,
        cost: _Ints,
        capacity: _Ints,
        nodes: _Ints,
        added: _Ints,
        time_limit: float,
        rescue: float,
        late: bool,
        allowance: int = ...,
        /,
    ) -> tuple[int, Any, Any, dict[str, Any]] | None: ...
    def nbytes(self) -> int: ...
    def flows_taken(self) -> None: ...
    def changes(self) -> NDArray[np.int32] | None: ...
    def reusable(self) -> bool: ...
    def ripens(self) -> bool: ...
    def ripen(self, capacity: _Ints, /) -> None: ...
    def has(self) -> NDArray[np.bool_]: ...
    def dump(self) -> dict[str, Any]: ...

def empty() -> Simplex: ...
def restored(
    state: dict[str, Any],
    tail: _Ints,
    head: _Ints,
    lower: _Ints,
    balance: _Ints,
    /,
) -> tuple[Simplex, None] | tuple[None, str]: ...
def narrowed(ids: _Ints, count: int, /) -> NDArray[np.int32] | None: ...
def total_cost(cost: _Ints, flow: _Ints, /) -> int: ...
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
    start: int = ...,
    bulk: int = ...,
    /,
) -> tuple[int, Any, Any, dict[str, Any]]: ...
