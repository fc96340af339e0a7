from collections.abc import Iterable
from typing import Any

from flowsched.rounds.values import Delta, Round

__all__ = ["delta_words", "round_numbers", "words"]

def words(value: Any, /) -> str: ...
def delta_words(deltas: Iterable[Delta], /) -> str: ...
def round_numbers(round: Round, deltas: str, /) -> tuple[int, ...]: ...
