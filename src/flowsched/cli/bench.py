"""``flowsched bench``: the benchmarks of a source checkout."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

import flowsched
from flowsched.cli.endings import BadInput, Command


@click.command(
    "bench",
    cls=Command,
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(arguments: tuple[str, ...]) -> None:
    """Repeat a measurement, in a source checkout: python -m bench NAME."""
    root = Path(flowsched.__file__).resolve().parents[2]
    if not (root / "src" / "flowsched").is_dir() or not (root / "bench" / "command.py").is_file():
        raise BadInput(
            "benchmarks are run from a source checkout, as `python -m bench NAME`; "
            "for your own networks there is `flowsched solve --compare FILE`"
        )
    sys.path.insert(0, str(root))
    importlib.import_module("bench.command").commands(list(arguments), prog_name="flowsched bench")
