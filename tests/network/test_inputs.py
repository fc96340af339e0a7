"""What arguments may be: scalars, masks, infinities, whole floats; and what is said of the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import flowsched as fs

ROOT = Path(__file__).resolve().parents[2]


def net_of_three():
    net = fs.FlowNetwork()
    a, b, c = net.add_nodes([4, 0, -4])
    net.add_arcs([a, a, b], [b, c, c], [4, 2, 3], [1, 5, 1])
    net.solve()
    return net


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [
        (np.inf, [fs.INF] * 3),
        ([4, np.inf, 3.0], [4, fs.INF, 3]),
        (np.float32("inf"), [fs.INF] * 3),
        ((4, 2, np.int8(3)), [4, 2, 3]),
        (7.0, [7] * 3),
        (True + 6, [7] * 3),
    ],
    ids=str,
)
def test_capacities(capacity, expected):
    net = net_of_three()
    net.set_capacity(net.arcs(), capacity)
    assert net.capacity().tolist() == expected
    problem = fs.FlowProblem([0, 0, 1], [1, 2, 2], capacity, 1, [4, 0, -4])
    assert problem.capacity.tolist() == expected
    assert fs.min_cost_flow([0, 0, 1], [1, 2, 2], capacity, [1, 5, 1], [4, 0, -4]).cost == net.solve().cost


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"capacity": [1, 0.5, 1]}, r"capacity\[1\]: 0.5 is not an integer; scale fractions first \(flowsched.scale_costs\)"),
        ({"capacity": [1, 1, np.nan]}, r"capacity\[2\]: nan is not an integer$"),
        ({"capacity": -np.inf}, r"capacity\[0\]: -inf is not an integer$"),
        ({"cost": [1, np.inf, 1]}, r"cost\[1\]: inf is not an integer; a capacity may be infinite, nothing else"),
        ({"supply": [np.inf, 0, 0]}, r"supply\[0\]: inf is not an integer; a capacity may be infinite"),
        ({"supply": 4}, "supply: a vector expected, one value for each node, got 4"),
        ({"tail": ["a", "a", "b"]}, r"tail\[0\]: an integer expected, got 'a'; .*FlowNetwork.from_edges"),
        ({"tail": np.array(["a", 0, "b"], object)}, r"tail\[0\]: an integer expected, got 'a'; .*FlowNetwork.from_edges"),
        ({"cost": ["x", 1, 1]}, r"cost\[0\]: an integer expected, got 'x'$"),
        ({"cost": [1, None, 1]}, r"cost\[1\]: an integer expected, got None"),
        ({"cost": [1, 2]}, "cost: 3 values expected, got 2"),
    ],
)  # fmt: skip
def test_what_is_refused(arguments, words):
    given = {"tail": [0, 0, 1], "head": [1, 2, 2], "capacity": 9, "cost": [1, 5, 1], "supply": [4, 0, -4]} | arguments
    with pytest.raises(fs.InputError, match=words):
        fs.min_cost_flow(**given)


def test_scalars_stand_for_all():
    net = fs.FlowNetwork()
    nodes = net.add_nodes(count=4)
    assert net.add_nodes(2, count=1).tolist() == [4]
    arcs = net.add_arcs(nodes[0], nodes[1:], np.inf, [3, 1, 2])
    assert (net.tail(arcs).tolist(), net.head(arcs).tolist()) == ([0, 0, 0], [1, 2, 3])
    assert net.add_arcs(1, 2, 5, 0).tolist() == [3]
    assert net.add_arcs(0, 1, [1, 2, 3], 7).tolist() == [4, 5, 6]  # parallel
    net.set_supply(4, 0)
    net.set_supply(0, 3)
    net.set_supply(nodes[1:], -1)
    assert net.solve().cost == 3 + 1 + 2
    net.set_cost(3, 9)
    assert (net.cost(3).tolist(), net.flow(np.int64(1)).tolist()) == ([9], [1])
    net.remove_arcs(6)
    net.remove_nodes(4)
    assert (net.num_nodes, net.num_arcs) == (4, 6)
    assert fs.min_cost_flow(0, 1, 5, 2, [3, -3]).cost == 6
    assert fs.min_cost_flow(0, 1, [2, 5], 2, [3, -3]).flow.sum() == 3
    with pytest.raises(fs.InputError, match="supply: 1 values expected, got 2"):
        net.set_supply(0, [1, 2])


def test_masks():
    net = net_of_three()
    used = net.flow() > 0
    assert net.flow(used).tolist() == net.flow()[used].tolist()
    net.set_cost(used.tolist(), 2)
    assert net.cost().tolist() == np.where(used, 2, [1, 5, 1]).tolist()
    net.remove_arcs([True, False, False])
    assert net.arcs().tolist() == [1, 2]
    assert net.cost([False, True]).tolist() == [2]  # in the order of arcs()
    assert net.supply(np.array([True, False, True])).tolist() == [4, -4]
    for call, words in (
        (lambda: net.flow([True, False, False]), r"arcs: a mask of 2 values expected, one for each of arcs\(\), got 3"),
        (lambda: net.remove_nodes([True]), "nodes: a mask of 3 values expected"),
        (lambda: net.flow([True, 1]), "arcs: ids or a mask expected, got both"),
        (lambda: net.add_arcs([True], [False], 1, 1), "tail: integers expected, got bool"),
    ):
        with pytest.raises(fs.InputError, match=words):
            call()
    assert (net.num_nodes, net.num_arcs) == (3, 2)


def test_a_cut_is_a_mask_of_nodes():
    net = net_of_three()
    net.set_capacity([1, 2], 1)
    with pytest.raises(fs.InfeasibleError) as caught:
        net.solve()
    assert net.supply(caught.value.cut).sum() - net.capacity(caught.value.arcs).sum() == caught.value.shortfall == 2


USER = """
import flowsched as fs
import numpy as np
net = fs.FlowNetwork()
n = net.add_nodes([1, 1, -2])
a = net.add_arcs([0], [2], 3, 4)
net.add_arcs(0, n, np.inf, 1.0)
net.solve(algorithm="network_simplx")
net.solve(algorithm="network_simplex", partial=True).unshipped.sum()
fs.min_cost_flow([0], [1], 1, 1, [1, -1], time_limit="3")
problem = fs.FlowProblem([0], [1], 1, 1, [1, -1])
fs.min_cost_flow(**problem.arguments(), partial=True)
solver = fs.SimpleMinCostFlow()
solver.add_arc_with_capacity_and_unit_cost(0, np.int64(1), 5, "x")
solver.flow(0) + solver.optimal_cost()
low, high = net.cost_range(a)
net.copy(cost=(a, 3)).solve().cost + 1
fs.FlowNetwork.from_edges([("a", "b")], supply={"a": 1}).names["a"] + 1
"""


@pytest.mark.long
def test_types_of_users(tmp_path):
    """A misspelt algorithm, a text as a time limit and a text as a cost are errors, and nothing else is."""
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(USER)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache"), "user.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, env={"MYPYPATH": str(ROOT / "src"), "PATH": ""}, check=False,
    )  # fmt: skip
    wrong = [
        int(line.split(":")[1])
        for line in done.stdout.splitlines()
        if line.startswith("user.py") and " error: " in line
    ]
    assert wrong == [8, 10, 14], done.stdout + done.stderr
