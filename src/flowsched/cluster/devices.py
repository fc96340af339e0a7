"""Devices of machines: which of them a task gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flowsched.cluster.model import MICRO

__all__ = ["Asks", "pick_devices"]


@dataclass(frozen=True, slots=True)
class Asks:
    """A class in Python's own numbers: amounts that are not 0 by resource, share of each of so many devices, level."""

    amounts: tuple[tuple[int, int], ...]
    share: int
    devices: int
    level: int


def pick_devices(devices: Sequence[int], share: int, count: int) -> tuple[int, ...] | None:
    """Return the devices that a task gets, None where there is no room.

    A share goes to the fullest device that has room for it, whole devices are the first free ones.

    Parameters
    ----------
    devices : sequence of int
        What is free of each.
    share : int
        What the task takes of each of its devices.
    count : int
        Devices that it takes.
    """
    if share < MICRO:
        room = [(free, i) for i, free in enumerate(devices) if free >= share]
        return (min(room)[1],) if room else None
    whole = [i for i, free in enumerate(devices) if free == MICRO]
    return tuple(whole[:count]) if len(whole) >= count else None
