"""``flowsched hrm``: HRM's negotiator, schedulers and agents as processes, and commands on their shared state."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table
from rich.text import Text

from flowsched.cli import endings
from flowsched.cli.endings import BadInput
from flowsched.cluster.model import MICRO
from flowsched.exceptions import DuplicateIdError, FlowschedError
from flowsched.hrm.config import Config, read_config
from flowsched.hrm.units import ResourceUnit
from flowsched.run.jobs import read_containers

if TYPE_CHECKING:
    from flowsched.hrm.state.negotiator import Negotiator

_FAILED = 1

_PATH = endings.FILE

_config = click.option(
    "--config", type=_PATH, metavar="FILE", required=True, envvar="FLOWSCHED_HRM", show_envvar=True,
    help="Configuration file.",
)  # fmt: skip

_name = click.option("--name", metavar="NAME", help="Name instead of the one in the configuration.")


def _queue(command: Any) -> Any:
    command = click.option("--most", type=click.IntRange(1), metavar="N", help="Maximum number of containers at once.")(
        command
    )
    return click.option("--length", type=click.IntRange(0), metavar="N", help="Maximum number of waiting tasks.")(
        command
    )


@click.group("hrm", cls=endings.Group)
def hrm() -> None:
    """Share units of machines between schedulers (HRM), over one shared state.

    \b
    Examples, with FLOWSCHED_HRM=hrm.toml in the environment:
      flowsched hrm check hrm.toml
      flowsched hrm negotiator
      flowsched hrm scheduler --name s1
      flowsched hrm agent                    on every machine
      flowsched hrm submit jobs.toml --wait
      flowsched hrm status

    \b
    Exit status of negotiator, scheduler and agent:
      0    ended by Ctrl-C or SIGTERM
      1    failed; the same command continues from the shared state
      2    the command line or the configuration is wrong
    """


@hrm.command()
@_config
def negotiator(config: Path) -> None:
    """Declare silent schedulers and machines lost."""
    _serve("negotiator", read_config(config))


@hrm.command()
@_config
@_name
def scheduler(config: Path, name: str | None) -> None:
    """Place the tasks of jobs."""
    _serve("scheduler", read_config(config, name=name))


@hrm.command()
@_config
@_name
def agent(config: Path, name: str | None) -> None:
    """Run containers on this machine (Linux)."""
    if not hasattr(os, "pidfd_open"):
        raise BadInput("an agent runs on Linux only")
    _serve("agent", read_config(config, name=name, units=True))


def _serve(part: str, config: Config) -> None:
    with _sql():
        from flowsched.hrm import service
    handler, log = logging.StreamHandler(), logging.getLogger("flowsched.hrm")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(config["log"].upper())
    numbers = [signal.SIGTERM, *([signal.SIGINT] if callable(signal.getsignal(signal.SIGINT)) else [])]

    def end(*_: object) -> None:
        for each in numbers:  # one more would only change how it ends
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(0)

    for each in numbers:
        signal.signal(each, end)
    run: Callable[[Config], None] = getattr(service, f"run_{part}")
    try:
        run(config)
    except FlowschedError as error:
        click.echo(f"flowsched hrm {part}: {endings.shortened(str(error))}", err=True)
        raise SystemExit(_FAILED) from None


@contextmanager
def _sql() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name not in ("sqlalchemy", "psycopg"):
            raise
        raise BadInput("the shared state needs a database's packages: pip install 'flowsched[sql]'") from None


@contextmanager
def connected(config: Path) -> Iterator[Negotiator]:
    """Connect to the shared state of a configuration."""
    with _sql():
        from flowsched.hrm import service

        with service.connected(read_config(config)) as negotiator:
            yield negotiator


@hrm.command()
@click.argument("file", type=_PATH)
@_name
def check(file: Path, name: str | None) -> None:
    """Check a configuration, and show the units that an agent would have here."""
    _show(
        "unit cores MiB GPU-MiB length most",
        (
            (unit.id, f"{unit.vcore:g}", f"{unit.mem:g}", f"{unit.gmem:g}", queue["length"], queue["most"])
            for unit, queue in read_config(file, name=name, units=True)["units"]
        ),
    )


@hrm.command()
@click.argument("file", type=_PATH)
@_config
@click.option("--suffix", metavar="TEXT", default="", help="Suffix for job names, to submit a file again.")
@click.option("--wait", is_flag=True, help="Wait until all tasks have ended; exit status 1 if any failed.")
def submit(file: Path, config: Path, suffix: str, wait: bool) -> None:
    """Submit the jobs of FILE: tables [[job]] with name, command, count, demand = {vcore, mem, gmem}, trigger and more."""
    jobs = read_containers(file, suffix)
    with connected(config) as negotiator:
        from flowsched.hrm.state import work

        mine = set(submitted(negotiator, jobs))
        click.echo(f"{sum(len(containers) for containers, _ in jobs)} tasks of {len(jobs)} jobs submitted")
        while wait:
            rows = [row for row in work.jobs(negotiator.store) if row.job_id in mine]
            if not any(row.open + row.held for row in rows):
                _show_jobs(rows)
                raise SystemExit(_FAILED if any(row.failed for row in rows) else 0)
            time.sleep(0.2)


def submitted(negotiator: Negotiator, jobs: Iterable[tuple[tuple[Any, ...], dict[str, Any]]]) -> list[str]:
    """Submit the jobs of a file, and return their names."""
    from flowsched.hrm.state import work

    known = {row.job_id for row in work.jobs(negotiator.store)}
    for _, job in jobs:
        if job["job"] in known:
            raise DuplicateIdError(f"job {job['job']!r} is already there; --suffix gives the jobs other names")
    for containers, job in jobs:
        command = work.work(*(job.pop(key) for key in ("command", "environment", "directory")))
        options = {key: job[key] for key in ("trigger", "name", "stages", "scheduler")}
        negotiator.submit(job["job"], containers, work=command, **options)
    return [job["job"] for _, job in jobs]


@hrm.command()
@click.argument("job", required=False)
@_config
def status(job: str | None, config: Path) -> None:
    """Show queues and jobs, or the tasks of a job."""
    with connected(config) as negotiator:
        from flowsched.hrm.state import work

        if job is None:
            _show_queues(negotiator)
            click.echo()
            _show_jobs(work.jobs(negotiator.store))
        elif tasks := work.tasks(negotiator.store, job):
            rows = ((row.task_id, row.status.lower(), row.queue_id, row.exit_status) for row in tasks)
            _show("task state unit exit-status", rows)
        else:
            raise BadInput(f"unknown job {job!r}")


@hrm.group()
def queue() -> None:
    """List, create, change and delete the queues of units, while tasks run."""


@queue.command("list")
@_config
def list_(config: Path) -> None:
    """Show the queues."""
    with connected(config) as negotiator:
        _show_queues(negotiator)


@queue.command()
@click.argument("unit")
@_config
@click.option("--machine", metavar="NAME", required=True, help="Machine.")
@click.option("--vcore", type=float, metavar="N", required=True, help="Cores.")
@click.option("--mem", type=float, metavar="MIB", required=True, help="Memory.")
@_queue
def create(
    config: Path, unit: str, machine: str, vcore: float, mem: float, length: int | None, most: int | None
) -> None:
    """Create a unit of cores and memory with its queues on a machine, bound to no CPUs."""
    with connected(config) as negotiator:
        negotiator.add_units([ResourceUnit(unit, machine, vcore, mem)], length=length or 0, most=most)


@queue.command("set")
@click.argument("units", nargs=-1, required=True)
@_config
@_queue
def set_(config: Path, units: tuple[str, ...], length: int | None, most: int | None) -> None:
    """Change attributes of queues; running and waiting tasks stay."""
    with connected(config) as negotiator:
        negotiator.set_units(units, length=length, most=most)


@queue.command()
@click.argument("units", nargs=-1, required=True)
@_config
def delete(config: Path, units: tuple[str, ...]) -> None:
    """Delete units with their queues; their tasks are open again."""
    with connected(config) as negotiator:
        click.echo(f"{len(negotiator.remove_units(units))} tasks are open again")


def _show_queues(negotiator: Negotiator) -> None:
    from flowsched.hrm.state import work

    rows = []
    for unit in map(dict, (row._mapping for row in work.units(negotiator.store))):
        amounts = (f"{(unit[k] - unit['free_' + k]) / MICRO:g}/{unit[k] / MICRO:g}" for k in ("vcore", "mem", "gmem"))
        counts = (unit["places"] - unit["free_places"], unit["waiting"], unit["paused"], unit["length"])
        most = unit["places"] if unit["places"] < 1 << 40 else None
        rows.append((unit["ru_id"], "up" if unit["alive"] else "lost", *amounts, *counts, most))
    _show("queue state cores MiB GPU-MiB running waiting paused length most", rows)


def _show_jobs(rows: Iterable[Any]) -> None:
    names = "job_id kind scheduler tasks open held done failed"
    _show(names, (tuple(row._mapping[name] for name in names.split()) for row in rows))


def _show(columns: str, rows: Iterable[tuple[object, ...]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for i, name in enumerate(columns.split()):
        left = i == 0 or name in ("state", "kind", "scheduler", "unit")
        table.add_column(name.removesuffix("_id"), justify="left" if left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if value is None else str(value)) for value in row))
    endings.Out().print(table)
