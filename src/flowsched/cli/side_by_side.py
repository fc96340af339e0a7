"""``flowsched simulate --compare``: several schedulers on the same arrivals."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from flowsched import sim
from flowsched.cli import endings
from flowsched.cli.endings import BadInput
from flowsched.cli.trace import print_tables
from flowsched.sim.comparison import Comparison, Outcome
from flowsched.sim.report import write_comparison

__all__ = ["run_comparison"]


def run_comparison(
    options: dict[str, Any], make: Callable[[dict[str, Any]], sim.Workload], simulation: dict[str, Any]
) -> None:
    """Run the comparison of a command line, print it and write its files.

    `make` makes the workload of options, and `simulation` has the keyword arguments of every simulation.
    """
    names = [name.strip() for name in options["compare"].split(",")]
    for option in ("scheduler", "journal", "tasks", "goals"):
        if options[option]:
            raise BadInput(f"--{option} is of one run, not of --compare")
    seeds = range(options["seed"], options["seed"] + options["seeds"])
    work = make(options)
    for name in names:
        sim.scheduler(name, work)
    words, stop = endings.Words(options["quiet"]), _Stop()
    processes = min(os.cpu_count() or 1, len(names) * len(seeds))
    columns = (BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with (
        endings.on_interrupt(stop),
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
            partial(_made, make, options), names, seeds, processes=processes, until=options["until"],
            options=simulation, said=said, stopped=lambda: stop.called,
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
    if not options["quiet"]:
        _print(found, recorded)
    if not found.whole:
        sys.exit(endings.REFUSED if found.lost else endings.INTERRUPTED)


class _Stop:
    """Called by the first Ctrl-C."""

    called = False

    def __call__(self) -> None:
        self.called = True


def _made(make: Callable[[dict[str, Any]], sim.Workload], options: dict[str, Any], seed: int) -> sim.Workload:
    return make({**options, "seed": seed})


def _print(found: Comparison, recorded: bool) -> None:
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
