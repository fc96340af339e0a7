"""The page of the sources' rules: every row is marked, and names a test that there is."""

from __future__ import annotations

import re

import pytest
from pages import DOCS, ROOT

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (DOCS / "benchmarks" / "rules.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and "`tests/" in line
]


def test_all_four_sources_are_there() -> None:
    assert len(ROWS) > 60


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_a_row_names_a_test(row: list[str]) -> None:
    _, mark, shown = row
    assert re.match(r"(works|differs: |missing|see \[)", mark), mark
    path, _, name = shown.strip("`").partition("::")
    assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")
