"""Running arcs, compiled: arcs that differ from the tasks that run, and age buckets that have ended.

`flowsched.builder.running.RunningArcs` holds by group and machine an arc, the number of tasks of the group that run there, and the start of the youngest of them.
`find_running` compares these with the groups.
"""

from libc.math cimport INFINITY
from libc.stdint cimport int64_t

cimport cython

from flowsched.builder.groups cimport GroupNode
from flowsched.cluster._room cimport UNLIMITED, InventoryColumns, check
from flowsched.policy._costs cimport bucket_and_due


cdef class MachineArcsColumns:
    """Columns of `MachineArcs`."""


cdef class RunningArcsColumns:
    """Columns of `RunningArcs`."""


@cython.auto_pickle(False)
cdef class RunningFields(TypedColumns):
    """Fields of `RunningArcs` that every round reads."""

    cpdef update(self, dict touched, policy, now):
        """Bring the arcs of these groups to these machines up to date, and those whose age bucket has ended."""
        cdef list old, aged, new, tails, heads, counts, arcs
        cdef RunningArcsColumns at
        cdef double end
        cdef Py_ssize_t i
        old, aged, new, tails, heads, counts = find_running(self, touched)
        at = self.typed
        if old:
            self.batch.remove_arcs([at.arc[i] for i in old])
            release(self, old)
        if self._ends + len(aged) + len(new) > at.end.shape[0]:
            self._begin_ends(len(aged) + len(new))
            at = self.typed
        end = at.end[0] if self._ends else INFINITY
        if aged or now >= end or (end < INFINITY and end != at.due[at.ending[0]]):
            age_running(self, aged, policy, now)
        if new:
            arcs = self.batch.new_arcs(tails, heads, counts, begin_running(self, new, policy, now))
            for i in range(len(new)):
                at.arc[<int64_t> new[i]] = arcs[i]

    cpdef forget(self, Group group):
        """Forget the arcs of a group, which the removal of its node removes."""
        known = self._of.pop(group, None)
        if known:
            release(self, list((<dict?> known).values()))


cdef double youngest(tuple began) except? -1:
    """Latest of some starts."""
    cdef double latest = -INFINITY, one
    for start in began:
        one = start
        latest = max(latest, one)
    return latest


cpdef tuple find_running(RunningFields running, dict touched):
    """Compare arcs of `RunningArcs` with the tasks that run: of these groups, on the machines named with each.

    Capacities that differ are sent.  The numbers of tasks and the starts of the youngest of them are recorded.

    Returns
    -------
    old, aged : list of int
        Indices of arcs that go, and of those with another start.
    new, tails, heads, counts : list of int
        Indices of arcs that come, their ends, and the numbers of tasks that run there.
    """
    cdef dict of = running._of, nodes = running.groups.nodes, capacities = running.batch._capacity, known, on
    cdef list old = [], aged = [], new = [], tails = [], heads = [], counts = []
    cdef RunningArcsColumns at = running.typed
    cdef MachineArcsColumns machines = running.machines.typed
    cdef InventoryColumns world = running.cluster.inventory.typed
    cdef int64_t row, index, count, rows = min(world.slots.shape[0], machines.node.shape[0])
    cdef double start
    cdef Group group
    for group, there in touched.items():
        if not there:
            continue
        on = group.on
        known = of.get(group)
        if known is None:
            known = of[group] = {}
        for one in <dict?> there:
            began, found = on.get(one), known.get(one)
            if began is None:
                if found is not None:
                    check(found, at.arc.shape[0], "arc")
                    del known[one]
                    old.append(found)
                continue
            row, count = one, len(<tuple?> began)
            check(row, rows, "row")
            start = INFINITY if world.slots[row] == UNLIMITED else youngest(began)
            if found is None:
                found = known[one] = running._indices.take()
                index = found
                if index >= at.arc.shape[0]:
                    running.grow(arcs=index + 1)
                    at = running.typed
                check(index, at.arc.shape[0], "arc")
                at.running[index], at.since[index] = count, start
                new.append(found)
                tails.append((<GroupNode?> nodes[group]).node)
                heads.append(machines.node[row])
                counts.append(count)
                continue
            index = found
            check(index, at.arc.shape[0], "arc")
            if at.running[index] != count:
                at.running[index] = count
                capacities[at.arc[index]] = count
            if at.since[index] != start:
                at.since[index] = start
                aged.append(found)
    return old, aged, new, tails, heads, counts


