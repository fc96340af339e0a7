"""Machines where others may make room for a task, compiled; see `flowsched.rounds.preemption.candidates`."""

from cpython cimport array
from libc.math cimport INFINITY, nextafter
from libc.stdint cimport int64_t

from flowsched.cluster._room cimport InventoryColumns, SuitabilityColumns, World, check, int64s, kept, numbers, open_world
from flowsched.cluster.records cimport JOB, PLACE, JobRecord, MachineRecord, TaskRecord


cdef bint open_to(const World *w, SuitabilityColumns suitability, int64_t c, int64_t r) noexcept:
    """True if the machine takes tasks of the class when it is empty."""
    cdef int64_t shape = w.shape[r]
    if not w.usable[r] or not 0 <= shape < min(w.shapes, suitability.holds.shape[1]):
        return False
    return w.suits[c * w.shapes + shape] and suitability.holds[c, shape] and not (r < w.held_rows and kept(w, c, w.held[r]))


def candidates(inventory, dict by_row not None, int64_t c, const int64_t[::1] rows not None, const int64_t[::1] wait not None,
               const int64_t[::1] stays not None, list ends not None, double now, among, /):
    """Estimate the machines where evicting worse tasks may make room for one task of a class, and the costs.

    Parameters
    ----------
    inventory : Inventory
    by_row : dict of int to MachineRecord
    c : int
        The class.
    rows : ndarray of int64
        Machines to examine.
    wait : ndarray of int64, shape (classes,)
        Cost of waiting for a victim, by class.
    stays : ndarray of int64, shape (buckets,)
        Discount of a running task by age bucket.
    ends : list of float
        Ends of all buckets but the last one, ascending.
    now : float
    among : set of int or None
        Running tasks, by index, that may have to stop.

    Returns
    -------
    found, cost, paid : list of int
    due : float
        The first time at which one of these tasks leaves its bucket.
    """
    cdef World w
    cdef InventoryColumns _at = open_world(inventory, &w)
    cdef SuitabilityColumns suitability = inventory.suitability.typed
    cdef Py_ssize_t i, j, k, d
    cdef int64_t r, b, seats, price, first = 0
    cdef double due = INFINITY, end, then
    cdef bint enough
    cdef array.array memory
    cdef int64_t *freed
    cdef list found = [], cost = [], paid = [], worse
    cdef TaskRecord task
    cdef MachineRecord machine
    cdef void *it
    check(c, min(w.classes, <Py_ssize_t> wait.shape[0], suitability.holds.shape[0]), "class")
    memory = numbers(w.resources)
    freed = int64s(memory)
    for i in range(rows.shape[0]):
        r = rows[i]
        check(r, w.rows, "row")
        if not open_to(&w, suitability, c, r):
            continue
        machine, worse = by_row[r], []
        it = machine.tasks.first
        while it is not NULL:
            task = <TaskRecord> it
            it = task.link[PLACE].next
            check(task.group.cls.index, min(w.classes, <Py_ssize_t> wait.shape[0]), "class")
            if w.priority[task.group.cls.index] > w.priority[c] and (among is None or task.index in among):
                worse.append((-w.priority[task.group.cls.index], -task.turn, task))
        if not worse:
            continue
        worse.sort()
        for d in range(w.resources):
            freed[d] = w.free[r * w.resources + d] - w.demand[c * w.resources + d]
        seats, price, k, enough = w.slots[r] - w.running[r], 0, 0, False
        for _, _, victim in worse:
            task = victim
            then, b = task.began, 0
            while b < len(ends) and <double> ends[b] <= now - then:
                b += 1
            check(b, stays.shape[0], "bucket")
            if b < len(ends):
                end = ends[b]
                due = min(due, then + end if then + end - then >= end else nextafter(then + end, INFINITY))
            if enough:
                continue
            j = task.group.cls.index
            if not k:
                first = wait[j] + stays[b]
            price += wait[j] + stays[b]
            k += 1
            enough = k > -seats
            for d in range(w.resources):
                freed[d] += w.demand[j * w.resources + d]
                enough = enough and freed[d] >= 0
            if enough:
                found.append(r)
                cost.append(price)
                paid.append(first if seats <= 0 else 0)
    return found, cost, paid, due


def worst_by_row(jobs, /):
    """Return the worst priority of the running tasks of jobs by row, and the latest turn of that priority."""
    cdef dict found = {}
    cdef TaskRecord task
    cdef JobRecord job
    cdef void *it
    for one in jobs:
        job = one
        it = job.tasks.first
        while it is not NULL:
            task = <TaskRecord> it
            it = task.link[JOB].next
            if task.row >= 0:
                key = task.group.cls.priority, task.turn
                known = found.get(task.row)
                if known is None or known < key:
                    found[task.row] = key
    return found


def reclaimable(inventory, dict by_row not None, int64_t c, list rows not None, dict owner not None, dict surplus not None, bint loose, /):
    """Return the rows where tasks of claimants above their share may make room for a task of a class, by the sums of amounts.

    Parameters
    ----------
    inventory : Inventory
    by_row : dict of int to MachineRecord
    c : int
        The class.
    rows : list of int
    owner : dict of JobRecord to int
        Claimants above their share.
    surplus : dict of int to int
        Tasks above it.
    loose : bool
        True to return every row with such a task that takes the class when empty, whatever the amounts.
    """
    cdef World w
    cdef InventoryColumns _at = open_world(inventory, &w)
    cdef SuitabilityColumns suitability = inventory.suitability.typed
    cdef Py_ssize_t d
    cdef int64_t r, count
    cdef bint enough
    cdef array.array memory = numbers(w.resources)
    cdef int64_t *freed = int64s(memory)
    cdef list found = []
    cdef TaskRecord task
    cdef MachineRecord machine
    cdef void *it
    check(c, min(w.classes, suitability.holds.shape[0]), "class")
    for one in rows:
        r = one
        check(r, w.rows, "row")
        if not open_to(&w, suitability, c, r):
            continue
        for d in range(w.resources):
            freed[d] = w.free[r * w.resources + d] - w.demand[c * w.resources + d]
        machine, count = by_row[r], 0
        it = machine.tasks.first
        while it is not NULL:
            task = <TaskRecord> it
            it = task.link[PLACE].next
            number = owner.get(task.group.job)
            if number is None or surplus[number] <= 0 or task.group.cls.priority < w.priority[c] or task.group.job.job.gang is not None:
                continue
            check(task.group.cls.index, w.classes, "class")
            count += 1
            for d in range(w.resources):
                freed[d] += w.demand[task.group.cls.index * w.resources + d]
        enough = count > w.running[r] - w.slots[r]
        for d in range(w.resources):
            enough = enough and freed[d] >= 0
        if count and (enough or loose):
            found.append(one)
    return found
