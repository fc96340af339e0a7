"""The compiled kernel of matching; callers use `flowsched.fgm.timeline`."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]
_Flags = NDArray[np.uint8]

__test__: Final[dict[str, str]]

UNLIMITED: Final[int]

def fits(
    at: _Ints,
    until: _Floats,
    order: _Ints,
    want: _Ints,
    ends: _Floats,
    reach: _Ints,
    rows: _Ints,
    now: float,
    count: _Ints,
    short: NDArray[np.int8],
    /,
) -> None: ...
def openings(
    at: _Ints,
    until: _Floats,
    want: _Ints,
    ends: _Floats,
    reach: _Ints,
    rows: _Ints,
    now: float,
    count: _Ints,
    open: _Flags,
    due: _Floats,
    /,
) -> None: ...
