"""``flowsched run``: the jobs of a file, on this machine or on a cluster."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import click
from rich.live import Live
from rich.table import Table
from rich.text import Text

from flowsched.boundary import private
from flowsched.boundary.files import read, replace
from flowsched.boundary.validate import quoted
from flowsched.cli import dry, endings
from flowsched.cli.endings import BadInput
from flowsched.exceptions import InputError
from flowsched.fgm.limits import DEFAULT, Limits, place
from flowsched.journal.journal import Journal
from flowsched.policy import Policy
from flowsched.run import Driver, Executor, ExecutorError, LocalExecutor, capacity_here
from flowsched.run.command import Command
from flowsched.run.control import Control
from flowsched.run.dask import DaskExecutor
from flowsched.run.executor import Decider
from flowsched.run.jobs import RESOURCES, read_jobs
from flowsched.run.kubernetes import KubernetesExecutor
from flowsched.run.learn import SAMPLE, cannot_measure, learns, limits_in, said, scheduler_of
from flowsched.run.plan import CANCELLED, DONE, FAILED, SKIPPED, End
from flowsched.run.ray import RayExecutor
from flowsched.run.records import Records
from flowsched.run.session import Session, Watch
from flowsched.run.slurm import SlurmExecutor
from flowsched.run.ssh import SSHExecutor
from flowsched.scheduler import Scheduler

_CLUSTERS: dict[str, tuple[str, str, Callable[[Path | None, str, str], Executor]]] = {
    "dask": ("dask://HOST:PORT", "distributed", lambda folder, name, at: DaskExecutor(f"tcp://{at}", RESOURCES)),
    "ray": ("ray, ray://HOST:PORT", "ray", lambda folder, name, at: RayExecutor(at or "auto", RESOURCES)),
    "slurm": ("slurm", "", lambda folder, name, at: SlurmExecutor(RESOURCES, folder=folder)),
    "ssh": (
        "ssh:HOST,USER@HOST:PORT",
        "asyncssh",
        lambda folder, name, at: SSHExecutor(at.split(","), RESOURCES, name=name),
    ),
    "kubernetes": (
        "kubernetes:IMAGE",
        "kubernetes",
        lambda folder, name, at: KubernetesExecutor(RESOURCES, image=at, name=name),
    ),
}
"""Clusters for ``--on``: forms, the package that each needs, and a function from the folder and the name of the state, and the rest of the text, to its executor."""

_WHERE = ", ".join(("local", *(forms for forms, _, _ in _CLUSTERS.values())))

_REFRESH = 0.5

_ROWS = 50
"""Jobs in the table at the end."""

_LONGEST = 1 << 26
"""Bytes of a file."""

_FAILED = 1


@click.command("run", cls=endings.Command)
@click.argument("file", type=endings.FILE, required=False)
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
    "--learn",
    is_flag=True,
    help="Measure the tasks of this machine, and match later ones by the use of such tasks, stage by stage.",
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
@click.option(
    "--stay", is_flag=True, help="With --state: do not end with the last task; `flowsched submit` brings more."
)
@click.option(
    "--standby", is_flag=True, help="With --state: wait while another driver has it, and go on when that one has ended."
)
@click.option("--dry-run", is_flag=True, help="Print where tasks would start and which never fit, and run nothing.")
@click.option("--quiet", is_flag=True, help="Print errors only.")
def run(
    file: Path | None,
    on: str,
    policy: str,
    output: Path | None,
    state: Path | None,
    cgroup: Path | None,
    learn: bool,
    patience: float,
    elastic: bool,
    retry_failed: bool,
    stay: bool,
    standby: bool,
    dry_run: bool,
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

    Further keys: priority (lower is better), user, gang, constraints, retries, time_limit, environment, directory;
    after (names of jobs and tasks), array, at_most, not_before, deadline; kind (see --learn).

    With --learn, tasks of one kind are taken to need what the earlier ones used; the demand is a first estimate.  By
    default those of one command are of a kind.  `flowsched measure` finds the limits of the machine.

    With --state DIR, `flowsched ps`, `submit`, `cancel` and others talk to the running driver.

    \b
    Examples:
      flowsched run jobs.toml
      flowsched run jobs.toml --state today        after a kill, the same command continues
      flowsched run jobs.toml --state today --retry-failed
      flowsched run --state today --stay     no file: `flowsched submit` brings the jobs
      flowsched run jobs.toml --state today --standby    takes over from another driver
      flowsched run jobs.toml --learn
      flowsched run jobs.toml --dry-run
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
    if file is None and (state is None or not stay):
        raise BadInput("FILE: a file of jobs expected; without one, --state DIR and --stay")
    if stay and state is None:
        raise BadInput("--stay: jobs come through the socket in the state, so --state DIR is needed")
    if standby and state is None:
        raise BadInput("--standby: of a state, so --state DIR is needed")
    if retry_failed and state is None:
        raise BadInput("--retry-failed: of an earlier call, so --state DIR is needed")
    if dry_run and (file is None or state is not None):
        raise BadInput("--dry-run: of a file alone, so without --state")
    if learn and dry_run:
        raise BadInput("--learn: nothing runs with --dry-run, so there is nothing to learn")
    if learn and on != "local":
        raise BadInput(f"--learn: tasks are measured on this machine only, so without --on {on}")
    if learn and (why := cannot_measure()):
        raise BadInput(f"--learn: {why}")
    if output is None:
        output = Path("jobs.out" if file is None else f"{file.stem}.out")
    words = endings.Words(quiet)
    if dry_run:
        assert file is not None
        dry.show(
            read_jobs(file, output), lambda capacity: _executor_of(on, capacity, None, cgroup), Policy.named(policy)
        )
        return
    content = None if file is None else read(file, _LONGEST)
    journal = None
    if state is not None:
        state = state.resolve()
        private.folder("--state", state)
        journal = _journal(state, standby, words)
    records = Records(state)
    try:
        command = _Run(records, output, on == "kubernetes" or on.startswith("kubernetes:"), words)
        now = time.time()
        if file is not None and content is not None:
            try:
                command.session.begin(file, content, now)
            except InputError as error:
                raise BadInput(f"{state}: {error}" if "another file" in str(error) else str(error)) from None
        if retry_failed:
            command.session.retry_failed(uuid4().hex, now)
            command = _Run(records, output, command.kubernetes, words)
        limits = _limits(state, journal is not None and journal.store.new, words) if learn else None
        if limits is None and state is not None and learns(state):
            raise BadInput(f"{state}: it began with --learn, and goes on with it")
        executor = _executor_of(on, command.session.capacity, state, cgroup, SAMPLE if learn else None)
        private.made(output)
        chosen = Policy.named(policy)
        scheduler = (
            Scheduler(chosen, resources=RESOURCES, journal=journal)
            if limits is None
            else scheduler_of(chosen, limits, journal)
        )
        command.main(executor, scheduler, state, patience, elastic, stay)
    finally:
        records.close()
        if journal is not None:
            journal.close()
    if not quiet:
        endings.Out().print(command.table())
    if command.broken is not None:
        click.echo(f"Error: {command.broken}", err=True)
        sys.exit(endings.REFUSED)
    if command.interrupted:
        click.echo(f"Interrupted: {command.stopped} running tasks were stopped.", err=True)
        sys.exit(128 + command.interrupted)
    sys.exit(_FAILED if command.failed else 0)


def _journal(state: Path, standby: bool, words: endings.Words) -> Journal:
    """Return the journal of a state, locked: from here on, no other driver writes there."""
    old, path = state / "journal", state / "state.db"
    if old.exists() and not path.exists():  # else its jobs would run again
        raise BadInput(f"--state: of an earlier release; first `flowsched journal import {old} {path}`")
    if standby:
        words.print(f"Standby of {state}", soft_wrap=True)
    journal = Journal(path, durability="power", standby=standby)
    journal.open()
    if standby:
        words.print(f"At work on {state}", soft_wrap=True)
    return journal


def _limits(state: Path | None, begins: bool, words: endings.Words) -> Limits:
    """Return this machine's limits of compression, as they were measured, and warn if they do not hold."""
    limits = Limits.read(place()) if place().exists() else Limits()
    if (why := limits.stale()) and (state is None or not learns(state)):
        words.print(f"The limit of compression is {DEFAULT:.0%}: {why}.  `flowsched measure` measures this machine.")
        limits = Limits()
    return limits if state is None else limits_in(state, limits, begins)


