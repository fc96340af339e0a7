"""``flowsched simulate``: a trace or the bundled model in, figures and a report out."""

from __future__ import annotations

import gc
import importlib.util
import math
import os
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.status import Status
from rich.table import Table
from rich.text import Text

from flowsched import sim
from flowsched.boundary.units import seconds
from flowsched.boundary.validate import quoted
from flowsched.cli import endings
from flowsched.cli.endings import BadInput
from flowsched.cli.trace import load, print_tables, trace_options
from flowsched.cluster import Cluster
from flowsched.cluster.events import MachineAdded, TaskSubmitted
from flowsched.journal.journal import Journal
from flowsched.policy import Policy, Precedence
from flowsched.scheduler import Scheduler
from flowsched.sim.comparison import Comparison, Outcome
from flowsched.sim.metrics import check_table_file, write_table
from flowsched.sim.remote import FORMS
from flowsched.sim.report import write_comparison
from flowsched.sim.summary import duration, facts_line, story, tables, user_table

_OTHER = (
    "verbose", "interval", "until", "hold", "compress", "charge_solver", "power", "network", "machine_events",
)  # fmt: skip
"""Options under which the demonstration is not the one that its screen describes, or has further tables."""

_WORKLOAD = (
    "trace", "format", "variant", "machines", "columns", "skip_bad", "limit", "scale", "load", "machine_events", "compress",
    "estimates", "hold",
)  # fmt: skip
"""Options that make the workload."""

_GARBAGE = 100_000
"""Number of new objects after which the garbage collector of this process runs."""


