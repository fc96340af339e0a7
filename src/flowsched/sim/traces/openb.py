"""The openb GPU cluster (cluster-trace-gpu-v2023 of Alibaba) as a trace, all published lists of pods."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from flowsched.boundary.validate import quoted
from flowsched.cluster.events import JobSubmitted
from flowsched.cluster.model import GPU_MODEL, MOST_DEVICES, Machine, Task
from flowsched.exceptions import InputError, TraceError
from flowsched.sim.tables import LIMIT, Row, named_rows, plain_or_gzipped
from flowsched.sim.traces.formats import TraceFormat, TraceOptions, TraceSource
from flowsched.sim.workload import Arrival, Trace

NODES = "openb_node_list_all_node.csv"
"""File of the machines."""

_GPU_NODES = "openb_node_list_gpu_node.csv"
"""File of the machines with GPUs, taken where the other is not there."""

PODS = "openb_pod_list_"
"""Prefix of the files of pods; the variant and ``.csv`` follow."""

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS = ("name", "cpu_milli", "num_gpu", "gpu_milli")
"""Columns of every list of pods; some have no others."""


def _recognises(source: TraceSource) -> bool:
    if source.names:
        return any(name.startswith(PODS) for name in source.names)
    return {"name", "cpu_milli"} <= {*source.header}


def _read(source: TraceSource, options: TraceOptions) -> Trace:
    path = source.path
    if path.is_dir():
        variant = options.variant or "default"
        pods = plain_or_gzipped(path / f"{PODS}{variant}.csv")
        if pods is None:
            known = sorted(p.name.removeprefix(PODS).split(".")[0] for p in path.glob(f"{PODS}*"))
            raise TraceError(f"{path}: no variant {quoted(variant)}; there are: {', '.join(known) or 'none'}")
        directory = path
    elif options.variant is not None:
        raise InputError(f"variant: {path.name} is one already; name the directory to choose another")
    else:
        pods, directory = path, path.parent
    if options.machines is not None:
        return _read_pods([], pods, options)
    nodes = plain_or_gzipped(directory / NODES) or plain_or_gzipped(directory / _GPU_NODES)
    if nodes is None:
        raise TraceError(f"{directory / NODES}: no such file; the machines must be beside the pods, or be given")
    return _read_pods(read_nodes(nodes, options.limit), pods, options)


def read_nodes(path: Path, limit: int = LIMIT) -> list[Machine]:
    """Read a list of nodes."""
    machines: dict[str, Machine] = {}
    for row in named_rows(path, NODE_COLUMNS, limit):
        name = row.name("sn", "machine", machines)
        gpus = row.integer("gpu", most=MOST_DEVICES)
        machines[name] = Machine(
            name,
            {"cpu": row.integer("cpu_milli") / 1000, "mem": row.integer("memory_mib"), "gpu": gpus},
            labels={GPU_MODEL: row.text("model")} if row.text("model") else {},
        )
    if not machines:
        raise TraceError(f"{path}: a header but no machines")
    return list(machines.values())


def _read_pods(machines: list[Machine], pods: Path, options: TraceOptions) -> Trace:
    arrivals: list[Arrival] = []
    seen: set[str] = set()
    unscheduled, backwards, timed = 0, 0, True
    for row in named_rows(pods, _POD_COLUMNS, options.limit):
        seen.add(row.name("name", "pod", seen))
        timed = row.has("creation_time")
        pod = _pod(row, options.qos_priority, len(arrivals))
        if pod is None:
            backwards += 1
            continue
        arrivals.append(pod)
        unscheduled += timed and not row.text("scheduled_time")
    if not arrivals:
        raise TraceError(f"{pods}: no pod that ran")
    notes = []
    if unscheduled:
        notes.append(
            f"{unscheduled} pods were never scheduled in the original cluster; they run from creation to deletion here"
        )
    if backwards:
        notes.append(f"{backwards} pods are deleted before they begin to run; they are left out")
    if not timed:
        notes.append("the pods have no times; one a second arrives here, in order, and none ever ends")
    variant = pods.name.removeprefix(PODS).split(".")[0]
    return Trace(f"openb ({variant})", arrivals, machines, facts={"source": str(pods)}, notes=tuple(notes))


def _pod(row: Row, qos_priority: Mapping[str, int], position: int) -> Arrival | None:
    """Return the arrival of a pod; None if it is deleted before it begins to run."""
    gpus, milli = row.integer("num_gpu", most=MOST_DEVICES), row.integer("gpu_milli", default=0)
    if gpus > 1 and milli not in (0, 1000):
        raise row.error("gpu_milli", f"a share of one GPU needs num_gpu = 1, got {gpus} GPUs with {milli}")
    if milli > 1000:
        raise row.error("gpu_milli", f"at most 1000 expected, got {milli}")
    qos = row.text("qos")
    if row.has("qos") and qos not in qos_priority:
        raise row.error("qos", f"{', '.join(qos_priority)} expected, got {quoted(qos)}")
    created, duration = (_times(row)) if row.has("creation_time") else (float(position), math.inf)
    if duration < 0:
        return None
    task = Task(
        row.text("name"),
        {
            "cpu": row.integer("cpu_milli") / 1000,
            "mem": row.integer("memory_mib") if row.has("memory_mib") else 0,
            "gpu": milli / 1000 if gpus == 1 and milli else gpus,
        },
        {GPU_MODEL: row.text("gpu_spec").split("|")} if row.text("gpu_spec") else {},
    )
    return Arrival(created, JobSubmitted(task.id, (task,), priority=qos_priority.get(qos, 0)), (duration,))


def _times(row: Row) -> tuple[float, float]:
    """Return the time of creation, and the run time of the pod; < 0 if it is deleted before it starts."""
    created = row.number("creation_time")
    if not row.has("deletion_time"):
        return created, math.inf
    begun = row.number("scheduled_time", default=created)
    return created, row.number("deletion_time") - begun


OPENB = TraceFormat("openb", "openb", _recognises, _read, None)
