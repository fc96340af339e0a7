"""Access to the service: tokens, their roles, and the rights of each role.

A token of a user submits jobs of this user, and removes or extends these alone.  Events are checked in the thread that owns
the scheduler, immediately before they are applied, so nothing can change between the check and the effect.

A refusal is the same for an unknown id as for another user's.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat
import tomllib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from flowsched.boundary.files import read
from flowsched.boundary.validate import nearest, quoted
from flowsched.cluster import Cluster
from flowsched.cluster.events import Event, JobRemoved, JobSubmitted, TaskRemoved, TaskSubmitted
from flowsched.cluster.model import Tasks
from flowsched.exceptions import InputError
from flowsched.serve.wire import RequestError

Role = Literal["read", "user", "operator"]

SHORTEST = 16
"""Smallest number of characters of a token."""

_LONGEST_FILE = 1 << 20

_FIELDS = ("token", "role", "user", "priority")

USER_EVENTS = (JobSubmitted, TaskSubmitted, TaskRemoved, JobRemoved)
"""Kinds of events that a user may send; all others are reports and decisions of the operator's programs."""


@dataclass(frozen=True)
class Access:
    """Access that a token gives.

    Parameters
    ----------
    role : {"read", "user", "operator"}
    user : str, int or None
        User of the role "user".
    priority : int
        Best (lowest) priority of the jobs of such a user.
    """

    role: Role = "operator"
    user: str | int | None = None
    priority: int = 0

    @property
    def restricted(self) -> bool:
        """True if only the data of one user may be seen."""
        return self.role == "user"

    def scoped(self, key: str) -> str:
        """Return the key of a request; those of different users differ, and from all keys that a request can have."""
        return f"{json.dumps(self.user)} {key}" if self.restricted else key

    def sees(self, user: Hashable) -> bool:
        """Return True if jobs of a user may be seen."""
        return not self.restricted or user == self.user

    def allowed(self, cluster: Cluster, events: Sequence[Event]) -> Sequence[Event]:
        """Return the events to apply, in which jobs without a user have that of the token.

        Raises
        ------
        RequestError
            With status 403; its index is that of the first event that is not allowed.
        """
        if self.role == "operator":
            return events
        if self.role == "read":
            raise RequestError("this token may only read", 403)
        jobs, tasks = set[Hashable](), set[Hashable]()  # of this request
        allowed = list[Event]()
        for i, event in enumerate(events):
            try:
                allowed.append(self._allowed(cluster, i, event, jobs, tasks))
            except TypeError as error:  # an id that is not hashable, a priority that is no number
                raise RequestError(f"events[{i}]: {type(event).__name__}: {error}", 422, index=i) from None
        return allowed

    def _allowed(self, cluster: Cluster, index: int, event: Event, jobs: set[Hashable], tasks: set[Hashable]) -> Event:
        def refuse(message: str) -> RequestError:
            return RequestError(f"events[{index}]: {message}", 403, index=index)

        if not isinstance(event, USER_EVENTS):
            raise refuse(f"{type(event).__name__}: not allowed with the token of a user")
        if event.time is not None:
            raise refuse("time: not allowed with the token of a user")
        new: Iterable[Hashable] = ()
        if isinstance(event, JobSubmitted):
            if event.user is not None and event.user != self.user:
                raise refuse(f"user: {quoted(self.user)} expected, got {quoted(event.user)}")
            if event.priority < self.priority:
                raise refuse(f"priority: at least {self.priority} expected, got {event.priority}")
            if event.id in cluster.jobs and not self._owns(cluster, event.id):
                raise refuse(f"the id {quoted(event.id)} is not free")
            jobs.add(event.id)
            new = event.tasks.ids if isinstance(event.tasks, Tasks) else [task.id for task in event.tasks]
            event = replace(event, user=self.user)
        elif isinstance(event, TaskRemoved):
            record = cluster.tasks.get(event.task)
            if not (event.task in tasks if record is None else record.group.job.job.user == self.user):
                raise refuse(f"no task {quoted(event.task)} of this user")
        else:
            if not (self._owns(cluster, event.job) if event.job in cluster.jobs else event.job in jobs):
                raise refuse(f"no job {quoted(event.job)} of this user")
            if isinstance(event, TaskSubmitted):
                new = [event.task.id]
        for task in new:
            record = cluster.tasks.get(task)
            if record is not None and record.group.job.job.user != self.user:
                raise refuse(f"the id {quoted(task)} is not free")
            tasks.add(task)
        return event

    def _owns(self, cluster: Cluster, job: Hashable) -> bool:
        return cluster.jobs[job].job.user == self.user