def _seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return a time span in seconds; its text may have a unit."""
    if value is None:
        return None
    try:
        span = seconds(value)
    except ValueError:
        span = math.nan
    if not (math.isfinite(span) and span >= 0):
        raise click.BadParameter(f"{quoted(value)} is not a time span such as 90, 90s, 15m, 2h or 3d", ctx, param)
    return span


@click.command("simulate", cls=endings.Command)
@click.argument("file", required=False)
@click.option("--trace", metavar="PATH", help="The same as FILE.")
@trace_options
@click.option(
    "--machine-events",
    metavar="FILE",
    help="Failures, maintenance and changes of machines: CSV or JSON lines (time, machine, event, until, ...), or Google's machine_events.",
)
@click.option(
    "--policy", metavar="NAME", help=f"One of: {', '.join(Policy.names())}.  [default: spread; shares without FILE]"
)
@click.option(
    "--scheduler",
    metavar="NAME",
    help=f"Another scheduler instead: {', '.join(sim.SCHEDULERS)}, flowsched:POLICY or MODULE:NAME.",
)
@click.option(
    "--compare", metavar="A,B,...", help="Run these schedulers side by side on the same arrivals; see --scheduler."
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="--compare: number of seeds, from --seed on.",
)
@click.option(
    "--on",
    "on",
    metavar="WHERE",
    help=f"--compare: workers that do the runs, instead of processes here: {', '.join(FORMS)}.",
)
@click.option(
    "--record",
    type=endings.FILE,
    metavar="FILE",
    help="--compare: append each run to FILE when it is done; the same command does not repeat those that are there.",
)
@click.option(
    "--interval",
    callback=_seconds,
    metavar="TIME",
    help="Decide at multiples of this time instead of after every event.",
)
@click.option(
    "--compress", type=float, metavar="FACTOR", help="Arrivals FACTOR times as fast; run times stay the same."
)
@click.option("--hold", is_flag=True, help="Fill the cluster: no task ever ends.")
@click.option("--until", callback=_seconds, metavar="TIME", help="End at this simulated time.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Use only the first N tasks; the run still lasts until they have ended.",
)
@click.option(
    "--scale",
    type=float,
    metavar="S",
    help="Size of a synthetic workload's cluster; for `model`, 1 is 1,523 machines.  [default: 1; model 0.25]",
)
@click.option(
    "--load",
    type=float,
    metavar="L",
    help="Load of a synthetic workload, relative to the scarcest resource.  [default: 0.9; demo 1.05, model 0.95]",
)
@click.option(
    "--estimates",
    type=click.FloatRange(min=1),
    metavar="F",
    help="Give schedulers estimates of run times, too long by a random factor from 1 to F; 1 gives exact ones.",
)
@click.option(
    "--power",
    metavar="MODEL",
    help="Power in watts, for the energy: machine=WATTS, and RESOURCE=IDLE:PEAK of a unit, such as machine=50,cpu=1:4,gpu=30:300,gpu.T4=10:70.",
)
@click.option(
    "--network",
    metavar="MODEL",
    help="Bandwidth of the links over which tasks first read their input (columns data.MACHINE): machine=AMOUNT,rack=AMOUNT a second.",
)
@click.option("--charge-solver", is_flag=True, help="Let the time of a decision pass in the simulation, too.")
@click.option(
    "--preempted", type=click.Choice(["restart", "resume"]), default="restart", show_default=True,
    help="Lose or keep the work of a stopped task.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the simulation.")
@click.option(
    "--report",
    type=endings.FILE,
    metavar="FILE",
    help="Write a report with plots, one HTML file.",
)
@click.option(
    "--plots",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write each plot of the report to this folder, as SVG, PDF and PNG.",
)
@click.option(
    "--json",
    "json_file",
    type=endings.FILE,
    metavar="FILE",
    help="Write all figures and series.",
)
@click.option(
    "--csv",
    "csv_file",
    type=endings.FILE,
    metavar="FILE",
    help="--compare: write a row per run.",
)
@click.option(
    "--tasks",
    type=endings.FILE,
    metavar="FILE",
    help="Write a table with a row per task: when and where it started, when it ended, how often it was preempted.  CSV, or Parquet if FILE ends with .parquet.",
)
@click.option(
    "--journal",
    type=endings.FILE,
    metavar="FILE",
    help="Write the scheduler's journal, for `flowsched replay`; a new file.",
)
@click.option(
    "--goals", is_flag=True, help="Print the goals of the policy, and which can override which, without a run."
)
@click.option("--verbose", is_flag=True, help="Print all tables of the demonstration, as for every other workload.")
@click.option("--quiet", is_flag=True, help="Print errors only.")
def simulate(**options: Any) -> None:
    """Schedule a recorded or modelled workload on a simulated cluster.

    FILE is the file or directory of a trace; `flowsched trace formats` lists the formats.  Without it, the workload
    is a demonstration: three users share too few GPUs, and a rack fails.  `model` is a model of the openb production
    GPU cluster at a quarter of its size, under high load; others are poisson, batch, bursts and hrm.
    Times are seconds, or have a unit: 90s, 15m, 2h, 3d.

    \b
    Examples:
      flowsched simulate --report out.html
      flowsched simulate jobs.swf --policy pack
      flowsched simulate jobs.swf --scheduler easy
      flowsched simulate batch --limit 2000 --load 0.8
      flowsched simulate batch --compare fifo,easy,flowsched --seeds 3 --report out.html
      flowsched simulate batch --compare fifo,easy,flowsched --seeds 50 --on dask://10.0.0.1:8786 --record runs.jsonl
      flowsched simulate jobs.csv --machines 32xcpu=4,mem=16384
      flowsched simulate DIR --variant gpuspec33 --compress 500
      flowsched simulate DIR --interval 10s --charge-solver --json out.json

    \b
    Exit status:
      0    done
      1    the scheduler broke a promise (a machine above capacity, ...)
      2    the command line or the trace is wrong
      130  interrupted; the measurements until then are printed (a second Ctrl-C ends it at once)
      74, 141  as `flowsched --help` says
    """
    gc.set_threshold(_GARBAGE)  # the collector took a third of the time of a run of 100,000 tasks
    console = endings.Words(options["quiet"])
    if options["file"] is not None and options["trace"] is not None:
        raise BadInput("FILE and --trace are the same; give one")
    options["trace"] = options["trace"] if options["file"] is None else options["file"]
    options["policy"] = options["policy"] or ("shares" if options["trace"] is None else "spread")
    try:
        _check_outputs(options)
        if options["compare"] is not None:
            _compare(options)
            return
        if options["csv_file"] or options["seeds"] > 1 or options["on"] or options["record"]:
            raise BadInput("--seeds, --csv, --on and --record are for --compare")
        workload = _workload(options)
        if options["goals"]:
            _print_goals(Policy.named(options["policy"]), workload)
            return
        simulation = _simulation(options, workload)
    except sim.AuditError as error:
        raise click.ClickException(str(error)) from None
    except ImportError as error:
        raise BadInput(str(error)) from None
    try:
        with endings.on_interrupt(simulation.stop), _watch(console, workload, options["until"]) as progress:
            metrics = simulation.run(options["until"], progress)
    except KeyboardInterrupt:
        simulation.stop()
        metrics = simulation.metrics()
    except sim.AuditError as error:
        raise click.ClickException(str(error)) from None
    if simulation.stopped:
        console.print(
            f"Interrupted after {duration(metrics.facts['end'])} of simulated time; what follows is partial.",
            style="bold",
        )
    if options["json_file"]:
        metrics.to_json(options["json_file"])
    if options["tasks"]:
        write_table(metrics.table, options["tasks"])
    if options["report"]:
        sim.write_report(metrics, options["report"])
        console.print(f"Report: {options['report']}", soft_wrap=True)
    _write_plots(options, console, metrics)
    if not options["quiet"]:
        usual = options["trace"] is None and not any(map(options.get, _OTHER)) and not simulation.stopped
        if usual and len(user_table(metrics).rows) == 3:
            _print_story(metrics)
        else:
            _print(metrics, workload)
    if simulation.stopped:
        sys.exit(endings.INTERRUPTED)


def _check_outputs(options: dict[str, Any]) -> None:
    """Check the files of the results before the run, not after it."""
    trace = None if options["trace"] is None else Path(options["trace"])
    outputs = {
        f"--{name.removesuffix('_file')}": options[name]
        for name in ("report", "json_file", "csv_file", "tasks", "journal")
    }
    endings.check_files(outputs, {"--trace": trace})
    if options["journal"] is not None and options["journal"].exists():
        raise BadInput(f"{options['journal']}: is there already; a journal is of one run")
    try:
        check_table_file(options["tasks"] or "")
    except ImportError as missing:
        raise BadInput(f"--tasks: {missing}") from None
    drawn = next((name for name in ("report", "plots") if options[name]), None)
    if drawn and not importlib.util.find_spec("matplotlib"):
        raise BadInput(f"--{drawn} needs Matplotlib: pip install 'flowsched[plot]'")


def _workload(options: dict[str, Any]) -> sim.Workload:
    model = {k: options[k] for k in ("scale", "load") if options[k] is not None}
    name = options["trace"] or "demo"
    if name == "model" or name in sim.SYNTHETIC:
        names = ("format", "variant", "machines", "columns", "skip_bad")
        if given := next((name for name in names if options[name] not in (None, False)), None):
            raise BadInput(f"--{given.replace('_', '-')} concerns a trace, and none is given")
        model |= {} if options["limit"] is None else {"tasks": options["limit"]}
        workload = (
            sim.Workload.model(seed=options["seed"], **model)
            if name == "model"
            else sim.synthetic(name, seed=options["seed"], **model)
        )
    else:
        if model:
            raise BadInput(
                f"--{next(iter(model))} is for the bundled model and synthetic workloads, not for a trace; see --compress"
            )
        with _reading(options):
            workload = load(options["trace"], options)
        if not (workload.machines or workload.machine_events or options["machine_events"]):
            raise BadInput(
                f"{options['trace']}: the trace has no machines; give them, such as --machines 32x{workload.resources[0]}=4"
            )
    if options["machine_events"] is not None:
        workload = sim.with_machine_events(workload, options["machine_events"])
    if options["compress"] is not None:
        workload = workload.compress(options["compress"])
    if options["estimates"] is not None:
        workload = sim.estimated(workload, options["estimates"], seed=options["seed"])
    return workload.hold() if options["hold"] else workload


def _reading(options: dict[str, Any]) -> Status:
    """Show on a terminal that the trace is being read: a million tasks take half a minute."""
    return endings.Words(options["quiet"]).status(f"Reading {options['trace']}")


def _simulation(options: dict[str, Any], workload: sim.Workload) -> sim.Simulation:
    scheduler: sim.Schedules
    if options["scheduler"] is not None:
        if given := next((name for name in ("journal", "goals") if options[name]), None):
            raise BadInput(f"--{given} is of flowsched's own scheduler with --policy, not of --scheduler")
        scheduler, facts = (
            sim.scheduler(options["scheduler"], workload, seed=options["seed"]),
            {"scheduler": options["scheduler"]},
        )
    else:
        journal = None if options["journal"] is None else Journal(options["journal"])
        policy = Policy.named(options["policy"])
        scheduler = Scheduler(policy, resources=workload.resources, seed=options["seed"], journal=journal)
        facts = {"policy": options["policy"]}
    return sim.Simulation(scheduler, workload, **_arguments(options), seed=options["seed"], facts=facts)


def _arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a simulation that do not depend on the scheduler."""
    return {
        "interval": options["interval"],
        "on_events": options["interval"] is None,
        "charge_solver": options["charge_solver"],
        "preempted": options["preempted"],
        "power": None if options["power"] is None else sim.PowerModel.parse(options["power"]),
        "network": None if options["network"] is None else sim.NetworkModel.parse(options["network"]),
    }


