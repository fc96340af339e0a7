"""``flowsched trace``: a summary of a trace, and the same trace in another format."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.table import Table as Grid
from rich.text import Text

from flowsched import sim
from flowsched.boundary.validate import named
from flowsched.cli import endings
from flowsched.cluster.events import MachineAdded
from flowsched.cluster.model import MICRO, Resources
from flowsched.sim.summary import Table, amount, duration, resource_label
from flowsched.sim.traces.load import recognised
from flowsched.sim.workload import Workload

_OPTIONS = (
    click.option(
        "--format",
        metavar="NAME",
        help=f"Format of the trace, if it does not follow from the contents: {', '.join(sim.TRACE_FORMATS)}.",
    ),
    click.option(
        "--variant",
        metavar="NAME",
        help="openb: the list of pods (default, gpuspec33, ...). swf: nodes or pool. gavel: v100, p100 or k80.",
    ),
    click.option(
        "--machines",
        metavar="MACHINES",
        help="Machines instead of the trace's: 32xcpu=4,mem=16G (and more after a +), or a CSV file.",
    ),
    click.option(
        "--columns",
        metavar="NAME=COLUMN,...",
        help='Columns of a table by their own names: arrival="Submit Time",duration=Elapsed,demand.cpu=ReqCPUS.',
    ),
    click.option("--skip-bad", is_flag=True, help="Skip rows of a table that cannot be read, and count them."),
)
_MOST = 12
"""Rows of a table of machines; the rest is one row."""


def trace_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of commands that read a trace."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def load(path: str, options: dict[str, Any]) -> sim.Workload:
    """Return a trace, or the first tasks of it."""
    columns = None if options["columns"] is None else named("--columns", options["columns"], "NAME=COLUMN")
    if columns is not None:  # quotes that the shell has not taken off, as the whole option was quoted
        columns = {name: re.sub(r'^"(.*)"$', r"\1", column) for name, column in columns.items()}
    work = sim.load_trace(
        path,
        options["format"],
        variant=options["variant"],
        machines=options["machines"],
        columns=columns,
        skip_bad=options["skip_bad"],
    )
    return work if options["limit"] is None else work.head(options["limit"])


_NAME = 40
"""Minimum width of the first column, in characters."""

_WIDE = 9
"""Number of columns from which each word of a header has its own line, as in a table that is too wide."""


def print_tables(out: endings.Out, tables: Iterable[Table]) -> None:
    """Print tables, each after a blank line."""
    for table in tables:
        grid = Grid(
            title=table.title,
            title_justify="left",
            title_style="bold",
            box=None,
            pad_edge=False,
            collapse_padding=len(table.columns) > _WIDE,
            show_header=any(table.columns),
        )
        last = len(table.columns) - 1
        cells = [max(map(len, column)) for column in zip(table.columns, *table.rows, strict=True)]
        tall = last >= _WIDE or sum(cells) + 2 * last > out.width
        pairs = len(table.columns) == 2
        for i, column in enumerate(table.columns):
            left = i == 0 or pairs or (table.notes and i == last)
            header = "\n".join(column.split()) if tall and not table.notes else column
            named = max((len(row[0]) for row in table.rows), default=0) if i == 0 else 0  # names differ in their ends
            grid.add_column(
                header, justify="left" if left else "right", header_style="dim", min_width=min(named, _NAME)
            )
        for row in table.rows:
            grid.add_row(*(Text(cell) for cell in row))
        out.print()
        out.print(grid)


_LIMIT = click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Use only the first N tasks.")


@click.group("trace", cls=endings.Group)
def trace() -> None:
    """Summarise a trace, or write it in another format.

    \b
    Examples:
      flowsched trace info jobs.swf
      flowsched trace info openb --variant multigpu50
      flowsched trace convert jobs.swf jobs.csv
      flowsched trace formats
    """


@trace.command("info")
@click.argument("file")
@trace_options
@_LIMIT
def info(file: str, **options: Any) -> None:
    """Summarise FILE: jobs, tasks, users, times, demands, machines.

    FILE is the file or directory of a trace, or the name of a synthetic workload: model, poisson, batch, bursts, hrm.

    \b
    Examples:
      flowsched trace info jobs.swf
      flowsched trace info jobs.csv --machines 32xcpu=4,mem=16384
    """
    workload = load(file, options)
    out = endings.Out()
    named = (
        "the bundled model"
        if file == "model"
        else sim.SYNTHETIC.get(file) or recognised(file, options["format"], table=options["columns"] is not None).title
    )
    out.print(Text(f"{workload.name}: {named}", style="bold"))
    for note in getattr(workload, "notes", ()):
        out.print(f"Note: {note}.", style="dim")
    print_tables(out, describe(workload))


@trace.command("convert")
@click.argument("file")
@click.argument("out", type=endings.FILE)
@trace_options
@_LIMIT
def convert(file: str, out: Path, **options: Any) -> None:
    """Write the trace FILE to OUT, as CSV or JSON lines.

    OUT ends with .csv, .jsonl, .csv.gz or .jsonl.gz.  The machines of x.csv go to x.machines.csv.

    \b
    Examples:
      flowsched trace convert jobs.swf jobs.csv
      flowsched trace convert openb openb33.jsonl.gz --variant gpuspec33
    """
    endings.check_files({"OUT": out}, {"FILE": None if file == "model" or file in sim.SYNTHETIC else Path(file)})
    workload = load(file, options)
    sim.write_trace(workload, out)
    endings.Words().print(f"{out}: {workload.n_tasks:,} tasks, {len(workload.machines):,} machines", soft_wrap=True)


@trace.command("formats")
def formats() -> None:
    """List the formats of traces, and the variants of each."""
    rows = []
    for known in sim.TRACE_FORMATS.values():
        variants = "one per list of pods" if known.variants is None else ", ".join(known.variants)
        rows.append((known.name, known.title + (f"; variants: {variants}" if variants else "")))
    print_tables(endings.Out(), [Table("Formats of traces", ("name", ""), rows)])


def describe(workload: Workload) -> list[Table]:
    """Return tables of a workload's jobs, times, demands and machines."""
    return [_contents(workload), _times(workload), _demands(workload), *_machines(workload)]


