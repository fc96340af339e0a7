from types import TracebackType
from typing import Literal, Self

from typing_extensions import disjoint_base

__all__ = ["FACTS", "Exclusive", "interruptible"]

FACTS: dict[str, str | bool]

@disjoint_base
class Exclusive:
    def __init__(self, name: str) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Literal[False]: ...

@disjoint_base
class Interruptible:
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Literal[False]: ...

def interruptible() -> Interruptible: ...