def _print_goals(policy: Policy, workload: sim.Workload) -> None:
    """Print the goals of the policy as it is, and fitted to the cluster."""
    cluster = Cluster(workload.resources)
    for machine in workload.machines:
        cluster.apply(MachineAdded(machine.id, machine.capacity, machine.rack, machine.labels, machine.slots))
    for arrival in workload.arrivals:
        known = arrival.job.id in cluster.jobs
        cluster.apply(
            *([TaskSubmitted(arrival.job.id, task) for task in arrival.job.tasks] if known else [arrival.job])
        )
    out = endings.Out()
    fitted = policy.fitted(cluster)
    grid = Table(title="Does one step of a goal outweigh a lower goal?", title_justify="left", box=None, pad_edge=False)
    for column in ("goal", "over", "as it is", "fitted to this cluster"):
        grid.add_column(column, header_style="dim")
    for row, scaled in zip(policy.check(cluster), fitted.check(cluster), strict=True):
        grid.add_row(row.goal, row.over, _precedence(row), _precedence(scaled))
    out.print(grid)


def _precedence(row: Precedence) -> str:
    if row.always:
        return "always"
    return f"for up to {row.moves:,} tasks moved for one" if row.moves else "no"


@dataclass
class _Watcher:
    """Shows a progress bar on a terminal, and a line for every tenth elsewhere."""

    console: endings.Words
    bar: Progress
    workload: sim.Workload
    end: float | None
    shown: float = 0.0

    def __post_init__(self) -> None:
        self.task = self.bar.add_task("", total=1.0)

    def __call__(self, progress: sim.Progress) -> None:
        if self.console.is_terminal:
            now = time.monotonic()
            if now - self.shown >= 0.1:
                self.shown = now
                self.bar.update(self.task, completed=self.done(progress), description=self.text(progress))
        elif self.done(progress) >= self.shown + 0.1:
            self.shown = math.floor(self.done(progress) * 10) / 10
            self.console.print(f"{self.shown:4.0%}  {self.text(progress)}", soft_wrap=True)

    def done(self, progress: sim.Progress) -> float:
        """Return the fraction that is done, of the time until the end, or of the tasks' arrivals and ends if that is open."""
        if self.end:
            return min(progress.time / self.end, 1.0)
        arrived = progress.completed + progress.running + progress.waiting
        if self.workload.facts.get("hold"):
            return arrived / max(progress.tasks, 1)
        return (arrived + progress.completed) / max(2 * progress.tasks, 1)

    def text(self, progress: sim.Progress) -> str:
        return (
            f"{duration(progress.time)} simulated, {progress.rounds:,} rounds: "
            f"{progress.running:,} run, {progress.waiting:,} wait, {progress.completed:,} completed"
        )


