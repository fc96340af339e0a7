"""Arcs from classes to machines: changes of room and costs that the network has not yet received, and the flow on the arcs.

A mirror (`flowsched.builder.class_arcs.ClassArcs`) holds by class and row the arc, its capacity, its cost and the bits of the reasons against one more task.
`refresh` changes the mirror, and sends the changes to the network, class by class and row by row.  Invariants, for all pairs and after each call:

* capacity is the lesser of the room and of the seats: free slots, and those of tasks that the class may displace;
* cost is that of the pair when its arc was last open: the cost of a closed arc does not matter;
* ``open[c]`` is the number of rows without any bit, and ``roomy[c]`` is ``open[c] > 0``.

Memory is taken before the mirror changes: an exception before the network has changed leaves the mirror as it was.  Lengths and indices are checked before any array is used.

`sent` reads the flow where it may have changed: on the arcs from aggregators to racks that the last solution altered, and on those that had flow before.  Its cost
thus follows the flow through racks, not the size of the cluster.  There, arcs without capacity have no flow.
"""

cimport cython
from cpython cimport array
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport qsort

from flowsched._faults cimport _empty
from flowsched.cluster cimport records
from flowsched.cluster._room cimport (
    DOWN, UNLIMITED, InventoryColumns, MovedFields, World, check, check_all, fs_fetch, int64s, levels_of, logged, matrix, numbers, open_world, room_of, worse_of,
)
from flowsched.network._edits cimport NetworkEdits
from flowsched.policy._costs cimport Recipe, new_table, price, read_recipe, tabulated

import numpy as np

cdef enum:
    AHEAD = 12              # pairs between the current one and the one whose memory is prefetched

cdef int64_t LOW = (<int64_t> 1 << 32) - 1      # the lower half of a pair, which a literal would make an object


cdef class ClassArcsColumns:
    """Columns of `ClassArcs`."""


cdef class RackArcsColumns:
    """Columns of `RackArcs`."""


@cython.auto_pickle(False)
cdef class RackFields(TypedColumns):
    """Fields of `RackArcs` that every round reads."""


@cython.auto_pickle(False)
cdef class ClassFields(TypedColumns):
    """Fields of `ClassArcs` that every round reads."""

    cpdef refresh(self, list classes, policy, dict refused):
        """Bring classes up to date with the machines."""
        cdef MovedFields inventory = self.cluster.inventory
        cdef bint plain = inventory.plain()
        cdef list members
        recipe = policy.recipe
        for cursor, members in behind(self, classes, inventory.clock).items():
            if plain and recipe is not None:
                new = pull(self, members, cursor, recipe, None, policy.preemption is not None, refused, None, None, None)
                if new is not None:
                    self._connect(*new)
            else:
                self._pull(members, cursor, policy, refused, plain)


@cython.auto_pickle(False)
cdef class ReservationFields(TypedColumns):
    """Fields of `Reservations` that every round reads."""

    cpdef bint idle(self, double now) except -1:
        """True without a reservation; an update without units that wait for one then has no other effect than this call."""
        if self._holds or self._rooms or self._granted:
            return False
        self._now = now
        return True


@cython.auto_pickle(False)
cdef class ShareFields(TypedColumns):
    """Fields of `Shares` that every round reads."""

    cpdef list forget(self, records.JobRecord job):
        """Forget a job; return the nodes that go with it, for removal."""
        if self.stale:
            self.stale.pop(job, None)
        return [] if self.apart.pop(job, None) is not None else self._claimants.forget(job)


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
    """Slots open to a class: free ones, and those of tasks that it may displace: none without `level`, and none on the rows in `there`."""
    cdef int64_t seats = w.slots[r] - w.running[r]
    if level != NULL and w.slots[r] < UNLIMITED and (there is None or r not in there):
        seats += worse_of(w, level, c, r)
    return max(seats, 0)


