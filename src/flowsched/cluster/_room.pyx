"""Room on machines, and the machines that changed: rules over pairs of a class and a machine.

One function per rule, so that NumPy's callers and the refresh of the builder's arcs agree to the last bit.

Symbols: class c, row r, resource d; x = demand[c, d], f = free[r, d], all int64 micro-units; g is the resource of devices.

A machine whose tasks take more of anything than it has (`Inventory.over`) has room for none.  Elsewhere the tasks of c that fit on r are the least of floor(f / x)
over x > 0.  For d = g they are the whole free devices over those of a task, or
the shares that each device still has.  Where a limit of an adapter's decides on resources, d = g alone counts.  A machine has room for none if it takes no tasks,
if its labels or taints keep the class off, or if it is kept for another class of no worse priority.  Each reason why one more task has no room is a bit
(`flowsched.cluster.limits`).  Slots are a bit only: the flow counts them.

Compiled code finds the columns of a `Columns` object in its `typed`, by their names.  They hold as long as a reference to that object is held.
Indices are checked before a column is used.
"""

cimport cython
from cpython cimport array
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport qsort

from flowsched._faults cimport _empty, _zeros, fs_allocate

from array import array as new_array

import numpy as np

cdef array.array NUMBERS = new_array("q")


cdef class InventoryColumns:
    """Columns of `Inventory`."""


cdef class SuitabilityColumns:
    """Columns of `Suitability`."""


@cython.auto_pickle(False)
cdef class TypedColumns:
    """Base of `Columns`, with its arrays as typed fields."""


@cython.auto_pickle(False)
cdef class MovedFields(TypedColumns):
    """Fields of `Inventory` that a move of a task reads or changes."""

    @cython.final
    cdef bint plain(self) except -1:
        """True if no external limit narrows `room`: no rule, affinity, failure or constraint."""
        return not (self.rule is not None or self.constraints or self.affinity.fussy or self.shunned.ids)

    cpdef held(self):
        """Return the class for which each machine is kept (`Reserved.held`); None if none is kept."""
        reserved = self._reserved
        return reserved.held if reserved is not None and reserved.holding else None


cdef array.array numbers(Py_ssize_t count):
    """Memory for `count` int64, not initialised."""
    fs_allocate()
    return array.clone(NUMBERS, count, False)


cdef object matrix(Py_ssize_t lines, Py_ssize_t width, kind):
    fs_allocate()
    return np.empty((lines, width), kind)


@cython.boundscheck(False)      # an axis may have the length 0
cdef InventoryColumns open_world(MovedFields inventory, World *w):
    """Open the columns of an `Inventory`; they exist as long as the result does."""
    cdef InventoryColumns at = inventory.typed
    cdef SuitabilityColumns suitability = (<TypedColumns?> inventory.suitability).typed
    cdef const int64_t[::1] held
    cdef object kept = inventory.held()
    w.rows, w.classes = min(at.running.shape[0], suitability.of.shape[0]), min(at.demand.shape[0], suitability.suits.shape[0])
    w.resources, w.levels, w.shapes, w.g = at.free.shape[1], at.running_at.shape[1], suitability.suits.shape[1], inventory.suitability.device
    if w.g >= w.resources:
        w.g = -1
    w.demand, w.priority = &at.demand[0, 0], &at.priority[0]
    w.capacity, w.free = &at.capacity[0, 0], &at.free[0, 0]
    w.device, w.first, w.devices = &at.devices[0], &at.first_device[0], &at.num_devices[0]
    w.over, w.slots, w.usable, w.version = &at.over[0], &at.slots[0], &at.usable[0], &at.version[0]
    w.running, w.running_at = &at.running[0], &at.running_at[0, 0]
    w.shape, w.suits = &suitability.of[0], &suitability.suits[0, 0]
    w.held, w.held_rows = NULL, 0
    if kept is not None:
        held = kept
        w.held, w.held_rows = &held[0], held.shape[0]
    return at


cdef int check_all(const int64_t[::1] index, Py_ssize_t end, str what) except -1:
    """Check that all of the indices are below `end`."""
    cdef Py_ssize_t i
    for i in range(index.shape[0]):
        check(index[i], end, what)
    return 0


