from collections.abc import Iterable, Mapping
from typing import Any

from typing_extensions import disjoint_base

from flowsched.journal.graph_tables import Graph
from flowsched.rounds.values import Delta, Round

__all__ = ["Walk", "delta_words", "round_numbers", "words"]

def words(value: Any, /) -> str: ...
def delta_words(deltas: Iterable[Delta], /) -> str: ...
def round_numbers(round: Round, deltas: str, /) -> tuple[int, ...]: ...

@disjoint_base
class Walk:
    def __init__(self, graph: Graph, instead: Mapping[type, str]) -> None: ...
    def take(self, root: Any, /) -> None: ...
