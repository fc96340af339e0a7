"""Batch jobs of a Slurm cluster: flowsched decides which node, Slurm executes there.

A run is a job that is submitted held, for its node.  Its id is on record before the job is released.  So a submission that
is cut off by a kill, or whose answer is lost, leaves at most a held job, which has done nothing and is cancelled later.

The runs of a gang that start at once are one job: Slurm begins all of them or none.  Each is a step of its own, so one can be
stopped alone.  The exit statuses are in the comment of the job, two hexadecimal digits for each run, which its script updates.

A job always requests memory.  Without a request, Slurm would give it all memory of its node where memory is counted.

States are polled, of all jobs and nodes at once.  A node takes no new tasks while Slurm does not use it, because it is
down or drained or does not answer now; it is gone once none of its runs is left.  A run ends when Slurm says that its job
has, whatever its node's state is.

Slurm forgets a job that has ended after ``MinJobAge`` (300 s by default).  A driver that was away for longer runs its task
again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import ceil, inf
from shlex import quote
from typing import Any, TypeGuard
from uuid import uuid4

from flowsched.boundary import files, private
from flowsched.boundary.validate import number, quoted
from flowsched.cluster.events import JobSubmitted, MachineAdded
from flowsched.exceptions import FlowschedError
from flowsched.run.adapter import Adapter, Folder, Held
from flowsched.run.command import outcome, script
from flowsched.run.executor import Ended, Failed, Run, Stopped, Told

LOGGER = logging.getLogger("flowsched")

_AT_ONCE = 8
"""Submissions under way at a time."""

_LOST = {"BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "GONE"}

_FAILED = {"DEADLINE", "FAILED", "OUT_OF_MEMORY", "TIMEOUT"}


_ABSENT = 3
"""Consecutive polls without a job after which Slurm has forgotten it.  One answer may be cut off."""

_LARGEST = 500
"""Members of a gang that start at once: a comment has 1,023 characters at most."""

_COUNTED = ("cpu", "mem", "gpu")

_GANG = """#!/bin/sh
export SLURM_EXIT_ERROR=126
unset SLURM_HOSTFILE SLURM_DISTRIBUTION
dir=$(mktemp -d) || exit 126
trap 'rm -rf "$dir"' EXIT
%sbefore= left=1 bad=
while [ "$left" ]; do
    sleep 0.2
    ends= left= member=0
    while [ "$member" -lt %d ]; do
        if [ -e "$dir/$member" ]; then
            read -r status <"$dir/$member"
            [ "$status" = 0 ] || bad=1
            ends=$ends$(printf %%02x "$status")
        else
            ends=$ends.. left=1
        fi
        member=$((member + 1))
    done
    [ "$ends" != "$before" ] && [ "$left$bad" ] || continue
    if scontrol update JobId="$SLURM_JOB_ID" Comment="$ends" >/dev/null 2>&1; then
        before=$ends
    else
        left=1
    fi
done
exit 0
"""
"""The script of a gang: its steps, and the report of their exit statuses.  A job without failures needs no last report."""

_MEMBER = """(srun -m block --exact -N1 -n1 -c%d %s-w %s --job-name=%s /bin/sh -c 'eval "$(cat)"' >/dev/null 2>&1 <<'%s'
%s%s
echo $? >"$dir/.%d" && mv "$dir/.%d" "$dir/%d") &
"""
_CONTROL = "flowsched_control=$(command -v scontrol)"
"""The first line of a batch script: a command's own PATH may have no scontrol."""

_REASON = "flowsched: "

_WHY = f"""\"$flowsched_control\" update "JobId=$SLURM_JOB_ID" "Comment={_REASON}$2" >/dev/null 2>&1"""
"""Keeps the reason why a command cannot begin, as the comment of its job; for `flowsched.run.command.script`."""

_USABLE = {"idle", "mixed", "allocated", "completing", "planned"}
"""States of nodes that take jobs, without the mark for power saving; a node that does not answer has an asterisk."""

_UNUSED = ("down", "drain", "fail", "inval")
"""Prefixes of the states of nodes that take no jobs until an administrator or the node itself comes back."""

