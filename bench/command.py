"""``python -m bench``: run an experiment, print its rows, and keep them as JSON and plots; ``all`` and ``compare``.

``all`` runs every measurement in a process of its own and writes one page of them.  ``compare`` puts two measurements side
by side, row by row.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import click
from rich.table import Table
from rich.text import Text

import bench
from bench import stored
from bench.drawing import style
from bench.environment import environment, lines
from bench.rows import Keep, Outcome, shown
from bench.site import write_site
from flowsched.boundary.files import replace
from flowsched.cli import endings
from flowsched.cli.endings import BadInput

__all__ = ["WITH_DATA", "commands", "main"]

_WRONG, _FAILED = 1, 2

WITH_DATA = ("solver", "sirius", "hrm", "openb", "decision", "backlog")
"""Measurements that read recorded inputs: those that have ``--data``."""

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
    "solver": "The solver compared with other solvers, on drawn networks or your own DIMACS files.",
    "sirius": "Fairness, placement, priority, latency and resource cost, as in the Sirius paper.",
    "fgm": "Makespans, job times and fairness, compared with FIFO, Capacity, Fair and DRF, as in the FGM paper.",
    "real": "Real processes on this machine: plain requests, FGM, and Slurm with the same requests.",
    "hrm": "Several schedulers over a shared state, queues, Mesos and YARN, streams, as in the HRM paper.",
    "sequence": "Proportional sharing over time, with the tables of the source recomputed.",
    "openb": "GPUs allocated at saturation, compared with FGD and five other policies.",
    "decision": "Cost of one event, on 1,000 to 100,000 machines, part by part.",
    "round": "A round of a cluster of 12,500 machines and 150,000 tasks, phase by phase.",
    "backlog": "Starts when more tasks wait than run, compared with FIFO, first fit, EASY, SJF and DRF.",
    "kubernetes": "Pods of a Kubernetes cluster, compared with kube-scheduler on the same API server.",
}
_MORE = {
    "solver": """
    With FILEs (DIMACS .min, plain or gzipped) each is solved cold by flowsched and by every peer that is installed, in
    turn, the build included; answers must be equal, "infeasible" is one. A row has the ratio to the best peer, the last
    rows their geometric mean and the worst.

    \b
    Examples:
      python -m bench solver --quick
      python -m bench solver one.min other.min.gz --json mine.json
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
    "real": """
    Linux only.  It takes three minutes a run, and uses up to one CPU and 660 MiB.  With Slurm's programs installed
    (apt-get install slurm-wlm munge), and pytest, it begins a cluster of its own on this machine.

    \b
    Examples:
      python -m bench real --runs 10 --plots plots
    """,
    "kubernetes": """
    It needs etcd, kube-apiserver and kube-scheduler as tests/run/kube/build.sh of the source tree builds them; without
    them it has no rows, and without kube-scheduler rows of flowsched alone.

    \b
    Examples:
      python -m bench kubernetes --nodes 500 --nodes 2000
      python -m bench kubernetes --shape Preemption --programs DIR
    """,
}


