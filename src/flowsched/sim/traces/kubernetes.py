"""Pods and nodes of a Kubernetes cluster, as ``kubectl get nodes,pods --all-namespaces --output json`` prints them.

Their fields: https://kubernetes.io/docs/reference/kubernetes-api/.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flowsched.boundary.units import date, moment
from flowsched.boundary.validate import quoted
from flowsched.cluster.events import JobSubmitted
from flowsched.cluster.model import Machine
from flowsched.exceptions import FlowschedError, TraceError
from flowsched.sim.tables import json_document
from flowsched.sim.traces.formats import TraceFormat, TraceOptions, TraceSource
from flowsched.sim.workload import LATEST, Arrival, Trace

if TYPE_CHECKING:
    from flowsched.run.pods import Ask

_ODD = (ArithmeticError, AttributeError, FlowschedError, LookupError, TypeError, ValueError)
"""Errors of reading an object that does not look as the API describes it."""

_UNITS = {"cpu": "cores", "mem": "MiB", "gpu": "GPUs"}

Object = Mapping[str, Any]


def _recognises(source: TraceSource) -> bool:
    text = source.text
    return text.lstrip().startswith("{") and all(f'"{name}"' in text for name in ("apiVersion", "items", "metadata"))


def _read(source: TraceSource, options: TraceOptions) -> Trace:
    from flowsched.run.pods import UnsupportedError, ask_of, machine_of, requests  # the executors take time to import

    path, document = source.path, json_document(source.path, options.limit)
    nodes: dict[str, Object] = {}
    asks: dict[str, Ask] = {}
    fixed: defaultdict[str, list[Counter[str]]] = defaultdict(list)
    left_out: Counter[str] = Counter()
    for name, kind, one in _items(path, document):
        try:
            if kind == "Node":
                nodes[name] = one
            elif kind != "Pod":
                left_out[f"objects of kind {kind}"] += 1
            elif _owner(one)[0] in ("DaemonSet", "Node"):
                fixed[one["spec"].get("nodeName", "")].append(requests(one))
                left_out["pods of DaemonSets and static ones, whose requests are taken from their nodes"] += 1
            else:
                asks[name] = ask_of(name, one)
        except UnsupportedError as error:
            left_out[f"pods with {error}, which is not modelled"] += 1
        except _ODD as error:
            raise TraceError(f"{path}, {kind} {name}: not as the API describes it ({error!r})") from None
    if not asks:
        raise TraceError(f"{path}: no pod that a scheduler places")
    # Labels stand for requirements that constraints of tasks cannot express.
    wanted = {label: terms for ask in asks.values() for label, terms in ask.wanted.items()}
    names = {resource for ask in asks.values() for resource in ask.facts.requests}
    resources = ("cpu", "mem", *(["gpu"] if "gpu" in names else []), *sorted(names - {"cpu", "mem", "gpu"}))
    machines = []
    for name, node in nodes.items():
        try:
            added = machine_of(node, fixed[name], resources, wanted)
        except _ODD as error:
            raise TraceError(f"{path}, Node {name}: not as the API describes it ({error!r})") from None
        machines.append(Machine(added.id, added.capacity, labels=added.labels, slots=added.slots, taints=added.taints))
    times = {name: _times(path, name, ask.pod) for name, ask in asks.items()}
    origin = min(created for created, _ in times.values())
    endless = sum(math.isinf(length) for _, length in times.values())
    rules = sum(bool(ask.affinity or ask.spread or ask.facts.anti) for ask in asks.values())
    notes = [f"times are counted from the first pod, {date(origin)}"]
    notes += [f"pods that have not ended run on without an end ({endless:,})"] * bool(endless)
    notes += [f"rules between pods (affinity, spreading) are not modelled ({rules:,} pods)"] * bool(rules)
    return Trace(
        path.name.removesuffix(".json"),
        [
            Arrival(times[name][0] - origin, _job(name, ask, resources), (times[name][1],))
            for name, ask in asks.items()
        ],
        machines,
        resources=resources,
        units={name: unit for name, unit in _UNITS.items() if name in resources},
        facts={"source": str(path)},
        notes=(*notes, *(f"left out: {what} ({n:,})" for what, n in left_out.items())),
    )  # fmt: skip


def _items(path: Any, document: Object) -> Iterator[tuple[str, str, Object]]:
    """Yield name, kind and object of each item of a list."""
    items = document.get("items")
    if not isinstance(items, list):
        raise TraceError(f"{path}: items: a list expected, got {quoted(items)}")
    common = str(document.get("kind", "List")).removesuffix("List")
    for i, one in enumerate(items):
        if not isinstance(one, dict) or not isinstance(about := one.get("metadata"), dict) or "name" not in about:
            raise TraceError(f"{path}, item {i}: an object with metadata.name expected, got {quoted(one)}")
        space, name = about.get("namespace"), about["name"]
        yield f"{space}/{name}" if space else str(name), str(one.get("kind") or common), one


def _owner(pod: Object) -> tuple[str, str]:
    """Return kind and name of the controller of a pod; empty without one."""
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return owner["kind"], owner["name"]
    return "", ""


def _job(name: str, ask: Ask, resources: tuple[str, ...]) -> JobSubmitted:
    """Return a pod as a task of its controller's job; a larger priority of a pod is better."""
    owner, space = _owner(ask.pod), ask.facts.space
    job = f"{space}/{'/'.join(owner)}" if owner[0] else name
    return JobSubmitted(job, (ask.task(resources),), space, -int(ask.pod["spec"].get("priority") or 0))


def _times(path: Any, name: str, pod: Object) -> tuple[float, float]:
    """Return the creation of a pod, as seconds of the epoch, and how long it ran; infinite if it has not ended."""
    status = pod.get("status") or {}
    try:
        states = [one["state"] for one in status.get("containerStatuses") or ()]
        created = moment(pod["metadata"]["creationTimestamp"])
        if not states or not all("terminated" in state for state in states) or status.get("phase") == "Pending":
            return created, math.inf
        ended = [state["terminated"] for state in states]
        begun = min(moment(one["startedAt"] or one["finishedAt"]) for one in ended)
        return created, min(max(max(moment(one["finishedAt"]) for one in ended) - begun, 0.0), LATEST)
    except _ODD as error:
        raise TraceError(f"{path}, Pod {name}: a time is missing or not as the API describes it ({error!r})") from None


KUBERNETES = TraceFormat("kubernetes", "a list of Kubernetes pods and nodes, as JSON", _recognises, _read)
