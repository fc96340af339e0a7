"""The workload of ``flowsched simulate`` without a trace: three users on a small GPU cluster that is too small for them."""

from __future__ import annotations

import numpy as np

from flowsched.cluster.events import Event, JobSubmitted, MachineDrained, MachineRemoved
from flowsched.cluster.events import MachineAdded as Added
from flowsched.cluster.events import MachineFailed as Failed
from flowsched.cluster.model import Machine, Task
from flowsched.sim.workload import Arrival, Workload

__all__ = ["demo"]

_MACHINE = {"cpu": 64.0, "mem": 262144.0, "gpu": 8.0}
_IN_RACK = 4

_USERS = (
    # user, priority, GPUs of a task, tasks of a job, least and most minutes, part of all GPU time
    ("product", 0, 1.0, (1, 2), (4, 15), 0.25),
    ("research", 1, 4.0, (2, 4), (25, 80), 0.45),
    ("students", 2, 1.0, (6, 16), (8, 40), 0.30),
)
_BURST = (0.55, 0.65)
"""Part of the arrivals' span in which all jobs of the first user arrive that come in its second half."""

_FAILS, _BACK = 0.35, 0.45
_DRAINED, _GONE, _AGAIN = 0.70, 0.78, 0.86
"""When the second rack fails and is back, and when the last machine is maintained, as parts of the arrivals' span."""


def demo(tasks: int, load: float, scale: float, rng: np.random.Generator) -> Workload:
    """Make the workload; see `synthetic`."""
    count = max(round(16 * scale), 1)
    machines = [Machine(f"m{i:02d}", _MACHINE, f"rack {i // _IN_RACK}") for i in range(count)]
    seconds = [60 * (low + high) / 2 for _, _, _, _, (low, high), _ in _USERS]
    sizes = [(low + high) / 2 for _, _, _, (low, high), _, _ in _USERS]
    # GPU seconds of a job of each user, and the jobs of each in the proportion that gives its part of them.
    work = [gpus * s * n for (_, _, gpus, *_), s, n in zip(_USERS, seconds, sizes, strict=True)]
    jobs = [user[-1] / w for user, w in zip(_USERS, work, strict=True)]
    one = tasks / sum(j * n for j, n in zip(jobs, sizes, strict=True))
    span = one / (load * count * _MACHINE["gpu"])
    arrivals: list[Arrival] = []
    for (user, priority, gpus, size, minutes, _), each in zip(_USERS, jobs, strict=True):
        n = max(round(one * each), 1)
        at = np.sort(rng.random(n))
        if priority == 0:
            late = at > 0.5
            at[late] = _BURST[0] + (at[late] - 0.5) * 2 * (_BURST[1] - _BURST[0])
        for i, when in enumerate(np.sort(at).tolist()):
            members = int(rng.integers(size[0], size[1] + 1))
            runs = np.round(60 * rng.uniform(*minutes, members), 3).tolist()
            demand = {"cpu": 6.0 * gpus, "mem": 16384.0 * gpus, "gpu": gpus}
            gang = members if gpus > 1 else None
            made = tuple(Task(f"{user}-{i}-{k}", demand) for k in range(members))
            job = JobSubmitted(f"{user}-{i}", made, user, priority, gang)
            arrivals.append(Arrival(round(when * span, 3), job, tuple([max(runs)] * members if gang else runs)))
    arrivals.sort(key=lambda arrival: arrival.time)
    total = np.cumsum([len(arrival.durations) for arrival in arrivals])
    arrivals = arrivals[: max(int(np.searchsorted(total, tasks, side="right")), 1)]
    second = machines[_IN_RACK : 2 * _IN_RACK] or machines[:1]
    events: list[Event] = [Failed(m.id, time=round(_FAILS * span, 3)) for m in second]
    events += [Added(m.id, m.capacity, m.rack, time=round(_BACK * span, 3)) for m in second]
    last = machines[-1]
    events += [
        MachineDrained(last.id, time=round(_DRAINED * span, 3)),
        MachineRemoved(last.id, time=round(_GONE * span, 3)),
        Added(last.id, last.capacity, last.rack, time=round(_AGAIN * span, 3)),
    ]
    return Workload("demo", arrivals, machines, events)
