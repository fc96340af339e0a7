"""The records of a driver in SQLite: requests, ends of tasks, and attempts.

The file is ``records.db`` in the folder of a state.  Its tables:

* ``requests``: an operator's requests in their order, the file of jobs being the first one.  A request is in the table before it
  is answered, and its effect follows from the table alone.  So it is done once, however often it is sent, and whichever side is killed.
* ``ends``: tasks that have ended, before the scheduler's journal has that.
* ``attempts``: each run of a task, from its start on.

Only one driver writes.  Others may read at any time, also if no driver is there.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from flowsched.boundary import private
from flowsched.exceptions import InputError
from flowsched.run.plan import DONE, SKIPPED, End

NAME = "records.db"

_TABLES = """
create table if not exists requests (
    number integer primary key, id text unique not null, time real not null, kind text not null, body text not null,
    answer text not null);
create table if not exists ends (task text primary key, outcome text not null, why text not null, time real not null);
create table if not exists attempts (
    run integer primary key, task text not null, job text not null, user text not null, machine text not null,
    start real not null, end real, outcome text, status integer, cpu real, memory real, reason text);
create index if not exists attempts_of_task on attempts (task);
"""

COLUMNS = "run", "task", "job", "user", "machine", "start", "end", "outcome", "status", "cpu", "memory", "reason"
"""Of an attempt.  Times are seconds since 1970; ``cpu`` is in seconds, ``memory`` in MiB."""


class Request(NamedTuple):
    """A request of an operator."""

    id: str
    time: float
    kind: str
    body: dict[str, Any]


class Records:
    """The records of a driver, open for writing.

    Parameters
    ----------
    folder : path or None
        None keeps the records in memory.
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        path = None if folder is None else Path(folder, NAME)
        if path is not None:
            os.close(private.opener(str(path), os.O_CREAT | os.O_RDWR))
        self._db = sqlite3.connect(":memory:" if path is None else path, isolation_level=None, timeout=10.0)
        try:
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = normal")
            self._db.executescript(_TABLES)
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise InputError(f"{path}: no records of a driver: {error}") from None
        self._begun = False

    def close(self) -> None:
        """Write what is pending, and close the file."""
        self.commit()
        self._db.close()

    def commit(self) -> None:
        """Write what is pending; another process sees it from then on, also if this one is killed."""
        if self._begun:
            self._begun = False
            self._db.execute("commit")

    def _begin(self) -> None:
        if not self._begun:
            self._db.execute("begin immediate")
            self._begun = True

    # -- requests -----------------------------------------------------------------------------------------------

    def requests(self) -> Iterator[Request]:
        """Yield all requests in their order."""
        for id, time, kind, body in self._db.execute("select id, time, kind, body from requests order by number"):
            yield Request(id, time, kind, json.loads(body))

    def answer(self, id: str) -> tuple[str, dict[str, Any], dict[str, Any]] | None:
        """Return kind, body and answer of a request; None if there is none of that id."""
        row = self._db.execute("select kind, body, answer from requests where id = ?", (id,)).fetchone()
        return None if row is None else (row[0], json.loads(row[1]), json.loads(row[2]))

    def request(self, request: Request, answer: dict[str, Any]) -> None:
        """Record a request and its answer.  Both are on disk when this returns."""
        self.commit()
        self._db.execute("pragma synchronous = full")
        try:
            self._db.execute(
                "insert into requests (id, time, kind, body, answer) values (?, ?, ?, ?, ?)",
                (request.id, request.time, request.kind, json.dumps(request.body), json.dumps(answer)),
            )
        finally:
            self._db.execute("pragma synchronous = normal")

    # -- ends ---------------------------------------------------------------------------------------------------

    def ends(self) -> dict[str, End]:
        """Return the tasks that have ended."""
        return {
            task: End(outcome, why) for task, outcome, why in self._db.execute("select task, outcome, why from ends")
        }

    def end(self, ends: Iterable[tuple[str, End]], now: float) -> None:
        """Record ends of tasks, all or none; a killed driver has recorded them when this returns."""
        self._begin()
        rows = ((task, end.outcome, end.why, now) for task, end in ends)
        self._db.executemany("insert or replace into ends values (?, ?, ?, ?)", rows)
        self.commit()

    def forget(self, tasks: Iterable[str], request: Request) -> None:
        """Forget the ends of tasks, which run again, and record the request for that."""
        self.commit()
        self._begin()
        self._db.executemany("delete from ends where task = ?", ((task,) for task in tasks))
        self._db.execute(
            "insert into requests (id, time, kind, body, answer) values (?, ?, ?, ?, '{}')",
            (request.id, request.time, request.kind, json.dumps(request.body)),
        )
        self.commit()

    # -- attempts -----------------------------------------------------------------------------------------------

    def started(self, run: int, task: Hashable, job: str, user: str, machine: Hashable, now: float) -> None:
        """Record the start of a run, unless it is known."""
        self._begin()
        self._db.execute(
            "insert or ignore into attempts (run, task, job, user, machine, start) values (?, ?, ?, ?, ?, ?)",
            (run, str(task), job, user, str(machine), now),
        )

    def ended(
        self,
        run: int,
        now: float,
        outcome: str,
        status: int | None,
        cpu: float | None,
        memory: float | None,
        reason: str,
    ) -> None:
        """Record the end of a run that was started, once."""
        self._begin()
        self._db.execute(
            "update attempts set end = ?, outcome = ?, status = ?, cpu = ?, memory = ?, reason = ? where run = ? and end is null",
            (now, outcome, status, cpu, memory, reason, run),
        )

    def left(self, running: Iterable[int], now: float) -> None:
        """End the attempts of earlier drivers that are not among the running ones: their ends are not known."""
        self._begin()
        known = set(running)
        open = [run for (run,) in self._db.execute("select run from attempts where end is null")]
        self._db.executemany(
            "update attempts set end = ?, outcome = 'lost', reason = 'its end was not seen by any driver' where run = ?",
            ((now, run) for run in open if run not in known),
        )
        self.commit()

    def times(self, job: str) -> list[float]:
        """Return the durations of the last attempts of a job that ended well, in seconds."""
        self.commit()
        rows = self._db.execute(
            "select end - start from attempts where job = ? and outcome = ? order by run desc limit 100", (job, DONE)
        )
        return [seconds for (seconds,) in rows]

    def starts(self) -> dict[int, float]:
        """Return the start of each run that has not ended."""
        return dict(self._db.execute("select run, start from attempts where end is null"))

    def account(self, by: str, **only: Any) -> list[dict[str, Any]]:
        """See `account`."""
        self.commit()
        return account(self._db, by, **only)


