"""``flowsched bench``: run an experiment, print its rows, and keep them as JSON and plots."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from flowsched import experiments
from flowsched.boundary.files import replace
from flowsched.cli import endings
from flowsched.cli.bench_all import WITH_DATA, bench_all
from flowsched.cli.compare import compare
from flowsched.cli.endings import BadInput
from flowsched.experiments.rows import Keep, Outcome, shown

__all__ = ["bench"]

_WRONG, _FAILED = 1, 2

_ENDS = """
    \b
    Exit status:
      0    done, however slow
      1    a wrong result: an optimum that differs, an invariant broken
      2    the command line is wrong, or an input cannot be read
      74, 130, 141  as `flowsched --help` says

    A measurement that breaks off, by Ctrl-C or an error, prints and writes the rows that it has.
"""

_ABOUT = {
    "solver": "The solver beside other solvers, on drawn networks or your own DIMACS files.",
    "sirius": "Fairness, placement, priority, latency and resource cost, as in the Sirius paper.",
    "fgm": "Makespans, job times and fairness beside FIFO, Capacity, Fair and DRF, as in the FGM paper.",
    "hrm": "Several schedulers over a shared state, queues, Mesos and YARN, streams, as in the HRM paper.",
    "sequence": "Proportional sharing over time, with the tables of the source recomputed.",
    "openb": "GPUs allocated at saturation, beside FGD and five other policies.",
    "decision": "What one event costs, on 1,000 to 100,000 machines, part by part.",
    "round": "A round of a cluster of 12,500 machines and 150,000 tasks, phase by phase.",
    "backlog": "What starts when more waits than runs, beside FIFO, first fit, EASY, SJF and DRF.",
}
_MORE = {
    "solver": """
    With FILEs (DIMACS .min, plain or gzipped) each is solved cold by flowsched and by every peer that is installed, in
    turn, the build included; answers must be equal, "infeasible" is one. A row has the ratio to the best peer, the last
    rows their geometric mean and the worst.

    \b
    Examples:
      flowsched bench solver --quick
      flowsched bench solver one.min other.min.gz --json mine.json
    """,
    "sirius": """
    With --data DIR jobs are as large as those of the Google trace of 2011 in DIR/google2011, otherwise drawn. A note says
    where the trace can be had.
    """,
    "hrm": """
    With --data DIR micro-batches are those of DIR/azure_llm2023/AzureLLMInferenceTrace_code.csv, otherwise drawn. A note
    says where it can be had.
    """,
    "openb": """
    With --data DIR it measures the trace in DIR/openb, otherwise the bundled model of it. A note says where the trace
    can be had.
    """,
    "decision": """
    With --data DIR it runs the trace in DIR/openb, otherwise the bundled model of it.
    """,
    "backlog": """
    With --data DIR it also starts the tasks of the trace in DIR/openb at once.
    """,
}


class _Experiments(endings.Group):
    """The group whose error on an unknown name lists those that there are."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See `click.Group.resolve_command`."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            ctx.fail(f"no measurement {args[0]!r}; there are {', '.join(self.commands)}")
        return super().resolve_command(ctx, args)


@click.group("bench", cls=_Experiments)
def bench() -> None:
    """Repeat a measurement, or compare two.

    Prints the rows as a table: the figure, the baseline of the same run, their ratio, and the figure of the published
    source; then the environment of the measurement.

    \b
    Examples:
      flowsched bench solver --quick
      flowsched bench solver one.min other.min.gz --json mine.json
      flowsched bench all --site site --quick
      flowsched bench compare before.json after.json --worse-than 10
    """


@dataclass(frozen=True)
class _Outputs:
    """Files to write, and the words on the way."""

    json_file: Path | None
    benchmark_file: Path | None
    plots: Path | None
    quiet: bool


