"""The README's examples run and print what it says."""

from __future__ import annotations

import pytest
from pages import ROOT, Block, blocks, run_python

README = ROOT / "README.md"
BLOCKS = [block for block in blocks(README.read_text(encoding="utf-8")) if block.kind == "python"]


def test_there_are_examples_and_one_that_prints() -> None:
    assert len(BLOCKS) >= 2 and any(block.printed for block in BLOCKS)


@pytest.mark.parametrize("block", BLOCKS, ids=[f"line{block.line}" for block in BLOCKS])
def test_example(block: Block, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    run_python(block, README, {})
