"""Pods of a Kubernetes cluster: flowsched decides which node, the node's kubelet executes there.

A run is a pod of the scheduler ``flowsched``, which no other scheduler touches.  It is created first, and begins when it is
bound to its node.  So a creation that is cut off, or whose answer is lost, leaves at most a pod that has done nothing and
is deleted later.  A run has ended when Kubernetes says so: a pod that is deleted goes once its kubelet has confirmed its end.

Nodes and pods are watched.  A watch that is too old (410 Gone) begins again with a list.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any, TypeVar
from uuid import uuid4

from flowsched.boundary import private
from flowsched.boundary.validate import number, quoted
from flowsched.cluster.events import JobSubmitted, MachineAdded
from flowsched.cluster.model import Task
from flowsched.exceptions import FlowschedError, InputError
from flowsched.run.adapter import Adapter, Held, record, recorded
from flowsched.run.command import Command, command_of, outcome, script
from flowsched.run.driver import Driver
from flowsched.run.executor import Broken, Ended, Failed, Run, Stopped, Told

LOGGER = logging.getLogger("flowsched")


_ODD = (ArithmeticError, AttributeError, FlowschedError, LookupError, TypeError, ValueError)
"""Errors of reading an object that does not look as the API describes it."""

Changes = dict[str, dict[str, Any] | None]

T = TypeVar("T")
SCHEDULER = "flowsched"

DRIVER, RECORD = "flowsched/driver", "flowsched/run"
"""The label with the name of the driver that has made a pod, and the annotation with the record of its run."""

_WHY = """>/dev/termination-log printf '%s' "$2" """
"""Keeps the reason why a command cannot begin, for `verdict`."""

_LOST = ("Evicted", "NodeLost", "NodeShutdown", "Terminated", "Shutdown", "Preempting", "NodeAffinity", "OutOf")
"""Prefixes of the reasons for which the node's kubelet, not the pod itself, ended it."""

_NAMES = {"cpu": "cpu", "memory": "mem", "nvidia.com/gpu": "gpu", "pods": "pods"}

_UNITS = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_UNITS |= {f"{unit}i": 2.0 ** (10 * (i + 1)) for i, unit in enumerate("KMGTP")}


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
        Those of the flowsched scheduler.  A node has its allocatable resources less the requests of others' pods:
        ``cpu`` in cores, ``mem`` in MiB, and ``gpu`` of ``nvidia.com/gpu``; as many slots as pods; its labels and taints.
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
        self._seen: dict[str, dict[str, dict[str, Any]]] = {"nodes": {}, "pods": {}}
        self._since: dict[Hashable, float] = {}  # of nodes that are not ready
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        self._odd_nodes: dict[str, str] = {}  # the errors in their descriptions
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
        soon: Any = self._loop.call_soon_threadsafe  # a watch has a thread of its own
        for kind, version in versions.items():
            hear = partial(soon, self._heard, kind)
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

        Such a pod is a job and its task, by its path ``/api/v1/namespaces/NAMESPACE/pods/NAME``.  Its demand follows from
        its containers' requests.  Its node selector and tolerations count; other rules on nodes do not.  A higher priority
        goes first, as in Kubernetes.  A pod that is deleted is cancelled.  Kubernetes has the state, so the scheduler needs
        no journal: the pods that are bound already are left to the cluster when a driver begins.
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
        """Append the log of a pod to a file, and report its end."""
        try:
            log = await self._api.call(self._api.request, "GET", f"{path}/log")
            with open(output, "ab", opener=private.opener) as file:
                file.write(log)
        except (KubernetesError, OSError, RuntimeError) as error:  # also: its threads were ended
            LOGGER.warning("log of %s: %s", path, error)
        self.tell(told)

    def _settle(self) -> None:
        """Report the nodes that have come, changed and gone."""
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
        """Look at the nodes again later; changes until then are reported together."""
        if why not in self._timers:

            def act() -> None:
                del self._timers[why]
                try:
                    self._settle()
                except Exception as error:
                    self.tell(Broken(error))

            self._timers[why] = self._loop.call_later(seconds, act)


