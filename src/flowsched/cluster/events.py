"""Events: immutable values; `to_dict` turns them into JSON and `from_dict` back.

`time` is the caller's clock (any unit, only differences count).  None means "at the time of the next round".
`run` of a report (the task started, ended, was measured) is the number of the run that it is about: see `Commit.runs`.
A report about a former run is *stale*.  It changes nothing and raises nothing, and `Cluster.stale_events` counts it.
None means the present run.

Ids are the caller's hashables; only ids that JSON can carry (str, int, float, bool, None, and tuples of them)
survive `to_dict`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from flowsched.boundary._values import filled
from flowsched.cluster.model import Task, Tasks
from flowsched.exceptions import InputError

__all__ = [
    "EndedRun",
    "Event",
    "JobRemoved",
    "JobSubmitted",
    "MachineAdded",
    "MachineDrained",
    "MachineFailed",
    "MachineRemoved",
    "MachineSampled",
    "MachineUpdated",
    "TaskCompleted",
    "TaskFailed",
    "TaskRemoved",
    "TaskStarted",
    "TaskStopped",
    "TaskSubmitted",
    "UsageSampled",
    "UserAdded",
    "UserRemoved",
    "UserUpdated",
    "from_dict",
    "to_dict",
]

_EMPTY: Mapping[str, Any] = {}


class EndedRun(NamedTuple):
    """A run that an event or a commit has ended.

    Parameters
    ----------
    task : hashable
    run : int
    machine : hashable
        Machine of the run.
    why : str
        Kind of the event or delta.  ``"TaskCompleted"`` and ``"TaskFailed"`` are reports of the end.  A worker has to
        stop the run after ``"TaskRemoved"``, ``"JobRemoved"``, ``"Preempt"`` and ``"Migrate"``, and if possible after
        ``"MachineFailed"`` and ``"MachineRemoved"``.
    """

    task: Hashable
    run: int
    machine: Hashable
    why: str


@filled
@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""

    time: float | None = field(default=None, kw_only=True)


@filled
@dataclass(frozen=True, slots=True)
class MachineAdded(Event):
    """A machine joins, or comes back after `MachineFailed`."""

    id: Hashable
    capacity: Mapping[str, float] | Sequence[float]
    rack: Hashable | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    slots: int | None = None
    taints: Sequence[tuple[str, str, str]] = ()


@filled
@dataclass(frozen=True, slots=True)
class MachineUpdated(Event):
    """Some properties of a machine change; None leaves a property unchanged.  Ends a drain (`MachineDrained`).

    The event is accepted even if the running tasks exceed the new capacity, slots or devices.  The machine is over
    capacity then: its tasks go on, and none starts there until all running tasks fit again.
    """

    id: Hashable
    capacity: Mapping[str, float] | Sequence[float] | None = None
    rack: Hashable | None = None
    labels: Mapping[str, str] | None = None
    slots: int | None = None
    taints: Sequence[tuple[str, str, str]] | None = None


@filled
@dataclass(frozen=True, slots=True)
class MachineDrained(Event):
    """The machine takes no new tasks; its running tasks go on."""

    id: Hashable


@filled
@dataclass(frozen=True, slots=True)
class MachineFailed(Event):
    """The machine is gone for now; its tasks wait again.  `MachineAdded` brings it back."""

    id: Hashable


@filled
@dataclass(frozen=True, slots=True)
class MachineRemoved(Event):
    """The machine is gone for good; its tasks wait again."""

    id: Hashable


@filled
@dataclass(frozen=True, slots=True)
class JobSubmitted(Event):
    """A job arrives with its tasks; lower `priority` is better.  A `closed` job takes no more, and leaves with its last task."""

    id: Hashable
    tasks: Sequence[Task] = ()
    user: Hashable | None = None
    priority: int = 0
    gang: int | None = None
    deadline: float | None = None
    closed: bool = False


@filled
@dataclass(frozen=True, slots=True)
class TaskSubmitted(Event):
    """One more task of a known job."""

    job: Hashable
    task: Task


@filled
@dataclass(frozen=True, slots=True)
class TaskStarted(Event):
    """A task already runs on a machine (adopted: the scheduler did not place it).  With `run` it only confirms a start.

    The event is accepted even if the machine is full, drained, or closed to the task by labels, affinity or constraints;
    see `MachineUpdated` for a machine over capacity.  Without `devices` the task gets the devices with most free room.
    Whole devices for which there is no room are counted beyond those that the machine has reported.
    """

    task: Hashable
    machine: Hashable
    devices: Sequence[int] | None = None
    run: int | None = None


@filled
@dataclass(frozen=True, slots=True)
class TaskCompleted(Event):
    """A running task is done and leaves."""

    task: Hashable
    run: int | None = None


@filled
@dataclass(frozen=True, slots=True)
class TaskFailed(Event):
    """A running task died; it waits again, or leaves if `retry` is False.

    A `lost` run ended with its machine, worker or agent, and not by a fault of the task.  The task waits again at once.  It
    uses up no retry, and shuns no machine for that (`Task.retries`).
    """

    task: Hashable
    retry: bool = True
    run: int | None = None
    lost: bool = False


@filled
@dataclass(frozen=True, slots=True)
class TaskStopped(Event):
    """A stopping run has stopped; its task waits again.  See `PreemptionCost.graceful`."""

    task: Hashable
    run: int | None = None


@filled
@dataclass(frozen=True, slots=True)
class TaskRemoved(Event):
    """A task leaves, whether it runs or waits."""

    task: Hashable


@filled
@dataclass(frozen=True, slots=True)
class JobRemoved(Event):
    """A job leaves with all its tasks.  Unless it is closed, a job stays until then, even after all its tasks have ended."""

    job: Hashable


@filled
@dataclass(frozen=True, slots=True)
class UserAdded(Event):
    """A user joins."""

    id: Hashable
    quota: float = 1.0


@filled
@dataclass(frozen=True, slots=True)
class UserUpdated(Event):
    """A user's quota changes."""

    id: Hashable
    quota: float


