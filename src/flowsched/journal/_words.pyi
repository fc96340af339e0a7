"""Compiled words of a journal's records; see the head of ``_words.pyx``."""

from collections.abc import Iterable
from typing import Any, Final

from typing_extensions import disjoint_base

from flowsched.rounds.values import Delta, Round

__test__: Final[dict[str, str]]

def words(value: Any) -> str: ...
def delta_words(deltas: Iterable[Delta]) -> str: ...
def round_numbers(round: Round, deltas: str, reasons: str) -> tuple[int, ...]: ...

@disjoint_base
class Fields:
    def __init__(self, kind: type) -> None: ...
