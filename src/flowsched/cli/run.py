"""``flowsched run``: the jobs of a file, on this machine or on a cluster."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Collection, Hashable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import click
from rich.live import Live
from rich.table import Table
from rich.text import Text

from flowsched.boundary import private
from flowsched.boundary.files import replace
from flowsched.boundary.validate import quoted
from flowsched.cli import endings
from flowsched.cli.endings import BadInput
from flowsched.cluster.events import JobSubmitted
from flowsched.journal.journal import Journal
from flowsched.policy import Policy
from flowsched.run import Driver, Executor, ExecutorError, LocalExecutor, TaskCancelledError, capacity_here
from flowsched.run.command import Command
from flowsched.run.dask import DaskExecutor
from flowsched.run.jobs import RESOURCES, JobFile, JobOfFile, read_jobs
from flowsched.run.kubernetes import KubernetesExecutor
from flowsched.run.ray import RayExecutor
from flowsched.run.slurm import SlurmExecutor
from flowsched.run.ssh import SSHExecutor
from flowsched.scheduler import Scheduler

_CLUSTERS: dict[str, tuple[str, str, Callable[[_Session, str], Executor]]] = {
    "dask": ("dask://HOST:PORT", "distributed", lambda _, at: DaskExecutor(f"tcp://{at}", RESOURCES)),
    "ray": ("ray, ray://HOST:PORT", "ray", lambda _, at: RayExecutor(at or "auto", RESOURCES)),
    "slurm": ("slurm", "", lambda session, _: SlurmExecutor(RESOURCES, folder=session.folder)),
    "ssh": (
        "ssh:HOST,USER@HOST:PORT",
        "asyncssh",
        lambda session, at: SSHExecutor(at.split(","), RESOURCES, name=session.name),
    ),
    "kubernetes": (
        "kubernetes:IMAGE",
        "kubernetes",
        lambda session, at: KubernetesExecutor(RESOURCES, image=at, name=session.name),
    ),
}
"""Clusters for ``--on``: forms, the package that each needs, and a function from the rest of the text to its executor."""

_WHERE = ", ".join(("local", *(forms for forms, _, _ in _CLUSTERS.values())))

_REFRESH = 0.5

_FAILED = 1


@click.command("run", cls=endings.Command)
@click.argument("file", type=endings.FILE)
@click.option("--on", "on", metavar="WHERE", default="local", show_default=True, help=f"One of: {_WHERE}.")
@click.option(
    "--policy", metavar="NAME", default="pack", show_default=True, help=f"One of: {', '.join(Policy.names())}."
)
@click.option(
    "--output",
    type=endings.FOLDER,
    metavar="DIR",
    help="Folder for the output of each task, TASK.log.  [default: FILE's name, with .out]",
)
@click.option(
    "--state",
    type=endings.FOLDER,
    metavar="DIR",
    help="Folder for a journal: after an interruption or a kill the same command continues from it.",
)
@click.option(
    "--cgroup",
    type=endings.FOLDER,
    metavar="DIR",
    help="Limit the tasks of this machine to their demand, in subgroups of this control group.",
)
@click.option(
    "--patience",
    type=click.FloatRange(0, max_open=False),
    metavar="SECONDS",
    default=300.0,
    show_default=True,
    help="Time that a task waits while all machines that could run it are gone or drained; then it fails.",
)
@click.option(
    "--elastic",
    is_flag=True,
    help="Expect larger machines: a task that no machine could ever run also waits for --patience.",
)
@click.option("--retry-failed", is_flag=True, help="With --state: run the tasks that failed for good again.")
@click.option("--quiet", is_flag=True, help="Print errors only.")
def run(
    file: Path,
    on: str,
    policy: str,
    output: Path | None,
    state: Path | None,
    cgroup: Path | None,
    patience: float,
    elastic: bool,
    retry_failed: bool,
    quiet: bool,
) -> None:
    """Run the jobs of FILE; the scheduler decides where and when.

    FILE is TOML:

    \b
      [machine]                  # optional: the part of this machine that is used
      cpu = 4
      [[job]]
      name = "train"
      command = "./train.sh"     # for the shell; or a list: program and arguments
      count = 8                  # tasks; FLOWSCHED_INDEX is 0 to 7
      demand = {cpu = 2, mem = 500, gpu = 1}

    Further keys: priority (lower is better), user, gang, constraints, retries, time_limit, environment, directory.

    \b
    Examples:
      flowsched run jobs.toml
      flowsched run jobs.toml --state today        after a kill, the same command continues
      flowsched run jobs.toml --state today --retry-failed
      flowsched run jobs.toml --on dask://10.0.0.1:8786
      flowsched run jobs.toml --on ray       the Ray cluster of this machine
      flowsched run jobs.toml --on ssh:node1,node2

    \b
    Exit status:
      0    every task has succeeded
      1    a task failed for good, or can never run
      2    the command line or FILE is wrong
      130, 143  interrupted by Ctrl-C or SIGTERM: all processes were stopped (a second signal does not wait for
           their end)
      74   also: the answers of the cluster are not understood
      74, 141  as `flowsched --help` says
    """
    output = Path(f"{file.stem}.out") if output is None else output
    state = None if state is None else state.resolve()
    if retry_failed and state is None:
        raise BadInput("--retry-failed: of an earlier call, so --state DIR is needed")
    broken = None
    jobs = read_jobs(file, output)
    session = _Session(jobs, on, policy, state, cgroup, endings.Words(quiet), patience, elastic)
    private.made(output)
    if state is not None:
        session.begin(file.read_bytes(), state)
    if retry_failed:
        session.forget_failed()
    try:
        asyncio.run(session.main())
    except ExecutorError as error:
        broken = error
    finally:
        session.end()
    if not quiet:
        endings.Out().print(session.table())
    if broken is not None:
        click.echo(f"Error: {broken}", err=True)
        sys.exit(endings.REFUSED)
    if session.interrupted:
        click.echo(f"Interrupted: {session.stopped} running tasks were stopped.", err=True)
        sys.exit(128 + session.interrupted)
    sys.exit(_FAILED if session.failed else 0)


class _Session:
    """One run of a file.

    `ends` has "" for tasks that ended well, the error of others; those of earlier calls over the same state included.
    `interrupted` is the number of the signal, or 0, and `stopped` counts the tasks that ran then.
    """

    def __init__(
        self,
        jobs: JobFile,
        on: str,
        policy: str,
        state: Path | None,
        cgroup: Path | None,
        words: endings.Words,
        patience: float,
        elastic: bool,
    ) -> None:
        self.ends: dict[Hashable, str] = {}
        self.interrupted = self.stopped = 0
        self._jobs, self._words, self._state = jobs, words, state
        self._patience, self._elastic = patience, elastic
        self._job_of = {task: job for job in jobs.jobs for task in job.commands}
        self._cancelled: set[Hashable] = set()  # since another task of their gang failed
        self._ended: IO[str] | None = None
        self._driver: Driver | None = None
        self._stop = asyncio.Event()
        self._executor = self._executor_of(on, cgroup)
        self._policy = Policy.named(policy)

    @property
    def failed(self) -> bool:
        """A task failed for good."""
        return any(self.ends.values())

    def _executor_of(self, on: str, cgroup: Path | None) -> Executor:
        if on == "local":
            capacity = capacity_here() if self._jobs.machine is None else self._jobs.machine
            return LocalExecutor(capacity, machine="local", folder=self.folder, cgroup=cgroup)
        if cgroup is not None:
            raise BadInput(f"--cgroup: of this machine, so without --on {on}")
        for kind, (forms, package, make) in _CLUSTERS.items():
            for form in forms.split(", "):
                start = re.match("[a-z]+(:(//)?)?", form)
                assert start is not None
                if on == form == kind or (start[1] and on.startswith(start[0]) and on != start[0]):
                    if package and find_spec(package) is None:
                        raise BadInput(f"--on {on} needs {package}: pip install 'flowsched[{kind}]'")
                    return make(self, on.removeprefix(start[0]))
        raise BadInput(f"--on: one of {_WHERE} expected, got {quoted(on)}")

    @property
    def folder(self) -> Path | None:
        """Folder for the records of an executor, or None."""
        return None if self._state is None else self._state / "runs"

    @property
    def name(self) -> str:
        """Name by which the next call over the same state finds runs elsewhere; "" without a state."""
        if self._state is None:
            return ""
        path = self._state / "name"
        if not path.exists():
            private.folder("--state", self._state)
            replace(path, f"flowsched-{uuid4().hex}", private.MODE)
        return path.read_text()

    def begin(self, content: bytes, state: Path) -> None:
        """Begin a state, or continue one, which must be of the same file."""
        private.folder("--state", state)
        copy = state / "jobs.toml"
        if copy.exists() and copy.read_bytes() != content:
            raise BadInput(f"{state}: this is the state of another file, see {copy}")
        replace(copy, content, private.MODE)
        ended = state / "ended.jsonl"
        if ended.exists():
            for line in ended.read_text().splitlines():
                with suppress(ValueError):  # the line that was being written when the driver was killed
                    record = json.loads(line)
                    self.ends[record["task"]] = record["error"]
        self._ended = open(ended, "a", buffering=1, opener=private.opener)  # noqa: SIM115, see `end`
        self._ended.write("\n")

    def forget_failed(self) -> None:
        """Mark failed tasks to run again; all tasks of a gang, since they run together."""
        again = {task for task, error in self.ends.items() if error}
        for job in self._jobs.jobs:
            if job.submitted.gang is not None and again & job.commands.keys():
                again |= job.commands.keys()
        assert self._ended is not None and self._state is not None
        self._ended.close()
        self.ends = {task: error for task, error in self.ends.items() if task not in again}
        path = self._state / "ended.jsonl"
        lines = [json.dumps({"task": task, "error": error}) + "\n" for task, error in self.ends.items()]
        replace(path, "".join(lines).encode(), private.MODE)
        self._ended = open(path, "a", buffering=1, opener=private.opener)  # noqa: SIM115, see `end`

    def end(self) -> None:
        """Close the files."""
        if self._ended is not None:
            self._ended.close()

    async def main(self) -> None:
        """Run the jobs to their ends, or until Ctrl-C."""
        journal = None
        if self._state is not None:
            old, path = self._state / "journal", self._state / "state.db"
            if old.exists() and not path.exists():  # else its jobs would run again
                raise BadInput(f"--state: of an earlier release; first `flowsched journal import {old} {path}`")
            journal = Journal(path, durability="power")
        scheduler = Scheduler(self._policy, resources=RESOURCES, journal=journal)
        driver = self._driver = Driver(
            scheduler, self._executor, on_end=self._note, patience=self._patience, elastic=self._elastic
        )
        handled = [signal.SIGINT] if callable(signal.getsignal(signal.SIGINT)) else []  # not if it is ignored
        handled += [signal.SIGTERM] if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL else []
        loop = asyncio.get_running_loop()
        try:
            known = scheduler.cluster.tasks
            for job in self._jobs.jobs:
                there = {task: self._payload(command) for task, command in job.commands.items() if task in known}
                driver.attach(there, time_limit=job.time_limit)
            async with driver:
                for number in handled:
                    loop.add_signal_handler(number, self._interrupt, number)
                for job in self._jobs.jobs:
                    if new := {task for task in job.commands if task not in known and task not in self.ends}:
                        payloads = {task: self._payload(job.commands[task]) for task in new}
                        submitted = self._again(job, new, scheduler.cluster.jobs)
                        driver.submit(submitted, payloads, retries=job.retries, time_limit=job.time_limit)
                await self._watch(driver)
                self.stopped = len(driver.running())
        finally:
            for number in handled:
                loop.remove_signal_handler(number)
                if self.interrupted:  # it ends anyway; one more signal would only change how
                    signal.signal(number, signal.SIG_IGN)
            if journal is not None:
                journal.close()

    def _again(self, job: JobOfFile, new: Collection[Hashable], known: Collection[Hashable]) -> JobSubmitted:
        """Return a job with those of its tasks that have not run, or are to run again."""
        if len(new) == len(job.commands):
            return job.submitted
        id, count = job.submitted.id, 1
        while id in known:
            count += 1
            id = f"{job.submitted.id} ({count})"
        return dataclasses.replace(job.submitted, id=id, tasks=[task for task in job.submitted.tasks if task.id in new])

    def _payload(self, command: Command) -> Any:
        if isinstance(self._executor, KubernetesExecutor):
            return dataclasses.replace(command, directory="")  # of the image
        return command

    async def _watch(self, driver: Driver) -> None:
        """Show the table until all have ended, or Ctrl-C."""
        drained, stop = asyncio.create_task(driver.drained()), asyncio.create_task(self._stop.wait())
        live = Live(console=self._words, auto_refresh=False, transient=True)
        shown = self._words.is_terminal and not self._words.quiet
        try:
            if shown:
                live.start()
            while not drained.done() and not self.interrupted:
                await asyncio.wait([drained, stop], timeout=_REFRESH, return_when=asyncio.FIRST_COMPLETED)
                self._give_up(driver)
                if shown:
                    live.update(self.table(), refresh=True)
            if drained.done():
                drained.result()
        finally:
            live.stop()
            drained.cancel()
            stop.cancel()

    def _give_up(self, driver: Driver) -> None:
        """Cancel the remaining tasks of a gang of which a task has failed."""
        for job in self._jobs.jobs:
            if job.submitted.gang is not None and any(self.ends.get(task) for task in job.commands):
                for task in job.commands:
                    if task not in self.ends and task not in self._cancelled:
                        self._cancelled.add(task)
                        driver.cancel(task)

    def _interrupt(self, number: int) -> None:
        if self.interrupted and isinstance(self._executor, LocalExecutor):
            self._executor.hurry()
        self.interrupted = number
        self._stop.set()

    def _note(self, task: Hashable, value: Any, error: BaseException | None) -> None:
        """Record the end of a task."""
        said = ""
        if isinstance(error, TaskCancelledError):
            said = "another task of its gang failed" if task in self._cancelled else ""
        elif error is not None:
            said = str(error).strip().rpartition("\n")[2]  # the point of a traceback
        said = said or ("" if error is None else type(error).__name__)
        self.ends[task] = said
        if self._ended is not None:
            self._ended.write(json.dumps({"task": task, "error": said}) + "\n")
        if said:
            self._words.print(f"{task} failed: {endings.shortened(said)}", style="red")

    def table(self) -> Table:
        """Return the table of jobs."""
        running = Counter[Hashable]()
        why: dict[Hashable, Counter[str]] = {}
        if self._driver is not None:
            running.update(
                self._job_of[run.task].submitted.id for run in self._driver.running() if run.task in self._job_of
            )
            for task, reason in self._driver.last.waiting.items() if self._driver.last is not None else ():
                if task in self._job_of and task not in self.ends:
                    why.setdefault(self._job_of[task].submitted.id, Counter())[reason.code.value] += 1
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in ("job", "tasks", "done", "failed", "running", "waiting", "why"):
            table.add_column(column, justify="left" if column in ("job", "why") else "right")
        for job in self._jobs.jobs:
            id = job.submitted.id
            ends = [self.ends[task] for task in job.commands if task in self.ends]
            failed = sum(map(bool, ends))
            waiting = max(len(job.commands) - len(ends) - running[id], 0)
            reasons = (
                ", ".join(f"{count} {code}" for code, count in why.get(id, Counter()).most_common(2)) if waiting else ""
            )
            counts = (len(job.commands), len(ends) - failed, failed, running[id], waiting)
            table.add_row(Text(str(id)), *(f"{count:,}" for count in counts), Text(reasons))
        return table
