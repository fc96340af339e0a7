"""Compiled parts of claims; see `flowsched.policy.claims`."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]

__test__: Final[dict[str, str]]

def parts(amounts: _Floats, capacity: _Floats, /) -> _Floats: ...
def together(tasks: _Ints, running: _Ints, parts: _Floats, /) -> int: ...
