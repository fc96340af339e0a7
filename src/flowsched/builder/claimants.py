"""Claimants: the jobs, or their users, that share a cluster, and their nodes in the network.

::

    U_job ----------------------> S                          jobs claim
    U_job ------> V_user -------> S                          users claim, and their jobs share what they get

Each arrow is a bundle of arcs (see `unscheduled`).  A job has both ways once users have claimed; the unused way is
closed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from flowsched.builder import _shares
from flowsched.builder.batch import KeptArcs, NetworkBatch
from flowsched.builder.unscheduled import UnscheduledArcs
from flowsched.cluster.columns import Columns, IdPool, column, view
from flowsched.cluster.records import JobRecord
from flowsched.network.results import INF

__all__ = ["Claimants"]

Ints = NDArray[np.int64]

_N = TypeVar("_N", np.int64, np.float64)


class Claimants(Columns):
    """Jobs and users with their bundles, and the switch between them as claimants.

    Parameters
    ----------
    batch : NetworkBatch
    sink : int
        Node that all waiting tasks reach in the end.

    Attributes
    ----------
    unscheduled : UnscheduledArcs
    index : dict of JobRecord to int
        Index of each job in arrays by job.
    members : list of list of JobRecord
        Jobs of each claimant, in order of arrival; this and the next are as of the last call of `ids`.
    jobs : ndarray of int64
        Indices of all jobs, in order of arrival.
    """

    _to_sink: Ints = column("jobs", fill=-1)
    """Bundle from the job to the sink; at an index without one, the arrays below have their initial values."""
    _to_sink_view: memoryview = view("_to_sink")
    _to_user: Ints = column("jobs", fill=-1)
    """Bundle from the job to its user, -1 before users claim."""
    _to_user_view: memoryview = view("_to_user")
    of: Ints = column("jobs", fill=-1)
    """Number of the job's claimant, as of the last call of `ids`."""
    _user_to_sink: Ints = column("users", fill=-1)
    """Bundle from the user to the sink."""

    def __init__(self, batch: NetworkBatch, sink: int) -> None:
        super().__init__()
        self.batch = batch
        self.sink = sink
        self.unscheduled = UnscheduledArcs(batch)
        self.index: dict[JobRecord, int] = {}
        self._indices = IdPool()
        self._users: dict[Hashable, tuple[int, int]] = {}
        """Index and node of each user with a way over it."""
        self._jobs_of: dict[Hashable, int] = {}
        """Number of jobs by user in `_users`; never 0."""
        self._user_indices = IdPool()
        self._users_claim = False
        self._apart: dict[JobRecord, None] = {}
        """Jobs without a way over a user."""
        self._ids: tuple[Hashable, ...] | None = None
        """Claimants; None if the attributes below are out of date."""
        self._at: Ints = np.zeros(0, np.int64)
        """Index of each claimant among users or jobs."""
        self.members: list[list[JobRecord]] = []
        self.jobs: Ints = np.zeros(0, np.int64)

    @property
    def room(self) -> int:
        """Length of arrays by job."""
        return self._indices.count

    def add(self, jobs: Sequence[JobRecord], nodes: Sequence[int], arcs: Sequence[int]) -> None:
        """Add new jobs, with their nodes and the arcs from these to the sink."""
        bundles = self.unscheduled.add(nodes, [self.sink] * len(jobs), arcs)
        for job, bundle in zip(jobs, bundles, strict=True):
            index = self.index[job] = self._indices.take()
            if index >= len(self._to_sink):
                self.grow(jobs=index + 1)
            self._to_sink_view[index] = bundle
            self._apart[job] = None
        self._ids = None

    def forget(self, job: JobRecord) -> list[int]:
        """Forget a job; return the nodes that go with it, for removal."""
        index = self.index.pop(job)
        self._ids = None
        self._indices.give(index)
        self.unscheduled.forget(self._to_sink_view[index])
        if self._to_user_view[index] < 0:
            del self._apart[job]
            return []
        self.unscheduled.forget(int(self._to_user[index]))
        self._to_user[index] = -1
        user = job.job.user
        self._jobs_of[user] -= 1
        if self._jobs_of[user]:
            return []
        at, node = self._users.pop(user)
        del self._jobs_of[user]
        self.unscheduled.forget(int(self._user_to_sink[at]))
        self._user_indices.give(at)
        return [node]

    def switch(self, users: bool) -> None:
        """Remove all bounds, and open or close the way over users."""
        jobs = np.array(list(self.index.values()), np.int64)
        to_users = self._to_user[jobs]
        to_users = to_users[to_users >= 0]
        self.unscheduled.free(self._user_to_sink[[at for at, _ in self._users.values()]])
        if users:
            self.unscheduled.close(self._to_sink[jobs])
            self.unscheduled.free(to_users)
        else:
            self.unscheduled.free(self._to_sink[jobs])
            self.unscheduled.close(to_users)
        self._users_claim, self._ids = users, None

    def lead_over_users(self) -> None:
        """Add a way over its user's node for every job, if users claim."""
        if not (self._users_claim and self._apart):
            return
        jobs, self._apart = list(self._apart), {}
        new = list(dict.fromkeys(job.job.user for job in jobs if job.job.user not in self._users))
        nodes = self.batch.new_nodes(len(new))
        bundles = self.unscheduled.add(nodes, [self.sink] * len(new))
        self.unscheduled.open(np.array(bundles, np.int64), INF)
        for user, node, bundle in zip(new, nodes, bundles, strict=True):
            at = self._user_indices.take()
            self.grow(users=at + 1)
            self._user_to_sink[at] = bundle
            self._users[user] = at, node
            self._jobs_of[user] = 0
        index = np.array([self.index[job] for job in jobs], np.int64)
        to_sink = self._to_sink[index]
        tails = self.unscheduled.tail[to_sink].tolist()
        heads = [self._users[job.job.user][1] for job in jobs]
        to_users = np.array(self.unscheduled.add(tails, heads), np.int64)
        self._to_user[index] = to_users
        for job in jobs:
            self._jobs_of[job.job.user] += 1
        self.unscheduled.open(to_sink, 0)
        self.unscheduled.open(to_users, INF)

    # -- numbers of the claimants -------------------------------------------------------------------------------

    def ids(self) -> tuple[Hashable, ...]:
        """Return the claimants in order of arrival; the methods below use the order of the last call."""
        if self._ids is None:
            self._ids, self.members, self.jobs = _shares.ranked(self.index, self._users_claim, self.of)
            at = [self._users[user][0] for user in self._ids] if self._users_claim else self.jobs
            self._at = np.array(at, np.int64)
        return self._ids

    def number(self, job: JobRecord) -> int:
        """Return the number of a job's claimant."""
        return int(self.of[self.index[job]])

    def bundles(self) -> Ints:
        """Return the bundle of each claimant to the sink."""
        return (self._user_to_sink if self._users_claim else self._to_sink)[self._at]

    def bundles_to_users(self, jobs: Ints) -> Ints:
        """Return the bundles from jobs (by index) to their users."""
        return self._to_user[jobs]

    def total(self, of_jobs: NDArray[_N]) -> NDArray[_N]:
        """Sum numbers of jobs by claimant."""
        total = np.zeros((len(self._at), *of_jobs.shape[1:]), of_jobs.dtype)
        np.add.at(total, self.of[self.jobs], of_jobs[self.jobs])
        return total

    def kept_arcs(self) -> Iterator[KeptArcs]:
        """Yield the arcs kept by this part, with their ends."""
        return self.unscheduled.kept_arcs()