OPERATOR = Access()


class Tokens:
    """Tokens with their access; only their digests are kept.

    Parameters
    ----------
    access : iterable of (str, Access)
    """

    def __init__(self, access: Iterable[tuple[str, Access]]) -> None:
        self._access = [(_digest(token), one) for token, one in access]

    def find(self, token: str) -> Access | None:
        """Return the access of a token, None for an unknown one; the time does not depend on the token."""
        given, found = _digest(token), None
        for digest, access in self._access:
            if hmac.compare_digest(given, digest):
                found = access
        return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def read_tokens(path: str | os.PathLike[str]) -> list[tuple[str, Access]]:
    """Read a file of tokens, in TOML or JSON.

    It has a list ``tokens`` of tables with ``token``, ``role`` ("read", "user" or "operator"), for a user the name ``user``,
    and optionally ``priority``, the best priority of the user's jobs (0).

    Raises
    ------
    InputError
        The contents are wrong, or other users of the machine may read or write the file.
    """
    where = os.fspath(path)
    _check_private(Path(path))
    raw = read(path, _LONGEST_FILE)
    try:
        text = raw.decode()
        found: Any = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: neither TOML nor JSON: {type(error).__name__}") from None
    listed = found.get("tokens") if isinstance(found, dict) and found.keys() == {"tokens"} else None
    if not isinstance(listed, list) or not listed:
        raise InputError(f"{where}: a list 'tokens' of tables expected, and nothing else")
    read_ = [_entry(f"{where}: tokens[{i}]", record) for i, record in enumerate(listed)]
    known = dict[str, int]()
    for i, (token, _) in enumerate(read_):
        if known.setdefault(token, i) != i:
            raise InputError(f"{where}: tokens[{i}]: the same token as tokens[{known[token]}]")
    return read_


def _entry(where: str, record: Any) -> tuple[str, Access]:
    if not isinstance(record, dict):
        raise InputError(f"{where}: a table expected")
    for name in record:
        if name not in _FIELDS:
            raise InputError(f"{where}: {quoted(name)}: unknown; known: {', '.join(_FIELDS)}{nearest(name, _FIELDS)}")
    token, role = record.get("token"), record.get("role", "")
    if not isinstance(token, str) or not is_token(token):
        raise InputError(f"{where}: token: at least {SHORTEST} visible ASCII characters expected")
    if role not in get_args(Role):
        raise InputError(f"{where}: role: one of {', '.join(get_args(Role))} expected, got {quoted(role)}")
    user, priority = record.get("user"), record.get("priority", 0)
    if role == "user" and (type(user) not in (str, int) or user == ""):
        raise InputError(f"{where}: user: a name or a whole number expected, got {quoted(user)}")
    if type(priority) is not int:
        raise InputError(f"{where}: priority: a whole number expected, got {quoted(priority)}")
    if role != "user" and record.keys() & {"user", "priority"}:
        raise InputError(f"{where}: user and priority belong to the role 'user'")
    return token, Access(role, user, priority)


def is_token(text: str) -> bool:
    """Return True for a text that may be a token."""
    return len(text) >= SHORTEST and text.isascii() and text.isprintable() and " " not in text


def _check_private(path: Path) -> None:
    about = path.stat()
    if stat.S_ISREG(about.st_mode) and hasattr(os, "geteuid"):
        if about.st_uid not in (0, os.geteuid()):
            raise InputError(f"{path}: belongs to another user")
        if about.st_mode & (stat.S_IWGRP | stat.S_IRWXO):
            raise InputError(f"{path}: other users may read or write it; chmod 600 {path}")