@contextmanager
def _watch(console: endings.Words, workload: sim.Workload, until: float | None) -> Iterator[_Watcher]:
    columns = (BarColumn(bar_width=30), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield _Watcher(console, bar, workload, workload.horizon if until is None else until)


def _print(metrics: sim.Metrics, workload: sim.Workload) -> None:
    out = endings.Out()
    out.print(Text(f"Simulation of {metrics.facts['workload']}", style="bold"))
    out.print(facts_line(metrics))
    for note in getattr(workload, "notes", ()):
        out.print(f"Note: {note}.", style="dim")
    print_tables(out, tables(metrics))


def _write_plots(options: dict[str, Any], words: endings.Words, result: sim.Metrics | Comparison) -> None:
    if options["plots"]:
        try:
            written = sim.write_plots(result, options["plots"])
        except OSError as error:
            raise BadInput(f"--plots: {error}") from None
        words.print(f"Plots: {len(written)} files in {options['plots']}", soft_wrap=True)


def _print_story(metrics: sim.Metrics) -> None:
    """Print the demonstration: what it is, a row per user, what happened, and the cost of a decision."""
    out, facts, decision = endings.Out(), metrics.facts, metrics.latency("schedule")
    name = facts.get("policy", facts.get("scheduler"))
    asked = metrics.offered["gpu"]
    _print_wrapped(
        out,
        f"Three users share {facts['machines']} machines with 8 GPUs each. They ask for {100 * asked.mean:.0f} % of the GPUs on average and "
        f"for {100 * asked.peak:.0f} % at the peak, and a rack fails. The scheduler ({name}) decides after every event: "
        f"{metrics.counts['rounds']:,.0f} times in {duration(facts['end'])}.",
    )
    print_tables(out, [replace(user_table(metrics), title="Parts of the GPUs that are up, until the last arrival")])
    out.print()
    for line in story(metrics):
        for part in textwrap.wrap(line, 80, initial_indent="  ", subsequent_indent=" " * 8):
            out.print(part)
    out.print()
    _print_wrapped(
        out,
        f"A decision took {duration(decision.p50)} in the median, {duration(decision.p99)} at the 99th percentile. "
        "Without shares, on the 1,523 machines of the openb trace, the README has 0.05 and 0.5 ms.",
    )
    out.print()
    out.print("Next: flowsched simulate --report demo.html   pictures of this run")
    out.print("      flowsched simulate --verbose            all figures")
    out.print("      flowsched simulate --compare drf,fifo   other schedulers")


def _print_wrapped(out: endings.Out, text: str) -> None:
    for line in textwrap.wrap(text, 80):
        out.print(line)


def _compare(options: dict[str, Any]) -> None:
    """Run the comparison of a command line, print it and write its files."""
    simulation, names = _arguments(options), [name.strip() for name in options["compare"].split(",")]
    for option in ("scheduler", "journal", "tasks", "goals"):
        if options[option]:
            raise BadInput(f"--{option} is of one run, not of --compare")
    seeds = range(options["seed"], options["seed"] + options["seeds"])
    work = _workload(options)
    for name in names:
        sim.scheduler(name, work)
    words, stop = endings.Words(options["quiet"]), threading.Event()
    processes = min(os.cpu_count() or 1, len(names) * len(seeds))
    columns = (BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with (
        endings.on_interrupt(stop.set),
        Progress(*columns, console=words, transient=True, disable=not words.is_terminal) as bar,
    ):
        task = bar.add_task("", total=len(names) * len(seeds))

        def said(outcome: Outcome, done: int, total: int) -> None:
            line = f"{outcome.scheduler}, seed {outcome.seed}"
            if words.is_terminal:
                bar.update(task, completed=done, description=line)
            else:
                words.print(f"{done}/{total}  {line}", soft_wrap=True)

        found = sim.compare(
            partial(_made, options), names, seeds, processes=processes, until=options["until"],
            options=simulation, said=said, stopped=stop.is_set, on=options["on"], record=options["record"],
            about={name: options[name] for name in _WORKLOAD},
        )  # fmt: skip
    recorded = options["trace"] not in (None, "model") and options["trace"] not in sim.SYNTHETIC
    found = replace(
        found,
        facts={
            "workload": work.name,
            **work.facts,
            "tasks": work.n_tasks,
            "machines": len(work.machines),
            **found.facts,
        },
    )
    if not found.whole:
        why = found.lost or "Interrupted"
        words.print(f"{why}: {len(found.outcomes)} of {len(names) * len(seeds)} runs are done.", style="bold")
    if options["json_file"]:
        found.to_json(options["json_file"])
    if options["csv_file"]:
        found.to_csv(options["csv_file"])
    if options["report"]:
        write_comparison(found, options["report"])
        words.print(f"Report: {options['report']}", soft_wrap=True)
    _write_plots(options, words, found)
    if not options["quiet"]:
        _print_comparison(found, recorded)
    if not found.whole:
        sys.exit(endings.REFUSED if found.lost else endings.INTERRUPTED)


def _made(options: dict[str, Any], seed: int) -> sim.Workload:
    return _workload({**options, "seed": seed})


def _print_comparison(found: Comparison, recorded: bool) -> None:
    out = endings.Out()
    facts, many = found.facts, len(found.seeds)
    out.print(Text(f"Comparison on {facts['workload']}", style="bold"))
    seeds = f"{many} seeds" if many > 1 else f"seed {found.seeds[0]}"
    out.print(
        f"{facts['machines']:,} machines, {facts['tasks']:,} tasks, {seeds}, the same arrivals for every scheduler"
    )
    if recorded and many > 1:
        out.print("Note: recorded arrivals are the same for all seeds; only what schedulers draw differs.", style="dim")
    if found.outcomes:
        print_tables(out, found.tables())
