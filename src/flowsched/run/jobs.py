"""Files of jobs for ``flowsched run``, in TOML.

A file has tables ``[[job]]``, and may have a table ``[machine]`` with the capacity of this machine.  Everything is checked
when the file is read; an error names line, column and key of every fault.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from flowsched.boundary import units
from flowsched.boundary.toml import NEEDED, TomlFile
from flowsched.boundary.validate import amounts, mapping, nearest, quoted, seconds, text, whole
from flowsched.cluster.events import JobSubmitted
from flowsched.cluster.model import Task
from flowsched.exceptions import InputError
from flowsched.hrm.containers import Container, sense
from flowsched.hrm.ids import name as name_of
from flowsched.hrm.units import AMOUNTS
from flowsched.run.after import Names, after
from flowsched.run.command import Command

RESOURCES = ("cpu", "mem", "gpu")

_MOST = 1_000_000
"""Tasks of a job."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class JobOfFile:
    """A job of a file.

    `after` has names of jobs and tasks by form, see `flowsched.run.after`.  `at_most` of its tasks run at once.
    `not_before` and `deadline` are dates, or seconds from the submission.  `given_kind` is `kind`, if the file names one.
    """

    submitted: JobSubmitted
    commands: dict[str, Command]
    retries: int
    time_limit: float | None
    after: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    at_most: int | None = None
    not_before: datetime | float | None = None
    deadline: datetime | float | None = None
    given_kind: str | None = None

    @property
    def kind(self) -> str:
        """Name of the tasks that do the same work, of this and other jobs; by default, those of the same command."""
        if self.given_kind is not None:
            return self.given_kind
        command = next(iter(self.commands.values()))
        work = json.dumps([command.words, os.path.abspath(command.directory)])
        return hashlib.sha256(work.encode()).hexdigest()[:16]  # commands may have secrets

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.submitted.id)


@dataclass(frozen=True, slots=True)
class JobFile:
    """A file of jobs; `machine` is the capacity of this machine, None for all that it has."""

    jobs: tuple[JobOfFile, ...]
    machine: dict[str, float] | None


def read_jobs(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    content: bytes | None = None,
    known: Names | None = None,
) -> JobFile:
    """Read a file of jobs, whose tasks write to files ``TASK.log`` in the folder `output`.

    `content` stands for that of the file, if it is given.  Jobs may depend on `known` ones, and have other names than
    these.  The InputError names line, column and key of every fault.
    """
    file = TomlFile(path, content)
    top = file.table((), {"job": (_tables, None), "machine": (partial(_demand, RESOURCES), None)})
    base, output = Path(path).absolute().parent, Path(output).absolute()
    keys = _KEYS | {
        "demand": (partial(_demand, RESOURCES), {"cpu": 1}),
        "user": (text, None),
        "gang": (partial(whole, least=1), None),
        "constraints": (mapping, {}),
        "retries": (partial(whole, least=0), 0),
        "time_limit": (_span, None),
        "priority": (partial(whole, least=-(2**40), most=2**40), 0),
        "array": (_array, None),
        "at_most": (partial(whole, least=1), None),
        "after": (after, {}),
        "not_before": (_when, None),
        "deadline": (_when, None),
        "kind": (text, None),
    }
    names, places = Names(known), dict[str, tuple[str, int]]()

    def job(where: tuple[str, int], what: str, told: dict[str, Any], ids: list[str]) -> JobOfFile:
        task = partial(Task, demand=told["demand"], constraints=told["constraints"])
        file.made((*where, "constraints"), what, lambda: task(told["name"]))
        if told["gang"] is not None:
            file.made((*where, "gang"), what, lambda: whole("gang", told["gang"], 1, len(ids)))
            if told["at_most"] is not None:
                file.faults.append(((*where, "at_most"), f"{what}: at_most: the tasks of a gang start together"))
        commands = {}
        indices = range(len(ids)) if told["array"] is None else told["array"]
        for i, id in zip(indices, ids if len(file.faults) == 0 else (), strict=False):
            own = told["environment"] | {"FLOWSCHED_TASK": id, "FLOWSCHED_INDEX": str(i)}
            log = output / f"{id}.log"
            commands[id] = Command(told["command"], own, base / told["directory"], log, log)
        gang, user, priority = told["gang"], told["user"], told["priority"]
        submitted = JobSubmitted(told["name"], list(map(task, commands)), user=user, priority=priority, gang=gang)
        names.add(told["name"], ids)
        places[told["name"]] = where
        return JobOfFile(
            submitted, commands, told["retries"], told["time_limit"], told["after"], told["at_most"], told["not_before"],
            told["deadline"], told["kind"],
        )  # fmt: skip

    jobs = _jobs(file, top["job"], keys, job, known)
    _check_after(file, jobs, names, places)
    return JobFile(tuple(jobs), top["machine"])


