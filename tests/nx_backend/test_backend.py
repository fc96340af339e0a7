"""The NetworkX backend: reached through NetworkX's own functions, and compared with NetworkX's own code."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import _flowsched_nx
import flowsched as fs
from flowsched import nx_backend

nx = pytest.importorskip("networkx")

NAMES = sorted(_flowsched_nx.get_info()["functions"])
ANY_CAPACITY = st.one_of(st.integers(0, 6), st.sampled_from([math.inf, None, 3.0]))
ANY_COST = st.integers(-4, 9)

pytestmark = pytest.mark.skipif(
    "flowsched" not in nx.config.backends, reason="flowsched is not installed, so that NetworkX does not know it"
)


@pytest.fixture(scope="module", autouse=True)
def without_cache():
    """NetworkX warns of its cache whenever it uses it."""
    with nx.config(cache_converted_graphs=False):
        yield


def ask(name, *args, backend="flowsched", **kwargs):
    """Call a function of NetworkX; return its result, or the type of its error."""
    try:
        return getattr(nx, name)(*args, backend=backend, **kwargs)
    except nx.NetworkXException as error:
        return type(error)


# -- how NetworkX finds it ---------------------------------------------------------------------------------------


def test_import_of_networkx_loads_nothing_of_it():
    program = (
        "import sys, networkx as nx; assert 'flowsched' in nx.config.backends;"
        "print([m for m in sys.modules if m.partition('.')[0] in ('flowsched', 'numpy')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_functions_are_those_that_are_announced():
    assert set(NAMES) <= set(nx_backend.__all__)
    assert {name for name in nx_backend.__all__ if hasattr(nx, name)} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_signatures_are_those_of_networkx(name):
    ours = inspect.signature(getattr(nx_backend, name)).parameters.values()
    theirs = inspect.signature(getattr(nx, name).orig_func).parameters.values()
    assert [(p.name, p.kind) for p in ours] == [(p.name, p.kind) for p in theirs]
    for own, their in zip(ours, theirs, strict=True):
        assert own.default == their.default or own.name in ("heap", "flow_func")


def test_a_flow_func_of_the_caller_is_his():
    G = nx.DiGraph()
    G.add_edge("s", "t", capacity=2)
    func = nx.algorithms.flow.dinitz
    assert nx_backend.can_run("maximum_flow", (G, "s", "t", "capacity", func), {}) is not True
    assert nx_backend.can_run("minimum_cut", (G, "s", "t"), {"flow_func": func}) is not True
    assert nx_backend.can_run("maximum_flow", (G, "s", "t"), {}) is True
    with pytest.raises(NotImplementedError):
        nx.maximum_flow_value(G, "s", "t", flow_func=func, backend="flowsched")
    with nx.config(fallback_to_nx=True), nx.config.backend_priority(algos=["flowsched"]):
        assert nx.maximum_flow_value(G, "s", "t", flow_func=func) == 2


# -- against NetworkX itself -------------------------------------------------------------------------------------


@st.composite
def graphs(draw, kinds=(nx.DiGraph, nx.MultiDiGraph), costs=ANY_COST):
    """A small graph, half of the time with demands that some flow meets; attributes are missing now and then."""
    G = draw(st.sampled_from(kinds))()
    n = draw(st.integers(1, 6))
    names = [f"n{i}" for i in range(n)]
    demand = dict.fromkeys(names, 0)
    G.add_nodes_from(names)
    for _ in range(draw(st.integers(0, 14))):
        u, v = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        data = {"weight": draw(costs), "capacity": draw(ANY_CAPACITY)}
        data = {key: value for key, value in data.items() if value is not None}
        if not G.is_multigraph() and G.has_edge(u, v):
            continue
        G.add_edge(u, v, **data)
        flow = draw(st.integers(0, int(min(data.get("capacity", 3), 3))))
        demand[u] -= flow
        demand[v] += flow
    if draw(st.integers(0, 3)) == 0:
        demand[draw(st.sampled_from(names))] += draw(st.integers(-1, 1))
    nx.set_node_attributes(G, {node: value for node, value in demand.items() if value}, "demand")
    return G


def check_flow(G, flow, demand):
    """Each edge is in the flow, within its bounds, and each node gets its demand."""
    excess = dict.fromkeys(G, 0)
    edges = G.edges(keys=True, data=True) if G.is_multigraph() else G.edges(data=True)
    count = 0
    for u, v, *key, data in edges:
        units = flow[u][v][key[0]] if key else flow[u][v]
        assert type(units) is int
        assert 0 <= units <= data.get("capacity", math.inf)
        excess[u] -= units
        excess[v] += units
        count += 1
    assert excess == {node: demand.get(node, 0) for node in G}
    listed = [units for heads in flow.values() for units in heads.values()]
    assert count == sum(len(units) if isinstance(units, dict) else 1 for units in listed)


@given(graphs())
def test_costs_are_those_of_network_simplex(G):
    expected = ask("network_simplex", G, backend="networkx")
    found = ask("network_simplex", G)
    if isinstance(expected, type):
        assert found is expected
        assert ask("min_cost_flow", G) is expected
        assert ask("min_cost_flow_cost", G) is expected
        return
    cost, flow = found
    assert cost == expected[0]
    check_flow(G, flow, nx.get_node_attributes(G, "demand"))
    if not G.is_multigraph():
        assert nx.cost_of_flow(G, flow, backend="networkx") == cost
    assert nx.cost_of_flow(G, flow, backend="flowsched") == cost
    assert ask("min_cost_flow_cost", G) == cost
    assert ask("min_cost_flow", G) == flow
    assert list(flow) == list(G)


@given(graphs())
def test_costs_are_those_of_capacity_scaling(G):
    found = ask("capacity_scaling", G)
    if any(data.get("capacity", math.inf) and u != v for u, v, data in G.edges(data=True)):
        expected = ask("capacity_scaling", G, backend="networkx")
    else:  # NetworkX overlooks demands where no edge has room
        expected = ask("network_simplex", G, backend="networkx")
    if isinstance(expected, type):
        assert found is expected
        return
    assert found[0] == expected[0]
    check_flow(G, found[1], nx.get_node_attributes(G, "demand"))


@given(graphs([nx.DiGraph, nx.Graph]), st.randoms(use_true_random=False))
def test_maximum_flows_and_cuts(G, random):
    s, t = random.choice(list(G)), random.choice(list(G))
    expected = ask("maximum_flow_value", G, s, t, backend="networkx")
    assert ask("maximum_flow_value", G, s, t) == expected
    assert ask("minimum_cut_value", G, s, t) == expected
    if isinstance(expected, type):
        assert ask("maximum_flow", G, s, t) is expected
        assert ask("minimum_cut", G, s, t) is expected
        return
    value, flow = ask("maximum_flow", G, s, t)
    assert value == expected
    if G.is_directed():
        check_flow(G, flow, {s: -value, t: value})
    else:
        assert {(u, v) for u in flow for v in flow[u]} == {(u, v) for u in G for v in G[u]}
        assert all(flow[u][v] <= data.get("capacity", math.inf) for u in G for v, data in G[u].items())
        for node in G:  # what a self-loop carries cancels out
            out = sum(flow[node].values()) - sum(flow[other].get(node, 0) for other in G)
            assert out == {s: value, t: -value}.get(node, 0)
    cut, (near, far) = ask("minimum_cut", G, s, t)
    assert (s in near, t in far, near | far, near & far) == (True, True, set(G), set())
    assert cut == value == sum(G[u][v].get("capacity", math.inf) for u in near for v in far if G.has_edge(u, v))


@given(graphs([nx.DiGraph], costs=st.integers(0, 9)), st.randoms(use_true_random=False))
def test_max_flow_min_cost(G, random):
    for node in G:
        G.nodes[node].clear()
    s, t = random.choice(list(G)), random.choice(list(G))
    expected = ask("max_flow_min_cost", G, s, t, backend="networkx")
    found = ask("max_flow_min_cost", G, s, t)
    if isinstance(expected, type):
        assert found is expected
        return
    assert nx.cost_of_flow(G, found) == nx.cost_of_flow(G, expected)
    value = nx.maximum_flow_value(G, s, t)
    check_flow(G, found, {s: -value, t: value})


@given(graphs([nx.DiGraph], costs=st.integers(0, 9)), st.randoms(use_true_random=False))
def test_max_flow_min_cost_counts_the_demands_of_nodes_as_networkx_does(G, random):
    s, t = random.choice(list(G)), random.choice(list(G))
    if random.random() < 0.5:  # so that they sum to 0 without s and t
        a, b = random.choice(list(G)), random.choice(list(G))
        for node in G:
            G.nodes[node].clear()
        if a != b:
            G.add_node(a, demand=1)
            G.add_node(b, demand=-1)
    expected = ask("max_flow_min_cost", G, s, t, backend="networkx")
    found = ask("max_flow_min_cost", G, s, t)
    if isinstance(expected, type):
        assert found is expected
    else:
        assert nx.cost_of_flow(G, found) == nx.cost_of_flow(G, expected)


def test_demands_count_in_a_snapshot_that_was_made_for_another_function():
    G = nx.DiGraph()
    G.add_node("c", demand=3)
    G.add_edge("a", "b", capacity=2, weight=1)
    with nx.config(cache_converted_graphs=True, warnings_to_ignore={"cache"}):
        G.add_edge("b", "c", capacity=5, weight=1)
        assert nx.maximum_flow_value(G, "a", "b", backend="flowsched") == 2
        nx.cost_of_flow(G, {"a": {"b": 1}, "b": {"c": 0}, "c": {}}, backend="flowsched")
        for backend in ("networkx", "flowsched"):
            with pytest.raises(nx.NetworkXUnfeasible):
                nx.max_flow_min_cost(G, "a", "b", backend=backend)


def test_demands_of_nodes_without_edges_cannot_be_met():
    """NetworkX's capacity_scaling returns 0 here, and its network_simplex refuses."""
    G = nx.DiGraph()
    G.add_node("a", demand=-1)
    G.add_node("b", demand=1)
    assert ask("capacity_scaling", G) is ask("network_simplex", G) is nx.NetworkXUnfeasible
    assert ask("network_simplex", G, backend="networkx") is nx.NetworkXUnfeasible


