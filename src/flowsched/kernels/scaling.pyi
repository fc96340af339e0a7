"""The compiled cost scaling for whole networks; callers use `flowsched.network`."""

from typing import Any, Final, final

__test__: Final[dict[str, str]]

@final
class Scaling:
    def __init__(self, *args: object, **kwargs: object) -> None: ...
    def set_budget(self, proof: int, /) -> None: ...
    def solve(self, epsilon: int, stop: int, time_limit: float, /) -> tuple[int, Any, Any, dict[str, Any]]: ...
