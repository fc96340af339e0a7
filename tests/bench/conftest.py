"""Findings that say nothing, and LEMON compiled in little time."""

from __future__ import annotations

import pytest

from bench.solver import lemon
from bench.solver.findings import Findings


@pytest.fixture(autouse=True)
def _compile_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what LEMON finds is looked at, not how soon."""
    monkeypatch.setattr(lemon, "_FLAGS", ["-O0", "-w", "-shared", "-fPIC"])


@pytest.fixture
def findings() -> Findings:
    return Findings(lambda line: None)
