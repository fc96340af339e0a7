"""Commands of runs: on this machine, and as texts for a shell elsewhere, of a batch job or of another host."""

from __future__ import annotations

import os
import re
import shlex
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from flowsched.boundary.validate import quoted
from flowsched.exceptions import FlowschedError, InputError
from flowsched.hrm.agent.commands import checked
from flowsched.hrm.agent.processes import Entry
from flowsched.run.executor import Ended, Failed, Run, Stopped
from flowsched.run.onworker import attend

UNFIT = 126
"""Exit status of a run that its machine could not begin, such as for lack of its folder."""


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


def outcome(
    run: Run,
    status: int | None,
    stopped: bool,
    why: str = "its processes were killed",
    reason: str = "",
    used: Mapping[str, float] = MappingProxyType({}),
) -> Ended | Failed | Stopped:
    """Return the report of a command that has ended.

    Without an exit status it was lost, and `why` says how; `reason` is why it could not begin, if that is known.
    """
    if status == 0:
        return Ended(run.number, 0, used)
    if stopped:
        return Stopped(run.number, used)
    if status is None:
        killed = ExitStatusError(f"task {run.task!r}: {why}", 128 + signal.SIGKILL)
        return Failed(run.number, killed, lost=True, used=used)
    error = ExitStatusError(f"task {run.task!r} ended with {_meaning(status, reason)}", status)
    return Failed(run.number, error, unfit=status == UNFIT, used=used)


def _meaning(status: int, reason: str) -> str:
    reason = reason or CANNOT.get(status, "")
    return f"exit status {status}" + (f": {reason}" if reason else "")


CANNOT = {
    126: "for a shell, a program that cannot be run; its output says more",
    127: "for a shell, a command that is not found; its output says more",
}
"""Exit statuses of commands that could not be run, and their meaning where no other reason is known."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command to run.

    Parameters
    ----------
    line : sequence of str, or str
        Program and arguments; a text is a line for ``/bin/sh``.
    environment : mapping of str to str
        Variables added to the driver's own.
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

    @property
    def words(self) -> Sequence[str]:
        """Program and arguments."""
        return ("/bin/sh", "-c", self.line) if isinstance(self.line, str) else self.line

    @property
    def entry(self) -> Entry:
        """Its environment, folder and output files on this machine."""
        output, errors = ("" if path is None else os.path.abspath(path) for path in (self.output, self.errors))
        return Entry(self.environment, os.path.abspath(self.directory), output, errors)

    def call(self, name: str = "", wanted: Callable[[], bool] | None = None) -> int:
        """Run it here, for the workers of other executors; return 0, or raise `ExitStatusError`.

        Parameters
        ----------
        name : str
            By which `flowsched.run.onworker.stop` finds it.
        wanted : callable, optional
            The command is stopped when that returns False.
        """
        entry = self.entry
        with tempfile.NamedTemporaryFile(prefix="flowsched-") as file:
            arguments = entry.arguments(checked("command", self.words), why=file.name)
            status = attend(arguments, entry.variables(os.environ), name, wanted)
            reason = file.read().decode(errors="replace").strip()
        if status:
            raise ExitStatusError(_meaning(status, reason), status)
        return 0


def command_in(payload: object) -> Command | None:
    """Return the command of a payload for workers: a `Command`, or its `call`; None for another call."""
    own = getattr(payload, "__self__", None)
    if isinstance(own, Command) and getattr(payload, "__name__", "") == "call":
        return own
    return payload if isinstance(payload, Command) else None


def command_of(run: Run) -> Command:
    """Return the payload of a run as a command; InputError if it is none."""
    command = run.payload if isinstance(run.payload, Command) else Command(run.payload)
    if not isinstance(command.line, str | list | tuple):
        raise InputError(f"task {run.task!r}: a command expected, got {quoted(command.line)}")
    return command


_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")

_SHELLS = frozenset(
    "BASHOPTS BASHPID BASH_COMMAND BASH_SUBSHELL BASH_VERSINFO DIRSTACK EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD"
    " LINENO OPTIND PPID RANDOM SECONDS SHELLOPTS SHLVL SRANDOM UID _".split()
)
"""Variables that some shells set themselves, or that are read-only there."""


def script(run: Run, why: str = ":") -> str:
    """Return the text for ``/bin/sh`` that becomes the command of a run; paths are those of the machine where it runs.

    The environment is in no argument of a process, and set last, so that nothing before the command depends on it.  The
    line `why` is executed where the command cannot begin; ``$2`` is the reason.
    """
    command = command_of(run)
    words = checked(str(run.task), command.words)
    lines = [f'fail() {{\n{why}\nprintf \'flowsched: %s\\n\' "$2" >&2\nexit "$1"\n}}']
    if command.directory:
        entered = f"cd -- {_path(command.directory)} >/dev/null 2>&1"
        lines.append(f"{entered} || {_fail(126, 'cannot enter folder', command.directory)}")
    for stream, path in ((1, command.output), (2, command.errors)):
        if path is not None:
            to = _path(path)
            made = f'(umask 077; mkdir -p -- "$(dirname -- {to})" && : >>{to})'
            lines.append(f"{made} || {_fail(126, 'cannot write', path)}; exec {stream}>>{to}")
    lines.append("exec </dev/null")
    known = []
    for name, value in command.environment.items():
        if not _NAME.fullmatch(name) or "\0" in value:
            raise InputError(
                f"task {run.task!r}: environment: a name and a text for a shell expected, got {quoted(name)}"
            )
        if name in _SHELLS:
            known.append(f"{name}={value}")
        else:
            lines.append(f"export {name}={shlex.quote(value)}")
    program = words[0]
    found = f"[ -e {_path(program)} ]" if "/" in program else f"command -v -- {_path(program)} >/dev/null"
    lines.append(f"{found} || {_fail(127, 'command not found:', program)}")
    if "/" in program:
        path = _path(program)
        lines.append(f"[ -x {path} ] && [ ! -d {path} ] || {_fail(126, 'permission denied:', program)}")
    lines.append(f"exec {shlex.join([*(['/usr/bin/env', *known] if known else ()), *words])}")
    return "\n".join(lines) + "\n"


def _fail(status: int, what: str, name: str | os.PathLike[str]) -> str:
    return f"fail {status} {shlex.quote(f'{what} {os.fspath(name)}')}"


def _path(path: str | os.PathLike[str]) -> str:
    return shlex.quote(os.fspath(path))
