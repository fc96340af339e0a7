"""``flowsched replay`` makes the rounds of a journal again; ``flowsched journal`` exports and imports its state."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from flowsched.boundary.files import replace
from flowsched.boundary.validate import quoted
from flowsched.cli import endings
from flowsched.exceptions import FlowschedError, JournalError
from flowsched.fgm import FineGrained
from flowsched.journal.export import lines, opened, replaced, written
from flowsched.journal.import_state import begun
from flowsched.journal.records import Header
from flowsched.journal.released import MAGIC, converted
from flowsched.journal.rerun import Difference, Recovery, read_header
from flowsched.journal.store import is_database, opened_plain, reading
from flowsched.policy import Policy
from flowsched.scheduler import Scheduler
from flowsched.scheduler import replay as replay_journal

_DIFFERENT, _UNREADABLE = 1, 3
_SHOWN = 20

_OF: dict[str, type[Scheduler] | type[FineGrained]] = {"Scheduler": Scheduler, "FineGrained": FineGrained}

_policies = click.option(
    "--policy", "policies", multiple=True, metavar="MODULE:NAME",
    help="Policy with your own parts: an object, or a function that makes one. May be repeated.",
)  # fmt: skip


@click.command("replay", cls=endings.Command)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--policy", "policies", multiple=True, metavar="MODULE:NAME",
    help="A policy with parts of your own: an object, or a function that makes one. May be repeated.",
)  # fmt: skip
@click.option(
    "--json", "json_file", type=endings.FILE, metavar="FILE", help="Write all results."
)  # fmt: skip
@click.option("--quiet", is_flag=True, help="Print errors only.")
def replay(file: Path, policies: tuple[str, ...], json_file: Path | None, quiet: bool) -> None:
    """Repeat all rounds of a journal (or snapshot), and report those that differ.

    The journal is only read. The comparison covers preempted, migrated and placed tasks with machines and devices, costs,
    and the reasons of waiting tasks. A round that ran into its time limit may differ; it is shown, too.

    \b
    Examples:
      flowsched simulate --journal run.journal && flowsched replay run.journal
      flowsched replay run.journal --policy mycluster.policies:PRODUCTION

    \b
    Exit status:
      0    every round is the same, except for time limits
      1    a round differs
      2    the command line is wrong
      3    the file cannot be read: it is damaged, or another policy is needed
      74, 130, 141  as `flowsched --help` says
    """
    given = [policy_named(name) for name in policies]
    endings.check_files({"--json": json_file}, {"the journal": file})
    try:
        found = _made_again(file, given)
    except FlowschedError as error:
        click.echo(f"flowsched replay: {endings.shortened(str(error))}", err=True)
        sys.exit(_UNREADABLE)
    if json_file is not None:
        replace(json_file, json.dumps(asdict(found), indent=1) + "\n")
    if not quiet:
        _print(found)
    if any("time limit" not in difference.what for difference in found.differences):
        sys.exit(_DIFFERENT)


def _made_again(file: Path, policies: list[Policy]) -> Recovery:
    with reading(file) as records:
        of = read_header(records, str(file)).of
    with reading(file, whole=True) as records:
        for _ in records:  # the history before the last checkpoint, too, agrees with its checksums
            pass
    if of == "Scheduler":
        return replay_journal(file, policies=policies)
    found = FineGrained.restore(file, policies=policies).recovery
    assert found is not None
    return found


def policy_named(name: str) -> Policy:
    """Return the policy of an option ``--policy MODULE:NAME``."""
    module, _, attribute = name.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise click.BadParameter(f"{quoted(name)}: {error}", param_hint="--policy") from None
    finally:
        sys.path.remove(os.getcwd())
    policy = found if isinstance(found, Policy) or not callable(found) else found()
    if not isinstance(policy, Policy):
        raise click.BadParameter(f"{quoted(name)} is no Policy but {quoted(policy)}", param_hint="--policy")
    return policy


def _print(found: Recovery) -> None:
    out = endings.Out()
    head = found.header
    out.print(Text(f"Journal {found.path}", style="bold"), soft_wrap=True)
    out.print(
        f"{found.records:,} records by flowsched {head.version}; resources {', '.join(head.resources)}; {head.of}; policy {_words(head.policy)}",
        soft_wrap=True,
    )
    if found.snapshot:
        out.print("Its last checkpoint comes before them.")
    kinds = sorted(found.events.items(), key=lambda item: -item[1])
    events = ", ".join(f"{kind} {count:,}" for kind, count in kinds)
    rows = [
        ("events", sum(found.events.values()), events),
        ("rounds", found.rounds, f"again in {found.seconds:.1f} s, with everything else"),
        ("commits", found.commits, f"{found.placed:,} placed, {found.preempted:,} preempted, {found.migrated:,} migrated"),
        ("policies", found.policies, "set while it ran"),
        ("otherwise", len(found.differences), "rounds that differ from the journal"),
    ]  # fmt: skip
    grid = _grid("", "count", "")
    for name, count, words in rows:
        if count or name != "policies":
            grid.add_row(name, f"{count:,}", Text(words))
    out.print()
    out.print(grid)
    if found.differences:
        out.print()
        out.print(_table(found.differences))
        if len(found.differences) > _SHOWN:
            out.print(f"and {len(found.differences) - _SHOWN:,} more")


def _table(differences: list[Difference]) -> Table:
    grid = _grid("round", "record", "what differs", "then", "now", title="Rounds that differ")
    for one in differences[:_SHOWN]:
        then, now = asdict(one.then), asdict(one.now)
        shown = [name for name in one.what if name in ("preempted", "migrated", "placed", "waiting", "cost")]
        texts = [", ".join(f"{side[name]:,} {name}" for name in shown) for side in (then, now)]
        grid.add_row(f"{one.round:,}", f"{one.record:,}", Text(", ".join(one.what)), *map(Text, texts))
    return grid


def _grid(*columns: str, title: str | None = None) -> Table:
    grid = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        grid.add_column(
            column, justify="right" if column in ("count", "round", "record") else "left", header_style="dim"
        )
    return grid


def _words(description: Any) -> str:
    """Return the names of a policy's parts."""
    parts = [part for value in description.values() for part in (value if isinstance(value, list) else [value])]
    return ", ".join(str(part["is"]) for part in parts if isinstance(part, dict))


