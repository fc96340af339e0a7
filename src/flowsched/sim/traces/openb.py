"""The openb GPU cluster (cluster-trace-gpu-v2023 of Alibaba) as a trace."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flowsched.boundary.validate import quoted
from flowsched.cluster.events import JobSubmitted
from flowsched.cluster.model import GPU_MODEL, MOST_DEVICES, Machine, Task
from flowsched.exceptions import TraceError
from flowsched.sim.tables import LIMIT, Row, named_rows, plain_or_gzipped
from flowsched.sim.workload import Arrival, Trace

__all__ = ["NODES", "PODS", "read_openb"]

NODES = "openb_node_list_all_node.csv"
"""File of the machines."""

PODS = "openb_pod_list_"
"""Prefix of the files of pods; the variant and ``.csv`` follow."""


def read_openb(directory: Path, pods: Path, qos_priority: Mapping[str, int], limit: int = LIMIT) -> Trace:
    """Read the nodes and one table of pods: see `flowsched.sim.load_trace`."""
    nodes = plain_or_gzipped(directory / NODES)
    if nodes is None:
        raise TraceError(f"{directory / NODES}: no such file; the machines must be beside the pods")
    machines: dict[str, Machine] = {}
    for row in named_rows(nodes, ("sn", "cpu_milli", "memory_mib", "gpu", "model"), limit):
        name = row.text("sn")
        if name in machines:
            raise row.error("sn", f"machine {quoted(name)} occurs twice")
        gpus = row.integer("gpu", most=MOST_DEVICES)
        machines[name] = Machine(
            name,
            {"cpu": row.integer("cpu_milli") / 1000, "mem": row.integer("memory_mib"), "gpu": gpus},
            labels={GPU_MODEL: row.text("model")} if row.text("model") else {},
        )
    if not machines:
        raise TraceError(f"{nodes}: a header but no machines")
    columns = (
        "name",
        "cpu_milli",
        "memory_mib",
        "num_gpu",
        "gpu_milli",
        "gpu_spec",
        "qos",
        "creation_time",
        "deletion_time",
        "scheduled_time",
    )
    arrivals, unscheduled, seen = [], 0, set()
    for row in named_rows(pods, columns, limit):
        name = row.text("name")
        if name in seen:
            raise row.error("name", f"pod {quoted(name)} occurs twice")
        seen.add(name)
        arrivals.append(_openb_pod(row, qos_priority))
        unscheduled += not row.text("scheduled_time")
    if not arrivals:
        raise TraceError(f"{pods}: a header but no pods")
    notes = []
    if unscheduled:
        notes.append(
            f"{unscheduled} pods were never scheduled in the original cluster; they run from creation to deletion here"
        )
    variant = pods.name.removeprefix(PODS).split(".")[0]
    return Trace(
        f"openb ({variant})", arrivals, list(machines.values()), facts={"source": str(pods)}, notes=tuple(notes)
    )


def _openb_pod(row: Row, qos_priority: Mapping[str, int]) -> Arrival:
    gpus, milli = row.integer("num_gpu", most=MOST_DEVICES), row.integer("gpu_milli", default=0)
    if gpus > 1 and milli not in (0, 1000):
        raise row.error("gpu_milli", f"a share of one GPU needs num_gpu = 1, got {gpus} GPUs with {milli}")
    if milli > 1000:
        raise row.error("gpu_milli", f"at most 1000 expected, got {milli}")
    qos = row.text("qos")
    if qos not in qos_priority:
        raise row.error("qos", f"{', '.join(qos_priority)} expected, got {quoted(qos)}")
    created = row.number("creation_time")
    begun = row.number("scheduled_time", default=created)
    duration = row.number("deletion_time") - begun
    if duration < 0:
        raise row.error(
            "deletion_time",
            f"it is before the pod began to run ({quoted(row.text('deletion_time'))[1:-1]} < {begun:g})",
        )
    task = Task(
        row.text("name"),
        {
            "cpu": row.integer("cpu_milli") / 1000,
            "mem": row.integer("memory_mib"),
            "gpu": milli / 1000 if gpus == 1 and milli else gpus,
        },
        {GPU_MODEL: row.text("gpu_spec").split("|")} if row.text("gpu_spec") else {},
    )
    return Arrival(created, JobSubmitted(task.id, (task,), priority=qos_priority[qos]), (duration,))
