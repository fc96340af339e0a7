"""The openb experiment in small: its protocol, its settings, its rows and its plot, on a trace of three machines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import flowsched as fs
from bench import openb as experiment
from bench.rows import Outcome
from flowsched.policy import FragmentationCost
from flowsched.sim.audit import AuditInventory

NODES = "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,T4\nb,64000,262144,2,P100\nc,32000,131072,0,\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "p0,4000,1024,1,600,,LS,Running,0,9,0\n"
    "p1,4000,1024,1,400,T4,LS,Running,1,9,1\n"
    "p2,8000,2048,1,1000,P100|T4,LS,Running,2,9,2\n"
    "p3,16000,4096,0,0,,BE,Running,3,9,3\n"
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "openb"
    folder.mkdir()
    (folder / "openb_node_list_all_node.csv").write_text(NODES)
    (folder / "openb_pod_list_default.csv").write_text(PODS)
    (folder / "openb_pod_list_other.csv").write_text(PODS.replace("P100|T4", "P100"))
    return tmp_path


def test_pods_are_drawn_until_the_next_would_pass_130_percent(data: Path) -> None:
    trace = fs.sim.load_trace(data / "openb")
    pods = [task for arrival in trace.arrivals for task in arrival.job.tasks]
    for seed in range(20):
        tasks = experiment._arrivals(pods, 4.0, seed)
        asked = sum(experiment._gpus(task) for task in tasks)
        assert 4.0 < asked <= 5.2 + 1e-6, "of 5.2; the largest pod asks for 1"
        assert [task.id for task in tasks] == list(range(len(tasks)))
    assert experiment._arrivals(pods, 4.0, 1) == experiment._arrivals(pods, 4.0, 1)
    assert experiment._arrivals(pods, 4.0, 1) != experiment._arrivals(pods, 4.0, 2)


@pytest.mark.long
def test_every_setting_of_every_variant_is_measured_and_drawn(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "_SEEDS", range(42, 44))
    said: list[str] = []
    outcome = experiment.run(quick=False, seed=1, say=said.append, data=data)
    assert not outcome.wrong
    assert len(said) == 2 * 2 * len(experiment._SETTINGS)
    full = {row.setting: row for row in outcome.rows if row.metric == "GPUs allocated at 130%"}
    assert {"default, online", "other, all known at once", "default, FGD as published"} <= full.keys()
    assert full["default, online"].source_value == 95.39 and full["other, online"].source_value is None
    assert all(60 < float(row.value or 0) <= 100 for row in full.values())
    assert full["default, online"].note.endswith(", 2 seeds")
    assert full["default, FGD as published"].note.endswith("published: 95.27 to 95.49, ten seeds")
    assert float(full["default, all known at once"].value or 0) >= float(full["default, online"].value or 0)
    assert [path.name for path in experiment.plot(outcome, tmp_path)] == ["openb.svg"]


@pytest.mark.long
def test_quick_is_one_seed_and_four_settings(data: Path) -> None:
    outcome = experiment.run(quick=True, say=lambda line: None, data=data)
    settings = {row.setting for row in outcome.rows if not row.setting.endswith("as published")}
    assert settings == {
        f"{v}, {s}"
        for v in ("default", "other")
        for s in ("online", "rounds of 1,000", "fgd of flowsched", "random of flowsched")
    }


def test_patient_pods_wait_for_the_last_round(data: Path) -> None:
    trace = fs.sim.load_trace(data / "openb", variant="default")
    setting = experiment._Setting("patient", 2, patient=True)
    wrong: list[str] = []
    run = experiment._measure(trace, setting, 42, wrong)
    assert not wrong
    assert run.allocated[-1] + run.crumbs + run.blocked == pytest.approx(100)


def test_a_round_that_over_commits_is_told() -> None:
    inventory = AuditInventory(fs.Resources(("cpu", "mem", "gpu")))
    inventory.add_machine(fs.Machine("m", {"cpu": 8, "mem": 8, "gpu": 1}))
    batch = [fs.Task(i, {"cpu": 1, "gpu": 0.6}) for i in range(2)]
    lie = SimpleNamespace(placements={0: "m", 1: "m"}, devices={0: (0,), 1: (0,)}, now=0.0)
    wrong: list[str] = []
    experiment._audit(inventory, batch, lie, wrong)  # type: ignore[arg-type]
    assert len(wrong) == 1 and "above capacity" in wrong[0]


def test_a_single_pod_at_a_time_never_waits_by_choice() -> None:
    cost = FragmentationCost.of([fs.Task("x", {"gpu": 1})])
    assert experiment._ONLINE.policy(cost).waiting.patience == 1
    assert experiment._ONLINE.policy(cost).step == 1


@pytest.mark.long
def test_without_data_the_bundled_model_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "_MODEL_PODS", 60)
    monkeypatch.setattr(experiment, "_MODEL_SCALE", 0.01)
    kept: list[Callable[[], Outcome]] = []
    outcome = experiment.run(quick=True, say=lambda line: None, keep=kept.append)
    assert not outcome.wrong and kept[0]() is outcome
    settings = ("online", "rounds of 1,000", "fgd of flowsched", "random of flowsched")
    assert {row.setting for row in outcome.rows} == {f"model, {setting}" for setting in settings}
    assert all(row.source_value is None for row in outcome.rows), "published figures are of the trace"
    assert any("https://github.com/hkust-adsl" in note for note in outcome.notes)


def test_without_a_trace_the_error_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"openb_pod_list_\*\.csv"):
        experiment.run(quick=True, say=lambda line: None, data=tmp_path)
