"""The command line: ``flowsched COMMAND``, one file per command."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

import flowsched

if TYPE_CHECKING:
    import click


_COMMANDS = {name: name for name in ("bench", "doctor", "hrm", "measure", "replay", "run", "serve", "simulate", "solve", "trace")} | {
    "journal": "replay", "kube-scheduler": "kube_scheduler",
} | dict.fromkeys(
    "ps nodes submit cancel hold release priority drain resume why eta log acct".split(), "operate"
)  # fmt: skip
"""Modules of commands."""


def main() -> None:
    """Run the command line and exit: 0 done, 2 bad input, 74, 130 and 141 as in `endings`; commands may define more."""
    try:
        app = application()
        from flowsched.cli.endings import process

        process(lambda: app(prog_name="flowsched"))
    except ImportError as missing:
        name = (missing.name or "").partition(".")[0]
        if name not in ("click", "rich", "simpy"):
            raise
        print(
            f"flowsched: {name} is missing, which the command line needs: pip install 'flowsched[cli]'", file=sys.stderr
        )
        sys.exit(2)


def application() -> click.Group:
    """Return the group of all commands."""
    import click

    from flowsched.cli import endings

    class Commands(endings.Group):
        """The commands, each of which is imported when it is called."""

        def list_commands(self, ctx: click.Context) -> list[str]:
            """See `click.Group.list_commands`."""
            return sorted(_COMMANDS)

        def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
            """See `click.Group.get_command`."""
            if name not in _COMMANDS:
                return None
            command: click.Command = getattr(import_module(f"flowsched.cli.{_COMMANDS[name]}"), name.replace("-", "_"))
            return command

    @click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
    @click.version_option(flowsched.__version__, prog_name="flowsched")
    def app() -> None:
        """Cluster scheduling as incremental min-cost max-flow.

        \b
        Examples:
          flowsched simulate                          a demonstration: shares of a GPU cluster
          flowsched simulate jobs.swf --report out.html
          flowsched run jobs.toml                     commands, on this machine or a cluster
          flowsched ps --state DIR                    what runs and waits there; also submit, cancel, acct ...
          flowsched serve --journal FILE              a scheduler for clients of any language, by HTTP
          flowsched kube-scheduler --dry-run          a scheduler of Kubernetes: where its pods would go
          flowsched hrm agent --config hrm.toml       HRM's processes on many machines
          flowsched trace info jobs.swf               a summary of a trace
          flowsched solve network.min.gz              a DIMACS problem
          flowsched replay FILE                       a journal: check that its rounds are the same again
          flowsched journal export FILE               its state as JSON, for any later version
          flowsched solve --compare network.min       solvers compared on it
          flowsched measure                           limits of this machine, for run --learn
          flowsched doctor                            conditions on this machine, with remedies

        \b
        Exit status of every command, in addition to its own:
          0    done
          2    the command line or the input is wrong
          74   the system refuses: a full disk, a closed stream, no memory
          130  interrupted (Ctrl-C)
          141  the reader of the output is gone; requested files are written
        """

    return app
