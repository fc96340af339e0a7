from collections.abc import Mapping
from typing import Any

from typing_extensions import disjoint_base

from flowsched.journal.graph_tables import Graph

__all__ = ["Walk"]

@disjoint_base
class Walk:
    def __init__(self, graph: Graph, instead: Mapping[type, str]) -> None: ...
    def take(self, root: Any, /) -> None: ...
