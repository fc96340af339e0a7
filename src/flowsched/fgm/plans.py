"""A scheduler of any kind as an engine: the greedy baselines of the simulator, or one of the caller's own."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import Cluster
from flowsched.cluster.events import EndedRun, Event
from flowsched.cluster.records import Group
from flowsched.exceptions import InputError
from flowsched.fgm.protocols import Plans
from flowsched.policy import Policy
from flowsched.rounds.engine import State
from flowsched.rounds.values import Commit, Delta, Round

__all__ = ["PlansEngine"]


class PlansEngine:
    """Calls a scheduler, which guards itself.

    Parameters
    ----------
    scheduler : Plans

    Raises
    ------
    InputError
        By everything that copies and files would need: they are for `flowsched.Scheduler` only.
    """

    adapter: None = None
    left_out: Collection[Group] = ()

    def __init__(self, scheduler: Plans) -> None:
        self._scheduler = scheduler

    @property
    def cluster(self) -> Cluster:
        """The scheduler's cluster."""
        return self._scheduler.cluster

    def apply_batch(self, events: Sequence[Event]) -> tuple[EndedRun, ...]:
        """Let events happen in their order; return the runs that they ended, as far as the scheduler tells."""
        return tuple(self._scheduler.apply(*events) or ())

    def decide(self, now: float, time_limit: float | None) -> tuple[Round, bool]:
        """Decide a round; whether the time limit had a part in it is not known."""
        return self._scheduler.schedule(now, time_limit), False

    def carry_out(self, round: Round, only: Collection[Hashable] | None) -> Commit:
        """Let a round happen."""
        self.cluster.midway = False  # the scheduler marks it, as for any call of its own
        done = self._scheduler.commit(round, only)
        self.cluster.midway = True
        return done

    def invalidate(self, classes: Collection[int]) -> None:
        """Look at every machine again for these classes (by index)."""
        self._scheduler.invalidate(classes)

    def offers(self, classes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return offers of no machine: which ones the scheduler would take is not known."""
        return np.zeros((len(classes), 0), np.int64)

    # -- only of a flow scheduler -------------------------------------------------------------------------------

    @property
    def seed(self) -> int:
        """Refused."""
        return _refuse()

    @property
    def policy(self) -> Policy:
        """Refused."""
        return _refuse()

    @policy.setter
    def policy(self, policy: Policy) -> None:
        _refuse()

    def fail_round(self, now: float) -> None:
        """Refused."""
        _refuse()

    def impose(self, deltas: Sequence[Delta], round: Round) -> bool:
        """Refused."""
        return _refuse()

    def state(self) -> State:
        """Refused."""
        return _refuse()

    def replace_state(self, state: State, cached: bool = False) -> None:
        """Refused."""
        _refuse()

    def fresh(self) -> PlansEngine:
        """Refused."""
        return _refuse()


def _refuse() -> NoReturn:
    raise InputError("FineGrained: only over a flowsched.Scheduler can it be kept or copied")
