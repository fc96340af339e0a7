"""Fair shares in the network: bounds and prices on how many tasks of a job, or of a user, wait.

::

           base: lower L, price P                 over users:       base, ease, rungs
    U_job ----------------------> S         U_job ------------> V_user ------------> S
           ease: capacity H - L, free
           rungs: one per step of a ladder, each dearer than the one before it

With N tasks of which A are entitled to run, at least ``L = N - A`` wait and no more than ``H = N - A`` should: each task
that waits beyond H costs P.  What runs already is never stopped by a bound, so L is at most what waits, and every bound
can be met.  A ladder has no bounds; there the tasks that wait first cost least, those that leave one with little most.

Numbers are kept in arrays over outlets, and only those that differ go to the network.  Nodes and arcs stay when the
policy changes: what it does not use has capacity 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.batch import NetworkBatch
from flowsched.builder.claimants import Claimants
from flowsched.builder.job_counts import JobCounts, jobs_with
from flowsched.builder.ladder import LadderPosition
from flowsched.cluster.columns import grown
from flowsched.cluster.records import Group, JobRecord
from flowsched.cluster.state import Cluster
from flowsched.network.flow_network import FlowNetwork
from flowsched.policy import Policy
from flowsched.policy.fairness import Fairness
from flowsched.policy.providers import Claims

__all__ = ["Shares"]

Ints = NDArray[np.int64]


class Shares:
    """Keeps the bounds of jobs and users as a policy wants them.

    Parameters
    ----------
    cluster : Cluster
    network : FlowNetwork
    edits : Edits
    sink : int
        Node that all waiting tasks reach in the end.
    """

    def __init__(self, cluster: Cluster, network: FlowNetwork, edits: NetworkBatch, sink: int) -> None:
        self.cluster = cluster
        self._who = Claimants(network, edits, sink)
        self._tally = JobCounts(cluster)
        self._fairness: Fairness | None = None
        self._policy: Policy | None = None
        self._fresh = True
        self._aside: dict[Hashable, None] = {}
        self._stale: dict[JobRecord, None] = {}
        self._claims: Claims | None = None
        self._share: Ints = np.zeros(0, np.int64)
        self._within: Ints = np.zeros(8, np.int64)
        self._rungs: Ints = np.zeros((0, 0), np.int64)
        self._most: Ints = np.zeros(0, np.int64)
        self._allowed: Ints = np.zeros(0, np.int64)
        self._most_within: Ints = np.zeros(8, np.int64)
        self._allowed_within: Ints = np.zeros(8, np.int64)
        self._full: NDArray[np.bool_] = np.zeros(0, np.bool_)

    def add(self, jobs: Sequence[JobRecord], nodes: Sequence[int], arcs: Sequence[int]) -> None:
        """Jobs are new, with their nodes and the arcs from these to the sink."""
        if not jobs:
            return
        self._who.add(jobs, nodes, arcs)
        self._tally.grow(self._who.room)
        for name in ("_within", "_most_within", "_allowed_within"):
            setattr(self, name, grown(getattr(self, name), self._who.room))
        self._stale.update(dict.fromkeys(jobs))

    def forget(self, job: JobRecord) -> list[int]:
        """A job is gone; nodes that go with it."""
        self._stale.pop(job, None)
        return self._who.forget(job)

    def waive(self, group: Group) -> None:
        """The waiting tasks of a group may not start and claim nothing: others get what they would have had."""
        self._tally.waived[group] = None
        self._stale[group.job] = None
        self._fresh = True

    def claim(self, group: Group) -> None:
        """They claim their share again."""
        if group in self._tally.waived:
            del self._tally.waived[group]
            self._stale[group.job] = None
            self._fresh = True

    def deal_on(self, proposed: bool) -> bool:
        """Whether a provider that deals gradually has more to deal in this round; the next update then asks it again.

        Parameters
        ----------
        proposed : bool
            Whether the flow has let anything start since the last time.  If not, nobody was in the way of those who run
            less than their share: they stand aside, so that others get what they cannot use.
        """
        if not self._gradual or self._claims is None or self._fairness is None:
            return False
        if not proposed:
            running = self._who.total(self._tally.tasks - self._tally.waiting)
            short = np.flatnonzero(self._share > running).tolist()
            self._aside.update(dict.fromkeys(self._claims.ids[i] for i in short))
            if not short:
                return False
        self._fresh = True
        return True

    @property
    def _gradual(self) -> bool:
        fairness = self._fairness
        return fairness is not None and fairness.mode != "ladder" and getattr(fairness.share, "gradual", False)

    def end_round(self) -> None:
        """Entitlements hold for one round; the next update works them out anew."""
        self._fresh = True
        self._aside.clear()

    def update(
        self, touched: Iterable[JobRecord], policy: Policy, with_room: Callable[[Sequence[int]], Collection[int]]
    ) -> None:
        """Bring the bounds up to date with the counts of these jobs and with the policy.

        Parameters
        ----------
        touched : iterable of JobRecord
        policy : Policy
        with_room : function
            Those of some classes, by index, for which a machine has room now.
        """
        fairness = policy.fairness
        if fairness is not self._fairness:
            self._switch(fairness)
        if fairness is None:
            self._stale.clear()
            return
        self._stale.update(dict.fromkeys(touched))
        if self._fresh:
            roomy = with_room([cls.index for cls in self.cluster.waiting]) if self._gradual else None
            self._stale.update(dict.fromkeys(jobs_with(self._tally.look(roomy), self._who.index)))
        changed = bool(self._stale) or self._claims is None or policy is not self._policy
        self._policy = policy
        self._recount(self._stale)
        self._stale.clear()
        if not self._who.index:
            self._claims = None
            return
        self._who.climb()
        if self._fresh:
            changed |= self._entitle(fairness, changed)
            self._fresh = False
        if changed:
            self._bound(fairness, policy)

    def excess(self, changed: Iterable[JobRecord]) -> list[tuple[list[JobRecord], int]]:
        """Claimants of whom more tasks run now than may, as jobs, with how many too many.

        A flow keeps the bounds by letting a better task start where a worse one of the same claimant stops, on whatever
        machine that is.  Somebody has to stop it.

        Parameters
        ----------
        changed : iterable of JobRecord
            Whose tasks have started or stopped since the last update.
        """
        fairness = self._fairness
        if fairness is None or self._claims is None:
            return []
        jobs = list(changed)
        self._recount(jobs)
        found: list[tuple[list[JobRecord], int]] = []
        if fairness.within is not None:
            index = np.array([self._who.index[job] for job in jobs], np.int64)
            over = self._tally.running(index) - self._allowed_within[index]
            found += [([job], more) for job, more in zip(jobs, over.tolist(), strict=True) if more > 0]
        over = self._who.total(self._tally.tasks - self._tally.waiting) - self._allowed
        if (over > 0).any():
            members = self._who.members()
            found += [(members[i], int(over[i])) for i in np.flatnonzero(over > 0).tolist()]
        return found

    def imbalance(
        self, changed: Iterable[JobRecord]
    ) -> tuple[list[tuple[list[JobRecord], int]], dict[JobRecord, int], dict[int, int]]:
        """Who runs less than its share though it has tasks, and who runs more.

        Parameters
        ----------
        changed : iterable of JobRecord
            Whose tasks have started or stopped since the last update.

        Returns
        -------
        short : list of (list of JobRecord, int)
            Claimants as jobs, with how many tasks they lack; who lacks the largest part first.
        owner : dict of JobRecord to int
            Jobs of those who run more, with a number of the claimant.
        surplus : dict of int to int
            By that number, how many tasks more.
        """
        fairness = self._fairness
        if fairness is None or self._claims is None:
            return [], {}, {}
        self._recount(changed)
        tasks, waiting = (self._who.total(counts) for counts in (self._tally.tasks, self._tally.waiting))
        lack = np.minimum(self._share - (tasks - waiting), waiting)
        members = self._who.members()
        order = np.argsort(-lack / np.maximum(self._share, 1), kind="stable").tolist()
        short = [(members[i], int(lack[i])) for i in order if lack[i] > 0]
        surplus = {i: int(-lack[i]) for i in order if lack[i] < 0}
        owner = {job: i for i in surplus for job in members[i]}
        return short, owner, surplus

    def report(self, touched: Iterable[JobRecord]) -> tuple[Fairness, Claims, Ints, Ints] | None:
        """Return fairness, claims, entitled and running tasks by claimant once these jobs have changed; None without fairness."""
        self._full = np.zeros(0, np.bool_)
        if self._fairness is None or self._claims is None:
            return None
        self._recount(dict.fromkeys(touched))
        running = self._who.total(self._tally.tasks - self._tally.waiting)
        self._note_full(self._fairness, running >= self._most)
        return self._fairness, self._claims, self._share, running

    def climb(self) -> LadderPosition | None:
        """Where everybody stands, as of the last update; None if they all stand on one rung."""
        fairness = self._fairness
        if fairness is None or self._claims is None or not self._rungs.shape[1]:
            return None
        running = self._who.total(self._tally.tasks - self._tally.waiting)
        return LadderPosition(self._who.number, running.tolist(), self._rungs)

    def full(self, job: JobRecord) -> bool:
        """Whether, as of the last report, the bounds of the job or of its user let none of its tasks start."""
        index = self._who.index.get(job, -1)
        return 0 <= index < len(self._full) and bool(self._full[index])

    def _note_full(self, fairness: Fairness, full: NDArray[np.bool_]) -> None:
        jobs = self._who.jobs()
        self._full = np.zeros(self._who.room, np.bool_)
        self._full[jobs] = self._who.of_jobs(jobs, full)
        if fairness.within is not None:
            self._full[jobs] |= self._tally.running(jobs) >= self._most_within[jobs]

    def _switch(self, fairness: Fairness | None) -> None:
        """Another policy: all bounds off."""
        self._who.switch(fairness is not None and fairness.over == "user")
        self._stale.update(dict.fromkeys(self._who.index))
        self._fairness, self._fresh = fairness, True

    def _recount(self, jobs: Iterable[JobRecord]) -> None:
        """Bring the counts of jobs up to date."""
        self._tally.recount((job, self._who.index[job]) for job in jobs if job in self._who.index)

    # -- entitlements -------------------------------------------------------------------------------------------

    def _entitle(self, fairness: Fairness, changed: bool) -> bool:
        """Work entitlements out anew; False if nothing that they depend on is other than before."""
        ids = self._who.ids()
        old = self._claims
        claims = self._tally.claims(ids, self._weights(fairness, ids), self._who.total, self._aside)
        if (
            not changed
            and old is not None
            and not (hasattr(fairness.share, "committed") or self._gradual)
            and (old.units, old.ids) == (claims.units, ids)
            and np.array_equal(old.weight, claims.weight)
            and np.array_equal(old.capacity, claims.capacity)
        ):
            return False
        self._claims = claims
        self._share = _entitled(fairness, claims)
        if fairness.within is not None:
            self._share_within(fairness)
            if self._gradual:
                # What a share lets start may ask for more, or less, than what waits does in the mean.
                self._claims = self._tally.narrowed(claims, self._within, self._who.total)
                self._share = _entitled(fairness, self._claims)
                self._share_within(fairness)
        return True

    def _weights(self, fairness: Fairness, ids: Sequence[Hashable]) -> list[float]:
        known = self.cluster.users if fairness.over == "user" else {}
        quotas = [float(known[who].quota) if who in known else 1.0 for who in ids]
        return [fairness.weights.get(who, quota) for who, quota in zip(ids, quotas, strict=True)]

    def _share_within(self, fairness: Fairness) -> None:
        """What each job is entitled to of its user's share."""
        assert fairness.within is not None
        for (jobs, ids), units in zip(self._who.families(), self._share.tolist(), strict=True):
            tasks = self._tally.tasks[jobs] - self._tally.infeasible[jobs]
            weight = (
                np.array([fairness.weights.get(who, 1.0) for who in ids]) if fairness.weights else np.ones(len(ids))
            )
            self._within[jobs] = fairness.within(Claims(ids, tasks, self._tally.running(jobs), units, weight))

    # -- bounds -------------------------------------------------------------------------------------------------

    def _bound(self, fairness: Fairness, policy: Policy) -> None:
        assert self._claims is not None
        tasks, waiting = (self._who.total(counts) for counts in (self._tally.tasks, self._tally.waiting))
        at, outlets = self._who.tops(), self._who.outlets
        least, most = fairness.minima(self._claims.ids), fairness.maxima(self._claims.ids)
        if fairness.mode == "ladder":
            self._most = most
            claims = self._claims
            step = policy.fair_step
            self._rungs = outlets.climb(at, tasks, waiting, least, most, claims.weight, claims.units, step)
        else:
            guaranteed = np.minimum(least, self._share)
            if fairness.mode == "hard":
                least = most = self._share
            else:
                slack = np.maximum(1, (self._share * fairness.slack).astype(np.int64))
                least = np.maximum(self._share - slack, guaranteed)
                most = np.maximum(np.minimum(self._share + slack, most), self._share)
            self._most = most
            outlets.hold(at, tasks, waiting, guaranteed, least, most, policy.fair_step)
            self._rungs = np.column_stack([guaranteed, least])
            if not guaranteed.any() and (least == most).all():
                self._rungs = np.zeros((len(least), 0), np.int64)  # all stand alike
        self._allowed = np.maximum(self._most, tasks - waiting)
        if fairness.within is not None:
            jobs = self._who.jobs()
            part = self._most_within[jobs] = self._within[jobs]
            tasks, waiting = self._tally.tasks[jobs], self._tally.waiting[jobs]
            outlets.hold(self._who.ups(jobs), tasks, waiting, np.zeros_like(part), part, part, policy.fair_step)
            self._allowed_within[jobs] = np.maximum(part, self._tally.running(jobs))


def _entitled(fairness: Fairness, claims: Claims) -> Ints:
    """Shares, and no less than what is guaranteed: they are dealt in tasks of mean size, guarantees in one's own."""
    return np.maximum(fairness.entitle(claims), np.minimum(fairness.minima(claims.ids), claims.tasks))
