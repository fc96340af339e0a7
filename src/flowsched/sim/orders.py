"""Orders of waiting tasks, and the shares of jobs and users that some of them go by."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import Cluster
from flowsched.cluster.records import Group

Floats = NDArray[np.float64]
Key = tuple[float, ...]


class Shares:
    """Allocations of jobs and users, as fractions of the cluster by resource; counted when first asked for."""

    def __init__(self, cluster: Cluster) -> None:
        self.resources = cluster.resources.names
        inventory = cluster.inventory
        total = (
            inventory.capacity[: inventory.rows][inventory.suitability.of[: inventory.rows] >= 0]
            .sum(axis=0)
            .astype(np.float64)
        )
        self._scale: Floats = np.divide(1.0, total, out=np.zeros(len(total)), where=total > 0)
        self._cluster = cluster
        self._counted = False
        self._nothing: Floats = np.zeros(len(total))
        self._nothing.flags.writeable = False
        self._job: dict[Hashable, Floats] = {}
        self._user: dict[Hashable, Floats] = {}

    def add(self, group: Group, tasks: int = 1) -> None:
        """Count further running tasks of a group."""
        if self._counted:
            self._add(group, tasks)

    def _count(self) -> None:
        """Count the running tasks, once."""
        if not self._counted:
            self._counted = True
            for job in self._cluster.jobs.values():
                for group in job.each_group():
                    if running := group.tasks - len(group.waiting):
                        self._add(group, running)

    def _add(self, group: Group, tasks: int) -> None:
        job = group.job.job
        part = group.cls.demand * self._scale * tasks
        for owners, owner in ((self._job, job.id), (self._user, job.user)):
            owners[owner] = owners[owner] + part if owner in owners else part

    def job(self, group: Group) -> Floats:
        """Return the fractions that the group's job has."""
        self._count()
        return self._job.get(group.job.job.id, self._nothing)

    def of_user(self, user: Hashable) -> Floats:
        """Return the fractions that a user has."""
        self._count()
        return self._user.get(user, self._nothing)


Order = Callable[[Group, Shares], Key]
"""Order of groups: the least key is next.

Called again after each placement; it must not change anything.  The start of a task must not lower the key of another group.
"""


class OfOwners:
    """An `Order` whose keys begin with that of an owner of groups: the start of a task changes one owner's key only.

    The key of `within` changes only where tasks of the same job start.
    """

    def owner(self, group: Group) -> Hashable:
        """Return the owner of a group."""
        return group.job.job.user

    def of_owner(self, owner: Hashable, shares: Shares) -> Key:
        """Return the key of an owner."""
        raise NotImplementedError

    def within(self, group: Group, shares: Shares) -> Key:
        """Return the key of a group among those of its owner."""
        return (group.job.serial,)

    def __call__(self, group: Group, shares: Shares) -> Key:
        """See `Order`."""
        return self.of_owner(self.owner(group), shares) + self.within(group, shares)


def fifo(group: Group, shares: Shares) -> Key:
    """Order by arrival of the job."""
    return (group.job.serial,)


def sjf(group: Group, shares: Shares) -> Key:
    """Order by the estimated run time of the next task (`Task.duration`), then by arrival of the job."""
    return (group.waiting[0].duration, group.job.serial)


@dataclass(frozen=True)
class _BySize(OfOwners):
    """Order by the size of the user's part of the cluster, then of the job's."""

    size: Callable[[Floats, Shares], float]

    def of_owner(self, owner: Hashable, shares: Shares) -> Key:
        return (float(self.size(shares.of_user(owner), shares)),)

    def within(self, group: Group, shares: Shares) -> Key:
        return float(self.size(shares.job(group), shares)), group.job.serial


fair = _BySize(lambda part, shares: part[_main(shares)])
"""Order by the fraction of memory (or the last resource) of the user, then of the job, as in YARN's default."""

drf = _BySize(lambda part, shares: part.max())
"""Order by the dominant share of the user, then of the job (DRF)."""


@dataclass(frozen=True)
class capacity(OfOwners):
    """Order by the used fraction of the queue's part, then by arrival of the job.

    Parameters
    ----------
    queue_of : mapping of user to queue
        A user without an entry is a queue of its own.
    parts : mapping of queue to float
        1 for a queue without an entry.
    """

    queue_of: Mapping[Hashable, Hashable]
    parts: Mapping[Hashable, float]

    def owner(self, group: Group) -> Hashable:
        """Return the queue of a group's user."""
        user = group.job.job.user
        return self.queue_of.get(user, user)

    def of_owner(self, owner: Hashable, shares: Shares) -> Key:
        """Return the used fraction of a queue's part."""
        members = [user for user, queue in self.queue_of.items() if queue == owner] or [owner]
        used = sum(float(shares.of_user(user)[_main(shares)]) for user in members)
        return (used / self.parts.get(owner, 1.0),)


def _main(shares: Shares) -> int:
    return shares.resources.index("mem") if "mem" in shares.resources else len(shares.resources) - 1


class Turns:
    """Groups of which the one with the least key is next, by owner; keys may grow in between.

    Every heap holds a key of each of its members that is no larger than its present one, so one that is up to date is the
    least.  The key of an owner is followed by that of its next group: owners with equal shares take turns by their groups.
    """

    def __init__(self, order: Order, groups: list[Group], shares: Shares) -> None:
        self._shares = shares
        self._groups = groups
        self._of_owner: Callable[[Hashable, Shares], Key]
        self._within: Order
        if isinstance(order, OfOwners):
            self._of_owner, self._within, owner = order.of_owner, order.within, order.owner
        else:
            self._of_owner, self._within, owner = _no_key, order, _nothing
        heaps: dict[Hashable, list[tuple[Key, int]]] = defaultdict(list)
        for i, group in enumerate(groups):
            heaps[owner(group)].append((self._within(group, shares), i))
        self._owners = list(heaps)
        self._heaps = list(heaps.values())
        for heap in self._heaps:
            heapq.heapify(heap)
        self._next = [(self._key(o), o) for o in range(len(self._owners))]
        heapq.heapify(self._next)

    def next(self, over: Callable[[Group], bool], done: Callable[[], bool]) -> Group | None:
        """Return the group with the least key, None without any; groups that are `over` leave, all when it is `done`."""
        while self._next and not done():
            key, o = self._next[0]
            heap = self._heaps[o]
            while heap:
                known, i = heap[0]
                group = self._groups[i]
                if over(group):
                    if done():
                        return None
                    heapq.heappop(heap)
                elif (present := self._within(group, self._shares)) != known:
                    heapq.heapreplace(heap, (present, i))
                else:
                    break
            if not heap:
                heapq.heappop(self._next)
            elif (now := self._key(o)) != key:
                heapq.heapreplace(self._next, (now, o))
            else:
                return group
        return None

    def leave(self) -> None:
        """Remove the group that `next` has returned."""
        heapq.heappop(self._heaps[self._next[0][1]])

    def _key(self, o: int) -> Key:
        return self._of_owner(self._owners[o], self._shares) + self._heaps[o][0][0]


def _no_key(owner: Hashable, shares: Shares) -> Key:
    return ()


def _nothing(group: Group) -> Hashable:
    return None