def room(MovedFields inventory not None, const int64_t[::1] classes not None, const int64_t[::1] rows not None, bint ruled, /):
    """Return the number of tasks of each class that fit on each machine, and the bits against one more: int64 and uint32, shape (classes, rows)."""
    cdef World w
    cdef InventoryColumns _at = open_world(inventory, &w)
    cdef Py_ssize_t i, j
    check_all(classes, w.classes, "class")
    check_all(rows, w.rows, "row")
    fits, bits = matrix(classes.shape[0], rows.shape[0], np.int64), matrix(classes.shape[0], rows.shape[0], np.uint32)
    cdef int64_t[:, ::1] fit = fits
    cdef uint32_t[:, ::1] why = bits
    for i in range(classes.shape[0]):
        for j in range(rows.shape[0]):
            fit[i, j] = room_of(&w, classes[i], rows[j], ruled, &why[i, j])
    return fits, bits


def sizes(MovedFields inventory not None, const int64_t[::1] classes not None, /):
    """Return the largest part of any resource of the whole cluster that a task of each class takes, as a list."""
    cdef InventoryColumns at = inventory.typed
    cdef const int64_t[::1] total = inventory.total
    cdef Py_ssize_t i, d, width = min(at.demand.shape[1], total.shape[0])
    cdef double most
    cdef list found = []
    check_all(classes, at.demand.shape[0], "class")
    for i in range(classes.shape[0]):
        most = 0.0
        for d in range(width):
            most = max(most, <double> at.demand[classes[i], d] / <double> max(total[d], 1))
        found.append(most)
    return found


cdef bint at_most(const int64_t *need, const int64_t *have, Py_ssize_t width) noexcept nogil:
    """True if each resource has at least the amount needed."""
    cdef Py_ssize_t d
    for d in range(width):
        if need[d] > have[d]:
            return False
    return True


cdef void add_spacious(const int64_t *free, Py_ssize_t rows, const int64_t *need, int64_t *out, Py_ssize_t width) noexcept nogil:
    """Add up the free amounts of each resource on the machines that have at least `need` of each."""
    cdef Py_ssize_t _, d
    for _ in range(rows):
        if at_most(need, free, width):
            for d in range(width):
                out[d] += free[d]
        free += width


@cython.boundscheck(False)      # an axis may have the length 0
def spacious(MovedFields inventory not None, const int64_t[::1] least not None, /):
    """Return the free amounts of each resource on the machines that have at least `least` of each, summed, int64."""
    cdef InventoryColumns at = inventory.typed
    cdef Py_ssize_t width = at.free.shape[1]
    found = _zeros(width, np.int64)
    cdef int64_t[::1] out = found
    if least.shape[0] != width:
        raise ValueError("spacious: an amount of each resource expected")
    add_spacious(&at.free[0, 0], min(<Py_ssize_t> inventory.rows, at.free.shape[0]), &least[0], &out[0], width)
    return found


cdef array.array levels_of(inventory, const World *w):
    """Priority of each level in use, and 0 for the others, where no task runs."""
    cdef Py_ssize_t i = 0
    cdef array.array found = numbers(w.levels)
    cdef int64_t *level = int64s(found)
    for priority in inventory.levels:
        if i == w.levels:
            raise ValueError("more levels than columns")
        level[i] = priority
        i += 1
    while i < w.levels:
        level[i] = 0
        i += 1
    return found


# -- changes --------------------------------------------------------------------------------------------------------


cdef int ascending(const void *a, const void *b) noexcept nogil:
    cdef int64_t x = (<const int64_t *> a)[0], y = (<const int64_t *> b)[0]
    return (x > y) - (x < y)


cdef array.array logged(list log, Py_ssize_t start, int64_t clock, const World *w):
    """Return the rows in a log, from `start` on, that changed after `clock`, in ascending order.

    The entry at `start` is of ``clock + 1``, and each further one of the next value.
    """
    cdef Py_ssize_t i, k = max(len(log) - start, 0), count = 0
    cdef array.array found = numbers(k)
    cdef int64_t *row = int64s(found)
    for i in range(k):
        row[count] = log[start + i]
        check(row[count], w.rows, "row")
        count += w.version[row[count]] == clock + 1 + i       # else the row has changed again, or its machine has gone
    qsort(row, count, sizeof(int64_t), &ascending)
    array.resize(found, count)
    return found


def changed(MovedFields inventory not None, list log not None, Py_ssize_t start, int64_t clock, /):
    """Return the rows in a log, from `start` on, that changed after `clock`, in ascending order.

    Rows without a machine have changed at 0.
    """
    cdef World w
    cdef InventoryColumns at = inventory.typed
    w.rows, w.version = at.version.shape[0], &at.version[0]
    cdef array.array rows = logged(log, start, clock, &w)
    cdef Py_ssize_t i
    found = _empty(len(rows), np.int64)
    cdef int64_t[::1] out = found
    for i in range(out.shape[0]):
        out[i] = int64s(rows)[i]
    return found
