# cython: embedsignature=False
"""Pairs of a class, or of a group, and a machine: what has room or runs, what a placement costs, and what of that a network has not been told.

One function per rule, so that NumPy's callers and the refresh of the builder's arcs agree to the last bit.

Symbols: class c, row r, resource d; x = demand[c, d], f = free[r, d], k = capacity[r, d], all int64 micro-units; g is the resource of devices.

Room
----
A machine whose tasks take more of anything than it has (`Inventory.over`) has room for none.  Elsewhere the tasks of c that fit on r are the least of floor(f / x)
over x > 0.  For d = g they are the whole free devices over those of a task, or
the shares that each device still has.  Where a limit of an adapter's decides on resources, d = g alone counts.  A machine has room for none if it takes no tasks,
if its labels or taints keep the class off, or if it is kept for another class of no worse priority.  Each reason why one more task has no room is a bit
(`flowsched.cluster.limits`).  Slots are a bit only: the flow counts them.

Costs
-----
Doubles, summed from 0 resource by resource, without fused operations, so that every processor finds the same costs:

    s(d) = 1 / (k n) where k > 0, else 0; n: resources with k > 0
    load = sum_d s(d) (k - f)  +  sum_d x s(d), within [0, 1]          if n = 0: tasks with the newcomer, over slots

Refresh
-------
A mirror (`flowsched.builder.class_arcs.ClassArcs`) holds by class and row the arc, its capacity, its cost and the bits.  `refresh` changes the mirror, and
tells the network, class by class and row by row.  Invariants, for all pairs and after each call:

* capacity is the least of the room and of the seats: free slots, and those of tasks that the class may displace;
* cost is that of the pair when its arc was last open: the cost of a closed arc does not matter;
* ``open[c]`` is the number of rows without any bit, and ``roomy[c]`` is ``open[c] > 0``.

Memory is taken before the mirror changes: an exception before the network is told leaves it as it was.  Lengths and indices are checked before any array is used.

Flow
----
`sent` reads the flow where it may have changed: on the arcs from aggregators to racks that the last solution altered, and on those that had flow before.  So it
costs what runs through racks now, not what there is.

Running
-------
`flowsched.builder.running.RunningArcs` holds by group and machine an arc, how many tasks of the group run there, and when the youngest of them has begun.
`find_running` compares these with the groups, whose attributes it reads where the objects keep them (``_slots.pxi``).
"""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.math cimport INFINITY, rint
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport qsort

import numpy as np

include "_columns.pxi"
include "_entries.pxi"
include "_faults.pxi"
include "_slots.pxi"

cdef extern from *:
    """
    #if defined(_MSC_VER)
    #define fs_fetch(p) ((void)(p))
    #else
    #define fs_fetch(p) __builtin_prefetch(p, 1)
    #endif
    """
    void fs_fetch(const void *p) nogil          # it will be needed soon

__test__ = {}

cdef enum:
    DOWN = 1
    LABEL = 2
    SLOTS = 4
    HELD = 8
    RESOURCE = 16           # << d

    MOST_VIEWS = 8
    MOST_BLOCKS = 8
    AHEAD = 12              # pairs that memory is fetched ahead of
    MOST_TERMS = 16

cdef int64_t MICRO = 1000000
cdef int64_t UNLIMITED = <int64_t> 1 << 40

cdef enum:
    SPREAD
    PACK
    BALANCE
    DEVICES

MOST_COSTS = MOST_TERMS
KINDS = {"spread": SPREAD, "pack": PACK, "balance": BALANCE, "devices": DEVICES}


@cython.final
@cython.auto_pickle(False)
cdef class Views:
    """Buffers of arrays, and memory; they are released with it."""

    cdef Py_buffer view[MOST_VIEWS]
    cdef void *block[MOST_BLOCKS]
    cdef int count, blocks

    def __dealloc__(self):
        while self.count:
            self.count -= 1
            PyBuffer_Release(&self.view[self.count])
        while self.blocks:
            self.blocks -= 1
            PyMem_Free(self.block[self.blocks])

    cdef int64_t *memory(self, Py_ssize_t size) except NULL:
        """Room for so many numbers, which is to be filled."""
        cdef void *block
        fs_allocate()
        block = PyMem_Malloc(size * sizeof(int64_t))
        if block == NULL or self.blocks == MOST_BLOCKS:
            PyMem_Free(block)
            raise MemoryError
        self.block[self.blocks] = block
        self.blocks += 1
        return <int64_t *> block

    cdef void *take(self, array, Py_ssize_t size, int dims, Py_ssize_t *first, Py_ssize_t *second, int flags=PyBUF_WRITABLE) except NULL:
        """The entries of an array of so many dimensions.

        The length of its first axis bounds `first` from above; that of the second one is `second`, or becomes it if that is negative.
        """
        cdef Py_buffer *view = &self.view[self.count]
        PyObject_GetBuffer(array, view, flags | PyBUF_C_CONTIGUOUS)
        self.count += 1
        if view.itemsize != size or view.ndim != dims:
            raise ValueError("an array of another kind")
        if first[0] < 0 or view.shape[0] < first[0]:
            first[0] = view.shape[0]
        if dims == 2:
            if second[0] < 0:
                second[0] = view.shape[1]
            elif view.shape[1] != second[0]:
                raise ValueError("arrays of different lengths")
        return view.buf if view.buf != NULL else <void *> view


cdef object matrix(Py_ssize_t lines, Py_ssize_t width, kind):
    fs_allocate()
    return np.empty((lines, width), kind)


cdef struct World:
    Py_ssize_t classes, rows                # all indices are below
    Py_ssize_t resources, levels, shapes
    Py_ssize_t g                            # the resource of devices, -1 without one
    const int64_t *demand                   # by class and resource
    const int64_t *priority                 # by class
    const int64_t *capacity                 # by row and resource
    const int64_t *free                     # by row and resource
    const int64_t *device                   # what is free of each device, machine by machine
    const int64_t *first                    # by row: where its devices begin
    const int64_t *devices                  # by row: their number
    const uint32_t *over                    # by row: bits of what its tasks take more of than there is
    const int64_t *slots                    # by row
    const int64_t *running                  # by row: tasks now
    const int64_t *running_at               # by row and level: tasks of that priority
    const int64_t *shape                    # by row
    const char *usable                      # by row
    const int64_t *version                  # by row: when it changed last
    const char *suits                       # by class and shape: labels and taints allow it
    const int64_t *held                     # by row, as far as the column goes: see `Reservations.held`
    Py_ssize_t held_rows


