"""`FlowProblem`: a minimum-cost flow problem as arrays; made from edge lists with named nodes, or from matrices."""

from __future__ import annotations

import importlib
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypedDict

import numpy as np

from flowsched.exceptions import CostRangeError, InputError
from flowsched.network.arguments import capacities, common_size, integers, supply_vector
from flowsched.network.results import INF, Int64Array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "FlowProblem",
    "elements",
    "from_adjacency",
    "from_incidence",
    "read_edges",
    "refuse_masked",
    "scale_costs",
    "supplies_of",
]


class FlowArguments(TypedDict):
    """The arrays of a problem by name."""

    tail: NDArray[np.int64]
    head: NDArray[np.int64]
    capacity: NDArray[np.int64]
    cost: NDArray[np.int64]
    supply: NDArray[np.int64]
    lower: NDArray[np.int64]


@dataclass(frozen=True, eq=False, init=False)
class FlowProblem:
    """A minimum-cost flow problem as arrays; nodes and arcs are numbered from 0.

    Parameters
    ----------
    tail, head : array_like of int, shape (m,)
        The nodes that each arc leaves and enters.
    capacity, cost : array_like of int, shape (m,), or int
        Largest flow of each arc, `INF` or infinite for unlimited, and its cost per unit.
    supply : array_like of int, shape (n,)
        Supply of each node: it sends (positive) or takes (negative).
    lower : array_like of int, shape (m,), or int, optional
        Least flow of each arc; 0 by default.

    Raises
    ------
    InputError
        If the arrays of the arcs differ in length, or one of them is not a vector of integers.

    Examples
    --------
    >>> problem = FlowProblem(tail=[0], head=[1], capacity=[5], cost=[2], supply=[3, -3])
    >>> problem.lower
    array([0])
    """

    tail: NDArray[np.int64]
    head: NDArray[np.int64]
    capacity: NDArray[np.int64]
    cost: NDArray[np.int64]
    supply: NDArray[np.int64]
    lower: NDArray[np.int64]

    def __init__(
        self,
        tail: ArrayLike,
        head: ArrayLike,
        capacity: ArrayLike,
        cost: ArrayLike,
        supply: ArrayLike,
        lower: ArrayLike | None = None,
    ) -> None:
        given = {"tail": tail, "head": head, "capacity": capacity, "cost": cost, "lower": 0 if lower is None else lower}
        arcs = common_size(*given.values())
        for name, column in [*given.items(), ("supply", supply)]:
            values = _vector(name, column, arcs)
            if name != "supply" and len(values) != arcs:
                raise InputError(f"{name}: {len(values)} values for {arcs} arcs")
            object.__setattr__(self, name, values)

    def arguments(self) -> FlowArguments:
        """Return the arrays by name, as ``min_cost_flow(**problem.arguments())`` takes them."""
        return {
            "tail": self.tail,
            "head": self.head,
            "capacity": self.capacity,
            "cost": self.cost,
            "supply": self.supply,
            "lower": self.lower,
        }

    # -- NetworkX; its package is asked for nowhere else in this part, and only where a graph is made ------------

    @classmethod
    def from_networkx(
        cls, G: Any, *, demand: str = "demand", capacity: str = "capacity", weight: str = "weight", lower: str = "lower"
    ) -> FlowProblem:
        """Read a directed graph of NetworkX, parallel edges too.

        Parameters
        ----------
        demand, capacity, weight, lower : str, optional
            Names of the attributes; without them a node has supply 0, and an edge is unlimited, costs 0 and has the lower bound 0.

        Returns
        -------
        FlowProblem
            Nodes are numbered in the order of ``list(G)``, arcs in that of ``list(G.edges)``.  A demand becomes a supply of the other sign.

        Raises
        ------
        InputError
            An undirected graph, or a value that is not an integer; names the attribute and the number of the node or edge.
        """
        if not getattr(G, "is_directed", lambda: False)():
            raise InputError(f"G: a directed graph expected, got {G!r:.80}")
        index = {node: number for number, node in enumerate(G)}
        edges = list(G.edges(data=True))
        return cls(
            tail=np.array([index[u] for u, _, _ in edges], np.int64),
            head=np.array([index[v] for _, v, _ in edges], np.int64),
            capacity=integers(capacity, [data.get(capacity, INF) for _, _, data in edges], unlimited=True),
            cost=integers(weight, [data.get(weight, 0) for _, _, data in edges]),
            supply=-integers(demand, [data.get(demand, 0) for _, data in G.nodes(data=True)]),
            lower=integers(lower, [data.get(lower, 0) for _, _, data in edges]),
        )

    def to_networkx(self, names: Iterable[Hashable] | None = None, *, lower: str | None = None) -> Any:
        """Return the problem as a ``networkx.MultiDiGraph``, with the attributes demand, capacity and weight.

        Parameters
        ----------
        names : iterable of hashable, optional
            Names of the nodes; their numbers by default.
        lower : str, optional
            Attribute for the lower bounds.  NetworkX does not have them, so it is an error if there are some and this is not given.

        Returns
        -------
        networkx.MultiDiGraph
            The key of an edge is the number of its arc.  An unlimited arc has no capacity there.

        Raises
        ------
        InputError
            Lower bounds that NetworkX would ignore, or names that differ in number from the nodes, or are not unique.
        ModuleNotFoundError
            NetworkX is not installed.
        """
        if lower is None and self.lower.any():
            i = int(np.argmax(self.lower != 0))
            raise InputError(
                f"lower[{i}]: {self.lower[i]}, but NetworkX has no lower bounds; name an attribute for them (lower=...)"
            )
        n = len(self.supply)
        called = list(range(n)) if names is None else list(names)
        if len(called) != n or len(set(called)) != n:
            raise InputError(f"names: {n} different ones expected, got {len(set(called))}")
        graph = importlib.import_module("networkx").MultiDiGraph()
        graph.add_nodes_from(
            (name, {"demand": -value}) for name, value in zip(called, self.supply.tolist(), strict=True)
        )
        rows = zip(
            *(self.arguments()[key].tolist() for key in ("tail", "head", "capacity", "cost", "lower")), strict=True
        )
        for number, (u, v, capacity, cost, least) in enumerate(rows):
            data = {"weight": cost} if capacity >= INF else {"weight": cost, "capacity": capacity}
            if lower is not None:
                data[lower] = least
            graph.add_edge(called[u], called[v], key=number, **data)
        return graph


