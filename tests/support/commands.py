"""Runs of the command line, in this process or as one of its own."""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import Any

from click.testing import CliRunner, Result

from flowsched import cli

PROGRAM = (sys.executable, "-c", "from _flowsched_cli import main; main()")


SMALL = ("--scale", "0.02", "--limit", "80")


def limited() -> None:
    """As much memory as a command may need, and no more."""
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))


def started(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, "preexec_fn": limited}
    return subprocess.Popen([*PROGRAM, *map(str, arguments)], **{**given, **options})


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, (out or b"").decode(), (err or b"").decode()


def calm(err: str) -> None:
    """An error of a line or two."""
    assert "Traceback" not in err and "Exception ignored" not in err, err[-2000:]
    assert len(err) < 5000


def invoke(*arguments: object) -> Result:
    result = CliRunner().invoke(cli.application(), list(map(str, arguments)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result
