"""Few machines: shared cores, and micro-batches that compete with batch jobs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from bench.hrm.unit_sharing import (
    read_micro_batches,
    stacked_latencies,
    unstacked_latencies,
)
from bench.rows import Row
from flowsched.exceptions import FlowschedError
from flowsched.hrm import Container, Elastic, ResourceUnit

__all__ = ["interference", "processes", "stream_alone", "stream_latency"]

_NAME = "hrm"
_DRAWN, _VARIATION = 151, 0.83
"""Micro-batches that are drawn where the Azure trace is absent: as many as it has, and its coefficient of variation."""

_REQUESTS = "azure_llm2023/AzureLLMInferenceTrace_code.csv"
_ORIGIN = "AzureLLMInferenceTrace_code.csv of https://github.com/Azure/AzurePublicDataset"


def processes(quick: bool, notes: list[str]) -> list[Row]:
    """Sharing as in Table 1, by real processes on this machine's cores: 1, 2 or 3 at once on one unit of an agent.

    Each copies memory, or computes in the cache; it has its own core where there are enough.
    """
    if not hasattr(os, "pidfd_open"):
        notes.append("the agent runs on Linux only: the rows of processes that share this machine are left out")
        return []
    from flowsched.hrm.agent import Agent

    rows: list[Row] = []
    count, runs, times = (3, 1, 1) if quick else (12, 3, 10)
    work = {
        "copy 32 MB of memory": f"a = bytearray(1 << 25)\nfor _ in range({6 * times}): b = a[:]",
        "compute in the cache": f"s = 0\nfor i in range({500_000 * times}): s += i",
    }
    cores = len(os.sched_getaffinity(0))
    for what, code in work.items():
        alone = alone_mean = 0.0
        for most in (1, 2, 3):
            took = []
            for _ in range(runs):
                with Agent([ResourceUnit("cpu", "this machine", vcore=count)], most=most) as agent:
                    begin = time.perf_counter()
                    for i in range(count):
                        agent.submit(None, Container(f"c{i}", vcore=1), [sys.executable, "-I", "-S", "-c", code])
                    failed = [one for one in agent.wait(timeout=300.0) if one.status]
                    took.append(time.perf_counter() - begin)
                    if failed:
                        raise FlowschedError(f"a process of the experiment failed: {failed[0]}")
            seconds, mean = float(np.median(took)), float(np.mean(took))
            alone, alone_mean = alone or seconds, alone_mean or mean
            where = f"{count} processes that {what}, {most} at once, {cores} cores"
            note = "measured; baseline: one at once"
            rows.append(Row(_NAME, where, "seconds for all", seconds, alone, alone / seconds, None, "s", note))
            rows.append(
                Row(_NAME, where, "seconds for all, mean", mean, alone_mean, alone_mean / mean, None, "s", note)
            )
    return rows


def interference(quick: bool, notes: list[str]) -> list[Row]:
    """Figure 10 by real processes: a stream's process with batch ones that share its core, or the memory's bandwidth.

    Stacked, the agent stops batch processes for it; otherwise all run at once.  Both are measured, and the process alone.
    """
    if not hasattr(os, "pidfd_open"):
        return []  # `processes` says so
    cores = sorted(os.sched_getaffinity(0))
    times = 2 if quick else 10
    compute = f"for i in range({500_000 * times}): pass"
    copy = f"a = bytearray(1 << 25)\nfor _ in range({6 * times}): b = a[:]"
    cases = [(compute, "computes on one core", cores[:1], count) for count in ((1, 3) if quick else (1, 3, 5))]
    if len(cores) > 1:
        there = cores[: min(4, len(cores))]
        cases.append((copy, f"copies memory on {len(there)} cores", there, len(there) - 1))
    else:
        notes.append("there is one core: interference by the memory's bandwidth is not measured")
    rows: list[Row] = []
    for code, what, cpus, count in cases:
        # All three take turns, so that other load of the machine meets each.
        found = [[_contended(code, cpus, *how) for how in ((0, True), (count, True), (count, False))]
                 for _ in range(1 if quick else 5)]  # fmt: skip
        where = f"a process that {what}, {count} batch processes that do so next to it"
        note = "measured; baseline: the process alone"
        for average, suffix in ((np.median, ""), (np.mean, ", mean")):
            alone, stacked, together = average(found, axis=0).tolist()
            rows += [
                Row(
                    _NAME, where, f"time, without stacking{suffix}", together, alone, alone / together, None, "s", note
                ),
                Row(_NAME, where, f"time, with stacking{suffix}", stacked, alone, alone / stacked, None, "s", note),
            ]
    return rows


def stream_alone(quick: bool) -> list[Row]:
    """Figure 9(b) by a real process: alone, it takes as long under the agent as when it is started by hand."""
    if not hasattr(os, "pidfd_open"):
        return []  # `processes` says so
    core = sorted(os.sched_getaffinity(0))[:1]
    code = f"for i in range({500_000 if quick else 5_000_000}): pass"
    found = [[_contended(code, core, 0, True), _by_hand(code, core)] for _ in range(1 if quick else 7)]
    (agent, hand), (agent_mean, hand_mean) = np.median(found, axis=0).tolist(), np.mean(found, axis=0).tolist()
    where, note = "9(b): a stream's process alone on one core", "measured; baseline: started by hand"
    return [
        Row(_NAME, where, "time under the agent", agent, hand, hand / agent, "as under others", "s", note),
        Row(_NAME, where, "time under the agent, mean", agent_mean, hand_mean, hand_mean / agent_mean, None, "s", note),
    ]


def _by_hand(code: str, cpus: list[int]) -> float:
    begin = time.perf_counter()
    bound = f"import os; os.sched_setaffinity(0, {cpus})\n{code}"
    # A session of its own, as under the agent: systems may share out their CPUs by session.
    subprocess.run([sys.executable, "-I", "-S", "-c", bound], check=True, start_new_session=True)
    return time.perf_counter() - begin


def _contended(code: str, cpus: list[int], count: int, stacked: bool) -> float:
    """Return the seconds of a stream's process on these CPUs together with batch processes that never end."""
    from flowsched.hrm.agent import Agent

    vcore = len(cpus) if stacked else len(cpus) + count
    with Agent([ResourceUnit("unit", "this machine", vcore=vcore, cpus=tuple(cpus))]) as agent:
        for i in range(count):
            line = [sys.executable, "-I", "-S", "-c", f"while True:\n    {code.replace(chr(10), chr(10) + '    ')}"]
            agent.submit("unit", Container(f"b{i}", vcore=1), line)
        time.sleep(0.2)  # they have begun
        begin = time.perf_counter()
        agent.submit(
            "unit", Container("stream", vcore=len(cpus), kind="stream"), [sys.executable, "-I", "-S", "-c", code]
        )
        ended = [one for one in agent.step(timeout=120.0) if one.id == "stream"]
        if not ended or ended[0].status:
            raise FlowschedError(f"a process of the experiment failed: {ended}")
        return time.perf_counter() - begin