def _contents(workload: Workload) -> Table:
    arrivals = workload.arrivals
    tasks = [task for arrival in arrivals for task in arrival.job.tasks]
    gangs = [a.job.gang for a in arrivals if a.job.gang]
    priorities = Counter(arrival.job.priority for arrival in arrivals)
    users = Counter(arrival.job.user for arrival in arrivals if arrival.job.user is not None)
    constraints = Counter(label for task in tasks for label in task.constraints)
    rows = [
        ("jobs", f"{len({arrival.job.id for arrival in arrivals}):,}"),
        ("tasks", f"{len(tasks):,}"),
        ("span of arrivals", duration(arrivals[-1].time - arrivals[0].time) if arrivals else "-"),
        ("users", f"{len(users):,}" + (f"; the busiest has {max(users.values()):,} jobs" if users else "")),
        ("gangs", f"{len(gangs):,}" + (f"; the largest has {max(gangs):,} tasks" if gangs else "")),
        ("priorities", ", ".join(f"{level}: {n:,} jobs" for level, n in sorted(priorities.items())[:_MOST])),
        ("constraints", ", ".join(f"{label}: {n:,} tasks" for label, n in constraints.most_common(4)) or "none"),
        ("estimates of run time", f"{sum(task.duration is not None for task in tasks):,} tasks"),
        *_by_model(workload),
        ("machines", f"{len(workload.machines):,}" if workload.machines else "none in the trace; give --machines"),
    ]
    added = sum(isinstance(event, MachineAdded) for event in workload.machine_events)
    if workload.machine_events:
        rows.append(("events of machines", f"{len(workload.machine_events):,}; {added:,} add one"))
    return Table("Contents", ("", ""), rows)


