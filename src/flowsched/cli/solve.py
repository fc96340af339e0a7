"""``flowsched solve``: a DIMACS problem in, a DIMACS solution out; an incremental stream of them; or solvers compared."""

from __future__ import annotations

import statistics
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
import numpy as np

from flowsched.boundary.files import replace
from flowsched.cli.endings import BadInput, Command, check_files, shortened
from flowsched.cli.solvers import ALGORITHMS, Solve, differences, flowsched_once, installed, take_turns
from flowsched.exceptions import (
    CostRangeError,
    DimacsError,
    InfeasibleError,
    InputError,
    TimeLimitError,
    UnboundedError,
)
from flowsched.network.certificate import certify
from flowsched.network.dimacs import LIMIT, read_dimacs
from flowsched.network.dimacs_stream import IncrementalSession
from flowsched.network.one_shot import min_cost_flow
from flowsched.network.problem import FlowProblem
from flowsched.network.results import Algorithm, FlowResult

if TYPE_CHECKING:
    from typing import BinaryIO

_TURNS = 5
"""Turns of each solver under --compare."""

MALFORMED, INFEASIBLE, UNBOUNDED, TIME_LIMIT = 1, 3, 4, 5  # 2 is click's, for a wrong command line
DIFFERENT = 1  # --compare: answers differ; a malformed file, or one with numbers too large, is `BadInput` there
_EXIT_CODES: dict[type[Exception], int] = {
    DimacsError: MALFORMED,
    InputError: MALFORMED,
    CostRangeError: MALFORMED,
    InfeasibleError: INFEASIBLE,
    UnboundedError: UNBOUNDED,
    TimeLimitError: TIME_LIMIT,
}


@click.command("solve", cls=Command)
@click.argument("files", type=click.File("rb"), nargs=-1, metavar="[FILE]...")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path), default="-", metavar="FILE",
    help="Output file (by default the standard output).",
)  # fmt: skip
@click.option(
    "--algorithm", type=click.Choice(ALGORITHMS), default="auto", show_default=True,
    help="Algorithm; all find the same cost.",
)  # fmt: skip
@click.option(
    "--time-limit", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Time limit (of each round)."
)
@click.option("--certify", "certified", is_flag=True, help="Check bounds, conservation and optimality of the solution.")
@click.option(
    "--max-bytes", "limit", type=click.IntRange(min=1), default=LIMIT, show_default=True, metavar="N",
    help="Limit on the size of FILE, after decompression.",
)  # fmt: skip
@click.option("--incremental", is_flag=True, help="Read an incremental DIMACS stream from the standard input.")
@click.option(
    "--assignments",
    is_flag=True,
    help="With --incremental: answer with lines m TASK UNIT instead of the flow and its cost.",
)
@click.option(
    "--compare", is_flag=True, help="Time all algorithms, and the other solvers that are installed, on each FILE."
)
def solve(
    files: tuple[BinaryIO, ...],
    output: Path,
    algorithm: Algorithm,
    time_limit: float | None,
    certified: bool,
    limit: int,
    incremental: bool,
    assignments: bool,
    compare: bool,
) -> None:
    """Solve a DIMACS minimum-cost flow problem (FILE.min, FILE.min.gz, or - for the standard input).

    Prints the solution in the DIMACS form: comments (c), the cost (s COST) and a line for each arc that carries flow
    (f TAIL HEAD FLOW), in the order of the file.

    With --incremental, reads a problem and then rounds of changes to it, and answers each at once. Rounds end with
    "c EOI", the stream with "c EOS" or the end of the input:

    \b
      p min NODES ARCS                                     n NODE SUPPLY [TYPE]
      a TAIL HEAD LOWER CAPACITY COST [TYPE]               r NODE (removes it with its arcs)
      x TAIL HEAD LOWER CAPACITY COST [TYPE [OLD_COST]]    d SUPPLY [POTENTIAL] ARCS [TYPE]
    \b
      answers: f TAIL HEAD FLOW ..., s COST; or m TASK UNIT ...; then c ALGORITHM TIME MICROSECONDS, c EOI

    With --compare, solves each FILE several times by every algorithm, and by OR-tools and pylmcf if they are installed.
    Each starts from scratch. Prints the median and the mean of the CPU times, the build included; answers must be equal.

    \b
    Exit status:
      0    an optimum was found (in every round); with --compare, the answers are equal
      1    the file is malformed, or its numbers are too large for exact arithmetic; with --compare, answers differ
      2    the command line is wrong; with --compare, a file is malformed, or its numbers are too large
      3    no flow meets the supplies within the bounds (an answer under --compare)
      4    the cost has no minimum (an answer under --compare)
      5    the time limit passed
      74   the system refuses: a full disk, a closed stream, no memory
      130  interrupted
      141  the reader of the answers is gone
    """
    if assignments and not incremental:
        raise click.UsageError("--assignments needs --incremental")
    if compare and (incremental or certified or algorithm != "auto"):
        raise click.UsageError("--compare runs every algorithm once a turn: no --incremental, --certify or --algorithm")
    if len(files) > 1 and not compare:
        raise click.UsageError("several FILEs need --compare")
    file = files[0] if files else None
    name = getattr(file, "name", "<stdin>")
    if file is None:
        if not incremental:
            raise click.UsageError("Missing argument 'FILE' (only --incremental does without).")
        file = sys.stdin.buffer
    to = None if str(output) == "-" else output
    inputs = [Path(str(each.name)) for each in files if each is not sys.stdin.buffer]
    check_files({"--output": to}, {f"FILE {i + 1}" if i else "FILE": path for i, path in enumerate(inputs)})
    if compare:
        texts, statuses = zip(*(_compared(each, limit, time_limit) for each in files), strict=True)
        if to is None:
            sys.stdout.write("\n".join(texts))
        else:
            replace(to, "\n".join(texts))
        for status in (DIFFERENT, BadInput.exit_code, TIME_LIMIT):
            if status in statuses:
                sys.exit(status)
        return
    try:
        if not incremental:
            text = _solve_file(file, limit, algorithm, time_limit, certified)
            if to is None:
                sys.stdout.write(text)
            else:
                replace(to, text)
            return
        # Each answer is passed on as it comes, to a file, too.
        with nullcontext(sys.stdout) if to is None else open(to, "w") as writer:
            IncrementalSession(
                file, writer, assignments=assignments, algorithm=algorithm, time_limit=time_limit, certified=certified
            ).run()
    except tuple(_EXIT_CODES) as error:
        _fail(name, error, str(error) if incremental else _words(error))  # a stream's errors name all