def test_a_graph_altered_in_place_is_answered_anew_once_its_snapshots_are_dropped():
    G = nx.DiGraph()
    G.add_node("a", demand=-1)
    G.add_node("b", demand=1)
    G.add_edge("a", "b", weight=3)
    with nx.config(cache_converted_graphs=True, warnings_to_ignore={"cache"}):
        assert nx.min_cost_flow_cost(G, backend="flowsched") == 3
        G["a"]["b"]["weight"] = 5
        G.__networkx_cache__.clear()
        assert nx.min_cost_flow_cost(G, backend="flowsched") == 5
        G.add_edge("a", "b", weight=7)  # which drops them itself
        assert nx.min_cost_flow_cost(G, backend="flowsched") == 7


# -- multigraphs -------------------------------------------------------------------------------------------------


def test_parallel_edges_carry_flow_by_their_keys():
    G = nx.MultiDiGraph()
    G.add_node("a", demand=-5)
    G.add_node("b", demand=5)
    G.add_edge("a", "b", "cheap", capacity=2, weight=1)
    G.add_edge("a", "b", "dear", weight=7)
    G.add_edge("a", "b", capacity=1, weight=3)
    assert nx.network_simplex(G, backend="flowsched") == (
        2 * 1 + 2 * 7 + 1 * 3,
        {"a": {"b": {"cheap": 2, "dear": 2, 2: 1}}, "b": {}},
    )
    flow = nx.max_flow_min_cost(G.edge_subgraph([("a", "b", "cheap"), ("a", "b", 2)]), "a", "b", backend="flowsched")
    assert flow == {"a": {"b": {"cheap": 2, 2: 1}}, "b": {}}


