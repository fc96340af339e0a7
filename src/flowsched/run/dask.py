"""Calls on the workers of a Dask cluster: flowsched decides which worker, Dask executes there.

A run is a key of its own that is pinned to its worker.  Dask neither retries nor moves it.  A worker is a machine; one that
restarts under its nanny has a new address, so it is another machine.

Dask cannot stop a thread.  A *call* that is stopped while it runs is reported as stopped at once, and goes on to its end in
a thread of the worker.  A *command* is a process: it is reported as stopped once all its processes are gone, and it ends
with its worker and with the driver's client, see `flowsched.run.onworker`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from flowsched.cluster.events import MachineAdded
from flowsched.exceptions import InputError
from flowsched.run.adapter import Adapter, Held
from flowsched.run.command import UNFIT, Command, ExitStatusError, command_in
from flowsched.run.executor import Ended, Failed, Left, Run, Stopped, Told
from flowsched.run.onworker import stop as stop_here

if TYPE_CHECKING:
    from distributed import Future

_POLL = 5.0
"""Seconds between two polls of the workers, made even if Dask has reported no change."""

_NOT_DASKS = ("cpu", "mem")
"""Resources that Dask has as threads and as a limit; it keeps the books of the others itself."""

_LATER = 0.1
"""Seconds for which fetched results stay at their workers.  To release them at once costs a message, and submissions
right after it wait until the next message may be sent."""

_TRIPS = 3
"""Round trips to a worker per run: start, end, and the fetch of the result."""

_TOGETHER = 0.005
"""Least time between two fetches of results, in seconds: one costs two messages, however many results it fetches."""


class DaskExecutor(Adapter[Held]):
    """Runs calls on Dask workers; a payload is a callable without parameters, such as a `functools.partial`, or a `Command`.

    Runs of a driver that died end with its client, so a successor starts them again.

    Parameters
    ----------
    cluster : str, Client or cluster
        Address of the scheduler, a client made with ``asynchronous=True``, or a cluster object for such a client.
    resources : sequence of str
        Those of the flowsched scheduler.  A worker's threads are its ``cpu``, its memory limit is its ``mem`` in MiB, and
        others are Dask's own resources of the worker.

    Attributes
    ----------
    latency : float
        Measured seconds from an end to its report, and from `start` to the begin of the run.
    """

    def __init__(self, cluster: Any, resources: Sequence[str] = ("cpu", "mem", "gpu")) -> None:
        super().__init__()
        self._cluster, self._resources, self.latency = cluster, tuple(resources), 0.02
        self._client: Any = None
        self._starting: dict[int, Run] = {}
        self._futures: dict[int, Future[Any]] = {}
        self._commands: dict[int, str] = {}  # keys of commands by run
        self._ending: set[int] = set()  # commands that are being stopped
        self._released: list[Future[Any]] = []
        self._graphs = 0
        self._workers: dict[Hashable, Any] = {}
        self._life = uuid4().hex[:8]
        self._done: list[tuple[int, Future[Any]]] = []
        self._changed = asyncio.Event()
        self._next = 0.0

    async def open(self, tell: Callable[[Told], None]) -> Iterable[Run]:
        """See `Executor.open`."""
        from distributed import Client

        self.tell, self._loop = tell, asyncio.get_running_loop()
        given = isinstance(self._cluster, Client)
        make: Any = Client
        self._client = self._cluster if given else await make(self._cluster, asynchronous=True)
        self._mine = not given
        await self._look()
        self._client.subscribe_topic("all", self._noted)
        self.later(self.follow(self._look, _POLL, OSError, TimeoutError, pause=self._pause))
        return ()

    def start(self, run: Run) -> None:
        """See `Executor.start`."""
        if command_in(run.payload) is None and not callable(run.payload):
            raise InputError(f"task {run.task!r}: a callable or a Command expected, got {run.payload!r}")
        if not self._starting:
            self._loop.call_soon(self._start)
        self._starting[run.number] = run

    def _start(self) -> None:
        """Submit the runs of a round together."""
        runs, self._starting = list(self._starting.values()), {}
        try:
            self._submit(runs)
        except Exception:  # one of them cannot be pickled
            for run in runs:
                try:
                    self._submit([run])
                except Exception as error:
                    self.tell(Failed(run.number, error))

    def _submit(self, runs: Sequence[Run]) -> None:
        """Submit runs as one graph, with a layer for those that have worker and resources in common."""
        from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

        calls: dict[Any, dict[str, Any]] = {}
        for run in runs:
            held = tuple((name, amount) for name, amount in run.demand.items() if amount and name not in _NOT_DASKS)
            # Dask runs keys of one graph in their order.
            key, command = f"flowsched-{self._life}-{run.number:015d}", command_in(run.payload)
            if command is not None:
                self._commands[run.number] = key
            call = run.payload if command is None else partial(_execute, command, key)
            calls.setdefault((run.machine, held), {})[key] = (call,)
        self._graphs += 1
        layers = {
            f"flowsched-{self._life}-{self._graphs}-{i}": MaterializedLayer(
                those, {"workers": [machine], **({"resources": dict(held)} if held else {})}
            )
            for i, ((machine, held), those) in enumerate(calls.items())
        }
        keys = [key for those in calls.values() for key in those]
        graph = HighLevelGraph(layers, {layer: set() for layer in layers})
        futures = dict(zip(keys, self._client.get(graph, keys, sync=False), strict=True))
        soon: Any = self._loop.call_soon_threadsafe
        for run in runs:
            future = self._futures[run.number] = futures[f"flowsched-{self._life}-{run.number:015d}"]
            future.add_done_callback(partial(soon, self._over, run.number))

    def holds(self, run: Run) -> bool:
        """Return True if Dask holds the run back, since no more of its kind fit in a worker than the worker has threads."""
        info = self._workers.get(run.machine)
        if info is None:
            return False
        limit = info["memory_limit"] / 2**20
        return run.demand.get("cpu", 0) <= 1 and run.demand.get("mem", 0) * info["nthreads"] <= limit

    def stop(self, run: Run) -> None:
        """See `Executor.stop`."""
        if run.number in self._ending:
            return
        self._starting.pop(run.number, None)
        key: Any = self._commands.pop(run.number, None)
        future: Any = self._futures.pop(run.number, None)
        if future is not None and key is not None:
            self._ending.add(run.number)
            self.later(self._end(run, key, future))
            return
        if future is not None:  # also one that is done: where its worker is gone, Dask would wait for another result
            self.later(self._cancel(future))
        self.tell(Stopped(run.number))

    async def _end(self, run: Run, key: str, future: Future[Any]) -> None:
        """Stop a command, and report that once its processes are gone; they end with their worker, too."""
        try:
            await self._cancel(future)
            while run.machine in self._workers:
                with suppress(OSError, TimeoutError, ValueError):  # a worker or the scheduler does not answer now
                    answers = await self._client.run(stop_here, key, workers=[run.machine], on_error="return")
                    if answers.get(run.machine) is True:
                        break
                self._changed.set()
                await asyncio.sleep(0.2)
            self.tell(Stopped(run.number))
        finally:
            self._ending.discard(run.number)

    def release(self, run: Run) -> None:
        """See `Executor.release`."""
        self._commands.pop(run.number, None)
        future = self._futures.pop(run.number, None)
        if future is not None:
            self._released.append(future)
            if len(self._released) == 1:
                self._loop.call_later(_LATER, self._released.clear)

    async def close(self) -> None:
        """See `Executor.close`."""
        await self.end_acts()
        self._futures.clear()
        if self._mine:
            await self._client.close()
        else:
            self._client.unsubscribe_topic("all")

    async def _cancel(self, future: Future[Any]) -> None:
        with suppress(OSError, TimeoutError):  # its client is closed, or the scheduler is gone with all that it knew
            await self._client.cancel([future], force=True)

    def _over(self, number: int, future: Future[Any]) -> None:
        """Take note of a future that is done; the results of all that are done by now are fetched together."""
        if number in self._futures:
            if future.status == "finished":
                self.tell(Left(number))
            self._done.append((number, future))
            if len(self._done) == 1:
                self._loop.call_at(max(self._next, self._loop.time()), lambda: self.later(self._fetch()))

    async def _fetch(self) -> None:
        done, self._done = self._done, []
        good = [(number, future) for number, future in done if future.status == "finished"]
        begun = self._loop.time()
        self._next = begun + max(_TOGETHER, self.latency / _TRIPS)
        try:
            values = await self._client.gather([future for _, future in good])
            self.latency += (_TRIPS * (self._loop.time() - begun) - self.latency) / 8
        except (Exception, asyncio.CancelledError):  # a worker died with its results
            values = None
        for (number, _), value in zip(good, values or (), strict=False):
            self.tell(Ended(number, value))
        for number, future in done:
            if values is None or future.status != "finished":
                self.later(self._ask(number, future))

    async def _ask(self, number: int, future: Future[Any]) -> None:
        """Report the end of one run; where its worker is gone, `MachineRemoved` reports that."""
        try:
            self.tell(Ended(number, await future))
        except asyncio.CancelledError:
            self.tell(Stopped(number))
        except Exception as error:
            unfit = isinstance(error, ExitStatusError) and error.status == UNFIT
            self.tell(Failed(number, error, lost=type(error).__name__ == "KilledWorker", unfit=unfit))

    def _noted(self, event: tuple[float, Any]) -> None:
        """Take note of an event of Dask's scheduler; one of each fetch of results is among them."""
        if "worker" in event[1]["action"]:
            self._changed.set()

    async def _pause(self, seconds: float) -> None:
        """Wait for a change of the workers, or for some seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)
        self._changed.clear()

    async def _look(self) -> None:
        """Report the workers that have come and gone."""
        self._workers = (await self._client.scheduler.identity(n_workers=-1))["workers"]
        now: dict[Hashable, MachineAdded] = {}
        for address, info in self._workers.items():
            has = {"cpu": info["nthreads"], "mem": info["memory_limit"] / 2**20, **info["resources"]}
            capacity = {name: has[name] for name in self._resources if name in has}
            now[address] = MachineAdded(address, capacity, info["host"], {"name": str(info["name"])})
        self.show(now)


def _execute(command: Command, key: str) -> int:
    """Run a command in a thread of a worker, as long as a client wants its result."""
    from distributed import get_worker

    worker: Any = get_worker()

    def wanted() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state != "cancelled"

    return command.call(key, wanted)
