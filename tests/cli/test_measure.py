"""`flowsched measure`: limits of compression, stored and shown."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import invoke

from flowsched.fgm import limits as limits_module
from flowsched.fgm.limits import Limits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_what_is_stored_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = Limits(0.13, 0.4, limits_module.here(), 1e9, 0.01, [(1.0, 1.0), (1.15, 0.98)])

    def measured(seconds: float, say: Any) -> Limits:
        say("1 of 3")
        return found

    monkeypatch.setattr("flowsched.cli.measure.measured", measured)
    result = invoke("measure", "--show")
    assert result.exit_code == 1 and "nothing was measured; the limit is 10%" in result.stderr
    result = invoke("measure")
    assert result.exit_code == 0 and "limit 13.0%, contention 0.4" in result.stdout
    assert "115%" in result.stdout and "Stored in" in result.stdout
    assert Limits.read(limits_module.place()) == found
    assert invoke("measure", "--show").exit_code == 0

    limits_module.place().write_text(replace(found, machine={**found.machine, "CPUs": 999}).text())
    result = invoke("measure", "--show")
    assert result.exit_code == 1 and "Measure again" in result.stderr and "CPUs: 999 then" in result.stderr

    found = replace(found, busy=0.5)
    result = invoke("measure", "--output", tmp_path / "other")
    assert result.exit_code == 1 and "Not stored: others used 50% of the CPUs" in result.stderr
    assert not (tmp_path / "other").exists()
