"""Processes on this machine.

The first process of a run starts the command, waits for it, and writes its exit status and its usage into a file: see
`flowsched.run.spawner`.  The command has a process group of its own in the session of the first process, so one that kills its
group has failed, and is not lost.  The first process is on record, by pid, start time and the token that its command has in its
environment, before it may start anything: see `flowsched.hrm.agent.processes`.  So a driver that was killed has a successor that finds every run: one that goes on is watched from then on, and one that has
ended meanwhile has left its exit status.

With control groups, those of a run are in one of its own, which limits them.  All of them are killed through it, even those
that have left the session and cleared their environment.

Linux only.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from flowsched.boundary import control_groups, private
from flowsched.boundary.validate import number
from flowsched.cluster.events import MachineAdded
from flowsched.exceptions import InputError, TimeLimitError
from flowsched.hrm.agent.commands import checked
from flowsched.hrm.agent.processes import Family, boot_id, end, signal_session, start_time
from flowsched.run.adapter import Adapter, Folder, Held
from flowsched.run.command import ExitStatusError, command_of, outcome
from flowsched.run.executor import Failed, Run, Told
from flowsched.run.runs import LOGGER
from flowsched.run.spawner import Spawner

if TYPE_CHECKING:
    from flowsched.run.usage import Usage

_CONTROLLERS = {"memory": "mem", "cpu": "cpu"}

_RARE = 9
"""Times as long as a look at the use of all runs takes, nothing is looked at."""


@dataclass(eq=False, slots=True, kw_only=True)
class _Process(Held):
    """The first process of a run, of this driver (`own`) or of an earlier one, and its control group."""

    family: Family
    group: Path | None = None
    own: bool = False
    fd: int = -1
    began: float = 0.0


class LocalExecutor(Adapter[_Process]):
    """Runs commands as processes on this machine; a payload is a `Command`, or a command line.

    ``CUDA_VISIBLE_DEVICES`` of a run are its devices, if the machine has GPUs.

    Parameters
    ----------
    capacity : mapping of str to number, optional
        See `capacity_here`, the default.  Nothing but the decisions enforces it, unless there is a `cgroup`.
    machine : hashable, optional
        By default the host's name.
    folder : path, optional
        The records of runs, for the next driver if this one is killed.  One driver at a time uses it.  Without it
        they are in a temporary folder, and processes that outlive the driver are not found again.
    grace : float
        Seconds between SIGTERM and SIGKILL.
    cgroup : path, optional
        An existing control group of version 2 in which this process may make subgroups: each run has one, with its
        demand of ``mem`` and ``cpu`` as limits.  `open` raises InputError where none can be made.  A controller that the
        group does not have limits nothing, which is logged as a warning.
    sample : float, optional
        Seconds between two samples of the CPU and the memory that runs use, for a scheduler that learns
        (`flowsched.fgm.FineGrained`).  Needs psutil (the extra ``real``).  CPU is then limited only while it is
        scarce, see `flowsched.run.usage`.
    """

    def __init__(
        self,
        capacity: Mapping[str, float] | None = None,
        *,
        machine: Hashable = None,
        folder: str | os.PathLike[str] | None = None,
        grace: float = 5.0,
        cgroup: str | os.PathLike[str] | None = None,
        sample: float | None = None,
    ) -> None:
        super().__init__()
        self._sample = None if sample is None else number("sample", sample, 0.01)
        self._usage: Usage | None = None
        self._rest = 0.0
        self.machine = socket.gethostname() if machine is None else machine
        self.capacity = capacity_here() if capacity is None else dict(capacity)
        self.grace = grace
        self._folder = Folder(folder, sync=False)
        self._cgroup = cgroup
        self._groups: Groups | None = None
        self._hurried = asyncio.Event()
        self._spawner = Spawner()

    async def open(self, tell: Callable[[Told], None]) -> Iterable[Run]:
        """See `Executor.open`."""
        records = self._folder.open()
        self.tell, self._boot = tell, boot_id()
        for run, record in records:
            group = Path(record["group"]) if record.get("group") else None
            self.held[run.number] = _Process(run, family=Family(**record["family"]), group=group)
        if self._cgroup is not None:
            known = [process.group for process in self.held.values() if process.group is not None]
            try:
                self._groups = Groups(self._cgroup, self._folder.path, known, cpu=self._sample is None)
            except InputError:
                self._folder.close()
                raise
        self.show({self.machine: MachineAdded(self.machine, self.capacity)})
        if self._sample is not None:
            from flowsched.run.usage import Usage

            self._usage = Usage(self.machine, self.capacity, self._sample)
            self.later(
                self.follow(self._look, self._sample, OSError, pause=lambda one: asyncio.sleep(max(one, self._rest)))
            )
        for run, record in records:
            process = self.held[run.number]
            if self._usage is not None and record["boot"] == self._boot:
                demand = record.get("demand", {})
                self._usage.add(run.number, run.task, process.family.pid, demand, process.group, new=False)
            if record["boot"] != self._boot or start_time(process.family.pid) != process.family.start:
                self.later(self._finish(process, gone=record["boot"] != self._boot))
            else:
                self._watch(process)
        for path in self._folder.path.iterdir():  # remains of a driver that was killed
            number, _, kind = path.name.partition(".")
            if kind == "status" and number.isdigit() and int(number) not in self.held:
                path.unlink()
        return [process.run for process in self.held.values()]

    def start(self, run: Run) -> None:
        """See `Executor.start`."""
        command = command_of(run)
        entry = command.entry
        if "gpu" in self.capacity:
            devices = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, run.devices))}
            entry = dataclasses.replace(entry, environment={**command.environment, **devices})
        line, status = checked(str(run.task), command.words), str(self._folder.file(run, "status"))
        group = None if self._groups is None else self._groups.of(run)
        try:
            os.close(private.opener(status, os.O_CREAT | os.O_WRONLY))
            held = self._spawner.hold(line, entry, status)
        except BaseException:
            self._folder.file(run, "status").unlink(missing_ok=True)
            raise
        try:
            if self._groups is not None:
                self._groups.enter(run, held.family.pid)
            # A record that was not completed is of a process that was not released.
            place = None if group is None else str(group)
            self._folder.write(run, boot=self._boot, family=asdict(held.family), group=place, demand=dict(run.demand))
            process = self.held[run.number] = _Process(
                run, family=held.family, group=group, own=True, began=time.monotonic()
            )
            if self._usage is not None:
                self._usage.add(run.number, run.task, held.family.pid, run.demand, group, new=True)
            self._watch(process)
        except BaseException:
            held.abandon()
            self.held.pop(run.number, None)
            if group is not None:
                with suppress(OSError):
                    control_groups.end(group)
            raise
        # A process that has died at its gate ends like any other.
        with suppress(BrokenPipeError):
            held.release()

    def halt(self, held: _Process) -> None:
        """See `Adapter.halt`."""
        if not held.stopped:
            self.later(self._stop(held))

    def hurry(self) -> None:
        """End the grace of all runs: from now on a stop is followed by SIGKILL at once."""
        self._hurried.set()

    def release(self, run: Run) -> None:
        """See `Executor.release`."""
        self.held.pop(run.number, None)
        self._folder.remove(run)
        self._folder.file(run, "status").unlink(missing_ok=True)

    async def close(self) -> None:
        """See `Executor.close`."""
        await self.end_acts()
        for process in self.held.values():
            self._unwatch(process)
        self.held.clear()
        if self._groups is not None:
            self._groups.close()
        await asyncio.to_thread(self._spawner.close)
        self._folder.close()

    async def _look(self) -> None:
        """Report samples."""
        assert self._usage is not None
        began = time.monotonic()
        for sample in await asyncio.to_thread(self._usage.look):
            self.tell(sample)
        self._rest = _RARE * (time.monotonic() - began)

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
        """End the processes of a run; the end of the shell is processed as usual."""
        family = process.family
        await asyncio.to_thread(signal_session, family, signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._hurried.wait(), self.grace)
        if process.fd >= 0:
            await self._end(process, _kill)

    async def _finish(self, process: _Process, gone: bool = False) -> None:
        """End the remaining processes of a run, then report its end."""
        group = {} if gone or process.group is None else _group_usage(process.group)
        run, text = process.run, ""
        with suppress(OSError):
            text = self._folder.file(run, "status").read_text()
        found, used = _STATUS.fullmatch(text), dict[str, float]()
        alone = found is not None and found["alone"] is not None and process.group is None
        short = False if gone or alone else await self._end(process, _clear)
        if found is not None and found["cpu"]:
            used = {"cpu": float(found["cpu"]), "memory": int(found["memory"]) / 1024}
        used |= group
        self._spawner.look()
        if found is None and process.own and process.family.pid not in self._spawner.exits:
            await asyncio.sleep(0.1)  # the disk has not taken the status, and the spawner reports it
            self._spawner.look()
        code = self._spawner.exits.pop(process.family.pid, -1)
        status = int(found["status"]) if found is not None else code if code >= 0 else None
        reason = text.strip() if found is None else found["reason"].strip()
        told = outcome(run, status, process.stopped, reason=reason, used=used)
        if short and isinstance(told, Failed):
            why = f"task {run.task!r} needed more memory than it asked for: its control group has no more"
            told = Failed(run.number, ExitStatusError(why, 128 + signal.SIGKILL), used=used)
        if self._usage is not None:
            sample = self._usage.remove(run.number, time.monotonic() - process.began, used)
            if sample is not None:
                self.tell(sample)
        self.finish(process, told)

    async def _end(self, process: _Process, act: Callable[[_Process], bool]) -> bool:
        while True:
            try:
                return await asyncio.to_thread(act, process)
            except (TimeLimitError, OSError):  # a process that cannot be killed yet, or no descriptors are left
                await asyncio.sleep(1.0)


def _kill(process: _Process) -> bool:
    """Kill all processes of a run; return True if the kernel had killed one for lack of memory."""
    group = process.group
    if group is None:
        end([process.family])
        return False
    control_groups.kill(group)
    end([process.family])
    return control_groups.ran_out(group)


def _clear(process: _Process) -> bool:
    """Kill all processes of a run, and remove their group; return as `_kill`."""
    short = _kill(process)
    if process.group is not None:
        control_groups.remove(process.group)
    return short


_STATUS = re.compile(r"(?P<reason>(?:.*\n)??)(?:(?P<cpu>[\d.]+) (?P<memory>\d+)(?P<alone> alone)?\n)?(?P<status>\d+)\n")
"""File of a run that has ended: the reason why it could not begin, if so; CPU time and peak of memory in KiB, and whether it has left no process; its exit status."""


def _group_usage(group: Path) -> dict[str, float]:
    """Return what a control group has used, all of its processes together."""
    used: dict[str, float] = {}
    with suppress(OSError, ValueError):
        used["memory"] = int((group / "memory.peak").read_text()) / 2**20
    with suppress(OSError, ValueError):
        first = (group / "cpu.stat").read_text().split("\n", 1)[0]
        used["cpu"] = int(first.removeprefix("usage_usec ")) / 1e6
    return used


def capacity_here() -> dict[str, float]:
    """Return the amounts that this process may use: ``cpu`` in cores, ``mem`` in MiB, and ``gpu`` if there are NVIDIA GPUs."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**20
    gpus = len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
    return {"cpu": len(os.sched_getaffinity(0)), "mem": memory, **({"gpu": gpus} if gpus else {})}


