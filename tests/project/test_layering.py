"""Imports run one way, and the core needs NumPy alone."""

from __future__ import annotations

import subprocess
import sys
from graphlib import CycleError

import layers
import pytest

MODULES = layers.all_modules()
SOURCES = layers.sources()


def test_imports_run_one_way() -> None:
    found = [
        fault
        for module, path in SOURCES.items()
        for fault in layers.faults(layers.source(path), module, MODULES, path.name == "__init__.py")
    ]
    assert found == []


def test_rooms_and_files_are_in_one_order() -> None:
    layers.order({room: set(others.split()) for room, others in layers.MAY.items()})
    layers.order(layers.graph())


def test_files_that_import_each_other_are_a_fault() -> None:
    with pytest.raises(CycleError, match="cycle") as raised:
        layers.order({**layers.graph(), "boundary.validate": {"cluster.model"}})
    assert set(raised.value.args[1]) == {"boundary.validate", "cluster.model"}


def test_rooms_and_rules_name_each_other() -> None:
    assert set(layers.MAY) == set(layers.ROOMS)
    for room, others in layers.MAY.items():
        assert set(others.split()) <= set(layers.ROOMS) - {room}
    assert not any("cli" in others.split() for others in layers.MAY.values())


@pytest.mark.parametrize(
    ("module", "text", "fault"),
    [
        ("cluster.state", "from flowsched.network import INF", "cluster must not import network"),
        ("cluster.state", "from flowsched import network", "cluster must not import network"),
        ("cluster.state", "from .. import network", "cluster must not import network"),
        ("cluster.state", "from ..builder import Builder", "cluster must not import builder"),
        ("cluster", "from ..network import INF", "cluster must not import network"),
        ("policy.priority", "def f():\n    import flowsched.scheduler", "flowsched.policy.priority:2: policy must not import scheduler"),
        ("hrm.units", "from flowsched import _cs", "hrm must not import kernel"),
        ("fgm.stages", "from flowsched._cs import Network", "fgm must not import kernel"),
        ("builder.machines", "import scipy.sparse", "builder must not import scipy"),
        ("scheduler", "if TYPE_CHECKING:\n    from flowsched.sim import engine", "scheduler must not import sim"),
        ("sim.engine", "from flowsched.cli import main", "sim must not import cli"),
        ("network.dimacs", "import flowsched", "network must not import front"),
        ("cluster._room", "from libc.stdint cimport int64_t\nfrom flowsched.builder._arcs cimport (\n    ClassArcsColumns,\n)", "flowsched.cluster._room:2: cluster must not import builder"),
        ("builder._arcs", "cdef int f():\n    from flowsched import _cs", "builder must not import kernel"),
    ],
)  # fmt: skip
def test_the_checker_sees_a_fault(module: str, text: str, fault: str) -> None:
    (found,) = layers.faults(text, module, MODULES, is_package=module == "cluster")
    assert fault in found


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("cluster.state", "from flowsched.cluster.model import Task\nfrom . import events\nimport numpy as np\nimport json"),
        ("cluster", "from .state import Cluster"),
        ("builder.builder", "from flowsched.network import INF, FlowNetwork\nfrom flowsched.policy import Policy"),
        ("cli.simulate", "import click\nfrom flowsched import sim"),
    ],
)  # fmt: skip
def test_the_checker_lets_the_rest_pass(module: str, text: str) -> None:
    assert layers.faults(text, module, MODULES, is_package=module == "cluster") == []


def test_a_module_in_no_room_is_a_fault() -> None:
    with pytest.raises(LookupError, match=r"flowsched\.utils is in no room"):
        layers.faults("", "utils", MODULES)


def test_importing_flowsched_imports_numpy_and_nothing_else() -> None:
    """Names that the statements do not show, as by `importlib`, would come up here."""
    code = "import sys; before = set(sys.modules); import flowsched; print(*{m.partition('.')[0] for m in set(sys.modules) - before})"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    strangers = {
        m for m in said.stdout.split() if m not in sys.stdlib_module_names and not m.startswith(("_cython", "cython"))
    }
    assert strangers <= {"flowsched", "numpy"}
