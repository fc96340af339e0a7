"""All or nothing: jobs that run at least so many tasks at the same time, or none (`Job.gang`).

The flow sees single tasks, so what it proposes for a gang may fall short.  Then the round is taken back and decided again:
first with the gangs that fell short treated as the oldest of their priority (the price that a gang may cost), at last
without them, so that what they would have had goes to others in the same round.  Nothing is left of an attempt that
failed, evictions included.  Of several gangs in each other's way, the better half goes on at a time; who stood aside for
one that then falls short even alone comes back.  Better is who has the better priority, then who came first: urged for want
of the last of its places, a gang would otherwise overtake the older ones, round after round.

A gang that fell short is left out of the rounds that follow, until there are news: an event, a commit, another policy, or
something that time alone brings.

A gang for which even the empty cluster is too small, or that lacks tasks, is left out before anything is tried; and when
one has fallen short, all for which there is too little room now, where nobody may make some.

A running gang that others push below its size stops as a whole.  This ends, too: some of it can only come back when who
pushed it out has to go for somebody still better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flowsched.builder.builder import Builder
from flowsched.cluster.records import Group, JobRecord, TaskRecord
from flowsched.rounds.admission import AdmissionCheck

__all__ = ["Gangs"]


class Gangs:
    """The gangs of one round.

    Parameters
    ----------
    builder : Builder
    check : Verify
    """

    def __init__(self, builder: Builder, check: AdmissionCheck) -> None:
        self.builder = builder
        self.check = check
        self._urged: dict[JobRecord, None] = {}
        self._aside: dict[JobRecord, None] = {}
        self.out: dict[JobRecord, None] = dict.fromkeys(group.job for group in builder.left_out)
        self._looked = False
        makes = builder.cluster.inventory.makes
        if builder.cluster.inventory.rule is None:  # by which more may fit than tasks ask for
            self._leave_out_where_short(lambda group: makes.most(group.cls.index) - group.tasks + len(group.waiting))

    def _leave_out_where_short(self, room: Callable[[Group], int]) -> None:
        """Gangs for whose tasks there is too little room in any case are not tried: a queue of them would slow every round down."""
        waiting = self.builder.cluster.waiting.values()
        for job in dict.fromkeys(group.job for groups in waiting for group in groups if group.job.job.gang is not None):
            most = sum(group.tasks - max(len(group.waiting) - max(room(group), 0), 0) for group in _groups(job))
            if most < job.gang_size and job not in self.out:
                self.out[job] = None
                for group in _groups(job):
                    self.builder.leave_out(group, until_news=True)

    def settled(self, late: bool) -> bool:
        """Whether every gang runs whole or not at all; if not, the round is prepared to be decided again.

        Parameters
        ----------
        late : bool
            There is no time to decide again: a round in which a gang fell short is taken back as a whole.
        """
        touched = dict.fromkeys(
            task.group.job for task in self.check.transaction.before if task.group.job.job.gang is not None
        )
        starting = [job for job in touched if self._starting(job)]
        short = [job for job in starting if _running(job) < job.gang_size]
        whole = [job for job in starting if _running(job) >= job.gang_size]
        if not short:
            short = [job for job in self._urged if self._overtaken(job, whole)]
        if short:
            self._take_back()
            if late:
                self.out.update(dict.fromkeys(short))
                return True
            self._give_way(short, whole)
            return False
        for job in self._aside:  # until then it would be the same again
            for group in _groups(job):
                self.builder.leave_out(group, until_news=True)
        broken = [job for job in touched if self._victims(job) and 0 < _running(job) < job.gang_size]
        for job in broken:
            self._stop(job)
        return late or not broken

    def _starting(self, job: JobRecord) -> bool:
        before = self.check.transaction.before
        return any(task.place is not None and task in before and before[task].place is None for task in job.tasks)

    def _overtaken(self, job: JobRecord, whole: list[JobRecord]) -> bool:
        """Whether a gang gets nothing while one of worse standing starts."""
        waits = job not in self.out and _running(job) < job.gang_size
        return waits and any(_standing(other) > _standing(job) for other in whole)

    def _victims(self, job: JobRecord) -> list[TaskRecord]:
        return [task for task in job.tasks if task in self.check.by and task.place is None]

    def _take_back(self) -> None:
        self.check.transaction.rollback()
        self.check.by.clear()
        self.builder.places.end_round()

    def _give_way(self, short: list[JobRecord], whole: list[JobRecord]) -> None:
        """Urge those not yet urged; else let the worse half of them stand aside, and leave out one that is alone.

        Who started whole has no part in that if its standing is better, only it must not be overtaken by who is urged.
        """
        if not self._looked:  # at what there is before the round
            self._looked = True
            self._leave_out_where_short(self._room_now())
        short = [job for job in short if job not in self.out]
        if not short:
            return
        fresh = [job for job in short if job not in self._urged]
        last = max(map(_standing, short))
        for job in fresh + [job for job in whole if fresh and job not in self._urged and _standing(job) < last]:
            self._urged[job] = None
            for group in _groups(job):
                self.builder.urge(group)
        if fresh:
            return
        first = min(map(_standing, short))
        short = sorted(short + [job for job in whole if _standing(job) > first], key=_standing)
        alone = len(short) == 1
        for job in short[len(short) // 2 :]:
            self.out[job] = None
            for group in _groups(job):
                self.builder.leave_out(group, until_news=alone)
        if not alone:
            self._aside.update(dict.fromkeys(short[len(short) // 2 :]))
            return
        for job in self._aside:
            del self.out[job]
            for group in _groups(job):
                self.builder.release(group)
        self._aside.clear()

    def _room_now(self) -> Callable[[Group], int]:
        """How many tasks of a group could start with nothing else starting; without limit where others may make room."""
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
        """The rest of a gang that was pushed below its size stops for the same task."""
        self.out[job] = None
        by = self.check.by[self._victims(job)[0]]
        for task in list(job.tasks):
            if task.place is not None:
                self.check.transaction.stop(task)
                self.check.by.setdefault(task, by)
        for group in _groups(job):
            self.builder.withhold(group)


def _standing(job: JobRecord) -> tuple[int, int]:
    """The less, the better."""
    return job.job.priority, min(task.turn for task in job.tasks)


def _groups(job: JobRecord) -> Iterable[Group]:
    return job.groups.values()


def _running(job: JobRecord) -> int:
    return sum(task.place is not None for task in job.tasks)