class Groups:
    """Makes control groups of runs in a group that the driver is given, such as one that systemd delegates.

    A driver has a group there, by the name of its folder of records, and in it each run has one by its number.  A run's
    group is made before its record, and removed after its end.  So a successor finds those of the records, the `known`
    ones, and ends the others.  Raise InputError if no groups can be made in `root`.  Without `cpu` only memory is limited.
    """

    def __init__(
        self, root: str | os.PathLike[str], folder: Path, known: Collection[Path], *, cpu: bool = True
    ) -> None:
        mine = Path(root).absolute() / f"flowsched-run-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}"
        try:
            if not (mine.parent / "cgroup.controllers").exists():
                raise InputError(f"cgroup: a control group of version 2 expected, got {mine.parent}")
            control_groups.make(mine)
            if not (mine / "cgroup.kill").exists():
                raise InputError(f"cgroup: {mine.parent} has no cgroup.kill: Linux 5.14 or later is needed")
            for left in mine.iterdir():
                if left.is_dir() and left not in known:
                    control_groups.end(left)
            control_groups.provide(mine.parent, _CONTROLLERS)
            there = control_groups.provide(mine, _CONTROLLERS)
        except OSError as error:
            raise InputError(f"cgroup: no groups can be made in {mine.parent}: {error}") from None
        for controller in _CONTROLLERS.keys() - there:
            LOGGER.warning("%s has no controller %s: runs are not limited in it", mine, controller)
        self._mine, self._cpu = mine, cpu

    def of(self, run: Run) -> Path:
        """Return the group of a run."""
        return self._mine / str(run.number)

    def enter(self, run: Run, pid: int) -> None:
        """Put the first process of a run into a group of its own, whose limits are the run's reserved resources."""
        group, cpu = self.of(run), run.demand.get("cpu", 0) if self._cpu else 0
        control_groups.make(group)
        limits = {
            "memory.max": str(ceil(run.demand.get("mem", 0) * 2**20) or ""),
            "cpu.max": control_groups.cpu_max(cpu) if cpu else "",
        }
        control_groups.limit(group, limits)
        control_groups.enter(group, pid)

    def close(self) -> None:
        """Remove the driver's group, unless runs are left in it."""
        with suppress(OSError):
            self._mine.rmdir()
