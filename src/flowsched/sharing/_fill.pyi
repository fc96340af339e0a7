"""Compiled progressive filling; see `flowsched.sharing.waterfill.fill`."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]

__test__: Final[dict[str, str]]

def fill(
    tasks: NDArray[np.int64], stand: _Floats, pace: _Floats, part: _Floats, room: _Floats, /, *, go_on: bool = True
) -> NDArray[np.int64]: ...
