"""Compiled way back from the codes of a snapshot to objects; see the head of ``_fill.pyx``."""

from collections.abc import Callable
from typing import Any, Final

__test__: Final[dict[str, str]]

def values(tables: list[list[Any]], codes: bytes, /) -> list[Any]: ...
def immutables(
    tables: list[list[Any]], tags: list[Any], lengths: bytes, codes: bytes, other: Callable[[Any, list[Any]], Any], /
) -> None: ...
def fill(tables: list[list[Any]], things: list[Any], name: str, codes: bytes, /) -> None: ...
