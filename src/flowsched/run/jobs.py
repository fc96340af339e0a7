"""Files of jobs: what ``flowsched run`` runs, in TOML.

A file has tables ``[[job]]``, and may have a table ``[machine]`` with the capacity of this machine.  Everything is checked
when the file is read; an error names the line, as far as it can be found, and the key.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from flowsched.boundary.validate import amounts, mapping, quoted, seconds, text, whole
from flowsched.cluster.events import JobSubmitted
from flowsched.cluster.model import Task
from flowsched.exceptions import FlowschedError, InputError
from flowsched.run.local import Command

__all__ = ["JobFile", "JobOfFile", "read_jobs"]

RESOURCES = ("cpu", "mem", "gpu")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class JobOfFile:
    """A job of a file.

    Parameters
    ----------
    submitted : JobSubmitted
    commands : dict of task to Command
    retries : int
    time_limit : float or None
    """

    submitted: JobSubmitted
    commands: dict[str, Command]
    retries: int
    time_limit: float | None


@dataclass(frozen=True, slots=True)
class JobFile:
    """A file of jobs.

    Parameters
    ----------
    jobs : tuple of JobOfFile
    machine : dict of str to float, or None
        Capacity of this machine; None for all that it has.
    """

    jobs: tuple[JobOfFile, ...]
    machine: dict[str, float] | None


def read_jobs(path: str | os.PathLike[str], output: str | os.PathLike[str]) -> JobFile:
    """Read a file of jobs.

    Parameters
    ----------
    path : path
    output : path
        The folder of the tasks' output, in files ``TASK.log``.

    Returns
    -------
    JobFile

    Raises
    ------
    InputError
        Names the line and the key.
    OSError
        The file cannot be read.
    """
    raw = Path(path).read_bytes()
    try:
        told = raw.decode()
        content = tomllib.loads(told)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from None
    return _Reader(path, told.splitlines(), Path(path).absolute().parent, Path(output).absolute()).file(content)


class _Reader:
    """Checks the content of a file; `what` is the table that is being read, `begin` its first line, from 0."""

    def __init__(self, path: str | os.PathLike[str], lines: list[str], base: Path, output: Path) -> None:
        self._path, self._lines, self._base, self._output = path, lines, base, output
        self._what, self._begin = "", 0
        self._keys: dict[str, Any] = {}

    def file(self, content: dict[str, Any]) -> JobFile:
        self._table("", content, {"job", "machine"})
        tables = self._take("job", _tables, [])
        machine = self._take("machine", _demand, None)
        if not tables:
            raise self._error("job", "no [[job]] in the file")
        jobs, names = [], set[str]()
        for i, table in enumerate(tables):
            job = self._job(i, table)
            names_here = set(job.commands) | {str(job.submitted.id)}
            if names & names_here:
                raise self._error("name", f"{min(names & names_here)!r} is the name of another job or task")
            names |= names_here
            jobs.append(job)
        return JobFile(tuple(jobs), machine)

    def _job(self, index: int, table: dict[str, Any]) -> JobOfFile:
        self._what, self._begin = f"job {index + 1}", self._heading("[[job]]", index)
        known = (
            "name command count demand priority user gang constraints retries time_limit environment directory".split()
        )
        self._table(self._what, table, set(known))
        for key in ("name", "command"):
            if key not in table:
                raise self._error(key, "is missing")
        name = self._take("name", _name)
        self._what = f"job {name!r}"
        command = self._take("command", _command)
        count = self._take("count", lambda what, value: whole(what, value, 1, 1_000_000), 1)
        demand = self._take("demand", _demand, {"cpu": 1})
        directory = self._base / self._take("directory", text, ".")
        environment = self._take("environment", _texts, {})
        retries = self._take("retries", lambda what, value: whole(what, value, 0), 0)
        time_limit = self._take("time_limit", seconds, None)
        priority = self._take("priority", lambda what, value: whole(what, value, -(2**40), 2**40), 0)
        user = self._take("user", text, None)
        gang = self._take("gang", lambda what, value: whole(what, value, 1, count), None)
        constraints = self._take("constraints", mapping, {})
        tasks, commands = [], {}
        for i in range(count):
            id = name if count == 1 else f"{name}.{i}"
            own = environment | {"FLOWSCHED_TASK": id, "FLOWSCHED_INDEX": str(i)}
            log = self._output / f"{id}.log"
            commands[id] = Command(command, own, directory, log, log)
            tasks.append(self._made("constraints", partial(Task, id, demand, constraints)))
        submitted = JobSubmitted(name, tasks, user=user, priority=priority, gang=gang)
        return JobOfFile(submitted, commands, retries, time_limit)

    def _table(self, what: str, table: dict[str, Any], known: set[str]) -> None:
        self._keys = table
        for key in table:
            if key not in known:
                raise self._error(key, f"unknown; known: {', '.join(sorted(known))}")

    def _take(self, key: str, check: Callable[[str, Any], Any], default: Any = None) -> Any:
        return self._made(key, lambda: check(key, self._keys[key])) if key in self._keys else default

    def _made(self, key: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except FlowschedError as error:
            said = str(error)
            raise self._error(key, said.removeprefix(f"{key}").lstrip(": ")) from None

    def _error(self, key: str, message: str) -> InputError:
        """Return an error that names the line of a key in the table that is being read."""
        line = self._begin
        for i in range(self._begin, len(self._lines)):
            if i > self._begin and self._lines[i].lstrip().startswith("[["):
                break
            if re.match(rf"\s*\[?\s*(?:job\s*\.\s*)?[\"']?{re.escape(key)}[\"']?\s*[\].=]", self._lines[i]):
                line = i
                break
        where = f"{self._what}: {key}" if self._what and key else self._what or key
        return InputError(f"{self._path}, line {line + 1}: {where}: {message}")

    def _heading(self, heading: str, index: int) -> int:
        found = [i for i, line in enumerate(self._lines) if line.replace(" ", "").startswith(heading)]
        return found[index] if index < len(found) else 0


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


def _demand(what: str, value: Any) -> dict[str, float]:
    for name, amount in mapping(what, value).items():
        if name not in RESOURCES:
            raise InputError(f"{what}: unknown resource {name!r}; known: {', '.join(RESOURCES)}")
        amounts(f"{what}: {name}", amount)
    return dict(value)


def _texts(what: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(one, str) and "\0" not in one for one in value.values()):
        raise InputError(f"{what}: texts by name expected, got {quoted(value)}")
    return dict(value)
