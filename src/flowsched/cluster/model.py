"""Immutable values of a cluster: resources, tasks, jobs, machines, users.

Quantities are given as numbers (int or float) and kept as int64 *micro-units* (1e-6 of the caller's unit), so
that a resource taken and given back a million times is exactly as before.  Demands and capacities are
rounded down, so that parts of a whole fill it: a machine is over-committed by less than one micro-unit per task.
Demands of less than 100 micro-units are rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, dataclass, field, fields
from functools import lru_cache
from numbers import Number
from types import MappingProxyType
from typing import Any, final, overload

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary._values import Slots, filled, plain_id, typed_items
from flowsched.boundary.validate import (
    LARGEST_AMOUNT,
    check_id,
    mapping,
    nearest,
    number,
    ordered,
    quoted,
    truth,
    whole,
)
from flowsched.cluster.selectors import Requirement, checked_taints, checked_tolerations, wanted_labels
from flowsched.exceptions import InputError

__all__ = ["GPU_MODEL", "LARGEST", "MICRO", "Job", "Machine", "Resources", "Task", "Tasks", "User"]

MICRO = 1_000_000
"""Micro-units per unit of any resource."""

_SMALL = 100
"""Micro-units below which demands are rounded up."""

LARGEST = LARGEST_AMOUNT
"""Largest amount of any resource, in units."""

GPU_MODEL = "gpu_model"
"""Label that names the model of a machine's GPUs."""

MOST_USED = 1 << 62
"""Largest amount of a resource that the tasks of a machine may take together, in micro-units, even beyond its capacity."""

MOST_DEVICES = 4096
"""Largest number of devices of a machine."""

UNLIMITED = 1 << 40
"""Count of tasks or slots that stands for "no limit"; a machine may not have more slots."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})


def _frozen(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(mapping)) if mapping else _NOTHING


def _labels(me: str, labels: Any) -> Mapping[str, str]:
    """Return labels in the order of their names; equal mappings are one object, since many machines have the same."""
    if type(labels) is dict and not labels:
        return _NOTHING
    for name, value in mapping(f"{me}: labels", labels).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InputError(f"{me}: labels[{quoted(name)}]: names and values of labels are text, got {quoted(value)}")
    key = tuple((name, labels[name]) for name in sorted(labels))
    return _same_labels(key) if all(type(text) is str for pair in key for text in pair) else _frozen(dict(key))


MOST_PRIORITY = 2**40
"""Largest absolute priority of a job."""

_MOST_KNOWN = 4096
"""Largest number of distinct demands and capacities whose vectors are cached."""

_KNOWN: dict[tuple[Any, ...], Mapping[str, Any]] = {}
"""Amounts by names, values and types, since True == 1 == 1.0, but True is no amount."""

VECTORS: dict[tuple[int, int], tuple[Resources, Any, NDArray[np.int64]]] = {}
"""Demand vectors by the identity of resources and amounts; the entry keeps both alive, so identities stay unique."""


def amounts_of(what: str, amounts: Any) -> Mapping[str, float] | tuple[float, ...]:
    """Return amounts of resources by name or in order, frozen; equal ones by name are one object."""
    if type(amounts) is not dict:
        return _frozen(amounts) if isinstance(amounts, Mapping) else ordered(what, amounts)
    key = typed_items(amounts)
    try:
        known = _KNOWN.get(key)
    except Exception:  # unhashable values are no amounts; they are refused where the names are known
        return _frozen(amounts)
    if known is None:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        known = _KNOWN[key] = _frozen(amounts)
    return known


def _plain(amount: Any) -> Any:
    """Return a NumPy number as a Python number, since NumPy's may overflow in 32 bits."""
    kind = type(amount)
    if kind is int or kind is float:
        return amount
    if kind is bool or not isinstance(amount, Number) or isinstance(amount, np.timedelta64 | np.longdouble):
        raise TypeError
    return amount.item() if isinstance(amount, np.generic) else amount