_GRES = re.compile(r"(?P<name>[^:,(]+)(?::(?P<words>[^,(]*))?(?:\([^)]*\))?(?:,|$)")
"""One of a list ``NAME[:TYPE][:no_consume][:NUMBER[K|M|G]][(FLAGS)]``; the flags may have commas."""

_SETTING = re.compile(r"\b(DefMemPerCPU|DefMemPerNode|MaxMemPerCPU) *= *(\w+)")

_SUFFIXES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(eq=False, slots=True, kw_only=True)
class _Job(Held):
    """A run, and its job's id, "" until that is submitted; of a gang, the number of the run and their count.

    The record of the run is there from the submission until `release`.  `absent` counts polls without the job.
    """

    id: str = ""
    member: int = 0
    members: int = 1
    absent: int = 0


class SlurmExecutor(Adapter[_Job]):
    """Runs commands as jobs of Slurm; a payload is a `Command`, or a command line.

    A job requests the resources that the scheduler has reserved: ``cpu`` in CPUs, rounded up; ``mem`` in MiB; ``gpu``.
    Paths are those of the nodes.  Slurm's environment variables ``SBATCH_...`` set other options, such as an account.

    `counted` gives the driver the demands as Slurm counts them.  A task that names no memory gets Slurm's default
    (``DefMemPerCPU``, ``DefMemPerNode``), else the part of a node's memory that belongs to its CPUs.  The tasks of a gang,
    which are one job, each get the largest of their demands.

    Parameters
    ----------
    resources : sequence of str
        Those of the flowsched scheduler.
    partition : str, optional
        Its nodes are the machines; by default those of all partitions, and jobs go to the default one.
    folder : path, optional
        The records of runs, for the next driver if this one is killed.  One driver at a time uses it.  Without it
        they are in a temporary folder, and jobs that outlive the driver are not found again.
    poll : float
        Seconds between two polls of jobs and nodes.
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
        self._gangs: dict[Hashable, list[_Job]] = {}  # to be submitted in this turn of the loop
        self._leaving: list[_Job] = []  # members that are to be stopped
        self._sizes: dict[Hashable, tuple[int, int]] = {}  # of nodes: CPUs and MiB
        self._memory = Memory()
        self._away: list[MachineAdded] = []

    async def open(self, tell: Callable[[Told], None]) -> Iterable[Run]:
        """See `Executor.open`."""
        self.tell = tell
        records = self._folder.open()
        name = self._folder.path / "name"
        if not name.exists():
            files.replace(name, f"flowsched-{uuid4().hex}", private.MODE)
        self._name = name.read_text()
        for run, record in records:
            members = {key: record[key] for key in ("member", "members") if key in record}
            self.held[run.number] = _Job(run, id=record["job"], **members)
        runs = [job.run for job in self.held.values()]
        self._memory = await _ask_memory(self._part)
        await self._look()
        self.later(self.follow(self._look, self._poll, NoAnswerError))
        return runs

    def counted(self, job: JobSubmitted) -> JobSubmitted:
        """Return a job with the demands of its tasks as Slurm counts them; the scheduler refuses one that is wrong."""
        demands = [task.demand for task in job.tasks if _valid(task.demand)]
        if len(demands) < len(job.tasks):
            return job
        asked = [self._asked(demand, self._sizes) for demand in demands]
        if job.gang is not None and len(asked) > 1:
            most = _largest(asked)
            asked = [replace(most, memory=-(-most.memory // most.cpus) * most.cpus)] * len(asked)
        tasks = []
        for task, demand, one in zip(job.tasks, demands, asked, strict=True):
            amounts = {"cpu": one.cpus, "mem": one.memory, "gpu": one.gpus}
            own = {name: amounts[name] for name in self._resources if amounts.get(name)}
            tasks.append(replace(task, demand={**demand, **own}))
        return replace(job, tasks=tasks)

    def _asked(self, demand: Mapping[str, float], nodes: Iterable[Hashable]) -> Asked:
        """Return the request for a demand on any of some nodes."""
        cpus = max(ceil(demand.get("cpu", 0)), 1)
        memory = ceil(demand.get("mem", 0))
        if not memory:
            memory = min((self._memory.of(cpus, *self._sizes.get(node, (1, 1))) for node in nodes), default=1)
        return Asked(cpus, memory, ceil(demand.get("gpu", 0)))

    def start(self, run: Run) -> None:
        """See `Executor.start`."""
        script(run)  # its errors are those of this run alone
        job = self.held[run.number] = _Job(run)
        if run.gang is None:
            self.later(self._submit([job]))
            return
        if run.gang not in self._gangs:
            self.later(self._start_gang(run.gang))
        self._gangs.setdefault(run.gang, []).append(job)

    async def _start_gang(self, gang: Hashable) -> None:
        """Submit the runs that were started in a turn of the loop as one job."""
        jobs = self._gangs.pop(gang)
        for i, job in enumerate(jobs):
            job.member, job.members = i, len(jobs)
        await self._submit(jobs)

    def halt(self, held: _Job) -> None:
        """See `Adapter.halt`."""
        if held.id and held.members == 1:
            self._soon("cancel", held.id)
        elif held.id:
            self._leaving.append(held)
            if len(self._leaving) == 1:
                self.later(self._leave())

    async def _leave(self) -> None:
        """Stop members of gangs: a whole job where none is left or none has begun, else their steps."""
        await asyncio.sleep(0.02)
        leaving, self._leaving = self._leaving, []
        stay = {job.id for job in self.held.values() if job.begun and not job.over and not job.stopped}
        for job in leaving:
            if job.id not in stay:
                self._soon("cancel", job.id)
            else:
                with suppress(SlurmError):  # the driver asks again
                    await _cancel_member(job.id, job.member)

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

    async def _submit(self, jobs: Sequence[_Job]) -> None:
        """Submit the job of some runs, put them on record, and release it."""
        id = ""
        self._submitting += 1
        try:
            async with self._turn:
                while not id and not any(job.stopped for job in jobs):
                    try:
                        id = await self._request([job.run for job in jobs])
                    except NoAnswerError as error:
                        LOGGER.warning("Slurm: %s; it is asked again", error)
                        await asyncio.sleep(self._poll)
        except SlurmError as error:
            for job in jobs:
                self.finish(job, Failed(job.run.number, error))
            return
        finally:
            self._submitting -= 1
        stopped = any(job.stopped for job in jobs)
        for job in jobs:
            job.id = id
            if not id:
                self.finish(job, Stopped(job.run.number))
            elif not stopped:
                self._folder.write(job.run, job=id, member=job.member, members=job.members)
        if id:
            self._soon("cancel" if stopped else "release", id)

    async def _request(self, runs: Sequence[Run]) -> str:
        """Submit the held job of some runs; return its id."""
        places = [run.machine for run in runs]
        asked = _largest([self._asked(run.demand, places) for run in runs])
        if len(runs) == 1:
            text = f"#!/bin/sh\n{_CONTROL}\n{script(runs[0], _WHY)}"
            comment = repr(runs[0].task)[:200]
        elif len(runs) > _LARGEST:
            raise SlurmError(f"gang {runs[0].gang!r}: {_LARGEST} tasks at once are the most, got {len(runs)}")
        else:
            text, comment = _gang_script(runs, asked), ".." * len(runs)
        return await _submit(places, asked, text, self._name, comment, self._part)

    def _soon(self, act: str, id: str) -> None:
        """Release, hold or cancel a job, together with others of this turn of the loop."""
        self._pending[act].append(id)
        if len(self._pending[act]) == 1:
            self.later(self._act(act))

    async def _act(self, act: str) -> None:
        await asyncio.sleep(0.02)
        ids, self._pending[act] = self._pending[act], []
        with suppress(SlurmError):  # the driver asks for a stop again, and a held job is seen by `_look`
            await _call(_ACTS[act](list(dict.fromkeys(ids))))

    # -- states -------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Report the changes of jobs and nodes.

        Jobs are queried after the nodes, and reported before them.  So a run that ended before its node went down ends.
        """
        asked = [job for job in self.held.values() if job.id and not job.over]
        nodes, usable, unused = await _ask_nodes(_COUNTED, self._part)
        jobs = await _ask_jobs(self._name)
        self._sizes = {node: _size(one.capacity) for node, one in nodes.items()}
        of: dict[str, list[_Job]] = {}
        for job in self.held.values():
            of.setdefault(job.id, []).append(job)
        off = {job.id for job in asked if job.run.machine in unused}
        parts = {id for id, runs in of.items() if len(runs) < runs[0].members}
        for job in asked:
            if not job.over:
                self._see(job, jobs.get(job.id), job.id in off, job.id in parts)
        if not self._submitting:
            for id, known in jobs.items():
                if known.reason == "JobHeldUser" and id not in of:
                    self._soon("cancel", id)  # of a submission that was cut off
        used = self.used()
        own = {node: MachineAdded(node, _of(one.capacity, self._resources)) for node, one in nodes.items()}
        there = {node: one for node, one in {**self.machines, **own}.items() if node in usable or node in used}
        self._away = [one for node, one in own.items() if node not in usable]
        self.show(there, there.keys() - usable)

    def away(self) -> list[MachineAdded]:
        """See `flowsched.run.executor.Away`."""
        return self._away

    def _see(self, job: _Job, known: JobState | None, off: bool, part: bool) -> None:
        """Take note of the state of a job, by Slurm's data on it.

        With `off`, Slurm does not use its nodes; with `part`, not all of its runs are on record.
        """
        job.absent = 0 if known is not None else job.absent + 1
        if known is None:
            if job.absent < _ABSENT:
                return
            known = JobState("GONE", 0, "None")
        number, state, reason = job.run.number, known.state, known.reason
        status = _status(known.comment, job)
        if status is not None:
            self.finish(job, outcome(job.run, status, job.stopped))
        elif state == "PENDING" and part and reason == "JobHeldUser":
            self._soon("cancel", job.id)  # a driver was killed while it put the runs on record
        elif state == "PENDING" and not job.stopped:
            if reason != "JobHeldUser":
                if off:  # held first, so that it does not begin meanwhile
                    self._soon("hold", job.id)
            else:
                self._soon("cancel" if off else "release", job.id)
        elif state == "RUNNING":
            self.begin(job)
        elif state == "COMPLETED":
            self.finish(job, Ended(number, 0))
        elif state == "CANCELLED":
            self.finish(job, Stopped(number))
        elif state == "FAILED" and known.code and job.members == 1:
            status = os.waitstatus_to_exitcode(known.code)
            status = status if status > 0 else 128 - status
            self.finish(job, outcome(job.run, status, False, reason=known.why))
        elif state in _FAILED or state in _LOST:
            error = SlurmError(f"task {job.run.task!r}: job {job.id} ended as {state} ({reason})")
            self.finish(job, Failed(number, error, lost=state in _LOST))


