"""Work between units: the transfer queue of a machine, moves to idle units, and stream jobs that grow and shrink."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from flowsched.exceptions import InputError
from flowsched.hrm.containers import Admission, Container, Outcome
from flowsched.hrm.queues import StackedQueue, share_cores
from flowsched.hrm.run_times import start_time


class TransferQueue:
    """Passes requests to a machine on to the queues of its units, each to the one where it starts first.

    Better priorities go first, then larger containers (memory of the GPU, cores, memory), then the older ones.

    Parameters
    ----------
    queues : sequence of StackedQueue
        Of the machine's units.

    Attributes
    ----------
    held : list of Container
        Containers that no unit takes now.
    """

    def __init__(self, queues: Sequence[StackedQueue]) -> None:
        self.queues = list(queues)
        share_cores(self.queues)
        self.held: list[Container] = []

    def submit(self, container: Container, now: float) -> list[tuple[StackedQueue, Container, Admission]]:
        """Take a request, and pass on all that the queues take.

        Returns
        -------
        list of (queue, container, admission)
            Requests that were passed on, as by `forward`.  A stream container is never held, nor one that can never fit:
            if it is not in the list, it was refused.
        """
        self.held.append(container)
        done = self.forward(now)
        if container.kind == "stream" or all(math.isinf(queue.predict(container, now)) for queue in self.queues):
            self.held = [c for c in self.held if c is not container]
        return done

    def forward(self, now: float) -> list[tuple[StackedQueue, Container, Admission]]:
        """Pass on the held requests that the queues take by now."""
        done, held = [], []
        for container in sorted(
            self.held, key=lambda c: (c.kind == "batch", c.priority, *(-c.need[i] for i in (2, 0, 1)))
        ):
            waits = [queue.predict(container, now) for queue in self.queues]
            for _, i in sorted((wait, i) for i, wait in enumerate(waits) if wait < math.inf):
                admission = self.queues[i].submit(container, now)
                if admission.outcome in (Outcome.STARTED, Outcome.QUEUED):
                    done.append((self.queues[i], container, admission))
                    break
            else:
                held.append(container)
        self.held = [container for container in self.held if container in held]
        return done


@dataclass(frozen=True)
class Move:
    """A move of a waiting container to another unit."""

    container: Hashable
    old: Hashable
    new: Hashable


def rebalance(
    queues: Sequence[StackedQueue],
    now: float,
    patience: float,
    *,
    onto: Sequence[StackedQueue] | None = None,
    may: Callable[[Container], bool] = lambda container: True,
) -> list[Move]:
    """Move waiting containers to units where they start at once.

    Parameters
    ----------
    patience : float
        Only containers with a predicted wait of at least this move, the longest wait first.  At 0 all waiting ones move, also
        behind late containers, which are predicted to end now.
    onto : sequence of StackedQueue, optional
        Targets, of which the first with room is taken; by default any of `queues`.
    may : callable
        Returns True for a container that may move.

    Returns
    -------
    list of Move
        The containers run on their new units.
    """
    if not patience >= 0:
        raise InputError(f"patience: a number >= 0 expected, got {patience!r}")
    late = []
    for i, queue in enumerate(queues):
        for container in queue.waiting:
            books, mine = queue.books(now)
            place = len(queue.paused) + queue.waiting.index(container)
            wait = start_time(books, mine.waiters[place]) - now
            if wait >= patience and may(container):
                late.append((-wait, i, container))
    moves = []
    for _, i, container in sorted(late, key=lambda item: item[:2]):
        old = queues[i]
        new = next((q for q in (queues if onto is None else onto) if q is not old and q.has_room(container)), None)
        if new is not None and container in old.waiting:
            old.remove(container.id, now)
            new.submit(container, now)
            moves.append(Move(container.id, old.unit.id, new.unit.id))
    return moves


@dataclass(frozen=True)
class Elastic:
    """Number of containers for a stream job, by their load.

    The load is the time that a micro-batch takes over the time between two of them: above 1 it falls behind.

    Parameters
    ----------
    least, most : int
        Bounds.
    low, high : float
        Nothing changes while the load is between these.
    aim : float
        Load after a change.
    """

    least: int = 1
    most: int = 1 << 30
    low: float = 0.4
    high: float = 0.9
    aim: float = 0.7

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise InputError(f"Elastic: 1 <= least <= most expected, got {self.least!r}, {self.most!r}")
        if not 0 <= self.low <= self.aim <= self.high < math.inf or not self.aim > 0:
            raise InputError(
                f"Elastic: 0 <= low <= aim <= high expected, got {self.low!r}, {self.aim!r}, {self.high!r}"
            )

    def target(self, containers: int, load: float) -> int:
        """Return the number of containers for a job that has `containers` of them at that load."""
        if not load >= 0:
            raise InputError(f"load: a number >= 0 expected, got {load!r}")
        wanted = containers
        if not self.low <= load <= self.high:
            wanted = self.most if math.isinf(load) else math.ceil(containers * load / self.aim - 1e-9)
        return min(max(wanted, self.least), self.most)
