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
        print(*sorted(loaded & {f"flowsched.{name}" for name in ("sim", "cli", "fgm", "hrm", "experiments", "nx_backend")}))
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
