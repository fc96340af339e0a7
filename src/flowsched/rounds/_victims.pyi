"""Compiled search for machines where tasks make room for others; see the head of ``_victims.pyx``."""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.records import JobRecord, MachineRecord

_Ints = NDArray[np.int64]

__test__: Final[dict[str, str]]

def candidates(
    inventory: Any,
    by_row: dict[int, MachineRecord],
    c: int,
    rows: _Ints,
    wait: _Ints,
    stays: _Ints,
    ends: list[float],
    now: float,
    among: set[int] | None,
    /,
) -> tuple[list[int], list[int], list[int], float]: ...
def worst_by_row(jobs: Iterable[JobRecord], /) -> dict[int, tuple[int, int]]: ...
def reclaimable(
    inventory: Any,
    by_row: dict[int, MachineRecord],
    c: int,
    rows: list[int],
    owner: dict[JobRecord, int],
    surplus: dict[int, int],
    loose: bool,
    /,
) -> list[int]: ...