def _valid(demand: object) -> TypeGuard[Mapping[str, float]]:
    if not isinstance(demand, Mapping):
        return False
    return all(isinstance(amount, int | float) and 0 <= amount < inf for amount in demand.values())


def _size(capacity: Any) -> tuple[int, int]:
    return int(capacity.get("cpu", 0)), int(capacity.get("mem", 0))


def _of(capacity: Any, names: Iterable[str]) -> dict[str, float]:
    return {name: capacity[name] for name in names if capacity.get(name)}


def _largest(asked: Iterable[Asked]) -> Asked:
    """Return the largest of each amount."""
    all = list(asked)
    return Asked(max(one.cpus for one in all), max(one.memory for one in all), max(one.gpus for one in all))


def _gang_script(runs: Sequence[Run], asked: Asked) -> str:
    """Return the script of a gang's job."""
    mark = f"end-{uuid4().hex}"
    gpus = f"--gpus-per-task={asked.gpus} " if asked.gpus else ""
    steps = [
        _MEMBER % (asked.cpus, gpus, quote(str(run.machine)), _step_name(i), mark, script(run), mark, i, i, i)
        for i, run in enumerate(runs)
    ]
    return _GANG % ("".join(steps), len(runs))


def _status(comment: str, job: _Job) -> int | None:
    """Return the exit status of a member of a gang, if that is known."""
    digits = comment[2 * job.member : 2 * job.member + 2]
    if job.members == 1 or len(comment) != 2 * job.members or digits == "..":
        return None
    try:
        return int(digits, 16)
    except ValueError:
        return None