def _executor_of(
    on: str,
    capacity: Mapping[str, float] | None,
    state: Path | None,
    cgroup: Path | None,
    sample: float | None = None,
) -> Executor:
    folder = None if state is None else state / "runs"
    if on == "local":
        return LocalExecutor(
            capacity_here() if capacity is None else capacity, machine="local", folder=folder, cgroup=cgroup,
            sample=sample,
        )  # fmt: skip
    if cgroup is not None:
        raise BadInput(f"--cgroup: of this machine, so without --on {on}")
    for kind, (forms, package, make) in _CLUSTERS.items():
        for form in forms.split(", "):
            start = re.match("[a-z]+(:(//)?)?", form)
            assert start is not None
            if on == form == kind or (start[1] and on.startswith(start[0]) and on != start[0]):
                if package and find_spec(package) is None:
                    raise BadInput(f"--on {on} needs {package}: pip install 'flowsched[{kind}]'")
                return make(folder, _name(state), on.removeprefix(start[0]))
    raise BadInput(f"--on: one of {_WHERE} expected, got {quoted(on)}")


def _name(state: Path | None) -> str:
    """Return the name by which the next call over the same state finds runs elsewhere; "" without a state."""
    if state is None:
        return ""
    path = state / "name"
    if not path.exists():
        replace(path, f"flowsched-{uuid4().hex}", private.MODE)
    return path.read_text()


