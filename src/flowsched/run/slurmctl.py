"""The commands of Slurm, for `flowsched.run.slurm`: what they are asked, and what they answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from flowsched.boundary.validate import quoted
from flowsched.cluster.events import MachineAdded
from flowsched.exceptions import FlowschedError

__all__ = [
    "CONTROL",
    "WHY",
    "Asked",
    "Job",
    "Memory",
    "NoAnswerError",
    "SlurmError",
    "cancel",
    "cancel_member",
    "hold",
    "jobs",
    "memory",
    "nodes",
    "release",
    "step_name",
    "submit",
]

CONTROL = "flowsched_control=$(command -v scontrol)"
"""The first line of a batch script: a command's own PATH may have no scontrol."""

_REASON = "flowsched: "

WHY = f"""\"$flowsched_control\" update "JobId=$SLURM_JOB_ID" "Comment={_REASON}$2" >/dev/null 2>&1"""
"""Keeps the reason why a command cannot begin, as the comment of its job; for `flowsched.run.command.script`."""

_USABLE = {"idle", "mixed", "allocated", "completing", "planned"}
"""States of nodes that take jobs, without the mark for power saving; a node that does not answer has an asterisk."""

_UNUSED = ("down", "drain", "fail", "inval")
"""How states of nodes begin that take no jobs until an administrator or the node itself comes back."""

_GRES = re.compile(r"(?P<name>[^:,(]+)(?::(?P<words>[^,(]*))?(?:\([^)]*\))?(?:,|$)")
"""One of a list ``NAME[:TYPE][:no_consume][:NUMBER[K|M|G]][(FLAGS)]``; the flags may have commas."""

_SETTING = re.compile(r"\b(DefMemPerCPU|DefMemPerNode|MaxMemPerCPU) *= *(\w+)")

_SUFFIXES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


class SlurmError(FlowschedError):
    """Slurm refused a request, or ended a job for a reason of its own."""


class NoAnswerError(SlurmError):
    """The controller does not answer now."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a job asks of a node for one task, as Slurm counts it: whole CPUs, MiB and GPUs."""

    cpus: int
    memory: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Memory:
    """What Slurm is asked for a task that names no memory; without a request it would take the whole node's.

    Parameters
    ----------
    per_cpu, per_node : int or None
        Slurm's own defaults, in MiB.
    most : int or None
        That a job may ask for by CPU.
    """

    per_cpu: int | None = None
    per_node: int | None = None
    most: int | None = None

    def of(self, cpus: int, node_cpus: int, node_memory: int) -> int:
        """Return the memory of a task with so many CPUs; without defaults its part of the node's."""
        if self.per_cpu is None and self.per_node is not None:
            return min(self.per_node, node_memory)
        each = node_memory // max(node_cpus, 1) if self.per_cpu is None else self.per_cpu
        return max(min(cpus * (each if self.most is None else min(each, self.most)), node_memory), 1)


async def memory(partition: Sequence[str]) -> Memory:
    """Return Slurm's defaults for the memory of jobs; those of a partition go before those of the cluster."""
    text = await _call(["scontrol", "show", "config"])
    if partition:
        text += await _call(["scontrol", "show", "partition", partition[0].partition("=")[2]])
    told = {name: int(value) for name, value in _SETTING.findall(text) if value.isdigit() and int(value)}
    return Memory(told.get("DefMemPerCPU"), told.get("DefMemPerNode"), told.get("MaxMemPerCPU"))


async def submit(
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


async def release(ids: Sequence[str]) -> None:
    """Let held jobs begin."""
    await _call(["scontrol", "release", ",".join(ids)])


async def hold(ids: Sequence[str]) -> None:
    """Keep jobs from beginning; those that have begun go on."""
    await _call(["scontrol", "uhold", ",".join(ids)])


async def cancel(ids: Sequence[str]) -> None:
    """Cancel jobs."""
    await _call(["scancel", *ids])


async def cancel_member(id: str, member: int) -> None:
    """Cancel the task of a job that has several; nothing is done if it has not begun or has ended."""
    form = "StepID:|,StepName:|"
    for _, step, name in await _rows(["squeue", "-h", "-s", "-j", id, "-O", form], 2):
        if name == step_name(member):
            await _call(["scancel", step])


def step_name(member: int) -> str:
    """Return the name of the step in which a task of a job runs."""
    return f"flowsched-{member}"


@dataclass(frozen=True, slots=True)
class Job:
    """What Slurm says of a job: its state, the status of waiting for it, a reason, and its comment."""

    state: str
    code: int
    reason: str
    comment: str = ""

    @property
    def why(self) -> str:
        """The reason why it could not run its command, "" if it said none."""
        return self.comment.removeprefix(_REASON) if self.comment.startswith(_REASON) else ""


async def jobs(name: str) -> dict[str, Job]:
    """Return the jobs of a name, by id."""
    words = ["squeue", "-h", "-t", "all", "-n", name, "-O", "JobID:|,State:|,exit_code:|,Reason:|,Comment:|"]
    found = {}
    for line, id, state, code, reason, comment in await _rows(words, 5):
        if not id.isdigit() or not code.isdigit() or not state:
            raise _garbled("squeue", line)
        found[id] = Job(state, int(code), reason, comment)
    return found


async def nodes(
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

    Raises
    ------
    NoAnswerError
        The command fails.
    SlurmError
        A line is cut off, or has nothing.
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
    """Return what a command of Slurm writes; SlurmError if it fails."""
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
