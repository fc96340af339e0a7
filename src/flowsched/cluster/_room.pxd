# The columns of machines and classes, and the rules of room, for compiled modules.

from cpython cimport array
from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef extern from *:
    """
    #define FS_MICRO 1000000
    #define FS_UNLIMITED ((int64_t)1 << 40)
    #if defined(_MSC_VER)
    #define fs_fetch(p) ((void)(p))
    #else
    #define fs_fetch(p) __builtin_prefetch(p, 1)
    #endif
    """
    const int64_t MICRO "FS_MICRO"
    const int64_t UNLIMITED "FS_UNLIMITED"
    void fs_fetch(const void *p) noexcept nogil         # a prefetch: it will be needed soon

cdef enum:                      # bits of `flowsched.cluster.limits`
    DOWN = 1
    LABEL = 2
    SLOTS = 4
    HELD = 8
    RESOURCE = 16               # << d


cdef class InventoryColumns:    # of `Inventory`
    cdef public int64_t[::1] version, devices, first_device, num_devices, slots, running, priority, level
    cdef public int64_t[:, ::1] capacity, free, running_at, demand
    cdef public uint32_t[::1] over
    cdef public uint8_t[::1] usable


cdef class TypedColumns:        # base of `Columns`
    cdef public object typed


cdef class MovedFields(TypedColumns):   # fields of `Inventory` that a move of a task reads or changes
    cdef public int64_t clock, arranged, _log_from, _log_most
    cdef public list _log, _running_by_level
    cdef public object affinity, shunned, suitability, tasks, rule, constraints, _reach, _reserved

    cdef bint plain(self) except -1
    cpdef held(self)


cdef class SuitabilityColumns:  # of `Suitability`
    cdef public int64_t[::1] of
    cdef public uint8_t[:, ::1] suits, holds


cdef struct World:
    Py_ssize_t classes, rows                # all indices are below these
    Py_ssize_t resources, levels, shapes
    Py_ssize_t g                            # the resource of devices, -1 without one
    const int64_t *demand                   # by class and resource
    const int64_t *priority                 # by class
    const int64_t *capacity                 # by row and resource
    const int64_t *free                     # by row and resource
    const int64_t *device                   # free amount of each device, machine by machine
    const int64_t *first                    # by row: where its devices begin
    const int64_t *devices                  # by row: their number
    const uint32_t *over                    # by row: bits of the resources of which its tasks take more than there is
    const int64_t *slots                    # by row
    const int64_t *running                  # by row: number of tasks now
    const int64_t *running_at               # by row and level: number of tasks of that priority
    const int64_t *shape                    # by row
    const uint8_t *usable                   # by row
    const int64_t *version                  # by row: clock of its last change
    const uint8_t *suits                    # by class and shape: labels and taints allow it
    const int64_t *held                     # by row, as far as the column goes: see `Reservations.held`
    Py_ssize_t held_rows


cdef InventoryColumns open_world(MovedFields inventory, World *w)
cdef array.array numbers(Py_ssize_t count)
cdef object matrix(Py_ssize_t lines, Py_ssize_t width, kind)
cdef int check_all(const int64_t[::1] index, Py_ssize_t end, str what) except -1
cdef array.array levels_of(inventory, const World *w)
cdef array.array logged(list log, Py_ssize_t start, int64_t clock, const World *w)
cdef bint at_most(const int64_t *need, const int64_t *have, Py_ssize_t width) noexcept nogil
cdef void add_spacious(const int64_t *free, Py_ssize_t rows, const int64_t *need, int64_t *out, Py_ssize_t width) noexcept nogil


cdef inline int64_t *int64s(array.array numbers) noexcept:
    return <int64_t *> numbers.data.as_longlongs


cdef inline int check(int64_t index, Py_ssize_t end, str what) except -1:
    """Check that the index is below `end`."""
    if not 0 <= index < end:
        raise IndexError(f"{what} {index}")
    return 0


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
    """Number of tasks of a class that fit on a machine; `why`: the bits against one more.  With `ruled`, a limit decides on resources elsewhere."""
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


cdef inline int64_t worse_of(const World *w, const int64_t *level, int64_t c, int64_t r) noexcept nogil:
    """Number of running tasks of worse (larger) priority than the class."""
    cdef int64_t count = 0
    cdef Py_ssize_t i
    for i in range(w.levels):
        if level[i] > w.priority[c]:
            count += w.running_at[r * w.levels + i]
    return count
