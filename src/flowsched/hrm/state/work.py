"""Commands of jobs in the shared state, exit statuses of their tasks, and rows for people.

A job's row has its command, so an agent on any machine can read it there.  Files are not carried: folders and programs
are those of the agent's machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa

from flowsched.hrm.agent.commands import Prepared
from flowsched.hrm.agent.processes import Entry
from flowsched.hrm.state.claims import Status
from flowsched.hrm.state.schema import JS, RS, RT
from flowsched.hrm.state.store import Store


def work(line: Sequence[str] | str, environment: Mapping[str, str], directory: str = "") -> str:
    """Return a command for `Negotiator.submit`: a line for the shell, or program and arguments."""
    return json.dumps({"line": line, "environment": dict(environment), "directory": directory})


class Commands:
    """Command lines of tasks, for `Agent`; on this machine tasks write to TASK.log in the folder `output`."""

    def __init__(self, store: Store, machine: str, output: Path) -> None:
        self.store, self.machine, self.output = store, machine, output

    def __call__(self, id: str) -> Prepared:
        """Return the command of a task that starts now; LookupError if its job has none."""
        row = self.store.look(_WORK, id=id)[0]
        if row.work is None:
            raise LookupError(f"job {row.job_id!r} was submitted without a command")
        if row.exit_status is not None:  # of a run that its machine could not report
            self.record({id: None})
        told: dict[str, Any] = json.loads(row.work)
        index = id[len(row.job_id) + 1 :]
        own = {"FLOWSCHED_TASK": id, "FLOWSCHED_INDEX": index if index.isdigit() else "0"}
        line = ["/bin/sh", "-c", told["line"]] if isinstance(told["line"], str) else told["line"]
        log = str(self.output.absolute() / f"{quote(id, safe='')[:200]}.log")
        return Prepared(line, Entry(told["environment"] | own, os.path.abspath(told["directory"]), log, log))

    def record(self, statuses: Mapping[str, int | None]) -> None:
        """Record exit statuses of tasks of this machine, None for 0."""
        rows = [{"id": id, "exit": statuses[id], "machine": self.machine} for id in sorted(statuses)]
        with self.store.named("Commands.record"):
            self.store.transact(lambda db: db.execute(_ENDED, rows), twice=True)


def units(store: Store) -> Sequence[Any]:
    """Return the rows of RS, by id."""
    return store.look(sa.select(RS).order_by(RS.c.ru_id))


def jobs(store: Store) -> Sequence[Any]:
    """Return the rows of JS, with the number of tasks that failed; oldest first."""
    return store.look(sa.select(JS, _FAILED.scalar_subquery().label("failed")).order_by(JS.c.start, JS.c.job_id))


def tasks(store: Store, job: str) -> Sequence[Any]:
    """Return the rows of RT of a job, by id."""
    return store.look(sa.select(RT).where(RT.c.job_id == job).order_by(RT.c.task_id))


_FAILED = sa.select(sa.func.count()).where(
    RT.c.job_id == JS.c.job_id, RT.c.status == Status.DONE, RT.c.exit_status.is_not(None)
)

_WORK = sa.select(RT.c.job_id, RT.c.exit_status, JS.c.work).where(
    RT.c.task_id == sa.bindparam("id"), JS.c.job_id == RT.c.job_id
)

_MINE = sa.select(RS.c.ru_id).where(RS.c.machine_id == sa.bindparam("machine"))

_ENDED = (
    sa.update(RT)
    .where(RT.c.task_id == sa.bindparam("id"), RT.c.queue_id.in_(_MINE))
    .values(exit_status=sa.bindparam("exit"))
)
