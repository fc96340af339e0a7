"""Compiled counts and bounds of shares; see the head of ``_shares.pyx``."""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

from flowsched.cluster.records import JobRecord

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]
_Numbers = tuple[list[int], list[int]]

__test__: Final[dict[str, str]]

@disjoint_base
class JobCountsColumns:
    tasks: Any
    waiting: Any
    infeasible: Any
    demand: Any
    held: Any

@disjoint_base
class UnscheduledArcsColumns:
    tail: Any
    head: Any
    base: Any
    slack: Any
    capacity: Any
    price: Any
    lower: Any
    room: Any
    rung: Any
    width: Any

def ranked(
    index: dict[JobRecord, int], users: bool, of: _Ints, /
) -> tuple[tuple[Any, ...], list[list[JobRecord]], _Ints]: ...
def recount(counts: Any, jobs: Iterable[JobRecord], index: dict[JobRecord, int], /) -> bool: ...
def totals(counts: Any, jobs: _Ints, of: _Ints, n: int, /) -> tuple[_Ints, _Ints]: ...
def claims(
    counts: Any, jobs: _Ints, of: _Ints, n: int, capacity: _Floats, /
) -> tuple[_Ints, _Ints, _Floats, _Floats, _Floats]: ...
def rivals(
    members: list[list[JobRecord]],
    index: dict[JobRecord, int],
    counts: Any,
    full: NDArray[np.bool_],
    within: _Ints | None,
    /,
) -> list[tuple[list[JobRecord], list[JobRecord]]]: ...
def bound(
    mirror: Any,
    at: _Ints,
    tasks: _Ints,
    waiting: _Ints,
    guaranteed: _Ints,
    least: _Ints,
    most: _Ints,
    price: int,
    whole: int,
    /,
) -> tuple[_Numbers, _Numbers, _Numbers, _Numbers, list[int]]: ...
