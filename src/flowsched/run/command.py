"""Commands of runs: on this machine, and as texts for a shell elsewhere, of a batch job or of another host."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flowsched.boundary.validate import quoted
from flowsched.exceptions import FlowschedError, InputError
from flowsched.hrm.agent.commands import checked
from flowsched.run.executor import Ended, Failed, Run, Stopped, Told

__all__ = ["Command", "ExitStatusError", "command_of", "outcome", "script"]

_SHELL = """
trap : TERM
(
cd -- "$1" || exit 126
if [ -n "$2" ]; then true >>"$2" || exit 126; exec >>"$2"; fi
if [ -n "$3" ]; then true >>"$3" || exit 126; exec 2>>"$3"; fi
shift 3
exec "$@" </dev/null
)
status=$?
echo $status >"$0.new" && mv -f -- "$0.new" "$0"
exit $status
"""
"""Arguments: the file of the status, the folder, the files of standard output and error ("" keeps them), the command.

It outlives a SIGTERM to its group, so that the command has its time to end.
"""


class ExitStatusError(FlowschedError):
    """A command ended with another exit status than 0.

    Attributes
    ----------
    status : int
        As a shell has it: 126 if the program cannot be run, 127 if there is none, 128 and the number of the signal that
        killed it.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, status)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])


def outcome(run: Run, status: int | None, stopped: bool, why: str = "its processes were killed") -> Told:
    """Return what is to be told of a command that is over; without an exit status it was lost, and `why` says how."""
    if status == 0:
        return Ended(run.number, 0)
    if stopped:
        return Stopped(run.number)
    if status is None:
        return Failed(run.number, ExitStatusError(f"task {run.task!r}: {why}", 128 + signal.SIGKILL), lost=True)
    return Failed(run.number, ExitStatusError(f"task {run.task!r} ended with exit status {status}", status))


@dataclass(frozen=True, slots=True)
class Command:
    """A command to run.

    Parameters
    ----------
    line : sequence of str, or str
        Program and arguments; a text is a line for ``/bin/sh``.
    environment : mapping of str to str
        Beside the driver's own.
    directory : path, optional
        Where it runs; by default where the driver does.
    output, errors : path, optional
        Files to which its standard output and standard error are appended; by default the driver's own streams.
    """

    line: Sequence[str] | str
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str | os.PathLike[str] = ""
    output: str | os.PathLike[str] | None = None
    errors: str | os.PathLike[str] | None = None

    def arguments(self, task: Hashable, status: Path) -> list[str]:
        """Return the command line of the shell."""
        line = ("/bin/sh", "-c", self.line) if isinstance(self.line, str) else self.line
        files = ["" if path is None else os.path.abspath(path) for path in (self.output, self.errors)]
        return [
            "/bin/sh",
            "-c",
            _SHELL,
            str(status),
            os.path.abspath(self.directory),
            *files,
            *checked(str(task), line),
        ]

    def call(self) -> int:
        """Run it here, for the workers of other executors; return 0, or raise `ExitStatusError`."""
        with tempfile.NamedTemporaryFile(prefix="flowsched-") as file:
            arguments = self.arguments("command", Path(file.name))
            status = subprocess.run(arguments, env={**os.environ, **self.environment}, check=False).returncode
        if status:
            raise ExitStatusError(f"exit status {status}", status)
        return 0


def command_of(run: Run) -> Command:
    """Return the payload of a run as a command; InputError if it is none."""
    command = run.payload if isinstance(run.payload, Command) else Command(run.payload)
    if not isinstance(command.line, str | list | tuple):
        raise InputError(f"task {run.task!r}: a command expected, got {quoted(command.line)}")
    return command


def script(run: Run) -> str:
    """Return the text for ``/bin/sh`` that becomes the command of a run; paths are those of the machine where it runs."""
    command = command_of(run)
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
