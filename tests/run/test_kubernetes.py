"""Pods of a cluster's stand-in: their ends, nodes, watches that are too old, lost answers, and drivers that are killed."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("kubernetes")

from killed_drivers import dying, kill_again_and_again
from kube import Kube, kube

import flowsched as fs
from bench.kubernetes.verify import broken
from flowsched.rounds.values import Migrate
from flowsched.run import Command, Driver, ExitStatusError
from flowsched.run.kubernetes import KubernetesError, KubernetesExecutor
from flowsched.run.podfeed import Feed, Reports

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes in place of containers")

RESOURCES = ("cpu", "mem")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Kube, Any]]:
    (tmp_path / "logs").mkdir()
    with kube(tmp_path / "logs") as (state, client):
        state.node("n1")
        state.node("n2")
        yield state, client


def drive(client: Any, act: Callable[[Driver], Any], policy: Any = None, **options: Any) -> Any:
    async def main() -> Any:
        executor = KubernetesExecutor(RESOURCES, client=client, **options)
        async with asyncio.timeout(60), Driver(fs.Scheduler(policy, resources=RESOURCES), executor) as one:
            return await act(one)

    return asyncio.run(main())


def tasks(commands: dict[str, Any], cpu: float = 1) -> fs.JobSubmitted:
    return fs.JobSubmitted("job", [fs.Task(id, {"cpu": cpu}) for id in commands])


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.02)


def pod(line: str, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    container = {
        "name": "run",
        "image": "any",
        "command": ["/bin/sh", "-c", line],
        "resources": {"requests": {"cpu": cpu}},
    }
    return {"spec": {"containers": [container], **spec}}


def test_ends_of_pods(tmp_path: Path, cluster: tuple[Kube, Any]) -> None:
    state, client = cluster

    async def act(one: Driver) -> dict[str, Any]:
        commands = {
            "good": Command('echo "$WHO $NODE"', {"WHO": "a b"}, output=tmp_path / "out"),
            "bad": ["sh", "-c", "exit 3"],
            "killed": "kill -9 $$",
            "own": {"metadata": {"labels": {"a": "b"}}} | pod("exit 4"),
            "nonsense": 17,
        }
        futures = one.submit(tasks(commands), commands)
        ends = await asyncio.gather(*futures.values(), return_exceptions=True)
        return dict(zip(futures, ends, strict=True))

    ends = drive(client, act)
    assert ends["good"] == 0 and (tmp_path / "out").read_text() in ("a b n1\n", "a b n2\n")
    status = {task: error.status for task, error in ends.items() if isinstance(error, ExitStatusError)}
    assert status == {"bad": 3, "killed": 137, "own": 4}
    assert isinstance(ends["nonsense"], fs.InputError)
    assert state.pods == {}


def test_a_node_has_what_pods_of_others_leave(cluster: tuple[Kube, Any]) -> None:
    state, client = cluster
    state.dead.add("n1")  # its kubelet does nothing with them
    for name, cpu in (("a", "500m"), ("b", "1")):
        body = {"metadata": {"name": name}} | pod("true", cpu, schedulerName="other")
        state.create("system", body)
        state.bind(f"/api/v1/namespaces/system/pods/{name}", {"target": {"name": "n1"}})
    taints = [
        {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/x", "effect": "NoSchedule"},
    ]
    state.node("n2", "3900m", taints=taints)

    async def act(one: Driver) -> None:
        machines = one.scheduler.cluster.machines
        free = {name: record.machine for name, record in machines.items()}
        await until(lambda: len(machines) == 2)
        assert free["n1"].capacity == {"cpu": 2.5, "mem": 4096} and free["n1"].slots == 18
        assert free["n2"].capacity == {"cpu": 3.9, "mem": 4096} and free["n2"].slots == 20
        assert free["n2"].taints == (("gpu", "yes", "NoSchedule"), ("node.kubernetes.io/x", "", "NoSchedule"))
        assert free["n1"].labels == {"zone": "z-n1"}
        state.delete("/api/v1/namespaces/system/pods/a")
        state.remove("/api/v1/namespaces/system/pods/a")
        await until(lambda: machines["n1"].machine.capacity["cpu"] == 3)
        state.node("n3")
        await until(lambda: "n3" in machines)
        with state.lock:
            state.change("nodes", "DELETED", state.nodes.pop("n3"))
        await until(lambda: "n3" not in machines)

    drive(client, act)


def test_a_pod_is_stopped_by_its_deletion(tmp_path: Path, cluster: tuple[Kube, Any]) -> None:
    state, client = cluster

    async def act(one: Driver) -> None:
        commands = dict.fromkeys("abc", f"echo $$ >> {tmp_path}/pids; sleep 1000")
        futures = one.submit(tasks(commands), commands, time_limit=1.0)
        await until(lambda: (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 3)
        one.cancel("a")
        ends = await asyncio.gather(*futures.values(), return_exceptions=True)
        assert isinstance(ends[0], asyncio.CancelledError)
        assert all(isinstance(end, fs.TimeLimitError) for end in ends[1:])
        one.submit(fs.JobSubmitted("more", [fs.Task("d", {"cpu": 1})]), {"d": "sleep 1000"})
        await until(lambda: state.running)

    drive(client, act)
    assert state.pods == {} and state.running == {}


@pytest.mark.long
def test_watches_that_end_or_are_too_old_and_answers_that_are_lost(tmp_path: Path, cluster: tuple[Kube, Any]) -> None:
    """Every task is begun once and done once."""
    state, client = cluster
    line = f"echo $0 >> {tmp_path}/begun; sleep 0.05; echo $0 >> {tmp_path}/done"
    commands = {f"t{i}": ["sh", "-c", line, f"t{i}"] for i in range(60)}

    async def act(one: Driver) -> None:
        futures = asyncio.gather(*one.submit(tasks(commands), commands).values())
        turns = 0
        while not futures.done():
            await asyncio.sleep(0.25)
            with state.lock:
                state.broken = 4
            (state.forget, state.cut)[turns % 2]()
            turns += 1
        assert turns > 2 and await futures == [0] * 60
        assert "lost" not in one.stats and "failed" not in one.stats
        state.broken = 0

    drive(client, act)
    for name in ("begun", "done"):
        assert sorted((tmp_path / name).read_text().split()) == sorted(commands)
    assert state.pods == {}


def test_a_node_that_is_not_ready_and_one_that_is_cordoned(tmp_path: Path, cluster: tuple[Kube, Any]) -> None:
    state, client = cluster
    with state.lock:
        state.change("nodes", "DELETED", state.nodes.pop("n2"))
    line = f"echo $NODE >> {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"

    async def act(one: Driver) -> None:
        machines = one.scheduler.cluster.machines
        futures = one.submit(tasks(commands := dict.fromkeys("abcd", line)), commands)
        await until(lambda: len(state.running) == 4)
        state.node("n2", unschedulable=True)
        state.node("n1", ready=False)
        await until(lambda: machines["n1"].drained)
        assert "n2" not in machines
        state.node("n1")
        await until(lambda: not machines["n1"].drained)
        assert "lost" not in one.stats
        state.node("n2")
        state.power_off("n1")
        state.node("n1", ready=False)
        await until(lambda: "n1" not in machines)
        await until(lambda: (tmp_path / "begun").read_text().split() == ["n1"] * 4 + ["n2"] * 4)
        state.node("n2", unschedulable=True)
        await until(lambda: machines["n2"].drained)
        state.power_on("n1")
        await until(lambda: "n1" in machines)
        (tmp_path / "go").touch()
        assert await asyncio.gather(*futures.values()) == [0] * 4
        assert one.stats["lost"] == 4 and "failed" not in one.stats

    drive(client, act, lost=0.3)
    assert state.pods == {}


@pytest.mark.parametrize("cordoned", [False, True])
@pytest.mark.long
def test_a_run_on_a_node_that_takes_no_pods_now_is_found_by_the_next_driver(
    tmp_path: Path, cluster: tuple[Kube, Any], cordoned: bool
) -> None:
    """The pod runs on, so it is neither deleted nor made a second time; a node that is not ready for too long is gone."""
    state, client = cluster
    line = f"echo $NODE >> {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"

    def driver() -> Driver:
        sched = fs.Scheduler(resources=RESOURCES, journal=tmp_path / "journal")
        return Driver(sched, KubernetesExecutor(RESOURCES, client=client, name="mine", lost=0.5))

    async def first() -> str:
        async with dying(driver()) as one:
            one.submit(tasks({"a": line}), {"a": line})
            await until(lambda: (tmp_path / "begun").exists() and (tmp_path / "begun").read_text().endswith("\n"))
        return (tmp_path / "begun").read_text().strip()

    async def second(node: str) -> None:
        one = driver()
        future = one.attach({"a": line})["a"]
        async with asyncio.timeout(60), one:
            assert [run.machine for run in one.running()] == [node] and one.scheduler.cluster.machines[node].drained
            await asyncio.sleep(0.1)
            assert not {"lost", "started"} & one.stats.keys()
            if cordoned:
                await asyncio.sleep(0.6)
                (tmp_path / "go").touch()
            else:
                state.power_off(node)
                await until(lambda: node not in one.scheduler.cluster.machines)
                (tmp_path / "go").touch()
                await asyncio.sleep(0.6)
                assert node not in one.scheduler.cluster.machines
                state.power_on(node)
            assert await future == 0
            assert one.stats.get("lost", 0) == (not cordoned)

    node = asyncio.run(first())
    state.node(node, ready=cordoned, **({"unschedulable": True} if cordoned else {}))
    asyncio.run(second(node))
    assert len((tmp_path / "begun").read_text().split()) == 2 - cordoned


def test_pods_that_wait_for_the_scheduler_are_its_tasks(tmp_path: Path, cluster: tuple[Kube, Any]) -> None:
    """The way of a scheduler beside kube-scheduler: pods are made by others, and stay theirs."""
    state, client = cluster

    def make(name: str, line: str, cpu: str = "1", **spec: Any) -> str:
        state.create("users", {"metadata": {"name": name}} | pod(line, cpu, **({"schedulerName": "flowsched"} | spec)))
        return f"/api/v1/namespaces/users/pods/{name}"

    def phase(name: str) -> str:
        return str(state.pods[f"/api/v1/namespaces/users/pods/{name}"]["status"]["phase"])

    make("early", f"echo $NODE > {tmp_path}/early", nodeSelector={"zone": "z-n2"})
    make("foreign", "true", schedulerName="default-scheduler")

    async def act(one: Driver) -> None:
        assert isinstance(one.executor, KubernetesExecutor)
        one.executor.feed(one)
        make("late", "exit 2")
        big = make("big", "true", "100")
        await until(lambda: phase("early") == "Succeeded" and phase("late") == "Failed")
        await until(lambda: one.last is not None and big in one.last.waiting)
        with state.lock:
            state.remove(big)
        long = make("long", "sleep 1000")
        await until(lambda: phase("long") == "Running")
        state.delete(long)
        await one.drained()
        assert one.stats["started"] == 3 and not one.scheduler.cluster.tasks

    drive(client, act)
    assert (tmp_path / "early").read_text() == "n2\n" and phase("foreign") == "Pending"
    assert {path.rpartition("/")[2] for path in state.pods} == {"early", "late", "foreign"}


def test_a_pod_that_another_scheduler_binds_first_is_lost_to_it(cluster: tuple[Kube, Any]) -> None:
    state, client = cluster
    bind = state.bind

    def first(path: str, binding: Any) -> Any:
        state.bind = bind  # type: ignore[method-assign]
        state.dead.add("elsewhere")
        bind(path, {"target": {"name": "elsewhere"}})
        return bind(path, binding)

    state.bind = first  # type: ignore[method-assign]

    async def act(one: Driver) -> dict[str, int]:
        assert await one.submit(tasks({"a": "true"}), {"a": "true"})["a"] == 0
        return one.stats

    stats = drive(client, act)
    assert stats["lost"] == 1 and stats["ended"] == 1


def test_what_the_server_refuses_is_a_failure(cluster: tuple[Kube, Any]) -> None:
    _, client = cluster

    async def act(one: Driver) -> None:
        with pytest.raises(KubernetesError, match="422") as caught:
            await one.submit(tasks({"a": "true"}), {"a": "true"})["a"]
        assert caught.value.status == 422

    drive(client, act, name="No_Name")


def test_pods_that_were_made_and_not_bound_have_done_nothing_and_are_deleted(cluster: tuple[Kube, Any]) -> None:
    state, client = cluster
    labels = {"flowsched/driver": "mine"}
    for name, about in (("mine-0-1", labels), ("other-0-1", {"flowsched/driver": "other"})):
        state.create("default", {"metadata": {"name": name, "labels": about}} | pod("true", schedulerName="flowsched"))

    async def act(one: Driver) -> None:
        await until(lambda: len(state.pods) == 1)
        assert not one.running()

    drive(client, act, name="mine")
    assert [path.rpartition("/")[2] for path in state.pods] == ["other-0-1"]


@pytest.mark.long
def test_a_driver_that_is_killed_again_and_again(tmp_path: Path, cluster: tuple[Kube, Any]) -> None:
    state, client = cluster
    imports = f"""
