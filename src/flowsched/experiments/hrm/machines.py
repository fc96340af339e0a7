"""Few machines: GPUs that are shared, micro-batches beside batch jobs, mixed use of CPUs and GPUs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flowsched.experiments.rows import Row
from flowsched.hrm import Container, ResourceUnit, StackedQueue
from flowsched.sim.unit_sharing import (
    read_interference,
    read_micro_batches,
    share_gpu,
    stacked_latencies,
    unstacked_latencies,
)

__all__ = ["gpu_sharing", "mixed_use", "stream_latency"]

_NAME = "hrm"
_SOURCE_GPU = {1: (2865.0, 24.0, 151.3), 2: (5720.0, 61.0, 103.2), 3: (8575.0, 73.0, 69.0)}
"""By containers at once: GPU memory in MB, most use of the GPU in %, seconds."""


_DRAWN, _VARIATION = 151, 0.83
"""Micro-batches that are drawn where the Azure trace is absent: as many as it has, and its coefficient of variation."""

_INTERFERENCE = "gavel/simulation_throughputs.json.gz"
_REQUESTS = "azure_llm2023/AzureLLMInferenceTrace_code.csv"
_ORIGIN = {
    _INTERFERENCE: "simulation_throughputs.json of https://github.com/stanford-futuredata/gavel, gzipped",
    _REQUESTS: "AzureLLMInferenceTrace_code.csv of https://github.com/Azure/AzurePublicDataset",
}


def gpu_sharing(data: Path | None, notes: list[str]) -> list[Row]:
    """Table 1: detection of 720 images by containers of 30 images, 1, 2 or 3 of them at once on a GPU of 10 GB.

    The speed alone is the source's.  What sharing costs is either fitted to the source's two at once, or what Gavel
    measured of pairs of equal training jobs on a V100, where that is at hand.
    """
    rows: list[Row] = []
    rate = 720 / _SOURCE_GPU[1][2]
    fitted = _SOURCE_GPU[1][2] / _SOURCE_GPU[2][2] / 2
    factors = {"fitted to two at once": fitted}
    path = _recorded(data, _INTERFERENCE)
    if path is None:
        notes.append(
            _absent(data, _INTERFERENCE, "the rows of GPUs shared by measured pairs of training jobs are left out")
        )
    else:
        pairs = read_interference(path)
        factors[f"median of {len(pairs)} pairs of training jobs"] = float(np.median(list(pairs.values())))
        factors["the lightest pair of training jobs"] = max(pairs.values())
    for name, factor in factors.items():
        for most, (memory, use, seconds) in _SOURCE_GPU.items():
            queue = StackedQueue(ResourceUnit("gpu", gmem=10240, gpu=0), most=most)
            jobs = {Container(i, gmem=2860): 30.0 for i in range(24)}
            took, peak = share_gpu(queue, jobs, rate, factor)
            where = f"{most} at once, sharing as {name}"
            alone = _SOURCE_GPU[1][2]
            note = "baseline: one at once" + (" (input)" if most == 1 or (most == 2 and factor == fitted) else "")
            rows.append(Row(_NAME, where, "720 images", took, alone, alone / took, seconds, "s", note))
            if factor == fitted:
                rows.append(Row(_NAME, where, "most GPU memory", peak / 1e6, source_value=memory, unit="MB"))
                busy = 100 * 0.24 * most * factor ** (most - 1)
                rows.append(
                    Row(_NAME, where, "use of the GPU", busy, source_value=use, unit="%", note="24 % alone is an input")
                )
    return rows


def stream_latency(data: Path | None, quick: bool, seed: int, notes: list[str]) -> list[Row]:
    """Figure 10: micro-batches beside 1 to 9 batch jobs, with stacked queues and with fair shares of the cores.

    128 cores; the stream job has 32 containers, each batch job 40.  The micro-batches are 10 s of the Azure trace each,
    or drawn where that is absent, scaled so that one takes 2 s on average when alone.
    """
    path = _recorded(data, _REQUESTS)
    if path is None:
        notes.append(_absent(data, _REQUESTS, f"micro-batches are drawn, coefficient of variation {_VARIATION:g}"))
        tokens = np.random.default_rng(seed).gamma(_VARIATION**-2, size=_DRAWN)
    else:
        tokens = read_micro_batches(path, 10.0)
    tokens = tokens[tokens > 0][: 60 if quick else None]
    what = "micro-batches" if path else "drawn micro-batches"
    work = (tokens / tokens.mean() * 2.0 * 32).tolist()
    alone = float(stacked_latencies(work, 10.0, 32, 0, 8, 16).mean())
    rows: list[Row] = []
    for count in range(1, 10, 2):
        stacked = float(stacked_latencies(work, 10.0, 32, 40 * count, 8, 16).mean())
        shared = float(unstacked_latencies(work, 32, [40] * count, 128).mean())
        where = f"{count} batch jobs beside it, {len(work)} {what}"
        rows.append(
            Row(
                _NAME,
                where,
                "time of a micro-batch, stacked",
                stacked,
                alone,
                alone / stacked,
                None,
                "s",
                "baseline: alone",
            )
        )
        told = "about 1" if count <= 3 else "2 to 3"
        rows.append(Row(_NAME, where, "without stacking against with", shared / stacked, source_value=told))
    return rows


def mixed_use() -> list[Row]:
    """Figure 12: detection (GPU stream) and word count (CPU batch) on 16 cores, alone and together.

    Alone, detection keeps the GPU 67 % and the cores 35 % busy, word count the cores 78 %: these are inputs.  Detection
    takes all cores for 0.35 s of every second as stream containers; word count has a container on every core.
    """
    queue = StackedQueue(ResourceUnit("cpu", vcore=16))
    for i in range(16):
        queue.submit(Container(("count", i), vcore=1), 0.0)
    seconds = 230
    stream = batch = late = 0.0
    for second in range(seconds):
        for part in range(16):
            admission = queue.submit(Container(("detect", part), vcore=1, duration=0.35, kind="stream"), float(second))
            late += not admission.started
        batch += 0.35 * sum(run.container.kind == "batch" for run in queue.running.values())
        stream += 0.35 * sum(run.container.kind == "stream" for run in queue.running.values())
        queue.finish([("detect", part) for part in range(16)], second + 0.35)
        batch += 0.65 * sum(run.container.kind == "batch" for run in queue.running.values())
    cpu = 100 * (stream + 0.78 * batch) / (16 * seconds)
    gpu = 67.0 * (1 - late / (16 * seconds))
    return [
        Row(
            _NAME,
            "detection and word count together",
            "use of the cores",
            cpu,
            78.0,
            cpu / 78.0,
            93.0,
            "%",
            "baseline: word count alone (input)",
        ),
        Row(
            _NAME,
            "detection and word count together",
            "use of the GPU",
            gpu,
            67.0,
            gpu / 67.0,
            67.0,
            "%",
            "baseline: detection alone (input)",
        ),
    ]


def _recorded(data: Path | None, name: str) -> Path | None:
    """Return the path of a recorded input; None if it is not at hand."""
    path = None if data is None else data / name
    return path if path is not None and path.exists() else None


def _absent(data: Path | None, name: str, effect: str) -> str:
    """Return a note on an input that is absent: the effect, and where it can be had."""
    where = "no --data" if data is None else f"no {data / name}"
    return f"{where}: {effect}. They need DIR/{name}: {_ORIGIN[name]}"