def _command(name: str) -> click.Command:
    """Return the command of an experiment."""

    def run(
        quick: bool,
        seed: int,
        json_file: Path | None,
        benchmark_file: Path | None,
        plots: Path | None,
        quiet: bool,
        data: Path | None = None,
        files: tuple[Path, ...] = (),
        repeats: int = 3,
    ) -> None:
        def measure(experiment: ModuleType, say: Callable[[str], None], keep: Keep) -> Outcome:
            if files:
                outcome: Outcome = experiment.run_files(files, repeats=1 if quick else repeats, say=say, keep=keep)
                return outcome
            return experiments.run(experiment, quick=quick, seed=seed, say=say, data=data, keep=keep)

        facts = {"quick": quick, "seed": seed} | ({"files": [str(path) for path in files]} if files else {})
        _run(name, measure, facts, _Outputs(json_file, benchmark_file, plots, quiet))

    command = click.command(name, cls=endings.Command, help=f"{_ABOUT[name]}\n{_MORE.get(name, '')}\n{_ENDS}")(run)
    file = click.Path(dir_okay=False, path_type=Path)
    folder = click.Path(file_okay=False, path_type=Path)
    command.params += [
        click.Option(["--quick"], is_flag=True, help="Smaller and fewer: about a minute."),
        click.Option(["--seed"], type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all random numbers."),
        click.Option(["--json", "json_file"], type=file, metavar="FILE", help="Write the rows and the environment."),
        click.Option(
            ["--pytest-benchmark", "benchmark_file"], type=file, metavar="FILE",
            help="Write the rows that are seconds as pytest-benchmark's JSON.",
        ),
        click.Option(["--plots"], type=folder, metavar="DIR", help="Write plots."),
        click.Option(["--quiet"], is_flag=True, help="Print no progress."),
    ]  # fmt: skip
    if name in WITH_DATA:
        command.params.append(
            click.Option(["--data"], type=folder, metavar="DIR", help="Directory of recorded inputs, for more rows.")
        )
    if name == "solver":
        command.params += [
            click.Argument(["files"], nargs=-1, metavar="[FILE]...", type=file),
            click.Option(
                ["--repeats"], type=click.IntRange(min=1), default=3, show_default=True,
                help="Turns of each solver on a FILE; the least time counts.",
            ),
        ]  # fmt: skip
    return command


for _name in experiments.NAMES:
    bench.add_command(_command(_name))
bench.add_command(compare)
bench.add_command(bench_all)


def _run(
    name: str,
    measure: Callable[[ModuleType, Callable[[str], None], Keep], Outcome],
    facts: dict[str, Any],
    outputs: _Outputs,
) -> None:
    """Measure, write, print, and exit; the rows so far if the measurement breaks off."""
    from flowsched.experiments.environment import environment

    console = endings.Words(outputs.quiet)
    endings.check_files({"--json": outputs.json_file, "--pytest-benchmark": outputs.benchmark_file})
    begin = time.monotonic()
    so_far: list[Callable[[], Outcome]] = []

    def say(line: str) -> None:
        console.print(f"{time.monotonic() - begin:7.1f} s  {line}", soft_wrap=True, style="dim")

    try:
        experiment = experiments.load(name)
        facts = {"experiment": name, "title": experiment.TITLE} | facts | {"environment": environment(experiment)}
        try:
            outcome = measure(experiment, say, so_far.append)
        except BaseException as error:
            rows = so_far[0]() if so_far else Outcome()
            if rows.rows:
                rows.notes.append(f"Broken off ({type(error).__name__}): these are the rows until then.")
                _finish(experiment, facts | {"complete": False}, rows, outputs, console)
            raise
        _finish(experiment, facts | {"complete": True}, outcome, outputs, console)
    except ImportError as missing:
        package = (missing.name or "").partition(".")[0]
        if not package or package == "flowsched":
            raise
        raise BadInput(f"{package} is missing, which this needs: pip install 'flowsched[bench,plot]'") from None
    except FileNotFoundError as missing:  # recorded inputs
        raise BadInput(str(missing)) from None
    for word, lines in (("WRONG", outcome.wrong), ("FAILED", outcome.failed)):
        for line in lines:
            endings.Words().print(f"{word}: {line}", style="bold red", soft_wrap=True)
    if outcome.wrong or outcome.failed:
        sys.exit(_WRONG if outcome.wrong else _FAILED)


def _finish(
    experiment: ModuleType, facts: dict[str, Any], outcome: Outcome, outputs: _Outputs, console: endings.Words
) -> None:
    """Write the files that are asked for, then print the rows."""
    from flowsched.experiments.stored import as_pytest_benchmark

    if hasattr(experiment, "versions"):
        facts["environment"]["peers"] |= experiment.versions()
    if outputs.json_file is not None:
        replace(outputs.json_file, json.dumps(facts | outcome.as_dict(), indent=1) + "\n")
    if outputs.benchmark_file is not None:
        told = as_pytest_benchmark(facts, outcome.rows)
        replace(outputs.benchmark_file, json.dumps(told, indent=1) + "\n")
    if outputs.plots is not None and facts["complete"]:
        for path in _plotted(experiment, outcome, outputs.plots):
            console.print(f"Plot: {path}", soft_wrap=True)
    _print(experiment.TITLE, outcome, facts["environment"])


def _plotted(experiment: ModuleType, outcome: Outcome, folder: Path) -> list[Path]:
    """Draw the plots; each file is written whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as beside:
        drawn: list[Path] = experiment.plot(outcome, Path(beside))
        for path in drawn:
            replace(folder / path.name, path.read_bytes())
    return [folder / path.name for path in drawn]


def _print(title: str, outcome: Outcome, environment: dict[str, Any]) -> None:
    from flowsched.experiments.environment import lines

    out = endings.Out(width=180)
    columns = ["setting", "metric", "value", "baseline", "ratio", "source", "note"]
    cells = [
        [
            row.setting,
            row.metric,
            shown(row.value, row.unit),
            shown(row.baseline, row.unit),
            shown(row.ratio),
            shown(row.source_value, row.unit),
            row.note,
        ]
        for row in outcome.rows
    ]
    grid = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for i, column in enumerate(columns):
        if i < 3 or any(line[i] for line in cells):
            grid.add_column(column, justify="right" if 2 <= i <= 5 else "left", header_style="dim", no_wrap=2 <= i <= 5)
    used = [i for i in range(len(columns)) if i < 3 or any(line[i] for line in cells)]
    for line in cells:
        grid.add_row(*(Text(line[i]) for i in used))
    out.print(grid)
    for note in outcome.notes:
        out.print(f"Note: {note}", style="dim")
    for text in lines(environment):
        out.print(text, style="dim", soft_wrap=True)