cdef struct Grid:
    Py_ssize_t classes, rows                # their numbers
    const int64_t *cls
    const int64_t *row


cdef int open_world(inventory, World *w) except -1:
    """Look at the columns of an `Inventory`."""
    cdef const int64_t *at = columns(inventory)
    cdef const int64_t *shapes = columns(inventory.suitability)
    w.rows, w.classes, w.shapes = min(at[I_ROWS], shapes[S_ROWS]), min(at[I_CLASSES], shapes[S_CLASSES]), shapes[S_SHAPES]
    w.resources, w.levels, w.g = at[I_RESOURCES], at[I_LEVELS], at[I_DEVICE]
    w.demand, w.priority = <const int64_t *> <size_t> at[I_DEMAND], <const int64_t *> <size_t> at[I_PRIORITY]
    w.capacity, w.free = <const int64_t *> <size_t> at[I_CAPACITY], <const int64_t *> <size_t> at[I_FREE]
    w.device, w.slots = <const int64_t *> <size_t> at[I_DEVICES], <const int64_t *> <size_t> at[I_SLOTS]
    w.first, w.devices = <const int64_t *> <size_t> at[I_FIRST_DEVICE], <const int64_t *> <size_t> at[I_NUM_DEVICES]
    w.over = <const uint32_t *> <size_t> at[I_OVER]
    w.running, w.running_at = <const int64_t *> <size_t> at[I_RUNNING], <const int64_t *> <size_t> at[I_RUNNING_AT]
    w.usable, w.version = <const char *> <size_t> at[I_USABLE], <const int64_t *> <size_t> at[I_VERSION]
    w.shape, w.suits = <const int64_t *> <size_t> shapes[S_OF], <const char *> <size_t> shapes[S_SUITS]
    w.held, w.held_rows = NULL, 0
    reserved = inventory._reserved
    if reserved is not None and reserved.holding:
        at = columns(reserved)
        w.held, w.held_rows = <const int64_t *> <size_t> at[H_HELD], at[H_ROWS]
    return 0


cdef int check(const int64_t *index, Py_ssize_t k, Py_ssize_t end, str what) except -1:
    """All of the indices are below `end`."""
    cdef Py_ssize_t i
    for i in range(k):
        if not 0 <= index[i] < end:
            raise IndexError(f"{what} {index[i]}")
    return 0


cdef int open_grid(Views views, World *w, classes, rows, Grid *grid) except -1:
    """Look at the indices of classes and rows, and check them."""
    cdef Py_ssize_t none = -1
    grid.classes = grid.rows = -1
    grid.cls = <const int64_t *> views.take(classes, 8, 1, &grid.classes, &none, 0)
    grid.row = <const int64_t *> views.take(rows, 8, 1, &grid.rows, &none, 0)
    check(grid.cls, grid.classes, w.classes, "class")
    check(grid.row, grid.rows, w.rows, "row")
    return 0


# -- room -----------------------------------------------------------------------------------------------------------


cdef inline int64_t room_on_devices(int64_t need, const int64_t *device, int64_t devices) noexcept nogil:
    cdef int64_t i, count = 0
    if need < MICRO:
        for i in range(devices):
            if device[i] > 0:
                count += device[i] // need
        return count
    for i in range(devices):
        count += device[i] == MICRO
    return count // (need // MICRO)


cdef inline bint kept(const World *w, int64_t c, int64_t other) noexcept nogil:
    """True if a machine that is kept for another class, or for a gang, is closed to this one; see `Reservations.held`."""
    if other < -1:
        other = -2 - other
        return other < w.classes and w.priority[c] >= w.priority[other]
    return 0 <= other < w.classes and other != c and w.priority[c] >= w.priority[other]


cdef inline int64_t room_of(const World *w, int64_t c, int64_t r, bint ruled, uint32_t *why) noexcept nogil:
    """The tasks of a class that fit on a machine; `why`: the bits of one more.  With `ruled`, resources are a limit's that is asked elsewhere."""
    cdef const int64_t *demand = w.demand + c * w.resources
    cdef const int64_t *free = w.free + r * w.resources
    cdef uint32_t bits = w.over[r]
    cdef int64_t fits = 0 if bits else UNLIMITED, count
    cdef Py_ssize_t d
    for d in range(w.resources):
        if demand[d] <= 0 or (ruled and d != w.g):
            continue
        if d == w.g:
            count = room_on_devices(demand[d], w.device + w.first[r], w.devices[r])
        else:
            count = free[d] // demand[d] if free[d] > 0 else 0
        if count < fits:
            fits = count
        if not count:
            bits |= <uint32_t> RESOURCE << d
    if not w.usable[r]:
        bits |= DOWN
        fits = 0
    if not 0 <= w.shape[r] < w.shapes or not w.suits[c * w.shapes + w.shape[r]]:
        bits |= LABEL
        fits = 0
    if r < w.held_rows and kept(w, c, w.held[r]):
        bits |= HELD
        fits = 0
    if w.running[r] >= w.slots[r]:
        bits |= SLOTS
    why[0] = bits
    return fits


def room(inventory, classes, rows, bint ruled, /):
    """Return the tasks of each class that fit on each machine, and the bits of one more: int64 and uint32, shape (classes, rows)."""
    cdef Views views = Views()
    cdef World w
    cdef Grid grid
    cdef Py_ssize_t i, j, none = -1, wide = -1
    cdef int64_t *fit
    cdef uint32_t *why
    open_world(inventory, &w)
    open_grid(views, &w, classes, rows, &grid)
    fits, bits = matrix(grid.classes, grid.rows, np.int64), matrix(grid.classes, grid.rows, np.uint32)
    fit = <int64_t *> views.take(fits, 8, 2, &none, &wide)
    why = <uint32_t *> views.take(bits, 4, 2, &none, &wide)
    for i in range(grid.classes):
        for j in range(grid.rows):
            fit[i * grid.rows + j] = room_of(&w, grid.cls[i], grid.row[j], ruled, why + i * grid.rows + j)
    return fits, bits