@dataclass(frozen=True)
class Resources:
    """Names of the resources, and the one that is counted device by device.

    Parameters
    ----------
    names : sequence of str
        All resources, in the order of every vector.
    device : str or None
        The resource that consists of separate devices (GPUs).  A machine has a whole number of them; a task asks for
        a whole number, or for a share of one (0 < share < 1).
    """

    names: tuple[str, ...]
    device: str | None = "gpu"
    index: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = ordered("resources", self.names)
        if not names or any(not isinstance(n, str) or not n for n in names):
            raise InputError(f"resources: non-empty names expected, got {quoted(self.names)}")
        if len(set(names)) != len(names):
            raise InputError(f"resources: a name occurs twice in {names!r}")
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "device", self.device if self.device in names else None)
        object.__setattr__(self, "index", MappingProxyType({n: i for i, n in enumerate(names)}))

    @property
    def device_index(self) -> int:
        """Position of the device resource, -1 without one."""
        return -1 if self.device is None else self.index[self.device]

    def num_devices(self, capacity: NDArray[np.int64]) -> int:
        """Return the number of devices in a vector of capacities."""
        return 0 if self.device is None else int(capacity[self.device_index]) // MICRO

    def _vector(self, what: str, amounts: Mapping[str, float] | Sequence[float], up: bool) -> NDArray[np.int64]:
        if not isinstance(amounts, Mapping):
            values = ordered(what, amounts)
            if len(values) != len(self.names):
                raise InputError(
                    f"{what}: {len(self.names)} amounts expected ({', '.join(self.names)}), got {len(values)}"
                )
            amounts = dict(zip(self.names, values, strict=True))
        vector = np.zeros(len(self.names), np.int64)
        for name, amount in amounts.items():
            if name not in self.index:
                raise InputError(
                    f"{what}: unknown resource {quoted(name)}; the resources are {', '.join(self.names)}{nearest(name, self.names)}"
                )
            try:
                exact = _plain(amount) * MICRO
                finite = math.isfinite(exact)
            except (TypeError, ValueError, ArithmeticError):
                raise InputError(f"{what}[{name!r}]: a number expected, got {quoted(amount)}") from None
            if not finite or exact < 0 or exact > LARGEST * MICRO:
                raise InputError(
                    f"{what}[{name!r}]: a finite number from 0 to {LARGEST} expected, got {quoted(amount)}"
                )
            # Floats such as 0.1 mean the nearest micro-unit, not the next one above by an error of 1e-17.
            micro = round(exact)
            if abs(exact - micro) > 1e-3:
                # Parts of a whole, as three thirds, fit together; each part is changed by less than a hundredth.
                micro = math.ceil(exact) if up and exact < _SMALL else math.floor(exact)
            vector[self.index[name]] = micro
        return vector

    def demand(self, what: str, amounts: Mapping[str, float] | Sequence[float]) -> NDArray[np.int64]:
        """Return the demand in micro-units: rounded down, so that parts of a whole fit together, but up below a hundred.

        Parameters
        ----------
        what : str
            Name in error messages.
        amounts : mapping of str to number, or sequence of number
            By resource name, or in the order of the names; resources without a name are 0.

        Returns
        -------
        ndarray of int64, shape (len(names),)

        Raises
        ------
        InputError
            Unknown resource, negative or non-finite amount, more than one device but not a whole number of them.
        """
        if type(amounts) in _BY_NAME:
            try:
                return _demand(self, *amounts, *amounts.values())  # type: ignore[union-attr]
            except Exception:  # invalid amounts, or unhashable ones
                pass  # the error below names the argument
        return self._demand(what, amounts)

    def demand_of(self, task: Task) -> NDArray[np.int64]:
        """Return `demand` of a task."""
        key = id(self), id(task.demand)
        known = VECTORS.get(key)
        if known is not None:
            return known[2]
        vector = self.demand(f"task {task.id!r}: demand", task.demand)
        if type(task.demand) is MappingProxyType:  # frozen by the task, so it cannot change
            if len(VECTORS) >= _MOST_KNOWN:
                VECTORS.clear()
            VECTORS[key] = self, task.demand, vector
        return vector

    def _demand(self, what: str, amounts: Mapping[str, float] | Sequence[float]) -> NDArray[np.int64]:
        vector = self._vector(what, amounts, up=True)
        if self.device is not None:
            amount = int(vector[self.device_index])
            if amount > MICRO and amount % MICRO:
                raise InputError(
                    f"{what}[{self.device!r}]: a share of one device or a whole number of devices expected, got {amount / MICRO:g}"
                )
        vector.flags.writeable = False
        return vector

    def usage(self, what: str, amounts: Mapping[str, float] | Sequence[float]) -> NDArray[np.int64]:
        """Return usage in micro-units; the same conventions as `demand`, but any amount of devices."""
        return self._vector(what, amounts, up=True)

    def amounts(self, what: str, amounts: Mapping[str, float]) -> NDArray[np.int64]:
        """Return amounts of a limit in micro-units; the same conventions as `demand`, but any amount of devices."""
        return self._vector(what, amounts, up=False)

    def capacity(self, what: str, amounts: Mapping[str, float] | Sequence[float]) -> NDArray[np.int64]:
        """Return the capacity in micro-units; the same conventions as `demand`, devices in whole numbers only."""
        if type(amounts) in _BY_NAME:
            try:
                return _capacity(self, *amounts, *amounts.values())  # type: ignore[union-attr]
            except Exception:
                pass
        return self._capacity(what, amounts)

    def _capacity(self, what: str, amounts: Mapping[str, float] | Sequence[float]) -> NDArray[np.int64]:
        vector = self._vector(what, amounts, up=False)
        if self.device is not None:
            count, rest = divmod(int(vector[self.device_index]), MICRO)
            if rest or count > MOST_DEVICES:
                most = f", at most {MOST_DEVICES}," if count > MOST_DEVICES else ""
                raise InputError(
                    f"{what}[{self.device!r}]: a whole number of devices{most} expected, got {count + rest / MICRO:g}"
                )
        vector.flags.writeable = False
        return vector