def _by_model(workload: Workload) -> list[tuple[str, str]]:
    if not workload.run_times:
        return []
    models = sorted({model for times in workload.run_times.values() for model in times})
    return [("run times by GPU model", f"{len(workload.run_times):,} tasks; {', '.join(models)}")]


_POINTS = ("least", "p50", "p90", "p99", "most", "mean")


def _points(values: NDArray[np.float64]) -> list[float]:
    if not len(values):
        return [math.nan] * len(_POINTS)
    # Of infinite values the percentiles lie on given ones, since the distance between two is not a number.
    points = np.percentile(values, (0, 50, 90, 99, 100), method="nearest" if np.isinf(values).any() else "linear")
    return [*points.tolist(), float(values.mean())]


def _times(workload: Workload) -> Table:
    gaps = np.diff([arrival.time for arrival in workload.arrivals])
    lengths = np.array([d for arrival in workload.arrivals for d in arrival.durations])
    rows = [(name, *map(duration, _points(v))) for name, v in (("run time", lengths), ("between arrivals", gaps))]
    return Table("Times", ("", *_POINTS), rows)


def _demands(workload: Workload) -> Table:
    """Return the demands of the tasks that request a resource."""
    resources = Resources(workload.resources)
    found = Counter(
        tuple(resources.demand("demand", task.demand).tolist()) for a in workload.arrivals for task in a.job.tasks
    )
    demands = np.array(list(found), np.float64).reshape(-1, len(workload.resources)) / MICRO
    count = np.fromiter(found.values(), np.int64, len(found))
    load = workload.load() if workload.machines or workload.machine_events else None
    rows = []
    for i, name in enumerate(workload.resources):
        asking = demands[:, i] > 0
        values = _points(np.repeat(demands[asking, i], count[asking]))
        unit = workload.units.get(name, "")
        cells = [amount(v, unit if unit == "MiB" else "") if not math.isnan(v) else "-" for v in values]
        offered = [f"{100 * load[name].mean:.3g} %", f"{100 * load[name].peak:.3g} %"] if load else []
        label = resource_label(name) + (f", {unit}" if unit not in ("", "MiB") else "")
        rows.append((label, f"{int(count[asking].sum()):,}", *cells, *offered))
    loads = ("load, mean", "peak") if load else ()
    return Table("Demands of the tasks that ask for it", ("", "tasks", *_POINTS, *loads), rows)


def _machines(workload: Workload) -> list[Table]:
    if not workload.machines:
        return []
    shapes: Counter[tuple[tuple[float, ...], tuple[tuple[str, str], ...]]] = Counter()
    for machine in workload.machines:
        shapes[_vector(machine.capacity, workload.resources), tuple(sorted(machine.labels.items()))] += 1
    rows = [
        (
            f"{n:,} machines",
            *(amount(c, workload.units.get(r, "")) for c, r in zip(capacity, workload.resources, strict=True)),
            ", ".join(f"{label} {value}" for label, value in labels),
        )
        for (capacity, labels), n in shapes.most_common(_MOST)
    ]
    if more := len(shapes) - len(rows):
        rest = sum(n for _, n in shapes.most_common()[_MOST:])
        rows.append((f"{rest:,} machines", *[""] * len(workload.resources), f"of {more:,} further shapes"))
    columns = ("", *map(resource_label, workload.resources), "")
    return [Table("Machines, and what each has", columns, rows, notes=True)]


def _vector(amounts: Mapping[str, float] | Sequence[float], resources: Sequence[str]) -> tuple[float, ...]:
    if isinstance(amounts, Mapping):
        return tuple(float(amounts.get(name, 0.0)) for name in resources)
    return tuple(map(float, amounts))
