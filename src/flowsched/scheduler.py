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
    """Decides which task runs where, now.

    Parameters
    ----------
    policy : Policy
    resources : sequence of str or Resources
        What machines have and tasks take; "gpu" is counted device by device.
    seed : int
        For policies that draw lots; those here do not.
    journal : Journal or path, optional
        Where to write down what happens.  If something is in it, the scheduler goes on from there; policy, resources
        and seed must be those with which it was begun (`JournalMismatchError` names the one that differs).

    Attributes
    ----------
    cluster : Cluster
        Machines, jobs, tasks and users, and what runs where.
    network : FlowNetwork
        The network that the last round optimised.
    builder : Builder
        Mirrors the cluster in the network.
    seed : int
    engine : RoundEngine
        Decides without guard and journal; for adapters, see `adopt`.
    journal : Journal or None
    recovery : Recovery or None
        What was read from the journal, or by `restore`.
    on_round : list of callable
        Hooks: each is called with every round, before `schedule` returns it.  It must not call the scheduler, but may
        ask for `metrics`.  An exception that it raises is logged and counted.  Copies have none.
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
        """The network that the last round optimised."""
        return self.engine.network

    @property
    def builder(self) -> Builder:
        """The builder, which mirrors the cluster in the network."""
        return self.engine.builder

    @property
    def seed(self) -> int:
        """The seed that it was made with."""
        return self.engine.seed

    def explain(self, task: Hashable, machine: Hashable | None = None) -> Reason:
        """Explain why a task waits as things are now, or why it is not on a certain machine.

        Parameters
        ----------
        task : hashable
        machine : hashable, optional

        Returns
        -------
        Reason
            Code `RUNNING` if it runs (there), `PENDING` if there is room: the next round decides.  `SHARE` if there is
            room, but its job or user was at its share in the last round; likewise `GANG_SHORT`.
            `QUOTA` if its user's or job's quota leaves too little for it now.
        """
        with self._calls:
            return self.engine.explain(task, machine)

    # -- adapters -----------------------------------------------------------------------------------------------

    def adopt(self, journal: Journal | None = None) -> RoundEngine:
        """Hand the engine over to an adapter, which decides what fits and is told everything instead.

        Parameters
        ----------
        journal : Journal, optional
            The adapter's.  With one, this scheduler refuses every call from now on, since the journal would lack it.

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
        """Look at every machine again for these classes (by index): the answers of a fit rule have changed."""
        self.engine.invalidate(classes)

    # -- from files ---------------------------------------------------------------------------------------------

    @classmethod
    def restore(
        cls, source: bytes | str | os.PathLike[str], policy: Policy | None = None, policies: Sequence[Policy] = ()
    ) -> Self:
        """Return the scheduler of a snapshot or a journal.  Its next round is warm, and the one that would have come.

        Parameters
        ----------
        source : bytes or path
            What `snapshot` returned; or a file with that in it, or a journal, which is only read.
        policy : Policy, optional
            The one with which it was begun; needed if it has parts of the caller's own.
        policies : sequence of Policy
            See `Journal`.

        Returns
        -------
        Scheduler
            Without journal; `recovery` tells what was read.

        Raises
        ------
        JournalError
            Its kind says what is wrong, and its message where.
        """
        made, found = restored("Scheduler", cls._begun, source, policy, policies)
        made.recovery = found
        return made

    @classmethod
    def import_state(
        cls, source: bytes | str | os.PathLike[str], policy: Policy | None = None, policies: Sequence[Policy] = ()
    ) -> Self:
        """Return a scheduler that goes on from what `export` wrote: machines, tasks, placements, ages, shares and debts.

        Only warmth is lost.

        Parameters
        ----------
        source : path or bytes
            The file, or its contents.
        policy : Policy, optional
            The one to go by; its providers get the accounts, so they must be those that kept them.  By default the one
            that is described, made again.
        policies : sequence of Policy
            Where to find parts of the caller's own.

        Returns
        -------
        Scheduler

        Raises
        ------
        JournalError
            Its kind says what is wrong, and its message in which line.
        """
        return imported("Scheduler", cls._begun, source, policy, policies)

    @classmethod
    def _begun(cls, header: Header, policy: Policy | None, policies: Sequence[Policy], path: str) -> Self:
        first = policy or policy_of(header.policy, policies, path, 0)
        return cls(first, header.cluster_resources, header.seed)


def replay(path: str | os.PathLike[str], policy: Policy | None = None, policies: Sequence[Policy] = ()) -> Recovery:
    """Make all rounds of a journal again, and report which come out otherwise.

    Parameters
    ----------
    path : str or path
        The file, which is only read.
    policy, policies
        See `Scheduler.restore`, which gives the scheduler as well.

    Returns
    -------
    Recovery
    """
    recovery = Scheduler.restore(path, policy, policies).recovery
    assert recovery is not None
    return recovery
