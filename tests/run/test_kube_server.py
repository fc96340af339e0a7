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


def spread(key: str) -> list[Any]:
    select = {"matchLabels": {"app": "x"}}
    return [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": select}]


def test_a_spread_counts_each_pod_once_when_a_node_changes_its_zone(server: Server, client: Any) -> None:
    for name in ("n1", "n2", "n3"):
        server.node(name, labels={"zone": "a"})
    server.ask("PATCH", "/api/v1/nodes/n3", {"spec": {"unschedulable": True}}, MERGE)

    def made(*names: str) -> set[str | None]:
        for name in names:
            server.pod(name, labels={"app": "x"}, topologySpreadConstraints=spread("zone"))
        return set(names)

    async def main() -> None:
        async with scheduler(client):
            first = made("p0", "p1")
            await until(lambda: all(server.where(name) for name in first))
            server.ask("PATCH", "/api/v1/nodes/n3", {"metadata": {"labels": {"zone": "b"}}}, MERGE)
            server.ask("PATCH", "/api/v1/nodes/n3", {"spec": {"unschedulable": None}}, MERGE)
            await asyncio.sleep(0.5)  # pods and nodes have watches of their own
            second = made("p2", "p3")
            await until(lambda: all(server.where(name) for name in second))
            assert {server.where(name) for name in second} == {"n3"}

    asyncio.run(main())


def test_a_pod_displaces_others_only_where_its_rules_allow_it(server: Server, client: Any) -> None:
    """The node of its own kind is closed to it, although all pods there are of a lower priority."""
    apart = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    server.node("n1", "2", {"zone": "a"})
    server.node("n2", "2", {"zone": "b"})

    async def main() -> None:
        async with scheduler(client):
            server.pod("kept", labels={"app": "x"}, nodeSelector={"zone": "a"}, priorityClassName="low")
            server.pod("same", nodeSelector={"zone": "a"}, priorityClassName="low")
            server.pod("other", "2", nodeSelector={"zone": "b"}, priorityClassName="low")
            await until(lambda: all(server.where(name) for name in ("kept", "same", "other")))
            server.pod("high", labels={"app": "x"}, affinity=rule, priorityClassName="high")
            await until(lambda: server.where("high") == "n2")
            assert server.where("kept") == server.where("same") == "n1"

    asyncio.run(main())


def test_an_initial_container_runs_next_to_the_sidecars_before_it(server: Server, client: Any) -> None:
    def container(name: str, cpu: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "image": "i", "resources": {"requests": {"cpu": cpu}}, **more}

    server.node("n1", "4")

    async def main() -> None:
        async with scheduler(client):
            sidecar = container("s", "250m", restartPolicy="Always")
            server.pod("a", "3900m", initContainers=[sidecar])
            server.pod("b", "100m", initContainers=[sidecar, container("i", "3900m")])
            await until(lambda: {"FailedScheduling"} == server.events("a") == server.events("b"))
            server.pod("c", "100m", initContainers=[container("i", "3750m"), sidecar])
            await until(lambda: server.where("c") == "n1")
            server.pod("d", "1")
            await until(lambda: "FailedScheduling" in server.events("d"))

    asyncio.run(main())


def test_a_pod_that_waits_and_is_made_again_at_once_is_another_one(server: Server, client: Any) -> None:
    server.node("n1", "2")
    claim = [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]

    async def main() -> None:
        async with scheduler(client) as one:
            for _ in range(5):
                server.pod("head", volumes=claim)
                await until(lambda: "FailedScheduling" in server.events("head"))
                server.ask("DELETE", "/api/v1/namespaces/default/pods/head?gracePeriodSeconds=0")
                server.ask("DELETE", "/api/v1/namespaces/default/events")
            server.pod("head", "2")
            await until(lambda: server.where("head") == "n1")
            assert one._driver is not None and len(one._driver.scheduler.cluster.tasks) == 1

    asyncio.run(main())


def test_a_node_that_closes_while_its_victim_ends_is_given_up(server: Server, client: Any) -> None:
    server.node("n1", "1")
    path = "/api/v1/namespaces/default/pods/low"

    async def main() -> None:
        async with scheduler(client):
            server.pod("low", priorityClassName="low")
            await until(lambda: server.where("low"))
            server.ask("PATCH", path, {"metadata": {"finalizers": ["example.com/hold"]}}, MERGE)
            server.pod("high", priorityClassName="high")
            await until(lambda: "deletionTimestamp" in server.get("low")["metadata"])
            closed = {"spec": {"taints": [{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]}}
            server.ask("PATCH", "/api/v1/nodes/n1", closed, MERGE)
            server.node("n2", "1")
            try:
                await until(lambda: server.where("high") == "n2")
            finally:
                server.ask("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)

    asyncio.run(main())
