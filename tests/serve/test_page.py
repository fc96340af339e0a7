"""The live page in a browser without a window: empty, with waiting tasks, with a failed machine, and without the token."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from services import TOKEN, Served, command, ending

import flowsched as fs

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs Chromium")


@pytest.fixture
def served() -> Iterator[Served]:
    with ending(command("--port", 0, "--resources", "cpu,gpu")) as service:
        yield service


def seen(served: Served, folder: Path, fragment: str = f"token={TOKEN}") -> str:
    """The text of the page after some seconds of the browser's time."""
    done = subprocess.run(
        [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=4000", "--enable-logging=stderr",
         f"--user-data-dir={folder}", "--dump-dom", f"{served.url}#{fragment}"],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    faults = [line for line in done.stderr.splitlines() if "Uncaught" in line or "Content Security Policy" in line]
    assert faults == []
    body = re.sub(r"<(script|style)>.*?</\1>", "", done.stdout, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def test_an_empty_cluster(served: Served, tmp_path: Path) -> None:
    text = seen(served, tmp_path)
    assert "none yet: tell MachineAdded" in text and "no task waits" in text and TOKEN not in text


@pytest.mark.long
def test_waiting_tasks_with_their_reasons_and_a_failed_machine(served: Served, tmp_path: Path) -> None:
    client = served.client()
    after = client.tell(
        *(fs.MachineAdded(f"m{i}", {"cpu": 4}) for i in range(3)),
        fs.JobSubmitted("j<b>", [fs.Task(f"<b>{i}", {"cpu": 3}) for i in range(5)], user="<i>ada"),
        fs.JobSubmitted("k", [fs.Task("large", {"cpu": 30})]),
    )["after"]
    client.rounds(after, wait=30)
    text = seen(served, tmp_path)
    assert "3 up, 0 failed, 0 drained" in text and "cpu: 75 %, 9 of 12" in text and "gpu:" not in text
    assert "&lt;b&gt;" in text and "and 1 more" in text and "&lt;i&gt;ada" in text  # spelt, not obeyed
    assert "no room next to running tasks" in text and "NEVER_FITS no machine is large enough" in text
    after = client.tell(fs.MachineFailed("m1"), fs.MachineDrained("m2"))["after"]
    client.rounds(after, wait=30)
    text = seen(served, tmp_path)
    assert "1 up, 1 failed, 1 drained" in text and "down on 2" in text


@pytest.mark.long
def test_without_the_token_it_is_asked_for(served: Served, tmp_path: Path) -> None:
    for fragment in ("", "token=wrong"):
        text = seen(served, tmp_path, fragment)
        assert "The token is needed" in text and "0 events so far" not in text
