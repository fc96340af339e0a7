"""From a journal, snapshot or export back to a scheduler."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Sequence
from typing import BinaryIO, TypeVar

from flowsched.exceptions import InputError, JournalError, JournalMismatchError
from flowsched.journal.engine import adapter_of, checked, header_of
from flowsched.journal.export_lines import opened
from flowsched.journal.import_state import read
from flowsched.journal.journal import Journal
from flowsched.journal.record_log import Reader, reading
from flowsched.journal.records import Header
from flowsched.journal.rerun import NONSENSE, Recovery, Rerun, Target, accounts_of
from flowsched.policy import Fairness, Policy

__all__ = ["attach", "imported", "read_header", "recover", "restored"]

_T = TypeVar("_T", bound=Target)

Begin = Callable[[Header, Policy | None, Sequence[Policy], str], _T]
"""Makes a new scheduler from a header, the policy given or None, other policies, and the name of the file."""


def restored(
    name: str,
    begin: Begin[_T],
    source: bytes | str | os.PathLike[str],
    policy: Policy | None,
    policies: Sequence[Policy],
) -> tuple[_T, Recovery]:
    """Make a scheduler, or an adapter of this name, from a snapshot or a journal; see `Scheduler.restore`."""
    if not isinstance(source, bytes | str | os.PathLike):
        raise InputError(f"source: a snapshot (bytes) or the path of a file expected, got {source!r}")
    path = "" if isinstance(source, bytes) else os.fspath(source)
    with io.BytesIO(source) if isinstance(source, bytes) else reading(source) as file:
        header = read_header(file, path)
        if header.of != name:
            raise JournalMismatchError(f"it is of a {header.of}, and is read by a {name} here", path, 0)
        given = () if policy is None else (checked(policy),)
        try:
            made = begin(header, policy, policies, path)
        except NONSENSE as error:
            if isinstance(error, JournalError):
                raise
            raise JournalMismatchError(f"it was begun with what cannot be: {error}", path, 0) from error
        header_of(made.engine).check(header, path)
        file.seek(0)
        found, *_ = recover(made, file, path, (*given, *policies))
    return made, found


def imported(
    name: str,
    begin: Begin[_T],
    source: bytes | str | os.PathLike[str],
    policy: Policy | None,
    policies: Sequence[Policy],
) -> _T:
    """Make a scheduler, or an adapter of this name, from an export; see `Scheduler.import_state`."""
    if not isinstance(source, bytes | str | os.PathLike):
        raise InputError(f"source: the path of a file, or what is in it (bytes), expected, got {source!r}")
    given = () if policy is None else (checked(policy),)
    path = "" if isinstance(source, bytes) else os.fspath(source)

    def made(header: Header) -> _T:
        if header.of != name:
            raise JournalMismatchError(f"it is of a {header.of}, and is read by a {name} here", path)
        return begin(header, policy, (*given, *policies), path)

    with opened(source) as file:
        return read(made, file, path)


def read_header(file: BinaryIO, path: str) -> Header:
    """Return the header of a journal or snapshot."""
    for _, body in Reader(file, path):
        return Header.read(body, path)
    raise JournalMismatchError("nothing is in it", path, 0)


def attach(target: Target, journal: Journal) -> Recovery | None:
    """Let a new scheduler go on where a journal ends; return what was in it, None where it is new."""
    header = header_of(target.engine)
    try:
        with reading(journal.log.path) as file:
            reader = journal.log.reader(file)
            if not any(True for _ in reader):
                journal.log.go_on(reader)
                adapter = adapter_of(target.engine)
                journal.begin(header, target.policy, adapter.warm_state, adapter.extras)
                return None
            file.seek(0)
            path = str(journal.path)
            header.check(read_header(file, path), path)
            file.seek(0)
            found, reader, fairnesses = recover(target, file, path, journal.policies)
            journal.log.go_on(reader)
            journal.go_on(found.header, found.rounds, fairnesses)
    except BaseException:
        journal.close()
        raise
    return found


def recover(
    target: Target, file: BinaryIO, path: str, policies: Sequence[Policy] = ()
) -> tuple[Recovery, Reader, dict[int, Fairness]]:
    """Bring a new scheduler to the state that a journal ends with.

    Parameters
    ----------
    target : Target
        New, and made as the journal's header says.
    file : binary file
    path : str
        For error messages.
    policies : sequence of Policy
        Where to find those with parts of the caller's own.

    Returns
    -------
    recovery : Recovery
    reader : Reader
        At the end of the last good record.
    fairnesses : dict of int to Fairness
        The fairness objects by number.
    """
    start = time.perf_counter()
    last = _last_commits(file, path)
    file.seek(0)
    reader = Reader(file, path)
    records = iter(reader)
    _, body = next(records)
    header = Header.read(body, path)
    known = accounts_of(body, target.engine, path, 0)
    if known is not None:
        try:
            adapter_of(target.engine).warm_state = known
        except NONSENSE as error:
            raise JournalMismatchError(f"what the adapter had learnt: {error}", path, 0) from error
    rerun = Rerun(target, Recovery(header, path), (target.policy, *policies), last)
    for offset, body in records:
        rerun.step(offset, body)
    found = rerun.found
    found.size, found.torn, found.seconds = reader.end, reader.torn, time.perf_counter() - start
    return found, reader, rerun.fairnesses


def _last_commits(file: BinaryIO, path: str) -> dict[int, int]:
    """Return by round the offset of its last commit; all checksums have been checked then, before anything is made."""
    last: dict[int, int] = {}
    for offset, body in Reader(file, path):
        if body[:1] == b"C":
            try:
                last[int(body[2 : body.index(b",")])] = offset
            except ValueError:
                raise JournalMismatchError("a commit of no round", path, offset) from None
    return last
