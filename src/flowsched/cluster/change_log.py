"""Log of changed rows, so that the cost of an update depends on the changes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

import flowsched.cluster._room as _room
from flowsched.cluster.columns import Columns, IdPool, column, view

__all__ = ["ChangeLog"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class ChangeLog(Columns, _room.MovedFields):
    """Columns over rows of machines, with the time of each row's last change.

    Attributes
    ----------
    clock : int
        Number of changes.
    arranged : int
        Value of `clock` when a machine last changed its rack, labels or capacity, became over capacity or within it
        again, or left.
    """

    version: Ints = column("rows")
    """Value of `clock` when the row last changed."""

    _version: memoryview = view("version")

    def __init__(self, **lengths: int) -> None:
        super().__init__(**lengths)
        self.clock = self.arranged = 0
        self._rows = IdPool()
        self._begin_log()

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        for name in ("_reach", "_log", "_log_from", "_log_most"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._begin_log()

    @property
    def rows(self) -> int:
        """Number of rows in use or once used."""
        return self._rows.count

    def touch(self, row: int) -> None:
        """Count the row as changed."""
        self.clock += 1
        self._version[row] = self.clock
        self._log.append(row)
        if len(self._log) > self._log_most:
            self._trim_log()

    def _touch_all(self, rows: Collection[int]) -> None:
        for row in list(rows):
            self.touch(row)

    def _begin_log(self) -> None:
        self._log = []
        """Row that changed at each value of `clock` above `_log_from`, in order."""
        self._log_from = self.clock
        self._trim_log()

    def _trim_log(self) -> None:
        """Forget the older half of a log that is longer than `changed_since` needs."""
        self._log_most = 4 * self._few
        if len(self._log) > self._log_most:
            old = len(self._log) // 2
            del self._log[:old]
            self._log_from += old

    @property
    def _few(self) -> int:
        """Number of changes up to which a search of the log is faster than a pass over all rows."""
        return 128 + self.rows // 128

    def changed_since(self, clock: int) -> Ints:
        """Return the rows that changed after that value of `clock`, and the rows that they reach, in ascending order."""
        if self._reach is not None or clock < self._log_from or self.clock - clock > self._few:
            return np.flatnonzero(self._latest() > clock)
        found: Ints = _room.changed(self, self._log, clock - self._log_from, clock)
        return found

    def newer(self, rows: Ints, clock: int) -> Bools:
        """Return True for the rows that are in `changed_since`."""
        newer: Bools = self._latest()[rows] > clock
        return newer

    def _latest(self) -> Ints:
        """Return the last change of each row, or of a row that reaches it."""
        versions = self.version[: self.rows]
        if self._reach is None:
            return versions
        reached = self._reach.update(versions, self.clock, self.arranged)
        return np.where(versions > 0, np.maximum(versions, reached), 0)  # 0 is a row without a machine