def _vector(name: str, given: ArrayLike, arcs: int) -> NDArray[np.int64]:
    """Return an argument as a vector of int64, the one given if it is one; InputError if that cannot be."""
    if isinstance(given, np.ndarray) and given.dtype == np.int64 and given.ndim == 1:
        return given
    try:
        if name == "supply":
            return supply_vector(given)
        return integers(name, given, arcs if np.isscalar(given) else None, unlimited=name == "capacity")
    except CostRangeError as error:
        raise InputError(str(error)) from None


_ABSENT: Final = object()


@dataclass(slots=True)
class Edges:
    """Arcs by columns; a node's number is its place in ``names``."""

    names: dict[Hashable, int] = field(default_factory=dict)
    tail: list[int] = field(default_factory=list)
    head: list[int] = field(default_factory=list)
    capacity: Any = field(default_factory=list)
    cost: Any = field(default_factory=list)
    lower: Any = field(default_factory=list)

    def number(self, edge: int, name: Any) -> int:
        """Return the number of a node, new or known."""
        try:
            known = self.names.get(name)
            if known is not None:
                return known
            if name is None or name != name:
                raise InputError(f"edges[{edge}]: the name of a node is missing ({name!r})")
            return self.names.setdefault(name, len(self.names))
        except (TypeError, ValueError) as error:  # ValueError: the names are arrays
            if isinstance(error, InputError):
                raise
            raise InputError(f"edges[{edge}]: the name of a node must be hashable, got {name!r:.80}") from None


