"""Commands of containers, and the ends that they come to."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from flowsched.boundary.validate import ordered
from flowsched.exceptions import InputError, StoreError
from flowsched.hrm.agent.processes import Entry

NOT_STARTED: Final = 127
"""Exit status of a container that could not be started, as in a shell."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a container: its process's exit status (negative: the signal that killed it).

    Parameters
    ----------
    id : str
    status : int
        127 if there is no such program, 126 if it cannot be run or bound to the unit's CPUs, as a shell has it.
    error : str
        The reason why the agent could not start it, if so.
    """

    id: str
    status: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A command line with its entry: environment, folder and output files."""

    line: Sequence[str]
    entry: Entry = field(default_factory=Entry)


def command_of(command: Callable[[str], Sequence[str] | Prepared], id: str) -> Prepared | Ended:
    """Return the command of a container, or its end if there is none: one bad task must not keep all others from starting."""
    try:
        return prepared(id, command(id))
    except StoreError:  # the store is away, not the command
        raise
    except Exception as error:
        return Ended(id, NOT_STARTED, f"has no command: {error!r}")


def prepared(id: str, command: Any) -> Prepared:
    """Return a command of a container, with its line checked."""
    known = command if isinstance(command, Prepared) else Prepared(command)
    return Prepared(checked(id, known.line), known.entry)


def checked(id: str, command: Any) -> tuple[str, ...]:
    """Return the command line of a container as text; InputError if it is none."""
    line = ordered("command", command)
    if not line or not line[0]:
        raise InputError(f"container {id!r}: command: a program expected, got {command!r}")
    for i, part in enumerate(line):
        try:
            good = b"\0" not in os.fsencode(part)
        except (TypeError, UnicodeError):
            good = False
        if not good:
            raise InputError(f"container {id!r}: command[{i}]: text without a NUL expected, got {part!r}")
    return tuple(os.fsdecode(part) for part in line)
