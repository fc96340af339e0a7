"""Kills of schedulers, of the API server and of etcd while pods come: each pod is bound once, and none is lost."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubernetes")
pytest.importorskip("aiohttp")

from effort import effort

from bench.kubernetes.drive import OURS, Process
from bench.kubernetes.plane import MERGE, PROGRAMS, Client, Plane, Refused, control_plane, free_port
from bench.kubernetes.verify import broken

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not (PROGRAMS / "apiserver").exists(), reason=f"tests/run/kube/build.sh has not built {PROGRAMS}"
    ),
]

GPUS = 8


class Scheduler:
    """A process of two, of which one leads."""

    def __init__(self, plane: Plane, folder: Path) -> None:
        folder.mkdir()
        self.plane, self.folder, self.port = plane, folder, free_port()
        self.begin()

    def begin(self) -> None:
        lease = ["[lease]", 'namespace = "default"', 'name = "flowsched"', "duration = 4"]
        settings = [f'listen = "127.0.0.1:{self.port}"', *lease]
        self.process = Process(OURS, self.plane, PROGRAMS, self.folder, settings=settings)

    @property
    def leads(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as answer:
                return bool(answer.read() == b"leading")
        except OSError:
            return False

    def again(self) -> None:
        self.process.kill()
        self.begin()


@contextmanager
def pods_that_come(client: Client, number: int, seconds: float) -> Iterator[None]:
    """Create pods evenly over some time; a creation whose answer is lost is repeated."""
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "100m"}}}
    stop = threading.Event()

    def create() -> None:
        for i in range(number):
            body = {"metadata": {"name": f"p{i:05d}"}, "spec": {"schedulerName": OURS, "containers": [container]}}
            while not stop.is_set():
                try:
                    client.ask("POST", "/api/v1/namespaces/default/pods", body)
                    break
                except OSError:
                    stop.wait(0.2)
                except Refused as refused:
                    if refused.status == 409:
                        break
                    assert refused.status >= 429, refused
                    stop.wait(0.2)
            stop.wait(seconds / number)

    thread = threading.Thread(target=create)
    thread.start()
    try:
        yield
        thread.join()
    finally:
        stop.set()
        thread.join()


def items(client: Client, path: str) -> list[Any]:
    while True:
        try:
            found: list[Any] = client.ask("GET", path)["items"]
            return found
        except (OSError, Refused):
            time.sleep(0.2)


def test_each_pod_is_bound_once_whatever_is_killed(tmp_path: Path) -> None:
    pods, rounds = effort(200, 2000), effort(1, 20)
    with ExitStack() as stack:
        plane = stack.enter_context(control_plane(tmp_path))
        client = stack.enter_context(Client(plane.port, plane.admin))
        for i in range(pods // GPUS):
            client.ask("POST", "/api/v1/nodes", {"metadata": {"name": f"n{i:04d}"}})
            amounts = {"cpu": "64", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": str(GPUS)}
            status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
            client.ask("PATCH", f"/api/v1/nodes/n{i:04d}/status", {"status": status}, MERGE)
        both = [Scheduler(plane, tmp_path / name) for name in "ab"]
        for one in both:
            stack.callback(lambda one=one: one.process.kill())
        kills = dict.fromkeys(("leader", "standby", "apiserver", "etcd"), 0)
        seen = dict[str, str]()
        with pods_that_come(client, pods, 12.0 * rounds):
            for _ in range(rounds):
                for what in kills:
                    while not any(one.leads for one in both):
                        for one in both:  # a leader that cannot renew its lease ends, and a supervisor begins it again
                            if not one.process.runs:
                                one.begin()
                        time.sleep(0.2)
                    if what in plane.processes:
                        plane.processes[what].kill()
                        plane.processes[what].wait()
                        time.sleep(0.5)
                        plane.start(what)
                        plane.wait()
                    else:
                        next((one for one in both if one.leads == (what == "leader")), both[0]).again()
                    kills[what] += 1
                    time.sleep(0.5)
                    for pod in items(client, "/api/v1/namespaces/default/pods"):
                        node = pod["spec"].get("nodeName")
                        name = str(pod["metadata"]["name"])
                        assert node is None or seen.setdefault(name, node) == node
        end = time.monotonic() + 120
        while True:
            there = items(client, "/api/v1/namespaces/default/pods")
            left = sum("nodeName" not in pod["spec"] for pod in there)
            if not left or time.monotonic() > end:
                break
            for one in both:
                if not one.process.runs:
                    one.begin()
            time.sleep(0.2)
        assert (len(there), left) == (pods, 0) and kills == dict.fromkeys(kills, rounds)
        assert not broken(items(client, "/api/v1/nodes"), there)
        assert all(
            pod["spec"]["nodeName"] == seen.get(pod["metadata"]["name"], pod["spec"]["nodeName"]) for pod in there
        )
        print(f"{pods} pods, kills: {kills}")
