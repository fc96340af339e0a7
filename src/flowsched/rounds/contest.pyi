"""Selection of the classes to try on one machine; see the head of ``contest.pyx``."""

from collections.abc import Callable
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.builder import Builder
from flowsched.builder.queues import Head
from flowsched.builder.scope import RoundScope

_Ints = NDArray[np.int64]

__test__: Final[dict[str, str]]

_MANY: int

@final
class Contest:
    row: int
    kept: list[int]
    dropped: list[int]

def contest(
    builder: Builder,
    scope: RoundScope,
    sent: dict[int, list[tuple[int, int]]],
    preempts: Callable[[int], bool],
    /,
) -> Contest | None: ...
def chosen(
    inventory: Any,
    cursor: _Ints,
    heads: list[Head],
    classes: _Ints,
    units: _Ints,
    ends: list[float],
    row: int,
    now: float,
) -> list[int] | None: ...
