"""Compiled loops over the values of a column; see the head of ``_values.pyx``."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

__test__: Final[dict[str, str]]

def kinds(values: list[Any], /) -> list[type]: ...
def split(values: list[Any], kinds: list[type], /) -> tuple[NDArray[np.uint8], list[list[Any]]]: ...
def pick(table: list[Any], rows: NDArray[np.int64], /) -> list[Any]: ...

@disjoint_base
class Rows:
    things: list[Any]

    def of(self, values: list[Any], /) -> NDArray[np.int64]: ...
