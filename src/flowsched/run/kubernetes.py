"""Pods of a Kubernetes cluster: flowsched decides which node, the node's kubelet executes there.

A run is a pod of the scheduler ``flowsched``, which no other scheduler touches.  It is created first, and begins when it is
bound to its node.  So a creation that is cut off, or whose answer is lost, leaves at most a pod that has done nothing and
is deleted later.  A run has ended when Kubernetes says so: a pod that is deleted goes once its kubelet has confirmed its end.

Nodes and pods are watched.  A watch that is too old (410 Gone) begins again with a list.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from flowsched.boundary import private
from flowsched.boundary.validate import number
from flowsched.cluster.events import MachineAdded
from flowsched.exceptions import FlowschedError, InputError
from flowsched.run.adapter import Adapter, Held, recorded
from flowsched.run.command import Command
from flowsched.run.driver import Driver
from flowsched.run.executor import Broken, Failed, Run, Stopped, Told
from flowsched.run.kubeapi import Api, Changes, KubernetesError, allowed
from flowsched.run.podfeed import Feed
from flowsched.run.pods import DRIVER, RECORD, binding, is_over, made, ready, verdict
from flowsched.run.pods import machine as as_machine

__all__ = ["KubernetesError", "KubernetesExecutor"]

LOGGER = logging.getLogger("flowsched")


_ODD = (ArithmeticError, AttributeError, FlowschedError, LookupError, TypeError, ValueError)
"""Errors of reading an object that does not look as the API describes it."""


def _ready(node: Mapping[str, Any]) -> bool:
    try:
        return ready(node)
    except _ODD:
        return False


def _odd(path: str, error: Exception) -> KubernetesError:
    return KubernetesError(f"{path} is not understood: {type(error).__name__}: {error}")


@dataclass(eq=False, slots=True, kw_only=True)
class _Pod(Held):
    """A run, and the path of its pod."""

    path: str


class KubernetesExecutor(Adapter[_Pod]):
    """Runs pods; a payload is a pod as the API has it (a dict), a `Command`, or the path of a pod that waits.

    Parameters
    ----------
    resources : sequence of str
        Those of the flowsched scheduler.  A node has what is allocatable and not asked for by pods of other schedulers:
        ``cpu`` in cores, ``mem`` in MiB, and ``gpu`` of ``nvidia.com/gpu``; as many slots as pods; its labels and taints.
    client : kubernetes.client.ApiClient, optional
        By default that of the current context, or of the pod in which this runs.
    namespace : str
        Of the pods that are made.
    image : str
        In which a `Command` runs, with ``/bin/sh``.  What it writes is in the pod's log; at its end the log is appended to
        the command's `output`, a file here.
    name : str, optional
        Of the driver; a letter or digit first, letters, digits and dashes.  The next driver of that name finds the pods.
    lost : float
        Seconds after which a node that is not ready is gone.
    """

    def __init__(
        self,
        resources: Sequence[str] = ("cpu", "mem", "gpu"),
        *,
        client: Any = None,
        namespace: str = "default",
        image: str = "busybox",
        name: str = "",
        lost: float = 60.0,
    ) -> None:
        super().__init__()
        self._resources, self._client, self._image = tuple(resources), client, image
        self._space, self._name = f"/api/v1/namespaces/{namespace}/pods", name or f"driver-{uuid4().hex[:12]}"
        self._lost, self._life = number("lost", lost, 0), uuid4().hex[:12]
        self._by_path: dict[str, _Pod] = {}
        self._seen: dict[str, dict[str, dict[str, Any]]] = {"nodes": {}, "pods": {}}
        self._since: dict[Hashable, float] = {}  # of nodes that are not ready
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        self._odd_nodes: dict[str, str] = {}  # what is not understood of them
        self._feed: Feed | None = None
        self._closed = False

    async def open(self, tell: Callable[[Told], None]) -> Iterable[Run]:
        """See `Executor.open`."""
        self._api = Api(self._client)
        self.tell, self._loop = tell, asyncio.get_running_loop()
        versions = {}
        for kind, seen in self._seen.items():
            objects, versions[kind] = await self._api.call(self._api.list, kind)
            seen.update(objects)
        for path, pod in self._seen["pods"].items():
            about = pod["metadata"]
            if (about.get("labels") or {}).get(DRIVER) != self._name:
                continue
            if "nodeName" not in pod["spec"]:
                self.later(self._delete(path))
                continue
            try:
                run, _ = recorded((about.get("annotations") or {}).get(RECORD, ""))
            except InputError as error:
                LOGGER.warning("pod %s: %s; it is deleted", path, error)
                self.later(self._delete(path))
                continue
            self.held[run.number] = self._by_path[path] = _Pod(run, path=path)
        runs = [pod.run for pod in self.held.values()]
        self._settle()
        for path, known in self._by_path.items():
            self._see(known, self._seen["pods"][path])
        for kind, version in versions.items():
            hear = partial(self._hear, kind)
            threading.Thread(target=self._api.watch, args=(kind, version, hear), daemon=True).start()
        return runs

    def start(self, run: Run) -> None:
        """See `Executor.start`."""
        if isinstance(run.payload, str) and run.payload.startswith("/api/"):
            pod, body = _Pod(run, path=run.payload), None
        else:
            name = f"{self._name}-{self._life}-{run.number}"
            pod, body = _Pod(run, path=f"{self._space}/{name}"), made(run, name, self._name, self._image)
        self.held[run.number] = self._by_path[pod.path] = pod
        self.later(self._begin(pod, body))

    def halt(self, held: _Pod) -> None:
        """See `Adapter.halt`."""
        self.later(self._delete(held.path))

    def release(self, run: Run) -> None:
        """See `Executor.release`; a pod that was made here is deleted."""
        pod = self.held.pop(run.number, None)
        if pod is not None:
            pod.stopped = True
            del self._by_path[pod.path]
            if pod.path.startswith(f"{self._space}/{self._name}-"):
                self.later(self._delete(pod.path))

    async def close(self) -> None:
        """See `Executor.close`."""
        self._feed = None
        await self.end_acts(5.0)
        self._closed = True
        self._api.close()
        for timer in self._timers.values():
            timer.cancel()

    def feed(self, driver: Driver) -> None:
        """Submit to `driver` each pod of the scheduler ``flowsched`` that waits, and that no driver has made.

        Such a pod is a job and its task, by its path ``/api/v1/namespaces/NAMESPACE/pods/NAME``.  It asks for what its
        containers request.  Of what it says of nodes, its node selector and tolerations count.  A higher priority goes
        first, as in Kubernetes.  A pod that is deleted is cancelled.  Kubernetes has the state, so the scheduler needs no
        journal: the pods that are bound already are left to the cluster when a driver begins.
        """
        self._feed = Feed(driver, self._resources)
        for path, pod in list(self._seen["pods"].items()):
            self._feed.see(path, pod)

    def whole(self, machine: MachineAdded) -> MachineAdded:
        """See `flowsched.run.executor.Partial`."""
        node = self._seen["nodes"].get(str(machine.id))
        try:
            return machine if node is None else as_machine(node, (), self._resources)
        except _ODD:
            return machine

    # -- requests -----------------------------------------------------------------------------------------------

    async def _begin(self, pod: _Pod, body: dict[str, Any] | None) -> None:
        """Create the pod of a run, unless there is one, and bind it."""
        run = pod.run
        try:
            if body is not None:
                with allowed(409):  # by an attempt whose answer was lost
                    await self._api.ask("POST", self._space, body)
            if pod.stopped:
                await self._delete(pod.path)
                return
            try:
                await self._api.ask("POST", f"{pod.path}/binding", binding(pod.path, run))
            except KubernetesError as error:
                if error.status != 409 or (await self._api.ask("GET", pod.path))["spec"].get("nodeName") != run.machine:
                    raise
        except KubernetesError as error:
            self.finish(pod, Failed(run.number, error, lost=error.status in (404, 409) and body is not None))

    async def _delete(self, path: str) -> None:
        """Delete a pod; one that is not there is over."""
        with allowed(404):
            await self._api.ask("DELETE", path)
            return
        self._gone(path)

    # -- states -------------------------------------------------------------------------------------------------

    def _hear(self, kind: str, changes: Changes, whole: bool) -> None:
        """Called in the thread of a watch."""
        self._loop.call_soon_threadsafe(self._heard, kind, changes, whole)

    def _heard(self, kind: str, changes: Changes, whole: bool) -> None:
        """Take note of objects that have changed, or of all that there are."""
        if not self._closed:
            for path in [*(self._seen[kind].keys() - changes.keys() if whole else ()), *changes]:
                self._changed(kind, path, changes.get(path))

    def _changed(self, kind: str, path: str, one: dict[str, Any] | None) -> None:
        if one is None:
            self._seen[kind].pop(path, None)
        else:
            self._seen[kind][path] = one
        if kind == "pods":
            pod = self._by_path.get(path)
            if one is None:
                self._gone(path)
            elif pod is not None:
                try:
                    self._see(pod, one)
                except _ODD as error:
                    self.finish(pod, Failed(pod.run.number, _odd(path, error)))
            if self._feed is not None:
                try:
                    self._feed.see(path, one)
                except _ODD as error:
                    LOGGER.warning("%s", _odd(path, error))
        self._soon("settle", 0.02)

    def _gone(self, path: str) -> None:
        pod = self._by_path.get(path)
        if pod is not None:
            self.finish(pod, Stopped(pod.run.number))

    def _see(self, pod: _Pod, one: Mapping[str, Any]) -> None:
        """Take note of the state of a run's pod."""
        if pod.over:
            return
        if one.get("status", {}).get("phase") == "Running":
            self.begin(pod)
        if not is_over(one):
            return
        told = verdict(pod.run, one)
        pod.over = True
        payload = pod.run.payload
        if isinstance(payload, Command) and payload.output is not None:
            self.later(self._log(pod.path, payload.output, told))
        else:
            self.tell(told)

    async def _log(self, path: str, output: str | os.PathLike[str], told: Told) -> None:
        """Append the log of a pod to a file, and tell its end."""
        try:
            log = await self._api.call(self._api.request, "GET", f"{path}/log")
            with open(output, "ab", opener=private.opener) as file:
                file.write(log)
        except (KubernetesError, OSError, RuntimeError) as error:  # also: its threads were ended
            LOGGER.warning("log of %s: %s", path, error)
        self.tell(told)

    def _settle(self) -> None:
        """Tell which nodes have come, changed and gone."""
        others: dict[str, list[dict[str, Any]]] = {}
        for path, pod in self._seen["pods"].items():
            node_of = (pod.get("spec") or {}).get("nodeName")
            if path not in self._by_path and node_of is not None and not is_over(pod):
                others.setdefault(node_of, []).append(pod)
        shown: dict[Hashable, MachineAdded] = {}
        nodes = {node["metadata"]["name"]: node for node in self._seen["nodes"].values()}
        for name in self._since.keys() - nodes.keys():
            del self._since[name]
        there, drained, known = list[str](), set[Hashable](), self.machines.keys() | self.used()
        for name, node in nodes.items():
            if _ready(node):
                self._since.pop(name, None)
                there.append(name)
                if (node.get("spec") or {}).get("unschedulable"):
                    drained.add(name)
            elif name in known:
                left = self._since.setdefault(name, self._loop.time()) + self._lost - self._loop.time()
                if left > 0:
                    there.append(name)
                    drained.add(name)
                    self._soon((name,), left)
        for name in there:
            try:
                shown[name] = as_machine(nodes[name], others.get(name, ()), self._resources)
            except _ODD as error:  # the other nodes go on
                text = str(_odd(f"node {name}", error))
                if self._odd_nodes.get(name) != text:
                    self._odd_nodes[name] = text
                    LOGGER.warning("%s; it takes no tasks", text)
                if name in self.machines:
                    shown[name] = self.machines[name]
                    drained.add(name)
            else:
                self._odd_nodes.pop(name, None)
        self.show(shown, drained)

    def _soon(self, why: Hashable, seconds: float) -> None:
        """Look at the nodes again; changes until then are told together."""
        if why not in self._timers:

            def act() -> None:
                del self._timers[why]
                try:
                    self._settle()
                except Exception as error:
                    self.tell(Broken(error))

            self._timers[why] = self._loop.call_later(seconds, act)
