"""Base class of executors, for the package's own and for yours.

`Adapter` keeps the acts that are under way, the runs, and the machines that the driver knows.  Where runs outlive the
driver, `record` is the data to keep of each run, and `Folder` is a place for them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from flowsched.boundary import files, private
from flowsched.boundary.validate import quoted
from flowsched.cluster.events import (
    Event,
    MachineAdded,
    MachineDrained,
    MachineRemoved,
    MachineUpdated,
    TaskStarted,
    from_dict,
    to_dict,
)
from flowsched.exceptions import FlowschedError, InputError
from flowsched.hrm.agent.custody import FolderLock
from flowsched.run.executor import Broken, Run, Started, Stopped, Told

LOGGER = logging.getLogger("flowsched")

GARBLED = 10
"""Consecutive polls with a malformed answer after which an executor has failed."""


@dataclass(eq=False, slots=True)
class Held:
    """A run from its start to its release.

    Parameters
    ----------
    run : Run
    stopped : bool
        The driver has asked for its stop.
    begun, over : bool
        Its start, its end has been reported to the driver.
    """

    run: Run
    stopped: bool = False
    begun: bool = False
    over: bool = False


async def _nothing() -> None:
    pass


H = TypeVar("H", bound=Held)


class Acts:
    """The background tasks of an executor.

    A task that raises ends the driver with the reason, so no failure is silent.

    Attributes
    ----------
    tell : callable
        The driver's callback for reports.
    """

    tell: Callable[[Told], None]

    def __init__(self) -> None:
        self._acts: set[asyncio.Task[None]] = set()
        self._acts_end = self._abandoned = False

    def abandon(self) -> None:
        """Cancel the tasks, and begin no others: another process acts now."""
        self._abandoned = True
        for task in self._acts:
            task.cancel()

    def later(self, act: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine in the background; until `end_acts`, its exception ends the driver."""
        if self._abandoned:
            act.close()
            act = _nothing()
        task = asyncio.create_task(act)
        self._acts.add(task)
        task.add_done_callback(self._act_over)
        return task

    def _act_over(self, task: asyncio.Task[None]) -> None:
        self._acts.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._acts_end:
            self.tell(Broken(error))

    async def end_acts(self, patience: float = 0.0) -> None:
        """Wait at most `patience` seconds for the tasks to end, and cancel the others."""
        self._acts_end = True
        try:
            if patience and self._acts:
                await asyncio.wait(self._acts, timeout=patience)
            for task in list(self._acts):
                task.cancel()
            if self._acts:
                await asyncio.wait(self._acts, timeout=5.0)
        finally:
            self._acts_end = False

    async def follow(
        self,
        look: Callable[[], Awaitable[None]],
        seconds: float,
        *silent: type[Exception],
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Poll the system repeatedly.

        Parameters
        ----------
        look : callable
            Makes one poll.
        seconds : float
            Between two polls.
        *silent : type of Exception
            Errors of a system that does not answer now.  They are logged, and the next poll is made.
        pause : callable
            Called with seconds to wait for.

        Raises
        ------
        Exception
            Another error, at the tenth such poll in a row: the system answers, but its answers are malformed.
        """
        garbled, said = 0, ""
        while not self._acts_end:  # a library may answer a cancellation with an error of its own
            await pause(seconds)
            try:
                await look()
            except Exception as error:
                away = isinstance(error, silent)
                garbled = 0 if away else garbled + 1
                if garbled == GARBLED:
                    raise
                text = str(error) or type(error).__name__
                if text != said:
                    LOGGER.warning("%s: %s; it is asked again", type(self).__name__, text)
                said = text
            else:
                if said:
                    LOGGER.warning("%s: it answers again", type(self).__name__)
                garbled, said = 0, ""


class Adapter(Acts, Generic[H]):
    """Base of executors.

    A subclass sets `tell` in `open`, has `start`, `halt` and `release`, and calls `end_acts` in `close`.

    Attributes
    ----------
    held : dict of int to Held
        The runs by number.
    machines : dict of id to MachineAdded
        Those that the driver knows.
    drained : set of id
        Those of them that take no new tasks.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, H] = {}
        self.machines: dict[Hashable, MachineAdded] = {}
        self.drained: set[Hashable] = set()

    def stop(self, run: Run) -> None:
        """See `Executor.stop`."""
        held = self.held.get(run.number)
        if held is None or held.over:
            self.tell(Stopped(run.number))
        else:
            self.halt(held)
            held.stopped = True

    def halt(self, held: H) -> None:
        """Stop a run that is not over; if that takes long, the call is repeated with `held.stopped` set."""
        raise NotImplementedError

    def begin(self, held: Held) -> None:
        """Report the start of a run, once."""
        if not held.begun:
            held.begun = True
            self.tell(Started(held.run.number))

    def finish(self, held: Held, told: Told) -> None:
        """Report the end of a run, once."""
        if not held.over:
            held.over = True
            self.tell(told)

    def used(self) -> set[Hashable]:
        """Return the machines that have runs."""
        return {held.run.machine for held in self.held.values() if not held.over}

    def show(self, machines: Mapping[Hashable, MachineAdded], drained: Iterable[Hashable] = ()) -> bool:
        """Report changes since the last call: machines have come, gone or changed, or take no new tasks.

        Parameters
        ----------
        machines : mapping of id to MachineAdded
            All present machines.
        drained : iterable of id
            The machines that take no new tasks.  A new one is reported only if it has runs of an earlier driver.

        Returns
        -------
        bool
            True if there was a change.
        """
        out = set(drained)
        changed = [self.show_one(id, None) for id in self.machines.keys() - machines.keys()]
        changed += [self.show_one(id, one, id in out) for id, one in machines.items()]
        return any(changed)

    def show_one(self, id: Hashable, machine: MachineAdded | None, drained: bool = False) -> bool:
        """Report a change of one machine since the last call, see `show`; None for one that is not there."""
        known, before = self.machines.get(id), id in self.drained
        if machine is None or (drained and known is None and id not in self.used()):
            if known is not None:
                del self.machines[id]
                self.drained.discard(id)
                self.tell(MachineRemoved(id))
            return known is not None
        told: list[Event] = []
        if known is None:
            told.append(machine)
        elif drained:  # an update would end that
            machine = known
        elif before or known != machine:
            now = machine
            told.append(MachineUpdated(id, now.capacity, now.rack, now.labels, now.slots, now.taints))
        if drained and not before:
            told.append(MachineDrained(id))
        self.machines[id] = machine
        (self.drained.add if drained else self.drained.discard)(id)
        for event in told:
            self.tell(event)
        return bool(told)


