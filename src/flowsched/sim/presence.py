"""Machines over time: the events of machines in order, each of a machine that is there then."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace

from flowsched.boundary.validate import quoted
from flowsched.cluster.events import (
    Event,
    MachineAdded,
    MachineDrained,
    MachineFailed,
    MachineRemoved,
    MachineUpdated,
)
from flowsched.cluster.model import Machine

__all__ = ["in_order"]

_CHANGES = MachineAdded | MachineUpdated | MachineDrained | MachineFailed | MachineRemoved
_PROPERTIES = ("capacity", "rack", "labels", "slots", "taints")


def in_order(
    machines: Iterable[Machine], events: Sequence[Event], error: Callable[[int, str], Exception]
) -> list[Event]:
    """Return events of machines in the order of time, those of one time as they are given.

    A machine that comes back without a capacity has its former one, and its former properties where none are given.

    Parameters
    ----------
    machines : iterable of Machine
        Those that are there from the start.
    events : sequence of Event
    error : callable
        Makes the exception of an event, given its number and a message: the event is of no machine, of one that is not
        there at its time, or adds one that is.
    """
    up = {machine.id: machine for machine in machines}
    known: dict[Hashable, Machine] = dict(up)
    found: list[Event] = []
    for i in sorted(range(len(events)), key=lambda i: events[i].time or 0.0):
        event = events[i]
        if not isinstance(event, _CHANGES):
            raise error(i, f"a machine's event expected, got {quoted(event)}")
        name, added = event.id, isinstance(event, MachineAdded)
        if (name in up) is added:
            there = "is there already" if added else "is not there"
            raise error(i, f"machine {quoted(name)} {there} at {event.time:g} s")
        if isinstance(event, MachineAdded):
            old = known.get(name)
            if old is not None and not len(event.capacity):
                given = {key: getattr(event, key) or getattr(old, key) for key in _PROPERTIES}
                event = replace(event, **given)
            up[name] = known[name] = Machine(name, *(getattr(event, key) for key in _PROPERTIES))
        elif isinstance(event, MachineUpdated):
            given = {key: value for key in _PROPERTIES if (value := getattr(event, key)) is not None}
            up[name] = known[name] = replace(up[name], **given)
        elif not isinstance(event, MachineDrained):
            del up[name]
        found.append(event)
    return found
