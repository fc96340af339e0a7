"""``flowsched solve``: a DIMACS problem in, a DIMACS solution out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

import click
import numpy as np

from flowsched.dimacs import FlowProblem, read_dimacs
from flowsched.exceptions import CostRangeError, DimacsError, InfeasibleError, InputError, TimeLimitError, UnboundedError
from flowsched.network import FlowResult, certify, min_cost_flow

if TYPE_CHECKING:
    from typing import BinaryIO, TextIO

__all__ = ["solve"]

MALFORMED, INFEASIBLE, UNBOUNDED, TIME_LIMIT = 1, 3, 4, 5  # 2 is click's, for a wrong command line
_EXIT_CODES: dict[type[Exception], int] = {
    DimacsError: MALFORMED,
    InputError: MALFORMED,
    CostRangeError: MALFORMED,
    InfeasibleError: INFEASIBLE,
    UnboundedError: UNBOUNDED,
    TimeLimitError: TIME_LIMIT,
}


@click.command("solve")
@click.argument("file", type=click.File("rb"))
@click.option("-o", "--output", type=click.File("w", lazy=True), default="-", help="Where to write the solution.")
@click.option(
    "--algorithm", type=click.Choice(["auto", "repair", "cost_scaling"]), default="auto", show_default=True,
    help="How to solve it; every choice finds the same cost.",
)  # fmt: skip
@click.option("--time-limit", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Stop after so long.")
@click.option("--certify", "certified", is_flag=True, help="Check bounds, conservation and optimality of the solution.")
def solve(file: BinaryIO, output: TextIO, algorithm: str, time_limit: float | None, certified: bool) -> None:
    """Solve a DIMACS minimum-cost flow problem (FILE.min, FILE.min.gz, or - for the standard input).

    Prints the solution in the DIMACS form: comments (c), the cost (s COST) and a line for each arc that carries flow
    (f TAIL HEAD FLOW), in the order of the file.

    \b
    Exit status:
      0  an optimum was found
      1  the file is malformed, or its numbers are too large for exact arithmetic
      2  the command line is wrong
      3  no flow meets the supplies within the bounds
      4  the cost has no minimum
      5  the time limit passed
    """
    try:
        problem = read_dimacs(file)
        result = min_cost_flow(**problem.arguments(), algorithm=algorithm, time_limit=time_limit)
    except tuple(_EXIT_CODES) as error:
        _fail(file.name, error)
    if certified:
        certify(
            problem.tail, problem.head, problem.capacity, problem.cost, problem.supply, result, lower=problem.lower
        )
    output.write(_solution(problem, result, certified))


def _solution(problem: FlowProblem, result: FlowResult, certified: bool) -> str:
    """Return the text of a DIMACS solution."""
    used = np.flatnonzero(result.flow)
    columns = (problem.tail[used] + 1, problem.head[used] + 1, result.flow[used])
    lines = [f"c {len(problem.supply)} nodes, {len(problem.tail)} arcs, {len(used)} of them with flow"]
    if certified:
        lines.append("c certified: bounds, conservation and reduced costs hold")
    lines.append(f"s {result.cost}")
    lines += [f"f {tail} {head} {flow}" for tail, head, flow in zip(*(c.tolist() for c in columns), strict=True)]
    return "\n".join(lines) + "\n"


def _fail(name: str, error: Exception) -> NoReturn:
    """Say in one line what is wrong, and leave with the exit status that stands for it."""
    what = str(error)
    if isinstance(error, InfeasibleError) and error.cut.any():
        what = f"{what} (nodes {_some(np.flatnonzero(error.cut))})"
    elif isinstance(error, UnboundedError):
        what = f"{what} (arcs {_some(error.cycle)})"
    click.echo(f"flowsched solve: {name}: {what}", err=True)
    sys.exit(next(code for kind, code in _EXIT_CODES.items() if isinstance(error, kind)))


def _some(numbers: np.ndarray, most: int = 8) -> str:
    """Spell the first few of ``numbers`` as a DIMACS file counts them, from 1."""
    shown = " ".join(str(number + 1) for number in numbers[:most].tolist())
    return shown if len(numbers) <= most else f"{shown} ... of {len(numbers)}"
