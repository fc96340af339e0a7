"""The jobs of a state from their submission to their ends: the plan, the records and the driver, and the requests of operators.

A request is *prepared*, which changes nothing and may refuse it; *recorded* with its answer; then *done*.  All three follow one
another in one turn of the driver's loop.  A driver that is killed has a successor that does all recorded requests again, so
what a request does has no effect if it is done already.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from flowsched.boundary.validate import nearest, quoted, seconds, text, texts, whole
from flowsched.cluster.events import TaskRemoved
from flowsched.cluster.model import MICRO
from flowsched.exceptions import FlowschedError, InputError
from flowsched.fgm import FineGrained
from flowsched.run.command import Command, ExitStatusError
from flowsched.run.driver import Driver
from flowsched.run.executor import Run, TaskCancelledError
from flowsched.run.foresight import foreseen
from flowsched.run.jobs import JobFile, JobOfFile, read_jobs
from flowsched.run.learn import learnt
from flowsched.run.plan import CANCELLED, DONE, FAILED, End, Part, Plan
from flowsched.run.records import BY, Records, Request

FIRST = "file"
"""Id of the first request: the file with which a state began."""

CHANGES = "submit", "cancel", "hold", "release", "priority", "drain", "resume"
"""Requests that change something; each has an id, and is done once."""

QUESTIONS = "ps", "nodes", "why", "eta", "log", "acct"
"""Requests that change nothing."""

_DAY = 86400.0
"""Longest wait of a timer, in seconds."""

_Answer = dict[str, Any]
_Prepared = tuple[_Answer, Callable[[], object]]


class Session:
    """The jobs of one state.

    Parameters
    ----------
    records : Records
    output : path
        Folder for the output of tasks whose request names none.
    payload : callable
        Returns the payload of a command.
    on_end : callable, optional
        Called with each task that ends and its `End`, once that is recorded.

    Attributes
    ----------
    plan : Plan
    over : asyncio.Event
        Set while no task is left.
    capacity : mapping of str to float or None
        This machine's, by the first file.
    """

    def __init__(
        self,
        records: Records,
        output: Path,
        payload: Callable[[Command], Any] = lambda command: command,
        on_end: Callable[[str, End], object] | None = None,
    ) -> None:
        self.records, self.plan, self.over = records, Plan(records.ends()), asyncio.Event()
        self.capacity: Mapping[str, float] | None = None
        self.driver: Driver | None = None
        self._output, self._payload, self._on_end = output.absolute(), payload, on_end
        self._user = _login()
        self._cancelled: dict[str, End] = {}  # tasks that are to end, and how
        self._closed: dict[str, list[tuple[float, float]]] = {}  # by machine, times from and to which it is drained
        self._retries: dict[str, int] = {}  # that withdrawn tasks have left
        self._stale: set[str] = set()  # tasks that run, and are to be withdrawn if they wait again
        self._parts: Counter[str] = Counter()
        self._since: dict[str, tuple[float, Run]] = {}  # runs by task
        self.running: Counter[str] = Counter()  # by job
        self._soon: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._calendar: asyncio.TimerHandle | None = None
        self.content: bytes | None = None
        for request in records.requests():
            try:
                self._prepare(request.kind, request.body, request.time, records.answer(request.id))[1]()
            except FlowschedError as error:
                raise InputError(f"request {request.id!r} of the state cannot be repeated: {error}") from None

    # -- the beginning ------------------------------------------------------------------------------------------

    def begin(self, file: Path, content: bytes, now: float) -> None:
        """Begin a state with a file of jobs, or go on with it.

        Raises
        ------
        InputError
            The file has a fault, or the state began with another one.
        """
        if self.content is not None:
            if self.content != content:
                raise InputError("this is the state of another file")
            return
        body = {"file": str(file.absolute()), "content": _decoded(content), "first": True}
        answer, act = self._prepare("submit", body, now)
        self.records.request(Request(FIRST, now, "submit", body), answer)
        act()

    def retry_failed(self, id: str, now: float) -> None:
        """Record that tasks run again that failed or were cancelled; all tasks of a gang, since they run together.

        This session is not used any more; another one over the same records goes on.
        """
        again = [task for task, end in self.plan.ends.items() if end.bad]
        if not again:
            return
        for job in self.plan.jobs():
            if job.submitted.gang is not None and any(task in again for task in job.commands):
                again += job.commands
        self.records.forget(dict.fromkeys(again), Request(id, now, "retry", {"tasks": again}))

    def attach(self, driver: Driver) -> None:
        """Give a driver that has not begun the tasks that its scheduler knows by its journal."""
        self.driver, scheduler = driver, driver.scheduler
        known = list(scheduler.cluster.tasks)
        names = self.plan.names
        scheduler.apply(*(TaskRemoved(task) for task in known if task in self.plan.ends or task not in names.job_of))
        by_job: dict[str, list[str]] = {}
        for task in known:
            if task in scheduler.cluster.tasks:
                self.plan.adopt(str(task))
                by_job.setdefault(names.job_of[str(task)], []).append(str(task))
        for tasks in by_job.values():
            job = self.plan.job_of(tasks[0])
            driver.attach({task: self._payload(job.commands[task]) for task in tasks}, time_limit=job.time_limit)

    def begun(self) -> None:
        """Go on, now that the driver has begun."""
        assert self.driver is not None
        driver, cluster = self.driver, self.driver.scheduler.cluster
        self.records.left((run.number for run in driver.under_way()), driver.now)
        self._open_and_close()
        for task, end in list(self._cancelled.items()):
            if task not in self.plan.ends:
                self._cancel(task, end)
        released = [task for task in self.plan.names.job_of if self.plan.is_released(task) and task in cluster.tasks]
        self._withdraw(
            task
            for task in released
            if self.plan.is_held(task) or self.plan.priority(task) != cluster.tasks[task].group.job.job.priority
        )
        self._release()

    # -- requests -----------------------------------------------------------------------------------------------

    def change(self, id: str, kind: str, body: dict[str, Any], now: float) -> _Answer:
        """Do a request once, and return its answer; the same request again has the same answer.

        Raises
        ------
        InputError
            The request is refused; nothing has happened.
        """
        if not text("id", id) or len(id) > 200:
            raise InputError(f"id: 1 to 200 characters expected, got {quoted(id)}")
        known = self.records.answer(id)
        if known is not None:
            if known[0] != kind or known[1] != body:
                raise InputError(f"id: {quoted(id)} is that of another request")
            return {**known[2], "repeated": True}
        if kind not in CHANGES:
            raise InputError(f"unknown request {quoted(kind)}{nearest(kind, (*CHANGES, *QUESTIONS))}")
        answer, act = self._prepare(kind, body, now)
        self.records.request(Request(id, now, kind, body), answer)
        act()
        return answer

    def _prepare(
        self, kind: str, body: dict[str, Any], now: float, done: tuple[str, Any, _Answer] | None = None
    ) -> _Prepared:
        """Return the answer to a request, and the function that does it; `done` if an earlier driver has recorded it."""
        if kind == "submit":
            return self._submit(body, now)
        if kind == "retry":
            again = set(body["tasks"])
            self._cancelled = {task: end for task, end in self._cancelled.items() if task not in again}
            return {}, lambda: None
        if kind in ("drain", "resume"):
            machines = self._machines(body.get("machines")) if done is None else done[2]["machines"]
            return self._drain(machines, body, now) if kind == "drain" else self._resume(machines, done is not None)
        tasks = [
            task for task in self.plan.names.tasks(texts("tasks", body.get("tasks"))) if task not in self.plan.ends
        ]
        tasks = list(dict.fromkeys(member for task in tasks for member in self.plan.members(task) or [task]))
        answer = {"tasks": len(tasks), "running": sum(task in self._since for task in tasks)}
        if kind == "cancel":
            end = End(CANCELLED, "an operator cancelled it")
            return answer, partial(self._cancel_all, tasks, end)
        if kind == "hold":
            return answer, lambda: self._withdraw(self.plan.hold(tasks))
        if kind == "release":
            answer = {"tasks": sum(map(self.plan.is_held, tasks))}
            return answer, partial(self._let_go, tasks)
        priority = whole("priority", body.get("priority"), -(2**40), 2**40)
        return answer, lambda: self._withdraw(self.plan.prioritise(tasks, priority))

    def _submit(self, body: dict[str, Any], now: float) -> _Prepared:
        file, content = Path(text("file", body.get("file"))), text("content", body.get("content")).encode()
        output = Path(body["output"]) if body.get("output") else self._output
        first = bool(body.get("first"))
        jobs: JobFile = read_jobs(file, output, content=content, known=None if first else self.plan.names)
        if jobs.machine is not None and not first:
            raise InputError(f"{file}: machine: the driver has its machine already; the table is for its first file")
        answer = {"jobs": [job.name for job in jobs.jobs], "tasks": sum(len(job.commands) for job in jobs.jobs)}
        return answer, partial(self._add, jobs, now, content if first else None)

    def _add(self, jobs: JobFile, now: float, first: bytes | None) -> None:
        if first is not None:
            self.content, self.capacity = first, jobs.machine
        self._record(self.plan.add(jobs.jobs, now))
        self._release_soon()

    def _let_go(self, tasks: list[str]) -> None:
        self._stale.difference_update(tasks)
        self.plan.release(tasks)
        self._release_soon()

    def _machines(self, patterns: Any) -> list[str]:
        assert self.driver is not None
        known = [str(id) for id in self.driver.scheduler.cluster.machines]
        found = dict[str, None]()
        for pattern in texts("machines", patterns):
            those = [id for id in known if id == pattern or fnmatchcase(id, pattern)]
            if not those:
                raise InputError(f"no machine is named {quoted(pattern)}{nearest(pattern, known)}")
            found.update(dict.fromkeys(those))
        return list(found)

    def _drain(self, machines: list[str], body: dict[str, Any], now: float) -> _Prepared:
        start, end = (body.get(name) for name in ("at", "until"))
        start = now if start is None else seconds("at", start)
        end = inf if end is None else seconds("until", end)
        if end <= start:
            raise InputError(f"until: a time after {'at' if start > now else 'now'} expected")

        def act() -> None:
            for machine in machines:
                self._closed.setdefault(machine, []).append((start, end))
            self._open_and_close()

        running = Counter(str(run.machine) for _, run in self._since.values())
        return {"machines": machines, "running": sum(running[machine] for machine in machines)}, act

    def _resume(self, machines: list[str], again: bool) -> _Prepared:
        by_cluster = () if self.driver is None else getattr(self.driver.executor, "drained", ())
        if not again and (closed := [machine for machine in machines if machine in by_cluster]):
            raise InputError(f"machine {closed[0]!r} is drained by its cluster; only that can resume it")

        def act() -> None:
            for machine in machines:
                self._closed.pop(machine, None)
            if self.driver is not None and self.driver.has_begun:
                for machine in machines:
                    self.driver.resume(machine)

        return {"machines": machines}, act

    def _open_and_close(self) -> None:
        """Drain machines whose time has come, and resume those whose time is over; look again at the next such time."""
        if self.driver is None or not self.driver.has_begun or self.driver.closing:
            return
        now, due = self.driver.now, inf
        for machine, times in list(self._closed.items()):
            left = [(start, end) for start, end in times if end > now]
            if any(start <= now for start, _ in left):
                self.driver.drain(machine)
            elif any(start <= now for start, _ in times):
                self.driver.resume(machine)
            self._closed[machine] = left
            if not left:
                del self._closed[machine]
            due = min(due, *(at for span in left for at in span if at > now), inf)
        if self._calendar is not None:
            self._calendar.cancel()
        self._calendar = None
        if due < inf:
            wait = min(due - now, _DAY) + 0.001
            self._calendar = asyncio.get_running_loop().call_later(wait, self._open_and_close)

    # -- effects ------------------------------------------------------------------------------------------------

    def _cancel(self, task: str, end: End) -> None:
        """End a task; one that runs ends once it was stopped."""
        if task in self.plan.ends:
            return
        self._cancelled.setdefault(task, end)
        if self.driver is None or not self.driver.has_begun:
            return
        if self.plan.is_released(task) and self.driver.knows(task):
            self.driver.cancel(task)
        else:
            self._record(self.plan.end(task, end))
            self._release_soon()

    def _cancel_all(self, tasks: Iterable[str], end: End) -> None:
        for task in tasks:
            self._cancel(task, end)

    def _withdraw(self, tasks: Iterable[str]) -> None:
        """Take released tasks back that wait; those that run are taken back when they wait again."""
        if self.driver is None or not self.driver.has_begun:
            return
        tasks = list(tasks)
        back = self.driver.withdraw(tasks)
        self._retries |= {str(task): left for task, left in back.items() if left is not None}
        self.plan.withdrawn(map(str, back))
        self._stale.update(task for task in tasks if task not in back)
        self._release_soon()

    def _release_soon(self) -> None:
        self._later("release", self._release)

    def _later(self, name: str, act: Callable[[], object]) -> None:
        """Call a function in a later turn of the loop, once: the driver may be in the middle of something now."""
        if self.driver is not None and self.driver.has_begun and name not in self._soon:
            self._soon.add(name)
            asyncio.get_running_loop().call_soon(self._do, name, act)

    def _do(self, name: str, act: Callable[[], object]) -> None:
        self._soon.discard(name)
        assert self.driver is not None
        if not self.driver.closing:
            act()

    def _release(self) -> None:
        """Give the scheduler the tasks that may start, and end those whose deadline has passed."""
        assert self.driver is not None
        now = self.driver.now
        for task in self.plan.overdue(now):
            self._cancel(task, End(FAILED, "its deadline has passed"))
        for part in self.plan.released(now):
            try:
                self._give(part)
            except FlowschedError as error:
                for task in part.tasks:
                    self._record(self.plan.end(task, End(FAILED, str(error))))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.plan.due < 1e17:
            wait = max(self.plan.due - self.driver.now, 0.0) + 0.001
            self._timer = asyncio.get_running_loop().call_later(wait, self._release_soon)
        if self.plan.open:
            self.over.clear()
        else:
            self.over.set()

    def _give(self, part: Part) -> None:
        assert self.driver is not None
        job, own = part.job, part.job.submitted
        known, id = self.driver.scheduler.cluster.jobs, job.name
        while self._parts[job.name] or id in known:
            self._parts[job.name] += 1
            id = f"{job.name} ({self._parts[job.name]})"
            if id not in known:
                break
        self._parts[job.name] += 1
        if len(part.tasks) == len(own.tasks) and not self._retries:
            tasks = own.tasks
        else:
            wanted = set(part.tasks)
            tasks = [
                replace(task, retries=self._retries.pop(task.id, None)) if task.id in self._retries else task
                for task in own.tasks
                if task.id in wanted
            ]
        payloads = {task: self._payload(job.commands[task]) for task in part.tasks}
        if self.learns:
            tasks = [replace(task, kind=job.kind) for task in tasks]
        submitted = replace(own, id=id, tasks=tasks, priority=part.priority)
        self.driver.submit(submitted, payloads, retries=job.retries, time_limit=job.time_limit)

    # -- ends ---------------------------------------------------------------------------------------------------

    def ended(self, task: Hashable, value: Any, error: BaseException | None) -> None:
        """Take note of the end of a task, as the driver's `on_end`."""
        name = str(task)
        if error is None:
            end = End(DONE)
        elif isinstance(error, TaskCancelledError):
            end = self._cancelled.get(name, End(CANCELLED, "it was cancelled"))
        else:
            said = str(error).strip().rpartition("\n")[2]  # the point of a traceback
            end = End(FAILED, said or type(error).__name__)
        self._record(self.plan.end(name, end))
        self._release_soon()

    def _record(self, over: list[tuple[str, End]]) -> None:
        if not over:
            return
        self.records.end(over, _now(self.driver))
        for task, end in over:
            self._cancelled.pop(task, None)
            self._stale.discard(task)
            if self._on_end is not None:
                self._on_end(task, end)
            if end.bad and self.driver is not None and (rest := self.plan.members(task)):
                act = partial(self._cancel_all, rest, End(FAILED, "another task of its gang failed"))
                self._later(f"gang of {task}", act)

    def started(self, run: Run, now: float) -> None:
        """See `Watcher.started`."""
        task = str(run.task)
        if task in self.plan.names.job_of:
            job = self.plan.job_of(task)
            if task not in self._since:
                self.running[job.name] += 1
            self._since[task] = self.records.starts().get(run.number, now) if run.payload is None else now, run
            user = self._user if job.submitted.user is None else str(job.submitted.user)
            self.records.started(run.number, task, job.name, user, run.machine, now)
            self._later("commit", self.records.commit)

    def ended_run(
        self, run: Run, now: float, outcome: str, error: BaseException | None, used: Mapping[str, float]
    ) -> None:
        """See `Watcher.ended`."""
        task = str(run.task)
        known = self._since.get(task)
        if known is not None and known[1].number == run.number:
            del self._since[task]
            self.running[self.plan.names.job_of[task]] -= 1
        status = error.status if isinstance(error, ExitStatusError) else 0 if outcome == "done" else None
        said = "" if error is None else str(error).strip().rpartition("\n")[2].removeprefix(f"task {task!r} ")
        if outcome == "cancelled" and task in self._cancelled:
            said = self._cancelled[task].why
        self.records.ended(run.number, now, outcome, status, used.get("cpu"), used.get("memory"), said)
        self._later("commit", self.records.commit)
        if task in self._stale:
            self._later(f"withdraw {task}", partial(self._withdraw_again, task))

    def _withdraw_again(self, task: str) -> None:
        if task in self._stale and task not in self.plan.ends:
            self._stale.discard(task)
            self._withdraw([task])

    # -- knowledge ----------------------------------------------------------------------------------------------

    @property
    def learns(self) -> bool:
        """True if the scheduler learns what tasks need."""
        return self.driver is not None and isinstance(self.driver.scheduler, FineGrained)

    def learnt(self, job: str) -> dict[str, Any] | None:
        """Return what was learnt of the tasks of a job, see `flowsched.run.learn.learnt`."""
        return None if self.driver is None else learnt(self.driver.scheduler, self.plan.job(job))

    # -- questions ----------------------------------------------------------------------------------------------

    async def ask(self, kind: str, body: dict[str, Any], now: float) -> _Answer:
        """Answer a question, which changes nothing.

        Raises
        ------
        InputError
            The question is refused.
        """
        if kind == "ps":
            return self._ps(body, now)
        if kind == "nodes":
            return {"nodes": self._nodes()}
        if kind == "why":
            return self._why(self._task(body), now)
        if kind == "eta":
            return await self._eta(self._task(body), now)
        if kind == "log":
            return self._log(self._task(body))
        if kind == "acct":
            by = text("by", body.get("by", "attempt"))
            if by not in BY:
                raise InputError(f"by: one of {', '.join(BY)} expected, got {quoted(by)}{nearest(by, BY)}")
            only = {name: body.get(name) for name in ("since", "until", "user", "job")}
            return {"by": by, "rows": self.records.account(by, now=now, **only)}
        raise InputError(f"unknown request {quoted(kind)}{nearest(kind, (*CHANGES, *QUESTIONS))}")

    def _task(self, body: dict[str, Any]) -> str:
        name = text("task", body.get("task"))
        if name in self.plan.names.job_of:
            return name
        (first, *more) = self.plan.names.tasks([name])
        if more:
            raise InputError(f"{name} has {len(more) + 1} tasks: name one of them, such as {first}")
        return first

    def _ps(self, body: dict[str, Any], now: float) -> _Answer:
        names, all = body.get("tasks"), bool(body.get("all"))
        tasks = self.plan.names.job_of if not names else self.plan.names.tasks(texts("tasks", names))
        rows = [self._row(task, now) for task in tasks if all or names or task not in self.plan.ends]
        known = {job: self.learnt(job) for job in {row["job"] for row in rows}} if self.learns else {}
        rows = [row | {"learnt": known[row["job"]]} for row in rows] if known else rows
        order = {"R": 0, "CG": 0, "PD": 1}
        rows.sort(key=lambda row: order.get(row["state"], 2))
        return {"now": now, "tasks": rows}

    def _row(self, task: str, now: float) -> dict[str, Any]:
        job = self.plan.job_of(task)
        row: dict[str, Any] = {
            "task": task,
            "job": job.name,
            "user": self._user if job.submitted.user is None else job.submitted.user,
            "priority": self.plan.priority(task),
        }
        if task in self.plan.ends:
            end = self.plan.ends[task]
            return {**row, "state": _ENDS[end.outcome], "why": end.why}
        if task in self._since:
            since, run = self._since[task]
            state = "CG" if task in self._cancelled else "R"
            return {**row, "state": state, "machine": str(run.machine), "since": since, "seconds": now - since}
        return {**row, "state": "PD", "why": self._reason(task, now)[0]}

    def _reason(self, task: str, now: float) -> tuple[str, str]:
        """Return a code and a sentence for a task that has not ended, and does not run."""
        assert self.driver is not None
        if not self.plan.is_released(task):
            return self.plan.why(task, now)
        last = self.driver.last
        if last is not None and task in last.waiting:
            reason = last.waiting[task]
            kinds = "; ".join(f"{shape}: {', '.join(blockers)}" for shape, blockers in reason.detail.items())
            return reason.code.value, kinds
        return "PENDING", "the next round decides"

    def _why(self, task: str, now: float) -> _Answer:
        assert self.driver is not None
        row = self._row(task, now)
        if task in self.plan.ends or task in self._since:
            return row
        code, said = self._reason(task, now)
        answer = {**row, "why": code, "detail": said}
        if self.plan.is_released(task):
            reason = self.driver.scheduler.explain(task)
            answer |= {
                "why": reason.code.value,
                "machines": {shape: dict(blockers) for shape, blockers in reason.detail.items()},
                "unblocked_by": list(reason.unblocked_by),
            }
        return answer

    async def _eta(self, task: str, now: float) -> _Answer:
        """Estimate start and end of a task by the durations of its job's earlier tasks."""
        assert self.driver is not None
        row = self._row(task, now)
        if task in self.plan.ends:
            return row
        expected = {job.name: self._expected(job) for job in self.plan.jobs()}
        length = expected[self.plan.names.job_of[task]]
        if task in self._since:
            since = self._since[task][0]
            return {**row, "start": since, "end": None if length is None else max(since + length, now)}
        if not self.plan.is_released(task):
            return {**row, "start": None, "end": None, "detail": self.plan.why(task, now)[1]}
        ends = {
            other: None if (typical := expected[self.plan.names.job_of[other]]) is None else max(since + typical, now)
            for other, (since, _) in self._since.items()
        }
        lengths = {other: expected[self.plan.names.job_of[other]] for other in self.plan.names.job_of}
        start = await asyncio.to_thread(foreseen, self.driver.scheduler.copy(), task, ends, lengths, now)
        if start is None:
            detail = "it waits for a task of unknown duration, or too many tasks are before it"
            return {**row, "start": None, "end": None, "detail": detail}
        return {**row, "start": start, "end": None if length is None else start + length}

    def _expected(self, job: JobOfFile) -> float | None:
        times = self.records.times(job.name)
        return median(times) if times else job.time_limit

    def _log(self, task: str) -> _Answer:
        command = self.plan.job_of(task).commands[task]
        known = self._since.get(task)
        over = task in self.plan.ends
        machine = None if known is None else str(known[1].machine)
        return {"task": task, "path": str(command.output), "ended": over, "machine": machine}

    def _nodes(self) -> list[dict[str, Any]]:
        assert self.driver is not None
        cluster, rows = self.driver.scheduler.cluster, []
        names, inventory = cluster.resources.names, cluster.inventory
        for id, record in cluster.machines.items():
            capacity = (inventory.capacity[record.row] / MICRO).tolist()
            free = (inventory.free[record.row] / MICRO).tolist()
            why, times = "", self._closed.get(str(id), [])
            if record.drained:
                by_cluster = getattr(self.driver.executor, "drained", ())
                why = self.driver.unfit.get(id) or ("its cluster" if id in by_cluster else "an operator")
            state = "down" if record.failed else "drained" if record.drained else "up"
            used = [have - left for have, left in zip(capacity, free, strict=True)]
            rows.append({
                "node": str(id), "state": state, "why": why, "tasks": len(record.tasks),
                "drains": [[start, None if end == inf else end] for start, end in sorted(times)],
                "capacity": dict(zip(names, capacity, strict=True)), "used": dict(zip(names, used, strict=True)),
            })  # fmt: skip
        for id, why in self.driver.refused.items():
            if id not in cluster.machines:
                rows.append(
                    {
                        "node": str(id),
                        "state": "refused",
                        "why": why,
                        "tasks": 0,
                        "drains": [],
                        "capacity": {},
                        "used": {},
                    }
                )
        return rows


class Watch:
    """Passes the runs of a driver on to a session."""

    def __init__(self, session: Session) -> None:
        self.started, self.ended = session.started, session.ended_run


_ENDS = {"done": "CD", "failed": "F", "cancelled": "CA", "skipped": "SK"}
"""Short names of outcomes, as in squeue."""


def _now(driver: Driver | None) -> float:
    return time.time() if driver is None else driver.now


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"a file of jobs in UTF-8 expected: {error}") from None


def _login() -> str:
    with suppress(KeyError, OSError):
        return getpass.getuser()
    return str(os.getuid())
