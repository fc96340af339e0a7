"""A workload under one scheduler: its operations on the API server, and the figures of the measured pods.

The protocol is that of scheduler_perf: the scheduler is there and idle, then the measured pods are created as fast as the
server takes them.  Times are those at which this process hears of things: of a creation by its answer, and of a binding by a
watch.  Both schedulers are processes of their own with all rights, and their CPU time is that of their process alone.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.kubernetes.plane import Client, Plane, Refused, kubeconfig
from bench.kubernetes.shapes import Workload
from bench.kubernetes.verify import broken

__all__ = ["GATES", "KUBE", "OURS", "Cluster", "Figures", "Process"]

OURS, KUBE = "flowsched", "default-scheduler"
"""Names of the schedulers in pods."""

GATES = "GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true,WorkloadAwarePreemption=true"
"""Features of 1.36 that pod groups need, of the API server and of kube-scheduler."""

_GROUPS = "/apis/scheduling.k8s.io/v1alpha2"
_CREATORS = 16
_NAME = re.compile(rb'"name":"([^"]+)","(?:generateName":"[^"]*",")?namespace":"([^"]+)"')


@dataclass(frozen=True, slots=True)
class Figures:
    """Result of a run.

    Parameters
    ----------
    pods : int
        Number of measured pods.
    times : list of float
        Seconds from creation to binding of those that were bound.
    span : float
        Seconds from the first creation to the last binding.
    cpu : float
        Seconds of CPU time of the scheduler during that time.
    memory : float
        Peak of its resident memory, in MiB.
    broken : list of str
        Rules of the API that the bound pods break.
    """

    pods: int
    times: list[float]
    span: float
    cpu: float
    memory: float
    broken: list[str]


class Process:
    """A scheduler as a process.

    Parameters
    ----------
    name : str
        `OURS` or `KUBE`.
    plane : Plane
    programs : Path
    folder : Path
        For its settings and its log.
    gates : str
        Feature gates of kube-scheduler.
    settings : sequence of str
        More lines of the file of settings.
    """

    def __init__(
        self, name: str, plane: Plane, programs: Path, folder: Path, gates: str = "", settings: Sequence[str] = ()
    ) -> None:
        self.name = name
        access = kubeconfig(folder / "kubeconfig", plane.port, plane.admin)
        if name == OURS:
            file = folder / "flowsched.toml"
            file.write_text("".join(f"{line}\n" for line in settings))
            command = [sys.executable, "-m", "flowsched", "kube-scheduler", "--config", str(file)]
        else:
            file = folder / "scheduler.yaml"
            lines = [
                "apiVersion: kubescheduler.config.k8s.io/v1",
                "kind: KubeSchedulerConfiguration",
                "leaderElection: {leaderElect: false}",
                f"clientConnection: {{kubeconfig: {json.dumps(str(access))}, qps: 5000, burst: 5000}}",
                *settings,
            ]
            file.write_text("".join(f"{line}\n" for line in lines))
            command = [str(programs / "scheduler"), "--config", str(file), "--secure-port", "0", "--v", "0"]
            if gates:
                command += ["--feature-gates", gates]
        with (folder / f"{name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env=os.environ | {"KUBECONFIG": str(access)}
            )
        self.pid = self._process.pid

    @property
    def cpu(self) -> float:
        """Seconds of CPU time until now."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory(self) -> float:
        """Peak of the resident memory, in MiB."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024

    @property
    def runs(self) -> bool:
        """True until it has ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Ask it to end, and wait."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()


