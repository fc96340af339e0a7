"""Compiled comparison of running arcs with the tasks that run; see the head of ``_running.pyx``."""

from typing import Any, Final

from typing_extensions import disjoint_base

from flowsched.cluster.records import Group
from flowsched.policy import Policy

__test__: Final[dict[str, str]]

@disjoint_base
class MachineArcsColumns:
    node: Any
    arc: Any
    capacity: Any

@disjoint_base
class RunningArcsColumns:
    arc: Any
    running: Any
    bucket: Any
    ending: Any
    since: Any
    due: Any
    end: Any

def find_running(
    running: Any, touched: dict[Group, dict[int, None]]
) -> tuple[list[int], list[int], list[int], list[int], list[int], list[int], list[float]]: ...
def age_running(running: Any, aged: list[int], policy: Policy, now: float) -> None: ...
def begin_running(
    running: Any, new: list[int], counts: list[int], starts: list[float], policy: Policy, now: float
) -> list[int]: ...
def forget_running(running: Any, group: Group, /) -> None: ...
def free_running(running: Any, indices: list[int], /) -> None: ...
def update_running(running: Any, touched: dict[Group, dict[int, None]], policy: Policy, now: float, /) -> None: ...
