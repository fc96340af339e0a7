from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeVar, final, overload

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

from flowsched.cluster.events import EndedRun
from flowsched.cluster.inventory import Inventory
from flowsched.cluster.model import Job, Machine, Task
from flowsched.cluster.selectors import Requirement, Wanted

_T = TypeVar("_T")

__all__ = [
    "Before", "Chain", "Changes", "Group", "IdPool", "JobRecord", "MachineRecord", "Placement", "TaskClass", "TaskRecord",
    "Transaction", "World",
]  # fmt: skip

@disjoint_base
class RunningTasksColumns:
    row: Any
    class_id: Any
    turn: Any
    since: Any
    end: Any

class Placement(NamedTuple):
    row: int
    devices: tuple[int, ...]
    since: float

@final
class TaskRecord:
    __slots__ = (
        "began",
        "devices",
        "duration",
        "gone",
        "group",
        "id",
        "index",
        "preempted",
        "row",
        "run",
        "since",
        "turn",
    )
    __numbers__: tuple[str, ...]
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
    run: int
    def __init__(
        self, id: Hashable, group: Group, index: int, turn: int, since: float | None, duration: float = ...
    ) -> None: ...
    def __lt__(self, value: TaskRecord, /) -> bool: ...
    def __gt__(self, value: TaskRecord, /) -> bool: ...
    def __hash__(self) -> int: ...
    @staticmethod
    def __columns__(tasks: list[TaskRecord]) -> dict[str, Any]: ...
    @staticmethod
    def __fill__(tasks: list[TaskRecord], columns: dict[str, Any]) -> None: ...
    @property
    def place(self) -> Placement | None: ...

@final
class Chain:
    __slots__ = ("job",)
    def __new__(cls, job: bool = False) -> Self: ...
    def __len__(self) -> int: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __iter__(self) -> Iterator[TaskRecord]: ...
    def __reversed__(self) -> Iterator[TaskRecord]: ...
    @overload
    def __getitem__(self, key: int, /) -> TaskRecord: ...
    @overload
    def __getitem__(self, key: slice, /) -> list[TaskRecord]: ...
    def head(self) -> TaskRecord | None: ...
    def some(self, first: int, end: int) -> list[TaskRecord]: ...
    def extend(self, tasks: list[TaskRecord], /) -> None: ...
    def insert(self, tasks: list[TaskRecord], /) -> None: ...
    def remove(self, tasks: list[TaskRecord], /) -> None: ...
    def sort(self) -> None: ...
    job: bool

@final
class MachineRecord:
    __slots__ = ("capacity", "drained", "failed", "id", "labels", "rack", "row", "slots", "taints", "tasks")
    id: Hashable
    capacity: Mapping[str, float] | Sequence[float]
    rack: Hashable | None
    labels: Mapping[str, str]
    slots: int | None
    taints: Sequence[Requirement]
    row: int
    failed: bool
    drained: bool
    tasks: Chain
    def __init__(self, machine: Machine, row: int) -> None: ...
    @property
    def machine(self) -> Machine: ...
    @machine.setter
    def machine(self, made: Machine, /) -> None: ...

@final
class TaskClass:
    __slots__ = ("constraints", "demand", "index", "key", "kind", "prefers", "priority", "tasks", "tolerations")
    index: int
    key: tuple[Any, ...]
    demand: NDArray[np.int64]
    constraints: Mapping[str, Wanted]
    priority: int
    kind: Hashable | None
    prefers: Mapping[str, Wanted]
    tolerations: Sequence[Requirement]
    tasks: int
    def __init__(
        self,
        index: int,
        key: tuple[Any, ...],
        demand: NDArray[np.int64],
        constraints: Mapping[str, Wanted],
        priority: int,
        kind: Hashable | None = None,
        prefers: Mapping[str, Wanted] = ...,
        tolerations: Sequence[Requirement] = (),
    ) -> None: ...
    @property
    def rank(self) -> tuple[Any, ...]: ...

_GroupKey = TaskClass | tuple[TaskClass, frozenset[tuple[Hashable, float]]]