# -- the commands of Slurm: requests and answers -----------------------------------------------------------------------


class SlurmError(FlowschedError):
    """Slurm refused a request, or ended a job for a reason of its own."""


class NoAnswerError(SlurmError):
    """The controller does not answer now."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A job's request to a node for one task, as Slurm counts it: whole CPUs, MiB and GPUs."""

    cpus: int
    memory: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory request of a task that names none; without a request Slurm would give it the whole node's.

    All are in MiB: Slurm's own defaults, and the largest request of a job by CPU.
    """

    per_cpu: int | None = None
    per_node: int | None = None
    most: int | None = None

    def of(self, cpus: int, node_cpus: int, node_memory: int) -> int:
        """Return the memory of a task with a number of CPUs; without defaults its part of the node's."""
        if self.per_cpu is None and self.per_node is not None:
            return min(self.per_node, node_memory)
        each = node_memory // max(node_cpus, 1) if self.per_cpu is None else self.per_cpu
        return max(min(cpus * (each if self.most is None else min(each, self.most)), node_memory), 1)


async def _ask_memory(partition: Sequence[str]) -> Memory:
    """Return Slurm's defaults for the memory of jobs; those of a partition go before those of the cluster."""
    text = await _call(["scontrol", "show", "config"])
    if partition:
        text += await _call(["scontrol", "show", "partition", partition[0].partition("=")[2]])
    told = {name: int(value) for name, value in _SETTING.findall(text) if value.isdigit() and int(value)}
    return Memory(told.get("DefMemPerCPU"), told.get("DefMemPerNode"), told.get("MaxMemPerCPU"))