@click.group("journal", cls=endings.Group)
def journal() -> None:
    """Export the state of a journal, or start a journal from an export or an old journal.

    \b
    Examples:
      flowsched journal export run.journal -o state.jsonl.gz
      flowsched journal import state.jsonl.gz new.journal
    """


@journal.command("export")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-o", "--output", type=endings.FILE, metavar="OUT",
    help="Output file; compressed if it ends with .gz. By default standard output.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@_policies
def export(file: Path, output: Path | None, policies: tuple[str, ...], force: bool) -> None:
    """Write the state at the end of a journal (or of a snapshot) as lines of JSON.

    The state is everything that later rounds depend on: machines, jobs, tasks, placements with their starts, ages,
    shares and debts. The journal is only read. The format is described in the documentation of flowsched.journal.export.

    \b
    Exit status:
      0    done
      2    the command line is wrong
      3    the file cannot be read, or the output cannot be written
      74, 130, 141  as `flowsched --help` says
    """
    given = [policy_named(name) for name in policies]
    with _reported("export"):
        with reading(file) as records:
            kind = _of(read_header(records, str(file)), file)
        kept = kind.restore(file, policies=given)
        if output is not None:
            written(kept.engine, output, force)
        else:
            sys.stdout.buffer.writelines(lines(kept.engine))
            sys.stdout.flush()


@journal.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("journal_", metavar="JOURNAL", type=endings.FILE)
@_policies
def import_(file: Path, journal_: Path, policies: tuple[str, ...]) -> None:
    """Start a journal from a state that `flowsched journal export` wrote, or from a journal of the last release.

    A scheduler with this journal continues with the same placements, ages, shares and debts. The whole file is checked
    before the journal is made. An existing journal is never overwritten.

    \b
    Exit status:
      0    done
      2    the command line is wrong
      3    the file cannot be read, or the journal cannot be written
      74, 130, 141  as `flowsched --help` says
    """
    given = [policy_named(name) for name in policies]
    with _reported("import"):
        if _is_old_journal(file):
            made = converted(file)
            with reading(made) as records:
                _of(read_header(records, str(file)), file).restore(made, policies=given)
        else:
            with opened(file) as stream:
                kind = _of(begun(stream, str(file)), file)
            made = kind.import_state(file, policies=given).journal_bytes()
        with replaced(journal_) as new:
            new.write(made)


def _is_old_journal(file: Path) -> bool:
    if is_database(file):
        return False
    with opened_plain(file) as stream:
        return stream.read(len(MAGIC)) == MAGIC


def _of(header: Header, path: Path) -> type[Scheduler] | type[FineGrained]:
    kind = _OF.get(header.of)
    if kind is None:
        raise JournalError(f"it is of a {header.of}, which is not known here", str(path))
    return kind


@contextmanager
def _reported(command: str) -> Iterator[None]:
    """Report an error within in one line."""
    try:
        yield
    except FlowschedError as error:
        click.echo(f"flowsched journal {command}: {endings.shortened(str(error))}", err=True)
        sys.exit(_UNREADABLE)
