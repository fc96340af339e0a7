"""Protocols between the parts of FGM, and between FGM and the scheduler under it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Any, NoReturn, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import Cluster
from flowsched.cluster import events as ev
from flowsched.cluster.events import EndedRun, Event
from flowsched.cluster.records import Group
from flowsched.exceptions import InputError
from flowsched.fgm.forecast import Forecast
from flowsched.journal.engine import Engine
from flowsched.journal.journal import Journal
from flowsched.rounds.values import Commit, Round


class Plans(Protocol):
    """A scheduler of any kind under FGM."""

    @property
    def cluster(self) -> Cluster: ...

    def apply(self, *events: ev.Event) -> Any:
        """Apply events; return the runs that they ended, or nothing."""

    def schedule(self, now: float, time_limit: float | None = None) -> Round:
        """Decide, by the fit rule of the cluster."""

    def commit(self, round: Round, only: Collection[Any] | None = None) -> Commit:
        """Carry out the decision."""

    def invalidate(self, classes: Collection[int]) -> None:
        """Look at every machine again for these classes (by index)."""


class FlowEngine(Engine, Protocol):
    """The engine under FGM; see `flowsched.rounds.engine.RoundEngine`."""

    def invalidate(self, classes: Collection[int]) -> None:
        """Look at every machine again for these classes (by index)."""
        ...

    def offers(self, classes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Largest number of tasks of each class (by index) that may be sent to each machine, shape (classes, rows)."""
        ...

    @property
    def left_out(self) -> Collection[Group]:
        """Groups of gangs that fell short, which are not tried again before something changes."""
        ...


@runtime_checkable
class Adoptable(Plans, Protocol):
    """A scheduler that hands its engine over to an adapter, as `flowsched.Scheduler` does."""

    def adopt(self, journal: Journal | None = None) -> FlowEngine:
        """Return the engine; with a journal, refuse every call from now on."""
        ...


class StageKnowledge(Protocol):
    """Knowledge that costs and shares by stages use; `flowsched.fgm.FineGrained` has it."""

    @property
    def cluster(self) -> Cluster: ...

    @property
    def forecast(self) -> Forecast: ...

    @property
    def now(self) -> float:
        """Time of the present round, or of the last one."""
        ...

    def first_demand(self, class_id: int) -> NDArray[np.float64]:
        """Demand of tasks of a class (by index) in their first stage, shape (resources,)."""
        ...

    def offers(self, classes: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `FlowEngine`."""
        ...

    @property
    def left_out(self) -> Collection[Group]:
        """See `FlowEngine`."""
        ...


class PlansEngine:
    """Calls a scheduler, which guards itself.

    All methods for copies and files raise InputError: they are for `flowsched.Scheduler` only.
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
        """Apply events in their order; return the runs that they ended, as far as the scheduler reports them."""
        return tuple(self._scheduler.apply(*events) or ())

    def decide(self, now: float, time_limit: float | None) -> tuple[Round, bool]:
        """Decide a round; an influence of the time limit is not known, and reported as False."""
        return self._scheduler.schedule(now, time_limit), False

    def carry_out(self, round: Round, only: Collection[Hashable] | None) -> Commit:
        """Carry out a round."""
        self.cluster.midway = False  # the scheduler marks it, as for any call of its own
        done = self._scheduler.commit(round, only)
        self.cluster.midway = True
        return done

    def invalidate(self, classes: Collection[int]) -> None:
        """Look at every machine again for these classes (by index)."""
        self._scheduler.invalidate(classes)

    def offers(self, classes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return empty offers: the choice of the scheduler is not known."""
        return np.zeros((len(classes), 0), np.int64)

    def _refused(self, *_: object) -> NoReturn:
        raise InputError("FineGrained: only over a flowsched.Scheduler can it be kept or copied")

    seed: Any = property(_refused)
    policy: Any = property(_refused, _refused)
    fail_round: Any = _refused
    impose: Any = _refused
    state: Any = _refused
    replace_state: Any = _refused
    fresh: Any = _refused
