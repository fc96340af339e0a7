"""Targets of the operator's commands: a driver over a state, a service by HTTP, or HRM's shared state.

A target has one method, `ask`, with the kinds of requests and answers of `flowsched.run.session`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from flowsched.boundary.validate import nearest, quoted
from flowsched.cluster.events import Event, MachineDrained, MachineUpdated, TaskRemoved
from flowsched.exceptions import FlowschedError, InputError
from flowsched.run.after import Names
from flowsched.run.control import DriverClient
from flowsched.run.jobs import read_containers, read_jobs
from flowsched.run.records import account, opened
from flowsched.serve.client import Client

if TYPE_CHECKING:
    from flowsched.hrm.state.negotiator import Negotiator

Row = dict[str, Any]


class UnsupportedError(FlowschedError):
    """A target has no such request."""


class Target(Protocol):
    """Answers the requests of operators."""

    def ask(self, kind: str, body: Row, id: str | None = None) -> Row:
        """Return the answer to a request; a change with the same id is done once."""


class StateTarget:
    """A driver over a state.  Accounts are read from the state itself where no driver is running."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._client = folder, DriverClient(folder)

    def ask(self, kind: str, body: Row, id: str | None = None) -> Row:
        """See `Target.ask`."""
        if kind != "acct":
            return self._client.ask(kind, body, id)
        db = opened(self._folder)
        try:
            only = {name: body.get(name) for name in ("since", "until", "user", "job")}
            return {"by": body["by"], "rows": account(db, body["by"], now=time.time(), **only)}
        except sqlite3.DatabaseError as error:
            raise InputError(f"{self._folder}: the records cannot be read: {error}") from None
        finally:
            db.close()


class ServiceTarget:
    """``flowsched serve``: it decides on the tasks of its clients, and runs none."""

    def __init__(self, url: str, token: str) -> None:
        self._client = Client(url, token, patience=10.0)

    def ask(self, kind: str, body: Row, id: str | None = None) -> Row:
        """See `Target.ask`."""
        asked: Callable[..., Row] | None = getattr(self, f"_{kind}", None)
        if asked is None:
            raise UnsupportedError(
                f"{kind}: flowsched serve decides only; it has ps, nodes, why, submit, cancel, drain and resume"
            )
        with self._client:
            return asked(body, id)

    def _ps(self, body: Row, id: str | None) -> Row:
        state = self._client.state()
        overview = self._client.overview(tasks=10_000)
        codes = {str(row["id"]): row["code"] for row in overview["waiting"]}
        now, jobs = overview["now"], {row["id"]: row for row in state["jobs"]}
        rows, wanted = [], _wanted(state, body)
        for task in state["tasks"]:
            name, job = str(task["id"]), jobs[task["job"]]
            if wanted is not None and name not in wanted:
                continue
            row = {"task": name, "job": str(job["id"]), "user": job["user"] or "", "priority": job["priority"]}
            if "machine" in task:
                since = task["since"]
                seconds = None if since is None else now - since
                rows.append({**row, "state": "R", "machine": str(task["machine"]), "since": since, "seconds": seconds})
            else:
                rows.append({**row, "state": "PD", "why": codes.get(name, "PENDING")})
        rows.sort(key=lambda row: row["state"] != "R")
        return {"now": now, "tasks": rows}

    def _nodes(self, body: Row, id: str | None) -> Row:
        state = self._client.state()
        names, rows = state["resources"], []
        for machine in state["machines"]:
            capacity, used = (dict(zip(names, machine[key], strict=True)) for key in ("capacity", "used"))
            how = {"failed": "down"}.get(machine["state"], machine["state"])
            rows.append({"node": str(machine["id"]), "state": how, "why": "", "tasks": machine["tasks"], "capacity": capacity, "used": used})  # fmt: skip
        return {"nodes": rows}

    def _why(self, body: Row, id: str | None) -> Row:
        found = self._client.explain(body["task"])
        state = "R" if found["machine"] is not None else "PD"
        return {"task": found["task"], "state": state, "machine": found["machine"], "why": found["code"],
                "machines": found["detail"], "unblocked_by": found["unblocked_by"]}  # fmt: skip

    def _submit(self, body: Row, id: str | None) -> Row:
        jobs = read_jobs(body["file"], "", content=body["content"].encode()).jobs
        events = []
        for job in jobs:
            own = [name for name in ("after", "at_most", "not_before", "deadline", "time_limit") if getattr(job, name)]
            if own:
                raise UnsupportedError(f"job {job.name!r}: {own[0]}: of `flowsched run`; a service knows demands only")
            tasks = [replace(task, retries=job.retries or None) for task in job.submitted.tasks]
            events.append(replace(job.submitted, tasks=tasks, closed=True))
        count = sum(len(event.tasks) for event in events)
        return {"jobs": [job.name for job in jobs], "tasks": count, **self._told(events, id)}

    def _cancel(self, body: Row, id: str | None) -> Row:
        state = self._client.state()
        wanted = _wanted(state, body)
        tasks = [task for task in state["tasks"] if wanted is None or str(task["id"]) in wanted]
        done = self._told([TaskRemoved(_id(task["id"])) for task in tasks], id)
        return {"tasks": len(tasks), "running": sum("machine" in task for task in tasks), **done}

    def _drain(self, body: Row, id: str | None) -> Row:
        if body.keys() & {"at", "until"}:
            raise UnsupportedError("drain: --at and --until are of `flowsched run`; a service has no calendar")
        machines = self._machines(body)
        done = self._told([MachineDrained(_id(machine["id"])) for machine in machines], id)
        running = sum(machine["tasks"] for machine in machines)
        return {"machines": [str(machine["id"]) for machine in machines], "running": running, **done}

    def _resume(self, body: Row, id: str | None) -> Row:
        machines = self._machines(body)
        done = self._told([MachineUpdated(_id(machine["id"])) for machine in machines], id)
        return {"machines": [str(machine["id"]) for machine in machines], **done}

    def _machines(self, body: Row) -> list[Row]:
        names, by_name = Names(), {}
        for machine in self._client.state()["machines"]:
            names.add(str(machine["id"]), [])
            by_name[str(machine["id"])] = machine
        found = dict[str, None]()
        for pattern in body["machines"]:
            those = names.find(pattern)
            if those is None:
                raise InputError(f"no machine is named {quoted(pattern)}{nearest(pattern, by_name)}")
            found.update(dict.fromkeys(those.jobs))
        return [by_name[name] for name in found]

    def _told(self, events: Iterable[Event], id: str | None) -> Row:
        answer = self._client.tell(*events, key=id or uuid4().hex)
        return {"repeated": True} if answer.get("repeated") else {}


