"""The examples of a custom cost and a custom constraint print the documented output."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

PRINTED = {
    "newest_kernel.py": """\
task 0 on 'new', kernel 6.12
task 1 on 'new', kernel 6.12
task 2 on 'mid', kernel 6.1
""",
    "power_cap.py": """\
tasks by rack: {'rack 0': 2, 'rack 1': 2}
CONSTRAINT {'8 cpu, 32 mem': {'rack power': 4}}
unblocked by TaskCompleted, TaskFailed, TaskRemoved, MachineUpdated
after t0 has ended: {'t4': 'm0'}
""",
    "utilities.py": """\
index 0 on old
index 1 on old
train 0 on gpu
train 1 on far-gpu
waiting: [('render', 0), ('render', 1)]
utilities from -2.5 to 7.5 in 1000 levels
""",
}


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_its_results(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / name))
    assert capsys.readouterr().out == PRINTED[name]
