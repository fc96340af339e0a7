"""GPUs allocated on a full cluster whose pods come and go, under policies of both schedulers.

Nodes have 8 GPUs, pods ask for 1, 2, 4 or 8.  A step deletes a pod that has a node, drawn at random, and creates pods until
as many GPUs are asked for as `LOAD` says.  The figure is the mean part of all GPUs that is allocated, over the steps after
the first pods are placed.  All schedulers see the same draws as far as their placements are the same.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.kubernetes.drive import KUBE, OURS, Process
from bench.kubernetes.plane import Client, Refused

__all__ = ["PROFILES", "allocated", "make_nodes"]

GPUS = 8
LOAD = 1.3

_SIZES, _WEIGHTS = (1, 2, 4, 8), (50, 20, 15, 15)
_SPACE = "/api/v1/namespaces/saturation/pods"
_MOST = (
    "profiles:",
    "- schedulerName: default-scheduler",
    "  pluginConfig:",
    "  - name: NodeResourcesFit",
    (
        "    args: {scoringStrategy: {type: MostAllocated, resources: [{name: nvidia.com/gpu, weight: 10},"
        " {name: cpu, weight: 1}, {name: memory, weight: 1}]}}"
    ),
)

PROFILES: dict[str, tuple[str, Sequence[str]]] = {
    "kube-scheduler, default": (KUBE, ()),
    "kube-scheduler, MostAllocated": (KUBE, _MOST),
    "flowsched, default": (OURS, ()),
    "flowsched, spread": (OURS, ('policy = "spread"',)),
    "flowsched, pack": (OURS, ('policy = "pack"',)),
}
"""Names of schedulers in pods, and lines of their settings."""


def make_nodes(client: Client, number: int) -> None:
    """Create the nodes in place of those that are there."""
    client.ask("DELETE", "/api/v1/nodes")
    for i in range(number):
        amounts = {"cpu": "96", "memory": "384Gi", "pods": "250", "nvidia.com/gpu": str(GPUS)}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        name = f"gpu-{i:04d}"
        labels = {"kubernetes.io/hostname": name}
        client.ask("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "status": status})


def allocated(
    client: Client, start: Callable[[], Process], nodes: int, steps: int, seed: int, pause: float = 0.4
) -> tuple[float, float]:
    """Return the mean part of the GPUs that is allocated, and the part of the 8-GPU pods that got a node.

    Parameters
    ----------
    client : Client
    start : callable
        Starts the scheduler.
    nodes, steps, seed : int
    pause : float
        Seconds for the scheduler after each step.
    """
    rnd, total, made = random.Random(seed), nodes * GPUS, 0
    try:
        client.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "saturation"}})
    except Refused as refused:
        if refused.status != 409:
            raise
    _clean(client)
    process = start()
    whole, parts = [0, 0], []
    try:
        for step in range(steps + 1):
            pods = client.ask("GET", _SPACE)["items"]
            running = sorted(
                (one for one in pods if "nodeName" in one["spec"]), key=lambda one: str(one["metadata"]["name"])
            )
            if step and running:
                gone = rnd.choice(running)
                pods.remove(gone)
                client.ask("DELETE", f"{_SPACE}/{gone['metadata']['name']}?gracePeriodSeconds=0")
            asked = sum(map(_gpus, pods))
            while asked < LOAD * total:
                (size,) = rnd.choices(_SIZES, _WEIGHTS)
                made += 1
                whole[0] += size == GPUS
                client.ask("POST", _SPACE, _pod(f"p{made:06d}", size, rnd.choice((4, 8, 12)), process.name))
                asked += size
            _settle(client, 8.0 if not step else pause)
            if step:
                parts.append(
                    sum(_gpus(one) for one in client.ask("GET", _SPACE)["items"] if "nodeName" in one["spec"]) / total
                )
        left = sum(_gpus(one) == GPUS and "nodeName" not in one["spec"] for one in client.ask("GET", _SPACE)["items"])
        return statistics.fmean(parts), 1 - left / max(whole[0], 1)
    finally:
        process.end()
        _clean(client)


def _settle(client: Client, seconds: float) -> None:
    """Wait until no more pods get a node, and some time at least."""
    before, end = -1, time.monotonic() + 30
    while time.monotonic() < end:
        time.sleep(seconds)
        now = len(client.ask("GET", f"{_SPACE}?fieldSelector=spec.nodeName!%3D")["items"])
        if now == before or seconds < 1:
            return
        before = now


def _clean(client: Client) -> None:
    client.ask("DELETE", f"{_SPACE}?gracePeriodSeconds=0")
    while client.ask("GET", f"{_SPACE}?limit=1")["items"]:
        time.sleep(0.1)


def _gpus(pod: Any) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])


def _pod(name: str, size: int, cpus: int, scheduler: str) -> dict[str, Any]:
    amounts = {"nvidia.com/gpu": str(size), "cpu": str(cpus * size), "memory": f"{32 * size}Gi"}
    container = {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
    return {"metadata": {"name": name}, "spec": {"schedulerName": scheduler, "containers": [container]}}
