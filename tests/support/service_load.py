"""A client that submits tasks and ends their runs at a rate, until it is killed or its input closes.

Started with ``URL TOKEN NAME RATE NOTES``.  NOTES gets a line before each request and after each answer:
``? KEY`` and the ids of its events, ``! KEY SECONDS TRIES``.  A later one of the same name takes the runs over.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import uuid
from collections import deque
from typing import Any

import flowsched as fs
from flowsched.serve import Client, ServiceError

TICK = 0.04
MOST = 60


class Counted(Client):
    """Counts attempts."""

    tries = 0

    def _asked(self, *about: Any) -> dict[str, Any]:
        return super()._asked(*about)

    def close(self) -> None:
        self.tries += 1
        super().close()


def follow(client: Client, name: str, runs: deque[tuple[str, int]], after: int) -> None:
    """Note the runs of the own tasks, whatever becomes of the service."""
    while True:
        try:
            for round in client.stream(after):
                if "error" in round:
                    break
                after = round["round"]
                runs.extend((p["task"], p["run"]) for p in round["placed"] if p["task"].startswith(name))
        except (ServiceError, OSError, ValueError):
            time.sleep(0.1)
        try:
            state = client.state()
        except (ServiceError, OSError):
            continue
        after = state["round"]
        runs.extend((t["id"], t["run"]) for t in state["tasks"] if "run" in t and t["id"].startswith(name))


def live(url: str, token: str, name: str, rate: float, notes: str) -> None:
    out = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    client, watcher = Counted(url, token, patience=120.0), Client(url, token, patience=120.0)
    state = client.state()
    runs = deque[tuple[str, int]](
        (t["id"], t["run"]) for t in state["tasks"] if "run" in t and t["id"].startswith(name)
    )
    threading.Thread(target=follow, args=(watcher, name, runs, state["round"]), daemon=True).start()
    life, number, told, begin = uuid.uuid4().hex[:8], 0, 0, time.monotonic()
    ended = set[tuple[str, int]]()
    while True:
        time.sleep(max(0.0, begin + told / rate - time.monotonic()))
        due = min(max(int((time.monotonic() - begin) * rate) - told, int(rate * TICK), 2), MOST)
        events: list[fs.Event] = []
        while runs and len(events) < due:
            run = runs.popleft()
            if run not in ended:  # the state and the stream may both report it
                ended.add(run)
                events.append(fs.TaskCompleted(*run))
        while len(events) < due:
            task = f"{name}.{life}.{number}"
            number += 1
            events.append(fs.JobSubmitted(task, [fs.Task(task, {"cpu": 1})], user=name, closed=True))
        key = f"{name}.{life}.{told}"
        ids = [e.id if isinstance(e, fs.JobSubmitted) else [e.task, e.run] for e in events]
        os.write(out, f"? {key} {json.dumps(ids, separators=(',', ':'))}\n".encode())
        before, tries = time.perf_counter(), client.tries
        client.tell(*events, key=key)
        os.write(out, f"! {key} {time.perf_counter() - before:.6f} {client.tries - tries}\n".encode())
        told += len(events)


if __name__ == "__main__":
    url, token, name, rate, notes = sys.argv[1:]
    threading.Thread(target=live, args=(url, token, name, float(rate), notes), daemon=True).start()
    sys.stdin.read()
