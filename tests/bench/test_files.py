"""``python -m bench solver FILE``: the rows of the user's own networks, and how their faults are told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bench.rows import Row
from bench.solver import files, general, peers
from bench.solver.findings import Findings
from flowsched import cli
from flowsched.network import min_cost_flow
from flowsched.network.dimacs import write_dimacs
from flowsched.network.problem import FlowProblem

LOWER = FlowProblem([0, 0, 1], [1, 2, 2], [4, 4, 4], [1, 5, 1], [4, 0, -4], lower=[0, 2, 0])
INFEASIBLE = FlowProblem([0], [1], [2], [3], [3, -3])
UNBALANCED = FlowProblem([0], [1], [9], [3], [3, -4])


def written(folder: Path, name: str, problem: FlowProblem) -> Path:
    write_dimacs(problem, folder / name)
    return folder / name


def answers(findings: Findings) -> dict[str, object]:
    return {row.setting: row.value for row in findings.details if row.metric == "answer"}


def test_every_solver_answers_each_file(tmp_path: Path, findings: Findings) -> None:
    grid = general.grid(6, 9, 1)
    paths = [
        written(tmp_path, "grid.min", grid),
        written(tmp_path, "grid.min.gz", grid),
        written(tmp_path, "lower.min", LOWER),
        written(tmp_path, "infeasible.min", INFEASIBLE),
    ]
    files.measure(findings, paths, repeats=2)
    assert (findings.wrong, findings.failed) == ([], [])
    cost = min_cost_flow(grid.tail, grid.head, grid.capacity, grid.cost, grid.supply).cost
    assert list(answers(findings).values()) == [cost, cost, min_cost_flow(**LOWER.arguments()).cost, "infeasible"]
    timed = [row for row in findings.details if row.metric == "build included"]
    assert len(timed) == 4 * len(peers.cold_peers()), "every peer answers, an infeasible file too"
    best = [row for row in timed if row.note.startswith("best peer")]
    ratios = [row.ratio or 0 for row in best]
    worst, mean = findings.details[-2:]
    assert (mean.setting, mean.value) == ("4 files", pytest.approx(float(np.exp(np.mean(np.log(ratios))))))
    assert (worst.value, worst.note) == (min(ratios), best[int(np.argmin(ratios))].setting)


def test_a_file_that_cannot_be_read_is_named_with_its_line_and_the_others_go_on(
    tmp_path: Path, findings: Findings
) -> None:
    bad = tmp_path / "bad.min"
    bad.write_text("p min 2 1\nn 1 1\nn 2 -1\na 1 9 0 1 1\n")
    files.measure(findings, [bad, tmp_path / "none.min", written(tmp_path, "lower.min", LOWER)], repeats=1)
    assert findings.failed == [
        f"{bad}: line 4: head 9 is not one of the nodes 1 to 2",
        f"{tmp_path / 'none.min'}: No such file or directory",
    ]
    assert len(answers(findings)) == 1


def test_supplies_that_do_not_add_up_are_not_shown_to_peers(tmp_path: Path, findings: Findings) -> None:
    """LEMON and pylmcf let a demand go unmet there."""
    files.measure(findings, [written(tmp_path, "unbalanced.min", UNBALANCED)], repeats=1)
    assert list(answers(findings).values()) == ["infeasible"]
    assert "do not add up" in findings.notes[0]
    assert not findings.wrong and all(row.baseline is None for row in findings.details)


def test_another_answer_of_a_peer_is_wrong_and_a_fault_of_one_is_a_note(
    tmp_path: Path, findings: Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lies(problem: FlowProblem) -> peers.Measured:
        return peers.Measured(cost=1, seconds={"solve": 1.0})

    def gives_up(problem: FlowProblem) -> peers.Measured:
        raise RuntimeError("BAD_COST_RANGE")

    def denies(problem: FlowProblem) -> peers.Measured:
        raise peers.Infeasible("no")

    monkeypatch.setattr(peers, "cold_peers", lambda: {"liar": lies, "quitter": gives_up, "denier": denies})
    path = written(tmp_path, "lower.min", LOWER)
    files.measure(findings, [path], repeats=2)
    ours = min_cost_flow(**LOWER.arguments()).cost
    assert findings.wrong == [
        f"{path}: liar finds {1 + 2 * 5}, flowsched {ours}, which is certified",
        f"{path}: denier finds infeasible, flowsched {ours}, which is certified",
    ]
    assert findings.notes == [f"{path}: quitter gives no answer: BAD_COST_RANGE"]
    assert not any("quitter" in row.note for row in findings.details)


def test_without_peers_there_is_no_ratio(tmp_path: Path, findings: Findings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "cold_peers", dict)
    files.measure(findings, [written(tmp_path, "lower.min", LOWER)], repeats=1)
    assert [row.metric for row in findings.details] == ["answer", "build included"]


def test_a_slow_peer_gets_one_turn(tmp_path: Path, findings: Findings, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []

    def peer(name: str, seconds: float) -> peers.Solve:
        def solve(problem: FlowProblem) -> peers.Measured:
            turns.append(name)
            return peers.Measured(cost=4, seconds={"solve": seconds})

        return solve

    monkeypatch.setattr(peers, "cold_peers", lambda: {"slow": peer("slow", 1e3), "fast": peer("fast", 1e-9)})
    files.measure(findings, [written(tmp_path, "lower.min", LOWER)], repeats=3)
    assert (turns.count("slow"), turns.count("fast")) == (1, 3)


def test_the_command_takes_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "good.min", LOWER)
    run = ["bench", "solver", "--repeats", "1", "good.min"]
    result = CliRunner().invoke(cli.application(), run)
    assert (result.exit_code, "good.min" in result.stdout) == (0, True), result.output
    Path("bad.min").write_text("p min 1\n")
    result = CliRunner().invoke(cli.application(), [*run, "bad.min", "--json", "rows.json", "--plots", "plots"])
    assert (result.exit_code, "good.min" in result.stdout) == (2, True)
    assert "FAILED: bad.min: line 1:" in result.stderr
    told = json.loads(Path("rows.json").read_text())
    assert (told["files"], told["complete"], len(told["failed"])) == (["good.min", "bad.min"], True, 1)
    assert [path.name for path in Path("plots").iterdir()] == ["cold.svg"]


def test_rows_tell_which_direction_is_better() -> None:
    assert Row("e", "s", "m", 2.0, unit="s").direction == "less"
    assert Row("e", "s", "m", 2.0, 4.0, 2.0).direction == "less"
    assert Row("e", "s", "m", 2.0, 4.0, 0.5).direction == "more"
    assert Row("e", "s", "m", 2.0, better="more").direction == "more"
    assert Row("e", "s", "m", "words", 4.0, 2.0).direction == "" == Row("e", "s", "m", 3.0).direction
