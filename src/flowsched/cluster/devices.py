"""Choice of a machine's devices for a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flowsched.cluster.model import MICRO

__all__ = ["Asks", "pick_devices"]


@dataclass(frozen=True, slots=True)
class Asks:
    """Demand of a class in Python numbers: nonzero amounts by resource, share of each device, number of devices, and level."""

    amounts: tuple[tuple[int, int], ...]
    share: int
    devices: int
    level: int


def pick_devices(devices: Sequence[int], share: int, count: int) -> tuple[int, ...] | None:
    """Return the devices that a task gets, None without room.

    A share goes to the fullest device with room for it; whole devices are the first free ones.

    Parameters
    ----------
    devices : sequence of int
        Free part of each device.
    share : int
        Part that the task takes of each of its devices.
    count : int
        Number of devices that it takes.
    """
    if share < MICRO:
        room = [(free, i) for i, free in enumerate(devices) if free >= share]
        return (min(room)[1],) if room else None
    whole = [i for i, free in enumerate(devices) if free == MICRO]
    return tuple(whole[:count]) if len(whole) >= count else None
