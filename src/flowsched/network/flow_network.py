"""Min-cost flow for callers: `min_cost_flow` once, `FlowNetwork` kept alive and re-optimised after changes.

Three rules hold for every call here.  Arrays given are copied before they are looked at, and the copies are what is checked and used.  A call that
raises has changed nothing that can be seen, whatever it raises and wherever: bad input, memory, Ctrl-C.  A network that is in use refuses a second
call at once with ConcurrentUseError, and never lets it wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from time import perf_counter
from typing import Any, Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowsched import _cs, _ns
from flowsched.exceptions import ConcurrentUseError, CostRangeError, InputError
from flowsched.network.state import checked

__all__ = ["INF", "FlowNetwork", "FlowResult", "FlowSolution", "certify", "min_cost_flow"]

INF: Final = _cs.INF
"""The capacity of an arc without limit (2**62; whatever is larger counts as unlimited, too)."""

Int64Array = NDArray[np.int64]

_INT64: Final = np.dtype(np.int64)
_NO_LOWER = np.zeros(0, np.int64)
_ALGORITHMS: Final = {"auto": 0, "repair": 1, "cost_scaling": 2, "network_simplex": 3}


@dataclass(frozen=True, slots=True)
class FlowResult:
    """Optimal flow of one problem.

    Attributes
    ----------
    flow : ndarray of int64, shape (m,)
    cost : int
        Exact, of any size.
    potential : ndarray of int64, shape (n,)
        ``cost + potential[tail] - potential[head]`` is >= 0 where flow < capacity, and <= 0 where flow > lower.
    stats : mapping
        ``algorithm``, ``seconds``, ``warm``, ``gap`` (0: optimal) and the kernel's counters (pushes, relabels, augmentations, ...; of the
        simplex pivots, ..., and ``resumed``: whether it went on from its last basis).
    """

    flow: Int64Array
    cost: int
    potential: Int64Array
    stats: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FlowSolution:
    """What `FlowNetwork.solve` found.

    Attributes
    ----------
    cost : int
        Exact, of any size.
    changed : ndarray of int64
        Ids of the arcs whose flow differs from the previous solution (before the first one it counts as 0), ascending.
        Arcs removed since are not listed.
    stats : mapping
        As in `FlowResult`.
    """

    cost: int
    changed: Int64Array
    stats: Mapping[str, Any]


def _integers(name: str, values: ArrayLike, size: int | None = None) -> Int64Array:
    """`values` as a contiguous int64 vector of our own; a scalar is repeated `size` times."""
    if type(values) is np.ndarray and values.dtype is _INT64 and values.ndim == 1:
        array = values.copy()
    else:
        array = _converted(name, values, size)
    if size is not None and len(array) != size:
        raise InputError(f"{name}: {size} values expected, got {len(array)}")
    return array


def _converted(name: str, values: ArrayLike, size: int | None) -> Int64Array:
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(f"{name}: a masked array, whose mask would be lost; fill or compress it first")
    try:
        array = np.array(values)
    except ValueError:
        raise InputError(f"{name}: a vector of integers expected, got rows of different lengths") from None
    if array.ndim == 0 and size is not None:
        array = np.full(size, array)
    if array.ndim != 1:
        raise InputError(f"{name}: a vector expected, got an array of shape {array.shape}")
    if array.size == 0:
        return np.zeros(0, np.int64)
    if array.dtype.kind == "f":
        wrong = ~(np.isfinite(array) & (array == np.rint(array)))
        if wrong.any():
            i = int(np.argmax(wrong))
            raise InputError(
                f"{name}[{i}]: {array[i]} is not an integer; scale fractions first (flowsched.scale_costs)"
            )
        wrong = np.abs(array) >= 2.0**63
        if wrong.any():
            i = int(np.argmax(wrong))
            raise CostRangeError(f"{name}[{i}]: {array[i]} does not fit in 64 bits")
    elif array.dtype.kind == "u" and array.dtype.itemsize == 8:
        wrong = array > np.uint64(2**63 - 1)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise CostRangeError(f"{name}[{i}]: {array[i]} does not fit in 64 bits")
    elif array.dtype.kind == "O":
        for i, value in enumerate(array):
            if isinstance(value, int | np.integer) and not -(2**63) <= value < 2**63:
                raise CostRangeError(f"{name}[{i}]: {value} does not fit in 64 bits")
            if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
                raise InputError(f"{name}[{i}]: an integer expected, got {value!r}")
    elif array.dtype.kind not in "iu":
        raise InputError(f"{name}: integers expected, got {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.int64)


def _lower_bounds(lower: ArrayLike, size: int) -> Int64Array:
    """Lower bounds of so many arcs; nothing where all are 0, which takes neither memory nor time."""
    if type(lower) is int and lower == 0:
        return _NO_LOWER
    lowers = _integers("lower", lower, size)
    return lowers if lowers.any() else _NO_LOWER


def _check_options(algorithm: str, time_limit: float | None) -> tuple[int, float]:
    if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
        raise InputError(f"algorithm: one of {', '.join(_ALGORITHMS)} expected, got {algorithm!r}")
    if time_limit is None:
        return _ALGORITHMS[algorithm], -1.0
    if not isinstance(time_limit, Real) or isinstance(time_limit, bool) or not time_limit >= 0:
        raise InputError(f"time_limit: seconds >= 0 expected, got {time_limit!r:.80}")
    try:
        return _ALGORITHMS[algorithm], float(time_limit)
    except OverflowError:
        raise InputError("time_limit: seconds expected, got a number that no float holds") from None


class FlowNetwork:
    """A min-cost flow network that is kept alive, mutated in place and re-optimised from its last optimum.

    Node and arc ids are dense integers from 0 and stay as they are under every mutation; the id of something removed is
    given to the next thing added.  A mutation costs what it touches; `solve` costs what the changes reach, not what exists.
    Every method that takes ids takes arrays of them: batch the calls.  A method that raises, for bad input or anything else, has changed nothing.

    One call at a time: `solve` releases the GIL, and while it (or any other method) is under way, every other use of the network raises
    `ConcurrentUseError` at once: from another thread, a signal handler, a finaliser, a callback.  Threads that share a network hold a lock of their own.

    Examples
    --------
    >>> import flowsched as fs
    >>> net = fs.FlowNetwork()
    >>> a, b, sink = net.add_nodes([1, 1, -2])
    >>> arcs = net.add_arcs([a, a, b, b], [sink, b, sink, sink], [1, 1, 1, 1], [5, 1, 2, 4])
    >>> net.solve().cost
    7
    >>> net.set_cost(arcs[:1], [9])
    >>> solution = net.solve()
    >>> solution.cost, solution.changed
    (7, array([0, 1, 3]))
    """

    __slots__ = ("_core",)

    def __init__(self) -> None:
        self._core = _cs.Network()

    def __repr__(self) -> str:
        try:
            nodes, arcs = self._core.sizes()
        except ConcurrentUseError:
            return "<FlowNetwork: in use>"
        return f"<FlowNetwork: {nodes} nodes, {arcs} arcs>"

    # -- mutations -------------------------------------------------------------------------------------------

    def add_nodes(self, supply: ArrayLike) -> Int64Array:
        """Add nodes.

        Parameters
        ----------
        supply : array of int, shape (k,), or int
            Supply of each (> 0 sends, < 0 receives); a single number k adds k nodes of supply 0.

        Returns
        -------
        ndarray of int64, shape (k,)
            Their ids.

        Raises
        ------
        InputError
            Not integers, or a negative count.
        CostRangeError
            The supplies are too large.
        """
        if isinstance(supply, int | np.integer) and not isinstance(supply, bool):
            if not 0 <= supply < 2**31:
                raise InputError(f"supply: a count of nodes from 0 to 2**31 - 1 or an array expected, got {supply}")
            return self._core.add_nodes(np.zeros(int(supply), np.int64))
        return self._core.add_nodes(_integers("supply", supply))

    def add_arcs(
        self, tail: ArrayLike, head: ArrayLike, capacity: ArrayLike, cost: ArrayLike, lower: ArrayLike = 0
    ) -> Int64Array:
        """Add arcs.

        Parameters
        ----------
        tail, head : array of int, shape (k,)
            Node ids; parallel arcs and self-loops are allowed.
        capacity, cost, lower : array of int, shape (k,), or int
            0 <= lower <= capacity; capacity may be `INF`.

        Returns
        -------
        ndarray of int64, shape (k,)
            Their ids.

        Raises
        ------
        InputError
            Wrong shape, unknown or removed node, not integers, bounds out of order; names the argument and the index.
        CostRangeError
            (nodes + 1) * |cost| reaches 2**59: exact arithmetic could overflow.
        """
        tails = _integers("tail", tail)
        k = len(tails)
        lowers = _lower_bounds(lower, k)
        heads = _integers("head", head, k)
        capacities = _integers("capacity", capacity, k)
        costs = _integers("cost", cost, k)
        return self._core.add_arcs(tails, heads, capacities, costs, lowers)

    def set_supply(self, nodes: ArrayLike, supply: ArrayLike) -> None:
        """Set the supplies of nodes (arrays of one length, or one supply for all)."""
        ids = _integers("nodes", nodes)
        self._core.set_supply(ids, _integers("supply", supply, len(ids)))

    def set_capacity(self, arcs: ArrayLike, capacity: ArrayLike) -> None:
        """Set the capacities of arcs; not below their lower bounds."""
        ids = _integers("arcs", arcs)
        self._core.set_capacity(ids, _integers("capacity", capacity, len(ids)))

    def set_lower(self, arcs: ArrayLike, lower: ArrayLike) -> None:
        """Set the lower bounds of arcs; not above their capacities."""
        ids = _integers("arcs", arcs)
        self._core.set_lower(ids, _integers("lower", lower, len(ids)))

    def set_cost(self, arcs: ArrayLike, cost: ArrayLike) -> None:
        """Set the costs of arcs."""
        ids = _integers("arcs", arcs)
        self._core.set_cost(ids, _integers("cost", cost, len(ids)))

    def remove_arcs(self, arcs: ArrayLike) -> None:
        """Remove arcs; their ids become free."""
        self._core.remove_arcs(_integers("arcs", arcs))

    def remove_nodes(self, nodes: ArrayLike) -> None:
        """Remove nodes, each with its arcs; the ids become free."""
        self._core.remove_nodes(_integers("nodes", nodes))

    # -- solving ---------------------------------------------------------------------------------------------

    def solve(self, *, algorithm: str = "auto", time_limit: float | None = None) -> FlowSolution:
        """Optimise, from the last optimum where there is one.

        Parameters
        ----------
        algorithm : {"auto", "repair", "cost_scaling", "network_simplex"}
            ``repair`` routes what the changes have upset, locally, at epsilon = 0; ``cost_scaling`` is the textbook's
            successive approximation, warm-started at the epsilon that the changes have broken; ``network_simplex`` goes on from its
            last basis after changes of costs, capacities and supplies, else it starts from the last flow and potentials.  ``auto`` repairs, and hands to
            the simplex what takes too long, or would by what both have cost lately.  All find the same optimal cost.
        time_limit : float, optional
            Seconds.  When they are over, the flow of the moment is made feasible and returned; ``stats["gap"]`` says by how much
            its cost may exceed the optimum, and the next `solve` goes on from there.

        Returns
        -------
        FlowSolution

        Raises
        ------
        InfeasibleError
            With a cut (bool by node id).  The network is as before: mend it and solve again.
        UnboundedError
            With a cycle (arc ids).
        TimeLimitError
            The time limit passed before it was known that the cost has a minimum.  The network is as before.
        CostRangeError
            Exact arithmetic could overflow; also if the flow of an unlimited arc would have to reach 2**62, which takes other capacities of such sizes.
        """
        kernel, seconds = _check_options(algorithm, time_limit)
        cost, changed, stats = self._core.solve(kernel, seconds)
        return FlowSolution(cost, changed, stats)

    def certify(self) -> None:
        """Prove that the last solution is optimal for the present data.

        Raises
        ------
        AssertionError
            At the first arc or node that contradicts it.
        """
        arcs, nodes = self.arcs(), self.nodes()
        dense = np.zeros(int(nodes[-1]) + 1 if len(nodes) else 0, np.int64)
        dense[nodes] = np.arange(len(nodes))
        result = FlowResult(self.flow(arcs), self._core.cost_of_flow(), self.potential(nodes), {})
        certify(
            dense[self.tail(arcs)], dense[self.head(arcs)], self.capacity(arcs), self.cost(arcs), self.supply(nodes), result,
            lower=self.lower(arcs),
        )  # fmt: skip

    # -- the last solution -----------------------------------------------------------------------------------

    def flow(self, arcs: ArrayLike | None = None) -> Int64Array:
        """Flow of arcs in the last solution, lower bound included; 0 before the first and for arcs added since."""
        return self._core.flow(None if arcs is None else _integers("arcs", arcs))

    def potential(self, nodes: ArrayLike | None = None) -> Int64Array:
        """Potentials of nodes in the last solution."""
        return self._core.potential(None if nodes is None else _integers("nodes", nodes))

    def reduced_cost(self, arcs: ArrayLike | None = None) -> Int64Array:
        """``cost + potential[tail] - potential[head]`` of arcs, with the present costs and the last solution's potentials."""
        ids = self.arcs() if arcs is None else _integers("arcs", arcs)
        return self.cost(ids) + self.potential(self.tail(ids)) - self.potential(self.head(ids))

    # -- the present data ------------------------------------------------------------------------------------

    def nodes(self) -> Int64Array:
        """Ids of all nodes, ascending."""
        return self._core.node_ids()

    def arcs(self) -> Int64Array:
        """Ids of all arcs, ascending."""
        return self._core.arc_ids()

    def supply(self, nodes: ArrayLike | None = None) -> Int64Array:
        """Supplies of nodes (all, in the order of `nodes()`, by default)."""
        return self._core.supply(None if nodes is None else _integers("nodes", nodes))

    def tail(self, arcs: ArrayLike | None = None) -> Int64Array:
        """Tails of arcs (all, in the order of `arcs()`, by default; so for all that follow)."""
        return self._data(arcs, 0)

    def head(self, arcs: ArrayLike | None = None) -> Int64Array:
        """Heads of arcs."""
        return self._data(arcs, 1)

    def capacity(self, arcs: ArrayLike | None = None) -> Int64Array:
        """Capacities of arcs."""
        return self._data(arcs, 2)

    def cost(self, arcs: ArrayLike | None = None) -> Int64Array:
        """Costs of arcs."""
        return self._data(arcs, 3)

    def lower(self, arcs: ArrayLike | None = None) -> Int64Array:
        """Lower bounds of arcs."""
        return self._data(arcs, 4)

    def _data(self, arcs: ArrayLike | None, what: int) -> Int64Array:
        return self._core.arc_data(None if arcs is None else _integers("arcs", arcs), what)

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return self._core.sizes()[0]

    @property
    def num_arcs(self) -> int:
        """How many arcs there are."""
        return self._core.sizes()[1]

    @property
    def nbytes(self) -> int:
        """Memory of the kernel's arrays."""
        return self._core.nbytes()

    # -- copies ----------------------------------------------------------------------------------------------

    def copy(self) -> FlowNetwork:
        """An independent copy with flow and potentials: its next solve is warm."""
        return FlowNetwork.from_state(self.state())

    def state(self) -> dict[str, int | NDArray[np.int32] | Int64Array]:
        """All of the network as data, for `from_state`: ids, flow, potentials, kept basis, and the order of everything.

        Returns
        -------
        dict of str to int or ndarray
            Flat: Python integers of up to 64 bits, and vectors of int64 or int32 that are nobody else's.  The names and what they mean are in
            `flowsched.network.state`; ``form`` is the number of that format.
        """
        return self._core.dump()

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Make a network of what `state` returned; all its later solves are those of the original, bit for bit.

        Parameters
        ----------
        state : mapping of str to int or ndarray
            The vectors are copied; they may be read-only and from any memory.

        Raises
        ------
        InputError
            Not the state of a network: names what is wrong with it.  Every word is checked before it is used: kinds and lengths, ids, free
            ids, adjacency, bounds, balances, that the potentials fit the flow, and the same for the kept basis.
        """
        own = checked(state)
        network = cls.__new__(cls)
        core = _cs.Network()
        core.adopt(own)
        network._core = core
        return network

    def __getstate__(self) -> dict[str, Any]:
        return self.state()

    def __setstate__(self, state: Any) -> None:
        core = _cs.Network()
        core.adopt(checked(state))
        self._core = core

    def _set_budget(self, budget: int, patience: int = -1) -> None:
        """For tests: hand an excess to the search, and all to the simplex, after so many scanned half-arcs (-1: the usual)."""
        self._core.set_budget(budget, patience)


def min_cost_flow(
    tail: ArrayLike,
    head: ArrayLike,
    capacity: ArrayLike,
    cost: ArrayLike,
    supply: ArrayLike,
    *,
    lower: ArrayLike | None = None,
    algorithm: str = "auto",
    time_limit: float | None = None,
) -> FlowResult:
    """Solve one min-cost flow problem.

    Parameters
    ----------
    tail, head : array of int, shape (m,)
        Node ids 0..n-1; parallel arcs and self-loops are allowed.
    capacity, cost : array of int, shape (m,), or int
        Capacity may be `INF`; costs may be negative.
    supply : array of int, shape (n,)
        > 0 sends, < 0 receives; sums to 0.
    lower : array of int, shape (m,), or int, optional
        Lower bounds of the flow, 0 by default.
    algorithm, time_limit
        As in `FlowNetwork.solve`.

    Returns
    -------
    FlowResult

    Raises
    ------
    InputError
        Names the argument and the index.
    InfeasibleError, UnboundedError, TimeLimitError, CostRangeError
        As in `FlowNetwork.solve`; here the ids in ``cut`` and ``cycle`` are those of the arrays given.

    Examples
    --------
    >>> import flowsched as fs
    >>> result = fs.min_cost_flow([0, 0, 1], [1, 2, 2], [4, 2, 3], [1, 5, 1], [4, 0, -4])
    >>> result.cost, result.flow
    (11, array([3, 1, 3]))
    """
    start = perf_counter()
    _, seconds = _check_options(algorithm, time_limit)
    if algorithm in ("auto", "network_simplex"):
        result = _by_simplex(tail, head, capacity, cost, supply, lower, seconds)
        if result:
            return result
    if time_limit is not None:
        time_limit = max(seconds - (perf_counter() - start), 0.0)
    network = FlowNetwork()
    network.add_nodes(np.atleast_1d(_integers("supply", supply)))
    arcs = network.add_arcs(tail, head, capacity, cost, 0 if lower is None else lower)
    solution = network.solve(algorithm=algorithm, time_limit=time_limit)
    return FlowResult(network.flow(arcs), solution.cost, network.potential(), solution.stats)


def _by_simplex(
    tail: ArrayLike,
    head: ArrayLike,
    capacity: ArrayLike,
    cost: ArrayLike,
    supply: ArrayLike,
    lower: ArrayLike | None,
    time_limit: float,
) -> FlowResult | None:
    """Solve by the simplex without building a network; None if that is not for this problem, or there is no optimum to be found."""
    start = perf_counter()
    supplies = np.atleast_1d(_integers("supply", supply))
    n = len(supplies)
    tails = _integers("tail", tail)
    m = len(tails)
    fits = 0 < m < 2**30 - 2 and n < 2**30 - 2 and _among(tails, n)
    tails32 = tails.astype(np.int32)
    del tails  # its memory serves again
    heads = _integers("head", head, m)
    fits = fits and _among(heads, n)
    heads32 = heads.astype(np.int32)
    del heads
    lowers = _lower_bounds(0 if lower is None else lower, m)
    costs, capacities = _integers("cost", cost, m), _integers("capacity", capacity, m)
    if not fits or supplies.sum() or capacities.min() < 0:
        return None
    if len(lowers) and (lowers.min() < 0 or (lowers > capacities).any()):
        return None
    np.minimum(capacities, INF, out=capacities)
    status, flow, potential, stats = _ns.solve(
        tails32, heads32, capacities, costs, supplies, lowers, time_limit, _NO_LOWER, _NO_LOWER
    )
    if status != _ns.OK:
        return None
    stats |= dict.fromkeys(("pushes", "relabels", "augmentations"), 0)  # the simplex makes none
    stats |= {"algorithm": "network_simplex", "warm": False, "gap": 0, "seconds": perf_counter() - start}
    return FlowResult(flow, _exact_cost(costs, flow), potential, stats)


def _among(ids: Int64Array, count: int) -> bool:
    return len(ids) == 0 or (int(ids.min()) >= 0 and int(ids.max()) < count)


def _exact_cost(cost: Int64Array, flow: Int64Array) -> int:
    """The sum of their products, of any size."""
    if float(np.abs(cost.astype(float)) @ flow.astype(float)) < 2.0**62:
        return int(cost @ flow)
    return int((cost.astype(object) * flow).sum())


def certify(
    tail: ArrayLike,
    head: ArrayLike,
    capacity: ArrayLike,
    cost: ArrayLike,
    supply: ArrayLike,
    result: FlowResult,
    lower: ArrayLike | None = None,
) -> None:
    """Prove that a result is optimal: bounds, conservation, complementary slackness and the cost, in exact arithmetic.

    Parameters
    ----------
    tail, head, capacity, cost, supply, lower
        The problem, as for `min_cost_flow`.
    result : FlowResult

    Raises
    ------
    AssertionError
        At the first violated arc or node.
    """
    tails = _integers("tail", tail)
    m = len(tails)
    heads = _integers("head", head, m)
    capacities = _integers("capacity", capacity, m)
    costs = _integers("cost", cost, m).astype(object)
    supplies = _integers("supply", supply)
    lowers = _integers("lower", 0 if lower is None else lower, m)
    flow, p = result.flow, result.potential.astype(object)

    def require(holds: NDArray[np.bool_], what: str) -> None:
        if not holds.all():
            raise AssertionError(what.format(int(np.argmin(holds))))

    require(lowers <= flow, "arc {}: flow below its lower bound")
    require((flow <= capacities) | (capacities >= INF), "arc {}: flow above its capacity")
    balance = supplies.astype(object)
    np.subtract.at(balance, tails, flow.astype(object))
    np.add.at(balance, heads, flow.astype(object))
    require((balance == 0).astype(bool), "node {}: what arrives and is supplied is not what leaves")
    reduced = costs + p[tails] - p[heads]
    require(
        (reduced >= 0).astype(bool) | ((flow >= capacities) & (capacities < INF)),
        "arc {}: residual, with a negative reduced cost",
    )
    require((reduced <= 0).astype(bool) | (flow <= lowers), "arc {}: has flow, with a positive reduced cost")
    if int((costs * flow).sum()) != result.cost:
        raise AssertionError(f"the cost is {int((costs * flow).sum())}, not {result.cost}")
