"""Reports on pods: conditions and events for Kubernetes, or lines of text where nothing is carried out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from flowsched.run.kubeapi import Api, KubernetesError, allowed
from flowsched.run.pods import Object, scheduler_of

LOGGER = logging.getLogger("flowsched")

_WRITERS = 8
"""Largest number of reports that are being written."""


class Reports:
    """Conditions and events of pods, written in the background, those of one kind and pod in order.

    A report that the server refuses is logged.  Of the conditions of a pod that wait to be written the last one counts.
    """

    def __init__(self, api: Api, later: Callable[[Any], object]) -> None:
        self._api, self._later = api, later
        self._waiting: dict[tuple[str, str], list[tuple[str, str, Any]]] = {}
        self._sent: set[tuple[str, str]] = set()
        self._settling: dict[str, list[asyncio.Future[None]]] = {}
        self._writers = 0

    def waits(self, path: str, pod: Object, reason: str, text: str) -> None:
        """Report why a pod waits."""
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": text}
        status = _status(
            path, pod["metadata"].get("uid", ""), {"conditions": [condition | {"lastTransitionTime": _now()}]}
        )
        self._write("PodScheduled", path, _event(pod, "Warning", "FailedScheduling", text), status)

    def bound(self, path: str, pod: Object, node: str) -> None:
        """Report a pod that was bound."""
        text = f"Successfully assigned {_name(path)} to {node}"
        self._write("Scheduled", path, _event(pod, "Normal", "Scheduled", text))

    async def settled(self, path: str) -> None:
        """Drop the report why a pod waits, unless that is being written, and wait for its reports: it is about to be bound."""
        self._waiting.pop(("PodScheduled", path), None)
        while self._is_busy(path):
            written = asyncio.get_running_loop().create_future()
            self._settling.setdefault(path, []).append(written)
            await written

    def _is_busy(self, path: str) -> bool:
        keys = ("PodScheduled", path), ("nominated", path)
        return any(key in self._waiting or key in self._sent for key in keys)

    def nominate(self, path: str, uid: str, node: str) -> None:
        """Report the node on which room is made for a pod."""
        self._write("nominated", path, _status(path, uid, {"nominatedNodeName": node}))

    async def displaced(self, path: str, pod: Object, text: str) -> None:
        """Report that a pod is about to be deleted."""
        self._write("Preempted", path, _event(pod, "Normal", "Preempted", text))
        why = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": text}
        conditions = {"conditions": [why | {"lastTransitionTime": _now()}]}
        await self._send(*_status(path, pod["metadata"].get("uid", ""), conditions))

    def _write(self, what: str, path: str, *requests: tuple[str, str, Any]) -> None:
        self._waiting[what, path] = list(requests)
        if self._writers < _WRITERS:
            self._writers += 1
            self._later(self._writer())

    async def _writer(self) -> None:
        try:
            while (key := next((key for key in self._waiting if key not in self._sent), None)) is not None:
                self._sent.add(key)
                try:
                    for request in self._waiting.pop(key):
                        await self._send(*request)
                finally:
                    self._sent.discard(key)
                    if key[1] in self._settling and not self._is_busy(key[1]):
                        for written in self._settling.pop(key[1]):
                            if not written.done():
                                written.set_result(None)
        finally:
            self._writers -= 1

    async def _send(self, method: str, target: str, body: Any) -> None:
        try:
            with allowed(404), allowed(409):  # the pod is gone, or is another one
                await self._api.ask(method, target, body)
        except KubernetesError as error:
            LOGGER.warning("%s", error)


class Advice:
    """Reports as lines of text: the node that each pod would get, and why others wait.

    Parameters
    ----------
    write : callable
        Called with each line.
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._nodes: dict[str, str] = {}

    def waits(self, path: str, pod: Object, reason: str, text: str) -> None:
        """Report why a pod would wait."""
        self._write(f"{_name(path)}: waits: {text}")

    def bound(self, path: str, pod: Object, node: str) -> None:
        """Report the node of a pod."""
        self._nodes[path] = node
        self._write(f"{_name(path)}: {node}")

    def elsewhere(self, path: str, pod: Object, node: str) -> None:
        """Report the node to which another scheduler has bound a pod."""
        mine = self._nodes.pop(path, "none")
        if mine != node:
            self._write(f"{_name(path)}: {mine}, bound to {node} by {scheduler_of(pod)}")

    async def settled(self, path: str) -> None:
        """Nothing is being written."""

    def nominate(self, path: str, uid: str, node: str) -> None:
        """Nothing: no pod is displaced."""

    async def displaced(self, path: str, pod: Object, text: str) -> None:
        """Nothing: no pod is displaced."""


def _name(path: str) -> str:
    """Return ``NAMESPACE/NAME`` of a pod's path."""
    return "/".join(path.split("/")[4::2])


def _event(pod: Object, kind: str, reason: str, text: str) -> tuple[str, str, Any]:
    """Return the request that creates an event of a pod."""
    about, now, scheduler = pod["metadata"], _now(), scheduler_of(pod)
    regarding = {"apiVersion": "v1", "kind": "Pod", "namespace": about["namespace"], "name": about["name"]}
    body = {
        "apiVersion": "v1", "kind": "Event", "type": kind, "reason": reason, "message": text[:1024], "count": 1,
        "metadata": {"name": f"{about['name'][:200]}.{uuid4().hex[:16]}", "namespace": about["namespace"]},
        "involvedObject": regarding | {"uid": about.get("uid", "")}, "firstTimestamp": now, "lastTimestamp": now,
        "source": {"component": scheduler}, "reportingComponent": scheduler, "reportingInstance": scheduler,
    }  # fmt: skip
    return "POST", f"/api/v1/namespaces/{about['namespace']}/events", body


def _status(path: str, uid: str, status: Any) -> tuple[str, str, Any]:
    """Return the request that changes the status of a pod with that identity."""
    return "PATCH", f"{path}/status", {"metadata": {"uid": uid} if uid else {}, "status": status}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
