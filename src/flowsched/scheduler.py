"""The scheduler: events in, deltas out.

>>> from flowsched.cluster.events import JobSubmitted, MachineAdded
>>> from flowsched.cluster import Task
>>> sched = Scheduler(resources=("cpu", "mem"))
>>> sched.apply(MachineAdded("m1", {"cpu": 4, "mem": 16}), JobSubmitted("web", [Task("web-0", {"cpu": 3}), Task("web-1", {"cpu": 3})]))
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
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Self, TypeVar

from flowsched.builder.builder import Builder
from flowsched.cluster import Cluster, Resources
from flowsched.cluster.events import Event
from flowsched.exceptions import UnknownIdError
from flowsched.journal.durable import JournalOrPath, Kept, checked
from flowsched.journal.journal import Header
from flowsched.journal.recovery import Recovery, policy_of
from flowsched.journal.snapshot import State, twin
from flowsched.network.flow_network import FlowNetwork
from flowsched.policy import Policy
from flowsched.rounds.commit import carry_out, happen
from flowsched.rounds.loop import make_round
from flowsched.rounds.outcome import Verdicts
from flowsched.rounds.share_report import ShareReport
from flowsched.rounds.values import (
    Commit,
    Delta,
    Place,
    Reason,
    Round,
)
from flowsched.validate import whole

__all__ = ["Scheduler", "replay"]

_T = TypeVar("_T")


class Scheduler(Kept):
    """Decides which task runs where, now.

    Parameters
    ----------
    policy : Policy
    resources : sequence of str or Resources
        What machines have and tasks take; "gpu" is counted device by device.
    seed : int
        For policies that draw lots; those here do not.
    journal : Journal or path, optional
        Where to write down what happens.  If something is in it, the scheduler goes on from there; policy, resources and
        seed must be those with which it was begun (`JournalMismatchError` says what is not).

    Attributes
    ----------
    cluster : Cluster
        What is.
    network : FlowNetwork
        What the last round optimised.
    journal : Journal or None
    recovery : Recovery or None
        What it was recovered from.
    """

    _of = "Scheduler"

    def __init__(
        self,
        policy: Policy | None = None,
        resources: Resources | Sequence[str] = ("cpu", "mem", "gpu"),
        seed: int = 0,
        *,
        journal: JournalOrPath | None = None,
    ) -> None:
        super().__init__()
        self.cluster = Cluster(resources)
        self.network = FlowNetwork()
        self.builder = Builder(self.cluster, self.network, checked(Policy() if policy is None else policy))
        self.seed = whole("seed", seed, 0, 2**128 - 1)
        self._verdicts = Verdicts(self.builder)
        self._stale = self._read = False
        if journal is not None:
            self._open(journal)

    def _apply(self, events: Sequence[Event]) -> None:
        if self.journal is None:  # there may be many, and each costs a microsecond only
            self.cluster.apply(*events)
        else:
            super()._apply(events)

    def invalidate(self, classes: Collection[int]) -> None:
        """What tasks of these classes (by index) need has changed, in the eyes of ``cluster.inventory.rule``."""
        if not self._stale:
            self.builder.invalidate(list(classes))

    # -- the mirror of the cluster ------------------------------------------------------------------------------

    def _fail(self, now: float) -> None:
        self.cluster.date(now)
        self.cluster.forget_tries(self.cluster.turn)
        self._stale = True

    def _mirror(self) -> Builder:
        """What mirrors the cluster; built anew after a round that did not come to its end."""
        if self._stale:
            self.cluster.everything()
            self.network = FlowNetwork()
            self.builder = Builder(self.cluster, self.network, self.builder.policy)
            self._verdicts = Verdicts(self.builder)
            self._stale = self._read = False
        return self.builder

    def _on_mirror(self, act: Callable[[], _T]) -> _T:
        """Do something by what mirrors the cluster; what came from a file is a cache, and is dropped where it does not work."""
        self.cluster.check_whole()
        self._mirror()
        if not self._read:
            return act()
        try:
            return act()
        except UnknownIdError:
            raise
        except Exception:
            self.cluster.check_whole()
            self._stale = True
            self._mirror()
            return act()

    # -- a round ------------------------------------------------------------------------------------------------

    def _decide(self, now: float, time_limit: float | None) -> tuple[Round, bool]:
        """A round, and whether time has had a part in it."""
        return self._on_mirror(lambda: self._make_round(now, time_limit))

    def _make_round(self, now: float, time_limit: float | None) -> tuple[Round, bool]:
        self._stale = True
        made = make_round(self.builder, self._verdicts, now, time_limit)
        self._stale = False
        return made

    # -- afterwards ---------------------------------------------------------------------------------------------

    def _carry_out(self, round: Round, only: Collection[Hashable] | None) -> Commit:
        done = carry_out(self.cluster, round, only)
        self._book(round, done.accepted)
        return done

    def _impose(self, deltas: Sequence[Delta], round: Round) -> bool:
        if happen(self.cluster, deltas, round.now) is not None:
            return False
        self._book(round, deltas)
        return True

    def _book(self, round: Round, deltas: Sequence[Delta]) -> None:
        """Tell who keeps accounts of shares."""
        if isinstance(round.shares, ShareReport):
            started = (delta.task for delta in deltas if isinstance(delta, Place))
            round.shares.book(self.cluster.task(task).group.job for task in started)

    def explain(self, task: Hashable, machine: Hashable | None = None) -> Reason:
        """Why a task waits as things are now, or why it is not on a certain machine.

        Parameters
        ----------
        task : hashable
        machine : hashable, optional

        Returns
        -------
        Reason
            Code `RUNNING` if it runs (there), `PENDING` if there is room: the next round decides.  `SHARE` if there is room,
            but its job or user was at its share in the last round; likewise `GANG_SHORT`.
        """
        with self._calls:
            return self._on_mirror(lambda: self._verdicts.explain(task, machine))

    # -- what is kept -------------------------------------------------------------------------------------------

    def _copy(self) -> Self:
        self.cluster.check_whole()
        other = type(self)(self.policy, self.cluster.resources, self.seed)
        other._take(twin(self._state()))
        return other

    @classmethod
    def _as_begun(cls, header: Header, policy: Policy | None, policies: Sequence[Policy], path: str) -> Self:
        first = policy or policy_of(header.policy, policies, path, 0)
        return cls(first, header.cluster_resources, header.seed)

    @property
    def _seed(self) -> int:
        return self.seed

    def _aim(self) -> Policy:
        return self.builder.policy

    def _aim_at(self, policy: Policy) -> None:
        self._on_mirror(lambda: self.builder.replace_policy(policy))

    def _live(self, events: Sequence[Event], happen: Callable[[Event], None]) -> None:
        for event in events:
            happen(event)

    @property
    def _happen(self) -> Callable[[Event], None]:
        return self.cluster.apply

    def _state(self) -> State:
        self.cluster.check_whole()
        builder = self._mirror()
        return State(self.cluster, self.network, builder)

    def _take(self, state: State) -> None:
        self.cluster, self.network, self.builder = state.cluster, state.network, state.builder
        self.builder.attach()
        self._verdicts = Verdicts(self.builder)
        self._stale = False

    def _load(self, image: bytes, policy: Policy) -> None:
        super()._load(image, policy)
        self._read = True


def replay(path: str | os.PathLike[str], policy: Policy | None = None, policies: Sequence[Policy] = ()) -> Recovery:
    """Make all rounds of a journal again, and say which come out otherwise.

    Parameters
    ----------
    path : str or path
        Nothing of it is altered.
    policy, policies
        See `Scheduler.restore`, which gives the scheduler as well.

    Returns
    -------
    Recovery
    """
    recovery = Scheduler.restore(path, policy, policies).recovery
    assert recovery is not None
    return recovery
