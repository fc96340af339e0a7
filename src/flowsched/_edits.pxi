# Changes of a kept network in many small steps, by a caller that holds on to ids: numbers come as Python's, go to the kernel through one vector, and no array is made.
#
# `stage` is that vector.  It holds the columns of the change at hand, one after the other, and nothing between two calls.
# A single number waits in a mapping from id to value until `flush`.  Those of one kind go in the order of their ids, so that the order in which things were named
# does not show in the flow.
#
# What an exception leaves behind: numbers that waited still wait, and the kernel has changed nothing (E).
#
# Where the network has a slack (network/slack.py), changes are made on that, by arrays that share the memory of `stage`.

from cpython.pycapsule cimport PyCapsule_New
from libc.string cimport memcpy

include "_entries.pxi"

cdef enum:
    E_SUPPLY
    E_CAPACITY
    E_COST


@cython.auto_pickle(False)
cdef class NetworkEdits:
    """Changes and reads a network.

    Parameters
    ----------
    network : FlowNetwork

    Attributes
    ----------
    count : int
        Nodes and arcs added and altered so far.
    entries : capsule
        `Entries`.
    """

    cdef public object count
    cdef readonly object _network
    cdef readonly dict _supply, _capacity, _cost     # numbers that wait
    cdef int64_t[::1] stage

    def __init__(self, network):
        self.count, self._network = 0, network
        self._supply, self._capacity, self._cost = {}, {}, {}
        self.stage = _empty(64, np.int64)

    def __getstate__(self):
        return {"count": self.count, "_network": self._network, "_supply": self._supply, "_capacity": self._capacity, "_cost": self._cost}

    def __setstate__(self, state):
        self.count, self._network = state["count"], state["_network"]
        self._supply, self._capacity, self._cost = state["_supply"], state["_capacity"], state["_cost"]
        self.stage = _empty(64, np.int64)

    cdef int ready(self, int64_t size) except -1:
        if size > self.stage.shape[0]:
            self.stage = _empty(2 * size, np.int64)
        return 0

    cdef object column(self, Py_ssize_t i, Py_ssize_t k):
        """The i-th column of length k, as an array on the same memory."""
        return _whole(self.stage)[i * k:i * k + k]

    cdef int put(self, Py_ssize_t i, Py_ssize_t k, values) except -1:
        """Fill the i-th column from a list, or with one number."""
        cdef list many
        cdef Py_ssize_t j
        cdef int64_t one
        if type(values) is not list:
            one = values
            self.stage[i * k:i * k + k] = one
            return 0
        many = values
        if len(many) != k:
            raise ValueError("lists of different lengths")
        for j in range(k):
            self.stage[i * k + j] = many[j]
        return 0

    cdef list ids(self, Py_ssize_t i, Py_ssize_t k):
        cdef list found = []
        cdef Py_ssize_t j
        for j in range(i * k, i * k + k):
            found.append(self.stage[j])
        return found

    def new_nodes(self, Py_ssize_t k):
        """Add nodes without supply; return their ids."""
        target = self._network._target
        cdef Network core
        self.ready(2 * k)
        self.stage[:k] = 0
        if type(target) is Network:
            core = target
            core.take()
            try:
                core.more_nodes(self.stage[:k], self.stage[k:2 * k])
            finally:
                core.give()
            found = self.ids(1, k)
        else:
            found = target.add_nodes(self.column(0, k)).tolist()
        self.count += k
        return found

    def new_arcs(self, list tail not None, head, capacity, cost):
        """Add arcs; return their ids.  Each of `head`, `capacity` and `cost` is a list, or one number for all."""
        cdef Py_ssize_t k = len(tail)
        cdef Network core
        target = self._network._target
        self.ready(5 * k)
        self.put(0, k, tail)
        self.put(1, k, head)
        self.put(2, k, capacity)
        self.put(3, k, cost)
        if type(target) is Network:
            core = target
            core.take()
            try:
                core.more_arcs(
                    self.stage[:k], self.stage[k:2 * k], self.stage[2 * k:3 * k], self.stage[3 * k:4 * k], core.none64, self.stage[4 * k:5 * k])
            finally:
                core.give()
            found = self.ids(4, k)
        else:
            found = target.add_arcs(self.column(0, k), self.column(1, k), self.column(2, k), self.column(3, k), _NO_BOUNDS).tolist()
        self.count += k
        return found

    def set_supply(self, node, supply):
        """Set the supply of a node in the next `flush`."""
        self._supply[node] = supply

    def set_capacity(self, arc, capacity):
        """Set the capacity of an arc in the next `flush`."""
        self._capacity[arc] = capacity

    def set_cost(self, arc, cost):
        """Set the cost of an arc in the next `flush`."""
        self._cost[arc] = cost

    def flush(self):
        """Send the numbers that wait."""
        if self._supply:
            self.send(E_SUPPLY, self._supply, None, None)
        if self._capacity:
            self.send(E_CAPACITY, self._capacity, None, None)
        if self._cost:
            self.send(E_COST, self._cost, None, None)

    def set_capacities(self, arcs, capacity):
        """Set capacities at once, after those that wait."""
        self.send(E_CAPACITY, self._capacity, arcs, capacity)

    def set_costs(self, arcs, cost):
        """Set costs at once, after those that wait."""
        self.send(E_COST, self._cost, arcs, cost)

    cdef int send(self, int what, dict waiting, arcs, values) except -1:
        """Send numbers that wait, in the order of their ids, and others after them: a list or a vector of ids, and one of values."""
        cdef Py_ssize_t i, n = len(waiting), k = n
        cdef list keys
        cdef const int64_t[::1] id, value
        if arcs is not None:
            k += len(arcs)
        self.stage_waiting(waiting, k)
        if type(arcs) is list:
            if len(values) != k - n:
                raise ValueError("lists of different lengths")
            keys = values
            for i in range(n, k):
                self.stage[i], self.stage[k + i] = (<list> arcs)[i - n], keys[i - n]
        elif arcs is not None:
            id, value = arcs, values
            if id.shape[0] != k - n or value.shape[0] != k - n:
                raise ValueError("arrays of different lengths")
            self.stage[n:k], self.stage[k + n:2 * k] = id, value
        return self.apply(what, waiting, k)

    cdef int stage_waiting(self, dict waiting, Py_ssize_t k) except -1:
        """Put numbers that wait at the beginning of two columns of length k."""
        cdef list keys
        cdef Py_ssize_t i
        self.ready(2 * k)
        if waiting:
            keys = sorted(waiting)
            for i in range(len(keys)):
                self.stage[i], self.stage[k + i] = keys[i], waiting[keys[i]]
        return 0

    cdef int apply(self, int what, dict waiting, Py_ssize_t k) except -1:
        """Send the first column of length k, ids, and the second one, values; those that waited are among them."""
        if not k:
            return 0
        self.change(what, k)
        self.count += k
        waiting.clear()
        return 0

    cdef int change(self, int what, Py_ssize_t k) except -1:
        target = self._network._target
        cdef Network core
        if type(target) is not Network:
            change = (target.set_supply, target.set_capacity, target.set_cost)[what]
            change(self.column(0, k), self.column(1, k))
            return 0
        core = target
        core.take()
        try:
            if what == E_SUPPLY:
                core.put_supply(self.stage[:k], self.stage[k:2 * k])
            elif what == E_CAPACITY:
                core.put_capacity(self.stage[:k], self.stage[k:2 * k])
            else:
                core.put_cost(self.stage[:k], self.stage[k:2 * k])
        finally:
            core.give()
        return 0

    @property
    def entries(self):
        return _ENTRIES

    def flow(self, arcs):
        """Return the flow on arcs."""
        return self._network._core.flow(arcs)

    def sizes(self):
        """Return the numbers of nodes and arcs."""
        return self._network._core.sizes()