_BY_NAME = (dict, MappingProxyType)


def _named(flat: tuple[Any, ...]) -> dict[str, float]:
    names = len(flat) // 2
    return dict(zip(flat[:names], flat[names:], strict=True))


@lru_cache(_MOST_KNOWN)
def _same_labels(pairs: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return _frozen(dict(pairs))


@lru_cache(_MOST_KNOWN, typed=True)
def _demand(resources: Resources, *flat: Any) -> NDArray[np.int64]:
    """Return the vector of a demand, given as names and then amounts; it is read-only and shared by all callers."""
    return resources._demand("demand", _named(flat))


@lru_cache(_MOST_KNOWN, typed=True)
def _capacity(resources: Resources, *flat: Any) -> NDArray[np.int64]:
    """Return the vector of a capacity, like `_demand`."""
    return resources._capacity("capacity", _named(flat))


@filled
@dataclass(frozen=True, slots=True)
class Task:
    """One unit of work that runs on one machine.

    Parameters
    ----------
    id : hashable
        Unique in the cluster.
    demand : mapping of str to number, or sequence of number
        Amount of each resource while it runs.  ``{"gpu": 0.5}`` is half of one GPU, ``{"gpu": 2}`` two whole ones.
    constraints : mapping of str to sequence
        Label of the machine -> allowed values, or requirements such as ``NotIn("T4")`` or ``Gt(5) + Lt(7)`` (see
        `flowsched.cluster.selectors`); those of all labels must be met.  ``{"gpu_model": ("T4", "P100")}``.
    kind : hashable or None
        Tasks of one kind do the same work on as much input (say, a digest of program and arguments, and the size), so
        that measurements of one apply to the others; None for a task like no other.
    data : mapping of machine id to number, or sequence of such pairs
        Amount of its input on each machine, in any unit; see `Policy.locality`.
    prefers : mapping of str to sequence
        As `constraints`, but machines without such labels only cost more; see `PreferenceCost`.
    apart : int or None
        Limit of tasks of its kind on its machine (without a `kind`: of equal tasks of its job): 1 keeps the others off
        its machine.
    apart_in_rack : int or None
        Limit of such tasks in its rack.  A machine without a rack is a rack of its own.
    avoids : sequence of hashable
        Kinds with which it does not share a machine, in either order of arrival.
    tolerations : sequence of toleration
        Tolerated taints of machines, see `flowsched.cluster.selectors.Toleration`.
    duration : float or None
        Estimate of its run time, in the time unit of the events; None without one.  See `Policy.backfill`.
    retries : int or None
        Number of starts after a `TaskFailed`; it leaves with the next failure.  It shuns machines on which it failed while
        another one can hold it.  Runs that were `lost` do not count.  None: the events decide on each retry, and no
        machine is shunned.
    backoff : float
        Length of the rest after its first failure, in the time unit of the events; it doubles with each further one, up
        to 32 times.  Only with `retries`.
    """

    id: Hashable
    demand: Mapping[str, float] | Sequence[float] = field(default_factory=lambda: _NOTHING)
    constraints: Mapping[str, Sequence[Any]] = field(default_factory=lambda: _NOTHING)
    kind: Hashable | None = None
    data: Mapping[Hashable, float] | Sequence[tuple[Hashable, float]] = ()
    prefers: Mapping[str, Sequence[Any]] = field(default_factory=lambda: _NOTHING)
    apart: int | None = None
    avoids: Sequence[Hashable] = ()
    apart_in_rack: int | None = None
    tolerations: Sequence[Requirement] = ()
    duration: float | None = None
    retries: int | None = None
    backoff: float = 0.0

    def __post_init__(self) -> None:
        if not plain_id(self.id):
            check_id("task: id", self.id)
        demand = self.demand
        if demand is not _NOTHING:
            what = "demand" if type(demand) is dict else f"task {self.id!r}: demand"  # a dict is checked later
            _DEMAND(self, amounts_of(what, demand))
        if not _DETAILS.hold(self, _NO_DETAILS):
            self._check_details()

    def _check_details(self) -> None:
        def become(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        me = f"task {self.id!r}"
        if self.kind is not None:
            check_id(f"{me}: kind", self.kind)
        for name in ("apart", "apart_in_rack"):
            most = getattr(self, name)
            if most is not None:
                become(name, whole(f"{me}: {name}", most, 1))
        for name in ("constraints", "prefers"):
            labels = getattr(self, name)
            if labels is not _NOTHING:
                become(name, _frozen(wanted_labels(f"{me}: {name}", labels)))
        if type(self.avoids) is not tuple or self.avoids:
            become("avoids", ordered(f"{me}: avoids", self.avoids))
            for kind in self.avoids:
                check_id(f"{me}: avoids", kind)
        if type(self.tolerations) is not tuple or self.tolerations:
            become("tolerations", checked_tolerations(f"{me}: tolerations", self.tolerations))
        if type(self.data) is not tuple or self.data:
            become("data", _pairs(f"{me}: data", self.data))
        if self.duration is not None:
            become("duration", number(f"{me}: duration", self.duration, 0))
        if self.retries is not None:
            become("retries", whole(f"{me}: retries", self.retries, 0, 2**40))
        become("backoff", number(f"{me}: backoff", self.backoff, 0))
        if self.backoff and self.retries is None:
            raise InputError(f"{me}: backoff without retries")


def renamed(task: Task, id: Hashable) -> Task:
    """Return a task that differs from another one only in its id; the rest is not checked again."""
    if not plain_id(id):
        check_id("task: id", id)
    found = copy(task)
    object.__setattr__(found, "id", id)
    return found


# Most tasks have only an id and a demand.
_DEMAND, _DETAILS = Slots(Task, ["demand"]), Slots(Task, [f.name for f in fields(Task)[2:]])
_NO_DETAILS = tuple(f.default if f.default_factory is MISSING else f.default_factory() for f in fields(Task)[2:])

DESCRIPTION = tuple(f.name for f in fields(Task)[1:])
"""Names of a task's fields except its id."""


@final
class Tasks(Sequence[Task]):
    """Many tasks that are alike, without an object for each; wherever a job takes a sequence of tasks.

    Parameters
    ----------
    ids : sequence of hashable
        A list, or a column: an array of NumPy or Arrow.
    demand : mapping of str to number or to column, or sequence of number
        As for `Task`.  A column has the amount of each task.
    duration : number, column or None
        As for `Task`.
    **details
        All other parameters of `Task`, the same for all tasks.

    Attributes
    ----------
    ids : list of hashable
    runs : list of (int, Task)
        The tasks up to this position, from that of the run before, differ from this one only in id and duration.
    durations : list of float or None
        None where all have the same.

    Raises
    ------
    InputError
        An id or a description is refused, or columns differ in length.

    Examples
    --------
    >>> import numpy as np
    >>> tasks = Tasks(range(3), {"cpu": np.array([1, 1, 2])}, duration=60)
    >>> len(tasks), tasks[2].demand["cpu"], tasks[0] == Task(0, {"cpu": 1}, duration=60)
    (3, 2, True)
    """

    __slots__ = ("durations", "ids", "runs")

    def __init__(
        self,
        ids: Sequence[Hashable],
        demand: Mapping[str, Any] | Sequence[float] = MappingProxyType({}),
        *,
        duration: Any = None,
        **details: Any,
    ) -> None:
        self.ids = list(ordered("tasks: ids", _listed(ids)))
        for i, id in enumerate(self.ids):
            check_id(f"tasks: ids[{i}]", id)
        amounts: Any = demand
        columns = {}
        if isinstance(demand, Mapping):
            amounts = {name: _listed(amount) for name, amount in demand.items()}
            columns = {name: column for name, column in amounts.items() if isinstance(column, list)}
        lengths = _listed(duration)
        self.durations: list[float] | None = None
        if isinstance(lengths, list):
            self.durations, duration = [number(f"tasks: duration[{i}]", d, 0) for i, d in enumerate(lengths)], None
        else:
            duration = lengths
        for name, column in [*columns.items(), ("duration", self.ids if self.durations is None else self.durations)]:
            if len(column) != len(self.ids):
                raise InputError(f"tasks: {name}: {len(self.ids)} values expected, one for each id, got {len(column)}")
        self.runs: list[tuple[int, Task]] = []
        first = 0
        for end in _ends(list(columns.values()), len(self.ids)):
            own = {**amounts, **{name: column[first] for name, column in columns.items()}} if columns else amounts
            self.runs.append((end, Task(self.ids[first], own, duration=duration, **details)))
            first = end

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Task, ...]: ...
    def __getitem__(self, index: int | slice) -> Task | tuple[Task, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self.ids))))
        index = range(len(self.ids))[index]
        return self._task(next(task for end, task in self.runs if index < end), index)

    def __iter__(self) -> Iterator[Task]:
        first = 0
        for end, like in self.runs:
            for i in range(first, end):
                yield self._task(like, i)
            first = end

    def _task(self, like: Task, i: int) -> Task:
        """Return the task at a position, of the run of `like`."""
        found = renamed(like, self.ids[i])
        if self.durations is not None:
            object.__setattr__(found, "duration", self.durations[i])
        return found

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Tasks | tuple | list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self.ids)} tasks from {quoted(self.ids[:1])}>"


