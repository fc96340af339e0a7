"""FGM on top of a scheduler: the fit of tasks and machines is decided stage by stage, from the actual needs of tasks.

The scheduler may be the flow scheduler (`flowsched.Scheduler`) or any that decides by the fit rule of its cluster.
`flowsched.fgm.engine.StageEngine` makes the decisions; this module has the public class.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import Cluster
from flowsched.cluster import events as ev
from flowsched.cluster.records import Group
from flowsched.exceptions import InputError
from flowsched.fgm.adjust import Adjustment, Level
from flowsched.fgm.engine import StageEngine
from flowsched.fgm.estimate import DemandEstimator
from flowsched.fgm.forecast import Forecast
from flowsched.fgm.learning import Learner
from flowsched.fgm.protocols import Adoptable, Plans
from flowsched.fgm.settings import Settings, arguments
from flowsched.journal.journal import Journal
from flowsched.journal.records import Header
from flowsched.journal.rerun import policy_of
from flowsched.policy import Policy
from flowsched.scheduler import Durable, JournalOrPath, Scheduler

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class FineGrained(Durable[StageEngine]):
    """The adapter of FGM: matches tasks to machines stage by stage, by the actual needs of tasks.

    It takes a scheduler over: from now on all calls go to the adapter, which decides as `Scheduler` does, but by stages.
    On machines where estimates fail badly and tasks have degraded, a round stops the youngest task (`Preempt` with
    ``by=None``).

    Parameters
    ----------
    scheduler : Scheduler or Plans
        Fresh.  It is taken over: the fit rule of its cluster is the adapter's from now on, and the policy of a flow
        scheduler gets one more placement cost (see `weight`).
    compressible : mapping of str to float, optional
        Largest compression by resource; by default 0.1 for "cpu", "disk" and "net", as far as the cluster has them.
        The other resources are not compressed.
    contention : float
        Cost of competing beyond sharing, per unit of compression.
    estimator : DemandEstimator, optional
        Learns the needs of the tasks of a kind.
    threshold : float
        A stage ends where a resource varies by this fraction of its largest demand.
    min_length : float
        Least length of a stage, as a fraction of the task.
    adjustment : Adjustment, optional
        Levels at which a machine is matched when estimates fail there.
    highest : Level
        The finest level on any machine; ``Level.REQUEST`` is the rule of schedulers without FGM.
    idle : float
        A machine of which a smaller fraction is idle (by its samples) takes no more tasks; Th of Algorithm 1, line 1.
    weight : float
        Weight of `StageCost` among the placement costs of a flow scheduler's policy; 0 to leave that as it is.
    journal : Journal or path, optional
        Journal of all calls, as for `Scheduler`; calls of the scheduler itself are then refused.  If it is not empty,
        settings must be those with which it was begun, and the estimator is restored with everything it has learnt.

    Attributes
    ----------
    scheduler : Plans
    engine : StageEngine
        Decides without guard and journal.
    cluster : Cluster
    estimator : DemandEstimator
    forecast : Forecast
        States of the running tasks, and the free amounts of each machine, by stages.
    learner : Learner
    journal, recovery, policy, on_round
        See `Scheduler`.

    Examples
    --------
    >>> import flowsched as fs
    >>> fine = FineGrained(fs.Scheduler(resources=("cpu", "mem")), estimator=DemandEstimator(("cpu", "mem"), cold=1))
    >>> fine.estimator.observe("wordcount", [2, 1], seconds=60)
    >>> fine.learn()
    >>> _ = fine.apply(
    ...     fs.MachineAdded("m1", {"cpu": 4, "mem": 8}),
    ...     fs.JobSubmitted("j", [fs.Task(f"t{i}", {"cpu": 4, "mem": 4}, kind="wordcount") for i in range(3)]),
    ... )
    >>> sorted(fine.schedule(0.0).placements)  # what they need, not what they ask for
    ['t0', 't1']
    """

    _kind = "FineGrained"

    def __init__(
        self,
        scheduler: Plans,
        *,
        compressible: Mapping[str, float] | None = None,
        contention: float = 0.0,
        estimator: DemandEstimator | None = None,
        threshold: float = 0.2,
        min_length: float = 0.05,
        adjustment: Adjustment | None = None,
        highest: Level = Level.COMPRESSED,
        idle: float = 0.0,
        weight: float = 1.0,
        journal: JournalOrPath | None = None,
    ) -> None:
        cluster = getattr(scheduler, "cluster", None)
        if not isinstance(cluster, Cluster) or cluster.tasks or cluster.inventory.rule is not None:
            raise InputError("FineGrained: scheduler: one without tasks and without another adapter expected")
        if getattr(scheduler, "journal", None) is not None:
            raise InputError("FineGrained: scheduler: it has a journal, which has to be given to FineGrained instead")
        settings = Settings.checked(
            cluster.resources, compressible, contention, threshold, min_length, adjustment, highest, idle, weight
        )
        names = cluster.resources.names
        estimator = DemandEstimator(names) if estimator is None else estimator
        if not isinstance(estimator, DemandEstimator) or estimator.resources != names:
            raise InputError(f"FineGrained: estimator: one of resources {names!r} expected")
        if journal is not None:
            if not isinstance(scheduler, Adoptable) or cluster.events:
                raise InputError("FineGrained: journal: over a flowsched.Scheduler to which nothing has happened only")
            if (recorder := estimator.recorder) is not None and not recorder.closed:
                raise InputError("FineGrained: estimator: what it learns is in the journal of another FineGrained")
            journal = journal if isinstance(journal, Journal) else Journal(journal)
        super().__init__(StageEngine(scheduler, settings, estimator, journal), journal)

    def apply(self, *events: ev.Event, atomic: bool = False) -> tuple[ev.EndedRun, ...]:
        """Apply events; see `Cluster.apply`.  FGM learns from `UsageSampled` and `MachineSampled` among them.

        Times matter: they are the base of predicted stages and of learnt durations.  An event without a time happens at
        the time of the next round.  There are no atomic calls under FGM.
        """
        return super().apply(*events, atomic=atomic)

    def learn(self, most: int | None = None) -> None:
        """Take in observations; called after every commit, so that no decision waits for it.

        Parameters
        ----------
        most : int, optional
            Largest number of observations to take in; the rest are left for later.
        """
        with self._calls:
            self.cluster.check_whole()
            if self.journal is None:
                self.engine.learn(most)
            else:
                self.journal.adapter_call(("learn", most), lambda: self.engine.learn(most))

    # -- knowledge ----------------------------------------------------------------------------------------------

    @property
    def scheduler(self) -> Plans:
        """The scheduler that was taken over."""
        return self.engine.scheduler

    @property
    def estimator(self) -> DemandEstimator:
        """The estimator, which learns the needs of tasks of a kind."""
        return self.engine.estimator

    @property
    def forecast(self) -> Forecast:
        """States of the running tasks, and the free amounts of each machine, by stages."""
        return self.engine.forecast

    @property
    def learner(self) -> Learner:
        """Samples of tasks and machines, and estimates from them."""
        return self.engine.learner

    @property
    def highest(self) -> Level:
        """The finest level on any machine."""
        return self.engine.settings.highest

    @property
    def now(self) -> float:
        """Time of the present round, or of the last one."""
        return self.engine.now

    def first_demand(self, class_id: int) -> Floats:
        """Demand of tasks of a class (by index) in their first stage, shape (resources,)."""
        return self.engine.first_demand(class_id)

    def offers(self, classes: Ints) -> Ints:
        """Largest number of tasks of each class (by index) that may be sent to each machine, shape (classes, rows)."""
        return self.engine.offers(classes)

    @property
    def left_out(self) -> Collection[Group]:
        """Groups of gangs that fell short, which are not tried again before something changes."""
        return self.engine.left_out

    def look(self, rows: Ints) -> None:
        """Bring the timelines of machines, by row, up to date."""
        self.engine.rule.look(rows, self.now)

    def level(self, machine: Hashable) -> Level:
        """Return the level at which a machine is matched now."""
        return self.engine.rule.level(self.cluster.machine(machine).row)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the scheduler's: `explain`, `network`, ..."""
        if name == "engine":
            raise AttributeError(name)
        return getattr(self.scheduler, name)

    # -- from files ---------------------------------------------------------------------------------------------

    @classmethod
    def _begun(cls, header: Header, policy: Policy | None, policies: Sequence[Policy], path: str) -> Self:
        fine = cls(Scheduler(policy, header.cluster_resources, header.seed), **arguments(header.adapter))
        if policy is None:
            fine.policy = policy_of(header.policy, policies, path, 0, fine.engine.adapter.makers)
        return fine
