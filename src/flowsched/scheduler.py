"""The scheduler: events in, deltas out.

>>> from flowsched.cluster.events import JobSubmitted, MachineAdded
>>> from flowsched.cluster import Task
>>> sched = Scheduler(resources=("cpu", "mem"))
>>> _ = sched.apply(MachineAdded("m1", {"cpu": 4, "mem": 16}), JobSubmitted("web", [Task("web-0", {"cpu": 3}), Task("web-1", {"cpu": 3})]))
>>> rnd = sched.schedule(now=0.0)
>>> dict(rnd.placements)
{'web-0': 'm1'}
>>> rnd.waiting["web-1"].code.value, rnd.waiting["web-1"].detail
('OUTBID', {'4 cpu, 16 mem': {'cpu': 1}})
>>> len(sched.commit(rnd).accepted)
1
"""

from __future__ import annotations

import os
from collections.abc import Collection, Hashable, Sequence
from typing import Self

from flowsched.boundary.validate import whole
from flowsched.builder.builder import Builder
from flowsched.cluster import Resources
from flowsched.exceptions import InputError
from flowsched.journal.durable import Durable, JournalOrPath
from flowsched.journal.engine import checked
from flowsched.journal.journal import Journal
from flowsched.journal.records import Header
from flowsched.journal.recovery import imported, restored
from flowsched.journal.rerun import Recovery, policy_of
from flowsched.network.flow_network import FlowNetwork
from flowsched.policy import Policy
from flowsched.rounds.engine import RoundEngine
from flowsched.rounds.values import Reason

__all__ = ["Scheduler", "replay"]


class Scheduler(Durable[RoundEngine]):
    """Cluster scheduler that decides rounds by min-cost flow.

    Parameters
    ----------
    policy : Policy
    resources : sequence of str or Resources
        Resources of machines and tasks; "gpu" is counted device by device.
    seed : int
        For random policies; those of this package are deterministic.
    journal : Journal or path, optional
        Journal of calls and decisions.  If it has contents, the scheduler continues from there; policy, resources
        and seed must be those of its beginning (`JournalMismatchError` names the one that differs).

    Attributes
    ----------
    cluster : Cluster
        Machines, jobs, tasks and users, and the runs of tasks on machines.
    network : FlowNetwork
        Network of the last round's optimisation.
    builder : Builder
        Mirrors the cluster in the network.
    seed : int
    engine : RoundEngine
        Decides without guard and journal; for adapters, see `adopt`.
    journal : Journal or None
    recovery : Recovery or None
        Report on the data read from the journal, or by `restore`.
    on_round : list of callable
        Hooks: each is called with every round, before `schedule` returns it.  It must not call the scheduler, but may
        read `metrics`.  An exception that it raises is logged and counted.  Copies have no hooks.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        resources: Resources | Sequence[str] = ("cpu", "mem", "gpu"),
        seed: int = 0,
        *,
        journal: JournalOrPath | None = None,
    ) -> None:
        policy = checked(Policy() if policy is None else policy)
        super().__init__(RoundEngine(policy, resources, whole("seed", seed, 0, 2**128 - 1)), journal)

    @property
    def network(self) -> FlowNetwork:
        """Network of the last round's optimisation."""
        return self.engine.network

    @property
    def builder(self) -> Builder:
        """Builder, which mirrors the cluster in the network."""
        return self.engine.builder

    @property
    def seed(self) -> int:
        """Seed of the scheduler."""
        return self.engine.seed

    def explain(self, task: Hashable, machine: Hashable | None = None) -> Reason:
        """Explain why a task waits at present, or why it is not on a given machine.

        Parameters
        ----------
        task : hashable
        machine : hashable, optional

        Returns
        -------
        Reason
            Code `RUNNING` if it runs (there), `PENDING` if there is room: the next round decides.  `SHARE` if there is
            room, but its job or user was at its share in the last round; likewise `GANG_SHORT`.
            `QUOTA` if the rest of its user's or job's quota is too small for it now.
        """
        with self._calls:
            return self.engine.explain(task, machine)

    # -- adapters -----------------------------------------------------------------------------------------------

    def adopt(self, journal: Journal | None = None) -> RoundEngine:
        """Hand the engine over to an adapter, which decides on room and gets all calls instead.

        Parameters
        ----------
        journal : Journal, optional
            Journal of the adapter.  With one, this scheduler refuses every later call, since the journal would lack it.

        Returns
        -------
        RoundEngine

        Raises
        ------
        InputError
            The scheduler has tasks, a journal, or an adapter already.
        """
        if self.cluster.tasks or self.cluster.inventory.rule is not None:
            raise InputError("scheduler: one without tasks and without another adapter expected")
        if self.journal is not None:
            raise InputError("scheduler: it has a journal, which has to be given to the adapter instead")
        self.journal = journal
        return self.engine

    def invalidate(self, classes: Collection[int]) -> None:
        """Check every machine again for these classes (by index), since the answers of a fit rule have changed."""
        self.engine.invalidate(classes)

    # -- from files ---------------------------------------------------------------------------------------------

    @classmethod
    def restore(
        cls, source: bytes | str | os.PathLike[str], policy: Policy | None = None, policies: Sequence[Policy] = ()
    ) -> Self:
        """Return the scheduler of a snapshot or a journal.  Its next round is warm, and equals that of the original.

        Parameters
        ----------
        source : bytes or path
            Result of `snapshot`, a file that contains it, or a journal, which is only read.
        policy : Policy, optional
            The original policy; needed if it has parts of the caller.
        policies : sequence of Policy
            See `Journal`.

        Returns
        -------
        Scheduler
            Without journal; `recovery` reports on the data read.

        Raises
        ------
        JournalError
            Its class gives the kind of the fault, and its message the place.
        """
        made, found = restored("Scheduler", cls._begun, source, policy, policies)
        made.recovery = found
        return made

    @classmethod
    def import_state(
        cls, source: bytes | str | os.PathLike[str], policy: Policy | None = None, policies: Sequence[Policy] = ()
    ) -> Self:
        """Return a scheduler that continues from the result of `export`: machines, tasks, placements, ages, shares and debts.

        Only the warm start is lost.

        Parameters
        ----------
        source : path or bytes
            The file, or its contents.
        policy : Policy, optional
            Policy of the scheduler; its providers get the accounts, so they must be those that kept them.  By default the
            described policy, made again.
        policies : sequence of Policy
            Policies with the caller's own parts.

        Returns
        -------
        Scheduler

        Raises
        ------
        JournalError
            Its class gives the kind of the fault, and its message the line.
        """
        return imported("Scheduler", cls._begun, source, policy, policies)

    @classmethod
    def _begun(cls, header: Header, policy: Policy | None, policies: Sequence[Policy], path: str) -> Self:
        first = policy or policy_of(header.policy, policies, path, 0)
        return cls(first, header.cluster_resources, header.seed)


def replay(path: str | os.PathLike[str], policy: Policy | None = None, policies: Sequence[Policy] = ()) -> Recovery:
    """Make all rounds of a journal again, and report those that differ.

    Parameters
    ----------
    path : str or path
        Path of the file, which is only read.
    policy, policies
        See `Scheduler.restore`, which also returns the scheduler.

    Returns
    -------
    Recovery
    """
    recovery = Scheduler.restore(path, policy, policies).recovery
    assert recovery is not None
    return recovery