class _Run:
    """One run of the command.

    `interrupted` is the number of the signal, or 0, and `stopped` counts the tasks that ran then; `broken` is the error
    that ended the driver.
    """

    def __init__(self, records: Records, output: Path, kubernetes: bool, words: endings.Words) -> None:
        self.kubernetes, self._words = kubernetes, words
        self.session = Session(records, output, self._payload, self._note)
        self.interrupted = self.stopped = 0
        self.broken: ExecutorError | None = None
        self._stop = asyncio.Event()

    @property
    def failed(self) -> bool:
        """A task failed for good, or was cancelled."""
        return any(end.bad for end in self.session.plan.ends.values())

    def _payload(self, command: Command) -> Any:
        return dataclasses.replace(command, directory="") if self.kubernetes else command  # the folder is the image's

    def main(
        self, executor: Executor, scheduler: Decider, state: Path | None, patience: float, elastic: bool, stay: bool
    ) -> None:
        """Run the jobs to their ends, or until Ctrl-C."""
        try:
            asyncio.run(self._main(executor, scheduler, state, patience, elastic, stay))
        except ExecutorError as error:
            self.broken = error

    async def _main(
        self, executor: Executor, scheduler: Decider, state: Path | None, patience: float, elastic: bool, stay: bool
    ) -> None:
        session, control = self.session, None if state is None else Control(self.session, state)
        driver = Driver(
            scheduler, executor, on_end=session.ended, watcher=Watch(session), patience=patience, elastic=elastic
        )
        handled = [signal.SIGINT] if callable(signal.getsignal(signal.SIGINT)) else []  # not if it is ignored
        handled += [signal.SIGTERM] if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL else []
        loop = asyncio.get_running_loop()
        try:
            session.attach(driver)
            async with driver:
                for number in handled:
                    loop.add_signal_handler(number, self._interrupt, number, executor)
                session.begun()
                if control is not None:
                    await control.open()
                try:
                    await self._watch(driver, stay)
                finally:
                    if control is not None:
                        await control.close()
                self.stopped = len(driver.running())
        finally:
            for number in handled:
                loop.remove_signal_handler(number)
                if self.interrupted:  # it ends anyway; one more signal would only change how
                    signal.signal(number, signal.SIG_IGN)

    async def _watch(self, driver: Driver, stay: bool) -> None:
        """Show the table until all have ended, or Ctrl-C."""
        over = asyncio.create_task(self.session.over.wait() if not stay else asyncio.Event().wait())
        ended, stop = asyncio.create_task(driver.ended()), asyncio.create_task(self._stop.wait())
        live = Live(console=self._words, auto_refresh=False, transient=True)
        shown = self._words.is_terminal and not self._words.quiet
        try:
            if shown:
                live.start()
            while not (over.done() or ended.done() or self.interrupted):
                timeout = _REFRESH if shown else None
                await asyncio.wait([over, ended, stop], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                if shown:
                    live.update(self.table(max(self._words.height - 4, 5)), refresh=True)
                if over.done() and self.session.plan.open:  # a request has come meanwhile
                    over = asyncio.create_task(self.session.over.wait())
            if ended.done():
                ended.result()
        finally:
            live.stop()
            for task in (over, ended, stop):
                task.cancel()

    def _interrupt(self, number: int, executor: Executor) -> None:
        if self.interrupted and isinstance(executor, LocalExecutor):
            executor.hurry()
        self.interrupted = number
        self._stop.set()

    def _note(self, task: str, end: End) -> None:
        """Print the failure of a task."""
        if end.bad:
            self._words.print(f"{task} {end.outcome}: {endings.shortened(end.why)}", style="red")

    def table(self, most: int = _ROWS) -> Table:
        """Return the table of jobs; of more than `most`, those that have failed, run or wait come first."""
        session = self.session
        plan, driver = session.plan, session.driver
        why: dict[str, Counter[str]] = {}
        jobs = [(job.name, plan.counts(job.name)) for job in plan.jobs()]
        shown = jobs
        if len(jobs) > most:

            def rank(row: tuple[str, dict[str, int]]) -> int:
                name, counts = row
                return (
                    0
                    if counts[FAILED] + counts[CANCELLED]
                    else 1
                    if session.running[name]
                    else 2
                    if counts["released"]
                    else 3
                )

            shown = sorted(jobs, key=rank)[:most]
        last = None if driver is None else driver.last
        for task, reason in () if last is None or not plan.open else last.waiting.items():
            if task in plan.names.job_of and plan.is_released(task):
                why.setdefault(plan.names.job_of[task], Counter())[reason.code.value] += 1
        table = Table(box=None, pad_edge=False, header_style="dim")
        skips = any(counts[SKIPPED] for _, counts in jobs)
        for column in ("job", "tasks", "done", "failed", *(["skipped"] * skips), "running", "waiting", "why"):
            table.add_column(column, justify="left" if column in ("job", "why") else "right")
        knows = session.learns
        if knows:
            table.add_column("learned")

        def add(name: str, counts: Counter[str] | dict[str, int], running: int, reasons: str, needs: str = "") -> None:
            ends = [counts[DONE], counts[FAILED] + counts[CANCELLED], *([counts[SKIPPED]] * skips)]
            waiting = max(counts["released"] + counts["waiting"] - running, 0)
            numbers = (sum(ends) + (0 if skips else counts[SKIPPED]) + counts["released"] + counts["waiting"], *ends)
            cells = (f"{count:,}" for count in (*numbers, running, waiting))
            table.add_row(Text(name), *cells, Text(reasons if waiting else ""), *[Text(needs)] * knows)

        for name, counts in shown:
            reasons = why.get(name, Counter())
            if counts["waiting"]:
                task = next(iter(plan.waiting(name)))
                reasons[plan.why(task, time.time())[0]] += counts["waiting"]
            text = ", ".join(f"{count} {code}" for code, count in reasons.most_common(2))
            add(name, counts, session.running[name], text, said(session.learnt(name)) if knows else "")
        if len(shown) < len(jobs):
            rest, running = Counter[str](), 0
            names = {name for name, _ in shown}
            for name, counts in jobs:
                if name not in names:
                    rest.update(counts)
                    running += session.running[name]
            add(f"{len(jobs) - len(shown):,} other jobs", rest, running, "")
        return table
