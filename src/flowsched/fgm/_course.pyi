"""The compiled kernel of prediction; callers use `flowsched.fgm.forecast`."""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]
_Flags = NDArray[np.uint8]

__test__: Final[dict[str, str]]

@disjoint_base
class Course:
    def __init__(self, limit: _Floats, soft: _Flags, contention: float) -> None: ...
    def tasks(
        self,
        turn: _Ints,
        entry: _Ints,
        stage: _Ints,
        left: _Floats,
        grace: _Floats,
        work_stage: _Ints,
        work_left: _Floats,
        /,
    ) -> None: ...
    def rows(
        self,
        time: _Floats,
        due: _Floats,
        done: _Floats,
        foreign: _Ints,
        compress: _Flags,
        ends: _Floats,
        available: _Ints,
        reach: _Ints,
        /,
    ) -> None: ...
    def stock(self, first: _Ints, length: _Floats, want: _Ints, /) -> None: ...
    def advance(self, rows: _Ints, at: _Ints, members: _Ints, total: _Ints, now: float, /) -> None: ...
    def forecast(
        self,
        rows: _Ints,
        at: _Ints,
        members: _Ints,
        at_now: _Ints,
        members_now: _Ints,
        turn_now: _Ints,
        entry_now: _Ints,
        total: _Ints,
        now: float,
        /,
    ) -> None: ...
    def plan(
        self,
        row: int,
        members: _Ints,
        members_now: _Ints,
        turn_now: _Ints,
        entry_now: _Ints,
        total: _Ints,
        now: float,
        finish: _Floats,
        uncompressed: _Floats,
        /,
    ) -> tuple[int, float]: ...
