"""The classes, among many that want one machine, that can be refused without a trial; see `flowsched.rounds.contest`."""

cimport cython
from cpython cimport array
from libc.stdint cimport int64_t

from flowsched.cluster._room cimport InventoryColumns, add_spacious, at_most, check, check_all, int64s, numbers


cdef int64_t bucket_of(double age, const double[::1] ends) noexcept nogil:
    """Age bucket of an age."""
    cdef Py_ssize_t b = 0
    while b < ends.shape[0] and ends[b] <= age:
        b += 1
    return b


@cython.boundscheck(False)      # an axis may have the length 0
def contest(inventory, mirror, heads, const int64_t[::1] classes not None, const int64_t[::1] units not None, const double[::1] ends not None,
            int64_t row, double now, /):
    """Select the classes, among those that want one machine, that are to be tried; see `flowsched.rounds.contest`.

    Parameters
    ----------
    inventory : Inventory
    mirror : ClassArcs
    heads : Heads
        With entries of these classes.
    classes, units : ndarray of int64, shape (n,)
        Classes, and the number of tasks of each that the flow sends.
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
    cdef InventoryColumns at = inventory.typed
    cdef const int64_t[::1] cursor = mirror._cursor
    cdef const double[:, ::1] times = heads.times
    cdef const int64_t[:, ::1] line = heads.line
    cdef Py_ssize_t i, d, first = -1, n = classes.shape[0], kinds = min(at.demand.shape[0], cursor.shape[0], times.shape[0], line.shape[0])
    cdef Py_ssize_t width = at.free.shape[1], count = ends.shape[0], rows = min(<Py_ssize_t> inventory.rows, at.free.shape[0])
    cdef int64_t level = 0, clock = inventory.clock
    cdef bint tied = False
    cdef array.array memory = numbers(n + 3 * width + 1)
    cdef int64_t *standing = int64s(memory)
    cdef int64_t *asked = standing + n
    cdef int64_t *least = asked + width
    cdef int64_t *spare = least + width
    cdef const int64_t *free = &at.free[0, 0]
    cdef const int64_t *need
    cdef list found = []
    if units.shape[0] != n or times.shape[1] != 2 or line.shape[1] != 2:
        raise ValueError("contest: arrays of different lengths")
    check_all(classes, kinds, "class")
    check(row, rows, "row")
    for i in range(n):
        standing[i] = bucket_of(now - times[classes[i], 0], ends)
        if units[i] > line[classes[i], 1] and bucket_of(now - times[classes[i], 1], ends) != standing[i]:
            return None     # it depends on which groups these tasks are of
        standing[i] -= at.priority[classes[i]] * (count + 1)
        if not i or standing[i] > level:
            level = standing[i]
    for d in range(width):
        asked[d] = spare[d] = 0
    for i in range(n):
        if standing[i] != level:
            continue
        if cursor[classes[i]] != clock:
            return None
        need = &at.demand[classes[i], 0]
        for d in range(width):
            asked[d] += units[i] * need[d]
            least[d] = need[d] if first < 0 else min(least[d], need[d])
        if first >= 0 and times[classes[i], 0] == times[classes[first], 0] and line[classes[i], 0] == line[classes[first], 0]:
            tied = True
        elif (
            first < 0 or times[classes[i], 0] < times[classes[first], 0]
            or times[classes[i], 0] == times[classes[first], 0] and line[classes[i], 0] < line[classes[first], 0]
        ):
            first, tied = i, False
    add_spacious(free, rows, least, spare, width)
    free += row * width
    # If there is room for all of them, the largest go first.
    if first < 0 or tied or at_most(asked, free, width) or at_most(asked, spare, width):
        return None
    for d in range(width):
        spare[d] = free[d] - at.demand[classes[first], d]
    for i in range(n):
        d = 2 if i == first else at_most(&at.demand[classes[i], 0], spare, width)
        if d and standing[i] != level:
            return None
        found.append(d)
    return found