def read_edges(edges: Any, keys: tuple[str, str, str, str, str]) -> tuple[Edges, tuple[Int64Array, ...]]:
    """Read edges as `FlowNetwork.from_edges` takes them; return them with checked tail, head, capacity, cost, lower.

    `keys` has the names of these five in columns and mappings.  The InputError names the edge, or the column and the
    index.
    """
    names = edges if isinstance(edges, Mapping) else getattr(edges, "columns", None)
    if names is not None and not isinstance(edges, str):
        found = _of_table(edges, list(names), keys)
    else:
        found = _of_rows(edges, keys)
    m = len(found.tail)
    return found, (
        integers("tail", found.tail),
        integers("head", found.head),
        capacities(keys[2], found.capacity, m),
        integers(keys[3], found.cost, m),
        integers(keys[4], found.lower, m),
    )


def _of_table(table: Any, names: list[Any], keys: tuple[str, str, str, str, str]) -> Edges:
    for key in keys[:2]:
        if key not in names:
            raise InputError(f"edges: no column {key!r}; there are {', '.join(map(repr, names))}")
    found = Edges()
    starts, ends = list(table[keys[0]]), list(table[keys[1]])
    if len(starts) != len(ends):
        raise InputError(f"edges: {len(starts)} values in column {keys[0]!r}, {len(ends)} in {keys[1]!r}")
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        found.tail.append(found.number(i, start))
        found.head.append(found.number(i, end))
    found.capacity, found.cost, found.lower = (
        np.array(table[key]) if key in names else default for key, default in zip(keys[2:], (INF, 0, 0), strict=True)
    )
    return found


def _of_rows(edges: Iterable[Any], keys: tuple[str, str, str, str, str]) -> Edges:
    found = Edges()
    try:
        rows = iter(edges)
    except TypeError:
        raise InputError(f"edges: rows or a table expected, got {edges!r:.80}") from None
    for i, row in enumerate(rows):
        if isinstance(row, Mapping):
            start, end = (row.get(key, _ABSENT) for key in keys[:2])
            if start is _ABSENT or end is _ABSENT:
                raise InputError(f"edges[{i}]: no {keys[0 if start is _ABSENT else 1]!r} in {row!r:.80}")
            values = [row.get(key, default) for key, default in zip(keys[2:], (INF, 0, 0), strict=True)]
        else:
            try:
                start, end, *values = row
            except (TypeError, ValueError):
                raise InputError(
                    f"edges[{i}]: (source, target, capacity, cost, lower) expected, got {row!r:.80}"
                ) from None
            if len(values) == 1 and isinstance(values[0], Mapping):  # as NetworkX gives its edges
                values = [values[0].get(key, default) for key, default in zip(keys[2:], (INF, 0, 0), strict=True)]
            if len(values) > 3 or isinstance(row, str):
                raise InputError(f"edges[{i}]: (source, target, capacity, cost, lower) expected, got {row!r:.80}")
            values += [INF, 0, 0][len(values) :]
        found.tail.append(found.number(i, start))
        found.head.append(found.number(i, end))
        for column, value in zip((found.capacity, found.cost, found.lower), values, strict=True):
            column.append(value)
    return found


def supplies_of(found: Edges, supply: Mapping[Hashable, Any] | None) -> Int64Array:
    """Return the supplies by node; those that are not given are 0."""
    amounts = np.zeros(len(found.names), np.int64)
    if supply is None:
        return amounts
    if not isinstance(supply, Mapping):
        raise InputError(f"supply: a mapping of names to supplies expected, got {supply!r:.80}")
    for name, value in supply.items():
        if name not in found.names:
            raise InputError(f"supply: node {name!r:.80} is in no edge")
        amounts[found.names[name]] = integers(f"supply[{name!r:.80}]", value)[0]
    return amounts


_MOST_DECIMALS: Final = 15  # the precision of a float


