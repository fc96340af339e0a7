"""Machines that cannot begin runs: a folder that is not there, a file system that is full, a shell that does not start.

Such a machine is free again at once, so it would attract every waiting task.  It is drained after some runs in a row that it
could not begin.  The task runs again, as long as a machine is left that has not tried it.

A task may be at fault itself.  It counts as such once no machine is left, or two *good* machines could not begin it.  A machine
is good if it began its previous run.  Then the task's failures no longer count against machines.  A drained machine gets another
chance for a task that no good machine has tried.
"""

from __future__ import annotations

from collections.abc import Hashable

from flowsched.cluster.events import MachineDrained, MachineUpdated
from flowsched.rounds.values import ReasonCode
from flowsched.run.executor import Decider, Work
from flowsched.run.runs import LOGGER

IN_A_ROW = 3
"""Runs in a row that a machine could not begin, after which it is drained."""

MOST = 10
"""Runs of a task that did not begin, after which it has failed in any case: the scheduler may choose a machine again."""


class Unfit:
    """Counts runs that did not begin.  `drained` has the machines that are drained for that, each with the last reason."""

    def __init__(self, scheduler: Decider) -> None:
        self._scheduler = scheduler
        self._against: dict[Hashable, list[Hashable]] = {}  # tasks that a machine could not begin, one after another
        self.drained: dict[Hashable, str] = {}
        self._good: set[Hashable] = set()  # machines that began the last run there

    def begun(self, machine: Hashable) -> None:
        """Take note that a machine has begun a run."""
        self.forget(machine)
        self._good.add(machine)

    def forget(self, machine: Hashable) -> None:
        """Take note that a machine is another one now."""
        self._against.pop(machine, None)
        self.drained.pop(machine, None)
        self._good.discard(machine)

    def failed(
        self, work: Work, machine: Hashable, error: BaseException
    ) -> tuple[bool, list[MachineDrained | MachineUpdated]]:
        """Take note of a run that its machine could not begin.

        Returns True if the task runs again, as if the run had been lost, and the machines that are drained for it, or
        not any more.
        """
        good = machine in self._good
        self._good.discard(machine)
        work.unfit.append((machine, good))
        ready, ours = self._untried(work)
        strikes = {id for id, was_good in work.unfit if was_good}
        if len(strikes) > 1 or len(work.unfit) >= MOST or not (ready or (ours and not strikes)):
            return False, self._take_back(work)
        changes: list[MachineDrained | MachineUpdated] = []
        if not ready:
            changes.append(self._restore(ours[0], f"task {work.task!r} has no other machine left"))
        against = self._against.setdefault(machine, [])
        against.append(work.task)
        if len(against) >= IN_A_ROW and machine not in self.drained and self._another(machine):
            self.drained[machine] = str(error)
            changes.append(MachineDrained(machine))
            LOGGER.warning("machine %r is drained: it could not begin %d runs in a row, the last one since %s", machine, IN_A_ROW, error)  # fmt: skip
        return True, changes

    def _restore(self, machine: Hashable, why: str) -> MachineUpdated:
        self.drained.pop(machine, None)
        del self._against.get(machine, [])[IN_A_ROW - 1 :]  # the next one suffices
        LOGGER.warning("machine %r takes tasks again: %s", machine, why)
        return MachineUpdated(machine)

    def _take_back(self, work: Work) -> list[MachineDrained | MachineUpdated]:
        changes: list[MachineDrained | MachineUpdated] = []
        for machine in dict.fromkeys(id for id, _ in work.unfit):
            against = self._against.get(machine, [])
            against[:] = [task for task in against if task != work.task]
            if machine in self.drained and len(against) < IN_A_ROW:
                changes.append(self._restore(machine, f"task {work.task!r} began nowhere"))
        work.unfit.clear()
        return changes

    def _untried(self, work: Work) -> tuple[bool, list[Hashable]]:
        """Return True if a machine that takes tasks could hold a task and has not tried it; and those drained here."""
        tried, ours = {id for id, _ in work.unfit}, []
        for id, record in self._scheduler.cluster.machines.items():
            if id in tried or record.failed or (record.drained and id not in self.drained):
                continue
            if self._scheduler.explain(work.task, id).code in (ReasonCode.NEVER_FITS, ReasonCode.FILTERED):
                continue
            if id not in self.drained:
                return True, []
            ours.append(id)
        return False, ours

    def _another(self, machine: Hashable) -> bool:
        machines = self._scheduler.cluster.machines.items()
        return any(id != machine and not record.failed and not record.drained for id, record in machines)