def _check_after(
    file: TomlFile, jobs: Sequence[JobOfFile], names: Names, places: Mapping[str, tuple[str, int]]
) -> None:
    """Refuse dependencies on unknown names, and cycles."""
    graph: dict[str, dict[str, None]] = {}
    for job in jobs:
        others = graph[job.name] = dict[str, None]()
        for name in dict.fromkeys(name for some in job.after.values() for name in some):
            found = names.find(name)
            if found is None:
                message = f"job {job.name!r}: after: no job or task is named {quoted(name)}{nearest(name, names.all())}"
                file.faults.append(((*places[job.name], "after"), message))
                continue
            others |= dict.fromkeys(found.jobs) | dict.fromkeys(
                names.job_of[task] for task in found.tasks if task in names.job_of
            )
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle = error.args[1][::-1]
        first = min((name for name in cycle if name in places), key=lambda name: places[name])
        at = cycle.index(first)
        shown = " -> ".join([*cycle[at:-1], *cycle[:at], first] if len(cycle) > 1 else cycle)
        file.faults.append(((*places[first], "after"), f"job {first!r}: after: a cycle: {shown}"))
    file.check()


def read_containers(
    path: str | os.PathLike[str], suffix: str = ""
) -> list[tuple[tuple[Container, ...], dict[str, Any]]]:
    """Read a file of jobs for HRM's units: the containers of each job, and its keys; errors as of `read_jobs`.

    `suffix` is added to the names of all jobs.
    """
    file = TomlFile(path)
    keys = _KEYS | {
        "demand": (partial(_demand, AMOUNTS.names), {"vcore": 1}),
        "trigger": (lambda what, value: sense(text(what, value)) and value, "once"),
        "priority": (partial(whole, least=-(2**31), most=2**31 - 1), 0),
        "duration": (_span, math.inf),
        "stages": (partial(whole, least=1, most=2**31 - 1), 1),
        "scheduler": (name_of, None),
    }

    def job(
        where: tuple[str, int], what: str, told: dict[str, Any], ids: list[str]
    ) -> tuple[tuple[Container, ...], dict[str, Any]]:
        told["job"], expected = told["name"] + suffix, {key: told[key] for key in ("duration", "priority")}
        ids = [told["name"] + suffix + id.removeprefix(told["name"]) for id in ids]
        return tuple(Container(id, told["job"], **told["demand"], **expected) for id in ids), told

    return _jobs(file, file.table((), {"job": (_tables, None)})["job"], keys, job)


def _jobs(
    file: TomlFile, tables: list[Any] | None, keys: dict[str, Any], make: Callable[..., Any], known: Names | None = None
) -> list[Any]:
    """Call `make` with the values of each table ``[[job]]`` and the ids of its tasks; return the results."""
    if not tables and not file.faults:
        file.faults.append((("job",), "job: no [[job]] in the file"))
    jobs, names = [], set[str]()
    for i, table in enumerate(tables or ()):
        where, faults, name = ("job", i), len(file.faults), table.get("name")
        what = f"job {name!r}" if isinstance(name, str) else f"job {i + 1}"
        told = file.table(where, keys, what)
        if len(file.faults) == faults:
            if told.get("array") is not None:
                if "count" in table:
                    file.faults.append(((*where, "array"), f"{what}: array: it stands for count, so one of them"))
                ids = [f"{name}.{k}" for k in told["array"]]
            else:
                ids = [name] if told["count"] == 1 else [f"{name}.{k}" for k in range(told["count"])]
            if known is not None:
                names.update(one for one in (name, *ids) if one in known)
            if twice := names & {name, *ids}:
                file.faults.append(
                    ((*where, "name"), f"{what}: name: {min(twice)!r} is the name of another job or task")
                )
            names |= {name, *ids}
            jobs.append(file.made((*where, "demand"), what, partial(make, where, what, told, ids)))
    file.check()
    return jobs


