"""``flowsched journal``: the state in a journal as lines of JSON that every later version reads, and back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from flowsched.cli import endings
from flowsched.cli.replay import policy_named
from flowsched.exceptions import FlowschedError, JournalError
from flowsched.fgm import FineGrained
from flowsched.journal.export import lines, opened, replaced, written
from flowsched.journal.import_state import begun
from flowsched.journal.record_log import reading
from flowsched.journal.records import Header
from flowsched.journal.rerun import read_header
from flowsched.scheduler import Scheduler

_UNREADABLE = 3

_OF: dict[str, type[Scheduler] | type[FineGrained]] = {"Scheduler": Scheduler, "FineGrained": FineGrained}

_policies = click.option(
    "--policy", "policies", multiple=True, metavar="MODULE:NAME",
    help="A policy with parts of your own: an object, or a function that makes one. May be repeated.",
)  # fmt: skip


@click.group("journal", cls=endings.Group)
def journal() -> None:
    """Take the state in a journal to another version, another machine, another program.

    \b
    Examples:
      flowsched journal export run.journal -o state.jsonl.gz
      flowsched journal import state.jsonl.gz new.journal
    """


@journal.command("export")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="OUT",
    help="Output file; compressed if it ends with .gz. By default standard output.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite a file that is there already.")
@_policies
def export(file: Path, output: Path | None, policies: tuple[str, ...], force: bool) -> None:
    """Write the state at the end of a journal (or of a snapshot) as lines of JSON.

    Machines, jobs, tasks, what runs where since when, ages, shares and debts: whatever decides about later rounds.
    The journal is only read. The format is described in the documentation of flowsched.journal.export.

    \b
    Exit status:
      0    done
      2    the command line is wrong
      3    the file cannot be read, or the other one not be written
      74, 130, 141  as `flowsched --help` says
    """
    given = [policy_named(name) for name in policies]
    with _told("export"):
        with reading(file) as stream:
            kept = _of(read_header(stream, str(file)), file).restore(file, policies=given)
        if output is not None:
            written(kept.engine, output, force)
        else:
            sys.stdout.buffer.writelines(lines(kept.engine))
            sys.stdout.flush()


@journal.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("journal_", metavar="JOURNAL", type=click.Path(dir_okay=False, path_type=Path))
@_policies
def import_(file: Path, journal_: Path, policies: tuple[str, ...]) -> None:
    """Begin a journal with a state that `flowsched journal export` wrote.

    A scheduler that is then made with this journal goes on with the same placements, ages, shares and debts. The whole
    file is checked; the journal is there when all of it is, and not before. None is ever overwritten.

    \b
    Exit status:
      0    done
      2    the command line is wrong
      3    the file cannot be read, or the journal not be written
      74, 130, 141  as `flowsched --help` says
    """
    given = [policy_named(name) for name in policies]
    with _told("import"):
        with opened(file) as stream:
            kind = _of(begun(stream, str(file)), file)
        kept = kind.import_state(file, policies=given)
        with replaced(journal_) as new:
            new.write(kept.journal_bytes())


def _of(header: Header, path: Path) -> type[Scheduler] | type[FineGrained]:
    kind = _OF.get(header.of)
    if kind is None:
        raise JournalError(f"it is of a {header.of}, which is not known here", str(path))
    return kind


@contextmanager
def _told(command: str) -> Iterator[None]:
    """Report an error within in one line."""
    try:
        yield
    except FlowschedError as error:
        click.echo(f"flowsched journal {command}: {endings.shortened(str(error))}", err=True)
        sys.exit(_UNREADABLE)
