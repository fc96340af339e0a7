"""Machines that join together: a run of `MachineAdded` that differ in ids and racks alone is one change of the arrays."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from flowsched.boundary.validate import check_id
from flowsched.cluster.events import Event, MachineAdded
from flowsched.cluster.model import Machine, amounts_of
from flowsched.cluster.records import MachineRecord
from flowsched.exceptions import FlowschedError

if TYPE_CHECKING:
    from flowsched.cluster.state import Cluster

__all__ = ["join"]


def join(cluster: Cluster, events: Sequence[Event], first: int) -> int:
    """Let the new machines of a run happen together.

    Parameters
    ----------
    cluster : Cluster
    events : sequence of Event
    first : int
        Position of the first event of the run.

    Returns
    -------
    int
        The length of the run, which ends before the first event that could be refused; 0, and nothing happened, where it
        would be less than two events.
    """
    event, following = events[first : first + 2]
    if type(event) is not MachineAdded or type(following) is not MachineAdded:
        return 0
    try:
        if amounts_of("capacity", following.capacity) is not amounts_of("capacity", event.capacity):
            return 0
        machine = Machine(event.id, event.capacity, event.rack, event.labels, event.slots, event.taints)
        capacity = cluster.resources.capacity("capacity", machine.capacity)
    except FlowschedError:
        return 0
    racks = _racks(events, first, event, machine, cluster.machines)
    if len(racks) < 2:
        return 0
    cluster.midway = True
    rows = cluster.inventory.add_machines(capacity, machine, list(racks.values()))
    for row, (id, rack) in zip(rows, racks.items(), strict=True):
        record = cluster.machines[id] = cluster.by_row[row] = MachineRecord(machine, row)
        record.id, record.rack = id, rack
    cluster._changes.machines.update(dict.fromkeys(rows))
    cluster.events += len(racks)
    cluster.midway = False
    return len(racks)


def _racks(
    events: Sequence[Event], first: int, model: MachineAdded, machine: Machine, known: Mapping[Hashable, Any]
) -> dict[Hashable, Hashable | None]:
    """Return the racks, by id, of the new machines of a run that begins with this one."""
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
