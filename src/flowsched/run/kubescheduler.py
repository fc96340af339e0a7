"""A scheduler of a Kubernetes cluster as a process: leader election, probes, and a driver while it leads.

Several processes compete for a Lease (``coordination.k8s.io``).  One leads, the others stand by: they take the lease over
once it has not been renewed for its duration, by their own clocks.  A leader that cannot renew it for two thirds of that
time stops at once, so that no two bind pods.  All state is in Kubernetes, so a new leader goes on where the old one was.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from flowsched.exceptions import InputError
from flowsched.policy import Policy, WaitCost
from flowsched.run.driver import Driver
from flowsched.run.kubeapi import Api, KubernetesError
from flowsched.run.kubernetes import KubernetesExecutor
from flowsched.run.pods import ODD, SCHEDULER, amounts
from flowsched.scheduler import Scheduler

LOGGER = logging.getLogger("flowsched")

_SPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""The file with the namespace of a pod in which this runs."""

_ALWAYS = ("cpu", "mem", "gpu", "ephemeral-storage")
"""Resources that are counted although no node reports them yet."""

_ROUND = 2.0
"""Seconds of computing for one round, so that the lease is renewed in time."""


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """The Lease of a leader.

    Parameters
    ----------
    namespace : str
        Empty for that of the pod in which this runs.
    name : str
    duration : float
        Seconds without renewal after which another process leads.
    """

    namespace: str = ""
    name: str = "flowsched"
    duration: float = 15.0


@dataclass(frozen=True, slots=True)
class KubeSettings:
    """Settings of a scheduler for Kubernetes.

    Parameters
    ----------
    names : tuple of str
        Values of ``schedulerName`` in its pods.
    policy : Policy
    resources : tuple of str
        Empty for all that nodes report when it begins.
    listen : str
        ``HOST:PORT`` of the probes; empty for none.
    lost : float
        Seconds after which a node that is not ready is gone.
    lease : LeaseSettings or None
        None for a process that leads without asking.
    """

    names: tuple[str, ...] = (SCHEDULER,)
    policy: Policy = field(default_factory=lambda: Policy(waiting=WaitCost(first=10.0, reserve=1)))
    resources: tuple[str, ...] = ()
    listen: str = ""
    lost: float = 60.0
    lease: LeaseSettings | None = None


def default_lease() -> LeaseSettings | None:
    """Return the lease of a pod in which this runs; None outside a cluster."""
    return LeaseSettings() if _SPACE.is_file() else None


class Election:
    """Leadership by a Lease.

    Parameters
    ----------
    api : Api
    settings : LeaseSettings
    name : str, optional
        Of this process.
    """

    def __init__(self, api: Api, settings: LeaseSettings, name: str = "") -> None:
        space = settings.namespace
        if not space:
            try:
                space = _SPACE.read_text().strip()
            except OSError:
                raise InputError("lease: a namespace is needed outside a cluster") from None
        self._api, self._settings = api, settings
        self._all = f"/apis/coordination.k8s.io/v1/namespaces/{space}/leases"
        self._name = name or f"{socket.gethostname()}_{uuid4()}"
        self._seen, self._since = "", 0.0
        self._renewed = 0.0

    async def lead(self) -> None:
        """Wait until this process leads.

        Raises
        ------
        KubernetesError
            The account has no right to the lease.
        """
        said = ""
        while True:
            try:
                if await self._take():
                    return
            except KubernetesError as error:
                if not error.passes:
                    raise
                if str(error) != said:
                    LOGGER.warning("%s", error)
                said = str(error)
            await asyncio.sleep(self._settings.duration / 7.5)

    async def lost(self) -> None:
        """Renew the lease until another process has it, or until it cannot be renewed in time."""
        limit = self._settings.duration * 2 / 3
        while (left := self._renewed + limit - time.monotonic()) > 0:
            await asyncio.sleep(min(self._settings.duration / 7.5, left))
            try:
                async with asyncio.timeout(max(self._renewed + limit - time.monotonic(), 0.0)):
                    if not await self._take():
                        return
            except KubernetesError as error:
                LOGGER.warning("%s", error)
            except TimeoutError:
                return

    async def leave(self) -> None:
        """Give up the lease, so that another process leads at once."""
        with suppress(KubernetesError):
            lease = await self._get()
            if lease is not None and lease["spec"].get("holderIdentity") == self._name:
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _micro()}
                await self._api.once("PUT", f"{self._all}/{self._settings.name}", lease)

    async def _get(self) -> Any:
        try:
            return await self._api.once("GET", f"{self._all}/{self._settings.name}")
        except KubernetesError as error:
            if error.status != 404:
                raise
            return None

    async def _take(self) -> bool:
        """Take or renew the lease, unless another process has it."""
        now, lease = time.monotonic(), await self._get()
        spec = {
            "holderIdentity": self._name, "leaseDurationSeconds": max(round(self._settings.duration), 1),
            "renewTime": _micro(),
        }  # fmt: skip
        try:
            if lease is None:
                about = {"name": self._settings.name}
                body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": about}
                await self._api.once("POST", self._all, body | {"spec": spec | {"acquireTime": spec["renewTime"]}})
            else:
                old, version = lease.get("spec") or {}, lease["metadata"]["resourceVersion"]
                holder = old.get("holderIdentity")
                if holder != self._name:
                    if version != self._seen:
                        self._seen, self._since = version, now
                    if holder and now - self._since < (old.get("leaseDurationSeconds") or self._settings.duration):
                        return False
                    spec |= {
                        "acquireTime": spec["renewTime"],
                        "leaseTransitions": (old.get("leaseTransitions") or 0) + 1,
                    }
                lease["spec"] = old | spec
                await self._api.once("PUT", f"{self._all}/{self._settings.name}", lease)
        except KubernetesError as error:
            if error.status != 409:
                raise
            return self._renewed > 0 and await self._is_mine()
        self._renewed = now
        return True

    async def _is_mine(self) -> bool:
        lease = await self._get()
        return lease is not None and lease["spec"].get("holderIdentity") == self._name