def sizes(inventory, classes, /):
    """Return the largest part of any resource of the whole cluster that a task of each class takes, as a list."""
    cdef Views views = Views()
    cdef const int64_t *at = columns(inventory)
    cdef const int64_t *demand = <const int64_t *> <size_t> at[I_DEMAND]
    cdef Py_ssize_t i, d, none = -1, known = -1, kinds = at[I_CLASSES], width = at[I_RESOURCES]
    cdef const int64_t *total = <const int64_t *> views.take(inventory.total, 8, 1, &width, &none)
    cdef const int64_t *cls = <const int64_t *> views.take(classes, 8, 1, &known, &none, 0)
    cdef double most
    cdef list found = []
    check(cls, known, kinds, "class")
    for i in range(known):
        most = 0.0
        for d in range(width):
            most = max(most, <double> demand[cls[i] * width + d] / <double> max(total[d], 1))
        found.append(most)
    return found


cdef bint at_most(const int64_t *need, const int64_t *have, Py_ssize_t width) noexcept nogil:
    cdef Py_ssize_t d
    for d in range(width):
        if need[d] > have[d]:
            return False
    return True


cdef void add_spacious(const int64_t *free, Py_ssize_t rows, const int64_t *need, int64_t *out, Py_ssize_t width) noexcept nogil:
    """Add up what is free of each resource on the machines where so much of each is."""
    cdef Py_ssize_t _, d
    for _ in range(rows):
        if at_most(need, free, width):
            for d in range(width):
                out[d] += free[d]
        free += width


def spacious(inventory, least, /):
    """Return what is free of each resource on the machines where so much of each is, int64."""
    cdef Views views = Views()
    cdef const int64_t *at = columns(inventory)
    cdef Py_ssize_t none = -1, rows = min(<int64_t> inventory.rows, at[I_ROWS]), width = at[I_RESOURCES]
    cdef const int64_t *need = <const int64_t *> views.take(least, 8, 1, &width, &none, 0)
    found = _zeros(width, np.int64)
    add_spacious(<const int64_t *> <size_t> at[I_FREE], rows, need, <int64_t *> views.take(found, 8, 1, &width, &none), width)
    return found


