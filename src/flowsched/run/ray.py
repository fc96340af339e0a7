"""Calls on the nodes of a Ray cluster: flowsched decides which node, Ray executes there.

A run is a Ray task that is pinned to its node (hard node affinity), requests the resources that the scheduler has reserved,
and is never retried by Ray.  A node is a machine.

The runs of a gang are actors.  Those that start at once begin together: no call before all of these actors are up.  So a
member finds the others there, and one whose actor has died has been lost.

A run may be lost seconds before Ray counts its node as dead.  Until that is known, the node is drained and the loss is not
reported: a task without demand is sent there.  It returns from a live node, and fails on a dead one.  For a command, it also
ends the remaining processes, so a command is reported as stopped or lost once these are gone, see `flowsched.run.onworker`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any
from uuid import uuid4

from flowsched.boundary.validate import seconds
from flowsched.cluster.events import MachineAdded, MachineDrained, MachineUpdated
from flowsched.exceptions import InputError
from flowsched.run.adapter import Adapter, Held
from flowsched.run.command import UNFIT, ExitStatusError, command_in
from flowsched.run.executor import Ended, Failed, Run, Stopped, Told
from flowsched.run.onworker import clear

_RAYS = {"cpu": "CPU", "gpu": "GPU", "mem": "memory"}


@dataclass(eq=False, slots=True, kw_only=True)
class _Call(Held):
    """A run, its call and its result, the actor of a member of a gang, and the name by which a command is found."""

    payload: Callable[[], Any]
    ref: Any = None
    actor: Any = None
    name: str = ""


class RayExecutor(Adapter[_Call]):
    """Runs calls as Ray tasks; a payload is a callable without parameters, such as a `functools.partial`, or a `Command`.

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
        Seconds between two polls of the nodes: Ray does not report which come and go.
    """

    latency = 0.01

    def __init__(
        self, address: str = "auto", resources: Sequence[str] = ("cpu", "mem", "gpu"), *, poll: float = 1.0
    ) -> None:
        self._address, self._resources, self._poll = address, tuple(resources), seconds("poll", poll)
        super().__init__()
        self._life = uuid4().hex[:8]
        self._gangs: dict[Hashable, list[_Call]] = {}  # to be started in this turn of the loop

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
        # Inner functions and classes travel with their code, so the nodes need no flowsched.
        self._call = ray.remote(max_retries=0)(lambda payload: payload())

        class Member:
            def up(self) -> None:
                """Do nothing: the actor is there."""

            def call(self, payload: Callable[[], Any]) -> Any:
                return payload()

        self._member = ray.remote(max_restarts=0, max_task_retries=0)(Member)
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
        command = command_in(run.payload)
        if command is None and not callable(run.payload):
            raise InputError(f"task {run.task!r}: a callable or a Command expected, got {run.payload!r}")
        name = "" if command is None else f"flowsched-{self._life}-{run.number}"
        payload = run.payload if command is None else partial(command.call, name)
        call = self.held[run.number] = _Call(run, payload=payload, name=name)
        if run.gang is None:
            call.ref = self._pinned(self._call, run.machine, name=str(run.task), **_asked(run)).remote(payload)
            self.later(self._watch(call))
            return
        call.actor = self._pinned(self._member, run.machine, **_asked(run)).remote()
        if run.gang not in self._gangs:
            self.later(self._start_gang(run.gang))
        self._gangs.setdefault(run.gang, []).append(call)

    async def _start_gang(self, gang: Hashable) -> None:
        """Begin the calls of members once all of their actors are up, or will never be."""
        calls = self._gangs.pop(gang)
        await asyncio.gather(*(call.actor.up.remote() for call in calls), return_exceptions=True)
        for call in calls:
            try:
                call.ref = call.actor.call.remote(call.payload)
            except Exception as error:  # its call cannot be pickled
                self.finish(call, Failed(call.run.number, error))
            else:
                self.later(self._watch(call))

    def holds(self, run: Run) -> bool:
        """See `Holding.holds`; members of a gang begin together, so none may wait at its node."""
        return run.gang is None

    def halt(self, held: _Call) -> None:
        """See `Adapter.halt`."""
        if held.actor is not None:
            self._ray.kill(held.actor)
        else:
            self._ray.cancel(held.ref, force=True)

    def release(self, run: Run) -> None:
        """See `Executor.release`."""
        call = self.held.pop(run.number, None)
        if call is not None and call.actor is not None:
            self._ray.kill(call.actor)

    async def close(self) -> None:
        """See `Executor.close`."""
        await self.end_acts()
        self.held.clear()
        if self._mine:
            await asyncio.to_thread(self._ray.shutdown)

    def _pinned(self, remote: Any, node: Hashable, **options: Any) -> Any:
        return remote.options(scheduling_strategy=self._affinity(node, soft=False), **options)

    async def _watch(self, call: _Call) -> None:
        """Report the end of a run."""
        number = call.run.number
        try:
            self.finish(call, Ended(number, await call.ref))
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause or error
            unfit = isinstance(cause, ExitStatusError) and cause.status == UNFIT
            self.finish(call, Failed(number, cause, unfit=unfit))
        except Exception as error:
            if call.stopped:
                with suppress(self._ray.exceptions.RayError, OSError):  # of a node that is gone with all that it had
                    await self._probe(call)
                self.finish(call, Stopped(number))
            else:
                await self._lost(call, error)

    async def _lost(self, call: _Call, error: Exception) -> None:
        """Report a run as lost once its node has answered; otherwise the node's removal reports that."""
        node = call.run.machine
        self.tell(MachineDrained(node))
        while node in self.machines:
            try:
                await self._probe(call)
            except (self._ray.exceptions.RayError, OSError):
                await asyncio.sleep(self._poll)
                continue
            self.tell(MachineUpdated(node))
            self.finish(call, Failed(call.run.number, error, lost=True))
            return

    async def _probe(self, call: _Call) -> None:
        """Wait for the answer of a call's node, by which nothing is left there of a command."""
        ask = partial(clear, call.name) if call.name else int
        await self._pinned(self._call, call.run.machine, num_cpus=0).remote(ask)

    async def _look(self) -> None:
        """Report the nodes that have come and gone."""
        now: dict[Hashable, MachineAdded] = {}
        for node in await asyncio.to_thread(self._ray.nodes):
            if node["Alive"]:
                has, id = node["Resources"], node["NodeID"]
                capacity = {name: has.get(_RAYS.get(name, name), 0.0) for name in self._resources}
                if "mem" in capacity:
                    capacity["mem"] /= 2**20
                now[id] = MachineAdded(id, capacity, node["NodeManagerAddress"], node.get("Labels") or {})
        self.show(now)


def _asked(run: Run) -> dict[str, Any]:
    """Return the options of a run's request to Ray."""
    demand = run.demand
    own = {name: amount for name, amount in demand.items() if name not in _RAYS and amount}
    memory = int(demand.get("mem", 0) * 2**20) or None
    return {
        "num_cpus": demand.get("cpu", 0),
        "num_gpus": demand.get("gpu", 0),
        "memory": memory,
        "resources": own or None,
    }