from kubernetes import client
from flowsched.run.kubernetes import KubernetesExecutor
settings = client.Configuration()
settings.host = {client.configuration.host!r}
settings.api_key, settings.api_key_prefix = {{"authorization": "secret"}}, {{"authorization": "Bearer"}}
"""
    code = "KubernetesExecutor(('cpu',), client=client.ApiClient(settings), name='mine')"
    kill_again_and_again(tmp_path, imports, code, 30, step=0.2)
    assert state.pods == {}


@pytest.mark.long
def test_the_command_line(tmp_path: Path, cluster: tuple[Kube, Any]) -> None:
    state, client = cluster
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": client.configuration.host}}],
        "users": [{"name": "u", "user": {"token": state.token}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    (tmp_path / "jobs.toml").write_text('[[job]]\nname = "a"\ncount = 4\ncommand = "echo $FLOWSCHED_INDEX"\n')
    environment = os.environ | {"PYTHONPATH": str(Path(fs.__file__).parents[1]), "KUBECONFIG": str(tmp_path / "config")}
    command = [sys.executable, "-m", "flowsched", "run", "jobs.toml", "--on", "kubernetes:any"]
    options: dict[str, Any] = {"cwd": tmp_path, "capture_output": True, "text": True, "check": False}
    done = subprocess.run(command, env=environment, **options)
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / f"jobs.out/a.{i}.log").read_text() for i in range(4)] == [f"{i}\n" for i in range(4)]
    done = subprocess.run(command, env=environment | {"KUBECONFIG": str(tmp_path / "none")}, **options)
    assert done.returncode == 2 and done.stderr.startswith("Error: Kubernetes: "), done.stderr


@pytest.mark.parametrize("odd", [{}, {"allocatable": {"cpu": "four"}}, {"allocatable": [1]}, {"conditions": [1]}, None])
def test_a_node_that_is_not_understood_leaves_the_others(tmp_path: Path, cluster: tuple[Kube, Any], odd: Any) -> None:
    state, client = cluster

    async def act(one: Driver) -> None:
        there = one.scheduler.cluster.machines
        await until(lambda: len(there) == 2)
        node = json.loads(json.dumps(state.nodes["n2"]))
        status = node.pop("status")
        if odd is not None:
            node["status"] = {"conditions": status["conditions"], **odd}
        state.change("nodes", "MODIFIED", node)
        await until(lambda: "n2" not in there or there["n2"].drained)
        futures = one.submit(tasks({f"t{i}": "true" for i in range(6)}), {f"t{i}": ["true"] for i in range(6)})
        assert await asyncio.gather(*futures.values()) == [0] * 6
        state.change("nodes", "MODIFIED", {**node, "status": status})
        await until(lambda: "n2" in there and not there["n2"].drained)

    drive(client, act)


# -- pods of others ---------------------------------------------------------------------------------------------------


def make(state: Kube, name: str, cpu: str = "1", labels: Any = None, line: str = "sleep 1000", **spec: Any) -> str:
    about = {"name": name, "labels": labels or {}}
    state.create("users", {"metadata": about} | pod(line, cpu, **({"schedulerName": "flowsched"} | spec)))
    return f"/api/v1/namespaces/users/pods/{name}"


def feed(one: Driver) -> None:
    assert isinstance(one.executor, KubernetesExecutor)
    one.executor.feed(one)


def where(state: Kube, path: str) -> Any:
    return state.pods[path]["spec"].get("nodeName") if path in state.pods else None


def why(state: Kube, path: str) -> Any:
    conditions = {one["type"]: one for one in state.pods[path]["status"].get("conditions", ())}
    one = conditions.get("PodScheduled", {})
    return one.get("reason"), one.get("message", "")


def test_a_pod_that_is_not_understood_waits_and_says_so(cluster: tuple[Kube, Any]) -> None:
    state, client = cluster
    admitted = [
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    ]

    async def act(one: Driver) -> None:
        feed(one)
        odd = make(state, "odd", volumes=[{"name": "v", "rbd": {}}])
        bad = make(state, "bad", "four")
        gated = make(state, "gated", schedulingGates=[{"name": "g"}])
        big = make(state, "big", "64")
        plain = make(state, "plain", tolerations=admitted)
        await until(lambda: where(state, plain) and all(why(state, path)[0] for path in (odd, bad, big)))
        assert why(state, odd) == ("UNSUPPORTED", "UNSUPPORTED: spec.volumes[0].rbd")
        assert why(state, bad) == ("UNSUPPORTED", "UNSUPPORTED: a quantity expected, got 'four'")
        assert why(state, big)[0] == "Unschedulable" and why(state, big)[1].startswith("NEVER_FITS: 2 nodes")
        assert not any(where(state, path) for path in (odd, bad, gated, big)) and why(state, gated) == (None, "")
        with state.lock:
            del state.pods[gated]["spec"]["schedulingGates"]
            state.change("pods", "MODIFIED", state.pods[gated])
        await until(lambda: ("gated", "Scheduled") in {event[:2] for event in state.events})

    drive(client, act)
    assert {("odd", "FailedScheduling"), ("plain", "Scheduled"), ("gated", "Scheduled")} <= {
        e[:2] for e in state.events
    }
    assert ("odd", "FailedScheduling", "UNSUPPORTED: spec.volumes[0].rbd") in state.events
    assert len(state.events) == len({e[:2] for e in state.events}), "one report for each reason"


def test_a_cordoned_node_takes_the_pods_that_tolerate_it(cluster: tuple[Kube, Any]) -> None:
    state, client = cluster
    for name in ("n1", "n2"):
        state.node(name, unschedulable=True)

    async def act(one: Driver) -> None:
        feed(one)
        other = make(state, "other")
        some = make(state, "some", tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
        await until(lambda: where(state, some) and why(state, other)[0])
        assert "taint node.kubernetes.io/unschedulable" in why(state, other)[1]
        state.node("n2")
        await until(lambda: where(state, other) == "n2")

    drive(client, act)


def test_a_pod_that_others_leave_no_room_is_not_said_to_be_too_large(cluster: tuple[Kube, Any]) -> None:
    state, client = cluster
    state.dead = {"n1", "n2"}
    for node in ("n1", "n2"):
        state.bind(make(state, f"on-{node}", "3", schedulerName="other"), {"target": {"name": node}})

    async def act(one: Driver) -> None:
        feed(one)
        paths = {cpu: make(state, f"p{cpu}", cpu) for cpu in ("2", "5")}
        await until(lambda: all(why(state, path)[0] for path in paths.values()))
        assert [why(state, path)[1].partition(":")[0] for path in paths.values()] == ["NO_FIT", "NEVER_FITS"]

    drive(client, act)


def test_pods_that_were_bound_outlive_the_driver(cluster: tuple[Kube, Any]) -> None:
    state, client = cluster

    async def act(one: Driver) -> None:
        feed(one)
        path = make(state, "long")
        await until(lambda: state.pods[path]["status"]["phase"] == "Running")

    drive(client, act)
    (long,) = state.pods.values()
    assert long["status"]["phase"] == "Running" and "deletionTimestamp" not in long["metadata"]


def test_a_pod_of_the_same_name_is_another_one(cluster: tuple[Kube, Any]) -> None:
    """The first one is deleted and made again while the watches are cut."""
    state, client = cluster

    async def act(one: Driver) -> None:
        feed(one)
        path = make(state, "web-0")
        await until(lambda: where(state, path))
        with state.lock:
            first = state.pods[path]["metadata"]["uid"]
            state.forget()
            process = state.running.pop(path, None)
            state.remove(path)
            make(state, "web-0")
            state.forget()
        await until(lambda: where(state, path) and state.pods[path]["metadata"]["uid"] != first)
        assert path in one.scheduler.cluster.tasks
        if process is not None:
            process.kill()
            process.wait()

    drive(client, act)


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def test_pods_that_keep_apart_take_turns(cluster: tuple[Kube, Any]) -> None:
    state, client = cluster
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
    apart = {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}

    async def act(one: Driver) -> None:
        feed(one)
        state.node("n3")
        paths = [make(state, f"p{i}", labels={"app": "x"}, **apart) for i in range(4)]
        await until(lambda: sum(bool(where(state, path)) for path in paths) == 3)
        (left,) = (path for path in paths if not where(state, path))
        await until(lambda: why(state, left)[0])
        assert {where(state, path) for path in paths} == {"n1", "n2", "n3", None}
        assert why(state, left)[0] == "Unschedulable" and "spec.affinity.podAntiAffinity" in why(state, left)[1]
        other = make(state, "other", labels={"app": "y"})
        await until(lambda: where(state, other))
        with state.lock:
            gone = next(path for path in paths if where(state, path) == "n2")
            state.delete(gone)
        await until(lambda: where(state, left) == "n2")

    drive(client, act)


def test_a_wave_of_pods_with_rules_keeps_to_them(cluster: tuple[Kube, Any]) -> None:
    """The policy has no reason to keep pods apart, so many of the places that it decides break a rule."""
    state, client = cluster
    like = {"matchLabels": {"app": "x"}}
    apart = {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone", "labelSelector": like}]}}}
    even = {"topologySpreadConstraints": [
        {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "y"}}}
    ]}  # fmt: skip

    for i in range(3, 7):
        state.node(f"n{i}")

    async def act(one: Driver) -> None:
        specs = [("x", apart)] * 8 + [("y", even)] * 12 + [("x", {})] * 2
        paths = [make(state, f"p{i}", "100m", labels={"app": app}, **spec) for i, (app, spec) in enumerate(specs)]
        feed(one)
        await until(lambda: all(where(state, path) for path in paths[8:20]))
        await until(lambda: all(where(state, path) or why(state, path)[0] for path in paths))
        with state.lock:
            nodes, pods = list(state.nodes.values()), list(state.pods.values())
        assert not broken(nodes, pods)
        assert sum(bool(where(state, path)) for path in paths[:8]) + bool(where(state, paths[20])) in (5, 6)

    drive(client, act, fs.Policy.named("pack"))


@pytest.mark.parametrize("budget", [0, 1])
def test_a_victim_goes_within_its_disruption_budget(cluster: tuple[Kube, Any], budget: int) -> None:
    state, client = cluster
    with state.lock:
        state.change("nodes", "DELETED", state.nodes.pop("n2"))
    about = {"name": "keep", "namespace": "users"}
    keep = {"metadata": about, "spec": {"selector": {}}, "status": {"disruptionsAllowed": budget}}
    state.others["poddisruptionbudgets"] = [keep]

    async def act(one: Driver) -> None:
        feed(one)
        low = make(state, "low", "4")
        await until(lambda: where(state, low) and state.running)
        never = make(state, "never", "4", priority=20, preemptionPolicy="Never")
        await until(lambda: why(state, never)[0] == "Unschedulable")
        high = make(state, "high", "4", priority=10)
        if budget:
            await until(lambda: where(state, high) == "n1")
            await until(lambda: state.pods[high]["status"].get("nominatedNodeName") == "n1")
            assert low not in state.pods
            assert not where(state, never)
        else:
            await until(lambda: why(state, high)[0] == "Unschedulable")
            await asyncio.sleep(0.5)
            assert (
                where(state, low) == "n1"
                and not where(state, high)
                and "deletionTimestamp" not in state.pods[low]["metadata"]
            )

    drive(client, act)
    assert (("low", "Preempted") in {e[:2] for e in state.events}) == bool(budget)


def test_pods_that_are_bound_are_taken_over_with_their_age(cluster: tuple[Kube, Any]) -> None:
    """So they may be displaced, and their namespace has its share of the cluster."""
    state, client = cluster
    state.dead = {"n1", "n2", "n3"}
    for name, node, spec in (
        ("old", "n1", {"schedulerName": "flowsched"}),
        ("new", "n2", {"schedulerName": "flowsched"}),
        ("strange", "n2", {"schedulerName": "other"}),
        ("away", "n3", {"schedulerName": "flowsched"}),
        ("gone", "n3", {"schedulerName": "flowsched"}),
    ):
        path = make(state, name, "2", **spec)
        state.pods[path]["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{'10' if name == 'new' else '05'}Z"
        state.bind(path, {"target": {"name": node}})

    async def act(one: Driver) -> None:
        feed(one)
        tasks = one.scheduler.cluster.tasks
        old, new = (f"/api/v1/namespaces/users/pods/{name}" for name in ("old", "new"))
        await until(lambda: len(tasks) == 2)
        assert tasks.keys() == {old, new} and tasks[old].group.job.job.user == "users"
        assert tasks[new].began - tasks[old].began == 5
        free = {name: record.machine.capacity["cpu"] for name, record in one.scheduler.cluster.machines.items()}
        assert free == {"n1": 4, "n2": 2}, "a run takes room that is there"
        state.remove("/api/v1/namespaces/users/pods/gone")
        state.node("n3")
        await until(lambda: "/api/v1/namespaces/users/pods/away" in tasks)
        assert len(tasks) == 3
        high = make(state, "high", "4", priority=10)
        await until(lambda: "deletionTimestamp" in state.pods[old]["metadata"])
        assert not where(state, high)
        state.remove(old)
        await until(lambda: where(state, high) == "n1")

    drive(client, act)
    assert {path.rpartition("/")[2] for path in state.pods} == {"new", "strange", "away", "high"}


def test_a_victim_of_a_budget_that_is_used_up_meanwhile_stays(cluster: tuple[Kube, Any]) -> None:
    """The server decides: the watch of the budget may be late."""
    state, client = cluster
    with state.lock:
        state.change("nodes", "DELETED", state.nodes.pop("n2"))

    async def act(one: Driver) -> None:
        feed(one)
        low = make(state, "low", "4")
        await until(lambda: where(state, low) and state.running)
        about = {"name": "keep", "namespace": "users"}
        keep = {"metadata": about, "spec": {"selector": {}}, "status": {"disruptionsAllowed": 0}}
        state.others["poddisruptionbudgets"] = [keep]  # no event
        high = make(state, "high", "4", priority=10)
        await until(lambda: state.pods[high]["status"].get("nominatedNodeName"))
        await asyncio.sleep(0.5)
        assert "deletionTimestamp" not in state.pods[low]["metadata"] and not where(state, high)
        keep["status"] = {"disruptionsAllowed": 1}
        await until(lambda: where(state, high) == "n1")

    drive(client, act)


def test_pods_wait_where_they_are_when_the_driver_ends(cluster: tuple[Kube, Any]) -> None:
    state, client = cluster

    async def act(one: Driver) -> None:
        feed(one)
        state.busy = 10**6
        make(state, "p")
        await until(lambda: one.stats.get("started"))

    drive(client, act)
    state.busy = 0
    (pod,) = state.pods.values()
    assert "deletionTimestamp" not in pod["metadata"]


def test_lists_come_in_pages_and_refusals_are_repeated(cluster: tuple[Kube, Any]) -> None:
    state, client = cluster
    state.page, state.expired = 2, 1
    for i in range(5):
        state.node(f"more{i}")
    state.busy = 3

    async def act(one: Driver) -> None:
        assert len(one.scheduler.cluster.machines) == 7
        feed(one)
        path = make(state, "p")
        state.busy = 5
        await until(lambda: where(state, path))

    drive(client, act)
    assert max(state.pages) == 2 and state.busy == state.expired == 0


def test_a_refusal_of_the_right_to_read_is_an_error_at_once(cluster: tuple[Kube, Any]) -> None:
    state, client = cluster
    state.denied = {"pods"}
    with pytest.raises(KubernetesError, match="403 pods is forbidden"):
        drive(client, lambda one: None)


@pytest.mark.parametrize(("topology", "placed"), [([], 4), ([{"key": "zone"}], 0)])
def test_a_pod_group_is_a_gang(cluster: tuple[Kube, Any], topology: list[Any], placed: int) -> None:
    """Four pods of two CPUs need two nodes, each of which is a zone of its own."""
    state, client = cluster
    spec = {"schedulingPolicy": {"gang": {"minCount": 4}}, "schedulingConstraints": {"topology": topology}}
    state.others["podgroups"] = [{"metadata": {"name": "g", "namespace": "users"}, "spec": spec}]

    async def act(one: Driver) -> None:
        feed(one)
        member = {"schedulingGroup": {"podGroupName": "g"}}
        paths = [make(state, f"g{i}", "2", **member) for i in range(3)]
        await until(lambda: all("GANG_SHORT" in why(state, path)[1] for path in paths))
        paths.append(make(state, "g3", "2", **member))
        lost = make(state, "lost", schedulingGroup={"podGroupName": "none"})
        await until(lambda: why(state, lost)[0] == "UNSUPPORTED")
        if placed:
            await until(lambda: all(where(state, path) for path in paths))
        else:
            await until(lambda: why(state, paths[3])[0] == "Unschedulable")
            state.node("n3", "8")
            await until(lambda: all(where(state, path) == "n3" for path in paths))

    drive(client, act)


@pytest.mark.parametrize("apart", [False, True])
def test_a_pod_that_was_not_permitted_is_tried_again(
    cluster: tuple[Kube, Any], monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    state, client = cluster
    permitted, refused = KubernetesExecutor.permitted, list[Any]()

    def first_refused(executor: KubernetesExecutor, round: fs.Round) -> Any:
        if round.placements and not refused:
            refused.extend(round.placements)
            return ()
        return permitted(executor, round)

    monkeypatch.setattr(KubernetesExecutor, "permitted", first_refused)
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
    spec = {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}} if apart else {}

    async def act(one: Driver) -> None:
        feed(one)
        paths = [make(state, f"p{i}", labels={"app": "x"}, **spec) for i in range(2)]
        await until(lambda: all(where(state, path) for path in paths))
        assert refused

    drive(client, act)


@pytest.mark.parametrize(
    ("preempted", "migrated", "bound", "starts"),
    [
        ({"/a": "/new"}, {}, ["/a"], True),
        ({"/keep": "/new"}, {}, ["/keep"], False),
        ({"/a": "/new"}, {}, [], False),
        ({}, {"/a": "/new"}, ["/a"], True),
        ({"/b": "/a"}, {"/a": "/new"}, ["/a", "/b"], False),
    ],
    ids=["plain", "budget", "not bound yet", "migration", "for a victim"],
)
def test_pods_that_may_be_displaced(
    preempted: dict[str, str], migrated: dict[str, str], bound: list[str], starts: bool
) -> None:
    """A pod displaces pods that are bound, within budgets, and none in vain: a victim does not start elsewhere."""

    def described(path: str, node: str | None) -> dict[str, Any]:
        about = {"name": path[1:], "namespace": "s", "uid": path, "labels": {"app": path[1:]}}
        return {
            "metadata": about,
            "spec": pod("")["spec"] | {"schedulerName": "flowsched"} | ({"nodeName": node} if node else {}),
        }

    async def main() -> Any:
        loop, tasks = asyncio.get_running_loop(), set[str]()

        def submit(job: fs.JobSubmitted, payloads: dict[str, str]) -> dict[str, asyncio.Future[Any]]:
            tasks.update(payloads)
            return {path: loop.create_future() for path in payloads}

        cluster = SimpleNamespace(tasks=tasks, placement=places.get)
        driver: Any = SimpleNamespace(
            closing=False,
            submit=submit,
            knows=lambda _: False,
            cancel=lambda _: None,
            scheduler=SimpleNamespace(cluster=cluster),
        )
        one = Feed(
            driver, ("cpu",), SimpleNamespace(nominate=lambda *_: None), lambda: None, lambda *_: None, ("flowsched",)
        )  # type: ignore[arg-type]
        one.complete()
        keep = {"metadata": {"name": "k", "namespace": "s"}, "spec": {"selector": {"matchLabels": {"app": "keep"}}}}
        one.see_object("poddisruptionbudgets", "s/k", keep)
        for path in ("/a", "/b", "/keep", "/new"):
            one.see(path, described(path, None))
        while len(tasks) < 4:  # a slow look is continued in a later turn
            await asyncio.sleep(0)
        one.decided(round_of(dict.fromkeys(("/a", "/b", "/keep"), "n"), {}, {}))
        for path in bound:
            one.see(path, described(path, "n"))
        return one.permitted(round_of({"/new": "n"}, preempted, migrated))

    def round_of(placed: dict[str, str], preempted: dict[str, str], migrated: dict[str, str]) -> Any:
        return SimpleNamespace(
            placements=placed,
            preemptions={path: SimpleNamespace(machine="n", by=by) for path, by in preempted.items()},
            migrations=dict.fromkeys(migrated, ("n", "m")),
            deltas=[Migrate(path, "n", "m", (), by) for path, by in migrated.items()],
            waiting={},
            gangs={},
        )

    places: dict[str, Any] = dict.fromkeys(("/a", "/b", "/keep"), "n") | {"/new": None}
    assert (asyncio.run(main()) is None) == starts


def test_reports_of_a_pod_are_written_in_order() -> None:
    written: list[str] = []

    class Slow:
        async def ask(self, method: str, path: str, body: Any) -> None:
            text = body["message"] if method == "POST" else body["status"]["conditions"][0]["message"]
            await asyncio.sleep(0.05 if text == "first" else 0)
            written.append(f"{method} {text}")

    async def main() -> None:
        tasks: list[asyncio.Task[None]] = []
        reports = Reports(Slow(), lambda act: tasks.append(asyncio.create_task(act)))  # type: ignore[arg-type]
        one = {"metadata": {"name": "p", "namespace": "s", "uid": "u"}, "spec": {}}
        for text in ("first", "second", "third"):
            reports.waits("/p", one, "Unschedulable", text)
            await asyncio.sleep(0.01)
        await reports.settled("/p")
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert written == ["POST first", "PATCH first"], "the others wait, and are dropped before the pod is bound"
