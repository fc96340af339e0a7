"""The commands of Slurm, for `flowsched.run.slurm`: what they are asked, and what they answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from math import ceil

from flowsched.cluster.events import MachineAdded
from flowsched.exceptions import FlowschedError
from flowsched.run.executor import Run

__all__ = [
    "CONTROL",
    "WHY",
    "NoAnswerError",
    "SlurmError",
    "cancel",
    "hold",
    "jobs",
    "nodes",
    "reason",
    "release",
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

_DEMAND = {"cpu": "--cpus-per-task=", "mem": "--mem=", "gpu": "--gres=gpu:"}


class SlurmError(FlowschedError):
    """Slurm refused a request, or ended a job for a reason of its own."""


class NoAnswerError(SlurmError):
    """The controller does not answer now."""


async def submit(run: Run, text: str, name: str, partition: Sequence[str]) -> str:
    """Submit a held job for the node of a run; return its id."""
    words = ["sbatch", "--hold", "--parsable", "--no-requeue", "--nodes=1", f"--nodelist={run.machine}"]
    words += [f"--job-name={name}", f"--comment={run.task!r}"[:200], "--output=/dev/null", *partition]
    words += [f"{option}{ceil(run.demand[what])}" for what, option in _DEMAND.items() if run.demand.get(what)]
    return (await _call(words, text)).strip().partition(";")[0]


async def reason(id: str) -> str:
    """Return the reason why a job could not run its command, "" if it said none."""
    comment = (await _call(["squeue", "-h", "-t", "all", "-j", id, "-o", "%k"])).strip()
    return comment.removeprefix(_REASON) if comment.startswith(_REASON) else ""


async def release(ids: Sequence[str]) -> None:
    """Let held jobs begin."""
    await _call(["scontrol", "release", ",".join(ids)])


async def hold(ids: Sequence[str]) -> None:
    """Keep jobs from beginning; those that have begun go on."""
    await _call(["scontrol", "uhold", ",".join(ids)])


async def cancel(ids: Sequence[str]) -> None:
    """Cancel jobs."""
    await _call(["scancel", *ids])


async def jobs(name: str) -> dict[str, tuple[str, int, str]]:
    """Return state, status of waiting and reason of the jobs of a name, by id."""
    form = "JobID:|,State:|,exit_code:|,Reason:|"
    lines = (await _call(["squeue", "-h", "-t", "all", "-n", name, "-O", form])).splitlines()
    return {
        id: (state, int(code), reason) for id, state, code, reason, _ in (line.strip().split("|") for line in lines)
    }


async def nodes(
    resources: Iterable[str], partition: Sequence[str]
) -> tuple[dict[Hashable, MachineAdded], set[Hashable], set[Hashable]]:
    """Return all nodes, those that take jobs, and those that are down or drained; Slurm waits for others to answer."""
    names, there, usable, unused = list(resources), dict[Hashable, MachineAdded](), set[Hashable](), set[Hashable]()
    for line in (await _call(["sinfo", "-h", "-N", "-o", "%N|%c|%m|%G|%T", *partition])).splitlines():
        name, cpus, memory, gres, state = line.strip().split("|")
        gpus = sum(map(int, re.findall(r"\bgpu:(?:[^:,(]+:)?(\d+)", gres)))
        has = {"cpu": int(cpus), "mem": int(memory), "gpu": gpus}
        there[name] = MachineAdded(name, {name: has[name] for name in names if has.get(name)})
        if state.rstrip("~#!%$@+-^") in _USABLE:
            usable.add(name)
        elif state.startswith(_UNUSED):
            unused.add(name)
    return there, usable, unused


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