_NO_BOUNDS = np.zeros(0, np.int64)


cdef int read_flows(void *network, const int64_t *arcs, Py_ssize_t k, int64_t *flow) except -1:
    """See `Entries`."""
    cdef Network core = <Network?> (<object> network)._core
    cdef Py_ssize_t i
    core.take()
    try:
        for i in range(k):
            if not (0 <= arcs[i] < core.m and core.pos[2 * arcs[i]] >= 0):
                raise InputError(f"arcs[{i}]: no arc {arcs[i]}")
            flow[i] = core.last_flow(<int32_t> arcs[i]) if core.solved else 0
    finally:
        core.give()
    return 0


cdef int send_many(void *edits, bint cost, const int64_t *arcs, const int64_t *values, Py_ssize_t k) except -1:
    """See `Entries`."""
    cdef NetworkEdits self = <NetworkEdits?> <object> edits
    cdef dict waiting = self._cost if cost else self._capacity
    cdef Py_ssize_t n = len(waiting)
    if not n + k:
        return 0
    self.stage_waiting(waiting, n + k)
    if k:
        memcpy(&self.stage[n], arcs, k * sizeof(int64_t))
        memcpy(&self.stage[2 * n + k], values, k * sizeof(int64_t))
    return self.apply(E_COST if cost else E_CAPACITY, waiting, n + k)


cdef Entries entries
entries.flows, entries.send = read_flows, send_many
_ENTRIES = PyCapsule_New(&entries, "flowsched.entries", NULL)
