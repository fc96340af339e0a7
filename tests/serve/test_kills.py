"""Clients at work while clients and the service are killed: the journal has each acknowledged event exactly once.

By default a few seconds with few events; under FLOWSCHED_FUZZ=1 eight clients report 2,300 events a second for a minute, and
the figures are printed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import service_load
from effort import effort
from services import TOKEN, Served, command

import flowsched as fs
from flowsched.journal.store import reading

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills processes")

CLIENTS, RATE, SECONDS = effort(3, 8), effort(150, 2300), effort(5, 60)
KILLS, CLIENT_KILLS = effort(1, 4), effort(2, 12)


class Client:
    """A process that reports events."""

    def __init__(self, served: Served, number: int, notes: Path) -> None:
        self.notes, rate = notes, RATE / CLIENTS
        given = (served.url, TOKEN, f"c{number}", str(rate), str(notes))
        self.process = subprocess.Popen(
            [sys.executable, service_load.__file__, *given], stdin=subprocess.PIPE,
            env={"PYTHONPATH": str(Path(fs.__file__).parents[1])},
        )  # fmt: skip

    def answered(self) -> bool:
        return self.notes.exists() and "\n!" in self.notes.read_text()

    def end(self, kill: bool) -> None:
        if kill:
            self.process.kill()
        self.process.communicate(timeout=60)


def seconds_of(process: subprocess.Popen[Any]) -> float:
    """Processor time of a process."""
    try:
        told = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return 0.0
    return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


def events_of(journal: Path) -> Iterator[dict[str, Any]]:
    """All that have happened: compaction keeps the history."""
    with reading(journal, whole=True) as records:
        for _, row in records:
            if row.kind == "events":
                yield from json.loads(row.body)


@pytest.mark.long
def test_the_journal_has_each_acknowledged_event_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    journal, port = tmp_path / "journal", 0

    def begin() -> Served:
        return command("--journal", journal, "--port", port, "--resources", "cpu")

    served = begin()
    port = served.port
    served.client().tell(*(fs.MachineAdded(f"m{i}", {"cpu": 16}) for i in range(100)))
    clients = [Client(served, number, tmp_path / f"notes{number}") for number in range(CLIENTS)]
    while not all(client.answered() for client in clients):
        time.sleep(0.05)
    start = time.monotonic()
    plan = [(SECONDS * (k + 1) / (KILLS + 1), -1) for k in range(KILLS)]
    plan += [(float(rng.uniform(0.1, 0.95)) * SECONDS, int(rng.integers(CLIENTS))) for _ in range(CLIENT_KILLS)]
    down, cpu = [], np.zeros(2)
    for moment, which in sorted(plan):
        time.sleep(max(0.0, start + moment - time.monotonic()))
        if which < 0:
            cpu[0] += seconds_of(served.process)
            served.kill()
            gone = time.monotonic()
            served = begin()
            down.append(time.monotonic() - gone)
        else:
            cpu[1] += seconds_of(clients[which].process)
            clients[which].end(kill=True)
            clients[which] = Client(served, which, clients[which].notes)
    time.sleep(max(0.0, start + SECONDS - time.monotonic()))
    cpu += seconds_of(served.process), sum(seconds_of(client.process) for client in clients)
    for client in clients:
        client.end(kill=False)
    state = served.client().state()
    served.kill()

    asked, answered, seconds = dict[str, list[Any]](), set[str](), list[float]()
    for number in range(CLIENTS):
        for line in (tmp_path / f"notes{number}").read_text().splitlines():
            mark, key, rest = line.split(" ", 2)
            if mark == "?":
                asked[key] = [tuple(one) if isinstance(one, list) else one for one in json.loads(rest)]
            else:
                answered.add(key)
                took, tries = rest.split()
                if tries == "0":
                    seconds.append(float(took))
    counts = Counter[Any]()
    for event in events_of(journal):
        if event["kind"] == "JobSubmitted":
            counts[event["id"]] += 1
        elif event["kind"] == "TaskCompleted":
            counts[event["task"], event["run"]] += 1
    for key in answered:
        assert [counts[one] for one in asked[key]] == [1] * len(asked[key]), key
    requests = Counter[Any](one for events in asked.values() for one in events)
    for key in asked.keys() - answered:  # the client was killed before the answer
        own = [one for one in asked[key] if requests[one] == 1]  # its successor also ends a run that still runs
        assert {counts[one] for one in own} in (set(), {0}, {1}), key
    assert counts.keys() <= {one for events in asked.values() for one in events}
    submitted = {one for one in counts if isinstance(one, str)}
    assert {task["id"] for task in state["tasks"]} == submitted - {one[0] for one in counts if not isinstance(one, str)}
    assert answered and seconds

    told, p50, p99 = sum(len(asked[key]) for key in answered), *np.percentile(seconds, [50, 99])
    print(
        f"\n{CLIENTS} clients, {told} events acknowledged in {SECONDS} s ({told / SECONDS:.0f} a second, {told / (SECONDS - sum(down)):.0f} while it was up), {len(answered)} requests: "
        f"p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms, longest {max(seconds) * 1e3:.0f} ms, of {len(seconds)} answered at "
        f"the first attempt; {KILLS} kills of the service, back after {', '.join(f'{s:.1f}' for s in down)} s; "
        f"{CLIENT_KILLS} kills of clients; processor seconds: {cpu[0]:.0f} of the service, {cpu[1]:.0f} of the clients"
    )  # fmt: skip
