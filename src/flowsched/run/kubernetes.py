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
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from flowsched.boundary import private
from flowsched.boundary.validate import number
from flowsched.cluster.events import JobSubmitted, MachineAdded
from flowsched.exceptions import InputError
from flowsched.rounds.values import Round
from flowsched.run.adapter import Adapter, Held, recorded
from flowsched.run.command import Command
from flowsched.run.driver import Driver
from flowsched.run.executor import Broken, Failed, Run, Stopped, Told
from flowsched.run.kubeapi import Api, Changes, KubernetesError, allowed
from flowsched.run.podfeed import OPTIONAL, Adopted, Feed
from flowsched.run.podreports import Advice, Reports
from flowsched.run.pods import (
    DRIVER,
    ODD,
    RECORD,
    SCHEDULER,
    Object,
    binding,
    check_whole,
    eviction,
    is_over,
    is_ready,
    machine_of,
    made,
    requests,
    verdict,
)  # fmt: skip

__all__ = ["KubernetesError", "KubernetesExecutor"]

LOGGER = logging.getLogger("flowsched")


_SLICE = 0.02
"""Seconds for which pods are taken over at a time."""


def _odd(path: str, error: Exception) -> KubernetesError:
    return KubernetesError(f"{path} is not understood: {type(error).__name__}: {error}")


@dataclass(eq=False, slots=True, kw_only=True)
class _Pod(Held):
    """A run, and the path and the identity of its pod; the latter is empty until it is known."""

    path: str
    uid: str = ""


