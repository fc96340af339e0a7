"""Compiled rules of room; see the head of ``_room.pyx``."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

from flowsched.cluster.affinity import Affinity
from flowsched.cluster.limits import CustomLimit, Reach, Reserved, Rule
from flowsched.cluster.running import RunningTasks
from flowsched.cluster.shapes import Suitability
from flowsched.cluster.shunned import Shunned

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
class TypedColumns:
    typed: Any

@disjoint_base
class MovedFields(TypedColumns):
    clock: int
    arranged: int
    affinity: Affinity
    shunned: Shunned
    suitability: Suitability
    tasks: RunningTasks
    rule: Rule | None
    constraints: tuple[CustomLimit, ...]
    _log: list[int]
    _log_from: int
    _log_most: int
    _running_by_level: list[int]
    _reach: Reach | None
    _reserved: Reserved | None
    def held(self) -> _Ints | None: ...

@disjoint_base
class SuitabilityColumns:
    of: Any
    suits: Any
    holds: Any

def room(inventory: Any, classes: _Ints, rows: _Ints, ruled: bool, /) -> tuple[_Ints, NDArray[np.uint32]]: ...
def sizes(inventory: Any, classes: _Ints, /) -> list[float]: ...
def spacious(inventory: Any, least: _Ints, /) -> _Ints: ...
def changed(inventory: Any, log: list[int], start: int, clock: int, /) -> _Ints: ...
