"""Errors: a class for each kind of failure.

``FlowschedError`` is the root.  A subclass also derives from the corresponding built-in exception
(``ValueError`` for bad input, ``KeyError`` for an unknown id, ...).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "ConcurrentUseError",
    "CorruptJournalError",
    "CostRangeError",
    "DimacsError",
    "DuplicateIdError",
    "FlowschedError",
    "InfeasibleError",
    "InputError",
    "JournalError",
    "JournalMismatchError",
    "StoreError",
    "TimeLimitError",
    "TornStateError",
    "TraceError",
    "UnboundedError",
    "UnknownIdError",
    "UnknownMachineError",
    "UnknownTaskError",
]


class FlowschedError(Exception):
    """Root of all errors that flowsched raises on purpose.

    Attributes
    ----------
    ended : tuple of EndedRun
        If an event was refused: the runs that the events before it have ended; see `Scheduler.apply`.
    index : int or None
        If an event was refused: its position among the events of the call.
    """

    ended: tuple[Any, ...] = ()
    index: int | None = None


class InputError(FlowschedError, ValueError):
    """An argument has the wrong shape, type or value; the message names the argument and the index."""


class InfeasibleError(FlowschedError):
    """No flow meets all supplies within the bounds.

    Attributes
    ----------
    cut : ndarray of bool, shape (n,)
        True for the nodes of a set whose net supply, with the lower bounds of entering arcs, exceeds the capacity of the
        arcs that leave it.  All False if the supplies sum to less than zero: then the total supply is too small.
    shortfall : int
        Missing amount, by which the cut's supply exceeds the capacity of the leaving arcs.  No flow ships more than the
        supplies minus this amount, unless the time limit passed before the worst cut was found.
    arcs : ndarray of int64
        Ids of the arcs that leave the cut.  A flow exists only with more room on them, or less supply.
    """

    cut: NDArray[np.bool_]
    shortfall: int
    arcs: NDArray[np.int64]

    def __init__(
        self, message: str, cut: NDArray[np.bool_], shortfall: int = 0, arcs: NDArray[np.int64] | None = None
    ) -> None:
        super().__init__(message)
        self.cut = cut
        self.shortfall = shortfall
        self.arcs = cut[:0].astype("int64") if arcs is None else arcs

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.cut, self.shortfall, self.arcs)


class UnboundedError(FlowschedError):
    """A cycle of negative cost has unlimited capacity, so the cost has no minimum.

    Attributes
    ----------
    cycle : ndarray of int64
        Ids of its arcs, in order: the tail of each is the head of the previous one.
    """

    cycle: NDArray[np.int64]

    def __init__(self, message: str, cycle: NDArray[np.int64]) -> None:
        super().__init__(message)
        self.cycle = cycle

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.cycle)


class CostRangeError(FlowschedError, OverflowError):
    """Costs (or capacities, or supplies) are so large that the exact 64-bit arithmetic could overflow."""


class ConcurrentUseError(FlowschedError, RuntimeError):
    """An object is used during another call on it: by a thread, signal handler, finaliser or callback.

    The call that raises this error has done nothing.
    """


class TornStateError(FlowschedError, RuntimeError):
    """An unforeseeable exception (out of memory) has ended an earlier call in the middle of a change.

    The state is neither as before that call nor as after it, so the object can no longer be used.
    """


class TimeLimitError(FlowschedError, TimeoutError):
    """The time limit passed before a valid result was found."""


class DimacsError(FlowschedError, ValueError):
    """A DIMACS file is malformed; the message gives the line number.

    Attributes
    ----------
    line : int
        Number of the offending line, from 1.
    """

    line: int

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.line)


class TraceError(FlowschedError, ValueError):
    """A trace is malformed or lacks a column; the message names the file, the line and the column."""


class JournalError(FlowschedError):
    """A journal or snapshot cannot be written or read; the message names the file and the record.

    Attributes
    ----------
    path : str
        "" for a snapshot in memory.
    record : int or None
        Number of the record (row) of the fault, if it is known; 0 before the first one.
    """

    def __init__(self, message: str, path: str = "", record: int | None = None) -> None:
        super().__init__(message, path, record)
        self.path = path
        self.record = record

    def __str__(self) -> str:
        where = "" if self.record is None else f" at record {self.record}"
        return f"{self.path or 'snapshot'}{where}: {self.args[0]}"


class CorruptJournalError(JournalError, ValueError):
    """A record is damaged: later records cannot be trusted, and the file has not been changed."""


class JournalMismatchError(JournalError, ValueError):
    """A journal or snapshot was made in another format, or by a scheduler with another policy or other resources."""


class StoreError(FlowschedError, RuntimeError):
    """The store of the shared state failed; the message names the operation, the cause is the driver's exception.

    Attributes
    ----------
    unknown : bool
        True if the connection was lost during the commit, so the operation may have succeeded.  Otherwise it did not.
    """

    def __init__(self, message: str, unknown: bool = False) -> None:
        super().__init__(message)
        self.unknown = unknown

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.unknown)


class UnknownIdError(FlowschedError, KeyError):
    """An event or a call names an id that the cluster does not know."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return str(self.args[0])


class UnknownTaskError(UnknownIdError):
    """No such task."""


class UnknownMachineError(UnknownIdError):
    """No such machine."""


class DuplicateIdError(FlowschedError, ValueError):
    """The id of a new job, task, machine or user is already taken."""
