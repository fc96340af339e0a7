"""The scheduler of a Kubernetes cluster on a real API server, with the rights of deploy/rbac.yaml."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubernetes")
pytest.importorskip("aiohttp")

from kubeserver import MERGE, PROGRAMS, Server, apply, kube_server

from flowsched.run.kubescheduler import KubeScheduler, KubeSettings, LeaseSettings

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not (PROGRAMS / "apiserver").exists(), reason=f"tests/run/kube/build.sh has not built {PROGRAMS}"
    ),
]

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    with kube_server(tmp_path_factory.mktemp("kube")) as (server, token):
        apply(server, DEPLOY / "namespace.yaml")
        apply(server, DEPLOY / "rbac.yaml")
        for name, value in (("high", 1000), ("low", -1)):
            one = {"metadata": {"name": name}, "value": value}
            server.ask("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", one)
        stop = threading.Event()
        kubelets = threading.Thread(target=server.kubelets, args=(stop,))
        kubelets.start()
        try:
            yield server, token
        finally:
            stop.set()
            kubelets.join()


@pytest.fixture
def server(started: tuple[Server, str]) -> Server:
    started[0].clean()
    return started[0]


@pytest.fixture
def client(started: tuple[Server, str]) -> Any:
    return started[0].client(started[1])


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(40):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.05)


@asynccontextmanager
async def scheduler(client: Any, lease: LeaseSettings | None = None, **options: Any) -> Any:
    stop, one = asyncio.Event(), KubeScheduler(KubeSettings(lease=lease), client=client, **options)
    running = asyncio.create_task(one.run(stop))
    try:
        await until(lambda: one.state != "starting" or running.done())
        yield one
    finally:
        stop.set()
        await running


def test_pods_are_bound_or_say_why_they_wait(server: Server, client: Any) -> None:
    """Default admission has added tolerations with the effect NoExecute to each pod."""
    server.node("n1", "2")
    server.node("n2", taints=[{"key": "maintenance", "effect": "NoExecute"}])

    async def main() -> None:
        async with scheduler(client):
            server.pod("a")
            server.pod("large", "64")
            server.pod("strange", resourceClaims=[{"name": "g", "resourceClaimName": "none"}])
            server.pod("gated", schedulingGates=[{"name": "example.com/gate"}])
            await until(lambda: server.where("a") == "n1" and "Scheduled" in server.events("a"))
            await until(lambda: "FailedScheduling" in server.events("strange"))
            await until(lambda: "FailedScheduling" in server.events("large"))
            conditions = {name: server.get(name)["status"]["conditions"] for name in ("large", "strange", "gated")}
            reasons = {name: [one["reason"] for one in found] for name, found in conditions.items()}
            assert reasons == {"large": ["Unschedulable"], "strange": ["UNSUPPORTED"], "gated": ["SchedulingGated"]}
            assert conditions["strange"][0]["message"].endswith("spec.resourceClaims")
            gate = [{"op": "remove", "path": "/spec/schedulingGates"}]
            server.ask("PATCH", "/api/v1/namespaces/default/pods/gated", gate, "application/json-patch+json")
            await until(lambda: server.where("gated") == "n1")

    asyncio.run(main())


def test_a_new_leader_takes_over_the_bound_pods_and_may_displace_them(server: Server, client: Any) -> None:
    server.node("n1", "2")
    lease = LeaseSettings("flowsched", duration=3.0)

    async def main() -> None:
        async with scheduler(client, lease) as first:
            await until(lambda: first.state == "leading")
            server.pod("low", "2", priorityClassName="low")
            await until(lambda: server.where("low"))
            async with scheduler(client, lease) as second:
                await asyncio.sleep(1)
                assert (first.state, second.state) == ("leading", "standby")
        async with scheduler(client, lease) as third:  # the lease was given up
            await until(lambda: third.state == "leading")
            server.pod("high", "2", priorityClassName="high")
            await until(lambda: server.where("high") == "n1")
        assert server.events("low") == {"Scheduled", "Preempted"}

    asyncio.run(main())


def test_a_budget_protects_a_pod(server: Server, client: Any) -> None:
    server.node("n1", "2")
    about, policy = {"name": "keep"}, "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    keep = {"metadata": about, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}}

    async def main() -> None:
        server.ask("POST", policy, keep)
        async with scheduler(client):
            for name in ("kept", "free"):
                server.pod(name, labels={"app": name})
            await until(lambda: server.where("kept") and server.where("free"))
            server.pod("high", priorityClassName="high")
            await until(lambda: server.where("high"))
            assert server.where("kept")
            server.pod("another", priorityClassName="high")
            await until(lambda: "FailedScheduling" in server.events("another"))
            status = {"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2,
                                 "desiredHealthy": 1, "expectedPods": 2}}  # fmt: skip
            server.ask("PATCH", f"{policy}/keep/status", status, "application/merge-patch+json")
            await until(lambda: server.where("another"))

    asyncio.run(main())
    server.ask("DELETE", f"{policy}/keep")


def test_a_dry_run_needs_no_right_to_write(server: Server, client: Any) -> None:
    server.node("n1", "1")
    lines = list[str]()

    async def main() -> None:
        server.pod("a")
        async with scheduler(client, advise=lines.append):
            await until(lambda: lines)
            server.pod("b")
            await until(lambda: len(lines) == 2)

    asyncio.run(main())
    assert lines[0] == "default/a: n1" and lines[1].startswith("default/b: waits: ")
    assert not server.where("a") and not server.events("b")


def test_labels_of_a_node_that_change(server: Server, client: Any) -> None:
    server.node("n1")

    async def main() -> None:
        async with scheduler(client):
            server.pod("p", nodeSelector={"disk": "ssd"})
            await until(lambda: "FailedScheduling" in server.events("p"))
            server.ask("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"disk": "ssd"}}}, MERGE)
            await until(lambda: server.where("p") == "n1")

    asyncio.run(main())