class KubernetesError(FlowschedError):
    """The API server refused a request, or a pod failed without an exit status.

    Attributes
    ----------
    status : int
        Of the HTTP answer, or 0.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message, status)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])


# -- the API server: only credentials, settings and connections of the official client are used, so any version will do ---


class Api:
    """Requests to an API server, through a client of the official package; all but `call` and `ask` block.

    By default the client is that of the current context, or of the pod in which this runs.
    """

    def __init__(self, client: Any = None) -> None:
        if client is None:
            from kubernetes import client as package
            from kubernetes import config

            load: Any = config.load_config  # without annotations
            try:
                load()
            except config.ConfigException as error:
                raise KubernetesError(f"Kubernetes: {error}") from None
            client = package.ApiClient()
        self._client = client
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="flowsched-kubernetes")
        self._closed = threading.Event()
        self._watches: dict[str, Any] = {}

    def close(self) -> None:
        """End the watches."""
        self._closed.set()
        for watch in list(self._watches.values()):
            with suppress(Exception):
                watch.shutdown()
        self._threads.shutdown(wait=False)

    async def call(self, request: Callable[..., T], *arguments: Any) -> T:
        """Return the answer to a request, which is made in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, request, *arguments)

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer to a request as JSON has it; the request is repeated until there is one."""
        while True:
            answer = b""
            try:
                answer = await self.call(self.request, method, path, body)
                return json.loads(answer)
            except KubernetesError as error:
                if error.status and error.status != 429 and error.status < 500:
                    raise
                LOGGER.info("%s", error)
            except ValueError:  # cut off on the way
                LOGGER.warning("%s %s: JSON expected, got %s", method, path, quoted(answer[:200]))
            await asyncio.sleep(1.0)

    def request(self, method: str, path: str, body: Any = None) -> bytes:
        answer = self._open(method, path, body)
        if answer.status >= 300:
            text = answer.data.decode(errors="replace")
            with suppress(ValueError):
                text = json.loads(text)["message"]
            raise KubernetesError(f"{method} {path}: {answer.status} {text[:500]}", answer.status)
        return bytes(answer.data)

    def _open(self, method: str, path: str, body: Any = None, stream: bool = False) -> Any:
        """Send a request by the connections of the client, with its credentials."""
        from urllib3.exceptions import HTTPError

        settings = self._client.configuration
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        headers |= {auth["key"]: auth["value"] for auth in settings.auth_settings().values() if auth["in"] == "header"}
        data = None if body is None else json.dumps(body)
        try:
            return self._client.rest_client.pool_manager.request(
                method,
                settings.host + path,
                body=data,
                headers=headers,
                preload_content=not stream,
                timeout=90.0 if stream else 10.0,
                retries=False,
            )
        except HTTPError as error:
            raise KubernetesError(f"{method} {path}: {error}") from None

    def list(self, kind: str) -> tuple[dict[str, dict[str, Any]], str]:
        answer = json.loads(self.request("GET", f"/api/v1/{kind}"))
        return {_path(kind, one): one for one in answer["items"]}, answer["metadata"]["resourceVersion"]

    def watch(self, kind: str, version: str, tell: Callable[[Changes, bool], object]) -> None:
        """Call `tell` with objects that have changed since a version, by path, None for one that is deleted.

        Its other argument is True if these are all objects.  A RuntimeError of it ends the watch.
        """
        from urllib3.exceptions import HTTPError

        said = ""
        while not self._closed.is_set():
            try:
                if not version:
                    objects, version = self.list(kind)
                    tell(dict(objects), True)
                query = f"watch=1&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds=60"
                with closing(self._open("GET", f"/api/v1/{kind}?{query}", stream=True)) as answer:
                    self._watches[kind] = answer
                    if answer.status != 200:
                        raise KubernetesError(f"watch of {kind}: {answer.status}", answer.status)
                    for event in _events(answer):
                        if event["type"] == "ERROR":
                            raise KubernetesError(f"watch of {kind}: {event['object']}", event["object"]["code"])
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            there = event["type"] != "DELETED"
                            tell({_path(kind, event["object"]): event["object"] if there else None}, False)
                    said = ""
            except Exception as error:
                if isinstance(error, RuntimeError) and "loop is closed" in str(error):
                    return
                if getattr(error, "status", 0) == 410:
                    version = ""
                elif not self._closed.is_set():
                    if not isinstance(error, KubernetesError | HTTPError | OSError):
                        version = ""  # an event that was not understood may have changed something
                    text = f"{type(error).__name__}: {error}"
                    LOGGER.log(logging.INFO if text == said else logging.WARNING, "watch of %s: %s", kind, text)
                    said = text
                    self._closed.wait(1.0)


def _events(answer: Any) -> Iterator[dict[str, Any]]:
    rest = b""
    for chunk in answer.stream(65536):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from map(json.loads, lines)


def _path(kind: str, one: Mapping[str, Any]) -> str:
    about = one["metadata"]
    return f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}" if kind == "pods" else str(about["name"])


@contextmanager
def allowed(status: int) -> Iterator[None]:
    """Ignore an error of that status."""
    try:
        yield
    except KubernetesError as error:
        if error.status != status:
            raise


# -- nodes and pods, as in JSON, as machines and tasks ------------------------------------------------------------------


def _amounts(given: Mapping[str, str]) -> Counter[str]:
    """Return quantities by the names of resources here; memory in MiB."""
    amounts = Counter[str]()
    for key, text in given.items():
        if key in _NAMES:
            number = str(text).rstrip("KMGTPkim")
            amount = float(number) * _UNITS.get(str(text)[len(number) :], 1.0)
            amounts[_NAMES[key]] = amount / 2**20 if key == "memory" else amount  # type: ignore[assignment]
    return amounts


def _requests(pod: Mapping[str, Any]) -> Counter[str]:
    """Return the requests of a pod: the sum over its containers, or those of an initial one where they are larger."""
    spec, total = pod["spec"], Counter[str]()
    for container in spec.get("containers", ()):
        total.update(_amounts(container.get("resources", {}).get("requests", {})))
    for container in spec.get("initContainers") or ():
        total |= _amounts(container.get("resources", {}).get("requests", {}))
    total.update(_amounts(spec.get("overhead") or {}))
    return total


def is_over(pod: Mapping[str, Any]) -> bool:
    """Return True if a pod has ended, well or not."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _ready(node: Mapping[str, Any]) -> bool:
    """Return True if a node's kubelet says that it is ready."""
    try:
        conditions = node.get("status", {}).get("conditions", ())
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    except _ODD:
        return False


