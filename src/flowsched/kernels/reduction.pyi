"""The compiled reduction of networks; callers use `flowsched.network`."""

from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

_Ids = NDArray[np.int32]
_Ints = NDArray[np.int64]

__test__: Final[dict[str, str]]

@final
class Reduction:
    def __init__(self, tail: _Ids, head: _Ids, capacity: _Ints, cost: _Ints, supply: _Ints, lower: _Ints) -> None: ...
    def reduced(self) -> tuple[_Ids, Any, _Ints, _Ints, _Ints, _Ints]: ...
    def restored(self) -> None: ...
