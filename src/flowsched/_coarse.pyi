"""The compiled coarse phase of the network simplex."""

from typing import Final, final

import numpy as np

from flowsched._basis import Basis

__test__: Final[dict[str, str]]

HALF: Final[np.dtype[np.void]]

@final
class Coarse:
    def __init__(self, owner: Basis) -> None: ...