def as_machine(node: Mapping[str, Any], others: Iterable[Mapping[str, Any]], resources: Sequence[str]) -> MachineAdded:
    """Return a node as a machine, less the requests of other schedulers' pods on it."""
    there, has = list(others), _amounts(node["status"]["allocatable"])
    slots = int(has.pop("pods", 0)) - len(there) if "pods" in has else None
    for pod in there:
        has.subtract(_requests(pod))
    capacity = {name: max(has[name], 0) for name in resources if name in has}
    # Kubernetes' own taints repeat the node's conditions, which are read elsewhere.
    taints = [
        (taint["key"], taint.get("value", ""), taint["effect"])
        for taint in node["spec"].get("taints") or ()
        if not taint["key"].startswith("node.kubernetes.io/")
    ]
    about = node["metadata"]
    labels = about.get("labels") or {}
    return MachineAdded(
        about["name"], capacity, labels=labels, slots=None if slots is None else max(slots, 0), taints=tuple(taints)
    )


def task(id: str, pod: Mapping[str, Any], resources: Sequence[str]) -> Task:
    """Return the task that a waiting pod is; of its affinities, its node selector only."""
    spec, asks = pod["spec"], _requests(pod)
    tolerations = []
    for one in spec.get("tolerations") or ():
        value = None if one.get("operator") == "Exists" else one.get("value", "")
        tolerations.append((one.get("key"), value, one.get("effect")))
    selector = {key: (value,) for key, value in (spec.get("nodeSelector") or {}).items()}
    return Task(id, {name: asks[name] for name in resources if asks[name]}, selector, tolerations=tolerations)


