"""Compiled rules of room; see the head of ``_room.pyx``."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

_Ints = NDArray[np.int64]

__test__: Final[dict[str, str]]

@disjoint_base
class InventoryColumns:
    version: Any
    devices: Any
    first_device: Any
    num_devices: Any
    slots: Any
    running: Any
    priority: Any
    level: Any
    capacity: Any
    free: Any
    running_at: Any
    demand: Any
    over: Any
    usable: Any

@disjoint_base
class SuitabilityColumns:
    of: Any
    suits: Any
    holds: Any

def room(inventory: Any, classes: _Ints, rows: _Ints, ruled: bool, /) -> tuple[_Ints, NDArray[np.uint32]]: ...
def sizes(inventory: Any, classes: _Ints, /) -> list[float]: ...
def spacious(inventory: Any, least: _Ints, /) -> _Ints: ...
def changed(inventory: Any, log: list[int], start: int, clock: int, /) -> _Ints: ...
