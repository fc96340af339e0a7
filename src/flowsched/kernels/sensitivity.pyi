"""Compiled ranges of costs; callers use `flowsched.network`."""

from typing import Final, final

import numpy as np
from numpy.typing import NDArray

_Ints = NDArray[np.int64]
_Ids = NDArray[np.int32]

__test__: Final[dict[str, str]]

def ranges(nodes: int, head: _Ids, reduced: _Ints, potential: _Ints, arcs: _Ids) -> tuple[_Ints, _Ints]: ...

@final
class Ranges:
    def __init__(self, nodes: int, head: _Ids, reduced: _Ints) -> None: ...