def test_maximum_flow_refuses_multigraphs_as_networkx_does():
    G = nx.MultiDiGraph([("a", "b")])
    for backend in ("networkx", "flowsched"):
        with pytest.raises(nx.NetworkXError, match="MultiGraph and MultiDiGraph not supported"):
            nx.maximum_flow(G, "a", "b", backend=backend)


# -- numbers -----------------------------------------------------------------------------------------------------


def line(capacity=9, weight=2, demand=3):
    G = nx.DiGraph()
    G.add_node("a", demand=-demand)
    G.add_node("b", demand=demand)
    G.add_edge("a", "b", capacity=capacity, weight=weight)
    return G


@pytest.mark.parametrize("number", [3, 3.0, np.int32(3), np.float64(3), Fraction(3), True + 2])
def test_whole_numbers_of_any_kind_are_exact(number):
    for G, cost in ((line(weight=number), 9), (line(demand=number), 6), (line(capacity=number), 6)):
        found, flow = nx.network_simplex(G, backend="flowsched")
        assert (found, flow) == (cost, {"a": {"b": 3}, "b": {}})
        assert type(found) is type(flow["a"]["b"]) is int


@pytest.mark.parametrize("attribute", ["capacity", "weight", "demand"])
@pytest.mark.parametrize("number", [2.5, Fraction(5, 2), math.nan, "3"])
def test_other_numbers_are_an_error_that_names_place_and_helper(attribute, number):
    G = line(**{attribute: 3})
    data = G.nodes["b"] if attribute == "demand" else G["a"]["b"]
    data[attribute] = number
    with pytest.raises(nx.NetworkXError, match=f"has {attribute} ") as caught:
        nx.min_cost_flow(G, backend="flowsched")
    assert ("'b'" if attribute == "demand" else "('a', 'b')") in str(caught.value)
    assert "scale_weights" in str(caught.value) or "not a finite number" in str(caught.value)


