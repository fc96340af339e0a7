"""Commands as texts for a shell elsewhere: of a batch job, or of another host."""

from __future__ import annotations

import os
import shlex

from flowsched.boundary.validate import quoted
from flowsched.exceptions import InputError
from flowsched.hrm.agent.commands import checked
from flowsched.run.executor import Run
from flowsched.run.local import Command

__all__ = ["script"]


def script(run: Run) -> str:
    """Return the text for ``/bin/sh`` that becomes the command of a run; paths are those of the machine where it runs."""
    command = run.payload if isinstance(run.payload, Command) else Command(run.payload)
    if not isinstance(command.line, str | list | tuple):
        raise InputError(f"task {run.task!r}: a command expected, got {quoted(command.line)}")
    line = ("/bin/sh", "-c", command.line) if isinstance(command.line, str) else command.line
    assigned = [f"{name}={value}" for name, value in command.environment.items()]
    words = checked(str(run.task), [*(["env", *assigned] if assigned else ()), *line])
    lines = []
    if command.directory:
        lines.append(f"cd -- {_path(command.directory)} || exit 126")
    for stream, path in ((1, command.output), (2, command.errors)):
        if path is not None:
            to = _path(path)
            lines.append(f'mkdir -p -- "$(dirname -- {to})" && true >>{to} || exit 126; exec {stream}>>{to}')
    lines.append(f"exec {shlex.join(words)} </dev/null")
    return "\n".join(lines) + "\n"


def _path(path: str | os.PathLike[str]) -> str:
    return shlex.quote(os.fspath(path))
