"""Changes of a kept network in many small steps, by a caller that holds on to ids.

Numbers come as Python's, go to the kernel through one vector, and no array is made.

`stage` is that vector.  It holds the columns of the current change, one after the other, and nothing between two calls.
A single number waits in a mapping from id to value until `flush`.  Those of one kind go in the order of their ids, so that the order in which things were named
does not show in the flow.

State after an exception: numbers that waited still wait, and the kernel has changed nothing (E).

Where the network has a slack (network/slack.py), changes are made on that, by arrays that share the memory of `stage`.
"""

cimport cython
from libc.string cimport memcpy

from flowsched.kernels.residual cimport SET_CAPACITY, SET_COST, SET_SUPPLY, Residual
from flowsched._faults cimport _empty

import numpy as np

from flowsched._cs import Network
from flowsched.exceptions import InfeasibleError


cdef class NetworkEdits:
    """Changes and readings of a network.

    Parameters
    ----------
    network : FlowNetwork

    Attributes
    ----------
    count : int
        Nodes and arcs added and altered so far.
    """

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

    @cython.final
    cdef int64_t *ready(self, int64_t size) except NULL:
        """Memory of `stage`, which has room for `size` numbers."""
        if size > self.stage.shape[0]:
            self.stage = _empty(2 * size, np.int64)
        return &self.stage[0]

    @cython.final
    cdef int64_t[::1] part(self, Py_ssize_t i, Py_ssize_t k):
        """Column i of length k."""
        return self.stage[i * k:i * k + k]

    @cython.final
    cdef object array(self, Py_ssize_t i, Py_ssize_t k):
        """The same, as an array."""
        return self.stage.base[i * k:i * k + k]

    @cython.final
    cdef list ids(self, Py_ssize_t i, Py_ssize_t k):
        """The same, as a list."""
        cdef list found = []
        cdef int64_t *at = self.ready(0) + i * k
        cdef Py_ssize_t j
        for j in range(k):
            found.append(at[j])
        return found

    @cython.final
    cdef int put(self, Py_ssize_t i, Py_ssize_t k, values) except -1:
        """Fill the i-th column of length k from a list, or with one number."""
        cdef int64_t *at = self.ready(0) + i * k
        cdef bint many = type(values) is list
        cdef int64_t one = 0 if many else values
        cdef Py_ssize_t j
        if many and len(<list> values) != k:
            raise ValueError("lists of different lengths")
        for j in range(k):
            at[j] = (<list> values)[j] if many else one
        return 0

    cpdef list new_nodes(self, Py_ssize_t k):
        """Add nodes without supply; return their ids."""
        target = self._network._target
        self.ready(2 * k)
        self.put(0, k, 0)
        if type(target) is Network:
            (<Residual> target).new_nodes(self.part(0, k), self.part(1, k))
            found = self.ids(1, k)
        else:
            found = target.add_nodes(self.array(0, k)).tolist()
        self.count += k
        return found

    cpdef list new_arcs(self, list tail, head, capacity, cost):
        """Add arcs; return their ids.  Each of `head`, `capacity` and `cost` is a list, or one number for all."""
        cdef Py_ssize_t k = len(tail)
        target = self._network._target
        self.ready(5 * k)
        self.put(0, k, tail)
        self.put(1, k, head)
        self.put(2, k, capacity)
        self.put(3, k, cost)
        if type(target) is Network:
            (<Residual> target).new_arcs(self.part(0, k), self.part(1, k), self.part(2, k), self.part(3, k), (<Residual> target).none64, self.part(4, k))
            found = self.ids(4, k)
        else:
            found = target.add_arcs(self.array(0, k), self.array(1, k), self.array(2, k), self.array(3, k), _NO_BOUNDS).tolist()
        self.count += k
        return found

    cpdef remove_nodes(self, list nodes):
        """Remove nodes with their arcs."""
        cdef Py_ssize_t k = len(nodes)
        if not k:
            return
        target = self._network._target
        self.ready_to_remove(nodes)
        if type(target) is Network:
            (<Residual> target).drop_nodes(self.part(0, k))
        else:
            target.remove_nodes(self.array(0, k))

    cpdef remove_arcs(self, arcs):
        """Remove arcs."""
        cdef Py_ssize_t k = len(arcs)
        if not k:
            return
        target = self._network._target
        self.ready_to_remove(arcs if type(arcs) is list else arcs.tolist())
        if type(target) is Network:
            (<Residual> target).drop_arcs(self.part(0, k))
        else:
            target.remove_arcs(self.array(0, k))

    @cython.final
    cdef int ready_to_remove(self, list ids) except -1:
        """Send the numbers that wait, and write ids to the first column."""
        cdef Py_ssize_t k = len(ids)
        self.flush()
        self.count += k
        self.ready(k)
        return self.put(0, k, ids)

    cpdef set_supply(self, node, supply):
        """Set the supply of a node in the next `flush`."""
        self._supply[node] = supply

    cpdef set_capacity(self, arc, capacity):
        """Set the capacity of an arc in the next `flush`."""
        self._capacity[arc] = capacity

    cpdef set_cost(self, arc, cost):
        """Set the cost of an arc in the next `flush`."""
        self._cost[arc] = cost

    cpdef flush(self):
        """Send the numbers that wait."""
        if self._supply:
            self.send_all(SET_SUPPLY, self._supply, NULL, NULL, 0)
        if self._capacity:
            self.send_all(SET_CAPACITY, self._capacity, NULL, NULL, 0)
        if self._cost:
            self.send_all(SET_COST, self._cost, NULL, NULL, 0)

    def set_capacities(self, arcs, capacity):
        """Set capacities at once, after those that wait."""
        self.send(SET_CAPACITY, self._capacity, arcs, capacity)

    def set_costs(self, arcs, cost):
        """Set costs at once, after those that wait."""
        self.send(SET_COST, self._cost, arcs, cost)

    @cython.final
    cdef int send(self, int what, dict waiting, arcs, values) except -1:
        """Send numbers that wait, and others after them: a list or a vector of ids, and one of values."""
        cdef Py_ssize_t i, n = len(waiting), k = n + len(arcs)
        cdef int64_t *at = self.wait(waiting, k)
        if len(values) != k - n:
            raise ValueError("arrays of different lengths")
        if type(arcs) is list:
            for i in range(n, k):
                at[i], at[k + i] = (<list> arcs)[i - n], values[i - n]
        else:
            whole = self.stage.base
            whole[n:k], whole[k + n:2 * k] = arcs, values
        return self.apply(what, waiting, k)

    @cython.final
    cdef int64_t *wait(self, dict waiting, Py_ssize_t k) except NULL:
        """Put numbers that wait, in the order of their ids, at the beginning of two columns of length k."""
        cdef int64_t *at = self.ready(2 * k)
        cdef Py_ssize_t i = 0
        if not waiting:
            return at
        for key in sorted(waiting) if len(waiting) > 1 else waiting:
            at[i], at[k + i] = key, waiting[key]
            i += 1
        return at

    @cython.final
    cdef int apply(self, int what, dict waiting, Py_ssize_t k) except -1:
        """Send the first column of length k, ids, and the second one, values; those that waited are among them."""
        target = self._network._target
        if not k:
            return 0
        if type(target) is Network:
            (<Residual> target).set_numbers(what, self.part(0, k), self.part(1, k))
        else:
            (target.set_supply, target.set_capacity, target.set_cost)[what](self.array(0, k), self.array(1, k))
        self.count += k
        waiting.clear()
        return 0

    cpdef tuple solve(self, double seconds):
        """Optimise as `FlowNetwork.solve` does, without its option checks; return the cost, the changed arcs, ascending, and the gap.

        Parameters
        ----------
        seconds : float
            Time limit, negative for none.
        """
        network = self._network
        if network._slack is not None:
            network._slack.remove()
        try:
            return network._core.resolve(seconds)
        except InfeasibleError:
            network.solve()     # raises the error that names the place
            raise

    @cython.final
    cdef int flows(self, const int64_t *arcs, Py_ssize_t k, int64_t *flow) except -1:
        """Read the flow on arcs in the last solution."""
        return (<Residual?> self._network._core).copy_flow(arcs, k, flow)

    @cython.final
    cdef int send_capacities(self, const int64_t *arcs, const int64_t *values, Py_ssize_t k) except -1:
        """Send capacities of arcs, after those that wait."""
        return self.send_all(SET_CAPACITY, self._capacity, arcs, values, k)

    @cython.final
    cdef int send_costs(self, const int64_t *arcs, const int64_t *values, Py_ssize_t k) except -1:
        """Send costs of arcs, after those that wait."""
        return self.send_all(SET_COST, self._cost, arcs, values, k)

    @cython.final
    cdef int send_all(self, int what, dict waiting, const int64_t *arcs, const int64_t *values, Py_ssize_t k) except -1:
        cdef Py_ssize_t n = len(waiting)
        cdef int64_t *at = self.wait(waiting, n + k)
        if k:
            memcpy(at + n, arcs, k * sizeof(int64_t))
            memcpy(at + 2 * n + k, values, k * sizeof(int64_t))
        return self.apply(what, waiting, n + k)

    def flow(self, arcs):
        """Return the flow on arcs."""
        return self._network._core.flows(arcs)

    def sizes(self):
        """Return the numbers of nodes and arcs."""
        return self._network._core.sizes()


_NO_BOUNDS = np.zeros(0, np.int64)