def _micro() -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime())}.{int(time.time() % 1 * 1e6):06d}Z"


class KubeScheduler:
    """A scheduler for Kubernetes.

    Parameters
    ----------
    settings : KubeSettings
    client : kubernetes.client.ApiClient, optional
        See `KubernetesExecutor`.
    advise : callable, optional
        See `KubernetesExecutor.feed`: nothing is changed, and there is no election.

    Attributes
    ----------
    state : str
        ``"starting"``, ``"standby"`` or ``"leading"``.
    address : (host, port) or None
        Of the probes.
    """

    def __init__(
        self, settings: KubeSettings, *, client: Any = None, advise: Callable[[str], object] | None = None
    ) -> None:
        self._settings, self._client, self._advise = settings, client, advise
        self._driver: Driver | None = None
        self.state = "starting"
        self.address: tuple[str, int] | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Schedule until `stop` is set.

        Raises
        ------
        KubernetesError
            The API server refuses the account, or another process leads.
        """
        api = Api(self._client)
        lease = None if self._advise is not None else self._settings.lease
        try:
            election = None if lease is None else Election(api, lease)
            async with self._probes():
                if election is not None:
                    self.state = "standby"
                    if not await _until(stop, election.lead()):
                        return
                lost = None if election is None else asyncio.ensure_future(election.lost())
                try:
                    await self._lead(api, stop, lost)
                finally:
                    if election is not None and lost is not None:
                        lost.cancel()
                        await asyncio.gather(lost, return_exceptions=True)
                        await election.leave()
        finally:
            await api.close()

    async def _lead(self, api: Api, stop: asyncio.Event, lost: asyncio.Future[None] | None) -> None:
        """Schedule until `stop` is set.  The lease is renewed meanwhile, as the lists of a large cluster take longer than it lasts."""
        self.state = "starting"
        resources = self._settings.resources or await _resources(api)
        executor = KubernetesExecutor(resources, client=self._client, lost=self._settings.lost)
        scheduler = Scheduler(self._settings.policy, resources=resources)
        async with Driver(scheduler, executor, round_limit=_ROUND, ahead=0.0) as self._driver:
            if lost is None or not lost.done():
                executor.feed(self._driver, self._settings.names, self._advise)
                self.state = "leading"
                LOGGER.info("leading; resources: %s", ", ".join(resources))
            if await _until(stop, self._driver.ended(), *([] if lost is None else [lost])):
                executor.abandon()
                raise KubernetesError("the lease is lost")

    # -- probes -------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _probes(self) -> AsyncIterator[None]:
        """Serve ``/healthz``, ``/readyz`` and ``/metrics``."""
        if not self._settings.listen:
            yield
            return
        from aiohttp import web

        host, _, port = self._settings.listen.rpartition(":")
        app = web.Application()
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._metrics)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host.strip("[]") or None, int(port))
            try:
                await site.start()
            except OSError as error:
                raise InputError(f"cannot listen at {self._settings.listen}: {error.strerror or error}") from None
            self.address = runner.addresses[0][:2]
            yield
        finally:
            await runner.cleanup()

    async def _health(self, _: Any) -> Any:
        from aiohttp import web

        return web.Response(text="ok")

    async def _ready(self, _: Any) -> Any:
        from aiohttp import web

        return web.Response(text=self.state, status=503 if self.state == "starting" else 200)

    async def _metrics(self, _: Any) -> Any:
        from aiohttp import web

        text = f"# TYPE flowsched_leading gauge\nflowsched_leading {int(self.state == 'leading')}\n"
        if self._driver is not None:
            from prometheus_client import CollectorRegistry, generate_latest

            from flowsched.metrics import PrometheusCollector

            registry = CollectorRegistry()
            registry.register(PrometheusCollector(self._driver.scheduler))
            text += generate_latest(registry).decode()
        return web.Response(body=text.encode(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


async def _resources(api: Api) -> tuple[str, ...]:
    """Return the names of all resources of nodes but the number of pods."""
    nodes, _ = await api.list("nodes")
    names = dict.fromkeys(_ALWAYS)
    for node in nodes.values():
        with suppress(*ODD):
            names.update(dict.fromkeys(sorted(amounts(node["status"]["allocatable"]).keys() - {"pods"})))
    return tuple(names)


async def _until(stop: asyncio.Event, *acts: Any) -> bool:
    """Wait for one of some coroutines or futures, or until `stop` is set; return False in that case."""
    tasks = [asyncio.ensure_future(act) for act in acts]
    ends = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([*tasks, ends], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
        return not ends.done()
    finally:
        for task in [*tasks, ends]:
            task.cancel()
        await asyncio.gather(*tasks, ends, return_exceptions=True)
