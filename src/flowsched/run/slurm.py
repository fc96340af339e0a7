"""Batch jobs of a Slurm cluster: flowsched decides which node, Slurm executes there.

A run is a job that is submitted held, for its node.  Its id is on record before the job is released.  So a submission that
is cut off by a kill, or whose answer is lost, leaves at most a held job, which has done nothing and is cancelled later.

States are polled, of all jobs and nodes at once.  A node takes no new tasks while Slurm does not use it, because it is
down or drained or does not answer now; it is gone once none of its runs is left.  A run ends when Slurm says that its job
has, whatever its node's state is.

Slurm forgets a job that has ended after ``MinJobAge`` (300 s by default).  A driver that was away for longer runs its task
again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

from flowsched.boundary import private
from flowsched.boundary.files import replace
from flowsched.boundary.validate import number
from flowsched.run import slurmctl
from flowsched.run.adapter import Adapter, Folder, Held
from flowsched.run.command import CANNOT, outcome, script
from flowsched.run.executor import Ended, Failed, Run, Stopped, Told
from flowsched.run.slurmctl import NoAnswerError, SlurmError

__all__ = ["SlurmError", "SlurmExecutor"]

_AT_ONCE = 8
"""Submissions under way at a time."""

_ACTS = {"release": slurmctl.release, "hold": slurmctl.hold, "cancel": slurmctl.cancel}
"""Requests for jobs that are made for several at once."""

_LOST = {"BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "GONE"}

_FAILED = {"DEADLINE", "FAILED", "OUT_OF_MEMORY", "TIMEOUT"}


@dataclass(eq=False, slots=True, kw_only=True)
class _Job(Held):
    """A run, and its job's id, "" until that is submitted.

    The record of the run is there from the submission until `release`.
    """

    id: str = ""


class SlurmExecutor(Adapter[_Job]):
    """Runs commands as jobs of Slurm; a payload is a `Command`, or a command line.

    A job asks Slurm for what the scheduler has reserved: ``cpu`` in CPUs, rounded up; ``mem`` in MiB; ``gpu``.  Paths are
    those of the nodes.  What else a job needs, such as an account, is said by Slurm's environment variables ``SBATCH_...``.

    Parameters
    ----------
    resources : sequence of str
        Those of the flowsched scheduler.
    partition : str, optional
        Its nodes are the machines; by default those of all partitions, and jobs go to the default one.
    folder : path, optional
        The records of runs: what the next driver needs if this one is killed.  One driver at a time uses it.  Without it
        they are in a temporary folder, and jobs that outlive the driver are not found again.
    poll : float
        Seconds between two looks at jobs and nodes.
    """

    def __init__(
        self,
        resources: Sequence[str] = ("cpu", "mem", "gpu"),
        *,
        partition: str = "",
        folder: str | os.PathLike[str] | None = None,
        poll: float = 1.0,
    ) -> None:
        super().__init__()
        self._resources, self._poll = tuple(resources), number("poll", poll, 0.01)
        self._part = [f"--partition={partition}"] if partition else []
        self._folder = Folder(folder, sync=True)
        self._turn, self._submitting = asyncio.Semaphore(_AT_ONCE), 0
        self._pending: dict[str, list[str]] = {"release": [], "hold": [], "cancel": []}

    async def open(self, tell: Callable[[Told], None]) -> Iterable[Run]:
        """See `Executor.open`."""
        self.tell = tell
        records = self._folder.open()
        name = self._folder.path / "name"
        if not name.exists():
            replace(name, f"flowsched-{uuid4().hex}", private.MODE)
        self._name = name.read_text()
        for path in self._folder.path.glob(".*.tmp"):  # what a driver that was killed had not written whole
            path.unlink()
        for run, record in records:
            self.held[run.number] = _Job(run, id=record["job"])
        runs = [job.run for job in self.held.values()]
        await self._look()
        self.later(
            self.follow(self._look, self._poll, SlurmError)
        )  # which says that the controller does not answer now
        return runs

    def start(self, run: Run) -> None:
        """See `Executor.start`."""
        text = f"#!/bin/sh\n{slurmctl.CONTROL}\n{script(run, slurmctl.WHY)}"
        job = self.held[run.number] = _Job(run)
        self.later(self._submit(job, text))

    def halt(self, held: _Job) -> None:
        """See `Adapter.halt`."""
        if held.id:
            self._soon("cancel", held.id)

    def release(self, run: Run) -> None:
        """See `Executor.release`."""
        job = self.held.pop(run.number, None)
        if job is not None:
            job.stopped = True  # one of a node that is gone may not be submitted yet
            self._folder.remove(run)

    async def close(self) -> None:
        """See `Executor.close`."""
        await self.end_acts()
        self.held.clear()
        self._folder.close()

    # -- requests -----------------------------------------------------------------------------------------------

    async def _submit(self, job: _Job, text: str) -> None:
        """Submit a job, put it on record, and release it."""
        run = job.run
        self._submitting += 1
        try:
            async with self._turn:
                while not job.stopped and not job.id:
                    try:
                        job.id = await slurmctl.submit(run, text, self._name, self._part)
                    except NoAnswerError:
                        await asyncio.sleep(self._poll)
                    except SlurmError as error:
                        self.finish(job, Failed(run.number, error))
                        return
        finally:
            self._submitting -= 1
        if not job.id:
            self.finish(job, Stopped(run.number))
        elif job.stopped:
            self._soon("cancel", job.id)
        else:
            self._folder.write(run, job=job.id)
            self._soon("release", job.id)

    def _soon(self, act: str, id: str) -> None:
        """Release or cancel a job, together with others of this turn of the loop."""
        self._pending[act].append(id)
        if len(self._pending[act]) == 1:
            self.later(self._act(act))

    async def _act(self, act: str) -> None:
        await asyncio.sleep(0.02)
        ids, self._pending[act] = self._pending[act], []
        with suppress(SlurmError):  # the driver asks for a stop again, and a held job is seen by `_look`
            await _ACTS[act](ids)

    # -- states -------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Tell what has become of jobs and nodes.

        The jobs are asked for after the nodes, and told before them.  So a run that ended before its node went down ends.
        """
        asked = [job for job in self.held.values() if job.id and not job.over]
        nodes, usable, unused = await slurmctl.nodes(self._resources, self._part)
        jobs = await slurmctl.jobs(self._name)
        for job in asked:
            if not job.over:
                self._see(job, *jobs.get(job.id, ("GONE", 0, "None")), job.run.machine in unused)
        if not self._submitting:
            ids = {job.id for job in self.held.values()}
            for id, (_, _, reason) in jobs.items():
                if reason == "JobHeldUser" and id not in ids:
                    self._soon("cancel", id)  # of a submission that was cut off
        used = self.used()
        there = {node: one for node, one in {**self.machines, **nodes}.items() if node in usable or node in used}
        self.show(there, there.keys() - usable)

    async def _fail(self, job: _Job, status: int) -> None:
        """Tell that a job has failed; where it could not run its command, its comment says why."""
        reason = ""
        if status in CANNOT:
            with suppress(SlurmError):
                reason = await slurmctl.reason(job.id)
        self.finish(job, outcome(job.run, status, False, reason=reason))

    def _see(self, job: _Job, state: str, code: int, reason: str, unused: bool) -> None:
        """Take note of the state of a job."""
        number = job.run.number
        if state == "PENDING" and not job.stopped:
            if reason != "JobHeldUser":
                if unused:  # held first, so that it does not begin meanwhile
                    self._soon("hold", job.id)
            else:
                self._soon("cancel" if unused else "release", job.id)
        elif state == "RUNNING":
            self.begin(job)
        elif state == "COMPLETED":
            self.finish(job, Ended(number, 0))
        elif state == "CANCELLED":
            self.finish(job, Stopped(number))
        elif state == "FAILED" and code:
            status = os.waitstatus_to_exitcode(code)
            self.later(self._fail(job, status if status > 0 else 128 - status))
        elif state in _FAILED or state in _LOST:
            error = SlurmError(f"task {job.run.task!r}: job {job.id} ended as {state} ({reason})")
            self.finish(job, Failed(number, error, lost=state in _LOST))