def stream_latency(data: Path | None, quick: bool, seed: int, notes: list[str]) -> list[Row]:
    """Figure 10: micro-batches with 1 to 9 batch jobs, with stacked queues and with fair shares of the cores.

    128 cores; the stream job has 32 containers, each batch job 40 that run 5 to 15 s and are followed by others.  The
    micro-batches are 10 s of the Azure trace each, or drawn where that is absent, scaled so that one takes 2 s on average
    when alone.  Stacked, the number of batch jobs does not change its time, because a stream's priority is absolute: that is
    not a row.  Without stacking, the ratio is a result.  Elastic streams have as many containers as their load needs.
    """
    path = None if data is None else data / _REQUESTS
    if path is None or not path.exists():
        where = "no --data" if path is None else f"no {path}"
        effect = f"micro-batches are drawn, coefficient of variation {_VARIATION:g}"
        notes.append(f"{where}: {effect}. They would be read from DIR/{_REQUESTS}: {_ORIGIN}")
        path = None
        tokens = np.random.default_rng(seed).gamma(_VARIATION**-2, size=_DRAWN)
    else:
        tokens = read_micro_batches(path, 10.0)
    tokens = tokens[tokens > 0][: 60 if quick else None]
    what = "micro-batches" if path else "drawn micro-batches"
    work = (tokens / tokens.mean() * 2.0 * 32).tolist()
    alone = float(stacked_latencies(work, 10.0, 32, 0, 8, 16).mean())
    rows: list[Row] = []
    for count in range(1, 10, 2):
        rng = np.random.default_rng([seed, count])
        stacked = float(stacked_latencies(work, 10.0, 32, 40 * count, 8, 16).mean())
        shared = unstacked_latencies(work, 10.0, 32, [40] * count, 128, lambda rng=rng: float(rng.uniform(5.0, 15.0)))  # type: ignore[misc]
        where = f"{count} batch jobs next to it, {len(work)} {what}"
        published = "about 1" if count <= 3 else "2 to 3"
        ratio = float(shared.mean()) / stacked
        rows.append(Row(_NAME, where, "without stacking against with", ratio, source_value=published, better="less"))
    held: list[int] = []
    elastic = stacked_latencies(work, 10.0, 32, 360, 8, 16, Elastic(most=128), held)
    where = f"an elastic stream next to 9 batch jobs, {len(work)} {what}"
    late = 100 * float(np.mean(elastic > 10.0))
    rows += [
        Row(_NAME, where, "containers of the stream, mean", float(np.mean(held)), 32, note="baseline: not elastic"),
        Row(
            _NAME,
            where,
            "time of a micro-batch",
            float(elastic.mean()),
            alone,
            unit="s",
            note="baseline: not elastic, 2 s (input)",
        ),
        Row(_NAME, where, "micro-batches later than the next", late, unit="%"),
    ]
    return rows