cdef int64_t bucket_of(double age, const double *ends, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t b = 0
    while b < count and ends[b] <= age:
        b += 1
    return b


def contest(inventory, mirror, heads, classes, units, ends, int64_t row, double now, /):
    """Return which of the classes that want one machine are to be tried; see `flowsched.rounds.contest`.

    Parameters
    ----------
    inventory : Inventory
    mirror : ClassArcs
    heads : Heads
        With entries of these classes.
    classes, units : ndarray of int64, shape (n,)
        Classes, and how many tasks of each the flow sends.
    ends : ndarray of float64
        Ends of the age buckets.
    row : int
        The machine.
    now : float

    Returns
    -------
    list of int or None
        By class: 0 to refuse it, 1 to try it, 2 for that of the first task in line.  None where all are to be tried.
    """
    cdef Views views = Views()
    cdef const int64_t *at = columns(inventory)
    cdef Py_ssize_t i, d, first = -1, n = -1, kinds = at[I_CLASSES], width = at[I_RESOURCES], two = 2, count = -1
    cdef Py_ssize_t none = -1, rows = min(<int64_t> inventory.rows, at[I_ROWS])
    cdef int64_t level = 0, clock = inventory.clock
    cdef bint tied = False
    cdef const int64_t *cls = <const int64_t *> views.take(classes, 8, 1, &n, &none)
    cdef const int64_t *unit = <const int64_t *> views.take(units, 8, 1, &n, &none)
    cdef const int64_t *demand = <const int64_t *> <size_t> at[I_DEMAND]
    cdef const int64_t *priority = <const int64_t *> <size_t> at[I_PRIORITY]
    cdef const int64_t *cursor = <const int64_t *> views.take(mirror._cursor, 8, 1, &kinds, &none)
    cdef const double *times = <const double *> views.take(heads.times, 8, 2, &kinds, &two)
    cdef const int64_t *line = <const int64_t *> views.take(heads.line, 8, 2, &kinds, &two)
    cdef const int64_t *free = <const int64_t *> <size_t> at[I_FREE]
    cdef const double *end = <const double *> views.take(ends, 8, 1, &count, &none)
    cdef int64_t *standing = views.memory(n + 3 * width + 1)
    cdef int64_t *asked = standing + n
    cdef int64_t *least = asked + width
    cdef int64_t *spare = least + width
    cdef const int64_t *need
    cdef list found = []
    check(cls, n, kinds, "class")
    check(&row, 1, rows, "row")
    for i in range(n):
        standing[i] = bucket_of(now - times[2 * cls[i]], end, count)
        if unit[i] > line[2 * cls[i] + 1] and bucket_of(now - times[2 * cls[i] + 1], end, count) != standing[i]:
            return None     # it depends on which groups these tasks are of
        standing[i] -= priority[cls[i]] * (count + 1)
        if not i or standing[i] > level:
            level = standing[i]
    for d in range(width):
        asked[d] = spare[d] = 0
    for i in range(n):
        if standing[i] != level:
            continue
        if cursor[cls[i]] != clock:
            return None
        need = demand + cls[i] * width
        for d in range(width):
            asked[d] += unit[i] * need[d]
            least[d] = need[d] if first < 0 else min(least[d], need[d])
        if first >= 0 and times[2 * cls[i]] == times[2 * cls[first]] and line[2 * cls[i]] == line[2 * cls[first]]:
            tied = True
        elif (
            first < 0 or times[2 * cls[i]] < times[2 * cls[first]]
            or times[2 * cls[i]] == times[2 * cls[first]] and line[2 * cls[i]] < line[2 * cls[first]]
        ):
            first, tied = i, False
    add_spacious(free, rows, least, spare, width)
    free += row * width
    # If there is room for all of them, the largest go first.
    if first < 0 or tied or at_most(asked, free, width) or at_most(asked, spare, width):
        return None
    for d in range(width):
        spare[d] = free[d] - demand[cls[first] * width + d]
    for i in range(n):
        d = 2 if i == first else at_most(demand + cls[i] * width, spare, width)
        if d and standing[i] != level:
            return None
        found.append(d)
    return found


# -- costs ----------------------------------------------------------------------------------------------------------
#
# The table of a row: n, then s(d) for each resource, then the load without the newcomer.  Where n is negative the rest is not known yet.


cdef double *new_table(Views views, const World *w, Py_ssize_t rows) except NULL:
    """Tables of so many rows, of which nothing is known yet."""
    cdef Py_ssize_t j, width = w.resources + 2
    cdef double *table = <double *> views.memory(rows * width)
    for j in range(rows):
        table[j * width] = -1.0
    return table


cdef double *tabulated(const World *w, double *table, Py_ssize_t j, int64_t r) noexcept nogil:
    """The table of the j-th row, which is r."""
    cdef double *row = table + j * (w.resources + 2)
    cdef const int64_t *capacity = w.capacity + r * w.resources
    cdef const int64_t *free = w.free + r * w.resources
    cdef double n = 0.0, used = 0.0
    cdef Py_ssize_t d
    if row[0] >= 0.0:
        return row
    for d in range(w.resources):
        n += capacity[d] > 0
    for d in range(w.resources):
        row[d + 1] = 1.0 / (<double> capacity[d] * n) if capacity[d] > 0 else 0.0
        used += row[d + 1] * (<double> capacity[d] - <double> free[d])
    row[0], row[w.resources + 1] = n, used
    return row


cdef double load(const World *w, int64_t c, int64_t r, const double *row) noexcept nogil:
    cdef double more = 0.0
    cdef Py_ssize_t d
    if row[0] > 0:
        for d in range(w.resources):
            more += <double> w.demand[c * w.resources + d] * row[d + 1]
        more = row[w.resources + 1] + more
    else:  # a machine with slots but no resources is as full as its slots
        more = <double> (w.running[r] + 1) / max(<double> w.slots[r], 1.0)
    return min(max(more, 0.0), 1.0)


cdef double imbalance(const World *w, int64_t c, int64_t r) noexcept nogil:
    """The largest part in use of a resource that the machine has, less the smallest one."""
    cdef double least = 1.0, most = 0.0, part, capacity
    cdef Py_ssize_t d
    for d in range(w.resources):
        capacity = <double> w.capacity[r * w.resources + d]
        if capacity > 0:
            part = (capacity - <double> w.free[r * w.resources + d]) + <double> w.demand[c * w.resources + d]
            part = min(part / capacity, 1.0)
            least, most = min(least, part), max(most, part)
    return max(most - least, 0.0)


cdef double cost_of(const World *w, int kind, int64_t c, int64_t r, const double *row) noexcept nogil:
    """One built-in cost, in [0, 1]."""
    if kind == BALANCE:
        return imbalance(w, c, r)
    if kind == DEVICES:
        return 1.0 if w.g >= 0 and not w.demand[c * w.resources + w.g] and w.capacity[r * w.resources + w.g] > 0 else 0.0
    return load(w, c, r, row) if kind == SPREAD else 1.0 - load(w, c, r, row)


cdef struct Recipe:
    int terms
    int kind[MOST_TERMS]
    double weight[MOST_TERMS]
    double factor
    double most


cdef int read_recipe(recipe, Recipe *of) except -1:
    """Read ``(((kind, weight), ...), factor, most)``."""
    terms, of.factor, of.most = recipe
    of.terms = 0
    for kind, weight in terms:
        if of.terms == MOST_TERMS:
            raise ValueError("too many costs")
        of.kind[of.terms], of.weight[of.terms] = kind, weight
        of.terms += 1
    return 0


cdef inline int64_t price(const World *w, const Recipe *of, int64_t c, int64_t r, const double *row) noexcept nogil:
    """The weighted sum of costs as a whole number."""
    cdef double total = 0.0
    cdef int i
    for i in range(of.terms):
        total += of.weight[i] * cost_of(w, of.kind[i], c, r, row)
    return <int64_t> min(max(rint(total * of.factor), 0.0), of.most)


def costs(inventory, int kind, classes, rows, /):
    """Return one built-in cost, float64, shape (classes, rows)."""
    cdef Views views = Views()
    cdef World w
    cdef Grid grid
    cdef Py_ssize_t i, j, none = -1, wide = -1
    cdef double *table
    cdef double *out
    open_world(inventory, &w)
    open_grid(views, &w, classes, rows, &grid)
    table = new_table(views, &w, grid.rows)
    found = matrix(grid.classes, grid.rows, np.float64)
    out = <double *> views.take(found, 8, 2, &none, &wide)
    for i in range(grid.classes):
        for j in range(grid.rows):
            out[i * grid.rows + j] = cost_of(&w, kind, grid.cls[i], grid.row[j], tabulated(&w, table, j, grid.row[j]))
    return found


def prices(inventory, recipe, classes, rows, /):
    """Return the cost of a placement by built-in costs alone, int64, shape (classes, rows)."""
    cdef Views views = Views()
    cdef World w
    cdef Grid grid
    cdef Recipe of
    cdef Py_ssize_t i, j, none = -1, wide = -1
    cdef double *table
    cdef int64_t *out
    open_world(inventory, &w)
    open_grid(views, &w, classes, rows, &grid)
    read_recipe(recipe, &of)
    table = new_table(views, &w, grid.rows)
    found = matrix(grid.classes, grid.rows, np.int64)
    out = <int64_t *> views.take(found, 8, 2, &none, &wide)
    for i in range(grid.classes):
        for j in range(grid.rows):
            out[i * grid.rows + j] = price(&w, &of, grid.cls[i], grid.row[j], tabulated(&w, table, j, grid.row[j]))
    return found


# -- refresh --------------------------------------------------------------------------------------------------------


cdef const int64_t *levels_of(Views views, inventory, const World *w) except NULL:
    """The priority of each level in use, and any for the others, where no task runs."""
    cdef Py_ssize_t i = 0
    cdef int64_t *level = views.memory(w.levels)
    for priority in inventory.levels:
        if i == w.levels:
            raise ValueError("more levels than columns")
        level[i] = priority
        i += 1
    while i < w.levels:
        level[i] = 0
        i += 1
    return level


cdef inline int64_t worse_of(const World *w, const int64_t *level, int64_t c, int64_t r) noexcept nogil:
    """The running tasks of worse (larger) priority than the class."""
    cdef int64_t count = 0
    cdef Py_ssize_t i
    for i in range(w.levels):
        if level[i] > w.priority[c]:
            count += w.running_at[r * w.levels + i]
    return count


def worse_running(inventory, classes, rows, /):
    """Return the running tasks of worse (larger) priority than each class, int64, shape (classes, rows)."""
    cdef Views views = Views()
    cdef World w
    cdef Grid grid
    cdef Py_ssize_t i, j, none = -1, wide = -1
    cdef const int64_t *level
    cdef int64_t *out
    open_world(inventory, &w)
    open_grid(views, &w, classes, rows, &grid)
    level = levels_of(views, inventory, &w)
    found = matrix(grid.classes, grid.rows, np.int64)
    out = <int64_t *> views.take(found, 8, 2, &none, &wide)
    for i in range(grid.classes):
        for j in range(grid.rows):
            out[i * grid.rows + j] = worse_of(&w, level, grid.cls[i], grid.row[j])
    return found


cdef inline void fetch(const World *w, int64_t r) noexcept nogil:
    fs_fetch(w.free + r * w.resources)
    fs_fetch(w.capacity + r * w.resources)
    fs_fetch(w.slots + r)
    fs_fetch(w.running + r)
    fs_fetch(w.running_at + r * w.levels)
    fs_fetch(w.shape + r)
    fs_fetch(w.usable + r)
    fs_fetch(w.over + r)


cdef inline int64_t seats_of(const World *w, const int64_t *level, int64_t c, int64_t r, there) except -1:
    """The slots open to a class: free ones, and those of tasks that it may displace: none without `level`, and none on the rows in `there`."""
    cdef int64_t seats = w.slots[r] - w.running[r]
    if level != NULL and w.slots[r] < UNLIMITED and (there is None or r not in there):
        seats += worse_of(w, level, c, r)
    return max(seats, 0)


def seats(inventory, classes, rows, bint displacing, refused, /):
    """Return the slots open to each class, int64, shape (classes, rows); `displacing` and `refused` as in `refresh`."""
    cdef Views views = Views()
    cdef World w
    cdef Grid grid
    cdef Py_ssize_t i, j, none = -1, wide = -1
    cdef const int64_t *level = NULL
    cdef int64_t *out
    open_world(inventory, &w)
    open_grid(views, &w, classes, rows, &grid)
    if displacing:
        level = levels_of(views, inventory, &w)
    found = matrix(grid.classes, grid.rows, np.int64)
    out = <int64_t *> views.take(found, 8, 2, &none, &wide)
    for i in range(grid.classes):
        there = refused.get(grid.cls[i])
        for j in range(grid.rows):
            out[i * grid.rows + j] = seats_of(&w, level, grid.cls[i], grid.row[j], there)
    return found


def behind(mirror, list classes not None, int64_t clock, /):
    """Return the classes that are not up to date, by their cursors, which become `clock`."""
    cdef const int64_t *at = columns(mirror)
    cdef int64_t *cursor = <int64_t *> <size_t> at[M_CURSOR]
    cdef int64_t c, last = -1
    cdef dict found = {}
    cdef list members = None
    for one in classes:
        c = one
        check(&c, 1, at[M_CLASSES], "class")
        if cursor[c] < clock:
            if members is None or cursor[c] != last:
                last = cursor[c]
                members = found.setdefault(last, [])
            members.append(one)
            cursor[c] = clock
    return found


cdef int open_rows(Views views, World *w, inventory, int64_t clock, rows, Grid *grid) except -1:
    """Look at the rows given, or at those that changed after `clock`."""
    cdef Py_ssize_t none = -1
    cdef list log
    cdef int64_t start
    if rows is None and inventory._reach is None:
        log, start = inventory._log, inventory._log_from
        if start <= clock and <int64_t> inventory.clock - clock <= <int64_t> inventory._log_most // 4:
            grid.rows = logged(views, log, clock - start, clock, w.version, w.rows, &grid.row)
            return 0
    if rows is None:
        rows = inventory.changed_since(clock)
    grid.rows = -1
    grid.row = <const int64_t *> views.take(rows, 8, 1, &grid.rows, &none, 0)
    check(grid.row, grid.rows, w.rows, "row")
    return 0


def refresh(batch, inventory, mirror, list classes not None, int64_t clock, recipe, prices, bint displacing, refused, rows=None, fits=None, bits=None, /):
    """Bring the mirror up to date for classes and the rows that changed after `clock`, and tell the network.

    Parameters
    ----------
    batch : NetworkEdits
    inventory : Inventory
    mirror : ClassArcs
    classes : list of int
    clock : int
        The cursor that they had.
    recipe : tuple or None
        Built-in costs, see `prices`.
    prices : ndarray of int64, shape (classes, rows)
        The costs where `recipe` is None.
    displacing : bool
        Tasks may displace those of worse priority where slots are limited.
    refused : mapping of int to collection of int
        By class, rows where they may not.
    rows : ndarray of int64, optional
        These rows, whenever they changed.
    fits, bits : ndarray, shape (classes, rows), optional
        The room where it is not that of `room`.

    Returns
    -------
    (ndarray of int64, ndarray of int64) or None
        Classes and rows of the pairs that need an arc: class by class, row by row.
    """
    cdef Views views = Views()
    cdef World w
    cdef Grid grid
    cdef Recipe of
    cdef Py_ssize_t i, j, at, p, pairs, none = -1, wide = -1, lines = -1
    cdef Py_ssize_t moved = 0, dearer = 0, new = 0
    cdef int64_t c, r, fit, capacity, cost, arc
    cdef uint32_t why
    cdef bint changed
    cdef int64_t *index
    cdef const int64_t *level = NULL
    cdef const int64_t *given = NULL
    cdef const int64_t *given_fit = NULL
    cdef const uint32_t *given_why = NULL
    cdef double *table = NULL
    cdef int64_t *out
    cdef int64_t *out_new
    cdef dict copies = mirror._why_copy
    cdef bint copied = bool(copies), refusing = bool(refused)
    cdef Entries *entries = <Entries *> PyCapsule_GetPointer(batch.entries, "flowsched.entries")
    open_world(inventory, &w)
    cdef const int64_t *known = columns(mirror)
    cdef const int64_t *m_arc = <const int64_t *> <size_t> known[M_ARC]
    cdef int64_t *m_capacity = <int64_t *> <size_t> known[M_CAPACITY]
    cdef int64_t *m_cost = <int64_t *> <size_t> known[M_COST]
    cdef uint32_t *m_why = <uint32_t *> <size_t> known[M_WHY]
    cdef int64_t *m_open = <int64_t *> <size_t> known[M_OPEN]
    cdef char *m_roomy = <char *> <size_t> known[M_ROOMY]
    cdef Py_ssize_t mirrored = known[M_ROWS]
    w.rows, w.classes = min(w.rows, mirrored), min(w.classes, known[M_CLASSES])
    open_rows(views, &w, inventory, clock, rows, &grid)
    if not grid.rows:
        return None
    grid.classes = lines = len(classes)
    index = views.memory(lines)
    for i in range(lines):
        index[i] = classes[i]
    check(index, lines, w.classes, "class")
    grid.cls = index
    pairs = lines * grid.rows
    wide = grid.rows
    if fits is not None:
        given_fit = <const int64_t *> views.take(fits, 8, 2, &lines, &wide)
        given_why = <const uint32_t *> views.take(bits, 4, 2, &lines, &wide)
    if recipe is None:
        given = <const int64_t *> views.take(prices, 8, 2, &lines, &wide)
    else:
        read_recipe(recipe, &of)
        table = new_table(views, &w, grid.rows)
    if lines != grid.classes:
        raise ValueError("arrays of different lengths")
    if displacing:
        level = levels_of(views, inventory, &w)
    out = views.memory(4 * pairs)
    out_new = views.memory(pairs)
    for i in range(grid.classes):
        c = grid.cls[i]
        there = refused.get(c) if refusing else None
        changed = clock == 0
        for j in range(-AHEAD, grid.rows):
            if j + AHEAD < grid.rows:
                at = c * mirrored + grid.row[j + AHEAD]
                fetch(&w, grid.row[j + AHEAD])
                fs_fetch(m_arc + at)
                fs_fetch(m_capacity + at)
                fs_fetch(m_cost + at)
                fs_fetch(m_why + at)
            if j < 0:
                continue
            r, p = grid.row[j], i * grid.rows + j
            at = c * mirrored + r
            if given_fit == NULL:
                fit = room_of(&w, c, r, False, &why)
            else:
                fit, why = given_fit[p], given_why[p]
            capacity = min(fit, seats_of(&w, level, c, r, there))
            if why != m_why[at]:
                m_open[c] += (why == 0) - (m_why[at] == 0)
                m_why[at] = why
                changed = True
            arc = m_arc[at]
            if capacity > 0:
                cost = given[p] if given != NULL else price(&w, &of, c, r, tabulated(&w, table, j, r))
                if arc < 0:
                    out_new[new] = p
                    new += 1
                    m_cost[at] = cost
                elif cost != m_cost[at]:
                    out[2 * pairs + dearer], out[3 * pairs + dearer] = arc, cost
                    dearer += 1
                    m_cost[at] = cost
            if arc >= 0 and capacity != m_capacity[at]:
                out[moved], out[pairs + moved] = arc, capacity
                moved += 1
            m_capacity[at] = capacity
        if changed:
            m_roomy[c] = m_open[c] > 0
            if copied:
                copies.pop(c, None)
    if moved:
        entries.send(<void *> batch, False, out, out + pairs, moved)
    if dearer:
        entries.send(<void *> batch, True, out + 2 * pairs, out + 3 * pairs, dearer)
    if not new:
        return None
    at_class, at_row = _empty(new, np.int64), _empty(new, np.int64)
    none = -1
    out = <int64_t *> views.take(at_class, 8, 1, &none, &none)
    index = <int64_t *> views.take(at_row, 8, 1, &none, &none)
    for i in range(new):
        out[i], index[i] = grid.cls[out_new[i] // grid.rows], grid.row[out_new[i] % grid.rows]
    return at_class, at_row


# -- lists ----------------------------------------------------------------------------------------------------------


cdef int ascending(const void *a, const void *b) noexcept nogil:
    cdef int64_t x = (<const int64_t *> a)[0], y = (<const int64_t *> b)[0]
    return (x > y) - (x < y)


cdef Py_ssize_t logged(Views views, list log, Py_ssize_t start, int64_t clock, const int64_t *version, Py_ssize_t rows, const int64_t **found) except -1:
    """Find the rows in a log, from `start` on, that changed after `clock`, in ascending order; return their number.

    The entry at `start` is of ``clock + 1``, and each further one of the next value.
    """
    cdef Py_ssize_t i, k = max(len(log) - start, 0), count = 0
    cdef int64_t *row = views.memory(k)
    for i in range(k):
        row[count] = log[start + i]
        check(row + count, 1, rows, "row")
        count += version[row[count]] == clock + 1 + i       # else the row has changed once more, or its machine has gone
    qsort(row, count, sizeof(int64_t), &ascending)
    found[0] = row
    return count


def changed(inventory, list log, Py_ssize_t start, int64_t clock, /):
    """Return the rows in a log, from `start` on, that changed after `clock`, in ascending order.

    Rows without a machine have changed at 0.
    """
    cdef Views views = Views()
    cdef const int64_t *row
    cdef const int64_t *at = columns(inventory)
    cdef Py_ssize_t i, none = -1, count = logged(views, log, start, clock, <const int64_t *> <size_t> at[I_VERSION], at[I_ROWS], &row)
    found = _empty(count, np.int64)
    cdef int64_t *out = <int64_t *> views.take(found, 8, 1, &none, &none)
    for i in range(count):
        out[i] = row[i]
    return found


# -- flow -----------------------------------------------------------------------------------------------------------


def sent(racks, mirror, batch, classes, more, changed, /):
    """Return the flow from racks to machines: by class, ``[(row, units), ...]``, both ascending.

    Parameters
    ----------
    racks : RackArcs
        Its `_used`, bytes of int64, are ascending; they become the arcs that have flow now.
    mirror : ClassArcs
    batch : NetworkEdits
    classes : collection of int
    more : sequence of int
        Pairs ``class << 32 | rack`` where flow enters the rack otherwise than by the class's aggregator.
    changed : ndarray of int64 or None
        Arcs, ascending: those of them that lead to racks are looked at, beside those in `_used`.  None if all may have changed.
    """
    cdef Views views = Views()
    cdef Entries *entries = <Entries *> PyCapsule_GetPointer(batch.entries, "flowsched.entries")
    cdef const int64_t *known = columns(racks)
    cdef Py_ssize_t i = 0, j = 0, n, k = -1, none = -1, count = 0, total = 0, arcs = known[R_ARCS], kinds = known[R_CLASSES], width = known[R_RACKS]
    cdef int64_t arc, last = -1, c, r
    cdef bint asked = False
    cdef list entered = [], there = None
    cdef dict found = {}, listed = racks._listed
    cdef bytes rows
    cdef bytes before = racks.all_arcs() if changed is None else racks._used
    cdef const int64_t *used
    cdef const int64_t *pair = <const int64_t *> <size_t> known[R_PAIR]
    cdef const int64_t *kept = <const int64_t *> <size_t> known[R_ARC]
    cdef const int64_t *other = NULL
    cdef const int64_t *row
    cdef int64_t *at
    cdef int64_t *units
    cdef int64_t *pairs
    if before is None:
        before = racks.all_arcs()
    if changed is None:
        k = 0
    else:
        other = <const int64_t *> views.take(changed, 8, 1, &k, &none, 0)
    used = <const int64_t *> <const char *> before
    n = len(before) // sizeof(int64_t)
    at, units = views.memory(n + k), views.memory(n + k)
    while i < n or j < k:
        if j == k or i < n and used[i] <= other[j]:
            arc = used[i]
            i += 1
        else:
            arc = other[j]
            j += 1
        if arc >= arcs:
            break
        if arc <= last or pair[arc] < 0:
            continue
        last = arc
        c, r = pair[arc] >> 32, pair[arc] & 0xffffffff
        if c < kinds and r < width and kept[c * width + r] == arc:    # an id may belong to another arc by now
            at[count] = arc
            count += 1
    n, count, network = count, 0, batch._network
    entries.flows(<void *> network, at, n, units)
    pairs = views.memory(n + len(more))
    for i in range(n):
        if units[i] > 0:
            at[count], pairs[count] = at[i], pair[at[i]]
            count += 1
    racks._used = (<const char *> at)[:count * sizeof(int64_t)]
    for one in more:
        if count < n + len(more):
            pairs[count] = one
            count += 1
    qsort(pairs, count, sizeof(int64_t), &ascending)
    n, count, last = count, 0, -1
    known = columns(mirror)
    kept, kinds, width = <const int64_t *> <size_t> known[M_ARC], known[M_CLASSES], known[M_ROWS]
    for i in range(n):
        if i and pairs[i] == arc:
            continue
        arc, c = pairs[i], pairs[i] >> 32
        if c != last:
            last, asked = c, c in classes
            if asked:
                check(&c, 1, kinds, "class")
        if asked:
            rack = arc & 0xffffffff
            rows = listed.get(rack)
            if rows is None:
                rows = racks.members(rack)
            entered.append(rows)
            total += len(rows) // sizeof(int64_t)
            pairs[count] = c        # from here on, the class of each entry
            count += 1
    if not total:
        return found
    at, units = views.memory(3 * total), views.memory(total)
    cdef int64_t *key = at + total
    n, count = count, 0
    for i in range(n):
        c, rows = pairs[i], entered[i]
        row = <const int64_t *> <const char *> rows
        k = len(rows) // sizeof(int64_t)
        check(row, k, width, "row")
        for j in range(k):
            arc = kept[c * width + row[j]]
            if arc >= 0:
                at[count], key[2 * count] = arc, c << 32 | row[j]
                count += 1
    entries.flows(<void *> network, at, count, units)
    n, count = count, 0
    for i in range(n):
        if units[i] > 0:
            key[2 * count], key[2 * count + 1] = key[2 * i], units[i]
            count += 1
    qsort(key, count, 2 * sizeof(int64_t), &ascending)
    for i in range(count):
        if not i or key[2 * i] >> 32 != key[2 * i - 2] >> 32:
            there = found[key[2 * i] >> 32] = []
        there.append((key[2 * i] & 0xffffffff, key[2 * i + 1]))
    return found


# -- running --------------------------------------------------------------------------------------------------------


cdef type group_type, node_type
cdef Py_ssize_t g_on, n_node


def learn(type group not None, type node not None, /):
    """Learn where `Group` and `GroupNode` keep their attributes."""
    global group_type, node_type, g_on, n_node
    g_on, n_node = fs_offset(group, "on"), fs_offset(node, "node")
    group_type, node_type = group, node


cdef void *slots_of(of, type kind) except NULL:
    """The object itself, whose slots may be read."""
    if type(of) is not kind:
        raise TypeError(f"a {kind.__name__} expected, got {of!r}")
    return <void *> of


cdef double youngest(tuple began) except? -1:
    """The latest of some starts."""
    cdef double latest = -INFINITY, one
    for start in began:
        one = start
        latest = max(latest, one)
    return latest


def find_running(running, dict touched not None, /):
    """Compare arcs of `RunningArcs` with the tasks that run: of these groups, on the machines named with each.

    Capacities that differ are sent.

    Returns
    -------
    old, aged : list of int
        Indices of arcs that go, and of those with another start.
    new, tails, heads, counts, starts : list
        Indices of arcs that come, their ends, how many tasks run there, and when the youngest of them has begun.
    """
    cdef dict of = running._of, nodes = running.groups.nodes, capacities = running.batch._capacity, known, on
    cdef list old = [], aged = [], new = [], tails = [], heads = [], counts = [], starts = []
    cdef list free = running._indices._free
    cdef const int64_t *at = columns(running)
    cdef const int64_t *machines = columns(running.machines)
    cdef const int64_t *world = columns(running.cluster.inventory)
    cdef const int64_t *slots = <const int64_t *> <size_t> world[I_SLOTS]
    cdef const int64_t *node = <const int64_t *> <size_t> machines[N_NODE]
    cdef const int64_t *arc = <const int64_t *> <size_t> at[A_ARC]
    cdef int64_t *holds = <int64_t *> <size_t> at[A_RUNNING]
    cdef double *since = <double *> <size_t> at[A_SINCE]
    cdef int64_t row, index, count, rows = min(world[I_ROWS], machines[N_ROWS])
    cdef double start
    for group, there in touched.items():
        if not there:
            continue
        on = <object> fs_slot(slots_of(group, group_type), g_on)
        known = of.get(group)
        if known is None:
            known = of[group] = {}
        for one in <dict?> there:
            began, found = on.get(one), known.get(one)
            if began is None:
                if found is not None:
                    del known[one]
                    old.append(found)
                continue
            row, count = one, len(<tuple?> began)
            check(&row, 1, rows, "row")
            start = INFINITY if slots[row] == UNLIMITED else youngest(began)
            if found is None:
                found = known[one] = free.pop() if free else running._indices.take()
                new.append(found)
                tails.append(<object> fs_slot(slots_of(nodes[group], node_type), n_node))
                heads.append(node[row])
                counts.append(count)
                starts.append(start)
                continue
            index = found
            check(&index, 1, at[A_ARCS], "arc")
            if holds[index] != count:
                holds[index] = count
                capacities[arc[index]] = count
            if since[index] != start:
                since[index] = start
                aged.append(found)
    return old, aged, new, tails, heads, counts, starts


cdef struct Ends:
    double *end             # heap of ends of age buckets: none is later than its children, those at four times its place plus 1 to 4
    int64_t *arc            # index of the arc of each
    Py_ssize_t count, room


cdef Ends ends_of(const int64_t *at, running) except *:
    """The heap of `RunningArcs`."""
    cdef Ends ends = Ends(<double *> <size_t> at[A_END], <int64_t *> <size_t> at[A_ENDING], running._ends, at[A_ENDS])
    if not 0 <= ends.count <= ends.room:
        raise IndexError("more ends than there is room for")
    return ends


cdef int put_end(Ends *ends, double due, int64_t arc) except -1:
    """Put in the end of a bucket, if it has one."""
    cdef Py_ssize_t i = ends.count, above
    if due == INFINITY:
        return 0
    if i == ends.room:
        raise IndexError("no room for an end")
    ends.count += 1
    while i:
        above = (i - 1) >> 2
        if ends.end[above] <= due:
            break
        ends.end[i], ends.arc[i] = ends.end[above], ends.arc[above]
        i = above
    ends.end[i], ends.arc[i] = due, arc
    return 0


cdef void drop_end(Ends *ends) noexcept:
    """Take out the first end: the last one takes its place, and sinks below those that are earlier."""
    cdef Py_ssize_t i = 0, least, below, count = ends.count - 1
    ends.count = count
    while 4 * i + 1 < count:
        least = 4 * i + 1
        for below in range(least + 1, min(least + 4, count)):
            if ends.end[below] < ends.end[least]:
                least = below
        if ends.end[count] <= ends.end[least]:
            break
        ends.end[i], ends.arc[i] = ends.end[least], ends.arc[least]
        i = least
    ends.end[i], ends.arc[i] = ends.end[count], ends.arc[count]


def age_running(running, list aged not None, policy, double now, /):
    """Note the ages of these arcs of `RunningArcs`, and of those whose age bucket has ended; costs that differ are sent.

    The first end in the heap is one that counts then.
    """
    cdef const int64_t *at = columns(running)
    cdef const int64_t *arc = <const int64_t *> <size_t> at[A_ARC]
    cdef const double *since = <const double *> <size_t> at[A_SINCE]
    cdef int64_t *buckets = <int64_t *> <size_t> at[A_BUCKET]
    cdef double *dues = <double *> <size_t> at[A_DUE]
    cdef Ends ends = ends_of(at, running)
    cdef dict costs = running.batch._cost
    cdef list found = aged[:]
    cdef int64_t index, bucket = 0
    cdef double start = 0, due = 0
    cdef object cost = None
    while ends.count and ends.end[0] <= now:
        check(ends.arc, 1, at[A_ARCS], "arc")
        if dues[ends.arc[0]] == ends.end[0]:
            found.append(ends.arc[0])
        drop_end(&ends)
    found.sort()        # so that the order of starts does not show in the network
    for index in found:
        check(&index, 1, at[A_ARCS], "arc")
        if cost is None or since[index] != start:   # most have begun together
            start = since[index]
            bucket, due, cost = running.age(start, policy, now)
        if buckets[index] != bucket:
            buckets[index] = bucket
            costs[arc[index]] = cost
        if dues[index] != due:
            dues[index] = due
            put_end(&ends, due, index)
    while ends.count:
        check(ends.arc, 1, at[A_ARCS], "arc")
        if dues[ends.arc[0]] == ends.end[0]:
            break
        drop_end(&ends)
    running._ends = ends.count


def begin_running(running, list new not None, list counts not None, list starts not None, policy, now, /):
    """Note how many tasks run where arcs of `RunningArcs` come, since when, and their ages; return the costs."""
    cdef const int64_t *at = columns(running)
    cdef int64_t *holds = <int64_t *> <size_t> at[A_RUNNING]
    cdef double *since = <double *> <size_t> at[A_SINCE]
    cdef int64_t *buckets = <int64_t *> <size_t> at[A_BUCKET]
    cdef double *dues = <double *> <size_t> at[A_DUE]
    cdef Ends ends = ends_of(at, running)
    cdef int64_t index, bucket = 0
    cdef double start, last = 0, due = 0
    cdef Py_ssize_t i
    cdef object cost = None
    cdef list costs = []
    for i in range(min(len(new), len(counts), len(starts))):
        index, start = new[i], starts[i]
        check(&index, 1, at[A_ARCS], "arc")
        if cost is None or start != last:     # most have begun together
            last = start
            bucket, due, cost = running.age(start, policy, now)
        holds[index], since[index], buckets[index], dues[index] = counts[i], start, bucket, due
        put_end(&ends, due, index)
        costs.append(cost)
    running._ends = ends.count
    return costs