def from_adjacency(capacity: Any, cost: Any, supply: ArrayLike) -> FlowProblem:
    """Read a flow problem from matrices over pairs of nodes.

    Parameters
    ----------
    capacity : sparse matrix or array, shape (n, n)
        Each stored element (i, j), a stored 0 too, is an arc from node i to node j.
    cost : sparse matrix or array, shape (n, n)
        Cost of one unit on each arc; 0 where nothing is stored.
    supply : array of int, shape (n,)
        > 0 sends, < 0 receives.

    Returns
    -------
    FlowProblem
        With the arcs by rows, then by columns, so that ``csr_array((result.flow, (problem.tail, problem.head)), shape)`` is the
        flow as a matrix.

    Raises
    ------
    InputError
        Not such matrices, values with a fraction (see `scale_costs`), or a cost without an arc.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> capacity = csr_array([[0, 4, 2], [0, 0, 3], [0, 0, 0]])
    >>> cost = csr_array([[0, 1, 5], [0, 0, 1], [0, 0, 0]])
    >>> problem = from_adjacency(capacity, cost, [4, 0, -4])
    >>> from flowsched import min_cost_flow
    >>> min_cost_flow(**problem.arguments()).cost
    11
    """
    supplies = integers("supply", supply)
    n = len(supplies)
    tail, head, room = elements("capacity", capacity, (n, n))
    rows, columns, price = elements("cost", cost, (n, n))
    arcs, priced = tail * n + head, rows * n + columns
    place = np.searchsorted(arcs, priced)
    found = place < len(arcs)
    found[found] = arcs[place[found]] == priced[found]
    if not found.all():
        i = int(np.argmin(found))
        raise InputError(f"cost[{rows[i]}, {columns[i]}]: there is no such arc (capacity stores nothing there)")
    costs = np.zeros(len(arcs), np.int64)
    costs[place] = integers("cost", price)
    return FlowProblem(tail, head, capacities("capacity", room), costs, supplies)


def from_incidence(incidence: Any, capacity: ArrayLike, cost: ArrayLike, supply: ArrayLike) -> FlowProblem:
    """Read a flow problem from the matrix of its conservation constraints ``incidence @ flow == supply``.

    Parameters
    ----------
    incidence : sparse matrix or array, shape (n, m)
        Each column has a 1 in the row of the arc's tail and a -1 in that of its head.
    capacity, cost : array of int, shape (m,), or int
    supply : array of int, shape (n,)
        > 0 sends, < 0 receives.

    Returns
    -------
    FlowProblem
        With the arcs in the order of the columns.

    Raises
    ------
    InputError
        A column is not an arc, or values are not integers (see `scale_costs`).

    Examples
    --------
    >>> from scipy.sparse import csc_array
    >>> incidence = csc_array([[1, 1, 0], [-1, 0, 1], [0, -1, -1]])
    >>> from flowsched import min_cost_flow
    >>> problem = from_incidence(incidence, [4, 2, 3], [1, 5, 1], [4, 0, -4])
    >>> min_cost_flow(**problem.arguments()).flow
    array([3, 1, 3])
    """
    supplies = integers("supply", supply)
    shape: tuple[int, ...] = getattr(incidence, "shape", ())
    m = shape[1] if len(shape) == 2 else 0
    rows, columns, signs = elements("incidence", incidence, (len(supplies), m))
    kept = signs != 0
    rows, columns, signs = rows[kept], columns[kept], signs[kept]
    out, into = signs == 1, signs == -1
    wrong = np.bincount(columns[~(out | into)], minlength=m) > 0
    wrong |= np.bincount(columns[out], minlength=m) != 1
    wrong |= np.bincount(columns[into], minlength=m) != 1
    if wrong.any():
        raise InputError(f"incidence: column {int(np.argmax(wrong))} is no arc: one 1 and one -1 expected")
    tail, head = np.zeros(m, np.int64), np.zeros(m, np.int64)
    tail[columns[out]] = rows[out]
    head[columns[into]] = rows[into]
    return FlowProblem(tail, head, capacities("capacity", capacity, m), integers("cost", cost, m), supplies)