async def _submit(
    places: Sequence[Hashable], asked: Asked, text: str, name: str, comment: str, partition: Sequence[str]
) -> str:
    """Submit a held job with a task in each of these places, which are nodes; return its id.

    A node that is there several times has several tasks.
    """
    words = ["sbatch", "--hold", "--parsable", "--no-requeue", "--output=/dev/null", *partition]
    words += [f"--job-name={name}", f"--comment={comment}"]
    words += [f"--nodelist={','.join(map(str, places))}", f"--nodes={len(set(places))}"]
    words += [f"--cpus-per-task={asked.cpus}"]
    if len(places) == 1:
        words += [f"--mem={asked.memory}", *([f"--gres=gpu:{asked.gpus}"] if asked.gpus else ())]
    else:
        words += [f"--ntasks={len(places)}", "--distribution=arbitrary"]
        words += [f"--mem-per-cpu={-(-asked.memory // asked.cpus)}"]
        words += [f"--gpus-per-task={asked.gpus}"] if asked.gpus else ()
    out = await _call(words, text)
    id = out.strip().partition(";")[0]
    if not id.isdigit():
        raise _garbled("sbatch", out)
    return id


_ACTS: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "release": lambda ids: ["scontrol", "release", ",".join(ids)],
    "hold": lambda ids: ["scontrol", "uhold", ",".join(ids)],
    "cancel": lambda ids: ["scancel", *ids],
}
"""Commands for several jobs at once.  A hold keeps jobs from beginning; those that have begun go on."""


async def _cancel_member(id: str, member: int) -> None:
    """Cancel the task of a job that has several; nothing is done if it has not begun or has ended."""
    form = "StepID:|,StepName:|"
    for _, step, name in await _rows(["squeue", "-h", "-s", "-j", id, "-O", form], 2):
        if name == _step_name(member):
            await _call(["scancel", step])


def _step_name(member: int) -> str:
    """Return the name of the step in which a task of a job runs."""
    return f"flowsched-{member}"


