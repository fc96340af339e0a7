"""``flowsched measure``: how far this machine's CPUs may be compressed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
from rich.table import Table

from flowsched.boundary import private
from flowsched.boundary.files import replace
from flowsched.cli import endings
from flowsched.cli.endings import BadInput
from flowsched.fgm.limits import DEFAULT, Limits, place
from flowsched.fgm.limits import measure as measured

_AGAIN = 1


@click.command("measure", cls=endings.Command)
@click.option("--show", is_flag=True, help="Measure nothing: print the stored limits, and whether they still hold.")
@click.option(
    "--output", type=endings.FILE, metavar="FILE", help="File of the limits.  [default: the one that --learn reads]"
)
@click.option(
    "--seconds", type=click.FloatRange(0.1, 60), default=1.5, show_default=True, help="Time of each of 24 steps."
)
@click.option("--quiet", is_flag=True, help="Print errors only.")
def measure(show: bool, output: Path | None, seconds: float, quiet: bool) -> None:
    """Measure this machine's limits of compression, for `flowsched run --learn`.

    Processes that each want a tenth of a CPU run in growing numbers, up to 1.4 times what there is.  The limit is how
    much CPU tasks may lack without a loss for all of them together; the contention is the loss beyond it.  It takes
    less than a minute, in which nothing else should use this machine.  Measure again after a change of the hardware or
    the kernel; --learn and --show say so.

    \b
    Exit status:
      0    measured and stored; with --show: the stored limits hold
      1    not stored, since others used the CPUs meanwhile; with --show: measure again
      2, 74, 130, 141  as `flowsched --help` says
    """
    if not sys.platform.startswith("linux"):
        raise BadInput("measure: CPUs are measured on Linux only; elsewhere the limit is 10 %")
    path, words = place() if output is None else output, endings.Words(quiet)
    if show:
        if not path.exists():
            click.echo(f"{path}: nothing was measured; the limit is {DEFAULT:.0%}.", err=True)
            sys.exit(_AGAIN)
        limits = Limits.read(path)
        _print(limits, quiet)
        if why := limits.stale():
            click.echo(f"Measure again: {why}.", err=True)
            sys.exit(_AGAIN)
        return
    limits = measured(seconds, say=lambda line: words.print(line, style="dim"))
    _print(limits, quiet)
    if limits.doubtful:
        click.echo(
            f"Not stored: others used {limits.busy:.0%} of the CPUs.  Measure again when the machine is idle; until then "
            f"the limit is {DEFAULT:.0%}.", err=True,
        )  # fmt: skip
        sys.exit(_AGAIN)
    private.made(path.absolute().parent)
    replace(path, limits.text(), private.MODE)
    if not quiet:
        click.echo(f"Stored in {path}.")


def _print(limits: Limits, quiet: bool) -> None:
    if quiet:
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("demand", "performance"):
        table.add_column(name, justify="right")
    for demand, performance in limits.levels:
        table.add_row(f"{demand:.0%}", f"{performance:.1%}")
    out = endings.Out()
    out.print(table)
    on = ", ".join(f"{name} {value}" for name, value in limits.machine.items())
    out.print(f"limit {limits.compression:.1%}, contention {limits.contention:g}")
    out.print(f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(limits.measured))}: {on}", soft_wrap=True)
