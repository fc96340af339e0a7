"""Workloads of the simulator Batsim.

Their fields: https://batsim.readthedocs.io/en/latest/input-workload.html.
"""

from __future__ import annotations

from typing import Any

from flowsched.boundary.validate import quoted
from flowsched.cluster.events import JobSubmitted
from flowsched.cluster.model import Machine, Task
from flowsched.exceptions import TraceError
from flowsched.sim.tables import Row, cells_of, json_document
from flowsched.sim.traces.formats import TraceFormat, TraceOptions, TraceSource
from flowsched.sim.workload import LATEST, Arrival, Trace


def _recognises(source: TraceSource) -> bool:
    return source.text.lstrip().startswith("{") and all(f'"{name}"' in source.text for name in ("jobs", "subtime"))


def _read(source: TraceSource, options: TraceOptions) -> Trace:
    path, document = source.path, json_document(source.path, options.limit)
    jobs, profiles = document.get("jobs"), document.get("profiles")
    if not isinstance(jobs, list) or not isinstance(profiles, dict) or not jobs:
        raise TraceError(f"{path}: an object with a list of jobs and an object of profiles expected")
    arrivals = [_arrival(_row(path, i, job), profiles) for i, job in enumerate(jobs)]
    hosts = Row(path, 1, {"nb_res": str(document.get("nb_res", ""))}).integer("nb_res", 0)
    machines = [Machine(f"host{i}", {"cpu": 1.0}) for i in range(hosts)]
    return Trace(
        path.name, arrivals, machines, resources=("cpu",), units={"cpu": "hosts"}, facts={"source": str(path)},
        notes=("a resource of a job is a task of a gang, on a host of its own",),
    )  # fmt: skip


def _row(path: Any, number: int, job: Any) -> Row:
    if not isinstance(job, dict):
        raise TraceError(f"{path}, job {number}: an object expected, got {quoted(job)}")
    return Row(path, number, {name: cells_of(path, number, {name: job[name]}).text(name) for name in job}, kind="job")


def _arrival(row: Row, profiles: dict[str, Any]) -> Arrival:
    name, hosts = row.text("id"), row.integer("res", least=1)
    profile = profiles.get(row.text("profile"))
    if not isinstance(profile, dict):
        raise row.error("profile", f"there is no profile {quoted(row.text('profile'))}")
    if profile.get("type") != "delay":
        raise row.error(
            "profile",
            f"a profile of type 'delay' expected, as others need a platform, got {quoted(profile.get('type'))}",
        )
    delay = Row(row.path, row.line, {"delay": str(profile.get("delay", ""))}, kind="job").number("delay", most=LATEST)
    limit = row.number("walltime", -1.0, LATEST, -1.0)
    tasks = tuple(Task(f"{name}-{i}", {"cpu": 1.0}, duration=limit if limit > 0 else None) for i in range(hosts))
    submitted = JobSubmitted(name, tasks, row.text("user") or None, gang=hosts if hosts > 1 else None)
    return Arrival(row.number("subtime", most=LATEST), submitted, (delay,) * hosts)


BATSIM = TraceFormat("batsim", "Batsim's JSON, with profiles of type delay", _recognises, _read)