@dataclass(frozen=True, slots=True)
class JobState:
    """Slurm's data on a job: its state, the status of waiting for it, a reason, and its comment."""

    state: str
    code: int
    reason: str
    comment: str = ""

    @property
    def why(self) -> str:
        """The reason why it could not run its command, "" if it said none."""
        return self.comment.removeprefix(_REASON) if self.comment.startswith(_REASON) else ""


async def _ask_jobs(name: str) -> dict[str, JobState]:
    """Return the jobs of a name, by id."""
    words = ["squeue", "-h", "-t", "all", "-n", name, "-O", "JobID:|,State:|,exit_code:|,Reason:|,Comment:|"]
    found = {}
    for line, id, state, code, reason, comment in await _rows(words, 5):
        if not id.isdigit() or not code.isdigit() or not state:
            raise _garbled("squeue", line)
        found[id] = JobState(state, int(code), reason, comment)
    return found


async def _ask_nodes(
    resources: Iterable[str], partition: Sequence[str]
) -> tuple[dict[Hashable, MachineAdded], set[Hashable], set[Hashable]]:
    """Return all nodes, those that take jobs, and those that are down or drained; Slurm waits for others to answer."""
    names, there, usable, unused = list(resources), dict[Hashable, MachineAdded](), set[Hashable](), set[Hashable]()
    words = ["sinfo", "-h", "-N", "-o", "%N|%c|%m|%G|%T", *partition]
    for line, name, cpus, memory, gres, state in await _rows(words, 5):
        if not name or not cpus.isdigit() or not memory.isdigit() or not state:
            raise _garbled("sinfo", line)
        has = {"cpu": int(cpus), "mem": int(memory), "gpu": _gpus(gres)}
        there[name] = MachineAdded(name, {name: has[name] for name in names if has.get(name)})
        if state.rstrip("~#!%$@+-^") in _USABLE:
            usable.add(name)
        elif state.startswith(_UNUSED):
            unused.add(name)
    return there, usable, unused


async def _rows(words: Sequence[str], count: int) -> list[tuple[str, ...]]:
    """Return the lines that a command answers, each with its fields after it; the last one may have any character.

    Raise NoAnswerError if the command fails, and SlurmError if a line is cut off, or has nothing.
    """
    try:
        lines = (await _call(words)).splitlines()
    except SlurmError as error:
        raise NoAnswerError(str(error)) from None
    rows = [(line, *line.strip().split("|", count - 1)) for line in lines]
    for row in rows:
        if len(row) != count + 1:
            raise _garbled(words[0], row[0])
    return [(*row[:-1], row[-1].removesuffix("|")) for row in rows]


def _gpus(gres: str) -> int:
    """Return the number of GPUs in the generic resources of a node."""
    total = at = 0
    while at < len(gres) and gres != "(null)":
        match = _GRES.match(gres, at)
        if match is None:
            raise _garbled("sinfo", gres)
        at = match.end()
        if match["name"] == "gpu":
            number = (match["words"] or "1").rpartition(":")[2]
            parts = re.fullmatch(r"(\d+)([KMG]?)", number, re.IGNORECASE)
            total += 1 if parts is None else int(parts[1]) * _SUFFIXES[parts[2].upper()]
    return total


def _garbled(program: str, line: str) -> SlurmError:
    return SlurmError(f"{program} answers with a line that is not understood: {quoted(line)}")


async def _call(words: Sequence[str], text: str = "") -> str:
    """Run a command of Slurm, and return its output; SlurmError if it fails."""
    try:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, stderr=pipe)
    except (OSError, ValueError) as error:
        raise SlurmError(f"{words[0]}: {error}") from None
    try:
        out, err = await process.communicate(text.encode())
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()  # its pipes are closed before the loop may be
        raise
    if process.returncode:
        said = err.decode(errors="replace").strip()
        silent = re.search("contact|timed out|[Cc]onnect|Zero Bytes", said)
        raise (NoAnswerError if silent else SlurmError)(f"{words[0]}: {said}")
    return out.decode(errors="replace")