def _tables(what: str, value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
        raise InputError(f"{what}: tables [[job]] expected")
    return value


def _name(what: str, value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InputError(f"{what}: letters, digits and . _ - expected, at most 100, got {quoted(value)}")
    return value


def _command(what: str, value: Any) -> str | list[str]:
    good = isinstance(value, str) or (isinstance(value, list) and all(isinstance(part, str) for part in value))
    if not good or not value or "\0" in "".join(value):
        raise InputError(
            f"{what}: a line for the shell, or a list of program and arguments expected, got {quoted(value)}"
        )
    return value  # type: ignore[no-any-return]


def _demand(known: Sequence[str], what: str, value: Any) -> dict[str, float]:
    demand = {}
    for name, amount in mapping(what, value).items():
        if name not in known:
            raise InputError(f"{what}: unknown resource {name!r}; known: {', '.join(known)}{nearest(name, known)}")
        if name == "mem" and isinstance(amount, str):
            amount = _read(units.mebibytes, f"{what}: mem: a number of MiB, or an amount such as 2G,", amount)
        amounts(f"{what}: {name}", amount)
        demand[name] = amount
    return demand


def _span(what: str, value: Any) -> float:
    """Return a time in seconds; text is a time span."""
    if isinstance(value, str):
        value = _read(units.seconds, f"{what}: a number of seconds, or a time span such as 90s, 15m or 1:30:00,", value)
    return seconds(what, value)


def _when(what: str, value: Any) -> datetime | float:
    """Return a date, or a time span from the submission."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InputError(
            f"{what}: a date such as 2026-12-24T18:00:00, or a time span such as '90m', expected, got {quoted(value)}"
        )
    return _span(what, value)


_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")


def _array(what: str, value: Any) -> list[int]:
    """Return the indices of ranges such as ``"1-10,20,30-40:5"``."""
    indices = dict[int, None]()
    for part in text(what, value).split(","):
        found = _RANGE.fullmatch(part.strip())
        first, last, step = (
            (1, 0, 0) if found is None else (int(found[1]), int(found[2] or found[1]), int(found[3] or 1))
        )
        if last < first or step < 1:
            raise InputError(f"{what}: ranges such as '0-99', '1-9:2' or '1,5,7' expected, got {quoted(part)}")
        if (last - first) // step >= _MOST:
            raise InputError(f"{what}: at most {_MOST:,} tasks, got {quoted(part)}")
        indices.update(dict.fromkeys(range(first, last + 1, step)))
    if len(indices) > _MOST:
        raise InputError(f"{what}: at most {_MOST:,} tasks")
    return list(indices)


def _read(read: Callable[[str], float], wanted: str, value: str) -> float:
    try:
        return read(value)
    except ValueError:
        raise InputError(f"{wanted} expected, got {quoted(value)}") from None


def _texts(what: str, value: Any) -> dict[str, str]:
    for name, one in mapping(what, value).items():  # no error shows a value, which may be a secret
        if not name or "=" in name or "\0" in name:
            raise InputError(f"{what}: a name without = expected, got {quoted(name)}")
        if not isinstance(one, str) or "\0" in one:
            kind = "a NUL in it" if isinstance(one, str) else f"{type(one).__name__} in place of one"
            raise InputError(f"{what}: texts by name expected, got {kind}: {quoted(name)}")
    return dict(value)


_KEYS: dict[str, Any] = {
    "name": (_name, NEEDED),
    "command": (_command, NEEDED),
    "count": (partial(whole, least=1, most=_MOST), 1),
    "environment": (_texts, {}),
    "directory": (text, ""),
}
