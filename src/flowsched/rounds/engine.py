"""Engine of a scheduler: a cluster, the network that mirrors it, and rounds decided with both.

An engine decides rounds and carries them out.  It neither guards its calls against each other nor writes a journal:
`flowsched.scheduler.Durable` does both around it.

Rules:

* The network and its builder are a *mirror*: apart from the choice among equally good flows, they hold no information
  that the cluster does not hold.  After a round that raised an exception the mirror is built again.
* A mirror from a file is a cache.  If a call on it fails, it is dropped, and the call is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from flowsched.builder.builder import Builder
from flowsched.cluster import Cluster, Resources
from flowsched.cluster.events import EndedRun, Event
from flowsched.cluster.records import Group
from flowsched.exceptions import UnknownIdError
from flowsched.network.flow_network import FlowNetwork
from flowsched.policy import Policy
from flowsched.rounds.commit import begun, carry_out, happen
from flowsched.rounds.loop import make_round
from flowsched.rounds.share_report import ShareReport
from flowsched.rounds.values import Commit, Delta, Place, Preempt, Reason, Round
from flowsched.rounds.verdicts import Verdicts

__all__ = ["RoundEngine", "State"]

_T = TypeVar("_T")


@dataclass
class State:
    """Everything that later rounds depend on: the cluster and its mirror.

    Parameters
    ----------
    cluster : Cluster
    network : FlowNetwork
        With flow and potentials.
    builder : Builder
        Of this cluster and this network.
    """

    cluster: Cluster
    network: FlowNetwork
    builder: Builder


class RoundEngine:
    """Engine that decides rounds by min-cost flow.

    Parameters
    ----------
    policy : Policy
    resources : Resources or sequence of str
        See `Scheduler`.
    seed : int

    Attributes
    ----------
    cluster : Cluster
    network : FlowNetwork
    builder : Builder
    seed : int
    adapter : None
        An engine without an adapter; see `flowsched.journal.engine.Engine`.
    """

    def __init__(self, policy: Policy, resources: Resources | Sequence[str], seed: int = 0) -> None:
        self.cluster = Cluster(resources)
        self.seed = seed
        self._begin_mirror(policy)

    def fresh(self) -> RoundEngine:
        """Return a new engine of the same policy, resources and seed, without any event."""
        return RoundEngine(self.policy, self.cluster.resources, self.seed)

    @property
    def adapter(self) -> None:
        """No adapter."""

    # -- the mirror ---------------------------------------------------------------------------------------------

    def _begin_mirror(self, policy: Policy) -> None:
        self.network = FlowNetwork()
        self.builder = Builder(self.cluster, self.network, policy)
        self._verdicts = Verdicts(self.builder)
        self._stale = self._cached = False

    def _mirror(self) -> Builder:
        """Return the builder; build the mirror again after a round that raised an exception."""
        if self._stale:
            self.cluster.everything()
            self._begin_mirror(self.builder.policy)
        return self.builder

    def _on_mirror(self, act: Callable[[], _T]) -> _T:
        """Run a function on the mirror; if it fails on a mirror from a file, drop the mirror and run it again."""
        self.cluster.check_whole()
        self._mirror()
        if not self._cached:
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

    @property
    def policy(self) -> Policy:
        """Policy of the next round; setting an invalid one raises `FlowschedError` and changes nothing."""
        return self.builder.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._on_mirror(lambda: self.builder.replace_policy(policy))

    def state(self) -> State:
        """Return the state itself, not a copy."""
        self.cluster.check_whole()
        builder = self._mirror()
        return State(self.cluster, self.network, builder)

    def replace_state(self, state: State, cached: bool = False) -> None:
        """Continue from another state, which the engine owns from now on.

        Parameters
        ----------
        state : State
        cached : bool
            True if the mirror comes from a file, and is dropped if it fails.
        """
        self.cluster, self.network, self.builder = state.cluster, state.network, state.builder
        self.builder.attach(self.builder.policy)
        self._verdicts = Verdicts(self.builder)
        self._stale, self._cached = False, cached

    # -- events and rounds --------------------------------------------------------------------------------------

    def apply_batch(self, events: Sequence[Event]) -> tuple[EndedRun, ...]:
        """Apply events in their order; return the runs that they ended.  See `Cluster.apply`."""
        return self.cluster.apply(*events)

    def decide(self, now: float, time_limit: float | None) -> tuple[Round, bool]:
        """Decide a round; also return True if the time limit affected it.  Nothing is carried out.

        After an exception the cluster is as before.
        """
        if self._stale or self._cached or self.cluster.midway:
            return self._on_mirror(partial(self._make_round, now, time_limit))
        return self._make_round(now, time_limit)

    def _make_round(self, now: float, time_limit: float | None) -> tuple[Round, bool]:
        self._stale = True
        made = make_round(self.builder, self._verdicts, now, time_limit)
        self._stale = False
        return made

    def fail_round(self, now: float) -> None:
        """Put the engine into the state after a round that raised an exception; for recovery."""
        self.cluster.date(now)
        self.cluster.forget_tries(self.cluster.turn)
        self._stale = True

    def carry_out(self, round: Round, only: Collection[Hashable] | None) -> Commit:
        """Carry out a round; see `Scheduler.commit`."""
        policy = self.builder.policy
        preemption, quotas = policy.preemption, None if policy.quotas is None else self._mirror().quotas
        done = carry_out(self.cluster, round, only, preemption is not None and preemption.graceful, quotas)
        if type(round.shares) is ShareReport:  # `isinstance` calls the abstract class, in every commit
            self._book(round.shares, done.accepted)
        return done

    def impose(self, deltas: Sequence[Delta], round: Round) -> bool:
        """Carry out the deltas that a commit of this round had, all or none; return False if they are impossible.  For recovery."""
        preemption = self.builder.policy.preemption
        graceful = preemption is not None and preemption.graceful
        if happen(self.cluster, deltas, round.now, graceful=graceful) is not None:
            return False
        begun(self.cluster, deltas)
        if type(round.shares) is ShareReport:
            self._book(round.shares, deltas)
        return True

    def _book(self, shares: ShareReport, deltas: Sequence[Delta]) -> None:
        """Report the started and stopped tasks to share providers that keep accounts."""
        started = (self.cluster.task(delta.task).group for delta in deltas if isinstance(delta, Place))
        stopped = (self.cluster.task(delta.task).group for delta in deltas if isinstance(delta, Preempt))
        shares.book(started, stopped)

    # -- queries ------------------------------------------------------------------------------------------------

    def explain(self, task: Hashable, machine: Hashable | None = None) -> Reason:
        """Explain why a task waits, or why it is not on a machine; see `Scheduler.explain`."""
        return self._on_mirror(lambda: self._verdicts.explain(task, machine))

    def offers(self, classes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the largest number of tasks that the flow may send to each machine without victims, shape (classes, rows).

        Parameters
        ----------
        classes : ndarray of int64, shape (classes,)
            Indices of task classes.
        """
        return self.builder.offers(classes)

    @property
    def left_out(self) -> Collection[Group]:
        """Groups of gangs that fell short, which are not tried again before something changes."""
        return self.builder.left_out

    def invalidate(self, classes: Collection[int]) -> None:
        """Check every machine again for these classes (by index), since the fit rule's answers have changed."""
        if not self._stale:
            self.builder.invalidate(list(classes))
