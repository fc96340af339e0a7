"""Machines that join together: a series of `MachineAdded` that differ only in ids and racks is one change of the arrays."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import check_id
from flowsched.cluster.events import Event, MachineAdded
from flowsched.cluster.model import Machine, Resources, amounts_of
from flowsched.exceptions import FlowschedError

__all__ = ["joins"]

Racks = dict[Hashable, Hashable | None]


def joins(
    events: Sequence[Event], first: int, known: Mapping[Hashable, Any], resources: Resources
) -> tuple[Machine, NDArray[np.int64], Racks] | None:
    """Find a series of new machines that can join together.

    Parameters
    ----------
    events : sequence of Event
    first : int
        Position of the first event of the series.
    known : mapping
        Machines by id.
    resources : Resources

    Returns
    -------
    machine : Machine
        The first machine.
    capacity : ndarray of int64, shape (resources,)
        In micro-units.
    racks : dict
        Rack of each machine, by id.  The series ends before the first event that might be refused.  The result is None
        if the series has fewer than two events.
    """
    event, following = events[first : first + 2]
    if type(event) is not MachineAdded or type(following) is not MachineAdded:
        return None
    try:
        if amounts_of("capacity", following.capacity) is not amounts_of("capacity", event.capacity):
            return None
        machine = Machine(event.id, event.capacity, event.rack, event.labels, event.slots, event.taints)
        capacity = resources.capacity("capacity", machine.capacity)
    except FlowschedError:
        return None
    racks = _racks(events, first, event, machine, known)
    return (machine, capacity, racks) if len(racks) > 1 else None


def _racks(
    events: Sequence[Event], first: int, model: MachineAdded, machine: Machine, known: Mapping[Hashable, Any]
) -> Racks:
    """Return the racks of the new machines, by id, of a series that begins with this one."""
    racks: Racks = {}
    for event in islice(events, first, None):
        if type(event) is not MachineAdded or event.time is not None:
            break
        try:
            same = amounts_of("capacity", event.capacity) is machine.capacity and _same(event, model)
            check_id("machine: id", event.id)
            check_id("machine: rack", event.rack)
            again = event.id in racks or event.id in known
        except Exception:  # the error is raised when this event is applied
            break
        if again or not same:
            break
        racks[event.id] = event.rack
    return racks


def _same(event: MachineAdded, model: MachineAdded) -> bool:
    """Return True if labels, slots and taints are the same, also by type: True == 1."""
    labels = event.labels
    return (
        event.slots is model.slots
        and event.taints is model.taints
        and (
            labels is model.labels
            or (type(labels) is dict and all(type(v) is str for v in labels.values()) and labels == model.labels)
        )
    )
