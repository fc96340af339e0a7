"""Dense indices and the arrays that they number."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["IdPool", "Viewed", "grown"]


def grown(array: NDArray[Any], *least: int, fill: float = 0) -> NDArray[Any]:
    """The array, in a larger one where it has fewer than `least` entries along an axis (then at least doubled)."""
    if all(have >= want for have, want in zip(array.shape, least, strict=False)):
        return array
    least += array.shape[len(least) :]
    larger = np.full(
        [have if have >= want else max(want, 2 * have) for have, want in zip(array.shape, least, strict=True)],
        fill,
        array.dtype,
    )
    larger[tuple(slice(n) for n in array.shape)] = array
    return larger


class IdPool:
    """Hands out the index last given back, else the next new one."""

    def __init__(self) -> None:
        self.count = 0
        self._free: list[int] = []

    def take(self) -> int:
        if self._free:
            return self._free.pop()
        self.count += 1
        return self.count - 1

    def give(self, index: int) -> None:
        self._free.append(index)


class Viewed:
    """Something with arrays that are read through memory views, made by `_view`; a copy makes its own."""

    def _view(self) -> None:
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not isinstance(value, memoryview)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._view()
