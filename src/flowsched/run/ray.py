"""Calls on the nodes of a Ray cluster: flowsched decides which node, Ray executes there.

A run is a Ray task that is pinned to its node (hard node affinity), asks Ray for what the scheduler has reserved, and is
never retried by Ray.  A node is a machine.

A run may be lost seconds before Ray counts its node as dead.  Until that is known, the node is drained and the loss is not
told: a task without demand is sent there.  It comes back from a node that lives, and fails on one that is dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Sequence
from importlib import import_module
from typing import Any

from flowsched.boundary.validate import seconds
from flowsched.cluster.events import MachineAdded, MachineDrained, MachineUpdated
from flowsched.exceptions import InputError
from flowsched.run.adapter import Adapter
from flowsched.run.executor import Ended, Failed, Run, Stopped, Told

__all__ = ["RayExecutor"]

_RAYS = {"cpu": "CPU", "gpu": "GPU", "mem": "memory"}


class RayExecutor(Adapter):
    """Runs calls as Ray tasks; a payload is a callable without parameters, such as a `functools.partial`.

    Runs of a driver that died end with its connection, so a successor starts them again.

    Parameters
    ----------
    address : str, optional
        Of the cluster, as `ray.init` has it: by default that of the cluster that runs here.  A process that is connected
        already stays so.
    resources : sequence of str
        Those of the flowsched scheduler.  ``cpu`` and ``gpu`` are Ray's CPU and GPU, ``mem`` its memory in MiB; others are
        custom resources.  Ray chooses the devices.
    poll : float
        Seconds between two looks at the nodes: Ray does not tell which come and go.
    """

    latency = 0.01

    def __init__(
        self, address: str = "auto", resources: Sequence[str] = ("cpu", "mem", "gpu"), *, poll: float = 1.0
    ) -> None:
        self._address, self._resources, self._poll = address, tuple(resources), seconds("poll", poll)
        super().__init__()
        self._refs: dict[int, Any] = {}

    async def open(self, tell: Callable[[Told], None]) -> Iterable[Run]:
        """See `Executor.open`."""
        ray: Any = import_module("ray")
        self._affinity = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        self._ray, self.tell, self._mine = ray, tell, not ray.is_initialized()
        if self._mine:
            try:
                await self._connect()
            except (OSError, TimeoutError) as error:
                raise ConnectionError(f"no Ray cluster answers at {self._address!r}") from error
        # Inner functions travel with their code, so the nodes need no flowsched.
        self._call = ray.remote(max_retries=0)(lambda payload: payload())
        await self._look()
        # An error says that the cluster's head does not answer now.
        self.later(self.follow(self._look, self._poll, ray.exceptions.RayError, OSError))
        return ()

    async def _connect(self) -> None:
        host, _, port = self._address.rpartition(":")
        if port.isdigit() and "/" not in host:  # Ray would try for minutes
            _, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), 10.0)
            writer.close()
        # In a thread Ray leaves the handlers of signals as they are.
        await asyncio.to_thread(self._ray.init, self._address, log_to_driver=False, logging_level="error")

    def start(self, run: Run) -> None:
        """See `Executor.start`."""
        if not callable(run.payload):
            raise InputError(f"task {run.task!r}: a callable expected, got {run.payload!r}")
        own = {name: amount for name, amount in run.demand.items() if name not in _RAYS and amount}
        self._refs[run.number] = ref = self._pinned(
            run.machine,
            num_cpus=run.demand.get("cpu", 0),
            num_gpus=run.demand.get("gpu", 0),
            memory=int(run.demand.get("mem", 0) * 2**20) or None,
            resources=own or None,
            name=str(run.task),
        ).remote(run.payload)
        self.later(self._watch(run, ref))

    def holds(self, run: Run) -> bool:
        """See `Holding.holds`."""
        return True

    def stop(self, run: Run) -> None:
        """See `Executor.stop`."""
        ref = self._refs.pop(run.number, None)
        if ref is None:
            self.tell(Stopped(run.number))
        else:
            self._ray.cancel(ref, force=True)

    def release(self, run: Run) -> None:
        """See `Executor.release`."""
        self._refs.pop(run.number, None)

    async def close(self) -> None:
        """See `Executor.close`."""
        await self.end_acts()
        self._refs.clear()
        if self._mine:
            await asyncio.to_thread(self._ray.shutdown)

    def _pinned(self, node: Hashable, **options: Any) -> Any:
        return self._call.options(scheduling_strategy=self._affinity(node, soft=False), **options)

    async def _watch(self, run: Run, ref: Any) -> None:
        """Tell the end of a run."""
        errors = self._ray.exceptions
        try:
            self.tell(Ended(run.number, await ref))
        except errors.RayTaskError as error:
            self.tell(Failed(run.number, error.cause or error))
        except Exception as error:
            if run.number not in self._refs:
                self.tell(Stopped(run.number))
            else:
                await self._lost(run, error)

    async def _lost(self, run: Run, error: Exception) -> None:
        """Tell that a run was lost, once its node has answered; where it does not, its removal tells."""
        node = run.machine
        self.tell(MachineDrained(node))
        while node in self.machines:
            try:
                await self._pinned(node, num_cpus=0).remote(int)
            except self._ray.exceptions.RayError:
                await asyncio.sleep(self._poll)
                continue
            self.tell(MachineUpdated(node))
            self.tell(Failed(run.number, error, lost=True))
            return

    async def _look(self) -> None:
        """Tell which nodes have come and gone."""
        now: dict[Hashable, MachineAdded | None] = {}
        for node in await asyncio.to_thread(self._ray.nodes):
            if node["Alive"]:
                has, id = node["Resources"], node["NodeID"]
                capacity = {name: has.get(_RAYS.get(name, name), 0.0) for name in self._resources}
                if "mem" in capacity:
                    capacity["mem"] /= 2**20
                now[id] = MachineAdded(id, capacity, node["NodeManagerAddress"], node.get("Labels") or {})
        self.show(now)