class Bound:
    """The times at which pods were bound, as a watch reports them.

    Attributes
    ----------
    at : dict of str to float
        By ``NAMESPACE/NAME``.
    """

    def __init__(self, client: Client) -> None:
        self.at: dict[str, float] = {}
        self.moved: list[str] = []
        self._client, self._closed = client, False
        version = client.ask("GET", "/api/v1/pods?limit=1")["metadata"]["resourceVersion"]
        self._thread = threading.Thread(target=self._read, args=(version,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take note of no more pods."""
        self._closed = True

    def _read(self, version: str) -> None:
        query = "watch=1&fieldSelector=spec.nodeName!%3D&timeoutSeconds=3600"
        while not self._closed:
            try:
                answer = self._client.watch(f"/api/v1/pods?{query}&resourceVersion={version}")
                rest = b""
                while not self._closed and (chunk := answer.read1(1 << 20)):
                    now = time.perf_counter()
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        if line.startswith(b'{"type":"ADDED"') and (match := _NAME.search(line)):
                            self.at.setdefault(f"{match[2].decode()}/{match[1].decode()}", now)
            except (OSError, Refused):
                pass
            if not self._closed:  # the watch was cut: what has happened since counts from now on
                time.sleep(0.1)
                try:
                    answer = self._client.ask("GET", "/api/v1/pods?fieldSelector=spec.nodeName!%3D")
                except (OSError, Refused):
                    continue
                version = answer["metadata"]["resourceVersion"]
                for one in answer["items"]:
                    self.at.setdefault(f"{one['metadata']['namespace']}/{one['metadata']['name']}", time.perf_counter())


@dataclass
class Cluster:
    """The API server, the nodes of a workload, and runs of it.

    Parameters
    ----------
    client : Client
    rnd : random.Random
        Draws the order of nodes.
    """

    client: Client
    rnd: random.Random
    nodes: list[str] = field(default_factory=list)
    _spaces: set[str] = field(default_factory=set)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_CREATORS))
    _count: int = 0

    def set_nodes(self, workload: Workload) -> None:
        """Create the nodes of a workload in place of those that are there."""
        self.clean()
        self.client.ask("DELETE", "/api/v1/nodes")
        self.nodes = []
        for one in workload.operations:
            if one["opcode"] != "createNodes":
                continue
            values = (one.get("labelNodePrepareStrategy") or {}).get("labelValues")
            bodies = []
            for i in range(one["count"]):
                body = json.loads(json.dumps(one["template"]))
                about = body["metadata"]
                about["name"] = about.get("name") or f"{about.pop('generateName')}{i:05d}"
                labels = about.setdefault("labels", {})
                labels.setdefault("kubernetes.io/hostname", about["name"])
                if values:
                    labels[one["labelNodePrepareStrategy"]["labelKey"]] = values[i % len(values)]
                bodies.append(body)
            self.rnd.shuffle(bodies)
            list(self._pool.map(self._node, bodies))
            self.nodes += [body["metadata"]["name"] for body in bodies]

    def _node(self, body: Any) -> None:
        there = self.client.ask("POST", "/api/v1/nodes", body)
        if not (there.get("status") or {}).get("allocatable"):
            status = body["status"] | {"allocatable": body["status"]["capacity"]}
            kind = "application/strategic-merge-patch+json"
            self.client.ask("PATCH", f"/api/v1/nodes/{body['metadata']['name']}/status", {"status": status}, kind)

    def clean(self) -> None:
        """Delete all pods, pod groups and events."""
        for space in self._spaces:
            self.client.ask("DELETE", f"/api/v1/namespaces/{space}/pods?gracePeriodSeconds=0")
            self.client.ask("DELETE", f"/api/v1/namespaces/{space}/events")
            try:
                self.client.ask("DELETE", f"{_GROUPS}/namespaces/{space}/podgroups")
            except Refused as refused:
                if refused.status != 404:
                    raise
        while self._spaces and self.client.ask("GET", "/api/v1/pods?limit=1")["items"]:
            time.sleep(0.1)

    def _space(self, name: str) -> str:
        if name not in self._spaces:
            try:
                self.client.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
            except Refused as refused:
                if refused.status != 409:
                    raise
            self._spaces.add(name)
        return name

    def run(
        self, workload: Workload, start: Callable[[], Process], say: Callable[[str], None], limit: float = 300.0
    ) -> Figures:
        """Run a workload under a scheduler, on the nodes that are there.

        Parameters
        ----------
        workload : Workload
        start : callable
            Starts the scheduler.
        say : callable
        limit : float
            Seconds for the measured pods.
        """
        self.clean()
        process, bound, stop = start(), Bound(self.client), threading.Event()
        others: list[threading.Thread] = []
        try:
            self._await(self._create(process.name, "warm-up", [_pod("warm-up")]), bound, process, 120)
            self.client.ask("DELETE", f"/api/v1/namespaces/{self._space('warm-up')}/pods?gracePeriodSeconds=0")
            measured: Figures | None = None
            spaces = dict[str, list[str]]()
            for number, one in enumerate(workload.operations):
                code = one["opcode"]
                space = one.get("namespace") or f"namespace-{number}"
                if code in ("createPods", "createGangs"):
                    pods = self._pods(one, code, space)
                    begin, used = time.perf_counter(), process.cpu
                    created = self._create(process.name, space, pods)
                    spaces[space] = list(created)
                    if one.get("skipWaitToCompletion"):
                        continue
                    late = self._await(created, bound, process, limit)
                    if one.get("collectMetrics"):
                        times = sorted(bound.at[name] - at for name, at in created.items() if name in bound.at)
                        last = max((bound.at[name] for name in created if name in bound.at), default=begin)
                        measured = Figures(
                            len(pods), times, last - begin, process.cpu - used, process.memory, self._broken()
                        )
                    elif late:
                        raise RuntimeError(
                            f"{workload.name}: {process.name} leaves {late} of the first pods without a node"
                        )
                elif code == "churn":
                    others.append(threading.Thread(target=self._churn, args=(one, process.name, space, stop)))
                    others[-1].start()
                elif code == "deletePods":
                    names = spaces[space]
                    rate = float(one["deletePodsPerSecond"])
                    others.append(threading.Thread(target=self._delete, args=(names, rate, stop)))
                    others[-1].start()
                elif code == "barrier":
                    time.sleep(2.0)
                elif code == "createNamespaces":
                    for i in range(one["count"]):
                        self._space(f"{one['prefix']}-{i}")
                elif code != "createNodes":
                    raise NotImplementedError(code)
        finally:
            stop.set()
            for other in others:
                other.join()
            bound.close()
            process.end()
            self.clean()
        assert measured is not None
        return measured

    def _pods(self, one: dict[str, Any], code: str, space: str) -> list[Any]:
        if code == "createPods":
            return [one["template"]] * one["count"]
        self._space(space)
        pods = []
        for _ in range(one["count"]):
            self._count += 1
            name, size = (
                f"gang-{self._count}",
                one["size"],
            )  # a group that is deleted stays until a controller lets it go
            spec = {"schedulingPolicy": {"gang": {"minCount": size}}}
            self.client.ask(
                "POST", f"{_GROUPS}/namespaces/{space}/podgroups", {"metadata": {"name": name}, "spec": spec}
            )
            pod = json.loads(json.dumps(one["template"]))
            pod["spec"]["schedulingGroup"] = {"podGroupName": name}
            pods += [pod] * size
        return pods

    def _create(self, scheduler: str, space: str, pods: Sequence[Any]) -> dict[str, float]:
        """Create pods, and return the times of the answers by name."""
        self._space(space)
        texts = dict[int, tuple[bytes, bytes]]()
        for pod in pods:
            if id(pod) not in texts:
                body = json.loads(json.dumps(pod))
                body["spec"]["schedulerName"] = scheduler
                prefix = body["metadata"].pop("generateName", "pod-")
                body["metadata"]["name"] = f"{prefix}@"
                before, _, after = json.dumps(body).encode().partition(b"@")
                texts[id(pod)] = before, after
        first = self._count + 1
        self._count += len(pods)

        def create(i: int) -> tuple[str, float]:
            before, after = texts[id(pods[i])]
            number = b"%08d" % (first + i)
            text = before + number + after
            self.client.ask("POST", f"/api/v1/namespaces/{space}/pods", text)
            name = before.rpartition(b'"')[2] + number
            return f"{space}/{name.decode()}", time.perf_counter()

        return dict(self._pool.map(create, range(len(pods))))

    def _await(self, created: dict[str, float], bound: Bound, process: Process, limit: float) -> int:
        """Wait until pods are bound, and return the number of those that are not; ten seconds without one is enough."""
        end, before, still = time.perf_counter() + limit, -1, time.perf_counter()
        while left := sum(name not in bound.at for name in created):
            now = time.perf_counter()
            if left != before:
                before, still = left, now
            if now > end or now - still > min(limit, 30.0) or not process.runs:
                break
            time.sleep(0.02)
        return left

    def _churn(self, one: dict[str, Any], scheduler: str, space: str, stop: threading.Event) -> None:
        """Create objects at intervals, and in the mode ``recreate`` delete them in turn."""
        paths = list[str]()
        try:
            while not stop.wait(one["intervalMilliseconds"] / 1000):
                if one["mode"] == "recreate" and paths:
                    self._remove(paths)
                    continue
                for body in one["templates"]:
                    body = json.loads(json.dumps(body))
                    if body["kind"] == "Pod":
                        body["spec"]["schedulerName"] = scheduler
                    inside = "" if body["kind"] == "Node" else f"/namespaces/{self._space(space)}"
                    path = f"/api/v1{inside}/{body['kind'].lower()}s"
                    paths.append(f"{path}/{self.client.ask('POST', path, body)['metadata']['name']}")
        finally:
            self._remove(paths)

    def _remove(self, paths: list[str]) -> None:
        while paths:
            try:
                self.client.ask("DELETE", f"{paths.pop()}?gracePeriodSeconds=0")
            except Refused as refused:
                if refused.status != 404:
                    raise

    def _delete(self, names: Sequence[str], rate: float, stop: threading.Event) -> None:
        for name in names:
            if stop.wait(1 / rate):
                return
            space, _, pod = name.partition("/")
            self._remove([f"/api/v1/namespaces/{space}/pods/{pod}"])

    def _broken(self) -> list[str]:
        """Return the rules that are broken now."""
        nodes, pods = self._all("/api/v1/nodes"), self._all("/api/v1/pods")
        try:
            groups = self._all(f"{_GROUPS}/podgroups")
        except Refused:
            groups = []
        return broken(nodes, pods, groups)

    def _all(self, path: str) -> list[Any]:
        found: list[Any] = self.client.ask("GET", path)["items"]
        return found


def _pod(name: str) -> dict[str, Any]:
    asks = {"cpu": "1m", "memory": "1Mi"}
    return {
        "metadata": {"generateName": f"{name}-"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": asks}}]},
    }
