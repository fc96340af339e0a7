"""HRM's negotiator, schedulers and agents as processes of the command line, which tests start, end and kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from agents import is_running
from click.testing import Result
from commands import invoke

import flowsched
from flowsched.hrm.agent.processes import TOKEN

CONFIG = """
log = "debug"
[store]
url = "{url}"
[negotiator]
ttl = {ttl}
machine_ttl = {machine_ttl}
period = 0.1
[scheduler]
period = 0.05
[agent]
period = 0.05
state = "state"
[agent.node]
cores = 4
mem = 1000
[agent.split]
cpu_units = 2
"""

MARK = "HRM_TEST"


class Cluster:
    """The processes of one configuration, in one folder."""

    def __init__(self, folder: Path, url: str, ttl: float = 4.0, machine_ttl: float = 600.0) -> None:
        self.folder, self.config = folder, folder / "hrm.toml"
        self.config.write_text(CONFIG.format(url=url, ttl=ttl, machine_ttl=machine_ttl))
        self.running: dict[tuple[str, ...], subprocess.Popen[bytes]] = {}

    def environment(self, name: str = "") -> dict[str, str]:
        own = {
            "PYTHONPATH": str(Path(flowsched.__file__).parents[1]),
            "FLOWSCHED_HRM": str(self.config),
            MARK: f"{self.folder} {name}",
        }
        return {**os.environ, **own, "COLUMNS": "120"}

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """A command that ends."""
        line = [sys.executable, "-m", "flowsched", "hrm", *map(str, arguments)]
        return subprocess.run(
            line, env=self.environment(), cwd=self.folder, capture_output=True, text=True, timeout=300, check=False
        )

    def call(self, *arguments: object) -> Result:
        """A command that ends, in this process."""
        return invoke("hrm", *arguments, "--config", self.config)

    def log(self, *who: str) -> Path:
        return self.folder / f"{'-'.join(who)}.err"

    def start(self, *who: str) -> None:
        """Start ``agent NAME``, ``scheduler NAME`` or ``negotiator``."""
        part, *name = who
        with self.log(*who).open("ab") as err:
            err.write(b"--\n")
            self.running[who] = subprocess.Popen(
                [sys.executable, "-m", "flowsched", "hrm", part, *(["--name", *name] if name else [])],
                env=self.environment("-".join(who)), cwd=self.folder, stdout=err, stderr=err, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def is_at_work(self, *who: str) -> bool:
        """The process that was started last has said that it works."""
        return "at work" in self.log(*who).read_text().rpartition("--\n")[2]

    def await_work(self, *those: Sequence[str], seconds: float = 600.0) -> None:
        deadline = time.monotonic() + seconds
        while not all(self.is_at_work(*who) for who in those):
            assert time.monotonic() < deadline, [self.log(*who).read_text() for who in those]
            time.sleep(0.02)

    def end(self, *who: str, number: int = signal.SIGTERM) -> int:
        """Send a signal; return the exit status."""
        process = self.running.pop(who)
        process.send_signal(number)
        return process.wait(300)

    def containers(self, *agent: str) -> list[int]:
        """First processes of the containers of an agent (all agents, without a name)."""
        return [pid for pid, first in self._processes(*agent) if first]

    def left(self, *agent: str) -> list[int]:
        """All processes of containers."""
        return [pid for pid, _ in self._processes(*agent)]

    def _processes(self, *agent: str) -> list[tuple[int, bool]]:
        mark, found = f"{MARK}={self.folder} {'-'.join(agent)}".encode(), []
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            try:
                words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                # One at its gate has done nothing, and will do nothing.
                gate = b"os.read(gate" in Path(f"/proc/{pid}/cmdline").read_bytes()
                first = os.getsid(pid) == pid
            except OSError:
                continue
            held = any(word.startswith(f"{TOKEN}=".encode()) for word in words)
            mine = mark in words if agent else any(word.startswith(mark) for word in words)
            if held and mine and not gate and is_running(pid):
                found.append((pid, first))
        return found


@contextmanager
def cluster(folder: Path, url: str = "sqlite:///state.db", **options: float) -> Iterator[Cluster]:
    """A cluster whose processes end with the test."""
    one = Cluster(folder, url, **options)
    try:
        yield one
    finally:
        for who in list(one.running):
            one.end(*who, number=signal.SIGKILL)
        for pid in one.left():
            os.kill(pid, signal.SIGKILL)
