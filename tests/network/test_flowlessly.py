"""The scheduling networks that Firmament wrote (Quincy's cost model), up to 29,403 nodes and 113,432 arcs."""

from __future__ import annotations

from pathlib import Path

import oracles
import pytest
from netmodel import ALGORITHMS

from flowsched.network import certify, min_cost_flow
from flowsched.network.dimacs import read_dimacs

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "flowlessly"
GRAPHS = [
    "small_graph.in",
    "small_graph_neg_costs.in",
    "graph_4m_2crs_6j.in",
    "graph_4m_2crs_8j.in",
    "graph_4m_2crs_10j.in",
    "graph_small_2m_1j_2t_2p.in",
    "graph_small_2m_2j_2t_2p.in",
    "graph_small_2m_4j_2t_2p.in",
    "graph_2m_1j_2t_2p.in",
    "graph_2m_2j_2t_2p.in",
    "graph_2m_4j_2t_2p.in",
    "graph_2m_1j_10t_10p.in",
    "graph_2m_2j_10t_10p.in",
    "graph_2m_4j_10t_10p.in",
    "graph_100m_4j_100t_10p.in.gz",
    "graph_100m_8j_100t_10p.in.gz",
    "graph_100m_16j_100t_10p.in.gz",
    "graph_1000m_2j_100t_10p.in.gz",
    "graph_1000m_32j_100t_10p.in.gz",
    "graph_1000m_64j_100t_10p.in.gz",
]
NETWORKX_ARCS = 9000  # its simplex takes minutes on the larger ones

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no Flowlessly graphs in {FOLDER}")


@pytest.mark.parametrize(
    "algorithm", [pytest.param(a, marks=() if a == "auto" else pytest.mark.long) for a in ALGORITHMS]
)
@pytest.mark.parametrize("name", GRAPHS)
def test_cost_equals_the_oracles(name, algorithm):
    problem = read_dimacs(FOLDER / name)
    result = min_cost_flow(**problem.arguments(), algorithm=algorithm)
    assert oracles.ortools(problem) == oracles.Answer(oracles.OPTIMAL, result.cost)
    oracles.check_optimal(problem, result.flow, result.cost, result.potential)
    certify(**problem.arguments(), result=result)


@pytest.mark.long
@pytest.mark.parametrize("name", GRAPHS)
def test_cost_equals_networkx(name):
    problem = read_dimacs(FOLDER / name)
    if len(problem.tail) > NETWORKX_ARCS:
        pytest.skip(f"{len(problem.tail)} arcs are too many for NetworkX")
    assert oracles.networkx(problem) == oracles.Answer(oracles.OPTIMAL, min_cost_flow(**problem.arguments()).cost)


def test_no_graph_is_left_out():
    graphs = {path.name for path in FOLDER.glob("*.in*") if _is_graph(path)}
    assert graphs == set(GRAPHS)


def _is_graph(path: Path) -> bool:
    """The other files of the folder are changes to a graph, or lists of such files."""
    return path.suffix == ".gz" or any(line.startswith("p ") for line in path.read_text().splitlines())