@final
class Group:
    __slots__ = ("cls", "data", "job", "on", "serial", "tasks", "waiting")
    job: JobRecord
    cls: TaskClass
    serial: int
    data: tuple[tuple[Hashable, float], ...]
    waiting: Chain
    on: dict[int, tuple[float, ...]]
    tasks: int
    def __init__(
        self, job: JobRecord, cls: TaskClass, serial: int, data: tuple[tuple[Hashable, float], ...] = ()
    ) -> None: ...
    @property
    def key(self) -> _GroupKey: ...
    def plain(self) -> bool: ...

@final
class JobRecord:
    __slots__ = ("groups", "job", "most", "serial", "tasks")
    job: Job
    serial: int
    tasks: Chain
    groups: Group | dict[_GroupKey, Group] | None
    most: int
    def __init__(
        self,
        job: Job,
        serial: int,
        tasks: Chain | None = None,
        groups: Group | dict[_GroupKey, Group] | None = None,
        most: int = 0,
    ) -> None: ...
    @staticmethod
    def __columns__(jobs: list[JobRecord]) -> dict[str, Any]: ...
    def fold(self) -> None: ...
    def each_group(self) -> Collection[Group]: ...
    def group_of(self, key: _GroupKey) -> Group | None: ...
    def add_group(self, group: Group) -> None: ...
    def drop_group(self, group: Group) -> None: ...
    @property
    def gang_size(self) -> int: ...
    @property
    def running(self) -> int: ...
    @property
    def lacks(self) -> int: ...

@final
class Changes:
    __slots__ = ("classes", "gone", "groups", "machines", "removed")
    groups: dict[Group, dict[int, None]]
    removed: list[Group]
    machines: dict[int, None]
    gone: list[int]
    classes: list[int]
    def __init__(self) -> None: ...

@final
class IdPool:
    __slots__ = ("_free", "count")
    count: int
    _free: list[int]
    def take(self) -> int: ...
    def take_some(self, count: int) -> list[int]: ...
    def give_some(self, indices: Iterable[int]) -> None: ...
    def give(self, index: int) -> None: ...

@disjoint_base
class World:
    inventory: Inventory
    by_row: dict[int, MachineRecord]
    waiting: dict[TaskClass, dict[Group, None]]
    queues: dict[TaskClass, Any]
    machines: dict[Hashable, MachineRecord]
    tasks: dict[Hashable, TaskRecord]
    jobs: dict[Hashable, JobRecord]
    attempts: dict[Hashable, Any]
    resting: dict[Hashable, float | None]
    by_class: dict[int, TaskClass]
    by_index: list[TaskRecord | None]
    moving: bool
    midway: bool
    events: int
    _waiting_ids: dict[TaskClass, tuple[Hashable, ...]]
    _changes: Changes
    _timeless: list[TaskRecord]
    _classes: dict[tuple[Any, ...], TaskClass]
    _idle: dict[tuple[Any, ...], None]
    _indices: IdPool
    _turn: int
    _serial: int
    def __init__(self, inventory: Inventory) -> None: ...
    def fields(self) -> dict[str, Any]: ...
    @property
    def turn(self) -> int: ...
    @property
    def touched(self) -> Collection[Group]: ...
    @property
    def news(self) -> Changes: ...
    def changes(self, now: float | None = None) -> Changes: ...
    def date(self, now: float) -> None: ...
    def moment(self) -> tuple[int, int, int]: ...
    def waiting_ids(self, cls: TaskClass) -> tuple[Hashable, ...]: ...
    def start(self, tasks: list[TaskRecord], row: int, devices: tuple[int, ...], now: float) -> None: ...
    def stop(self, task: TaskRecord, now: float | None) -> None: ...

@final
class Transaction:
    cluster: World
    now: float
    before: dict[TaskRecord, Before]
    def __init__(self, cluster: World, now: float) -> None: ...
    @property
    def moving(self) -> bool: ...
    def start(self, tasks: list[TaskRecord], row: int, devices: Sequence[int]) -> None: ...
    def start_rows(
        self, tasks: list[TaskRecord], done: int, rows: list[tuple[int, int]], full: int
    ) -> tuple[int, int]: ...
    def stop(self, task: TaskRecord) -> None: ...
    def restore(self, task: TaskRecord) -> None: ...
    def rollback(self) -> None: ...