def record(run: Run, **more: Any) -> str:
    """Return the record of a run for the next driver, as JSON."""
    return json.dumps({"run": run.number, "event": to_dict(TaskStarted(run.task, run.machine, run.devices)), **more})


def recorded(text: str) -> tuple[Run, dict[str, Any]]:
    """Return the run of a record, and all of the record.

    Raises
    ------
    InputError
        It is none.
    """
    try:
        known = json.loads(text)
        event, number = from_dict(known["event"]), int(known["run"])
    except (FlowschedError, LookupError, TypeError, ValueError):
        event = None
    if not isinstance(event, TaskStarted):
        raise InputError(f"the record of a run expected, got {quoted(text)}")
    return Run(number, event.task, event.machine, tuple(event.devices or ())), known


class Folder:
    """The records of runs in a folder, which one driver at a time uses.

    Parameters
    ----------
    path : path or None
        None for a temporary folder, which goes with the driver.
    sync : bool
        A record outlives a crash of this machine, as its run does.

    Attributes
    ----------
    path : Path
        Known once it is open.
    """

    def __init__(self, path: str | os.PathLike[str] | None, *, sync: bool) -> None:
        self._given, self._sync = None if path is None else Path(path).resolve(), sync
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._lock: FolderLock | None = None
        self.path = Path()

    def open(self) -> list[tuple[Run, dict[str, Any]]]:
        """Take the folder for this driver; return the runs of an earlier one and their records.

        Raises
        ------
        InputError
            Another driver uses it, it is another user's, or others may write there.
        """
        if self._given is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="flowsched-")
        self.path = self._given or Path(self._temporary.name)  # type: ignore[union-attr]
        private.folder("folder", self.path)
        self._lock = FolderLock.take(self.path)
        if self._lock is None:
            raise InputError(f"folder: another driver uses {self.path}")
        files.clear(self.path)
        return [recorded(path.read_text()) for path in sorted(self.path.glob("*.json"))]

    def write(self, run: Run, **more: Any) -> None:
        """Put a run on record, as a whole or not at all; in a temporary folder it would have no reader."""
        if self._temporary is None:
            files.replace(self.file(run, "json"), record(run, **more), private.MODE, sync=self._sync)

    def remove(self, run: Run) -> None:
        """Remove the record of a run."""
        if self._temporary is None:
            self.file(run, "json").unlink(missing_ok=True)

    def file(self, run: Run, kind: str) -> Path:
        """Return the path of a file that belongs to a run."""
        return self.path / f"{run.number}.{kind}"

    def close(self) -> None:
        """Leave the folder to the next driver."""
        if self._lock is not None:
            self._lock.release()
        if self._temporary is not None:
            self._temporary.cleanup()
