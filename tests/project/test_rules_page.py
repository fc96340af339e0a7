"""The page of the sources' rules: every row is marked, and names a test that there is."""

from __future__ import annotations

import pkgutil
import re

import pytest
from pages import DOCS, ROOT

TABLE = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (DOCS / "benchmarks" / "tables" / "rules.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and "`tests/" in line
]
ROWS, FEATURES = ([row for row in TABLE if len(row) == cells] for cells in (3, 4))


def test_all_four_sources_are_there() -> None:
    assert len(ROWS) > 60


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_a_row_names_a_test(row: list[str]) -> None:
    _, mark, shown = row
    assert re.match(r"(works|see \[)", mark), mark
    path, _, name = shown.strip("`").partition("::")
    assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("row", FEATURES, ids=lambda row: row[0][:40])
def test_a_feature_has_a_name_an_example_and_a_property_test(row: list[str]) -> None:
    _, names, example, shown = row
    for name in re.findall(r"`([\w.]+)`", names):
        found = pkgutil.resolve_name(f"flowsched.{name}")
        if example == "docstring":
            assert ">>> " in (found.__doc__ or ""), name
    if example != "docstring":
        page = (DOCS / "benchmarks" / "tables" / example.partition("(")[2].rstrip(")")).read_text(encoding="utf-8")
        code = "".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
        assert any(name.rpartition(".")[2] in code for name in re.findall(r"`([\w.]+)`", names))
    path, _, name = shown.strip("`").partition("::")
    text = (ROOT / path).read_text(encoding="utf-8")
    lines = text[
        : text.index(f"def {name}(" if name.islower() else f"class {name}(RuleBasedStateMachine)")
    ].splitlines()
    assert not name.islower() or re.search(
        r"@given|seed|random\.Random|rng", "\n".join(lines[-12:]) + text[text.index(name) :][:1500]
    )
