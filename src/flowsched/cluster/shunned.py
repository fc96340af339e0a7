"""Machines that tasks shun because they failed there: a limit of `Inventory.room`.

A class keeps away from such a machine only while it has a choice: while another machine that takes tasks could hold it
when empty.  Without a choice it may start on any machine.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.limits import FAILED

__all__ = ["Shunned"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_NONE: Ints = np.zeros(0, np.int64)


class Shunned:
    """Classes and the machines that they shun.

    Attributes
    ----------
    ids : dict of int to frozenset of hashable
        Machines on which tasks failed, by class.
    """

    def __init__(self) -> None:
        self.ids: dict[int, frozenset[Hashable]] = {}
        self._rows: dict[int, Ints] = {}

    @property
    def in_use(self) -> bool:
        """True if a class shuns a machine, or would shun one if it had a choice."""
        return bool(self.ids)

    def add_class(self, class_id: int, ids: frozenset[Hashable]) -> None:
        """Add a class; it shuns no machine before it is reviewed."""
        self.ids[class_id], self._rows[class_id] = ids, _NONE

    def drop_class(self, class_id: int) -> None:
        """Drop a class without tasks."""
        if self.ids.pop(class_id, None) is not None:
            del self._rows[class_id]

    def known(self, class_id: int, rows: Mapping[Hashable, int]) -> Ints:
        """Return the rows of the machines that the class shuns if it has a choice."""
        return np.array(sorted(rows[id] for id in self.ids[class_id] if id in rows), np.int64)

    def shun(self, class_id: int, rows: Ints) -> Ints:
        """Set the rows that the class shuns; return the rows that this affects."""
        old, self._rows[class_id] = self._rows[class_id], rows
        return np.setxor1d(old, rows)

    def forbids(self, row: int, class_id: int) -> bool:
        """Return True if the class shuns the machine."""
        rows = self._rows.get(class_id)
        return rows is not None and row in rows

    def against(self, classes: Ints, rows: Ints) -> Bools:
        """Return `forbids` for each pair, shape (classes, rows)."""
        shuns = np.zeros((len(classes), len(rows)), np.bool_)
        for i, class_id in enumerate(classes.tolist()):
            if class_id in self._rows:
                shuns[i] = np.isin(rows, self._rows[class_id])
        return shuns

    def narrow(self, classes: Ints, rows: Ints, fits: Ints, why: NDArray[np.uint32]) -> None:
        """Leave no room where a class shuns the machine; see `Inventory.room`."""
        shuns = self.against(classes, rows)
        fits[shuns] = 0
        why[shuns] |= FAILED
