"""``flowsched doctor``: each condition that it reports, with a remedy."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from flowsched.cli import doctor as module
from flowsched.cli.app import application

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")


def findings(*options: object) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    result = CliRunner().invoke(application(), ["doctor", "--json", *map(str, options)])
    found = dict[str, list[dict[str, Any]]]()
    for one in json.loads(result.stdout)["findings"]:
        assert bool(one["remedy"]) == (one["state"] != "ok"), one
        found.setdefault(one["check"], []).append(one)
    return result.exit_code, found


def test_a_free_and_a_taken_port() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, found = findings("--port", port)
        assert code == 0 and found["port"][0]["state"] == "warning" and str(port) in found["port"][0]["about"]
    assert findings("--port", port)[1]["port"][0]["state"] == "ok"


def test_places_of_state(tmp_path: Path) -> None:
    code, found = findings("--state", tmp_path / "new" / "deep", "--journal", tmp_path / "journal")
    assert code == 0 and found["state"][-1]["state"] == found["journal"][-1]["state"] == "ok"
    assert list(tmp_path.iterdir()) == [], "nothing is made"
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    code, found = findings("--state", shared, "--journal", shared / "journal")
    assert code == 1 and found["state"][0]["state"] == found["journal"][0]["state"] == "problem"
    code, found = findings("--journal", tmp_path / "nothing" / "journal")
    assert code == 1 and "no folder" in found["journal"][0]["about"]


def test_conditions_that_are_not_met(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module.control_groups, "find", lambda: None)
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "uvicorn" else object())
    monkeypatch.setattr(module, "_FILES", 2**40)
    monkeypatch.setattr(module, "_ROOM", 2**70)
    monkeypatch.setattr(module, "_SKEW", -1.0)
    result = CliRunner().invoke(application(), ["doctor", "--state", str(tmp_path)])
    assert result.exit_code == 0 and "not installed: serve (pip" in result.stdout
    assert "warning  control groups:" in result.stdout and "MiB are free" in result.stdout
    assert "differs by" in result.stdout and result.stdout.count("-> ") >= 3
    if os.geteuid():
        tmp_path.chmod(0o500)
        code, found = findings("--state", tmp_path)
        tmp_path.chmod(0o700)
        assert code == 1 and found["state"][-1]["state"] == "problem"