class HRMTarget:
    """HRM's shared state, see `flowsched.cli.hrm`."""

    def __init__(self, config: Path) -> None:
        self._config = config

    def ask(self, kind: str, body: Row, id: str | None = None) -> Row:
        """See `Target.ask`."""
        asked: Callable[..., Row] | None = getattr(self, f"_{kind}", None)
        if asked is None:
            raise UnsupportedError(f"{kind}: HRM has ps, nodes and submit; see `flowsched hrm --help` for its queues")
        with self._connected() as negotiator:
            return asked(negotiator, body)

    @contextmanager
    def _connected(self) -> Iterator[Negotiator]:
        from flowsched.cli.hrm import connected

        with connected(self._config) as negotiator:
            yield negotiator

    def _ps(self, negotiator: Negotiator, body: Row) -> Row:
        from flowsched.hrm.state import work

        rows, wanted = [], body.get("tasks")
        for job in work.jobs(negotiator.store):
            for task in work.tasks(negotiator.store, job.job_id):
                over = task.status.lower() not in ("open", "held", "waiting", "running", "paused", "launching")
                if (over and not body.get("all")) or (wanted and not {task.task_id, job.job_id} & set(wanted)):
                    continue
                state = "R" if task.status.lower() == "running" else "PD" if not over else task.status.lower()
                rows.append({"task": task.task_id, "job": job.job_id, "user": "", "priority": None, "state": state,
                             "machine": task.queue_id, "why": task.status})  # fmt: skip
        return {"now": time.time(), "tasks": rows}

    def _nodes(self, negotiator: Negotiator, body: Row) -> Row:
        from flowsched.cluster.model import MICRO
        from flowsched.hrm.state import work

        rows = []
        for row in work.units(negotiator.store):
            unit = dict(row._mapping)
            capacity = {"cpu": unit["vcore"] / MICRO, "mem": unit["mem"] / MICRO, "gmem": unit["gmem"] / MICRO}
            free = {
                "cpu": unit["free_vcore"] / MICRO,
                "mem": unit["free_mem"] / MICRO,
                "gmem": unit["free_gmem"] / MICRO,
            }
            used = {name: capacity[name] - free[name] for name in capacity}
            rows.append({"node": unit["ru_id"], "state": "up" if unit["alive"] else "down", "why": "",
                         "tasks": unit["places"] - unit["free_places"], "capacity": capacity, "used": used})  # fmt: skip
        return {"nodes": rows}

    def _submit(self, negotiator: Negotiator, body: Row) -> Row:
        from flowsched.cli.hrm import submitted

        jobs = read_containers(body["file"])
        return {"jobs": submitted(negotiator, jobs), "tasks": sum(len(containers) for containers, _ in jobs)}


def _wanted(state: Row, body: Row) -> dict[str, None] | None:
    """Return the tasks of the names of a request; None for all."""
    if not body.get("tasks"):
        return None
    names, by_job = Names(), dict[str, list[str]]()
    for task in state["tasks"]:
        by_job.setdefault(str(task["job"]), []).append(str(task["id"]))
    for job, tasks in by_job.items():
        names.add(job, tasks)
    return names.tasks(body["tasks"])


def _id(value: Any) -> Any:
    return tuple(map(_id, value)) if isinstance(value, list) else value
