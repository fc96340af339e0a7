"""Selection of the few classes that can start on one machine to which the flow sends tasks of many.

In a full cluster the tasks of nearly all waiting classes fit on a machine where one task has ended, each alone, and the flow sends them all there.  The rules of
`flowsched.rounds.packing` start one of them, and the others then have no room.  The first tasks in line determine it, so the other classes need not be tried one
by one.
"""

cimport cython
from cpython cimport array
from libc.stdint cimport int64_t

from flowsched.builder.builder cimport Builder
from flowsched.builder.queues cimport ClassQueue, Head, Queues
from flowsched.builder._arcs cimport ClassArcsColumns
from flowsched.builder.scope cimport RoundScope
from flowsched.cluster._room cimport InventoryColumns, MovedFields, add_spacious, at_most, check, check_all, int64s, numbers
from flowsched.cluster.records cimport Group, TaskClass

_MANY = 8       # number of classes below which all are tried one by one

cdef enum:
    FIRST = 2   # result of `chosen` for the class of the first task


@cython.final
cdef class Contest:
    """Classes whose tasks the flow sends to one machine.

    Attributes
    ----------
    row : int
        The machine.
    kept : list of int
        Classes to try: that of the first task in line, and those with room next to it.
    dropped : list of int
        The other classes.
    """

    cdef readonly int64_t row
    cdef readonly list kept, dropped


def contest(Builder builder not None, RoundScope scope not None, dict sent not None, preempts, /):
    """Return the classes to try; None if the first tasks do not determine them, so that all must be tried.

    Parameters
    ----------
    builder : Builder
    scope : RoundScope
    sent : dict of int to list of (int, int)
        Machines to which the flow sends tasks, and their numbers, by class.
    preempts : callable
        Returns True if others may have to stop for tasks of a priority.

    Returns
    -------
    Contest or None
    """
    cdef MovedFields inventory = builder.cluster.inventory
    cdef InventoryColumns at = inventory.typed
    cdef Queues queues = builder.queues
    cdef Py_ssize_t i, n = len(sent)
    cdef int64_t c, row = -1, most = 0
    cdef TaskClass cls
    cdef ClassQueue queue
    cdef Head head
    cdef Contest found
    cdef list heads = [], tried, there
    if n < _MANY or inventory.rule is not None or inventory.constraints or scope.urged or scope.now < builder.latest:
        return None
    for group in scope.withheld:
        if (<Group?> group).cls.index in sent:
            return None
    cdef array.array class_memory = numbers(n), unit_memory = numbers(n)
    cdef int64_t[::1] classes = class_memory, units = unit_memory
    i = 0
    for class_id, there in sent.items():
        if len(there) > 1 or row >= 0 and row != <int64_t> (<tuple> there[0])[0]:
            return None
        c, row, units[i] = class_id, (<tuple> there[0])[0], (<tuple> there[0])[1]
        check(c, at.priority.shape[0], "class")
        classes[i] = c
        most = min(most, at.priority[c]) if i else at.priority[c]
        i += 1
    if preempts(most):
        return None
    for class_id in sent:
        cls = builder.class_of[class_id]
        queue = queues.of(cls)
        head = queue.head()
        if head is None:
            return None
        heads.append(head)
    tried = chosen(inventory, (<ClassArcsColumns> builder.classes.typed).cursor, heads, classes, units, builder.policy.waiting.ends, row, scope.now)
    if tried is None:
        return None
    found = Contest.__new__(Contest)
    found.row, found.kept, found.dropped, i = row, [], [], 0
    for class_id in sent:
        (found.kept if tried[i] else found.dropped).append(class_id)
        if tried[i] == FIRST and (inventory.affinity.heeds(class_id) or inventory.device_share(class_id)):
            return None     # it may have no room after all
        i += 1
    return found


cdef int64_t bucket_of(double age, list ends) except -1:
    """Age bucket of an age."""
    cdef Py_ssize_t b = 0
    while b < len(ends) and <double> ends[b] <= age:
        b += 1
    return b


@cython.boundscheck(False)      # an axis may have the length 0
cpdef list chosen(MovedFields inventory, const int64_t[::1] cursor, list heads, const int64_t[::1] classes, const int64_t[::1] units, list ends, int64_t row,
                  double now):
    """Select the classes, among those that want one machine, that are to be tried.

    Parameters
    ----------
    inventory : Inventory
    cursor : ndarray of int64
        Value of `Inventory.clock` up to which the arcs of each class are up to date.
    heads : list of Head, length n
        First tasks of the classes.
    classes, units : ndarray of int64, shape (n,)
        Classes, and the number of tasks of each that the flow sends.
    ends : list of float
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
    cdef Head head, best = None
    cdef Py_ssize_t i, d, first = -1, n = classes.shape[0], width = at.free.shape[1], rows = min(<Py_ssize_t> inventory.rows, at.free.shape[0])
    cdef int64_t level = 0, clock = inventory.clock, above = len(ends) + 1
    cdef bint tied = False
    cdef array.array memory = numbers(n + 3 * width + 1)
    cdef int64_t *standing = int64s(memory)
    cdef int64_t *asked = standing + n
    cdef int64_t *least = asked + width
    cdef int64_t *spare = least + width
    cdef const int64_t *free = &at.free[0, 0]
    cdef const int64_t *need
    cdef list found = []
    if units.shape[0] != n or len(heads) != n:
        raise ValueError("chosen: arrays of different lengths")
    check_all(classes, min(at.demand.shape[0], cursor.shape[0]), "class")
    check(row, rows, "row")
    for i in range(n):
        head = heads[i]
        standing[i] = bucket_of(now - head.since, ends)
        if units[i] > head.ahead and bucket_of(now - head.eldest, ends) != standing[i]:
            return None     # it depends on which groups these tasks are of
        standing[i] -= at.priority[classes[i]] * above
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
        head = heads[i]
        if first >= 0 and head.since == best.since and head.serial == best.serial:
            tied = True
        elif first < 0 or head.since < best.since or head.since == best.since and head.serial < best.serial:
            first, best, tied = i, head, False
    add_spacious(free, rows, least, spare, width)
    free += row * width
    # If there is room for all of them, the largest go first.
    if first < 0 or tied or at_most(asked, free, width) or at_most(asked, spare, width):
        return None
    for d in range(width):
        spare[d] = free[d] - at.demand[classes[first], d]
    for i in range(n):
        d = FIRST if i == first else at_most(&at.demand[classes[i], 0], spare, width)
        if d and standing[i] != level:
            return None
        found.append(d)
    return found