@final
class Before:
    @property
    def place(self) -> Placement | None: ...
    @property
    def turn(self) -> int: ...
    @property
    def since(self) -> float | None: ...

def ids_of(groups: Iterable[Group], /) -> tuple[Hashable, ...]: ...
def untouched(
    tasks: Sequence[TaskRecord],
    first: int,
    most: int,
    before: dict[TaskRecord, Before],
    /,
) -> list[TaskRecord]: ...
def concerned(
    tasks: dict[Hashable, TaskRecord],
    unit: Sequence[Any],
    turns: Mapping[Hashable, int] | None,
    kinds: tuple[type, type],
    /,
) -> dict[TaskRecord, Any] | str: ...
def starts(
    records: dict[TaskRecord, Any],
    kinds: tuple[type, type],
    /,
) -> tuple[list[TaskRecord], list[Any], list[int]]: ...
def begin_runs(
    tasks: dict[Hashable, TaskRecord],
    deltas: Sequence[Any],
    run: int,
    kinds: tuple[type, type],
    /,
) -> tuple[int, list[int]]: ...

@final
class Starts:
    tasks: list[TaskRecord]
    machines: list[Hashable]
    devices: list[tuple[int, ...]]
    turns: list[int]
    placements: dict[Hashable, Hashable]
    gangs: dict[Hashable, int]
    moment: tuple[int, int, int]

def moved(before: dict[TaskRecord, Before], machines: dict[int, MachineRecord]) -> tuple[Starts, list[TaskRecord]]: ...
def places(
    tasks: list[TaskRecord],
    machines: list[Hashable],
    devices: list[tuple[int, ...]],
    place: type[_T],
    /,
) -> list[_T]: ...
def new_job(world: World, id: Hashable, priority: int, job: Job | None = None) -> JobRecord: ...
def untried(world: World, group: Group, rows: list[tuple[int, int]]) -> Starts | None: ...
def untracked(thing: _T) -> _T: ...
def alike(tasks: tuple[object, ...], names: tuple[str, ...], /) -> list[int]: ...
def take(inventory: Inventory, row: int, class_id: int, devices: Sequence[int], count: int, /) -> None: ...
def fetch(inventory: Inventory, tasks: dict[Hashable, TaskRecord], ids: Iterable[Hashable], /) -> None: ...
def over_capacity(inventory: Inventory, row: int, /) -> int: ...
def spare_room(inventory: Inventory, row: int, class_id: int, most: int, /) -> int: ...
def settle(world: World, tasks: list[TaskRecord], row: int, devices: tuple[int, ...], since: float, /) -> None: ...
def unsettle(world: World, tasks: list[TaskRecord], /) -> None: ...
def again(world: World, task: TaskRecord, now: float | None, /) -> None: ...
def start_again(
    world: World,
    tasks: list[TaskRecord],
    machines: list[Hashable],
    devices: list[tuple[int, ...]],
    run: int,
    now: float,
) -> int: ...
def depart(world: World, task: TaskRecord, /) -> None: ...
def remove_task(world: World, task: TaskRecord, /) -> None: ...
def complete(world: World, tasks: list[TaskRecord], ended: type[EndedRun]) -> list[EndedRun]: ...
def add_tasks(
    world: World, group: Group, ids: list[Hashable], time: float | None, duration: float
) -> list[TaskRecord]: ...
def found_group(world: World, group: Group) -> Group: ...
def group_for(
    world: World, job: JobRecord, task: Task, demand: NDArray[np.int64], shuns: frozenset[Hashable] | tuple[()] = ()
) -> Group: ...
def misplaced(
    tasks: dict[Hashable, TaskRecord], numbered: list[TaskRecord | None], by_row: dict[int, MachineRecord], devices: int
) -> str | None: ...
