"""Groups and classes of tasks, and the tasks that are temporarily in none of them.

A task that failed and has retries left *rests* until its back-off is over, and then begins to wait again.  Meanwhile
neither the network nor a round sees it.  A task whose run was lost waits again at once, as after `MachineFailed`.

Rule: a resting task is in `resting`, in its job and in `tasks`.  Its `group` is its own, which is in no job: it has
the job, the class and the data with which the task comes back.  The class counts the task.

A task with retries keeps away from the machines on which it has failed (`Shunned`).  They are part of the key
of its class, after the `PLAIN` parts.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import Any, NamedTuple

from flowsched.cluster.records import Group, TaskClass, TaskRecord, again, depart, found_group
from flowsched.cluster.views import Views

__all__ = ["PLAIN", "Attempts", "Membership"]

PLAIN = 9
"""Number of parts of a class's key if its tasks shun no machine."""

_MOST_DOUBLINGS = 5
"""Largest number of doublings of a task's first back-off."""


class Attempts(NamedTuple):
    """Retries of a task.

    Parameters
    ----------
    left : int
        Number of further failures after which it starts again.
    backoff : float
        Length of the rest after its first failure.
    failed_on : tuple of hashable
        Machines on which it failed, in order.
    """

    left: int
    backoff: float
    failed_on: tuple[Hashable, ...] = ()

    def rest(self) -> float:
        """Return the length of the rest after the last failure."""
        return self.backoff * float(1 << min(len(self.failed_on) - 1, _MOST_DOUBLINGS))


class Membership(Views):
    """Part of a cluster that groups equal tasks.

    Attributes
    ----------
    jobs : dict of job id to JobRecord
    by_class : dict of int to TaskClass
    attempts : dict of task id to Attempts
        Attempts of all tasks with `Task.retries`.
    resting : dict of task id to float or None
        End of the back-off; None until a round sets the time, infinity until the task's run has stopped.
    midway : bool
        True in the middle of a change.
    """

    # -- classes and groups -------------------------------------------------------------------------------------

    def _new_class(self, cls: TaskClass) -> TaskClass:
        """Give a class an index."""
        inventory = self.inventory
        cls.index = inventory.add_class(cls.demand, cls.constraints, cls.priority, cls.tolerations)
        inventory.affinity.add_class(cls.index, cls.kind, cls.key[6], cls.key[8])
        if len(cls.key) > PLAIN:
            inventory.shunned.add_class(cls.index, cls.key[PLAIN])
            self._review()
        self._classes[cls.key] = self.by_class[cls.index] = cls
        return cls

    def _class_like(self, cls: TaskClass, key: tuple[Any, ...]) -> TaskClass:
        """Return the class of this key; a new one is otherwise equal to the given one."""
        like = cls.demand, cls.constraints, cls.priority, cls.kind, cls.prefers, cls.tolerations
        return self._classes.get(key) or self._new_class(TaskClass(-1, key, *like))

    def _review(self) -> None:
        """Check if classes still have a choice without the machines that they shun."""
        if self.inventory.shunned.in_use:
            self.inventory.review({id: record.row for id, record in self.machines.items()})

    def _come_back(self, tasks: list[TaskRecord], now: float | None) -> None:
        """Return resting tasks to their queues, in this order."""
        for task in tasks:
            del self.resting[task.id]
            own = task.group
            task.group = own.job.group_of(own.key) or found_group(self, own)
            task.group.tasks += 1
            again(self, task, now)

    # -- retries ------------------------------------------------------------------------------------------------

    def _retry(self, task: TaskRecord, machine: Hashable, time: float | None) -> bool:
        """Put a waiting task that failed on the machine to rest, and make it shun the machine; False if no retries are left."""
        attempts = self.attempts.get(task.id)
        if attempts is None:
            return True
        if not attempts.left:
            return False
        attempts = Attempts(attempts.left - 1, attempts.backoff, (*attempts.failed_on, machine))
        self.attempts[task.id] = attempts
        was = task.group.cls
        key = (*was.key[:PLAIN], frozenset(attempts.failed_on))
        cls = self._class_like(was, key)
        self._rest(task, cls, None if time is None else time + attempts.rest())
        if not attempts.backoff:
            self._come_back([task], time)
        return True

    def _rest(self, task: TaskRecord, cls: TaskClass, due: float | None) -> None:
        """Put a waiting task to rest; it comes back in the given class."""
        old = task.group
        self._idle.pop(cls.key, None)
        cls.tasks += 1
        depart(self, task)
        task.group = Group(old.job, cls, 0, old.data)
        self.resting[task.id] = due

    @property
    def back_at(self) -> float:
        """Earliest known time at which a resting task waits again; infinite without one."""
        return min((due for due in self.resting.values() if due is not None), default=inf)

    def _end_rests(self, now: float) -> None:
        """End the rests whose back-off is over; the back-offs without an end begin now."""
        for id, due in self.resting.items():
            if due is None:
                self.resting[id] = now + self.attempts[id].rest()
        over = [self.tasks[id] for id, due in self.resting.items() if due is not None and due <= now]
        if over:
            midway, self.midway = self.midway, True
            self._come_back(sorted(over, key=lambda task: (self.resting[task.id], task.turn)), now)
            self.midway = midway