class KubernetesExecutor(Adapter[_Pod]):
    """Runs pods; a payload is a pod as the API has it (a dict), a `Command`, or the path of a pod that waits.

    Parameters
    ----------
    resources : sequence of str
        Those of the flowsched scheduler.  A node has its allocatable resources less the requests of others' pods:
        ``cpu`` in cores, ``mem`` in MiB, and ``gpu`` of ``nvidia.com/gpu``; as many slots as pods; its labels and taints.
        Other resources have Kubernetes' names, such as ``ephemeral-storage``, which is in MiB, too.
    client : kubernetes.client.ApiClient, optional
        By default that of the current context, or of the pod in which this runs.
    namespace : str
        Of the pods that are made.
    image : str
        In which a `Command` runs, with ``/bin/sh``.  Its output is in the pod's log; at its end the log is appended to the
        command's `output`, a file here.
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
        self._others: dict[str, dict[str, Counter[str] | Exception]] = {}  # requests of others' pods, by node
        self._places: dict[str, str] = {}  # their nodes
        self._ours: set[str] = set()  # pods that are about to be taken over
        self._dirty: set[str] = set()  # nodes to describe again
        self._held_back: dict[str, dict[str, Any] | None] = {}  # changes of pods that wait for a decision
        self._seen: dict[str, dict[str, dict[str, Any]]] = {"nodes": {}, "pods": {}}
        self._since: dict[Hashable, float] = {}  # of nodes that are not ready
        self._timers: dict[str | None, asyncio.TimerHandle] = {}
        self._odd_nodes: dict[str, str] = {}  # the errors in their descriptions
        self._feed: Feed | None = None
        self._reports: Reports | Advice | None = None
        self._closed = False

    async def open(self, tell: Callable[[Told], None]) -> Iterable[Run]:
        """See `Executor.open`."""
        self._api = Api(self._client)
        self.tell, self._loop = tell, asyncio.get_running_loop()
        versions = {}
        try:
            for kind, seen in self._seen.items():
                objects, versions[kind] = await self._api.list(kind)
                seen.update(objects)
        except BaseException:
            await self._api.close()
            raise
        for path, pod in self._seen["pods"].items():
            about = pod["metadata"]
            if (about.get("labels") or {}).get(DRIVER) != self._name:
                continue
            uid = about.get("uid", "")
            if "nodeName" not in pod["spec"]:
                self.later(self._delete(path, uid))
                continue
            try:
                run, _ = recorded((about.get("annotations") or {}).get(RECORD, ""))
            except InputError as error:
                LOGGER.warning("pod %s: %s; it is deleted", path, error)
                self.later(self._delete(path, uid))
                continue
            self.held[run.number] = self._by_path[path] = _Pod(run, path=path, uid=uid)
        runs = [pod.run for pod in self.held.values()]
        for path in self._seen["pods"]:
            self._count(path)
        self._settle_all()
        for path, known in self._by_path.items():
            self._see(known, self._seen["pods"][path])
        for kind, version in versions.items():
            self._api.watch(kind, version, partial(self._heard, kind))
        return runs

    def counted(self, job: JobSubmitted) -> JobSubmitted:
        """Return the job; shares of devices are refused, as nodes count whole ones."""
        for task in job.tasks:
            named = task.demand if isinstance(task.demand, Mapping) else zip(self._resources, task.demand, strict=False)
            check_whole(f"task {task.id!r}", dict(named))
        return job

    def start(self, run: Run) -> None:
        """See `Executor.start`."""
        if isinstance(run.payload, str) and run.payload.startswith("/api/"):
            waits = self._seen["pods"].get(run.payload, {"metadata": {}})
            pod, body = _Pod(run, path=run.payload, uid=waits["metadata"].get("uid", "")), None
        else:
            name = f"{self._name}-{self._life}-{run.number}"
            pod, body = _Pod(run, path=f"{self._space}/{name}"), made(run, name, self._name, self._image)
        self.held[run.number] = self._by_path[pod.path] = pod
        self._count(pod.path)
        if isinstance(self._reports, Advice):
            self._reports.bound(pod.path, waits, str(run.machine))
        else:
            self.later(self._begin(pod, body))

    def halt(self, held: _Pod) -> None:
        """See `Adapter.halt`; pods that were made by others outlive the driver."""
        if self._made(held):
            self.later(self._delete(held.path, held.uid))
        elif isinstance(self._reports, Advice) or (self._feed is not None and self._feed.ending):
            self.finish(held, Stopped(held.run.number))
        elif not held.stopped:
            self.later(self._evict(held))

    def _made(self, pod: _Pod) -> bool:
        return pod.path.startswith(f"{self._space}/{self._name}-")

    def release(self, run: Run) -> None:
        """See `Executor.release`; a pod that was made here is deleted."""
        pod = self.held.pop(run.number, None)
        if pod is not None:
            pod.stopped = True
            if self._by_path.get(pod.path) is pod:
                del self._by_path[pod.path]
                self._count(pod.path)
            if self._made(pod):
                self.later(self._delete(pod.path, pod.uid))

    async def close(self) -> None:
        """See `Executor.close`."""
        self._feed = None
        await self.end_acts(5.0)
        self._closed = True
        await self._api.close()
        for timer in self._timers.values():
            timer.cancel()

    def feed(
        self, driver: Driver, names: Collection[str] = (SCHEDULER,), advise: Callable[[str], object] | None = None
    ) -> None:
        """Submit to `driver` each pod that waits for a scheduler of these names, and that no driver has made.

        Such a pod is a job and its task, by its path ``/api/v1/namespaces/NAMESPACE/pods/NAME``; the job's user is the
        namespace.  All fields that constrain its place count; a pod with one that is not understood waits, with the reason
        ``UNSUPPORTED`` and the field in its condition and in an event.  A higher priority goes first, and may displace pods
        of a lower one within disruption budgets.  A pod that is deleted is cancelled.  Kubernetes has the state, so the
        scheduler needs no journal: pods that are bound already are taken over with the times of their creation and start,
        before the first pod is placed, and they stay when the driver ends.

        Parameters
        ----------
        driver : Driver
        names : collection of str
            Values of ``schedulerName``.
        advise : callable, optional
            Called with lines of text: the node that each pod would get, and why others wait.  Then nothing is changed, no
            pod is displaced, and another scheduler may bind these pods.
        """
        self._reports = Reports(self._api, self.later) if advise is None else Advice(advise)
        refresh = self._settle_all
        self._feed = Feed(driver, self._resources, self._reports, refresh, self._hold, names, self._by_path)
        for name, node in list(self._seen["nodes"].items()):
            self._feed_one("nodes", name, node)
        for kind in OPTIONAL:
            self._api.watch(kind, "", partial(self._heard, kind))
        self._settle_all()  # nodes that were cordoned count from now on
        self.later(self._take_over(self._feed))

    async def _take_over(self, feed: Feed) -> None:
        """Report the pods that are there, those of one node after the other.

        There may be very many, and other work goes on meanwhile, such as the renewal of a lease.
        """
        by_node: dict[str, list[str]] = {}
        for path, pod in self._seen["pods"].items():
            by_node.setdefault((pod.get("spec") or {}).get("nodeName") or "", []).append(path)
        end = self._loop.time() + _SLICE
        for paths in by_node.values():
            if self._loop.time() > end:
                await asyncio.sleep(0)
                end = self._loop.time() + _SLICE
            if self._feed is not feed:
                return
            seen = self._seen["pods"]
            ours = {path for path in paths if path in seen and feed.adoptable(path, seen[path])}
            self._ours |= ours
            for path in ours:
                self._count(path)
            for path in paths:
                if path in seen:
                    self._feed_one("pods", path, seen[path])
            self._ours -= ours
            for path in ours:
                self._count(path)
        feed.complete()

    def _hold(self, path: str, pod: Object, adopt: Callable[[], Adopted]) -> asyncio.Future[Any]:
        """Take over a pod that is bound.  Its node gets the room back that it had less for it, before the run takes that."""
        self._ours.add(path)
        self._count(path)
        self._settle()
        try:
            run, future = adopt()
            held = self.held[run.number] = self._by_path[path] = _Pod(
                run, path=path, uid=pod["metadata"].get("uid", "")
            )
        finally:
            self._ours.discard(path)
            self._count(path)
        self._see(held, pod)
        return future

    def _feed_one(self, kind: str, path: str, one: dict[str, Any] | None) -> None:
        if self._feed is not None:
            try:
                if kind == "pods":
                    self._feed.see(path, one)
                elif kind == "nodes":
                    self._feed.see_node(path, one)
                else:
                    self._feed.see_object(kind, path, one)
            except ODD as error:
                LOGGER.warning("%s", _odd(path, error))

    def permitted(self, round: Round) -> Collection[Hashable] | None:
        """See `flowsched.run.executor.Deciding`."""
        return None if self._feed is None else self._feed.permitted(round)

    def decided(self, round: Round) -> None:
        """See `flowsched.run.executor.Deciding`."""
        if self._feed is not None:
            self._feed.decided(round)
            for path in [path for path in self._held_back if not self._feed.undecided(path)]:
                self._loop.call_soon(self._changed, "pods", path, self._held_back.pop(path))

    def whole(self, shown: MachineAdded) -> MachineAdded:
        """See `flowsched.run.executor.Partial`."""
        node = self._seen["nodes"].get(str(shown.id))
        try:
            wanted = {} if self._feed is None else self._feed.wanted
            return shown if node is None else machine_of(node, (), self._resources, wanted)
        except ODD:
            return shown

    # -- requests -----------------------------------------------------------------------------------------------

    async def _begin(self, pod: _Pod, body: dict[str, Any] | None) -> None:
        """Create the pod of a run, unless there is one, and bind it."""
        run = pod.run
        try:
            if body is not None:
                with allowed(409):  # by an attempt whose answer was lost
                    await self._api.ask("POST", self._space, body)
            elif self._reports is not None:
                await self._reports.settled(pod.path)
            if pod.stopped:
                if body is not None:
                    await self._delete(pod.path, pod.uid)
                self.finish(pod, Stopped(run.number))
                return
            try:
                await self._api.ask("POST", f"{pod.path}/binding", binding(pod.path, pod.uid, run))
                if self._feed is not None:
                    self._feed.bound(pod.path, str(run.machine))
            except KubernetesError as error:
                if error.status != 409 or (await self._api.ask("GET", pod.path))["spec"].get("nodeName") != run.machine:
                    raise
        except KubernetesError as error:
            self.finish(pod, Failed(run.number, error, lost=error.status in (404, 409) and body is not None))

    async def _delete(self, path: str, uid: str) -> None:
        """Delete a pod; one that is not there, or another one by now, is over."""
        with allowed(404), allowed(409):
            await self._api.ask("DELETE", path, {"preconditions": {"uid": uid}} if uid else None)
            return
        self._gone(path, uid)

    async def _evict(self, pod: _Pod) -> None:
        """Evict a pod within its disruption budgets.  While they do not allow it, it is tried again, and its room stays taken."""
        why = "" if self._feed is None else self._feed.victim(pod.path)
        if why and self._reports is not None and pod.path in self._seen["pods"]:
            await self._reports.displaced(pod.path, self._seen["pods"][pod.path], why)
        with allowed(404), allowed(409):
            await self._api.ask("POST", f"{pod.path}/eviction", eviction(pod.path, pod.uid))
            return
        self._gone(pod.path, pod.uid)

    # -- states -------------------------------------------------------------------------------------------------

    def _heard(self, kind: str, changes: Changes, whole: bool) -> None:
        """Take note of objects that have changed, or of all that there are."""
        if self._closed:
            return
        seen = self._seen.setdefault(kind, {})
        if whole:
            if self._feed is not None and kind in OPTIONAL:
                self._feed.begin(kind)
            for path in seen.keys() - {path for path, _ in changes}:
                self._changed(kind, path, None)
        for path, one in changes:
            self._changed(kind, path, one)

    def _changed(self, kind: str, path: str, one: dict[str, Any] | None) -> None:
        if (
            kind == "pods"
            and isinstance(self._reports, Advice)
            and self._feed is not None
            and self._feed.undecided(path)
        ):
            self._held_back[path] = one
            return
        if one is None:
            self._seen[kind].pop(path, None)
        else:
            self._seen[kind][path] = one
        if kind == "pods":
            pod = self._by_path.get(path)
            if one is None or (pod is not None and pod.uid and one["metadata"].get("uid") != pod.uid):
                self._gone(path)
            elif pod is not None:
                try:
                    pod.uid = one["metadata"].get("uid", "")
                    self._see(pod, one)
                except ODD as error:
                    self.finish(pod, Failed(pod.run.number, _odd(path, error)))
            self._count(path)
        elif kind == "nodes":
            self._mark(path)
        self._feed_one(kind, path, one)

    def _count(self, path: str) -> None:
        """Take note of the requests of a pod if it is another's on a node."""
        pod = None if path in self._by_path or path in self._ours else self._seen["pods"].get(path)
        node = None if pod is None or is_over(pod) else (pod.get("spec") or {}).get("nodeName")
        old = self._places.pop(path, None)
        asked: Counter[str] | Exception | None = None
        if node is not None and pod is not None:
            self._places[path] = node
            try:
                asked = requests(pod)
            except ODD as error:
                asked = error
        before = None if old is None else self._others[old].pop(path)
        if node is not None and asked is not None:
            self._others.setdefault(node, {})[path] = asked
        if node != old or asked != before:
            for name in {node, old}:
                if name is not None:
                    self._mark(name)

    def _mark(self, node: str) -> None:
        """Describe a node again soon."""
        self._dirty.add(node)
        self._soon(None, 0.02)

    def _gone(self, path: str, uid: str = "") -> None:
        """Take note of a pod that is not there any more, or of the one with that identity."""
        pod = self._by_path.get(path)
        if pod is not None and (not uid or pod.uid == uid):
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
        """Append the log of a pod to a file, and report its end."""
        try:
            log = await self._api.request("GET", f"{path}/log")
            with open(output, "ab", opener=private.opener) as file:
                file.write(log)
        except (KubernetesError, OSError) as error:
            LOGGER.warning("log of %s: %s", path, error)
        self.tell(told)

    def _settle_all(self) -> None:
        """Report all nodes."""
        self._dirty.update(self._seen["nodes"])
        self._settle()

    def _settle(self) -> None:
        """Report the nodes that have come, changed and gone."""
        dirty, self._dirty = self._dirty, set()
        changed = [self._describe(name, self._seen["nodes"].get(name)) for name in dirty]
        if any(changed) and self._feed is not None:
            self._feed.changed()

    def _describe(self, name: str, node: dict[str, Any] | None) -> bool:
        """Report a node; return True if that is a change."""
        drained = False
        if node is None or is_ready(node):
            self._since.pop(name, None)
            drained = node is not None and self._feed is None and bool((node.get("spec") or {}).get("unschedulable"))
        elif name in self.machines or name in self.used():
            left = self._since.setdefault(name, self._loop.time()) + self._lost - self._loop.time()
            if left > 0:
                drained = True
                self._soon(name, left)
            else:
                node = None
        else:
            node = None
        shown = None
        if node is not None:
            try:
                used = list[Counter[str]]()
                for one in self._others.get(name, {}).values():
                    if isinstance(one, Exception):
                        raise one
                    used.append(one)
                wanted = {} if self._feed is None else self._feed.wanted
                shown = machine_of(node, used, self._resources, wanted)
            except ODD as error:  # the other nodes go on
                text = str(_odd(f"node {name}", error))
                if self._odd_nodes.get(name) != text:
                    self._odd_nodes[name] = text
                    LOGGER.warning("%s; it takes no tasks", text)
                shown, drained = self.machines.get(name), True
            else:
                self._odd_nodes.pop(name, None)
        return self.show_one(name, shown, drained)

    def _soon(self, why: str | None, seconds: float) -> None:
        """Look at nodes again later: those that have changed until then, or the one with that name."""
        if why not in self._timers:

            def act() -> None:
                del self._timers[why]
                if why is not None:
                    self._dirty.add(why)
                try:
                    self._settle()
                except Exception as error:
                    self.tell(Broken(error))

            self._timers[why] = self._loop.call_later(seconds, act)
