"""Measurements of a simulation, from its parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np

from flowsched.rounds.values import Reason, ReasonCode
from flowsched.sim.inputs import WHERE
from flowsched.sim.metrics import Metrics
from flowsched.sim.recorder import Recorder, reason_counts
from flowsched.sim.values import UNDECIDED
from flowsched.sim.workload import Workload
from flowsched.sim.world import COMPLETED, NOT_ARRIVED, RUNNING, WAITING, World

__all__ = ["measured"]

_NEVER_STARTS = (ReasonCode.NEVER_FITS, ReasonCode.FILTERED)


def measured(
    workload: Workload,
    world: World,
    recorder: Recorder,
    facts: Mapping[str, Any],
    counts: Mapping[str, int],
    reason_of: Callable[[Hashable], Reason | None],
    end: float,
    wall_seconds: float,
) -> Metrics:
    """Return the measurements of a run until `end`; `reason_of` gives the reason of a waiting task, if a round has told one."""
    states = list(world.tasks.values())
    count = world.counted()
    waiting = [t.id for t in states if t.state == WAITING]
    reasons = {task: reason for task in waiting if (reason := reason_of(task)) is not None}
    infeasible = sum(reason.code in _NEVER_STARTS for reason in reasons.values())
    waits = np.array([t.first_start - t.arrived for t in states], np.float64)
    unstarted = end - np.array([t.arrived for t, w in zip(states, waits, strict=True) if math.isnan(w)], np.float64)
    waits = waits[np.isfinite(waits)]
    arrivals = workload.arrivals
    table = world.task_table(end)
    on_machine, in_rack, elsewhere = (math.fsum(table[f"read_{where}"]) for where in WHERE)
    first, last = (arrivals[0].time, arrivals[-1].time) if arrivals else (0.0, 0.0)
    return Metrics(
        facts={
            "workload": workload.name,
            **workload.facts,
            "machines": len(workload.machines),
            "tasks": workload.n_tasks,
            "units": dict(workload.units),
            **facts,
            "end": end,
            "nothing_left": world.clock.quiet,
        },
        tasks={
            "completed": count[COMPLETED],
            "running": count[RUNNING],
            "waiting": len(waiting) - infeasible,
            "never_fits": infeasible,
            "not_arrived": count[NOT_ARRIVED],
        },
        placed=len(waits),
        waiting=reason_counts([reasons[task].code.value if task in reasons else UNDECIDED for task in waiting]),
        reasons=reasons,
        usage=recorder.usage(first, last, end),
        offered=workload.load(),
        counts={
            "rounds": recorder.n_rounds,
            **counts,
            "machine_failures": world.failures,
            "task_failures": world.task_failures,
            "lost_seconds": world.lost_seconds,
            "data_read": on_machine + in_rack + elsewhere,
            "data_on_machine": on_machine,
            "data_in_rack": in_rack,
        },
        waits=waits,
        ends=np.array([t.ended for t in states], np.float64),
        series=recorder.series(),
        rounds=recorder.rounds(),
        wall_seconds=wall_seconds,
        unstarted=np.maximum(unstarted, 0.0),
        table=table,
        runs=world.runs.columns(),
        machines=world.runs.machines(),
        absences=world.runs.absences(),
        queue=recorder.queues(),
        fragmentation=recorder.fragmentation(end),
        energy=None if world.power is None else recorder.energy(end, world.power.lost),
    )
