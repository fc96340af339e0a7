"""The networks and the comparisons of ``python -m bench solver``: what they are, not how fast."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bench import load
from bench.rows import Outcome, Row
from bench.solver import (
    changes,
    cold,
    dense,
    fields,
    general,
    lemon,
    peers,
    plots,
    scaling,
    warm,
    warm_general,
)
from bench.solver.findings import Findings, Goal
from bench.solver.instances import LiveNetwork, Rounds, SchedFamily
from flowsched import cli
from flowsched.network import min_cost_flow
from flowsched.network.dimacs import write_dimacs
from flowsched.network.problem import FlowProblem

GENERAL = {
    "goto": general.goto(64, 4, 1),
    "grid": general.grid(6, 9, 1),
    "road": general.road(8, 9, 1, terminals=6),
    "sparse assignment": general.sparse_assignment(40, 4, 1),
    "dense assignment": general.dense_assignment(20, 1),
    "transport": general.transport(8, 6, 1),
    "sparse transport": general.transport(30, 20, 1, degree=4),
}


def solved(problem: FlowProblem) -> int:
    return min_cost_flow(problem.tail, problem.head, problem.capacity, problem.cost, problem.supply).cost


def test_the_family_is_the_one_that_is_defined() -> None:
    family = SchedFamily(200, slots=3, tasks=900, seed=2)
    problem = family.problem()
    racks, machines, jobs, tasks = 5, 200, family.jobs, 900
    assert len(problem.supply) == 1 + racks + machines + 1 + jobs + tasks
    assert len(problem.tail) == racks + 2 * machines + jobs + 9 * tasks
    assert problem.supply.sum() == 0
    assert (problem.supply == 1).sum() == tasks
    sink = int(np.argmin(problem.supply))
    assert (problem.supply[sink], sink) == (-tasks, racks + machines + 1)
    into_sink = problem.head == sink
    assert problem.capacity[into_sink].sum() == 3 * machines + tasks  # slots, and all may wait
    assert (problem.cost[into_sink] == 0).all()
    of_tasks = problem.tail > sink + jobs
    assert (problem.capacity[of_tasks] == 1).all()
    assert (np.bincount(problem.tail[of_tasks])[sink + jobs + 1 :] == 9).all()
    racks_of = family.tasks.machines[:, :2] // 40
    assert (family.tasks.racks == racks_of).all()
    chosen = np.sort(family.tasks.machines, axis=1)
    assert (chosen[:, 1:] != chosen[:, :-1]).all()
    assert (family.tasks.wait_cost >= 1500).all()
    assert (family.tasks.wait_cost < 2100).all()


@pytest.mark.parametrize("tasks", [100, 156, 160, 240])
def test_a_live_network_is_the_problem_after_each_round(tasks: int) -> None:
    rounds = Rounds(SchedFamily(40, tasks=tasks, job_size=5, seed=3), 7, 6)
    live = LiveNetwork(rounds.family, rounds.first, rounds.first_jobs)
    assert live.net.solve().cost == solved(rounds.family.problem(rounds.first))
    peer = peers.SchedWarm(rounds, 6)
    for number, change in enumerate(rounds.changes, start=1):
        live.apply(live.prepare(change))
        cost = live.net.solve().cost
        live.net.certify()
        assert cost == solved(rounds.family.problem(rounds.tasks_after(number)))
        assert cost == peer.step().cost


@pytest.mark.parametrize("name", GENERAL)
def test_general_networks_have_one_optimum(name: str) -> None:
    problem = GENERAL[name]
    costs = {peer: solve(problem).cost for peer, solve in peers.cold_peers().items()}
    assert len(costs) >= 2
    costs |= {"once": peers.flowsched_once(problem).cost, "network": peers.flowsched_network(problem).cost}
    if name != "transport":
        costs["NetworkX"] = peers.networkx(problem).cost
    assert len(set(costs.values())) == 1, costs


@pytest.mark.parametrize("name", ["goto", "grid", "transport"])
def test_paths_add_up_to_the_supplies(name: str) -> None:
    problem = GENERAL[name]
    flow = min_cost_flow(problem.tail, problem.head, problem.capacity, problem.cost, problem.supply).flow
    sums = np.zeros(len(problem.supply), np.int64)
    for source, sink, amount in general.unit_paths(problem, flow):
        assert amount > 0
        sums[source] += amount
        sums[sink] -= amount
    assert (sums == problem.supply).all()


def test_lower_bounds_are_sent_in_advance() -> None:
    problem = FlowProblem([0, 0, 1], [1, 2, 2], [4, 4, 4], [1, 5, 1], [4, 0, -4], lower=[0, 2, 0])
    assert solved(general.without_lower(problem)) + 5 * 2 == min_cost_flow(**problem.arguments()).cost


def test_warm_rows(findings: Findings) -> None:
    case = warm.WarmCase(40, 4, 156, 2, Goal(1e9, 1e9), shared=3, alone=2)
    warm.measure(findings, [case], seed=1, repeats=2)
    (best,) = findings.goals
    assert (best.setting, best.metric) == ("40 x 4, 156 tasks, k = 2", "round")
    assert best.note.endswith("MISSED")
    assert best.ratio == best.baseline / best.value
    others = [row.baseline for row in findings.details if row.metric == "round"]
    assert best.baseline <= min(others)
    assert {"mutate", "solve", "read", "p99 round", "mean round"} <= {row.metric for row in findings.details}
    assert findings.wrong == []


def test_other_rows(findings: Findings, tmp_path: Path) -> None:
    warm.growth(findings, [40, 80], seed=1, rounds=2, repeats=1, check=True)
    warm.spread(findings, 40, seed=1, rounds=4, repeats=1)
    warm.failures(findings, 40, 150, [2], seed=1, rounds=3)
    cold.sched(findings, [(40, 4, 160)], seed=1, repeats=2)
    cold.reduced(findings, 20, seed=1)
    warm_general.measure(findings, "grid", GENERAL["grid"], 1, rounds=3, repeats=1, goal=None)
    assert findings.wrong == []
    metrics = {row.metric for row in findings.goals}
    assert metrics >= {"growth of the round", "p99 over median", "build included", "solve only"}
    outcome = findings.outcome()
    assert outcome.rows == findings.goals + findings.details
    json.dumps(outcome.as_dict(), allow_nan=False)
    names = [path.name for path in plots.draw(outcome, tmp_path)]
    assert names == ["round_by_size.svg", "cold.svg"]
    assert (tmp_path / "cold.svg").read_text().startswith("<?xml")


def test_rows_of_cost_scaling(findings: Findings, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: lambda seed, name=name: GENERAL[name] for name in ("goto", "transport")}
    monkeypatch.setattr(general, "families", lambda quick: few)
    scaling.cold(findings, [(40, 4, 160)], seed=1, repeats=2, quick=True, data=None)
    scaling.incremental(findings, [(40, 4, 150)], seed=1, rounds=4)
    assert findings.wrong == []
    assert [row.metric for row in findings.goals] == [
        "worst ratio",
        "geometric mean of the ratios",
        *["ICS (solve only)"] * 2,
    ]
    best = [row for row in findings.details if row.metric == "build included" and row.note.startswith("best peer")]
    assert [row.setting for row in best] == [
        f"{name}, cost scaling, cold" for name in ("40 x 4, 160 tasks", "goto", "transport")
    ]
    assert all("phases" in row.note for row in best)


def test_the_random_queue_fills_slots_and_no_more() -> None:
    family = SchedFamily(30, slots=3, tasks=80, seed=4)
    queue = scaling.RandomQueue(family, seed=1)
    rng = np.random.default_rng(2)
    for size in (0, 5, 80, 20):
        queue.round(rng.choice(80, size, replace=False))
        used = np.bincount([machine for machine in queue.machine if machine >= 0], minlength=30)
        assert (used + queue.free == 3).all()
        assert sorted(queue.open) == np.flatnonzero(used < 3).tolist()
        assert len(queue.waiting) == 0 and sum(used) == 80
    crowd = scaling.RandomQueue(SchedFamily(30, slots=2, tasks=80, seed=4), seed=1)
    crowd.round(np.arange(40))
    assert len(crowd.waiting) == 20 and not crowd.open
    assert sorted(crowd.waiting) == [task for task in range(80) if crowd.machine[task] < 0]


def test_a_wrong_optimum_is_told(findings: Findings) -> None:
    findings.check("a network", 11, {"peer": peers.Measured(cost=12), "other": peers.Measured(cost=11)})
    assert findings.wrong == ["a network: peer finds 12, flowsched 11"]


def test_recorded_networks(tmp_path: Path) -> None:
    assert general.recorded(tmp_path) == {}
    problem = FlowProblem([0], [1], [5], [2], [3, -3], lower=[1])
    write_dimacs(problem, tmp_path / "graph_1000m_2j_100t_10p.in.gz")
    (found,) = general.recorded(tmp_path).items()
    assert found[0] == "flowlessly 1000m_2j"
    assert solved(found[1]) == 2 * 2


def test_recorded_changes(tmp_path: Path, findings: Findings) -> None:
    (tmp_path / "graph_4m_2crs_6j.in").write_text("p min 3 3\nn 1 2\nn 3 -2\na 1 2 1 2 1\na 2 3 0 2 1\na 1 3 0 2 5\n")
    (tmp_path / "graph_4m_2crs_6j_chg.in").write_text("x 2 3 0 1 1")
    (tmp_path / "graph_4m_2crs_6j_incremental.in").write_text("not read")
    changes.measure(findings, tmp_path)
    assert findings.wrong == []
    assert {row.setting for row in findings.details} == {"flowlessly, 1 change files"}


def test_an_absent_peer_is_said(monkeypatch: pytest.MonkeyPatch, findings: Findings) -> None:
    monkeypatch.setattr(lemon, "absent", lambda: "no C++ compiler")
    monkeypatch.setattr(peers, "installed", lambda: {"OR-tools": lambda problem: peers.Measured()})
    assert peers.absent() == {"pylmcf": "no package pylmcf", "LEMON": "no C++ compiler"}
    assert list(peers.cold_peers()) == ["OR-tools"]
    warm.measure(findings, [warm.WarmCase(40, 4, 80, 1, Goal(0, 0), 1, 1)], seed=1, repeats=1)
    assert "best peer: OR-tools" in findings.goals[0].note


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    solver = load("solver")
    row = Row("solver", "10 x 4, 20 tasks, k = 1", "round", 2e-6, 1e-3, 500.0, unit="s", note="best peer: OR-tools")
    monkeypatch.setattr(solver, "run", lambda **_: Outcome([row]))
    result = CliRunner().invoke(cli.application(), ["bench", "solver", "--plots", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "500" in result.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["round_by_change.svg"]


@pytest.mark.parametrize("make", [fields.tracking, fields.clusters, fields.fleet, fields.unwrapping])
def test_networks_of_other_fields_are_feasible(make) -> None:
    for seed in range(3):
        problem = make(np.random.default_rng(seed), 2_000)
        assert 500 < len(problem.tail) < 8_000
        assert (
            len(
                {min_cost_flow(**problem.arguments(), algorithm=way).cost for way in ("auto", "cost_scaling", "repair")}
            )
            == 1
        )


def test_rows_of_dense_matrices() -> None:
    findings = Findings(lambda text: None)
    dense.transports(findings, [12], 1, 1)
    dense.assignments(findings, [9], 1, 1)
    assert not findings.wrong
    assert {row.setting.split()[0] for row in findings.details} >= {"assignment"}
    shifted = dense.costs("squared, shifted", np.random.default_rng(0), 40, 30)
    assert shifted.shape == (40, 30) and shifted.min() >= 0 and len(np.unique(shifted)) > 1_000