def seats(MovedFields inventory not None, const int64_t[::1] classes not None, const int64_t[::1] rows not None, bint displacing, refused, /):
    """Return the slots open to each class, int64, shape (classes, rows); `displacing` and `refused` as in `refresh`."""
    cdef World w
    cdef InventoryColumns _at = open_world(inventory, &w)
    cdef array.array levels = levels_of(inventory, &w)
    cdef Py_ssize_t i, j
    check_all(classes, w.classes, "class")
    check_all(rows, w.rows, "row")
    found = matrix(classes.shape[0], rows.shape[0], np.int64)
    cdef int64_t[:, ::1] out = found
    for i in range(classes.shape[0]):
        there = refused.get(classes[i])
        for j in range(rows.shape[0]):
            out[i, j] = seats_of(&w, int64s(levels) if displacing else NULL, classes[i], rows[j], there)
    return found


cdef dict behind(ClassFields mirror, list classes, int64_t clock):
    """Return the classes that are not up to date, by their cursors, which become `clock`."""
    cdef ClassArcsColumns at = mirror.typed
    cdef int64_t c, last = -1
    cdef dict found = {}
    cdef list members = None
    for one in classes:
        c = one
        check(c, at.cursor.shape[0], "class")
        if at.cursor[c] < clock:
            if members is None or at.cursor[c] != last:
                last = at.cursor[c]
                members = found.setdefault(last, [])
            members.append(one)
            at.cursor[c] = clock
    return found


cdef array.array rows_of(MovedFields inventory, const World *w, int64_t clock, rows):
    """The rows given, or those that changed after `clock`."""
    cdef int64_t start
    cdef const int64_t[::1] given
    cdef array.array found
    if rows is None and inventory._reach is None:
        start = inventory._log_from
        if start <= clock and inventory.clock - clock <= inventory._log_most // 4:
            return logged(inventory._log, clock - start, clock, w)
    given = inventory.changed_since(clock) if rows is None else rows
    check_all(given, w.rows, "row")
    found = numbers(given.shape[0])
    for start in range(given.shape[0]):
        int64s(found)[start] = given[start]
    return found