def test_networkx_computes_with_fractions_where_it_may_fall_back():
    G = line(weight=0.5)
    with nx.config(fallback_to_nx=True), nx.config.backend_priority(algos=["flowsched"]):
        assert nx.min_cost_flow_cost(G) == 1.5
    with nx.config.backend_priority(algos=["flowsched"]):
        assert nx.min_cost_flow_cost(line()) == 6


def test_scaled_weights():
    G = nx.MultiDiGraph()
    G.add_node("a", demand=-0.5)
    G.add_node("b", demand=0.5)
    G.add_edge("a", "b", capacity=0.25, weight=0.1)
    G.add_edge("a", "b", weight=0.29)
    scaled = nx_backend.scale_weights(G, 100, flow_factor=4)
    assert sorted(data["weight"] for *_, data in scaled.edges(data=True)) == [10, 29]
    assert nx.min_cost_flow_cost(scaled, backend="flowsched") / 400 == 0.25 * 0.1 + 0.25 * 0.29
    assert G.nodes["a"]["demand"] == -0.5
    with pytest.raises(nx.NetworkXError, match=r"edge \('a', 'b', 1\) has weight 0.29: 10 times that is no integer"):
        nx_backend.scale_weights(G, 10, flow_factor=4)
    rounded = nx_backend.scale_weights(G, 10, flow_factor=4, rounding=True)
    assert rounded["a"]["b"][1]["weight"] == 3
    assert "capacity" not in rounded["a"]["b"][1]


def test_numbers_beyond_64_bits_are_declined():
    with pytest.raises(nx.NetworkXError, match="too large for exact 64-bit arithmetic"):
        nx.min_cost_flow(line(weight=2**62), backend="flowsched")
    with pytest.raises(nx.NetworkXError, match=r"must stay below 2\*\*62"):
        nx.min_cost_flow(line(capacity=2**62), backend="flowsched")
    assert nx.min_cost_flow_cost(line(weight=2**40, demand=2**30, capacity=2**61), backend="flowsched") == 2**70


# -- errors ------------------------------------------------------------------------------------------------------


def _undirected():
    return nx.Graph(line())


def _changed(edge=(), node=(), **graph):
    G = line(**graph)
    G["a"]["b"].update(edge)
    G.nodes["b"].update(node)
    return G


@pytest.mark.parametrize("name", ["network_simplex", "min_cost_flow", "min_cost_flow_cost", "capacity_scaling"])
@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(nx.DiGraph(), id="no nodes"),
        pytest.param(_undirected(), id="undirected"),
        pytest.param(nx.MultiGraph(line()), id="undirected multigraph"),
        pytest.param(_changed(node={"demand": 4}), id="unbalanced"),
        pytest.param(_changed(node={"demand": math.inf}), id="infinite demand"),
        pytest.param(_changed(edge={"capacity": 2}), id="no room"),
        pytest.param(
            nx.DiGraph([("a", "b", {"weight": -2}), ("b", "a", {"weight": 1})]), id="negative cycle without limit"
        ),
        pytest.param(nx.DiGraph([("a", "a", {"weight": -2})]), id="negative self-loop without limit"),
    ],
)
def test_errors_are_those_of_networkx(name, graph):
    try:
        expected = getattr(nx, name)(graph, backend="networkx")
    except nx.NetworkXException as error:
        with pytest.raises(type(error)) as caught:
            getattr(nx, name)(graph, backend="flowsched")
        assert type(caught.value) is type(error)
        assert str(caught.value) == str(error)
    else:
        assert getattr(nx, name)(graph, backend="flowsched") == expected


