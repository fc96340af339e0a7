"""What the project's own files say of each other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_ci_runs_the_readmes_test_command() -> None:
    commands = re.findall(r"```console\n(.*?)\n```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tests,) = [command for command in commands if "pytest" in command]
    assert tests in [line.strip() for line in (ROOT / ".ci" / "run").read_text().splitlines()]
