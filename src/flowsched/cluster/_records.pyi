from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, final, overload

from flowsched.cluster.model import Machine
from flowsched.cluster.records import Group
from flowsched.cluster.selectors import Requirement

__all__ = ["Before", "Chain", "MachineRecord", "Placement", "TaskRecord"]

class Placement(NamedTuple):
    row: int
    devices: tuple[int, ...]
    since: float

@final
class TaskRecord:
    __slots__ = ("began", "devices", "duration", "gone", "group", "id", "index", "preempted", "row", "since", "turn")
    id: Hashable
    group: Group
    index: int
    turn: int
    since: float | None
    row: int
    devices: tuple[int, ...]
    began: float
    gone: bool
    preempted: float
    duration: float
    def __init__(
        self, id: Hashable, group: Group, index: int, turn: int, since: float | None, duration: float = ...
    ) -> None: ...
    def __lt__(self, other: TaskRecord) -> bool: ...
    def __hash__(self) -> int: ...
    @staticmethod
    def __columns__(tasks: list[TaskRecord]) -> dict[str, list[Any]]: ...
    @property
    def place(self) -> Placement | None: ...

@final
class Chain:
    __slots__ = ("job",)
    def __init__(self, job: bool = False) -> None: ...
    def __len__(self) -> int: ...
    def __contains__(self, record: object) -> bool: ...
    def __iter__(self) -> Iterator[TaskRecord]: ...
    def __reversed__(self) -> Iterator[TaskRecord]: ...
    @overload
    def __getitem__(self, where: int) -> TaskRecord: ...
    @overload
    def __getitem__(self, where: slice) -> list[TaskRecord]: ...
    def extend(self, tasks: list[TaskRecord]) -> None: ...
    def insert(self, tasks: list[TaskRecord]) -> None: ...
    def remove(self, tasks: list[TaskRecord]) -> None: ...
    def sort(self) -> None: ...
    job: bool

@final
class MachineRecord:
    __slots__ = ("capacity", "drained", "failed", "id", "labels", "machine", "rack", "row", "slots", "taints", "tasks")
    id: Hashable
    capacity: Mapping[str, float] | Sequence[float]
    rack: Hashable | None
    labels: Mapping[str, str]
    slots: int | None
    taints: Sequence[Requirement]
    machine: Machine
    row: int
    failed: bool
    drained: bool
    tasks: Chain
    def __init__(self, machine: Machine, row: int) -> None: ...

@final
class Before:
    def __init__(self, task: TaskRecord) -> None: ...
    @property
    def place(self) -> Placement | None: ...
    @property
    def turn(self) -> int: ...
    @property
    def since(self) -> float | None: ...

def remember(before: dict[TaskRecord, Before], tasks: list[TaskRecord]) -> None: ...
def alike(tasks: tuple[object, ...], names: tuple[str, ...]) -> list[int]: ...
def added(
    ids: list[Hashable],
    group: Group,
    indices: list[int],
    turn: int,
    since: float | None,
    duration: float,
) -> list[TaskRecord]: ...
def renumber(tasks: list[TaskRecord], turn: int) -> int: ...
def span(tasks: list[TaskRecord]) -> int: ...
def settle(
    tasks: list[TaskRecord], row: int, class_id: int, devices: tuple[int, ...], since: float, at: tuple[int, ...]
) -> int: ...
def unsettle(tasks: list[TaskRecord], at: tuple[int, ...]) -> int: ...