def _listed(column: Any) -> Any:
    """Return a column of NumPy or Arrow, or a range, as a list of Python's own values; anything else unchanged."""
    if isinstance(column, list | range):
        return list(column)
    for name in ("tolist", "to_pylist"):
        if hasattr(column, name):
            return getattr(column, name)()
    return column


def _ends(columns: list[list[Any]], count: int) -> Iterator[int]:
    """Yield the ends of the runs of equal values, of the same types, in all columns together."""
    for i in range(1, count):
        if any(column[i] != column[i - 1] or type(column[i]) is not type(column[i - 1]) for column in columns):
            yield i
    if count:
        yield count


def _pairs(what: str, data: Any) -> tuple[tuple[Hashable, float], ...]:
    """Return the machines and their amounts of a task's data."""
    pairs = tuple(data.items()) if isinstance(data, Mapping) else ordered(what, data)
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InputError(f"{what} must map machines to amounts, got the entry {quoted(pair)}")
        check_id(what, pair[0])
    return tuple((machine, number(f"{what}[{machine!r}]", amount, 0)) for machine, amount in pairs)


@filled
@dataclass(frozen=True, slots=True)
class Job:
    """Tasks that belong together.

    Parameters
    ----------
    id : hashable
    user : hashable or None
    priority : int
        Lower is better (1 goes before 2).
    gang : int or None
        Smallest number of its tasks that run at the same time; otherwise none runs.  1 means no gang, and becomes None.
    deadline : float or None
        Time on the clock of the events.
    closed : bool
        True if no more tasks are submitted, so that the job leaves with its last one.
    """

    id: Hashable
    user: Hashable | None = None
    priority: int = 0
    gang: int | None = None
    deadline: float | None = None
    closed: bool = False

    def __post_init__(self) -> None:
        if not plain_id(self.id):
            check_id("job: id", self.id)
        plain = self.user is None and self.gang is None and self.deadline is None and self.closed is False
        if plain and type(self.priority) is int and -MOST_PRIORITY <= self.priority <= MOST_PRIORITY:
            return
        me = f"job {self.id!r}"
        if self.user is not None:
            check_id(f"{me}: user", self.user)
        object.__setattr__(self, "priority", whole(f"{me}: priority", self.priority, -MOST_PRIORITY, MOST_PRIORITY))
        if self.gang is not None:
            gang = whole(f"{me}: gang", self.gang, 1)
            object.__setattr__(self, "gang", gang if gang > 1 else None)
        if self.deadline is not None:
            object.__setattr__(self, "deadline", number(f"{me}: deadline", self.deadline, finite=False))
        object.__setattr__(self, "closed", truth(f"{me}: closed", self.closed))