def scale_costs(cost: ArrayLike, decimals: int | None = None) -> tuple[Int64Array, int]:
    """Scale costs with fractions to integers, as the exact solver needs them.

    Parameters
    ----------
    cost : array of float, shape (m,)
    decimals : int, optional
        Number of decimals to round to, 0 to 15.  By default, all decimals that the costs were written with are kept.

    Returns
    -------
    scaled : ndarray of int64, shape (m,)
    factor : int
        A power of ten: a result's cost divided by it is the cost in the units of ``cost``.  Rounding has moved each cost by
        ``0.5 / factor`` at most, and the optimum by that for each unit of flow on an arc.

    Raises
    ------
    InputError
        A cost is not finite, or was not written with 15 decimals or fewer: pass the number of decimals to round to.
    CostRangeError
        A scaled cost does not fit in 64 bits: round to fewer decimals.

    Examples
    --------
    >>> scale_costs([0.29, 1.5, -2])
    (array([  29,  150, -200]), 100)
    >>> scale_costs([1 / 3, 2 / 3], decimals=3)
    (array([333, 667]), 1000)
    """
    refuse_masked("cost", cost)
    try:
        given = np.asarray(cost, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"cost: a vector of numbers expected: {error}") from None
    if given.ndim != 1:
        raise InputError(f"cost: a vector expected, got an array of shape {given.shape}")
    if not np.isfinite(given).all():
        i = int(np.argmin(np.isfinite(given)))
        raise InputError(f"cost[{i}]: {given[i]} is not finite")
    if decimals is not None and not 0 <= decimals <= _MOST_DECIMALS:
        raise InputError(f"decimals: 0 to {_MOST_DECIMALS} expected, got {decimals}")
    factor = 1
    for places in range(_MOST_DECIMALS + 1) if decimals is None else [decimals]:
        factor = 10**places
        scaled = np.rint(given * factor)
        if decimals is not None or np.array_equal(scaled / factor, given):
            break
    else:
        i = int(np.argmax(scaled / factor != given))
        raise InputError(f"cost[{i}]: {given[i]} has more than {_MOST_DECIMALS} decimals; round by decimals=...")
    if (np.abs(scaled) >= 2.0**63).any():
        i = int(np.argmax(np.abs(scaled)))
        raise CostRangeError(f"cost[{i}]: {given[i]} times {factor} does not fit in 64 bits; round by decimals=...")
    return scaled.astype(np.int64), factor


def elements(
    name: str, matrix: Any, shape: tuple[int, int], *, stored: bool = True
) -> tuple[Int64Array, Int64Array, NDArray[Any]]:
    """Return rows, columns and values of a matrix, by rows; of a dense one all, or those that are not 0 (``stored``)."""
    if hasattr(matrix, "tocsr"):
        if tuple(matrix.shape) != shape:
            raise InputError(f"{name}: shape {shape} expected, got {tuple(matrix.shape)}")
        rows = matrix.tocsr()
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()  # as SciPy reads an element that is stored twice
        lines = np.repeat(np.arange(shape[0]), np.diff(rows.indptr))
        return lines.astype(np.int64), rows.indices.astype(np.int64), rows.data
    refuse_masked(name, matrix)
    dense = np.asarray(matrix)
    if dense.shape != shape or dense.ndim != 2:
        raise InputError(f"{name}: a matrix of shape {shape} expected, got an array of shape {dense.shape}")
    if stored:
        at = np.nonzero(dense)
        return at[0].astype(np.int64), at[1].astype(np.int64), dense[at]
    at = np.divmod(np.arange(dense.size), max(shape[1], 1))
    return at[0].astype(np.int64), at[1].astype(np.int64), dense.ravel()


def refuse_masked(name: str, values: Any) -> None:
    """Refuse an array whose mask would be lost."""
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(f"{name}: a masked array, whose mask would be lost; fill or compress it first")