def made(run: Run, name: str, driver: str, image: str) -> dict[str, Any]:
    """Return the pod of a run: its payload, or one that runs its command."""
    if isinstance(run.payload, Mapping):
        pod: dict[str, Any] = json.loads(json.dumps(run.payload))
    else:
        command = replace(command_of(run), output=None, errors=None)  # they are in the log
        text = script(replace(run, payload=command), _WHY)
        asks = {"cpu": f"{ceil(1000 * run.demand.get('cpu', 0))}m", "memory": f"{ceil(run.demand.get('mem', 0))}Mi"}
        gpus = {"nvidia.com/gpu": str(ceil(run.demand["gpu"]))} if run.demand.get("gpu") else {}
        share = {"requests": asks | gpus, "limits": gpus}
        container = {"name": "run", "image": image, "command": ["/bin/sh", "-c", text], "resources": share}
        pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    about = pod.setdefault("metadata", {})
    about["name"] = name
    about.setdefault("labels", {})[DRIVER] = driver
    about.setdefault("annotations", {})[RECORD] = record(run)
    pod["spec"]["schedulerName"] = SCHEDULER
    return {"apiVersion": "v1", "kind": "Pod"} | pod


def binding(path: str, run: Run) -> dict[str, Any]:
    """Return the object that binds the pod of a run to its node."""
    target = {"apiVersion": "v1", "kind": "Node", "name": run.machine}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": path.rpartition("/")[2]}, "target": target}


def verdict(run: Run, pod: Mapping[str, Any]) -> Told:
    """Return the report of a run whose pod has ended."""
    status = pod["status"]
    if status["phase"] != "Failed":
        return Ended(run.number, 0)
    codes = [each.get("state", {}).get("terminated", {}) for each in status.get("containerStatuses") or ()]
    bad = [(code["exitCode"], code.get("message") or "") for code in codes if code.get("exitCode")]
    reason = status.get("reason") or ""
    if bad and not reason:
        return outcome(run, bad[0][0], False, reason=" ".join(bad[0][1].split()))
    error = KubernetesError(f"task {run.task!r}: its pod failed: {reason} {status.get('message') or ''}")
    return Failed(run.number, error, lost=reason.startswith(_LOST))


class Feed:
    """Submits the pods that wait for flowsched, and cancels those that are deleted."""

    def __init__(self, driver: Driver, resources: Sequence[str]) -> None:
        self._driver, self._resources = driver, resources
        self._fed: set[str] = set()

    def see(self, path: str, pod: Mapping[str, Any] | None) -> None:
        """Take note of a pod, None for one that is deleted."""
        if pod is None:
            if path in self._fed:
                self._fed.remove(path)
                self._driver.cancel(path)
        elif path not in self._fed and _waits(pod):
            self._fed.add(path)
            try:
                priority = -(pod["spec"].get("priority") or 0)
                self._driver.submit(
                    JobSubmitted(path, [task(path, pod, self._resources)], priority=priority), {path: path}
                )
            except FlowschedError as error:
                LOGGER.warning("pod %s: %s", path, error)


def _waits(pod: Mapping[str, Any]) -> bool:
    """Return True if a pod waits for flowsched to bind it, and no driver has made it."""
    spec, about = pod["spec"], pod["metadata"]
    mine = spec.get("schedulerName") == SCHEDULER and DRIVER not in (about.get("labels") or {})
    return mine and "nodeName" not in spec and "deletionTimestamp" not in about and not is_over(pod)
