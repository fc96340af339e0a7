"""Dependencies between jobs of files: names and patterns of names, and the tasks that they stand for."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from flowsched.boundary.validate import nearest, quoted
from flowsched.exceptions import InputError

FORMS = ("ok", "any", "failed")
"""Forms of dependencies: all tasks ended well; all ended; all ended, and one of them failed."""

_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Named:
    """The tasks that a name or pattern stands for: whole jobs, and tasks of other jobs."""

    jobs: tuple[str, ...]
    tasks: tuple[str, ...]


class Names:
    """Names of jobs and of their tasks, for exact look-ups and patterns.

    `base` has further ones, which are not changed.
    """

    def __init__(self, base: Names | None = None) -> None:
        self.jobs: dict[str, Sequence[str]] = {}
        self.job_of: dict[str, str] = {}
        self._base = base
        self._sorted: list[str] | None = None
        self._found: dict[str, Named | None] = {}

    def __contains__(self, name: object) -> bool:
        """Return True if a job or a task has the name."""
        return name in self.jobs or name in self.job_of or (self._base is not None and name in self._base)

    def add(self, job: str, tasks: Sequence[str]) -> None:
        """Add a job and its tasks."""
        self.jobs[job] = tasks
        self.job_of.update(dict.fromkeys(tasks, job))
        self._sorted = None
        self._found.clear()

    def find(self, pattern: str) -> Named | None:
        """Return the jobs and tasks of a name or pattern; None if there are none."""
        if pattern not in self._found:
            self._found[pattern] = self._look(pattern)
        return self._found[pattern]

    def all(self) -> Iterator[str]:
        """Yield the names of all jobs."""
        if self._base is not None:
            yield from self._base.all()
        yield from self.jobs

    def tasks(self, patterns: Iterable[str]) -> dict[str, None]:
        """Return the tasks of names and patterns, in order.

        Raises
        ------
        InputError
            A name is unknown.
        """
        tasks = dict[str, None]()
        for pattern in patterns:
            found = self.find(pattern)
            if found is None:
                raise InputError(f"no job or task is named {quoted(pattern)}{nearest(pattern, self.all())}")
            for job in found.jobs:
                tasks.update(dict.fromkeys(self._tasks_of(job)))
            tasks.update(dict.fromkeys(found.tasks))
        return tasks

    def _tasks_of(self, job: str) -> Sequence[str]:
        return self.jobs[job] if job in self.jobs or self._base is None else self._base._tasks_of(job)

    def _look(self, pattern: str) -> Named | None:
        if pattern in self.jobs:
            return Named((pattern,), ())
        if pattern in self.job_of:
            return Named((), (pattern,))
        more = None if self._base is None else self._base.find(pattern)
        start = _WILD.search(pattern)
        if start is None:
            return more
        jobs, tasks = dict[str, None](), dict[str, list[str]]()
        for name in self._starting(pattern[: start.start()]):
            if fnmatchcase(name, pattern):
                if name in self.jobs:
                    jobs[name] = None
                else:
                    tasks.setdefault(self.job_of[name], []).append(name)
        for job, some in tasks.items():
            if len(some) == len(self.jobs[job]):
                jobs[job] = None
        rest = (task for job, some in tasks.items() if job not in jobs for task in some)
        found = Named((*(() if more is None else more.jobs), *jobs), (*(() if more is None else more.tasks), *rest))
        return found if found.jobs or found.tasks else None

    def _starting(self, prefix: str) -> Iterator[str]:
        if self._sorted is None:
            self._sorted = sorted(self.jobs.keys() | self.job_of.keys())
        for i in range(bisect_left(self._sorted, prefix), len(self._sorted)):
            if not self._sorted[i].startswith(prefix):
                return
            yield self._sorted[i]


def after(what: str, value: Any) -> Mapping[str, tuple[str, ...]]:
    """Check a value of ``after``; return the names by form.

    A list means ``ok``; a table has lists by form.
    """
    forms = value if isinstance(value, dict) else {"ok": value}
    for form, names in forms.items():
        if form not in FORMS:
            raise InputError(f"{what}: unknown form {quoted(form)}; known: {', '.join(FORMS)}{nearest(form, FORMS)}")
        if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
            raise InputError(
                f"{what}: names of jobs or tasks, or patterns such as 'fit.*', expected, got {quoted(names)}"
            )
    return {form: tuple(dict.fromkeys(forms[form])) for form in FORMS if forms.get(form)}
