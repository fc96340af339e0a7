"""Gangs: jobs of which at least a given number of tasks run at the same time, or none (`Job.gang`).

The flow sees single tasks, so a gang may get fewer than it needs.  Then the round is taken back and decided again:
first with the gangs that fell short treated as the oldest of their priority (the highest price that a gang may cost),
and finally without them, so that others get their room in the same round.  A failed attempt leaves no trace, evictions
included.

A gang is also left out before any attempt if its claimant's quota is too small for it even after worse tasks have stopped.

If several gangs are in each other's way, the better half goes on at a time.  Gangs that were set aside for a gang that
then falls short even alone come back.  A gang is better by priority, then by age.  Otherwise a gang that is urged
because it lacks its last places would overtake the older ones, round after round.

A gang that fell short is left out of the next rounds until something changes: an event, a commit, another
policy, or an effect of time alone.  Two kinds of gangs are left out before any attempt: gangs for which even the empty
cluster is too small, and gangs that lack tasks.  When a gang has fallen short, all gangs with too little room now are
left out, unless other tasks may make room.

At the end, gangs start that the flow could not start: in room kept for them, and as backfill (`flowsched.rounds.backfill`).

A running gang that others push below its size stops as a whole.

The attempts end.  Each one urges gangs that were not urged, sets some aside, or leaves one out for good, and only then
do the gangs that were set aside come back.  The last step ends, too: some tasks of a stopped gang can only come
back when the tasks that displaced them stop for still better ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flowsched.cluster.records import Group, JobRecord, TaskRecord
from flowsched.rounds.admission import AdmissionCheck

__all__ = ["Gangs"]


class Gangs:
    """Gangs of one round.

    Parameters
    ----------
    check : AdmissionCheck

    Attributes
    ----------
    out : dict of JobRecord
        Gangs that are left out.
    """

    def __init__(self, check: AdmissionCheck) -> None:
        self.check, self.scope, self.builder = check, check.scope, check.builder
        self._urged: dict[JobRecord, None] = {}
        self._aside: dict[JobRecord, None] = {}
        builder = self.builder
        self.out: dict[JobRecord, None] = {group.job: None for group in builder.left_out}
        self._looked = False
        if not builder.gangs():
            return
        suitability = builder.cluster.inventory.suitability
        if builder.cluster.inventory.rule is None:  # a rule may admit more than the demands
            self._leave_out_where_short(
                lambda group: suitability.most(group.cls.index) - group.tasks + len(group.waiting)
            )
        if builder.quotas is not None:
            quotas, stops = builder.quotas, builder.policy.preemption is not None
            self._leave_out_where_short(quotas.most_instead if stops else quotas.most)

    def _leave_out_where_short(self, room: Callable[[Group], int]) -> None:
        """Leave out gangs with too little room in any case, since trying a queue of them would slow down every round."""
        for job in self.builder.gangs():
            most = sum(group.tasks - max(len(group.waiting) - max(room(group), 0), 0) for group in _groups(job))
            if most < job.gang_size and job not in self.out:
                self.out[job] = None
                self._leave_out(job, until_change=True)

    def _leave_out(self, job: JobRecord, until_change: bool) -> None:
        if self.builder.policy.fairness is not None and self._looked and job not in self._aside:
            self.note_bounds(job)
        for group in _groups(job):
            self.scope.leave_out(group, until_change)

    def note_bounds(self, job: JobRecord) -> None:
        """Record the number of tasks of a claiming gang that the shares let run, see `Builder.entitles`."""
        self.builder.reservations.entitled[job] = self.builder.shares.bounds(job)

    def settled(self, late: bool) -> bool:
        """Return True if every gang runs whole or not at all; if not, prepare the round to be decided again.

        Parameters
        ----------
        late : bool
            True if there is no time to decide again: a round in which a gang fell short is taken back as a whole.
        """
        groups = (task.group for task in self.check.transaction.before)
        touched = dict.fromkeys(group.job for group in groups if group.job.job.gang is not None)
        starting = [job for job in touched if self._starting(job)]
        short = [job for job in starting if job.running < job.gang_size]
        whole = [job for job in starting if job.running >= job.gang_size]
        if not short:
            short = [job for job in self._urged if self._overtaken(job, whole)]
        if short:
            self.check.take_back()
            if late:
                self.out.update(dict.fromkeys(short))
                return True
            self._give_way(short, whole)
            return False
        for job in self._aside:  # until then the result would be the same
            self._leave_out(job, until_change=True)
        broken = [job for job in touched if self._victims(job) and 0 < job.running < job.gang_size]
        for job in broken:
            self._stop(job)
        return late or not broken

    def _starting(self, job: JobRecord) -> bool:
        before = self.check.transaction.before
        return any(task.place is not None and task in before and before[task].place is None for task in job.tasks)

    def _overtaken(self, job: JobRecord, whole: list[JobRecord]) -> bool:
        """Return True if a gang gets nothing while a gang of worse standing starts."""
        waits = job not in self.out and job.running < job.gang_size
        return waits and any(_standing(other) > _standing(job) for other in whole)

    def _victims(self, job: JobRecord) -> list[TaskRecord]:
        return [task for task in job.tasks if task in self.check.evicted_for and task.place is None]

    def _give_way(self, short: list[JobRecord], whole: list[JobRecord]) -> None:
        """Urge gangs not yet urged; otherwise set aside the worse half of them, and leave out a single one.

        A whole gang of better standing is not affected, but an urged one must not overtake it.
        """
        if not self._looked:  # at the room before the round
            self._looked = True
            self._leave_out_where_short(self._room_now())
        short = [job for job in short if job not in self.out]
        if not short:
            return
        fresh = [job for job in short if job not in self._urged]
        last = max(map(_standing, short))
        for job in fresh + [job for job in whole if fresh and job not in self._urged and _standing(job) < last]:
            self._urged[job] = None
            self.scope.urge(_groups(job))
        if fresh:
            return
        first = min(map(_standing, short))
        short = sorted(short + [job for job in whole if _standing(job) > first], key=_standing)
        alone = len(short) == 1
        for job in short[len(short) // 2 :]:
            self.out[job] = None
            self._leave_out(job, until_change=alone)
        if not alone:
            self._aside.update(dict.fromkeys(short[len(short) // 2 :]))
            return
        for job in self._aside:
            del self.out[job]
            for group in _groups(job):
                self.scope.release(group)
        self._aside.clear()

    def _room_now(self) -> Callable[[Group], int]:
        """Return a function: the tasks of a group that can start if no others do; all of them if others may make room."""
        cluster, policy = self.check.cluster, self.builder.policy
        worst = cluster.inventory.worst_running() if policy.preemption is not None else None
        reclaims = policy.fairness is not None and policy.fairness.reclaim
        known: dict[int, int] = {}

        def room(group: Group) -> int:
            cls = group.cls
            if reclaims or (worst is not None and worst > cls.priority) or not group.waiting:
                return group.tasks
            if cls.index not in known:
                known[cls.index] = int(cluster.fits(group.waiting[0].id).sum())
            return known[cls.index]

        return room

    def _stop(self, job: JobRecord) -> None:
        """Stop the rest of a gang that was displaced below its size, for the same task."""
        self.out[job] = None
        cause = self.check.evicted_for[self._victims(job)[0]]
        for task in list(job.tasks):
            if task.place is not None:
                self.check.evict(task, cause)
        for group in _groups(job):
            self.scope.withhold(group)


def _standing(job: JobRecord) -> tuple[int, int]:
    """Return priority and age; lower values are better."""
    return job.job.priority, min(task.turn for task in job.tasks)


def _groups(job: JobRecord) -> Iterable[Group]:
    return job.each_group()
