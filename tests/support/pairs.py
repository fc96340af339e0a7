"""The rules over pairs of a class and a machine in plain NumPy, as an oracle for the compiled ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.inventory import Inventory
from flowsched.cluster.limits import DOWN, HELD, LABEL, RESOURCE, SLOTS
from flowsched.cluster.model import MICRO, UNLIMITED

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def room(inventory: Inventory, classes: Ints, rows: Ints, ruled: bool = False) -> tuple[Ints, NDArray[np.uint32]]:
    """Room by resources, state, labels and reservations, and all bits of these and of slots."""
    fits = np.full((len(classes), len(rows)), UNLIMITED, np.int64)
    why = np.zeros(fits.shape, np.uint32)
    g = inventory.resources.device_index
    for d in [g] * (g >= 0) if ruled else range(inventory.free.shape[1]):
        need = inventory.demand[classes, d][:, None]
        if d == g:
            devices = inventory.rooms_of(rows)
            whole = (devices == MICRO).sum(axis=1) // np.maximum(need // MICRO, 1)
            shares = (np.maximum(devices, 0) // np.maximum(need, 1)[:, :, None]).sum(axis=2)
            count = np.where(need < MICRO, shares, whole)
        else:
            count = np.maximum(inventory.free[rows, d] // np.maximum(need, 1), 0)
        count = np.where(need, count, UNLIMITED)
        fits = np.minimum(fits, count)
        why |= np.where(count == 0, np.uint32(RESOURCE << d), np.uint32(0))
    shapes = inventory.suitability
    suits = shapes._suits[np.ix_(classes, shapes.of[rows])]
    down = np.broadcast_to(~inventory.usable[rows], fits.shape)
    full = np.broadcast_to(inventory.running[rows] >= inventory.slots[rows], fits.shape)
    kept = inventory.held_against(classes, rows)
    for bit, shut in ((DOWN, down), (LABEL, ~suits), (SLOTS, full), (HELD, kept)):
        why |= np.where(shut, np.uint32(bit), np.uint32(0))
    over = np.broadcast_to(inventory.over[rows], fits.shape)
    return np.where(down | ~suits | kept | (over != 0), 0, fits), why | over


def worse_running(inventory: Inventory, classes: Ints, rows: Ints) -> Ints:
    worse = np.array(inventory.levels, np.int64)[None, :] > inventory.priority[classes][:, None]
    found: Ints = worse.astype(np.int64) @ inventory.running_at[rows][:, : len(inventory.levels)].T
    return found


def seats(
    inventory: Inventory, classes: Ints, rows: Ints, displacing: bool, refused: Mapping[int, Collection[int]]
) -> Ints:
    free = np.broadcast_to(inventory.slots[rows] - inventory.running[rows], (len(classes), len(rows)))
    if not displacing:
        return np.maximum(free, 0)
    shut = np.zeros(free.shape, np.bool_)
    for i, class_id in enumerate(classes.tolist()):
        shut[i] = np.isin(rows, list(refused.get(class_id, ())))
    limited = np.broadcast_to(inventory.slots[rows] < UNLIMITED, free.shape)
    return np.maximum(np.where(limited & ~shut, free + worse_running(inventory, classes, rows), free), 0)


def load(inventory: Inventory, kind: str, classes: Ints, rows: Ints) -> Floats:
    """Every sum goes from the first resource to the last one, whatever the processor."""
    demand, capacity = inventory.demand[classes].astype(np.float64), inventory.capacity[rows].astype(np.float64)
    in_use, has = capacity - inventory.free[rows], capacity > 0
    parts = has.sum(axis=1)
    if kind == "balance":
        least, most = np.ones((len(classes), len(rows))), np.zeros((len(classes), len(rows)))
        for d in range(capacity.shape[1]):
            some = np.flatnonzero(has[:, d])
            part = np.minimum((in_use[some, d] + demand[:, d, None]) / capacity[some, d], 1.0)
            least[:, some], most[:, some] = np.minimum(least[:, some], part), np.maximum(most[:, some], part)
        return np.maximum(most - least, 0.0)
    scale = np.divide(1.0, capacity * parts[:, None], out=np.zeros_like(capacity), where=has)
    used, more = np.zeros(len(rows)), np.zeros((len(classes), len(rows)))
    for d in range(capacity.shape[1]):
        used = used + scale[:, d] * in_use[:, d]
        more = more + demand[:, d, None] * scale[None, :, d]
    slots = np.maximum(inventory.slots[rows].astype(np.float64), 1.0)
    full = np.where(parts > 0, used[None, :] + more, (inventory.running[rows] + 1) / slots)
    full = np.clip(full, 0.0, 1.0)
    return full if kind == "spread" else 1.0 - full


def wasted_devices(inventory: Inventory, classes: Ints, rows: Ints) -> Floats:
    g = inventory.resources.device_index
    if g < 0:
        return np.zeros((len(classes), len(rows)))
    without, having = inventory.demand[classes, g] == 0, inventory.capacity[rows, g] > 0
    return (without[:, None] & having[None, :]).astype(np.float64)


def contest(
    inventory: Inventory, cursor: Ints, heads: Any, classes: Ints, units: Ints, ends: list[float], row: int, now: float
) -> list[int] | None:
    """Return the winner of one machine: the first in line starts, and tasks without room next to it are refused."""
    times = np.array([(head.since, head.eldest) for head in heads])
    line_of = np.array([(head.serial, head.ahead) for head in heads])
    oldest, least = np.searchsorted(ends, now - times.T, side="right")
    if ((oldest != least) & (units > line_of[:, 1])).any():
        return None
    priority, demand, free = inventory.priority[classes], inventory.demand[classes], inventory.free[: inventory.rows]
    standing = list(zip((-priority).tolist(), oldest.tolist(), strict=True))
    best = np.array([some == max(standing) for some in standing])
    if (cursor[classes[best]] != inventory.clock).any():
        return None
    line = sorted((times[i, 0], line_of[i, 0], i) for i in np.flatnonzero(best).tolist())
    if len(line) > 1 and line[0][:2] == line[1][:2]:
        return None
    asked, spacious = units[best] @ demand[best], (free >= demand[best].min(axis=0)).all(axis=1)
    if (asked <= free[row]).all() or (asked <= free[spacious].sum(axis=0)).all():
        return None
    first = line[0][2]
    fits = (demand <= free[row] - demand[first]).all(axis=1)
    fits[first] = False
    return None if (fits & ~best).any() else [2 if i == first else int(fits[i]) for i in range(len(classes))]