def _solve_file(file: BinaryIO, limit: int, algorithm: Algorithm, time_limit: float | None, certified: bool) -> str:
    problem = read_dimacs(file, limit=limit)
    result = min_cost_flow(**problem.arguments(), algorithm=algorithm, time_limit=time_limit)
    if certified:
        certify(problem.tail, problem.head, problem.capacity, problem.cost, problem.supply, result, lower=problem.lower)
    return _solution(problem, result, certified)


def _compared(file: BinaryIO, limit: int, time_limit: float | None) -> tuple[str, int]:
    """Return the table of a file and its exit status."""
    try:
        problem = read_dimacs(file, limit=limit)
    except DimacsError as error:
        return f"{file.name}: {shortened(str(error))}\n", BadInput.exit_code
    ours: dict[str, Solve] = {
        f"flowsched, {each}": partial(flowsched_once, algorithm=each, time_limit=time_limit) for each in ALGORITHMS
    }
    first = next(iter(ours))
    turns = take_turns(problem, ours, installed(), _TURNS)
    answer = turns[first].answer
    lines = [
        f"{file.name}: {len(problem.supply):,} nodes, {len(problem.tail):,} arcs, "
        + ("no answer" if answer is None else f"answer {answer}"),
        f"  {'solver':28} {'turns':>5} {'median, ms':>12} {'mean, ms':>12}",
    ]
    for name, turn in turns.items():
        if turn.error:
            lines.append(f"  {name:28} {shortened(str(turn.error))}")
        else:
            median, mean = 1e3 * statistics.median(turn.seconds), 1e3 * statistics.fmean(turn.seconds)
            lines.append(f"  {name:28} {len(turn.seconds):5} {median:12.3f} {mean:12.3f}")
    wrong = differences(problem, first, turns)
    status = DIFFERENT if wrong else 0
    if not wrong and answer is None:
        status = TIME_LIMIT if isinstance(turns[first].error, TimeLimitError) else BadInput.exit_code
    return "\n".join([*lines, *(f"  WRONG: {line}" for line in wrong)]) + "\n", status


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


def _words(error: Exception) -> str:
    """Return a text for a fault of a file; its nodes and arcs are counted from 1."""
    if isinstance(error, InfeasibleError) and error.cut.any() and not error.cut.all():
        senders = _some("node", np.flatnonzero(error.cut))
        more = f"{error.shortfall} unit{'s' if error.shortfall != 1 else ''}"
        if not len(error.arcs):
            return f"no flow meets the supplies: {senders} must send {more}, and no arc leads out"
        return f"no flow meets the supplies: {senders} must send {more} more than {_some('arc', error.arcs)} can carry"
    if isinstance(error, UnboundedError):
        return f"{error} ({_some('arc', error.cycle)})"
    return str(error)


def _fail(name: str, error: Exception, what: str) -> NoReturn:
    """Write an error in one line, and exit with its status."""
    click.echo(f"flowsched solve: {name}: {shortened(what)}", err=True)
    sys.exit(next(code for kind, code in _EXIT_CODES.items() if isinstance(error, kind)))


def _some(what: str, numbers: np.ndarray, most: int = 8) -> str:
    """Return the first few of nodes or arcs as a DIMACS file counts them, from 1."""
    shown = " ".join(str(number + 1) for number in numbers[:most].tolist())
    return f"{what}{'s' if len(numbers) != 1 else ''} {shown}" + (
        f" ... of {len(numbers)}" if len(numbers) > most else ""
    )
