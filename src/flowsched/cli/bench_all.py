"""``flowsched bench all``: every measurement in a process of its own, and one page of them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

from flowsched import experiments
from flowsched.cli import endings
from flowsched.cli.endings import BadInput

__all__ = ["WITH_DATA", "bench_all"]

WITH_DATA = ("solver", "sirius", "hrm", "openb", "decision", "backlog")
"""Measurements that read recorded inputs: those that have ``--data``."""


@click.command("all", cls=endings.Command)
@click.option(
    "--site",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    required=True,
    help="Write DIR/index.html, and rows and plots below DIR.",
)
@click.option("--quick", is_flag=True, help="Smaller and fewer: about five minutes.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all random numbers.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    metavar="DIR",
    help="Directory of recorded inputs, for more rows.",
)
@click.option("--only", metavar="A,B,...", help=f"Only these of {', '.join(experiments.NAMES)}.")
@click.option("--again", is_flag=True, help="Measure again what DIR has.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
def bench_all(
    site: Path, quick: bool, seed: int, data: Path | None, only: str | None, again: bool, quiet: bool
) -> None:  # fmt: skip
    """Repeat every measurement, and write one page: published figures beside ours.

    What DIR has from a whole run with the same options is kept, so a run that was stopped goes on where it was.  The page
    is written anew after each measurement.

    \b
    Examples:
      flowsched bench all --site site --quick
      flowsched bench all --site site --only fgm,openb --data DIR

    \b
    Exit status:
      0    done, however slow
      1    a measurement has a wrong result, or failed; the others are on the page
      2    the command line is wrong
      130  interrupted; the page has what was measured until then
      74, 141  as `flowsched --help` says
    """
    from flowsched.experiments.site import write_site

    names = experiments.NAMES if only is None else tuple(name.strip() for name in only.split(","))
    if unknown := next((name for name in names if name not in experiments.NAMES), None):
        raise BadInput(f"--only: no measurement {unknown!r}; there are {', '.join(experiments.NAMES)}")
    words, bad = endings.Words(quiet), []
    (site / "data").mkdir(parents=True, exist_ok=True)
    status = 0
    for number, name in enumerate(names, 1):
        begin, rows = time.monotonic(), site / "data" / f"{name}.json"
        if not again and _whole(rows, quick, seed):
            words.print(f"{number}/{len(names)}  {name}: kept", soft_wrap=True)
        else:
            rows.unlink(missing_ok=True)
            command = [sys.executable, "-m", "flowsched", "bench", name, "--seed", str(seed), "--json", str(rows)]
            command += ["--plots", str(site / "plots" / name), "--quiet"] + ["--quick"] * quick
            command += ["--data", str(data)] if data is not None and name in WITH_DATA else []
            status = _run(command)
            if status:
                bad.append(f"{name} (exit status {status})")
            words.print(f"{number}/{len(names)}  {name}: {time.monotonic() - begin:.0f} s", soft_wrap=True)
        write_site(site, experiments.NAMES)
        if status == endings.INTERRUPTED:
            break
    words.print(f"Page: {site / 'index.html'}", soft_wrap=True)
    for text in bad:
        words.print(f"Not whole: {text}", style="bold red", soft_wrap=True)
    if bad:
        sys.exit(endings.INTERRUPTED if status == endings.INTERRUPTED else 1)


def _whole(rows: Path, quick: bool, seed: int) -> bool:
    """Return whether a file has all rows of a measurement with these options."""
    try:
        found = json.loads(rows.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(found.get("complete")) and found["quick"] == quick and found["seed"] == seed


def _run(command: list[str]) -> int:
    """Run a measurement; it gets each Ctrl-C from here, and ends with the rows that it has."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    interrupted = False
    while True:
        try:
            status = process.wait()
        except KeyboardInterrupt:
            interrupted = True
            process.send_signal(signal.SIGINT)
            continue
        return endings.INTERRUPTED if interrupted else status