@pytest.mark.parametrize("name", ["network_simplex", "min_cost_flow", "min_cost_flow_cost"])
@pytest.mark.parametrize(
    "edge", [{"weight": -math.inf}, {"capacity": -1}], ids=["infinite weight", "negative capacity"]
)
def test_errors_that_capacity_scaling_overlooks(name, edge):
    G = _changed(edge=edge)
    expected = ask(name, G, backend="networkx")
    assert expected in (nx.NetworkXError, nx.NetworkXUnfeasible)
    assert ask(name, G) is expected
    assert isinstance(ask("capacity_scaling", G), type)  # NetworkX answers with a flow of nothing, or compares with NaN


@pytest.mark.parametrize("name", ["maximum_flow", "maximum_flow_value", "minimum_cut", "minimum_cut_value"])
@pytest.mark.parametrize("ends", [("a", "x"), ("x", "b"), ("a", "a"), ("a", ["b"]), ("b", "a")])
def test_errors_of_maximum_flow(name, ends):
    assert ask(name, line(), *ends) == ask(name, line(), *ends, backend="networkx")


def test_infinite_path_has_no_maximum():
    G = nx.DiGraph([("a", "b"), ("b", "c")])
    assert ask("maximum_flow", G, "a", "c") is ask("maximum_flow", G, "a", "c", backend="networkx")
    assert ask("max_flow_min_cost", G, "a", "c") is nx.NetworkXUnbounded


# -- graphs of the backend ---------------------------------------------------------------------------------------


def test_a_graph_can_be_converted_once_and_asked_often():
    G = line()
    G.graph["name"] = "line"
    taken = nx_backend.convert_from_nx(G, preserve_edge_attrs=True, preserve_node_attrs=True, preserve_graph_attrs=True)
    assert nx.min_cost_flow_cost(taken) == 6
    assert nx.maximum_flow_value(taken, "a", "b") == 9
    back = nx_backend.convert_to_nx(taken)
    assert nx.utils.graphs_equal(back, G)
    assert type(back) is nx.DiGraph
    many = nx.MultiGraph([("a", "b", {"x": 1}), ("a", "b", {}), ("c", "c", {})])
    assert nx.utils.graphs_equal(
        nx_backend.convert_to_nx(nx_backend.convert_from_nx(many, preserve_edge_attrs=True)), many
    )


def test_a_changed_graph_is_converted_anew():
    with nx.config(cache_converted_graphs=True, warnings_to_ignore={"cache"}):
        G = line()
        assert nx.min_cost_flow_cost(G, backend="flowsched") == 6
        assert nx.min_cost_flow_cost(G, backend="flowsched") == 6
        G.add_edge("a", "b", weight=1)
        assert nx.min_cost_flow_cost(G, backend="flowsched") == 3


def test_a_large_network_equals_the_solver():
    rng = np.random.default_rng(5)
    n, m = 300, 2000
    tail, head = rng.integers(0, n, (2, m))
    capacity, cost = rng.integers(1, 50, m), rng.integers(0, 100, m)
    flow = rng.integers(0, capacity + 1)
    supply = np.bincount(tail, flow, n).astype(int) - np.bincount(head, flow, n).astype(int)
    G = nx.MultiDiGraph()
    G.add_nodes_from((i, {"demand": -s}) for i, s in enumerate(supply.tolist()))
    rows = zip(tail.tolist(), head.tolist(), capacity.tolist(), cost.tolist(), strict=True)
    G.add_edges_from((u, v, {"capacity": c, "weight": w}) for u, v, c, w in rows)
    expected = fs.min_cost_flow(tail, head, capacity, cost, supply).cost
    assert nx.min_cost_flow_cost(G, backend="flowsched") == expected
    assert nx.capacity_scaling(G, backend="flowsched")[0] == expected


def test_an_unfeasible_graph_tells_amount_nodes_and_edges():
    G = nx.DiGraph()
    G.add_node("mill", demand=-5)
    G.add_node("shop", demand=5)
    G.add_edge("mill", "shop", capacity=3, weight=1)
    with pytest.raises(nx.NetworkXUnfeasible) as caught:
        nx_backend.min_cost_flow(
            nx_backend.convert_from_nx(G, node_attrs={}, edge_attrs={"capacity": None, "weight": None})
        )
    (note,) = caught.value.__notes__
    assert note == "2 units are missing: they cannot leave the 1 nodes ['mill'], over the 1 edges [('mill', 'shop')]"
    assert caught.value.__cause__.shortfall == 2
