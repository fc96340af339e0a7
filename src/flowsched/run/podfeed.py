"""Pods of others as tasks of a driver: how flowsched is the scheduler of a Kubernetes cluster, beside kube-scheduler."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from flowsched.cluster.events import JobSubmitted
from flowsched.exceptions import FlowschedError
from flowsched.run.driver import Driver
from flowsched.run.pods import DRIVER, SCHEDULER, is_over, task

__all__ = ["Feed"]

LOGGER = logging.getLogger("flowsched")


class Feed:
    """Submits the pods that wait for flowsched, and cancels those that are deleted.

    Parameters
    ----------
    driver : Driver
    resources : sequence of str
        Of the scheduler.
    """

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
