"""Fault points of the kernels, for tests."""

from typing import Final

__test__: Final[dict[str, str]]

def fail_at(which_allocation: int, which_look: int, /) -> tuple[int, int] | None: ...
def look_every(work: int, simplex: int = 0, /) -> int: ...
