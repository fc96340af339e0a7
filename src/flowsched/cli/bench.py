"""``flowsched bench``: run an experiment, print its rows, and keep them as JSON and plots."""

from __future__ import annotations

import json
import platform
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from rich.table import Table
from rich.text import Text

import flowsched
from flowsched import experiments
from flowsched.boundary.files import replace
from flowsched.cli import endings
from flowsched.cli.endings import BadInput
from flowsched.experiments.rows import Outcome, shown

__all__ = ["bench"]

_WRONG = 1


@click.command("bench", cls=endings.Command)
@click.argument("name", metavar="NAME", type=click.Choice(experiments.NAMES))
@click.option("--quick", is_flag=True, help="Smaller and fewer: about a minute.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all random numbers.")
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write the rows."
)
@click.option("--plots", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Write plots.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("../shared/data"),
    show_default=True,
    metavar="DIR",
    help="Directory of the recorded inputs that some experiments need.",
)
@click.option("--quiet", is_flag=True, help="Print no progress.")
def bench(
    name: str, quick: bool, seed: int, json_file: Path | None, plots: Path | None, data: Path, quiet: bool
) -> None:
    """Repeat a measurement: NAME is one of solver, sirius, fgm, hrm, sequence, openb, round.

    Prints the rows as a table: the figure, the baseline of the same run, their ratio, and the figure of the published
    source.

    \b
    Examples:
      flowsched bench solver --quick
      flowsched bench solver --json solver.json --plots plots
      flowsched bench openb --data DIR

    \b
    Exit status:
      0    done, however slow
      1    a wrong result: an optimum that differs, an invariant broken
      2    the command line is wrong, or an input of the experiment is missing
      74, 130, 141  as `flowsched --help` says
    """
    console = endings.Words(quiet)
    endings.check_files({"--json": json_file})
    begin = time.monotonic()

    def say(line: str) -> None:
        console.print(f"{time.monotonic() - begin:7.1f} s  {line}", soft_wrap=True, style="dim")

    try:
        experiment = experiments.load(name)
        outcome = experiments.run(experiment, quick=quick, seed=seed, say=say, data=data)
        if json_file is not None:
            facts = {"experiment": name, "title": experiment.TITLE, "quick": quick, "seed": seed} | _environment()
            replace(json_file, json.dumps(facts | outcome.as_dict(), indent=1) + "\n")
        if plots is not None:
            for path in _plotted(experiment, outcome, plots):
                console.print(f"Plot: {path}", soft_wrap=True)
    except ImportError as missing:
        package = (missing.name or "").partition(".")[0]
        if not package or package == "flowsched":
            raise
        raise BadInput(f"{package} is missing, which this needs: pip install 'flowsched[bench,plot]'") from None
    except FileNotFoundError as missing:  # recorded inputs
        raise BadInput(str(missing)) from None
    _print(experiment.TITLE, outcome)
    for line in outcome.wrong:
        endings.Words().print(f"WRONG: {line}", style="bold red", soft_wrap=True)
    if outcome.wrong:
        sys.exit(_WRONG)


def _plotted(experiment: ModuleType, outcome: Outcome, folder: Path) -> list[Path]:
    """Draw the plots; each file is written whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as beside:
        drawn: list[Path] = experiment.plot(outcome, Path(beside))
        for path in drawn:
            replace(folder / path.name, path.read_bytes())
    return [folder / path.name for path in drawn]


def _environment() -> dict[str, Any]:
    return {
        "flowsched": flowsched.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
    }


def _print(title: str, outcome: Outcome) -> None:
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
