"""Machines that join together: a run of `MachineAdded` that differ in ids and racks alone is one change of the arrays."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import islice
from typing import Any

from flowsched.boundary.validate import check_id
from flowsched.cluster.events import Event, MachineAdded
from flowsched.cluster.model import Machine, amounts_of

__all__ = ["alike"]


def alike(
    events: Sequence[Event], first: int, machine: Machine, known: Mapping[Hashable, Any]
) -> dict[Hashable, Hashable | None]:
    """Return the racks, by id, of new machines that differ from a first one in id and rack alone.

    Parameters
    ----------
    events : sequence of Event
    first : int
        Where the machine stands in them; the run ends before the first event that is of another kind, or that may be wrong.
    machine : Machine
        Made of that event.
    known : mapping
        Machines by id.
    """
    model = events[first]
    assert isinstance(model, MachineAdded)
    racks: dict[Hashable, Hashable | None] = {}
    for event in islice(events, first, None):
        if type(event) is not MachineAdded or event.time is not None:
            break
        try:
            same = amounts_of("capacity", event.capacity) is machine.capacity and _same(event, model)
            check_id("machine: id", event.id)
            check_id("machine: rack", event.rack)
            again = event.id in racks or event.id in known
        except Exception:  # said where this event happens by itself
            break
        if again or not same:
            break
        racks[event.id] = event.rack
    return racks


def _same(event: MachineAdded, model: MachineAdded) -> bool:
    """Return whether labels, slots and taints are the same; equal is not enough, True == 1."""
    labels = event.labels
    return (
        event.slots is model.slots
        and event.taints is model.taints
        and (
            labels is model.labels
            or (type(labels) is dict and all(type(v) is str for v in labels.values()) and labels == model.labels)
        )
    )