@filled
@dataclass(frozen=True, slots=True)
class Machine:
    """One machine of the cluster.

    Parameters
    ----------
    id : hashable
    capacity : mapping of str to number, or sequence of number
    rack : hashable or None
    labels : mapping of str to str
        Labels for constraints; ``labels["gpu_model"]`` names the model of its GPUs.
    slots : int or None
        Limit of tasks at the same time; None for no limit but its resources.
    taints : sequence of taint
        Taints that keep tasks without toleration away, see `flowsched.cluster.selectors.Taint`.
    """

    id: Hashable
    capacity: Mapping[str, float] | Sequence[float] = field(default_factory=lambda: _NOTHING)
    rack: Hashable | None = None
    labels: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    slots: int | None = None
    taints: Sequence[Requirement] = ()

    def __post_init__(self) -> None:
        check_id("machine: id", self.id)
        me = f"machine {self.id!r}"
        if self.rack is not None:
            check_id(f"{me}: rack", self.rack)
        object.__setattr__(self, "capacity", amounts_of(f"{me}: capacity", self.capacity))
        if self.labels is not _NOTHING:
            object.__setattr__(self, "labels", _labels(me, self.labels))
        if self.slots is not None:
            object.__setattr__(self, "slots", whole(f"{me}: slots", self.slots, 0, UNLIMITED))
        if type(self.taints) is not tuple or self.taints:
            object.__setattr__(self, "taints", checked_taints(f"{me}: taints", self.taints))

    def __repr__(self) -> str:
        names = ("id", "capacity", "rack", "labels", "slots", *(("taints",) if self.taints else ()))
        return f"Machine({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


@filled
@dataclass(frozen=True, slots=True)
class User:
    """An owner of jobs; `quota` is the proportion of the cluster that the user is entitled to."""

    id: Hashable
    quota: float = 1.0

    def __post_init__(self) -> None:
        check_id("user: id", self.id)
        object.__setattr__(self, "quota", number(f"user {self.id!r}: quota", self.quota, 0))