cdef tuple age_of(double since, policy, now):
    """Age bucket of a run, its end, and the cost of a place there; one endless bucket if age has no price there."""
    cdef object scale = policy.scale, bucket = 0, due = INFINITY
    if scale.price:
        bucket, due = bucket_and_due(policy.waiting.ends, since, now)
    return bucket, due, -(<list?> scale.discounts)[bucket]


cdef struct Ends:
    double *end             # heap of ends of age buckets: none is later than its children, those at four times its place plus 1 to 4
    int64_t *arc            # index of the arc of each
    Py_ssize_t count, room


cdef Ends ends_of(RunningArcsColumns at, RunningFields running) except *:
    """The heap of `RunningArcs`."""
    cdef Ends ends = Ends(&at.end[0], &at.ending[0], running._ends, at.end.shape[0])
    if not 0 <= ends.count <= ends.room:
        raise IndexError("more ends than there is room for")
    return ends


cdef int put_end(Ends *ends, double due, int64_t arc) except -1:
    """Insert the end of a bucket, if it has one."""
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
    """Remove the first end: the last one takes its place, and is sifted down below earlier ones."""
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


cpdef age_running(RunningFields running, list aged, policy, now):
    """Record the ages of these arcs of `RunningArcs`, and of those whose age bucket has ended; costs that differ are sent.

    Afterwards the first end in the heap is a current one.
    """
    cdef RunningArcsColumns at = running.typed
    cdef Ends ends = ends_of(at, running)
    cdef dict costs = running.batch._cost
    cdef list found = aged[:]
    cdef int64_t index, bucket = 0
    cdef double start = 0, due = 0
    cdef object cost = None
    while ends.count and ends.end[0] <= now:
        check(ends.arc[0], at.arc.shape[0], "arc")
        if at.due[ends.arc[0]] == ends.end[0]:
            found.append(ends.arc[0])
        drop_end(&ends)
    found.sort()        # so that the order of starts does not show in the network
    for index in found:
        check(index, at.arc.shape[0], "arc")
        if cost is None or at.since[index] != start:   # most have begun together
            start = at.since[index]
            bucket, due, cost = age_of(start, policy, now)
        if at.bucket[index] != bucket:
            at.bucket[index] = bucket
            costs[at.arc[index]] = cost
        if at.due[index] != due:
            at.due[index] = due
            put_end(&ends, due, index)
    while ends.count:
        check(ends.arc[0], at.arc.shape[0], "arc")
        if at.due[ends.arc[0]] == ends.end[0]:
            break
        drop_end(&ends)
    running._ends = ends.count


cpdef list begin_running(RunningFields running, list new, policy, now):
    """Record ages where arcs of `RunningArcs` come; return the costs."""
    cdef RunningArcsColumns at = running.typed
    cdef Ends ends = ends_of(at, running)
    cdef int64_t index, bucket = 0
    cdef double start, last = 0, due = 0
    cdef Py_ssize_t i
    cdef object cost = None
    cdef list costs = []
    for i in range(len(new)):
        index = new[i]
        check(index, at.arc.shape[0], "arc")
        start = at.since[index]
        if cost is None or start != last:     # most have begun together
            last = start
            bucket, due, cost = age_of(start, policy, now)
        at.bucket[index], at.due[index] = bucket, due
        put_end(&ends, due, index)
        costs.append(cost)
    running._ends = ends.count
    return costs


cdef int release(RunningFields running, list indices) except -1:
    """Give back indices of arcs."""
    cdef RunningArcsColumns at = running.typed
    cdef int64_t index
    for index in indices:
        check(index, at.due.shape[0], "arc")
        at.due[index] = INFINITY
    running._indices._free.extend(indices)
    return 0


def free_running(RunningFields running not None, list indices not None, /):
    """Give back indices of arcs that are gone."""
    release(running, indices)
