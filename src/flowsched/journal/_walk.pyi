"""Compiled walk through the objects of a snapshot; see the head of ``_walk.pyx``."""

from collections.abc import Mapping
from typing import Any, Final

from typing_extensions import disjoint_base

from flowsched.journal.graph_tables import Graph

__test__: Final[dict[str, str]]

@disjoint_base
class Walk:
    def __init__(self, graph: Graph, instead: Mapping[type, str]) -> None: ...
    def take(self, root: Any, /) -> None: ...