def refresh(ClassFields mirror not None, list classes not None, int64_t clock, recipe, prices, bint displacing, dict refused not None,
            rows=None, fits=None, bits=None, /):
    """Bring the mirror up to date for classes and the rows that changed after `clock`, and send the changes to the network.

    Parameters
    ----------
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
    refused : dict of int to collection of int
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
    return pull(mirror, classes, clock, recipe, prices, displacing, refused, rows, fits, bits)


@cython.boundscheck(False)      # an axis may have the length 0
cdef object pull(ClassFields mirror, list classes, int64_t clock, recipe, prices, bint displacing, dict refused, rows, fits, bits):
    cdef World w
    cdef MovedFields inventory = mirror.cluster.inventory
    cdef NetworkEdits batch = mirror.batch
    cdef InventoryColumns _at = open_world(inventory, &w)
    cdef ClassArcsColumns at = mirror.typed
    cdef Recipe of
    cdef Py_ssize_t i, j, k, p, lines = len(classes), mirrored = at.arc.shape[1]
    cdef Py_ssize_t moved = 0, dearer = 0, new = 0
    cdef int64_t c, r, fit, capacity, cost, arc
    cdef uint32_t why
    cdef bint changed
    cdef const int64_t[:, ::1] given, given_fit
    cdef const uint32_t[:, ::1] given_why
    cdef const int64_t *level = NULL
    cdef dict copies = mirror._why_copy
    cdef bint copied = bool(copies), refusing = bool(refused), priced = recipe is None, fitted = fits is not None
    cdef array.array index = numbers(lines), levels, table
    w.rows, w.classes = min(w.rows, mirrored), min(w.classes, at.arc.shape[0])
    cdef array.array changed_rows = rows_of(inventory, &w, clock, rows)
    cdef const int64_t *row = int64s(changed_rows)
    cdef Py_ssize_t count = len(changed_rows), pairs = lines * count
    if not count:
        return None
    for i in range(lines):
        int64s(index)[i] = classes[i]
        check(int64s(index)[i], w.classes, "class")
    if fitted:
        given_fit, given_why = fits, bits
        if not (given_fit.shape[0] == given_why.shape[0] == lines and given_fit.shape[1] == given_why.shape[1] == count):
            raise ValueError("refresh: arrays of different lengths")
    if priced:
        given = prices
        if given.shape[0] != lines or given.shape[1] != count:
            raise ValueError("refresh: arrays of different lengths")
    else:
        read_recipe(recipe, &of)
        table = new_table(&w, count)
    if displacing:
        levels = levels_of(inventory, &w)
        level = int64s(levels)
    cdef array.array memory = numbers(5 * pairs)
    cdef int64_t *out = int64s(memory)          # arcs and capacities that differ, arcs and costs that differ
    cdef int64_t *out_new = out + 4 * pairs     # pairs that need an arc
    cdef int64_t *m_arc = &at.arc[0, 0]
    cdef int64_t *m_capacity = &at.capacity[0, 0]
    cdef int64_t *m_cost = &at.cost[0, 0]
    cdef uint32_t *m_why = &at.why[0, 0]
    for i in range(lines):
        c = int64s(index)[i]
        there = refused.get(c) if refusing else None
        changed = clock == 0
        for j in range(-AHEAD, count):
            if j + AHEAD < count:
                k = c * mirrored + row[j + AHEAD]
                fetch(&w, row[j + AHEAD])
                fs_fetch(m_arc + k)
                fs_fetch(m_capacity + k)
                fs_fetch(m_cost + k)
                fs_fetch(m_why + k)
            if j < 0:
                continue
            r, p = row[j], i * count + j
            k = c * mirrored + r
            if not fitted:
                fit = room_of(&w, c, r, False, &why)
            else:
                fit, why = given_fit[i, j], given_why[i, j]
            capacity = min(fit, seats_of(&w, level, c, r, there))
            if why != m_why[k]:
                at.open[c] += (why == 0) - (m_why[k] == 0)
                m_why[k] = why
                changed = True
            arc = m_arc[k]
            if capacity > 0:
                cost = given[i, j] if priced else price(&w, &of, c, r, tabulated(&w, table.data.as_doubles, j, r))
                if arc < 0:
                    out_new[new] = p
                    new += 1
                    m_cost[k] = cost
                elif cost != m_cost[k]:
                    out[2 * pairs + dearer], out[3 * pairs + dearer] = arc, cost
                    dearer += 1
                    m_cost[k] = cost
            if arc >= 0 and capacity != m_capacity[k]:
                out[moved], out[pairs + moved] = arc, capacity
                moved += 1
            m_capacity[k] = capacity
        if changed:
            at.roomy[c] = at.open[c] > 0
            if copied:
                copies.pop(c, None)
    if moved:
        batch.send_capacities(out, out + pairs, moved)
    if dearer:
        batch.send_costs(out + 2 * pairs, out + 3 * pairs, dearer)
    if not new:
        return None
    at_class, at_row = _empty(new, np.int64), _empty(new, np.int64)
    cdef int64_t[::1] new_class = at_class, new_row = at_row
    for i in range(new):
        new_class[i], new_row[i] = int64s(index)[out_new[i] // count], row[out_new[i] % count]
    return at_class, at_row


# -- blockers -------------------------------------------------------------------------------------------------------


@cython.boundscheck(False)      # an axis may have the length 0
def look(ClassFields mirror not None, const int64_t[::1] classes not None, list outbid not None, int64_t since, array.array known not None, int64_t upto,
         Py_ssize_t most, /):
    """Return the blockers of classes on the machines that have changed, for `flowsched.rounds.verdicts`.

    Parameters
    ----------
    mirror : ClassArcs
    classes : ndarray of int64, shape (n,)
    outbid : list of int
        Positions in `classes`: blockers of these classes are as of now, and those of the others as of their last `refresh`.
    since : int
        Value of `Inventory.clock`: machines that changed later are looked at, and those where outbid classes are out of date.
    known : array of int64
        Machines that changed after `since` and up to `upto`, ascending.
    upto : int
        A later value of the clock.
    most : int
        Largest number of machines.

    Returns
    -------
    (array of int64, ndarray of uint32) or None
        Rows, ascending, and blockers, shape (classes, rows).  None if there are more machines.
    """
    cdef World w
    cdef MovedFields inventory = mirror.cluster.inventory
    cdef InventoryColumns _at = open_world(inventory, &w)
    cdef ClassArcsColumns at = mirror.typed
    cdef Py_ssize_t i, j, k, lines = classes.shape[0], count, new = 0
    cdef array.array newer
    cdef int64_t now = inventory.clock, c
    cdef const int64_t *row
    cdef const uint32_t *line
    cdef uint32_t *to
    check_all(classes, min(at.cursor.shape[0], w.classes), "class")
    for one in outbid:
        i = one
        check(i, lines, "position")
        now = min(now, at.cursor[classes[i]])
    if now < since:     # a class is checked again everywhere
        known = rows_of(inventory, &w, now, None)
    else:
        known = merged(known, rows_of(inventory, &w, upto, None))
    count = len(known)
    if count > most:
        return None
    row = int64s(known)
    why = matrix(lines, count, np.uint32)
    if not count:
        return known, why
    cdef uint32_t[:, ::1] out = why
    check(row[count - 1], at.why.shape[1], "row")
    for i in range(lines):
        c, to = classes[i], &out[i, 0]
        line = &at.why[c, 0]
        if not (at.cursor[c] or c in mirror.racks.aggregators):
            for j in range(count):
                to[j] = DOWN
            continue
        for j in range(count):
            to[j] = line[row[j]]
    if not outbid:
        return known, why
    if inventory.plain():
        newer = numbers(count)
        for j in range(count):
            if w.version[row[j]] > now:
                int64s(newer)[new] = j
                new += 1
        for one in outbid:
            i = one
            c, to = classes[i], &out[i, 0]
            for j in range(new):
                k = int64s(newer)[j]
                room_of(&w, c, row[k], False, to + k)
        return known, why
    rows = np.array(known, np.int64)
    later = np.flatnonzero(inventory.newer(rows, now))
    if len(later):
        some = np.array(outbid)
        why[some[:, None], later] = inventory.room(np.asarray(classes)[some], rows[later])[1]
    return known, why


cdef array.array merged(array.array a, array.array b):
    """Both ascending sequences in one, without repetitions; `a` itself if it has all."""
    cdef Py_ssize_t i = 0, j = 0, n = len(a), m = len(b), count = 0
    cdef array.array found = numbers(n + m)
    cdef const int64_t *x = int64s(a)
    cdef const int64_t *y = int64s(b)
    cdef int64_t *out = int64s(found)
    while i < n or j < m:
        if j == m or i < n and x[i] <= y[j]:
            j += j < m and x[i] == y[j]
            out[count] = x[i]
            i += 1
        else:
            out[count] = y[j]
            j += 1
        count += 1
    if count == n:
        return a
    array.resize(found, count)
    return found


# -- flow -----------------------------------------------------------------------------------------------------------


cdef int ascending(const void *a, const void *b) noexcept nogil:
    cdef int64_t x = (<const int64_t *> a)[0], y = (<const int64_t *> b)[0]
    return (x > y) - (x < y)


cpdef dict sent(RackFields racks, ClassFields mirror, NetworkEdits batch, classes, more, array.array changed):
    """Return the flow from racks to machines: by class, ``[(row, units), ...]``, both ascending.

    Parameters
    ----------
    racks : RackArcs
        Its `_used` are ascending; they become the arcs that have flow now.
    mirror : ClassArcs
    batch : NetworkEdits
    classes : collection of int
    more : sequence of int
        Pairs ``class << 32 | rack`` where flow enters the rack otherwise than by the class's aggregator.
    changed : array of int64 or None
        Arcs, ascending: those of them that lead to racks are read, in addition to those in `_used`.  None if all may have changed.
    """
    cdef RackArcsColumns rack_arcs = racks.typed
    cdef ClassArcsColumns class_arcs = mirror.typed
    cdef array.array before = racks.all_arcs() if changed is None or racks._used is None else racks._used
    cdef const int64_t *used = int64s(before)
    cdef const int64_t *other = NULL if changed is None else int64s(changed)
    cdef Py_ssize_t i = 0, j = 0, n = len(before), k = 0 if changed is None else len(changed), count = 0, total = 0, width = rack_arcs.arc.shape[1]
    cdef int64_t arc = -1, last = -1, c, r, rack
    cdef bint asked = False
    cdef list entered = [], there = None
    cdef dict found = {}, listed = racks._listed
    cdef array.array rows
    cdef const int64_t[::1] pair = rack_arcs.pair
    cdef const int64_t *line
    cdef const int64_t *row
    cdef array.array at_memory = numbers(n + k), units_memory = numbers(n + k), pairs_memory
    cdef int64_t *at = int64s(at_memory)
    cdef int64_t *units = int64s(units_memory)
    cdef int64_t *pairs
    while i < n or j < k:
        if j == k or i < n and used[i] <= other[j]:
            arc = used[i]
            i += 1
        else:
            arc = other[j]
            j += 1
        if arc >= pair.shape[0]:
            break
        if arc <= last or pair[arc] < 0:
            continue
        last = arc
        c, r = pair[arc] >> 32, pair[arc] & LOW
        if c < rack_arcs.arc.shape[0] and r < width and rack_arcs.arc[c, r] == arc:    # an id may belong to another arc by now
            at[count] = arc
            count += 1
    n, count = count, 0
    batch.flows(at, n, units)
    pairs_memory = numbers(n + len(more))
    pairs = int64s(pairs_memory)
    for i in range(n):
        if units[i] > 0:
            at[count], pairs[count] = at[i], pair[at[i]]
            count += 1
    array.resize(at_memory, count)
    racks._used = at_memory
    for one in more:
        if count < n + len(more):
            pairs[count] = one
            count += 1
    qsort(pairs, count, sizeof(int64_t), &ascending)
    n, count, last = count, 0, -1
    for i in range(n):
        if i and pairs[i] == arc:
            continue
        arc, c = pairs[i], pairs[i] >> 32
        if c != last:
            last, asked = c, c in classes
            if asked:
                check(c, class_arcs.arc.shape[0], "class")
        if asked:
            rack = arc & LOW
            rows = listed.get(rack)
            if rows is None:
                rows = racks.members(rack)
            entered.append(rows)
            total += len(rows)
            pairs[count] = c        # from here on, the class of each entry
            count += 1
    if not total:
        return found
    at_memory, units_memory = numbers(3 * total), numbers(total)
    at, units = int64s(at_memory), int64s(units_memory)
    cdef int64_t *key = at + total
    n, count, width = count, 0, class_arcs.arc.shape[1]
    for i in range(n):
        c, rows = pairs[i], entered[i]
        line, room, row, k = &class_arcs.arc[c, 0], &class_arcs.capacity[c, 0], int64s(rows), len(rows)
        for j in range(k):
            r = row[j]
            check(r, width, "row")
            arc = line[r]
            if arc >= 0 and room[r] > 0:
                at[count], key[2 * count] = arc, c << 32 | r
                count += 1
    batch.flows(at, count, units)
    n, count = count, 0
    for i in range(n):
        if units[i] > 0:
            key[2 * count], key[2 * count + 1] = key[2 * i], units[i]
            count += 1
    qsort(key, count, 2 * sizeof(int64_t), &ascending)
    for i in range(count):
        if not i or key[2 * i] >> 32 != key[2 * i - 2] >> 32:
            there = found[key[2 * i] >> 32] = []
        there.append((key[2 * i] & LOW, key[2 * i + 1]))
    return found


cpdef list with_room(ClassFields mirror, list classes):
    """Return the classes for which some machine had room without victims, as of the last `refresh`."""
    cdef ClassArcsColumns at = mirror.typed
    cdef list found = []
    cdef int64_t c
    for one in classes:
        c = one
        check(c, at.roomy.shape[0], "class")
        if at.roomy[c]:
            found.append(one)
    return found