class _Experiments(endings.Group):
    """The group whose error on an unknown name lists the known names."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See `click.Group.resolve_command`."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            ctx.fail(f"no measurement {args[0]!r}; there are {', '.join(self.commands)}")
        return super().resolve_command(ctx, args)


@click.group(
    "bench", cls=_Experiments, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
def commands() -> None:
    """Repeat a measurement, or compare two.

    Prints the rows as a table: the figure, the baseline of the same run, their ratio, and the figure of the published
    source; then the environment of the measurement.

    \b
    Examples:
      python -m bench solver --quick
      python -m bench solver one.min other.min.gz --json mine.json
      python -m bench all --site site --quick
      python -m bench compare before.json after.json --worse-than 10
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
        seed: int | None,
        json_file: Path | None,
        benchmark_file: Path | None,
        plots: Path | None,
        quiet: bool,
        data: Path | None = None,
        files: tuple[Path, ...] = (),
        repeats: int = 3,
        **options: object,
    ) -> None:
        drawn = _drawn() if seed is None else seed

        def measure(experiment: ModuleType, say: Callable[[str], None], keep: Keep) -> Outcome:
            if files:
                outcome: Outcome = experiment.run_files(files, repeats=1 if quick else repeats, say=say, keep=keep)
                return outcome
            return bench.run(experiment, quick=quick, seed=drawn, say=say, data=data, keep=keep, **options)

        facts = {"quick": quick, "seed": drawn} | ({"files": [str(path) for path in files]} if files else {})
        facts |= {"options": _given(options)} if options else {}
        _run(name, measure, facts, _Outputs(json_file, benchmark_file, plots, quiet))

    command = click.command(name, cls=endings.Command, help=f"{_ABOUT[name]}\n{_MORE.get(name, '')}\n{_ENDS}")(run)
    file = click.Path(dir_okay=False, path_type=Path)
    folder = click.Path(file_okay=False, path_type=Path)
    command.params += [
        click.Option(["--quick"], is_flag=True, help="Smaller and fewer: about a minute."),
        click.Option(["--seed"], type=click.IntRange(min=0), help="Seed of all random numbers; by default it is drawn, and printed."),
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
    if name == "real":
        command.params.append(
            click.Option(
                ["--runs"], type=click.IntRange(min=1), default=3, show_default=True,
                help="Runs of each workload under each system.",
            )
        )  # fmt: skip
    if name == "kubernetes":
        from bench.kubernetes.shapes import SHAPES

        command.params += [
            click.Option(
                ["--nodes"], type=click.IntRange(min=1), multiple=True, help="Number of nodes; may be repeated.  [default: 500]",
            ),
            click.Option(
                ["--shape", "shapes"], type=click.Choice([*SHAPES, "GPUs"]), multiple=True,
                help="Workload; may be repeated.  [default: all]",
            ),
            click.Option(
                ["--turns"], type=click.IntRange(min=1), default=3, show_default=True,
                help="Runs of each scheduler up to 1,000 nodes; one beyond.",
            ),
            click.Option(["--programs"], type=folder, metavar="DIR", help="Folder with etcd, apiserver and scheduler."),
        ]  # fmt: skip
    return command


def _given(options: Mapping[str, object]) -> list[str]:
    """Return the options of an experiment's own that were given, as on a command line."""
    found = []
    for name, value in options.items():
        flag = "--shape" if name == "shapes" else f"--{name}"
        each = value if isinstance(value, tuple) else () if value is None else (value,)
        found += [f"{flag} {'DIR' if isinstance(one, Path) else one}" for one in each]
    return found


def _drawn() -> int:
    """Return a random seed, so that the code cannot have been tuned to it."""
    return secrets.randbelow(100_000)


def _run(
    name: str,
    measure: Callable[[ModuleType, Callable[[str], None], Keep], Outcome],
    facts: dict[str, Any],
    outputs: _Outputs,
) -> None:
    """Measure, write, print, and exit; the rows so far if the measurement breaks off."""
    console = endings.Words(outputs.quiet)
    endings.check_files({"--json": outputs.json_file, "--pytest-benchmark": outputs.benchmark_file})
    begin = time.monotonic()
    so_far: list[Callable[[], Outcome]] = []

    def say(line: str) -> None:
        console.print(f"{time.monotonic() - begin:7.1f} s  {line}", soft_wrap=True, style="dim")

    try:
        experiment = bench.load(name)
        say(f"seed {facts['seed']}")
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
        raise BadInput(f"{package} is missing, which this needs: pip install '.[bench,plot]'") from None
    except FileNotFoundError as missing:  # recorded inputs
        raise BadInput(str(missing)) from None
    for word, texts in (("WRONG", outcome.wrong), ("FAILED", outcome.failed)):
        for text in texts:
            endings.Words().print(f"{word}: {text}", style="bold red", soft_wrap=True)
    if outcome.wrong or outcome.failed:
        sys.exit(_WRONG if outcome.wrong else _FAILED)


def _finish(
    experiment: ModuleType, facts: dict[str, Any], outcome: Outcome, outputs: _Outputs, console: endings.Words
) -> None:
    """Write the requested files, then print the rows."""
    if hasattr(experiment, "versions"):
        facts["environment"]["peers"] |= experiment.versions()
    if outputs.json_file is not None:
        replace(outputs.json_file, json.dumps(facts | outcome.as_dict(), indent=1) + "\n")
    if outputs.benchmark_file is not None:
        report = stored.as_pytest_benchmark(facts, outcome.rows)
        replace(outputs.benchmark_file, json.dumps(report, indent=1) + "\n")
    if outputs.plots is not None and facts["complete"]:
        for path in _plotted(experiment, outcome, outputs.plots):
            console.print(f"Plot: {path}", soft_wrap=True)
    _print(outcome, facts)


def _plotted(experiment: ModuleType, outcome: Outcome, folder: Path) -> list[Path]:
    """Draw the plots; each file is written whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, style():
        drawn: list[Path] = experiment.plot(outcome, Path(scratch))
        for path in drawn:
            replace(folder / path.name, path.read_bytes())
    return [folder / path.name for path in drawn]


def _print(outcome: Outcome, facts: dict[str, Any]) -> None:
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
    grid = Table(title=facts["title"], title_justify="left", title_style="bold", box=None, pad_edge=False)
    for i, column in enumerate(columns):
        if i < 3 or any(line[i] for line in cells):
            grid.add_column(column, justify="right" if 2 <= i <= 5 else "left", header_style="dim", no_wrap=2 <= i <= 5)
    used = [i for i in range(len(columns)) if i < 3 or any(line[i] for line in cells)]
    for line in cells:
        grid.add_row(*(Text(line[i]) for i in used))
    out.print(grid)
    for note in outcome.notes:
        out.print(f"Note: {note}", style="dim")
    for text in ([] if "files" in facts else [f"Seed: {facts['seed']}"]) + lines(facts["environment"]):
        out.print(text, style="dim", soft_wrap=True)


@click.command("all", cls=endings.Command)
@click.option(
    "--site",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    required=True,
    help="Write DIR/index.html, and rows and plots below DIR.",
)
@click.option("--quick", is_flag=True, help="Smaller and fewer: about five minutes.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Seed of all random numbers; by default that of DIR's measurements, or drawn.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    metavar="DIR",
    help="Directory of recorded inputs, for more rows.",
)
@click.option("--only", metavar="A,B,...", help=f"Only these of {', '.join(bench.NAMES)}.")
@click.option("--again", is_flag=True, help="Measure again what DIR has.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
def bench_all(
    site: Path, quick: bool, seed: int | None, data: Path | None, only: str | None, again: bool, quiet: bool
) -> None:  # fmt: skip
    """Repeat every measurement, and write one page: statements of publications, and results here.

    What DIR has from a whole run with the same options is kept, so a run that was stopped goes on where it was.  The page
    is rewritten after each measurement.

    \b
    Examples:
      python -m bench all --site site --quick
      python -m bench all --site site --only fgm,openb --data DIR

    \b
    Exit status:
      0    done, however slow
      1    a measurement has a wrong result, or failed; the others are on the page
      2    the command line is wrong
      130  interrupted; the page has what was measured until then
      74, 141  as `flowsched --help` says
    """
    names = bench.NAMES if only is None else tuple(name.strip() for name in only.split(","))
    if unknown := next((name for name in names if name not in bench.NAMES), None):
        raise BadInput(f"--only: no measurement {unknown!r}; there are {', '.join(bench.NAMES)}")
    words, bad = endings.Words(quiet), []
    (site / "data").mkdir(parents=True, exist_ok=True)
    if seed is None:
        kept = [] if again else [_facts(site / "data" / f"{name}.json") for name in bench.NAMES]
        seed = next((facts["seed"] for facts in kept if facts.get("complete") and facts["quick"] == quick), _drawn())
    words.print(f"Seed: {seed}")
    status = 0
    for number, name in enumerate(names, 1):
        begin, rows = time.monotonic(), site / "data" / f"{name}.json"
        if not again and _whole(rows, quick, seed):
            words.print(f"{number}/{len(names)}  {name}: kept", soft_wrap=True)
        else:
            rows.unlink(missing_ok=True)
            shutil.rmtree(site / "plots" / name, ignore_errors=True)
            command = [sys.executable, "-P", "-m", "bench", name, "--seed", str(seed), "--json", str(rows)]
            command += ["--plots", str(site / "plots" / name), "--quiet"] + ["--quick"] * quick
            command += ["--data", str(data)] if data is not None and name in WITH_DATA else []
            status = _in_process(command)
            if status:
                bad.append(f"{name} (exit status {status})")
            words.print(f"{number}/{len(names)}  {name}: {time.monotonic() - begin:.0f} s", soft_wrap=True)
        write_site(site, bench.NAMES)
        if status == endings.INTERRUPTED:
            break
    words.print(f"Page: {site / 'index.html'}", soft_wrap=True)
    for text in bad:
        words.print(f"Not whole: {text}", style="bold red", soft_wrap=True)
    if bad:
        sys.exit(endings.INTERRUPTED if status == endings.INTERRUPTED else 1)


def _facts(rows: Path) -> dict[str, Any]:
    """Return the data of a measurement in a file; none if it cannot be read."""
    try:
        found: dict[str, Any] = json.loads(rows.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def _whole(rows: Path, quick: bool, seed: int) -> bool:
    """Return True if a file has all rows of a measurement with these options."""
    found = _facts(rows)
    return bool(found.get("complete")) and found["quick"] == quick and found["seed"] == seed


def _in_process(command: list[str]) -> int:
    """Run a measurement; it gets each Ctrl-C from here, and ends with the rows that it has."""
    paths = [str(Path(bench.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True, env=environment)
    interrupted = False
    while True:
        try:
            status = process.wait()
        except KeyboardInterrupt:
            interrupted = True
            process.send_signal(signal.SIGINT)
            continue
        return endings.INTERRUPTED if interrupted else status


@click.command("compare", cls=endings.Command)
@click.argument("before", metavar="A", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.argument("after", metavar="B", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.option(
    "--worse-than",
    type=click.FloatRange(min=0),
    metavar="PERCENT",
    help="Exit status 1 if a row of B is worse by more.",
)
@click.option(
    "--by",
    type=click.Choice(["value", "ratio"]),
    default="value",
    show_default=True,
    help="Judged value: the figure, or its ratio to the baseline of the same run.",
)
def compare(before: Path, after: Path, worse_than: float | None, by: Literal["value", "ratio"]) -> None:
    """Compare two measurements: rows of B next to those of A.

    A and B are files of `python -m bench NAME --json`, or of pytest-benchmark. Rows are matched by experiment, setting
    and metric. The table has both values, both ratios to the baseline, and the change from A to B. Then come the rows
    of only one file, and the differences of the environments.

    On another machine, or a busy one, the ratios of a run are steadier than its values: judge --by ratio. A row for
    which neither less nor more is known to be better is shown and not judged.

    \b
    Examples:
      python -m bench compare before.json after.json
      python -m bench compare before.json after.json --worse-than 10

    \b
    Exit status:
      0    done
      1    a row is worse by more than --worse-than
      2    the command line is wrong, or a file has no rows
      74, 130, 141  as `flowsched --help` says
    """
    one, other = stored.read(before), stored.read(after)
    found = stored.pairs(one, other)
    out = endings.Out(width=180)
    grid = Table(box=None, pad_edge=False)
    columns = ["setting", "metric", "A", "B", "ratio A", "ratio B", "change", ""]
    for i, column in enumerate(columns):
        numbers = 2 <= i <= 6
        grid.add_column(column, justify="right" if numbers else "left", header_style="dim", no_wrap=numbers)
    worse = 0
    for pair in found:
        loss = pair.loss(by)
        bad = worse_than is not None and loss is not None and loss > worse_than
        worse += bad
        cells = [
            pair.before.setting,
            pair.before.metric,
            *_values(pair),
            _percent(pair.change(by)),
            "worse" if bad else "",
        ]
        grid.add_row(*(Text(cell, style="red" if bad else "") for cell in cells))
    out.print(grid)
    for path, rows in ((before, one.rows.keys() - other.rows), (after, other.rows.keys() - one.rows)):
        for _, setting, metric in sorted(rows):
            out.print(f"Only in {path}: {setting}, {metric}", soft_wrap=True)
    for name, here, there in stored.differences(one.environment, other.environment):
        out.print(f"Environment: {name}: {_or_none(here)} in A, {_or_none(there)} in B", soft_wrap=True, style="dim")
    if worse_than is not None:
        endings.Words().print(f"{worse} of {len(found)} rows are worse by more than {worse_than:g} %", soft_wrap=True)
        if worse:
            sys.exit(_WRONG)


def _values(pair: stored.Pair) -> list[str]:
    """Return both values and both ratios as tables print them."""
    before, after = pair.before, pair.after
    return [shown(before.value, before.unit), shown(after.value, after.unit), shown(before.ratio), shown(after.ratio)]


def _percent(change: float | None) -> str:
    return "" if change is None else f"{change:+.1f} %"


def _or_none(value: Any) -> str:
    return "none" if value is None else str(value)


for _name in bench.NAMES:
    commands.add_command(_command(_name))
commands.add_command(compare)
commands.add_command(bench_all)


def main() -> None:
    """Run the command line and exit."""
    endings.process(lambda: commands(prog_name="python -m bench"))
