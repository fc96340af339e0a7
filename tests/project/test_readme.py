"""The README's examples run and print what it says."""

from __future__ import annotations

import contextlib
import io
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import flowsched as fs

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", README.read_text(encoding="utf-8"), re.DOTALL)


def test_there_are_examples_and_one_that_prints() -> None:
    assert len(BLOCKS) >= 2 and any(printed for _, printed in BLOCKS)


@pytest.mark.parametrize(("code", "printed"), BLOCKS, ids=[f"block{i}" for i in range(len(BLOCKS))])
def test_example(code: str, printed: str) -> None:
    if 'backend="flowsched"' in code:
        pytest.importorskip("networkx")
        if not any(entry.name == "flowsched" for entry in entry_points(group="networkx.backends")):
            pytest.skip("flowsched is not installed here, so NetworkX cannot know it")
    if "hrm.Store" in code:
        pytest.importorskip("sqlalchemy")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, str(README), "exec"), {"fs": fs})
    assert out.getvalue() == printed
