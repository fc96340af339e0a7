"""Compiled comparison of running arcs with the tasks that run; see the head of ``_running.pyx``."""

from typing import Any, Final

from typing_extensions import disjoint_base

from flowsched.builder.batch import NetworkBatch
from flowsched.builder.groups import GroupNodes
from flowsched.builder.machines import MachineArcs
from flowsched.cluster._room import TypedColumns
from flowsched.cluster.records import Group, IdPool
from flowsched.cluster.state import Cluster
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

@disjoint_base
class RunningFields(TypedColumns):
    cluster: Cluster
    batch: NetworkBatch
    machines: MachineArcs
    groups: GroupNodes
    _of: dict[Group, dict[int, int]]
    _indices: IdPool
    _ends: int
    def update(self, touched: dict[Group, dict[int, None]], policy: Policy, now: float) -> None: ...
    def forget(self, group: Group) -> None: ...

def find_running(
    running: RunningFields, touched: dict[Group, dict[int, None]]
) -> tuple[list[int], list[int], list[int], list[int], list[int], list[int]]: ...
def age_running(running: RunningFields, aged: list[int], policy: Policy, now: float) -> None: ...
def begin_running(running: RunningFields, new: list[int], policy: Policy, now: float) -> list[int]: ...
def free_running(running: RunningFields, indices: list[int], /) -> None: ...
