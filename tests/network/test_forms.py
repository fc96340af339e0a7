"""Networks in other forms: named edges, tables, problems, DIMACS files and graphs of NetworkX, and back."""

from __future__ import annotations

import copy
import io
import pickle
import types

import networkx as nx
import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st

import flowsched as fs

ROWS = [("a", "b", 4, 1), ("a", "c", 2, 5), ("b", "c", 3, 1), ("b", "c", 1, 0)]
SUPPLY = {"a": 4, "c": -4}
KEYS = ("source", "target", "capacity", "cost")


class Table:
    """The part of a DataFrame that is used."""

    def __init__(self, **columns):
        self._columns = columns

    columns = property(lambda self: list(self._columns))

    def __getitem__(self, name):
        return self._columns[name]


def columns(**more):
    return {key: [row[i] for row in ROWS] for i, key in enumerate(KEYS)} | more


@pytest.mark.parametrize(
    "edges",
    [
        ROWS,
        iter(ROWS),
        [dict(zip(KEYS, row, strict=True)) for row in ROWS],
        [types.MappingProxyType(dict(zip(KEYS, row, strict=True))) for row in ROWS],
        [(u, v, {"capacity": c, "cost": k}) for u, v, c, k in ROWS],
        columns(),
        Table(**{key: np.array(column) for key, column in columns(other=[0] * 4).items()}),
    ],
    ids=["tuples", "iterator", "dicts", "mappings", "networkx", "columns", "table"],
)
def test_every_kind_of_edges(edges):
    net = fs.FlowNetwork.from_edges(edges, supply=SUPPLY)
    assert dict(net.names) == {"a": 0, "b": 1, "c": 2}
    assert net.solve().cost == 7
    assert net.flow().tolist() == [4, 0, 3, 1]
    assert net.node_id("c") == 2
    with pytest.raises(TypeError):
        net.names["d"] = 3


def test_a_dataframe():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(columns(), index=[9, 8, 7, 6]).rename(columns={"cost": "price"})
    net = fs.FlowNetwork.from_edges(frame, supply=SUPPLY, cost="price")
    net.solve()
    frame["flow"] = net.flow()
    assert frame["flow"].tolist() == [4, 0, 3, 1]


def test_what_is_left_out():
    net = fs.FlowNetwork.from_edges(
        [(0, "x"), ("x", (1, 2), np.inf), {"source": 0, "target": (1, 2), "cost": 3, "lower": 2}]
    )
    assert net.capacity().tolist() == [fs.INF] * 3
    assert (net.cost().tolist(), net.lower().tolist()) == ([0, 0, 3], [0, 0, 2])
    assert list(net.names) == [0, "x", (1, 2)]
    assert fs.FlowNetwork.from_edges([]).num_nodes == 0


@pytest.mark.parametrize(
    ("edges", "options", "words"),
    [
        ([("a", "b"), ("a",)], {}, r"edges\[1\]: \(source, target, capacity, cost, lower\) expected, got \('a',\)"),
        ([("a", "b", 1, 2, 3, 4)], {}, r"edges\[0\]: \(source, target"),
        ([("a", "b"), 7], {}, r"edges\[1\]: .* got 7"),
        (["ab"], {}, r"edges\[0\]: .* got 'ab'"),
        (5, {}, "edges: rows or a table expected, got 5"),
        ([("a", ["b"])], {}, r"edges\[0\]: the name of a node must be hashable, got \['b'\]"),
        ([("a", None)], {}, r"edges\[0\]: the name of a node is missing \(None\)"),
        ([("a", float("nan"))], {}, r"edges\[0\]: the name of a node is missing \(nan\)"),
        ([{"source": "a", "to": "b"}], {}, r"edges\[0\]: no 'target' in"),
        ({"source": ["a"], "to": ["b"]}, {}, "edges: no column 'target'; there are 'source', 'to'"),
        ({"source": ["a"], "target": ["b", "c"]}, {}, "edges: 1 values in column 'source', 2 in 'target'"),
        ({"source": ["a"], "target": ["b"], "cost": [1, 2]}, {}, "cost: 1 values expected, got 2"),
        ([("a", "b", 1), ("a", "b", 0.5)], {}, r"capacity\[1\]: 0.5 is not an integer"),
        ([("a", "b", 1, np.nan)], {}, r"cost\[0\]: nan is not an integer"),
        ([("a", "b", -1)], {}, r"capacity\[0\]: -1 is negative"),
        ([("a", "b")], {"supply": {"c": 1}}, "supply: node 'c' is in no edge"),
        ([("a", "b")], {"supply": {"a": "x"}}, r"supply\['a'\]\[0\]: an integer expected, got 'x'"),
        ([("a", "b")], {"supply": [1, -1]}, "supply: a mapping of names to supplies expected"),
    ],
)
def test_wrong_edges(edges, options, words):
    with pytest.raises(fs.InputError, match=words):
        fs.FlowNetwork.from_edges(edges, **options)


