"""Commands on the workers of Dask and Ray: none outlives its call, its worker, or the order to stop it.

A command has a session of its own.  A guard in it waits at a pipe whose other end the worker holds.  The kernel closes that
end when the worker dies, and the guard then kills the session's group.  Processes that have left the session are found by a
token in their environment when the command ends, or is stopped: see `flowsched.hrm.agent.processes`.

Linux only.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from uuid import uuid4

from flowsched.exceptions import FlowschedError, TimeLimitError
from flowsched.hrm.agent.processes import TOKEN, Family, end, signal_group, start_time

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""

_LOOK = 0.5
"""Seconds between two checks that the command is still wanted."""

_KEPT = 100_000
"""Names of stopped runs that are remembered."""

_GUARD = """
exec 3<&0
{ trap '' TERM; read -r _ <&3; kill -s KILL 0; } >/dev/null 2>&1 &
exec "$@" </dev/null 3<&-
"""

_lock = threading.Lock()
_running: dict[str, int] = {}
"""By name, the end of a pipe that wakes the thread of a command."""
_barred: dict[str, None] = {}
"""Runs that were stopped: one that has not begun by then never begins."""


class RunStoppedError(FlowschedError):
    """A command was stopped."""


def attend(
    arguments: Sequence[str], environment: Mapping[str, str], name: str = "", wanted: Callable[[], bool] | None = None
) -> int:
    """Run a command; return its exit status when nothing of it is left.

    `stop` and `clear` find it by `name`.  `wanted` is called twice a second; the command is stopped when it returns
    False.  Raise RunStoppedError if it was stopped, and OSError if no process can be made.
    """
    name = name or uuid4().hex
    news, wake = os.pipe()
    try:
        with _lock:
            if name in _barred:
                raise RunStoppedError(f"run {name!r} was stopped")
            _running[name] = wake
        try:
            return _attend(arguments, {**environment, TOKEN: name}, name, news, wanted)
        finally:
            with _lock:
                del _running[name]
    finally:
        os.close(news)
        os.close(wake)


def _attend(
    arguments: Sequence[str], environment: Mapping[str, str], token: str, news: int, wanted: Callable[[], bool] | None
) -> int:
    process = subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, "/bin/sh", *arguments], env=environment, stdin=subprocess.PIPE, start_new_session=True
    )
    family = Family(process.pid, start_time(process.pid) or 0, token)
    watched = os.pidfd_open(process.pid)
    stopped = False
    try:
        while not stopped:
            ready, _, _ = select.select([watched, news], [], [], None if wanted is None else _LOOK)
            if watched in ready:
                break
            stopped = bool(ready) or (wanted is not None and not wanted())
        if stopped:
            signal_group(process.pid, signal.SIGTERM)
            select.select([watched], [], [], GRACE)
    finally:  # its first process is not waited for yet, so its pid is its own
        os.close(watched)
        _end(family)
        status = process.wait()
        with suppress(OSError):
            process.stdin.close()  # type: ignore[union-attr]
    if stopped:
        raise RunStoppedError("the command was stopped")
    return status if status >= 0 else 128 - status


def clear(name: str) -> None:
    """End the remaining processes on this machine of a command whose worker has died; return when none is left."""
    _end(Family(0, 0, name))


def _end(family: Family) -> None:
    while True:
        try:
            return end([family])
        except (TimeLimitError, OSError):  # a process that cannot be killed yet, or no descriptors are left
            time.sleep(1.0)


async def stop(name: str) -> bool:
    """Stop a command in this process, and return True once nothing of it is left; one that has not begun never begins."""
    with _lock:
        _barred[name] = None
        while len(_barred) > _KEPT:
            del _barred[next(iter(_barred))]
        if name in _running:
            os.write(_running[name], b"s")
    while name in _running:
        await asyncio.sleep(0.02)
    return True
