"""Maximum flow against NetworkX, and the certificate of its cut."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import flowsched as fs


@pytest.mark.parametrize("seed", range(60))
def test_value_flow_and_cut(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(2, 14)), int(rng.integers(0, 60))
    tail, head = rng.integers(0, n, m), rng.integers(0, n, m)
    capacity = rng.integers(0, (2, 9, 2**40)[seed % 3], m)
    source, sink = (int(v) for v in rng.choice(n, 2, replace=False))
    found = fs.max_flow(tail, head, capacity, source, sink)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    for a, b, room in zip(tail.tolist(), head.tolist(), capacity.tolist(), strict=True):
        if a != b:
            graph.add_edge(a, b, capacity=room + (graph.edges[a, b]["capacity"] if graph.has_edge(a, b) else 0))
    assert found.value == nx.maximum_flow_value(graph, source, sink)
    assert ((found.flow >= 0) & (found.flow <= capacity)).all()
    size = max(source, sink, *tail.tolist(), *head.tolist()) + 1
    balance = np.bincount(tail, found.flow, size) - np.bincount(head, found.flow, size)
    expected = np.zeros(size)
    expected[source], expected[sink] = found.value, -found.value
    assert balance.tolist() == expected.tolist()
    assert found.cut[source] and not found.cut[sink]
    leaving = found.cut[tail] & ~found.cut[head]
    assert int(capacity[leaving].sum()) == found.value  # so neither can be better


def test_unlimited_arcs_are_a_path_or_no_matter() -> None:
    found = fs.max_flow([0, 1, 0], [1, 2, 2], [fs.INF, 5, 2**50], 0, 2)
    assert found.value == 5 + 2**50
    with pytest.raises(fs.UnboundedError, match="the unlimited arcs 1 2 lead from source to sink") as caught:
        fs.max_flow([0, 0, 1], [2, 1, 2], [1, fs.INF, fs.INF], 0, 2)
    assert caught.value.cycle.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0], [1], [1], 0, 0), "sink: another node than the source expected, got 0"),
        (([0], [1], [-1], 0, 1), r"capacity\[0\]"),
        (([0, -1], [1, 1], [1, 1], 0, 1), r"tail\[1\]"),
        (([0], [1, 2], [1], 0, 1), "head"),
        (([0], [1], [1], -1, 1), "source"),
        (([0], [1], [1], 0, 1.5), "sink"),
    ],
)
def test_bad_input(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(fs.InputError, match=message):
        fs.max_flow(*arguments)  # type: ignore[arg-type]
