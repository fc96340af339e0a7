"""Processes on this machine.

A run is a shell that starts the command, waits for it, and writes its exit status into a file.  The shell is on record, by
pid, start time and a token in its environment, before it may start anything: see `flowsched.hrm.agent.processes`.  So a
driver that was killed has a successor that finds every run: one that goes on is watched from then on, and one that has
ended meanwhile has left its exit status.

Linux only.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from flowsched.boundary.validate import quoted
from flowsched.cluster.events import MachineAdded
from flowsched.exceptions import FlowschedError, InputError, TimeLimitError
from flowsched.hrm.agent.commands import checked
from flowsched.hrm.agent.processes import Family, boot_id, end, hold, signal_group, start_time
from flowsched.run.adapter import Adapter, Folder
from flowsched.run.executor import Ended, Failed, Run, Stopped, Told

__all__ = ["Command", "ExitStatusError", "LocalExecutor", "capacity_here", "outcome"]

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


@dataclass(eq=False, slots=True)
class _Process:
    run: Run
    family: Family
    child: subprocess.Popen[bytes] | None = None
    fd: int = -1
    stopped: bool = False
    over: bool = False


class LocalExecutor(Adapter):
    """Runs commands as processes on this machine; a payload is a `Command`, or a command line.

    ``CUDA_VISIBLE_DEVICES`` of a run are its devices, if the machine has GPUs.

    Parameters
    ----------
    capacity : mapping of str to number, optional
        See `capacity_here`, the default.  Nothing enforces it but the decisions.
    machine : hashable, optional
        By default the host's name.
    folder : path, optional
        The records of runs: what the next driver needs if this one is killed.  One driver at a time uses it.  Without it
        they are in a temporary folder, and processes that outlive the driver are not found again.
    grace : float
        Seconds between SIGTERM and SIGKILL.
    """

    def __init__(
        self,
        capacity: Mapping[str, float] | None = None,
        *,
        machine: Hashable = None,
        folder: str | os.PathLike[str] | None = None,
        grace: float = 5.0,
    ) -> None:
        super().__init__()
        self.machine = socket.gethostname() if machine is None else machine
        self.capacity = capacity_here() if capacity is None else dict(capacity)
        self.grace = grace
        self._folder = Folder(folder, sync=False)
        self._processes: dict[int, _Process] = {}
        self._hurried = asyncio.Event()

    async def open(self, tell: Callable[[Told], None]) -> Iterable[Run]:
        """See `Executor.open`."""
        records = self._folder.open()
        self.tell, self._boot = tell, boot_id()
        self.show({self.machine: MachineAdded(self.machine, self.capacity)})
        for run, record in records:
            process = self._processes[run.number] = _Process(run, Family(**record["family"]))
            if record["boot"] != self._boot or start_time(process.family.pid) != process.family.start:
                self.later(self._finish(process, gone=record["boot"] != self._boot))
            else:
                self._watch(process)
        for path in self._folder.path.iterdir():  # what a driver that was killed had not removed yet
            number, _, kind = path.name.partition(".")
            if kind in ("status", "status.new") and number.isdigit() and int(number) not in self._processes:
                path.unlink()
        return [process.run for process in self._processes.values()]

    def start(self, run: Run) -> None:
        """See `Executor.start`."""
        command = run.payload if isinstance(run.payload, Command) else Command(run.payload)
        if not isinstance(command.line, str | list | tuple):
            raise InputError(f"task {run.task!r}: a command expected, got {quoted(command.line)}")
        environment = {**os.environ, **command.environment}
        if "gpu" in self.capacity:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, run.devices))
        held = hold(command.arguments(run.task, self._folder.file(run, "status")), (), environment)
        try:
            # A record that was not completed is of a shell that was not released.
            self._folder.write(run, boot=self._boot, family=asdict(held.family))
            process = self._processes[run.number] = _Process(run, held.family, held.process)
            self._watch(process)
        except BaseException:
            held.abandon()
            self._processes.pop(run.number, None)
            raise
        # A process that has died at its gate ends like any other.
        with suppress(BrokenPipeError):
            held.release()

    def stop(self, run: Run) -> None:
        """See `Executor.stop`."""
        process = self._processes.get(run.number)
        if process is None or process.over:
            self.tell(Stopped(run.number))
        elif not process.stopped:
            process.stopped = True
            self.later(self._stop(process))

    def hurry(self) -> None:
        """Spare no run the SIGKILL from now on."""
        self._hurried.set()

    def release(self, run: Run) -> None:
        """See `Executor.release`."""
        self._processes.pop(run.number, None)
        self._folder.remove(run)
        self._folder.file(run, "status").unlink(missing_ok=True)

    async def close(self) -> None:
        """See `Executor.close`."""
        await self.end_acts()
        for process in self._processes.values():
            self._unwatch(process)
        self._processes.clear()
        self._folder.close()

    def _watch(self, process: _Process) -> None:
        process.fd = os.pidfd_open(process.family.pid)
        asyncio.get_running_loop().add_reader(process.fd, self._exited, process)

    def _unwatch(self, process: _Process) -> None:
        fd, process.fd = process.fd, -1
        if fd >= 0:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)

    def _exited(self, process: _Process) -> None:
        self._unwatch(process)
        self.later(self._finish(process))

    async def _stop(self, process: _Process) -> None:
        """End the processes of a run; the end of the shell is noticed as ever."""
        family = process.family
        if start_time(family.pid) == family.start:
            signal_group(family.pid, signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._hurried.wait(), self.grace)
        if process.fd >= 0:
            await self._end(process)

    async def _finish(self, process: _Process, gone: bool = False) -> None:
        """Tell the end of a run, after what is left of it has been ended."""
        if not gone:
            await self._end(process)
        if process.child is not None:
            process.child.wait()
        run, process.over = process.run, True
        status: int | None = None
        with suppress(OSError, ValueError):
            status = int(self._folder.file(run, "status").read_text())
        self.tell(outcome(run, status, process.stopped))

    async def _end(self, process: _Process) -> None:
        while True:
            try:
                await asyncio.to_thread(end, [process.family])
                return
            except (TimeLimitError, OSError):  # a process that cannot be killed yet, or no descriptors are left
                await asyncio.sleep(1.0)


def capacity_here() -> dict[str, float]:
    """Return what this process may use here: ``cpu`` in cores, ``mem`` in MiB, and ``gpu``, if there are NVIDIA GPUs."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**20
    gpus = len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
    return {"cpu": len(os.sched_getaffinity(0)), "mem": memory, **({"gpu": gpus} if gpus else {})}
