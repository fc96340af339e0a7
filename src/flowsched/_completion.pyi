"""The compiled completion of a flow that is stopped before it is feasible."""

from typing import Final, final

import numpy as np

from flowsched._basis import Basis

__test__: Final[dict[str, str]]

WAY: Final[np.dtype[np.void]]

@final
class Completion:
    def __init__(self, owner: Basis) -> None: ...
