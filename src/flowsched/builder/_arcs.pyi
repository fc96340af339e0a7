"""Compiled refresh of arcs from classes to machines, and the flow on them; see the head of ``_arcs.pyx``."""

from array import array
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

from flowsched.builder.batch import NetworkBatch
from flowsched.cluster._room import TypedColumns
from flowsched.cluster.records import JobRecord
from flowsched.cluster.state import Cluster
from flowsched.network._edits import NetworkEdits
from flowsched.policy import Policy
from flowsched.policy.fairness import Fairness

_Ints = NDArray[np.int64]
_Refused = dict[int, dict[int, None]]
_Recipe = tuple[tuple[tuple[int, float], ...], float, float]

__test__: Final[dict[str, str]]

@disjoint_base
class ClassArcsColumns:
    arc: Any
    gate: Any
    capacity: Any
    cost: Any
    why: Any
    roomy: Any
    open: Any
    cursor: Any
    swept: Any
    refused_at: Any

@disjoint_base
class RackArcsColumns:
    of: Any
    pair: Any
    node: Any
    arc: Any
    capacity: Any
    cost: Any

@disjoint_base
class RackFields(TypedColumns):
    aggregators: dict[int, int]
    _listed: dict[int, array[int]]
    _used: array[int] | None

@disjoint_base
class ClassFields(TypedColumns):
    cluster: Cluster
    batch: NetworkBatch
    _why_copy: dict[int, NDArray[np.uint32]]
    next_sweep: int
    def refresh(self, classes: list[int], policy: Policy, refused: _Refused) -> None: ...

@disjoint_base
class ReservationFields(TypedColumns):
    _holds: dict[Any, Any]
    _rooms: dict[Any, Any]
    _granted: dict[int, None]
    _now: float
    def idle(self, now: float) -> bool: ...

@disjoint_base
class ShareFields(TypedColumns):
    stale: dict[JobRecord, None]
    apart: dict[JobRecord, tuple[int, int]]
    fairness: Fairness | None
    limit: bool
    def forget(self, job: JobRecord) -> list[int]: ...

def seats(
    inventory: Any, classes: _Ints, rows: _Ints, displacing: bool, refused: Mapping[int, Collection[int]], /
) -> _Ints: ...
def refresh(
    mirror: ClassFields,
    classes: list[int],
    clock: int,
    recipe: _Recipe | None,
    prices: _Ints | None,
    displacing: bool,
    refused: _Refused,
    rows: _Ints | None = None,
    fits: _Ints | None = None,
    bits: NDArray[np.uint32] | None = None,
    /,
) -> tuple[_Ints, _Ints] | None: ...
def look(
    mirror: ClassFields,
    classes: _Ints,
    outbid: list[int],
    since: int,
    known: array[int],
    upto: int,
    most: int,
    /,
) -> tuple[array[int], NDArray[np.uint32]] | None: ...
def sent(
    racks: RackFields,
    mirror: ClassFields,
    batch: NetworkEdits,
    classes: Collection[int],
    more: Sequence[int],
    changed: array[int] | None,
) -> dict[int, list[tuple[int, int]]]: ...
def with_room(mirror: ClassFields, classes: list[int]) -> list[int]: ...
