from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeVar, final, overload

from typing_extensions import disjoint_base

from flowsched.cluster.inventory import Inventory
from flowsched.cluster.model import Machine
from flowsched.cluster.records import Group, World
from flowsched.cluster.selectors import Requirement

_T = TypeVar("_T")

__all__ = ["Before", "Chain", "MachineRecord", "Placement", "TaskRecord"]

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
class Before:
    @property
    def place(self) -> Placement | None: ...
    @property
    def turn(self) -> int: ...
    @property
    def since(self) -> float | None: ...

def remember(before: dict[TaskRecord, Before], tasks: list[TaskRecord], /) -> None: ...
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
def moved(
    before: dict[TaskRecord, Before],
    machines: dict[int, MachineRecord],
    out: Any,
    /,
) -> list[TaskRecord]: ...
def places(
    tasks: list[TaskRecord],
    machines: list[Hashable],
    devices: list[tuple[int, ...]],
    place: type[_T],
    /,
) -> list[_T]: ...
def untracked(thing: _T, /) -> _T: ...
def alike(tasks: tuple[object, ...], names: tuple[str, ...], /) -> list[int]: ...
def added(
    ids: list[Hashable],
    group: Group,
    indices: list[int],
    turn: int,
    since: float | None,
    duration: float,
    by_index: list[TaskRecord | None],
    /,
) -> list[TaskRecord]: ...
def take(inventory: Inventory, row: int, class_id: int, devices: Sequence[int], count: int, /) -> None: ...
def fetch(inventory: Inventory, tasks: dict[Hashable, TaskRecord], ids: Iterable[Hashable], /) -> None: ...
def over_capacity(inventory: Inventory, row: int, /) -> int: ...
def spare_room(inventory: Inventory, row: int, class_id: int, most: int, /) -> int: ...
def settle(
    world: World, tasks: list[TaskRecord], row: int, devices: tuple[int, ...], since: float, /
) -> None: ...
def unsettle(world: World, tasks: list[TaskRecord], /) -> None: ...
def enqueue(world: World, tasks: list[TaskRecord], /) -> None: ...
def dequeue(world: World, tasks: list[TaskRecord], /) -> None: ...
def start(world: World, tasks: list[TaskRecord], row: int, devices: tuple[int, ...], now: float, /) -> None: ...
def again(world: World, task: TaskRecord, now: float | None, /) -> None: ...
def restore(world: World, tasks: list[TaskRecord], states: list[Before], /) -> None: ...
def undo(before: dict[TaskRecord, Before], world: World, /) -> None: ...
def start_again(
    world: World,
    tasks: list[TaskRecord],
    machines: list[Hashable],
    devices: list[tuple[int, ...]],
    run: int,
    now: float,
    /,
) -> int: ...
def start_rows(
    before: dict[TaskRecord, Before],
    world: World,
    tasks: list[TaskRecord],
    done: int,
    rows: list[tuple[int, int]],
    full: int,
    now: float,
    /,
) -> tuple[int, int]: ...
def try_start(
    before: dict[TaskRecord, Before],
    world: World,
    tasks: list[TaskRecord],
    row: int,
    devices: tuple[int, ...],
    now: float,
    /,
) -> None: ...
