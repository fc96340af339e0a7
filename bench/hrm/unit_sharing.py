"""Sharing of units between streams of micro-batches and batch containers."""

from __future__ import annotations

import csv
import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flowsched.exceptions import TraceError
from flowsched.hrm.containers import Container, Outcome
from flowsched.hrm.queues import StackedQueue
from flowsched.hrm.rebalancing import Elastic
from flowsched.hrm.units import ResourceUnit

Floats = NDArray[np.float64]


def read_micro_batches(path: str | Path, window: float) -> Floats:
    """Read the tokens that arrive in each window of `window` seconds.

    Parameters
    ----------
    path : path
        A CSV file of the Azure LLM inference trace: TIMESTAMP, ContextTokens, GeneratedTokens.

    Raises
    ------
    TraceError
        A column is missing or a field is malformed; the message names the line.
    """
    times, tokens = [], []
    with open(path, newline="") as file:
        for line, row in enumerate(csv.DictReader(file), start=2):
            try:
                times.append(datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp())
                tokens.append(int(row["ContextTokens"]) + int(row["GeneratedTokens"]))
            except (KeyError, TypeError, ValueError) as error:
                raise TraceError(f"{path}: line {line}: {error}") from None
    at = ((np.array(times) - times[0]) // window).astype(np.int64)
    return np.bincount(at, tokens).astype(np.float64)


def stacked_latencies(
    work: Sequence[float],
    interval: float,
    parts: int,
    batch: int,
    units: int,
    cores: int,
    elastic: Elastic | None = None,
    held: list[int] | None = None,
) -> Floats:
    """Return the latency of each micro-batch if stream containers go before batch containers.

    Parameters
    ----------
    work : sequence of float
        Core-seconds of each micro-batch; they come every `interval` seconds.
    parts : int
        Containers of one core that share a micro-batch.
    batch : int
        Batch containers of one core that always want to run.
    units, cores : int
        Units, and cores of each.
    elastic : Elastic, optional
        The number of parts follows the load of the micro-batch before.
    held : list of int, optional
        Takes the number of parts of every micro-batch.
    """
    queues = [StackedQueue(ResourceUnit(f"u{i}", vcore=cores)) for i in range(units)]
    for i in range(batch):
        queues[i % units].submit(Container(("batch", i), vcore=1), 0.0)
    ends: list[tuple[float, int, object]] = []
    latency = []
    for k, amount in enumerate(work):
        now = k * interval
        for end, unit, id in [item for item in ends if item[0] <= now]:
            queues[unit].finish(id, end)
        ends = [item for item in ends if item[0] > now]
        last = now
        for part in range(parts):
            container = Container((k, part), vcore=1, duration=amount / parts, kind="stream")
            order = sorted(range(units), key=lambda i: (-queues[i].free[0], -queues[i].stream_room[0], i))
            start, where = (
                now,
                next((i for i in order if queues[i].submit(container, now).outcome is Outcome.STARTED), None),
            )
            if where is None:  # streams hold every core: this part comes after one of them
                start, where, before = min(ends, key=lambda item: item[0])
                ends.remove((start, where, before))
                queues[where].finish(before, start)
                queues[where].submit(container, start)
            ends.append((start + container.duration, where, container.id))
            last = max(last, start + container.duration)
        latency.append(last - now)
        if held is not None:
            held.append(parts)
        if elastic is not None:
            parts = elastic.target(parts, latency[-1] / interval)
    return np.array(latency)


def unstacked_latencies(
    work: Sequence[float], interval: float, parts: int, jobs: Sequence[int], cores: int, draw: Callable[[], float]
) -> Floats:
    """Return the latency of each micro-batch if the stream job shares all cores fairly with batch jobs, as by offers of Mesos.

    A free core is offered to the job that has the fewest; running containers are not stopped.

    Parameters
    ----------
    work : sequence of float
        Core-seconds of each micro-batch; they come every `interval` seconds.
    parts : int
        Containers of one core that share a micro-batch.
    jobs : sequence of int
        Batch containers of one core that each of the other jobs wants to run, at any time.
    cores : int
    draw : callable
        Returns the run time of the next batch container.
    """
    stream = len(jobs)
    running = [0] * (stream + 1)
    waiting: deque[tuple[int, float]] = deque()  # parts that have no core yet: micro-batch, run time
    left = [parts] * len(work)  # by micro-batch: parts that have not ended
    latency = np.full(len(work), np.nan)
    ends: list[tuple[float, int, int]] = []  # end, job, micro-batch
    # The batch jobs are there before: the rest of their run time is a random part of it.
    now, arrived = 0.0, 0
    begins = True
    while np.isnan(latency).any():
        while sum(running) < cores:
            wanting = [j for j in range(stream) if running[j] < jobs[j]] + ([stream] if waiting else [])
            if not wanting:
                break
            job = min(wanting, key=lambda j: (running[j], j != stream))
            batch, seconds = waiting.popleft() if job == stream else (-1, draw())
            running[job] += 1
            heapq.heappush(ends, (now + (seconds * len(ends) / cores if begins else seconds), job, batch))
        begins = False
        coming = arrived * interval if arrived < len(work) else math.inf
        if ends and ends[0][0] <= coming:
            now, job, batch = heapq.heappop(ends)
            running[job] -= 1
            if job == stream:
                left[batch] -= 1
                if not left[batch]:
                    latency[batch] = now - batch * interval
        else:
            now = coming
            waiting.extend((arrived, work[arrived] / parts) for _ in range(parts))
            arrived += 1
    return latency
