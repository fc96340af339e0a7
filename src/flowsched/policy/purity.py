"""Detection of costs and constraints that break their contract, by repeated calls: `Policy.debug`.

A cost may depend on the classes and the machines of its call, a constraint also on machines that have these in their
reach.  Changes of anything else are not noticed, so an answer that depends on them becomes out of date.
In debug mode every answer is compared with the answers to the same question

* repeated;
* with classes and machines in another order;
* with a part of the machines, and with one class at a time;
* from before, for machines that have not changed since.

The part must not change its argument arrays, nor the cluster.  Debug mode takes several times as long as the answers, and
memory for each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster import Cluster
from flowsched.cluster.records import TaskClass
from flowsched.exceptions import InputError

__all__ = ["Witness"]

Ints = NDArray[np.int64]
Answer = NDArray[Any]
Ask = Callable[[Ints, Ints], Answer]


class Witness:
    """Record of the answers of one part about one cluster.

    Parameters
    ----------
    what : str
        Name of the part in error messages.
    cluster : Cluster
    tolerance : float
        Largest difference of answers that count as equal.
    """

    def __init__(self, what: str, cluster: Cluster, tolerance: float = 0.0) -> None:
        self._what = what
        self._cluster = cluster
        self._tolerance = tolerance
        self._said: dict[TaskClass, dict[int, tuple[int, Any]]] = {}

    def question(self, ask: Ask, classes: Ints, rows: Ints) -> Answer:
        """Return the answer; raise if the part has changed something."""
        inventory = self._cluster.inventory
        mine, before = (classes.copy(), rows.copy()), (inventory.clock, self._cluster.events)
        answer = ask(*mine)
        if not (np.array_equal(mine[0], classes) and np.array_equal(mine[1], rows)):
            raise InputError(f"{self._what} alters the arrays that it is given")
        if before != (inventory.clock, self._cluster.events):
            raise InputError(f"{self._what} alters the cluster")
        return answer

    def check(self, ask: Ask, answer: Answer, classes: Ints, rows: Ints, versions: Ints) -> None:
        """Compare an answer, shape (classes, rows), with other answers.

        Parameters
        ----------
        ask : callable
            Calls the part.
        versions : ndarray of int64, shape (rows of the cluster,)
            Differ where the answer may differ.

        Raises
        ------
        InputError
            Two answers differ; the message names the part, a class by the demand of its tasks, and a machine.
        """
        self._compare(self.question(ask, classes, rows), answer, classes, rows, "asked again")
        random = np.random.default_rng(len(rows))
        c, r = random.permutation(len(classes)), random.permutation(len(rows))
        shuffled = self.question(ask, classes[c], rows[r])
        self._compare(shuffled, answer[np.ix_(c, r)], classes[c], rows[r], "asked in another order")
        for half in (r[: len(r) // 2], r[len(r) // 2 :]):
            if 0 < len(half) < len(rows):
                part = self.question(ask, classes, rows[half])
                self._compare(part, answer[:, half], classes, rows[half], "asked without other machines")
        for i in range(len(classes)) if len(classes) > 1 else ():
            one = self.question(ask, classes[i : i + 1], rows)
            self._compare(one, answer[i : i + 1], classes[i : i + 1], rows, "asked without other classes")
        for i, class_id in enumerate(classes.tolist()):
            said = self._said.setdefault(self._cluster.by_class[class_id], {})
            self._compare_with_before(ask, classes[i : i + 1], said, versions)
            said.update((row, (int(versions[row]), value)) for row, value in zip(rows.tolist(), answer[i], strict=True))

    def _compare_with_before(self, ask: Ask, one: Ints, said: dict[int, tuple[int, Any]], versions: Ints) -> None:
        """Repeat the call for machines that have not changed since."""
        same = [row for row, (version, _) in said.items() if versions[row] == version and row in self._cluster.by_row]
        if same:
            rows = np.array(same, np.int64)
            before = np.array([[said[row][1] for row in same]])
            self._compare(
                self.question(ask, one, rows), before, one, rows, "asked when nothing in its reach had changed"
            )

    def _compare(self, now: Answer, before: Answer, classes: Ints, rows: Ints, how: str) -> None:
        differ = np.abs(now - before) > self._tolerance
        if differ.any():
            c, r = (int(at[0]) for at in np.nonzero(differ))
            demand = dict(
                zip(self._cluster.resources.names, self._cluster.demand(classes[c : c + 1])[0].tolist(), strict=True)
            )
            machine = self._cluster.by_row[int(rows[r])].id
            raise InputError(
                f"{self._what} contradicts itself: {before[c, r]:g} for tasks of {demand} on machine {machine!r}, "
                f"and {now[c, r]:g} {how}; see flowsched.policy.purity"
            )
