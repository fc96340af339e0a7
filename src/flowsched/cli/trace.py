"""``flowsched trace``: what is in a trace, and the same trace in another format."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from rich.table import Table as Grid
from rich.text import Text

from flowsched import sim
from flowsched.cli import endings
from flowsched.cli.endings import BadInput
from flowsched.exceptions import FlowschedError
from flowsched.sim.summary import Table
from flowsched.sim.traces.describe import describe
from flowsched.sim.traces.load import recognised

_OPTIONS = (
    click.option(
        "--format",
        metavar="NAME",
        help=f"Format of the trace, if its contents do not tell: {', '.join(sim.TRACE_FORMATS)}.",
    ),
    click.option(
        "--variant",
        metavar="NAME",
        help="openb: the list of pods (default, gpuspec33, ...). swf: nodes or pool. gavel: v100, p100 or k80.",
    ),
    click.option(
        "--machines",
        metavar="WHAT",
        help="Machines instead of the trace's: 32xcpu=4,mem=16384 (and more after a +), or a CSV file.",
    ),
)


def trace_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of commands that read a trace."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def load(path: str, options: dict[str, Any]) -> sim.Workload:
    """Return a trace, or end with one line."""
    try:
        work = sim.load_trace(path, options["format"], variant=options["variant"], machines=options["machines"])
        return work if options["limit"] is None else work.head(options["limit"])
    except FlowschedError as error:
        raise BadInput(str(error)) from None


_NAME = 40
"""Characters of the first column that the others leave it."""

_WIDE = 9
"""Columns of figures from which on each word of a header has its line; so it has where the table is too wide."""


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


_LIMIT = click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N tasks.")


@click.group("trace", cls=endings.Group)
def trace() -> None:
    """Say what is in a trace, or write it in another format.

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
    """Say what is in FILE: jobs, tasks, users, times, demands, machines.

    FILE is the file or directory of a trace, or the name of a synthetic workload: model, poisson, batch, bursts, hrm.

    \b
    Examples:
      flowsched trace info jobs.swf
      flowsched trace info jobs.csv --machines 32xcpu=4,mem=16384
    """
    workload = load(file, options)
    out = endings.Out()
    named = (
        "the bundled model" if file == "model" else sim.SYNTHETIC.get(file) or recognised(file, options["format"]).title
    )
    out.print(Text(f"{workload.name}: {named}", style="bold"))
    for note in getattr(workload, "notes", ()):
        out.print(f"Note: {note}.", style="dim")
    print_tables(out, describe(workload))


@trace.command("convert")
@click.argument("file")
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
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
    try:
        sim.write_trace(workload, out)
    except FlowschedError as error:
        raise BadInput(str(error)) from None
    endings.Words().print(f"{out}: {workload.n_tasks:,} tasks, {len(workload.machines):,} machines", soft_wrap=True)


@trace.command("formats")
def formats() -> None:
    """List the formats of traces, and the variants of each."""
    rows = []
    for known in sim.TRACE_FORMATS.values():
        variants = "one per list of pods" if known.variants is None else ", ".join(known.variants)
        rows.append((known.name, known.title + (f"; variants: {variants}" if variants else "")))
    print_tables(endings.Out(), [Table("Formats of traces", ("name", ""), rows)])