@filled
@dataclass(frozen=True, slots=True)
class UserRemoved(Event):
    """A user leaves; refused while it still has jobs."""

    id: Hashable


@filled
@dataclass(frozen=True, slots=True)
class UsageSampled(Event):
    """Measured usage of a running task, and optionally its progress (0 to 1).

    A resource that is not in `usage` was not measured.
    """

    task: Hashable
    usage: Mapping[str, float]
    progress: float | None = None
    run: int | None = None


@filled
@dataclass(frozen=True, slots=True)
class MachineSampled(Event):
    """Measured usage of a machine, by its tasks and by everything else that runs there.

    A resource that is not in `usage` was not measured.
    """

    id: Hashable
    usage: Mapping[str, float]


_KINDS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        MachineAdded, MachineUpdated, MachineDrained, MachineFailed, MachineRemoved, JobSubmitted, TaskSubmitted, TaskStarted,
        TaskCompleted, TaskFailed, TaskStopped, TaskRemoved, JobRemoved, UserAdded, UserUpdated, UserRemoved, UsageSampled,
        MachineSampled,
    )
}  # fmt: skip


def _plain(value: Any) -> Any:
    if isinstance(value, Task):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | Tasks):
        return [_plain(v) for v in value]
    return value


def _hashable(value: Any) -> Any:
    """Turn lists of JSON back into tuples, since ids are hashables."""
    return tuple(_hashable(v) for v in value) if isinstance(value, list) else value


def to_dict(event: Event) -> dict[str, Any]:
    """Return the event as a dict for ``json.dumps``; ``kind`` names the class."""
    return {"kind": type(event).__name__, **{f.name: _plain(getattr(event, f.name)) for f in fields(event)}}


def from_dict(record: Mapping[str, Any]) -> Event:
    """Return the event that `to_dict` wrote.

    Raises
    ------
    InputError
        Unknown kind, or fields that do not belong to it.
    """
    values = dict(record)
    kind = _KINDS.get(values.pop("kind", None))
    if kind is None:
        raise InputError(f"event: unknown kind {record.get('kind')!r}; known: {', '.join(_KINDS)}")
    unknown = values.keys() - {f.name for f in fields(kind)}
    if unknown:
        raise InputError(f"event {kind.__name__}: unknown field {min(unknown)!r}")
    values = {k: _hashable(v) for k, v in values.items()}
    if "tasks" in values:
        values["tasks"] = tuple(_task(t) for t in values["tasks"])
    if "task" in values and isinstance(values["task"], Mapping):
        values["task"] = _task(values["task"])
    return kind(**values)


def _task(record: Mapping[str, Any]) -> Task:
    return Task(**{k: _hashable(v) for k, v in record.items()})