_BY = {
    "user": "user",
    "machine": "machine",
    "job": "job",
    "task": "task",
    "day": "strftime('%Y-%m-%d', start, 'unixepoch', 'localtime')",
}

BY = "attempt", *_BY
"""Groups of a report on attempts; ``attempt`` is each by itself."""


def account(
    db: sqlite3.Connection,
    by: str,
    *,
    since: float | None = None,
    until: float | None = None,
    user: str | None = None,
    job: str | None = None,
    now: float = 0.0,
) -> list[dict[str, Any]]:
    """Return attempts as rows, or their sums by user, machine, job, task or day of the start.

    Attempts count if they ended after `since` and started before `until`; one that runs counts up to `now`.
    """
    where, values = ["coalesce(end, ?) >= ?", "start < ?"], [now, since or 0.0, 1e18 if until is None else until]
    for column, value in (("user", user), ("job", job)):
        if value is not None:
            where.append(f"{column} = ?")
            values.append(value)  # type: ignore[arg-type]
    condition = " and ".join(where)
    if by == "attempt":
        columns = ", ".join(COLUMNS)
        found = db.execute(f"select {columns} from attempts where {condition} order by run", values)
        return [dict(zip(COLUMNS, row, strict=True)) for row in found]
    of = _BY[by]
    found = db.execute(
        f"""select {of}, count(*), count(distinct task), sum(outcome = '{DONE}'), sum(outcome = 'failed'),
        sum(end is null), sum(coalesce(end, ?) - start), sum(cpu), max(memory)
        from attempts where {condition} group by 1 order by 1""",
        [now, *values],
    )
    names = (
        by,
        "attempts",
        "tasks" if by != "task" else "distinct",
        DONE,
        "failed",
        "running",
        "seconds",
        "cpu",
        "memory",
    )
    rows = [dict(zip(names, row, strict=True)) for row in found]
    for row in rows:
        row.pop("distinct", None)
    return rows


def opened(folder: str | os.PathLike[str]) -> sqlite3.Connection:
    """Open the records of a state for reading.

    Raises
    ------
    InputError
        There are none.
    """
    path = Path(folder, NAME)
    if not path.is_file():
        raise InputError(f"{folder}: no state of `flowsched run`: it has no {NAME}")
    db = sqlite3.connect(path, timeout=10.0)
    try:
        db.execute("pragma query_only = on")
        db.execute("select 1 from attempts limit 1")
    except sqlite3.DatabaseError as error:
        db.close()
        raise InputError(f"{path}: no records of a driver: {error}") from None
    return db


__all__ = ["BY", "COLUMNS", "DONE", "NAME", "SKIPPED", "Records", "Request", "account", "opened"]
