"""Reasons for waiting: worked out per class, and only on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.inventory import Inventory
from flowsched.cluster.limits import DEADLINE, FAILED, HELD, LABEL, SLOTS, SPREAD, Blockers
from flowsched.cluster.model import GPU_MODEL, MICRO, Resources
from flowsched.cluster.records import TaskClass
from flowsched.cluster.shapes import ShapeKey, Shapes, unsuited
from flowsched.rounds.values import Reason, ReasonCode

__all__ = ["Groups", "Rest", "Verdict", "Waiting", "judge"]

_ALL = (1 << 32) - 1

_MORE_MACHINES = ("MachineAdded", "MachineUpdated")
_LESS_LOAD = ("TaskCompleted", "TaskFailed", "TaskRemoved", "JobRemoved")
_UNBLOCKED_BY = {
    ReasonCode.NEVER_FITS: _MORE_MACHINES,
    ReasonCode.FILTERED: _MORE_MACHINES,
    ReasonCode.NO_SLOT: _LESS_LOAD + _MORE_MACHINES,
    ReasonCode.NO_FIT: _LESS_LOAD + _MORE_MACHINES,
    ReasonCode.GANG_SHORT: ("TaskSubmitted", *_LESS_LOAD, *_MORE_MACHINES),
    ReasonCode.SPREAD: _LESS_LOAD + _MORE_MACHINES,
    ReasonCode.DEADLINE: _LESS_LOAD + _MORE_MACHINES,
    ReasonCode.FAILED_THERE: _LESS_LOAD + _MORE_MACHINES,
    ReasonCode.STOPPING: ("TaskStopped", "TaskCompleted", "TaskFailed", "MachineFailed", "MachineRemoved"),
    ReasonCode.HELD: _LESS_LOAD + _MORE_MACHINES,
    ReasonCode.OUTBID: _LESS_LOAD + _MORE_MACHINES,
    ReasonCode.QUOTA: (*_LESS_LOAD, "TaskStopped", "MachineFailed", "MachineRemoved"),
    ReasonCode.SHARE: (*_LESS_LOAD, *_MORE_MACHINES, "UserUpdated"),
}
_READY = frozenset((ReasonCode.RUNNING, ReasonCode.PENDING, ReasonCode.WAIT_CHEAPER, ReasonCode.TIME_LIMIT))
"""Codes under which a task waits for no event."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """Blockers of the tasks of one class at one time; `reason` puts them into words.

    Attributes
    ----------
    cls : TaskClass
    why : ndarray of uint32, shape (rows,)
        Blockers of one more task of the class, see `Inventory.room`.
    blockers : Blockers
        Meanings of the bits of `why`.
    shapes : Shapes
        Machines at that time.
    ever : ndarray of uint8, shape (shapes,)
        See `Inventory.ever`.
    code : ReasonCode or None
        None if `why` determines the code.
    """

    cls: TaskClass
    why: NDArray[np.uint32]
    blockers: Blockers
    shapes: Shapes
    ever: NDArray[np.uint8]
    resources: Resources
    code: ReasonCode | None

    def reason(self, price: float | None = None) -> Reason:
        """Return the reason in full, with counts by shape of machine."""
        code, events = self.said, _UNBLOCKED_BY.get(self.said, ())
        if self.blockers.own and code not in _READY:
            bits = int(np.bitwise_or.reduce(self.why[self.shapes.of_row >= 0], initial=0))
            events = tuple(dict.fromkeys((*events, *self.blockers.wakes_of(bits))))
        return Reason(code, self._detail(), price, events)

    @cached_property
    def said(self) -> ReasonCode:
        """Code of the reason."""
        if self.code is not None:
            return self.code
        live = self.shapes.of_row >= 0
        best = self.ever[self.shapes.of_row[live]].max(initial=0)
        if best < 2:
            return ReasonCode.FILTERED if best else ReasonCode.NEVER_FITS
        why, own = self.why[live], np.uint32(self.blockers.own)
        if (why == HELD).any():
            return ReasonCode.HELD
        if (why == SPREAD).any():
            return ReasonCode.SPREAD
        if (why == DEADLINE).any():
            return ReasonCode.DEADLINE
        if (why == FAILED).any():
            return ReasonCode.FAILED_THERE
        if own and ((why & own > 0) & (why & ~own == 0)).any():
            return ReasonCode.CONSTRAINT
        return ReasonCode.NO_SLOT if (why == SLOTS).any() else ReasonCode.NO_FIT

    def _detail(self) -> dict[str, dict[str, int]]:
        live = self.shapes.of_row >= 0
        pairs, counts = np.unique((self.shapes.of_row[live] << 32) + self.why[live], return_counts=True)
        detail: dict[str, dict[str, int]] = {}
        words: dict[int, list[str]] = {}
        of_shape: dict[int, dict[str, int]] = {}
        for shape, why, count in zip((pairs >> 32).tolist(), (pairs & _ALL).tolist(), counts.tolist(), strict=True):
            if why:
                if why not in words:
                    words[why] = self._blockers(why)
                key = self.shapes.keys[shape]
                blockers = of_shape.get(shape)
                if blockers is None:
                    blockers = of_shape[shape] = detail.setdefault(shape_label(key, self.resources), {})
                for blocker in (*self._filters(key), *words[why]) if why & LABEL else words[why]:
                    blockers[blocker] = blockers.get(blocker, 0) + count
        return detail

    def _filters(self, shape: ShapeKey) -> list[str]:
        return list(unsuited(shape, self.cls.constraints, self.cls.tolerations))

    def _blockers(self, why: int) -> list[str]:
        return [name for bit, name in self.blockers.said if why & bit]


@lru_cache(4096)
def shape_label(shape: ShapeKey, resources: Resources) -> str:
    """Return a shape in words, such as ``"32 cpu, 2 gpu T4"``; shapes that differ only in other labels share it."""
    capacity, labels, slots, _ = shape
    model = dict(labels).get(GPU_MODEL)
    parts = []
    for name, amount in zip(resources.names, capacity, strict=True):
        if amount:
            number = f"{amount / MICRO:g}" if amount % MICRO else f"{amount // MICRO}"
            parts.append(f"{number} {name} {model}" if model and name == resources.device else f"{number} {name}")
    if slots is not None:
        parts.append(f"{slots} slots")
    return ", ".join(parts) or "nothing"


def judge(
    inventory: Inventory,
    cls: TaskClass,
    why: NDArray[np.uint32],
    code: ReasonCode | None = None,
    shapes: Shapes | None = None,
) -> Verdict:
    """Return a verdict on a waiting class.

    Parameters
    ----------
    inventory : Inventory
    cls : TaskClass
    why : ndarray of uint32, shape (rows,)
        Blockers of one more task of the class, see `Inventory.room`.
    code : ReasonCode, optional
        The code, if it is already known.
    shapes : Shapes, optional
        The machines concerned; all of them by default.
    """
    ever = inventory.suitability.ever(cls.index)
    return Verdict(cls, why, inventory.blockers, shapes or inventory.shapes(), ever, inventory.resources, code)


@dataclass(frozen=True)
class Rest:
    """Reason of tasks that wait for something other than machines; `lacks` names resources of a quota."""

    said: ReasonCode
    lacks: tuple[str, ...] = ()

    def reason(self, price: float | None = None) -> Reason:
        """Return the reason; `price` is not used."""
        detail = {"quota": dict.fromkeys(self.lacks, 1)} if self.lacks else {}
        return Reason(self.said, detail, unblocked_by=_UNBLOCKED_BY.get(self.said, ()))


Groups = Sequence[tuple[tuple[Hashable, ...], Verdict | Rest, float | None]]
"""Tasks of each group, and their common verdict and price."""


class Waiting(Mapping[Hashable, Reason]):
    """Waiting tasks of a round, each with its reason; reasons are worked out on request, once per group.

    Parameters
    ----------
    groups : sequence of (tuple of hashable, Verdict, float or None), or function that returns it
        Tasks of each group, and their common verdict and price.  The function is called at most once, at the first request
        for a task; its result must not depend on the time of the call.
    size : int, optional
        Number of tasks; needed with a function.
    codes : callable, optional
        Returns the result of `codes` without visiting every group.
    """

    def __init__(
        self,
        groups: Groups | Callable[[], Groups],
        size: int | None = None,
        codes: Callable[[], Mapping[str, int]] | None = None,
    ) -> None:
        self._source: Groups | Callable[[], Groups] = groups
        self._codes = codes
        self._size = sum(len(tasks) for tasks, _, _ in self._groups) if size is None else size
        self._group_of: dict[Hashable, int] = {}
        self._indexed = 0
        self._reasons: dict[int, Reason] = {}

    @property
    def _groups(self) -> Groups:
        source = self._source
        if callable(source):
            source = self._source = source()
        return source

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Hashable]:
        for tasks, _, _ in self._groups:
            yield from tasks

    def __getitem__(self, task: Hashable) -> Reason:
        group = self._find(task)
        if group not in self._reasons:
            _, why, price = self._groups[group]
            self._reasons[group] = why.reason(price)
        return self._reasons[group]

    def _find(self, task: Hashable) -> int:
        """Return the number of the task's group; groups are indexed up to the requested one."""
        while task not in self._group_of:
            if self._indexed == len(self._groups):
                raise KeyError(task)
            self._group_of.update(dict.fromkeys(self._groups[self._indexed][0], self._indexed))
            self._indexed += 1
        return self._group_of[task]

    def codes(self) -> Mapping[str, int]:
        """Return the number of tasks by reason code."""
        if self._codes is not None:
            return self._codes()
        found: Counter[str] = Counter()
        for count, code, _ in self.summary():
            found[code] += count
        return found

    def summary(self) -> list[tuple[int, str, float | None]]:
        """Return the codes and prices of all groups, each with the number of tasks."""
        return [(len(tasks), why.said.value, price) for tasks, why, price in self._groups]

    def __repr__(self) -> str:
        return f"<{self._size} waiting tasks>"
