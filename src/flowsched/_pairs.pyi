"""Compiled rules over pairs of a class and a machine; see the head of ``_pairs.pyx``."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.records import Group
from flowsched.policy import Policy

_Ints = NDArray[np.int64]
_Recipe = tuple[tuple[tuple[int, float], ...], float, float]

__test__: Final[dict[str, str]]

KINDS: Final[Mapping[str, int]]
MOST_COSTS: Final[int]

@final
class Views: ...

def fail_at(allocation: int, signal: int, /) -> tuple[int, int] | None: ...
def look_every(work: int, /) -> int: ...
def room(inventory: Any, classes: _Ints, rows: _Ints, ruled: bool, /) -> tuple[_Ints, NDArray[np.uint32]]: ...
def sizes(inventory: Any, classes: _Ints, /) -> list[float]: ...
def spacious(inventory: Any, least: _Ints, /) -> _Ints: ...
def contest(
    inventory: Any,
    mirror: Any,
    heads: Any,
    classes: _Ints,
    units: _Ints,
    ends: NDArray[np.float64],
    row: int,
    now: float,
    /,
) -> list[int] | None: ...
def costs(inventory: Any, kind: int, classes: _Ints, rows: _Ints, /) -> NDArray[np.float64]: ...
def prices(inventory: Any, recipe: _Recipe, classes: _Ints, rows: _Ints, /) -> _Ints: ...
def worse_running(inventory: Any, classes: _Ints, rows: _Ints, /) -> _Ints: ...
def seats(
    inventory: Any,
    classes: _Ints,
    rows: _Ints,
    displacing: bool,
    refused: Mapping[int, Collection[int]],
    /,
) -> _Ints: ...
def behind(mirror: Any, classes: list[int], clock: int, /) -> dict[int, list[int]]: ...
def refresh(
    batch: Any,
    inventory: Any,
    mirror: Any,
    classes: list[int],
    clock: int,
    recipe: _Recipe | None,
    prices: _Ints | None,
    displacing: bool,
    refused: Mapping[int, Collection[int]],
    rows: _Ints | None = None,
    fits: _Ints | None = None,
    bits: NDArray[np.uint32] | None = None,
    /,
) -> tuple[_Ints, _Ints] | None: ...
def changed(inventory: Any, log: list[int], start: int, clock: int, /) -> _Ints: ...
def sent(
    racks: Any,
    mirror: Any,
    batch: Any,
    classes: Collection[int],
    more: Sequence[int],
    changed: _Ints | None,
    /,
) -> dict[int, list[tuple[int, int]]]: ...
def learn(group: type, node: type, /) -> None: ...
def find_running(
    running: Any, touched: dict[Group, dict[int, None]], /
) -> tuple[list[int], list[int], list[int], list[int], list[int], list[int], list[float]]: ...
def age_running(running: Any, aged: list[int], policy: Policy, now: float, /) -> None: ...
def begin_running(
    running: Any, new: list[int], counts: list[int], starts: list[float], policy: Policy, now: float, /
) -> list[int]: ...
