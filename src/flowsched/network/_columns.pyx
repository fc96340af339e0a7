"""Calls for one arc at a time, compiled for speed: the columns below `SimpleMinCostFlow`, and lists of integers as vectors.

`Columns` is the problem of `flowsched.network.ortools.SimpleMinCostFlow` as vectors that grow.  Arcs are m rows, numbered from 0; nodes are the numbers below n.  A call
checks its arguments and stores them, and does no other work.  A solve first hands on the data added or changed since the last one.

Every number stored has passed the range checks of `_cs.pyx`: (n + 1) * |cost| stays below 2**59, and the magnitudes of all supplies add up to less than 2**60.
So handing them on cannot fail for their size.

A call that raises has changed nothing: arguments are checked, then room is made, then rows are written.  While a solve is under way (``busy``), every other call
raises ConcurrentUseError.  Free-threaded interpreters run one method of an object at a time (critical sections).
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t

from flowsched._faults cimport _empty, _zeros, fs_allocate

import numpy as np

from flowsched.exceptions import ConcurrentUseError, CostRangeError, InputError


cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int *overflow) except? -1

cdef enum:
    ARC = 4                                 # columns of an arc: tail, head, capacity, cost

cdef int64_t MOST_COST = <int64_t> 1 << 59
cdef int64_t MOST_VOLUME = <int64_t> 1 << 60
cdef int64_t MOST_NODES = 2147483646
cdef object int64 = np.dtype(np.int64)


cdef inline bint plain(object value, int64_t *out) except -1:
    """Read an int of at most 64 bits; False for everything else."""
    cdef int over = 0
    if type(value) is not int:
        return False
    out[0] = PyLong_AsLongLongAndOverflow(value, &over)
    return over == 0


def vector(values):
    """Return a list or tuple of ints as a vector of int64; None if a value is not an int, or does not fit."""
    cdef Py_ssize_t i, k = len(values)
    cdef Py_buffer view
    cdef int64_t *row
    out = _empty(k, int64)
    PyObject_GetBuffer(out, &view, PyBUF_WRITABLE)
    try:
        row = <int64_t *>view.buf
        for i in range(k):
            if i >= len(values) or not plain(values[i], &row[i]):
                return None
    finally:
        PyBuffer_Release(&view)
    return out


@cython.auto_pickle(False)
cdef class Columns:
    """Arcs and supplies that are given one at a time or in bulk."""

    cdef int64_t[:, ::1] arc        # arc[i] for i < m: tail, head, capacity, cost
    cdef int64_t[::1] amount        # supply by node; nodes beyond its length have none
    cdef int64_t[::1] found         # flow by arc of the last solve, of length 0 without one
    cdef object cost, sent          # cost of that flow, and the amount that it sends
    cdef Py_ssize_t m, n
    cdef int64_t dear               # upper bound on every |cost|
    cdef int64_t volume             # sum of all |supply|
    cdef bint solved, busy
    cdef set recent_arcs, recent_nodes      # whose capacity or supply was set since `_taken`

    @cython.embedsignature(True)
    def __init__(self):
        if self.recent_arcs is not None:
            raise TypeError("it has begun already")
        self.arc = self.rows(16)
        self.amount, self.found = _zeros(0, np.int64), _zeros(0, np.int64)
        self.m = self.n = 0
        self.dear = self.volume = 0
        self.cost, self.sent, self.solved = 0, 0, False
        self.recent_arcs, self.recent_nodes = set(), set()

    cdef inline int free(self) except -1:
        if self.busy:
            raise ConcurrentUseError("this problem is in use: a solve is under way, in a thread or below this signal handler, finaliser or callback")
        return 0

    def _integer(self, name, value):
        """Convert or refuse an argument that is not a plain int."""
        raise NotImplementedError

    cdef int64_t number(self, name, value) except? -1:
        cdef int64_t out = 0
        if not plain(value, &out):
            out = self._integer(name, value)
        return out

    cdef int64_t nodes_for(self, int64_t highest) except -1:
        """Return the number of nodes if this one is included; it must suit the costs."""
        if highest < self.n:
            return self.n
        if highest >= MOST_NODES:
            raise CostRangeError(f"node {highest}: a network has fewer than 2**31 nodes")
        return highest + 1

    cdef int check_cost(self, int64_t dear, int64_t nodes) except -1:
        if dear > (MOST_COST - 1) // (nodes + 1):
            raise CostRangeError(
                f"unit_cost {dear} is too large for exact arithmetic on {nodes} nodes; (nodes + 1) * |cost| must stay below 2**59")
        return 0

    cdef object rows(self, int64_t count):
        fs_allocate()
        return np.empty((count, ARC), np.int64)

    cdef int room(self, Py_ssize_t more) except -1:
        """Make room for more arcs."""
        if self.m + more > self.arc.shape[0]:
            wider = self.rows(max(self.m + more, 2 * self.m))
            wider[:self.m] = np.asarray(self.arc)[:self.m]
            self.arc = wider
        return 0

    @cython.critical_section
    def add_arc_with_capacity_and_unit_cost(self, tail, head, capacity, unit_cost):
        """Add an arc; return its number."""
        cdef int64_t u = self.number("tails", tail), v = self.number("heads", head)
        cdef int64_t room = self.number("capacities", capacity), cost = self.number("unit_costs", unit_cost), nodes, dear = self.dear
        cdef int64_t *row
        self.free()
        if room < 0:
            raise InputError(f"capacities[0]: {room} is negative")
        if u < 0 or v < 0:
            raise InputError(f"{'tails' if u < 0 else 'heads'}[0]: node numbers start at 0, got {u if u < 0 else v}")
        if not -MOST_COST < cost < MOST_COST:
            raise CostRangeError(f"unit_costs[0]: {cost} is too large for exact arithmetic; |cost| must stay below 2**59")
        nodes = self.nodes_for(max(u, v))
        dear = max(dear, cost, -cost)
        if dear > self.dear or nodes > self.n:
            self.check_cost(dear, nodes)
        self.room(1)
        row = &self.arc[self.m, 0]
        row[0], row[1], row[2], row[3] = u, v, room, cost
        self.dear, self.n = dear, nodes
        self.m += 1
        return self.m - 1

    @cython.critical_section
    def _add_arcs(self, const int64_t[::1] tail, const int64_t[::1] head, const int64_t[::1] capacity, const int64_t[::1] cost):
        """Add arcs: vectors of one length; return the number of the first."""
        cdef Py_ssize_t i, k = tail.shape[0]
        cdef int64_t nodes, dear = self.dear
        cdef int64_t *row
        self.free()
        for i in range(k):
            if capacity[i] < 0:
                raise InputError(f"capacities[{i}]: {capacity[i]} is negative")
        if k == 0:
            return self.m
        nodes = max(self.nodes_of("tails", &tail[0], k), self.nodes_of("heads", &head[0], k))
        for i in range(k):
            if not -MOST_COST < cost[i] < MOST_COST:
                raise CostRangeError(f"unit_costs[{i}]: {cost[i]} is too large for exact arithmetic; |cost| must stay below 2**59")
            dear = max(dear, cost[i], -cost[i])
        self.check_cost(dear, nodes)
        self.room(k)
        for i in range(k):
            row = &self.arc[self.m + i, 0]
            row[0], row[1], row[2], row[3] = tail[i], head[i], capacity[i], cost[i]
        self.dear, self.n = dear, nodes
        self.m += k
        return self.m - k

    cdef int64_t nodes_of(self, name, const int64_t *numbers, Py_ssize_t k) except -1:
        """Return the number of nodes if these are included."""
        cdef Py_ssize_t i
        cdef int64_t highest = -1
        for i in range(k):
            if numbers[i] < 0:
                raise InputError(f"{name}[{i}]: node numbers start at 0, got {numbers[i]}")
            highest = max(highest, numbers[i])
        return self.nodes_for(highest)

    @cython.critical_section
    def set_node_supply(self, node, supply):
        """Set the supply of a node: it sends (> 0) or takes (< 0)."""
        cdef int64_t number = self.number("nodes", node), amount = self.number("supplies", supply)
        self.supplies(&number, &amount, 1)

    @cython.critical_section
    def _set_supplies(self, const int64_t[::1] nodes, const int64_t[::1] supplies):
        """Set supplies: vectors of one length."""
        if nodes.shape[0]:
            self.supplies(&nodes[0], &supplies[0], nodes.shape[0])

    cdef int supplies(self, const int64_t *nodes, const int64_t *supply, Py_ssize_t k) except -1:
        cdef Py_ssize_t i
        cdef int64_t v, count, volume = self.volume
        self.free()
        count = self.nodes_of("nodes", nodes, k)
        if count > self.n:
            self.check_cost(self.dear, count)
        for i in range(k):      # as the kernel counts: a node's former supply is not subtracted
            if not -MOST_VOLUME < supply[i] < MOST_VOLUME or volume + (supply[i] if supply[i] > 0 else -supply[i]) >= MOST_VOLUME:
                raise CostRangeError(f"supplies[{i}]: {supply[i]} is too large; supplies must add up to less than 2**60")
            volume += supply[i] if supply[i] > 0 else -supply[i]
        if count > self.amount.shape[0]:
            fs_allocate()
            wider = np.zeros(max(count, min(2 * self.amount.shape[0], MOST_NODES)), np.int64)
            wider[:self.amount.shape[0]] = np.asarray(self.amount)
            self.amount = wider
        for i in range(k):
            self.recent_nodes.add(nodes[i])     # an additional entry does no harm
        self.n = count
        for i in range(k):
            v = nodes[i]
            self.volume += (supply[i] if supply[i] > 0 else -supply[i]) - (self.amount[v] if self.amount[v] > 0 else -self.amount[v])
            self.amount[v] = supply[i]
        return 0

    @cython.critical_section
    def set_arc_capacity(self, arc, capacity):
        """Set the capacity of an arc."""
        cdef int64_t number = self.number("arcs", arc), room = self.number("capacity", capacity)
        self.capacities(&number, &room, 1)

    @cython.critical_section
    def _set_capacities(self, const int64_t[::1] arcs, const int64_t[::1] capacities):
        """Set capacities: vectors of one length."""
        if arcs.shape[0]:
            self.capacities(&arcs[0], &capacities[0], arcs.shape[0])

    cdef int capacities(self, const int64_t *arcs, const int64_t *capacity, Py_ssize_t k) except -1:
        cdef Py_ssize_t i
        self.free()
        for i in range(k):
            self.check_arc(i, arcs[i])
        for i in range(k):
            if capacity[i] < 0:
                raise InputError(f"capacity[{i}]: {capacity[i]} is negative")
        for i in range(k):
            self.recent_arcs.add(arcs[i])
        for i in range(k):
            self.arc[arcs[i], 2] = capacity[i]
        return 0

    cdef inline int check_arc(self, Py_ssize_t i, int64_t arc) except -1:
        if not 0 <= arc < self.m:
            raise InputError(f"arcs[{i}]: no arc {arc}; ids are 0..{self.m - 1}")
        return 0

    cdef object cell(self, arc, int column):
        cdef int64_t a = self.number("arcs", arc)
        self.free()
        self.check_arc(0, a)
        return self.arc[a, column]

    @cython.critical_section
    def num_nodes(self):
        """Return the number of nodes."""
        self.free()
        return self.n

    @cython.critical_section
    def num_arcs(self):
        """Return the number of arcs."""
        self.free()
        return self.m

    @cython.critical_section
    def tail(self, arc):
        """Return the node that an arc leaves."""
        return self.cell(arc, 0)

    @cython.critical_section
    def head(self, arc):
        """Return the node that an arc enters."""
        return self.cell(arc, 1)

    @cython.critical_section
    def capacity(self, arc):
        """Return the capacity of an arc."""
        return self.cell(arc, 2)

    @cython.critical_section
    def unit_cost(self, arc):
        """Return the cost of an arc."""
        return self.cell(arc, 3)

    @cython.critical_section
    def supply(self, node):
        """Return the supply of a node."""
        cdef int64_t v = self.number("nodes", node)
        self.free()
        if not 0 <= v < self.n:
            raise InputError(f"nodes[0]: no node {v}; ids are 0..{self.n - 1}")
        return self.amount[v] if v < self.amount.shape[0] else 0

    @cython.critical_section
    def flow(self, arc):
        """Return the flow on an arc."""
        cdef int64_t a = self.number("arcs", arc)
        self.check_solved()
        if not 0 <= a < self.found.shape[0]:
            raise InputError(f"arcs[0]: there is no arc {a} in the solution")
        return self.found[a]

    @cython.critical_section
    def optimal_cost(self):
        """Return the cost of the flow, exact and of any size."""
        self.check_solved()
        return self.cost

    @cython.critical_section
    def maximum_flow(self):
        """Return the amount that the flow sends."""
        self.check_solved()
        return self.sent

    cdef int check_solved(self) except -1:
        self.free()
        if not self.solved:
            raise InputError("no flow was found yet: solve() first, and look at the status")
        return 0

    # -- for the solve ------------------------------------------------------------------------------------------------

    def _in_use(self):
        """Return a context in which every other call on this object raises ConcurrentUseError."""
        return Use(self)

    def _arcs(self, Py_ssize_t since=0):
        """Copy tail, head, capacity and cost of the arcs from `since` on; for use within `_in_use`."""
        fs_allocate()
        return tuple(np.ascontiguousarray(np.asarray(self.arc)[since:self.m].T))

    def _supplies(self):
        """Copy the supplies of all nodes."""
        fs_allocate()
        out = np.zeros(self.n, np.int64)
        known = min(self.n, self.amount.shape[0])
        out[:known] = np.asarray(self.amount)[:known]
        return out

    def _recent(self):
        """Return the arcs and the nodes that were set since `_taken`."""
        return np.array(sorted(self.recent_arcs), np.int64), np.array(sorted(self.recent_nodes), np.int64)

    def _taken(self):
        """Clear the record of recent changes."""
        self.recent_arcs, self.recent_nodes = set(), set()

    def _keep(self, flow, cost, sent):
        """Keep the flow that was found, or clear the last one (None)."""
        found = _zeros(0, np.int64) if flow is None else flow
        self.found, self.cost, self.sent, self.solved = found, cost, sent, flow is not None

    def _flows(self):
        """Return the flow by arc of the last solve."""
        self.check_solved()
        return np.asarray(self.found)

    def _state(self):
        """Return all that `_restore` needs."""
        answer = (np.array(self.found), self.cost, self.sent) if self.solved else (None, 0, 0)
        return self._arcs(), self._supplies(), answer

    def _restore(self, arcs, supplies, answer):
        """Copy problem and solution of another object into a new one."""
        self._add_arcs(*arcs)
        self._set_supplies(np.arange(len(supplies)), supplies)
        self._keep(*answer)


@cython.auto_pickle(False)
@cython.final
cdef class Use:
    """Compiled, so that no signal comes between the mark and the block that takes it away again."""

    cdef Columns columns

    @cython.embedsignature(True)
    def __init__(self, Columns columns not None):
        self.columns = columns

    def __enter__(self):
        with cython.critical_section(self.columns):
            self.columns.free()
            self.columns.busy = True

    def __exit__(self, *error):
        self.columns.busy = False


# -- shortest residual paths ----------------------------------------------------------------------------------------
