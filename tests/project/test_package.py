"""What ``import flowsched`` gives, and what it asks for."""

from __future__ import annotations

import doctest
import importlib
import inspect
import subprocess
import sys
import textwrap

import pytest

import flowsched

CONTRACT = """
    min_cost_flow certify FlowNetwork INF FlowResult FlowSolution FlowProblem read_dimacs write_dimacs
    InfeasibleError UnboundedError CostRangeError InputError ConcurrentUseError TornStateError TimeLimitError FlowschedError UnknownTaskError
    Scheduler Policy Round Reason ReasonCode Preemption Commit Job Task Machine User Resources
    MachineAdded MachineUpdated MachineDrained MachineFailed MachineRemoved JobSubmitted TaskSubmitted TaskStarted
    TaskCompleted TaskFailed TaskRemoved JobRemoved UserAdded UserUpdated UserRemoved UsageSampled
    Journal JournalError CorruptJournalError JournalMismatchError Recovery replay
""".split()


def test_the_names_of_the_contract_are_there() -> None:
    assert set(CONTRACT) <= set(flowsched.__all__)
    assert sorted(set(flowsched.__all__)) == sorted(flowsched.__all__)
    for name in flowsched.__all__:
        thing = getattr(flowsched, name)
        assert inspect.getdoc(thing), f"{name} has no docstring"


PATHS = {
    "flowsched": "Scheduler replay read_dimacs",
    "flowsched._cs": "Network",
    "flowsched.network": "INF FlowNetwork FlowResult FlowSolution certify min_cost_flow",
    "flowsched.builder": "Builder",
    "flowsched.scheduler": "Scheduler replay",
    "flowsched.rounds": "Commit Delta Migrate Place Preempt Preemption Reason ReasonCode Round RoundStats Share",
    "flowsched.journal": "Journal",
    "flowsched.policy": "DRF OMEGA BatchShare CustomCost DeviceCost Fairness FragmentationCost Limits LoadCost Locality MaxMin PlacementCost Policy "
    "PreemptionCost PreferenceCost PriorityCost Quotas Remaining SequenceShare ShareProvider StaticQuotas StrictPriority WaitCost WeightedMaxMin WeightedPriority",
    "flowsched.policy.placement": "PlacementCost",
    "flowsched.policy.providers": "Claims ShareProvider",
    "flowsched.cluster": "MICRO Cluster Job Machine Resources Task User",
    "flowsched.cluster.events": "Event MachineAdded TaskStarted",
    "flowsched.cluster.model": "Task Machine",
    "flowsched.exceptions": "FlowschedError InputError",
    "flowsched.sharing": "Deployment DeploymentSequence Heartbeat Ledger Reclaimed sequence",
    "flowsched.fgm": "Adjustment DemandEstimator FineGrained Level Plans Profile StageCost StageShare Stages Timeline Timelines by_progress compression "
    "conformity divide_stages match max_compression missed theoretical_duration time_weighted_mean",
    "flowsched.fgm.sampler": "Sampler",
    "flowsched.hrm": "AMOUNTS Admission Claim Container Core Elastic ExpiredError Gpu Granted Hybrid JobState Lost Move Negotiator Node Outcome Prediction "
    "Refusal Report ResourceUnit RunTimes StackedQueue Status Store TransferQueue UnitState WaitMatrix fair_shares predict_wait queue_length read_machine "
    "rebalance sense split_machine",
    "flowsched.metrics": "METRICS Metric PrometheusCollector RoundSpans",
    "flowsched.hrm.schedulers": "Worker run_processes run_ray",
    "flowsched.hrm.agent": "Agent",
    "flowsched.run": "Command Driver Ended Executor ExitStatusError Failed LocalExecutor Run Started Stopped TaskCancelledError TaskLostError Told "
    "capacity_here",
    "flowsched.sim": "QOS_PRIORITY UNDECIDED Arrival AuditError Execution ForeignLoad Load Metrics Percentiles Progress Schedules Simulation Trace Usage "
    "Workload load_trace report write_report SYNTHETIC TRACE_FORMATS TraceFormat TraceOptions TraceSource read_machines synthetic write_trace",
    "flowsched.sim.baselines": "",
    "flowsched.sim.engine": "Simulation",
    "flowsched.sim.traces": "load_trace",
    "flowsched.nx_backend": "scale_weights min_cost_flow network_simplex",
    "flowsched.cli": "main",
    "_flowsched_cli": "main",
    "_flowsched_nx": "get_info",
}
"""Modules by which callers import, and names that each of them has."""


@pytest.mark.parametrize("path", PATHS)
def test_public_paths_stay(path: str) -> None:
    extras = {
        "flowsched.sim": "simpy",
        "flowsched.hrm": "sqlalchemy",
        "flowsched.nx_backend": "networkx",
        "flowsched.fgm.sampler": "psutil",
    }
    for prefix, package in extras.items():
        if path.startswith(prefix):
            pytest.importorskip(package)
    module = importlib.import_module(path)
    missing = [name for name in PATHS[path].split() if not hasattr(module, name)]
    assert not missing, f"{path} lacks {missing}"


def test_public_names_are_those_of_their_modules() -> None:
    for name in flowsched.__all__:
        home = getattr(getattr(flowsched, name), "__module__", None)
        if home and home.startswith("flowsched"):
            assert name in importlib.import_module(home).__all__, f"{home} does not list {name}"


def run(code: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_core_needs_numpy_alone() -> None:
    """Everything but NumPy, the standard library and the package itself is made unimportable."""
    out = run(
        """
        import sys

        class Refuse:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] not in {"numpy", "flowsched", *sys.stdlib_module_names}:
                    raise ModuleNotFoundError(f"refused: {name}", name=name)

        sys.meta_path.insert(0, Refuse())
        import flowsched as fs

        sched = fs.Scheduler(resources=("cpu",))
        sched.apply(fs.MachineAdded("m", {"cpu": 1}), fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1})]))
        print(dict(sched.schedule(0.0).placements))
        loaded = {name for name in sys.modules if name.startswith("flowsched.")}
        print(*sorted(loaded & {f"flowsched.{name}" for name in ("sim", "cli", "fgm", "hrm", "metrics", "nx_backend", "run")}))
        try:
            fs.sim
        except ImportError as error:
            print(error)
        """
    )
    assert out.splitlines() == [
        "{'t': 'm'}",
        "",
        "the simulator needs SimPy: pip install 'flowsched[sim]'",
    ]


def test_subpackages_come_when_they_are_asked_for() -> None:
    assert run(
        """
        import sys
        import flowsched as fs
        assert "sim" in dir(fs) and "flowsched.sim" not in sys.modules
        print(fs.sim.Simulation.__name__, "flowsched.sim" in sys.modules)
        """
    ).split() == ["Simulation", "True"]
    with pytest.raises(AttributeError, match="no attribute 'simulation'"):
        _ = flowsched.simulation


@pytest.mark.parametrize(
    "module",
    [
        "flowsched",
        "flowsched.scheduler",
        "flowsched.sim.engine",
        "flowsched.network.flow_network",
        "flowsched.network.one_shot",
    ],
)
def test_examples_of_docstrings(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0 and result.attempted > 0