def test_names_stay_with_their_nodes():
    net = fs.FlowNetwork.from_edges(ROWS, supply=SUPPLY)
    for other in (net.copy(), copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert dict(other.names) == dict(net.names)
        assert other.solve().cost == 7
    net.remove_nodes(net.node_id("b"))
    assert list(net.names) == ["a", "c"]
    with pytest.raises(fs.InputError, match="name: no node is called 'b'"):
        net.node_id("b")
    with pytest.raises(fs.InputError, match="no node is called"):
        net.node_id(["b"])
    (new,) = net.add_nodes(0, count=1, names=["d"])
    assert net.node_id("d") == new == 1  # the id that b had
    for names, words in (
        (["a"], r"names\[0\]: another node is called 'a'"),
        (["x", "y"], "names: 1 values expected, got 2"),
        ([[]], "hashable"),
    ):
        with pytest.raises(fs.InputError, match=words):
            net.add_nodes([0], names=names)
    assert net.num_nodes == 3
    assert fs.FlowNetwork.from_state(net.state()).names == {}


# -- conversions -------------------------------------------------------------------------------------------------


@st.composite
def problems(draw):
    n, m = draw(st.integers(1, 6)), draw(st.integers(0, 9))
    ends = st.lists(st.integers(0, n - 1), min_size=m, max_size=m)
    lower = draw(st.lists(st.integers(0, 3), min_size=m, max_size=m))
    room = draw(st.lists(st.one_of(st.integers(0, 9), st.just(fs.INF)), min_size=m, max_size=m))
    return fs.FlowProblem(
        draw(ends), draw(ends), np.array(room, np.int64) + np.where(np.array(room, np.int64) < fs.INF, lower, 0),
        draw(st.lists(st.integers(-9, 9), min_size=m, max_size=m)), draw(st.lists(st.integers(-9, 9), min_size=n, max_size=n)), lower,
    )  # fmt: skip


def same(one, other):
    return all(np.array_equal(one.arguments()[key], other.arguments()[key]) for key in one.arguments())


def through_networkx(problem):
    """NetworkX lists edges by their tails; their keys tell the arcs."""
    graph = problem.to_networkx(lower="least")
    back = fs.FlowProblem.from_networkx(graph, lower="least")
    order = np.argsort([key for _, _, key in graph.edges(keys=True)], kind="stable")
    return fs.FlowProblem(
        *(back.arguments()[k][order] for k in ("tail", "head", "capacity", "cost")), back.supply, back.lower[order]
    )


def through_dimacs(problem):
    text = io.StringIO()
    fs.write_dimacs(problem, text)
    return fs.read_dimacs(io.StringIO(text.getvalue()))


def of_network_through_dimacs(problem):
    text = io.StringIO()
    fs.write_dimacs(fs.FlowNetwork.from_problem(problem), text)
    return fs.read_dimacs(io.StringIO(text.getvalue()))


@settings(max_examples=effort(15, 600), deadline=None)
@given(problems())
@pytest.mark.parametrize(
    "around",
    [
        lambda p: fs.FlowNetwork.from_problem(p).to_problem(),
        through_networkx,
        through_dimacs,
        of_network_through_dimacs,
    ],
    ids=["network", "networkx", "dimacs", "network and dimacs"],
)
def test_round_trips(around, problem):
    assert same(around(problem), problem)


def test_a_network_with_holes_is_numbered_anew():
    net = fs.FlowNetwork()
    net.add_nodes([9, 1, 0, -1])
    net.add_arcs([0, 1, 2], [1, 2, 3], 5, [1, 2, 3])
    net.remove_nodes([0])
    problem = net.to_problem()
    assert (problem.tail.tolist(), problem.head.tolist(), problem.supply.tolist()) == ([0, 1], [1, 2], [1, 0, -1])
    net.solve(partial=True)
    assert same(net.to_problem(), problem)


def test_networkx_agrees_on_the_cost():
    problem = fs.FlowNetwork.from_edges(ROWS, supply=SUPPLY).to_problem()
    graph = problem.to_networkx("abc")
    assert list(graph) == ["a", "b", "c"]
    assert nx.network_simplex(graph)[0] == fs.min_cost_flow(**problem.arguments()).cost == 7
    graph = nx.DiGraph()
    graph.add_edge("s", "t", weight=2, capacity=np.inf)
    graph.add_edge("t", "u", price=3, capacity=5.0)
    graph.nodes["s"]["demand"] = -2
    read = fs.FlowProblem.from_networkx(graph)
    assert (read.capacity.tolist(), read.cost.tolist(), read.supply.tolist()) == ([fs.INF, 5], [2, 0], [2, 0, 0])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fs.FlowProblem.from_networkx(nx.Graph()), "G: a directed graph expected"),
        (lambda: fs.FlowProblem.from_networkx(5), "G: a directed graph expected, got 5"),
        (lambda: fs.FlowProblem.from_networkx(nx.DiGraph([(0, 1, {"weight": 0.5})])), r"weight\[0\]: 0.5"),
        (lambda: fs.FlowProblem([0], [1], [5], [1], [1, -1], lower=[1]).to_networkx(), r"lower\[0\]: 1, but NetworkX"),
        (
            lambda: fs.FlowProblem([0], [1], [5], [1], [1, -1]).to_networkx("aa"),
            "names: 2 different ones expected, got 1",
        ),
        (lambda: fs.FlowProblem([0], [1], [5], [1], 3), "supply: a vector expected, one value for each node, got 3"),
        (lambda: fs.write_dimacs([1], io.StringIO()), "problem: a FlowProblem or FlowNetwork expected"),
    ],
)
def test_wrong_forms(call, words):
    with pytest.raises(fs.InputError, match=words):
        call()


def test_flows_have_the_names_of_their_nodes() -> None:
    edges = [("a", "b", 2, 1), ("a", "b", 9, 3), ("b", "c", 9, 1), ("a", "c", 1, 9)]
    net = fs.FlowNetwork.from_edges(edges, supply={"a": 4, "c": -4})
    assert net.named_flows() == {}
    net.solve()
    assert net.named_flows() == {("a", "b"): 4, ("b", "c"): 4}
    (extra,) = net.add_nodes([1])
    net.add_arcs([extra], [net.node_id("a")], [5], [0])
    net.remove_arcs([3])
    net.set_supply(net.node_id("c"), -5)
    net.solve()
    assert net.named_flows() == {("a", "b"): 5, ("b", "c"): 5, (extra, "a"): 1}
