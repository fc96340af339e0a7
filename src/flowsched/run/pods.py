"""Nodes and pods of the Kubernetes API as machines and tasks, for `flowsched.run.kubernetes`; all objects are as in JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from flowsched.cluster.events import MachineAdded
from flowsched.cluster.model import Task
from flowsched.run.adapter import record
from flowsched.run.command import command_of, outcome, script
from flowsched.run.executor import Ended, Failed, Run, Told
from flowsched.run.kubeapi import KubernetesError

__all__ = ["DRIVER", "RECORD", "SCHEDULER", "binding", "is_over", "machine", "made", "ready", "task", "verdict"]

SCHEDULER = "flowsched"

DRIVER, RECORD = "flowsched/driver", "flowsched/run"
"""The label with the name of the driver that has made a pod, and the annotation with the record of its run."""

_WHY = """>/dev/termination-log printf '%s' "$2" """
"""Keeps the reason why a command cannot begin, for `verdict`."""

_LOST = ("Evicted", "NodeLost", "NodeShutdown", "Terminated", "Shutdown", "Preempting", "NodeAffinity", "OutOf")
"""How reasons begin with which the node's kubelet, not the pod itself, ended it."""

_NAMES = {"cpu": "cpu", "memory": "mem", "nvidia.com/gpu": "gpu", "pods": "pods"}

_UNITS = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_UNITS |= {f"{unit}i": 2.0 ** (10 * (i + 1)) for i, unit in enumerate("KMGTP")}


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
    """Return what a pod asks for: its containers together, or an initial one if that asks for more."""
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


def ready(node: Mapping[str, Any]) -> bool:
    """Return True if a node's kubelet says that it is ready."""
    conditions = node.get("status", {}).get("conditions", ())
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def machine(node: Mapping[str, Any], others: Iterable[Mapping[str, Any]], resources: Sequence[str]) -> MachineAdded:
    """Return the machine that a node is, beside pods of others that are on it."""
    there, has = list(others), _amounts(node["status"]["allocatable"])
    slots = int(has.pop("pods", 0)) - len(there) if "pods" in has else None
    for pod in there:
        has.subtract(_requests(pod))
    capacity = {name: max(has[name], 0) for name in resources if name in has}
    # What Kubernetes itself says of the node's state is known from its conditions.
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
    """Return what binds the pod of a run to its node."""
    target = {"apiVersion": "v1", "kind": "Node", "name": run.machine}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": path.rpartition("/")[2]}, "target": target}


def verdict(run: Run, pod: Mapping[str, Any]) -> Told:
    """Return what is to be told of a run whose pod is over."""
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
