"""Tasks that read their input over a network of gigabit links: one simulated run, with a round every second.

A task streams its input while it computes: at full speed it needs ``bytes / seconds`` of bandwidth.  Input on the task's own
machine comes at that rate.  Other input passes the network interfaces of both machines, and between racks the links of both
racks to the core switch.  Links are shared max-min fairly, which long TCP flows approximate.  So the cost of a bad place is
not an input: it follows from the number of tasks that read through the same link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import Task
from flowsched.cluster.events import JobSubmitted, MachineAdded, TaskCompleted

__all__ = ["LINK", "Reading", "ReadingJob", "read_all", "shared"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LINK = 125e6
"""Bytes a second of every link: the source's switches are of one gigabit."""

_RACKS, _IN_RACK = 2, 10
_MACHINES = _RACKS * _IN_RACK
# Links by number: out of and into each machine, out of and into each rack, and one without limit that fills the rows.
_OUT, _IN, _UP, _DOWN, _NONE = 0, _MACHINES, 2 * _MACHINES, 2 * _MACHINES + _RACKS, 2 * (_MACHINES + _RACKS)


@dataclass(frozen=True)
class ReadingJob:
    """A job that arrives: seconds of computing of each task, the machine of its input, and the bytes of each input."""

    time: float
    seconds: Floats
    source: Ints
    bytes: float


@dataclass(frozen=True)
class Reading:
    """Times of a run by task, in the order of the jobs, and the bytes that were read by the way that they took.

    Attributes
    ----------
    jobs : sequence of ReadingJob
    starts, ends : ndarray of float64
    across, within : float
        Bytes from another rack, and from another machine of the rack, as a part of all bytes.
    """

    jobs: Sequence[ReadingJob]
    starts: Floats
    ends: Floats
    across: float
    within: float

    def snp(self) -> float:
        """Return the geometric mean over jobs of ideal / actual run time (equation 11); ideal: all tasks at once, input local."""
        sizes = np.cumsum([len(job.seconds) for job in self.jobs])[:-1]
        ideal = np.array([job.seconds.max() for job in self.jobs])
        actual = np.array(
            [ends.max() - job.time for job, ends in zip(self.jobs, np.split(self.ends, sizes), strict=True)]
        )
        return float(np.exp(np.log(ideal / actual).mean()))


def shared(links: Ints, most: Floats, capacity: Floats) -> Floats:
    """Return max-min fair rates.

    Parameters
    ----------
    links : ndarray of int64, shape (flows, k)
        Links that each flow passes.
    most : ndarray of float64, shape (flows,)
        No flow gets more.
    capacity : ndarray of float64, shape (links,)
    """
    rate = np.zeros(len(most))
    left, open_ = capacity.copy(), np.arange(len(most))
    while len(open_):
        mine = links[open_]
        count = np.bincount(mine.ravel(), minlength=len(capacity))
        share = np.divide(left, count, out=np.full(len(left), np.inf), where=count > 0)
        bound = share[mine].min(axis=1)
        # Shares only grow as flows are settled: flows that want no more than the least share get it, else those of that link.
        least = bound.min()
        settled = most[open_] <= least
        if not settled.any():
            settled = bound <= least * (1 + 1e-12)
        given = np.minimum(most[open_[settled]], bound[settled])
        rate[open_[settled]] = given
        left -= np.bincount(mine[settled].ravel(), np.repeat(given, mine.shape[1]), len(left))
        np.maximum(left, 0.0, out=left)
        open_ = open_[~settled]
    return rate


def _path(source: int, machine: int) -> tuple[int, int, int, int]:
    if source == machine:
        return (_NONE,) * 4
    a, b = source // _IN_RACK, machine // _IN_RACK
    return (_OUT + source, _IN + machine, *((_UP + a, _DOWN + b) if a != b else (_NONE, _NONE)))


def read_all(jobs: Sequence[ReadingJob], scheduler: Any, slots: int) -> Reading:
    """Run jobs to their end on 20 machines of two racks; running tasks are never stopped."""
    count = sum(len(job.seconds) for job in jobs)
    seconds = np.concatenate([job.seconds for job in jobs])
    source = np.concatenate([job.source for job in jobs])
    wanted = np.repeat([job.bytes for job in jobs], [len(job.seconds) for job in jobs]) / seconds
    capacity = np.append(np.full(_NONE, LINK), np.inf)
    links = np.full((count, 4), _NONE)
    left, starts, ends = seconds.copy(), np.full(count, np.nan), np.full(count, np.nan)
    where = np.full(count, -1)
    scheduler.apply(
        *(MachineAdded(m, {"cpu": slots}, f"rack{m // _IN_RACK}", slots=slots, time=0.0) for m in range(_MACHINES))
    )
    running = np.empty(0, np.int64)
    now, first, j = 0.0, 0, 0
    while np.isnan(ends).any():
        # A round at each full second at which something came or ended, or tasks wait.
        while j < len(jobs) and jobs[j].time <= now:
            job, n = jobs[j], len(jobs[j].seconds)
            data = [((int(m), job.bytes),) if job.bytes else () for m in job.source]
            tasks = [Task(first + i, {"cpu": 1}, data=data[i]) for i in range(n)]
            scheduler.apply(JobSubmitted(j, tasks, time=job.time))
            first, j = first + n, j + 1
        round_ = scheduler.schedule(now)
        scheduler.commit(round_)
        for task, machine in round_.placements.items():
            starts[task], where[task], links[task] = now, machine, _path(int(source[task]), machine)
        running = np.append(running, np.array(list(round_.placements), np.int64))
        end = now + 1.0
        while now < end:
            speed = np.minimum(
                shared(links[running], wanted[running], capacity) / np.maximum(wanted[running], 1e-300), 1.0
            )
            speed[wanted[running] == 0] = 1.0
            step = min(float((left[running] / speed).min(initial=np.inf)), end - now)
            left[running] -= speed * step
            now = end if step >= end - now else now + step
            done = running[left[running] <= 1e-9]
            if len(done):
                ends[done] = now
                scheduler.apply(*(TaskCompleted(int(task), time=now) for task in done))
                running = running[left[running] > 1e-9]
    moved = np.where(where != source, wanted * seconds, 0.0)
    across = float(moved[where // _IN_RACK != source // _IN_RACK].sum())
    total = max(float((wanted * seconds).sum()), 1.0)
    return Reading(jobs, starts, ends, across / total, (float(moved.sum()) - across) / total)
