"""Calls on the workers of a Dask cluster: flowsched decides which worker, Dask executes there.

A run is a key of its own that is pinned to its worker.  Dask neither retries nor moves it.  A worker is a machine; one that
restarts under its nanny has a new address, so it is another machine.

Dask cannot stop a thread.  A run that is stopped while its call is under way is told as stopped at once, and its call goes
on to its end in a thread of the worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from flowsched.boundary.validate import whole
from flowsched.cluster.events import MachineAdded, MachineRemoved
from flowsched.exceptions import InputError
from flowsched.run.executor import Ended, Failed, Run, Stopped, Told

if TYPE_CHECKING:
    from distributed import Future

__all__ = ["DaskExecutor"]

_POLL = 5.0
"""Seconds after which the workers are asked for, also where Dask has told of no change."""

_NOT_DASKS = ("cpu", "mem")
"""Resources that Dask has as threads and as a limit; it keeps the books of the others itself."""

_LATER = 0.1
"""Seconds for which results that were fetched stay at their workers.  A client that lets go of them at once tells so in a
message, and what it submits right after that waits until it may send the next one."""

_TOGETHER = 0.005
"""Least time between two fetches of results, in seconds: one costs two messages, however many results it fetches."""


class DaskExecutor:
    """Runs calls on Dask workers; a payload is a callable without parameters, such as a `functools.partial`.

    Runs of a driver that died end with its client, so a successor starts them again.

    Parameters
    ----------
    cluster : str, Client or cluster
        Address of the scheduler, a client made with ``asynchronous=True``, or what such a client is made of.
    resources : sequence of str
        Those of the flowsched scheduler.  A worker has as much ``cpu`` as threads, its memory limit as ``mem`` in MiB, and
        of others what Dask calls the resources of a worker.
    ahead : int
        So many tasks for each thread wait at the worker, beside the one that runs, so that short ones follow without a
        round in between: a worker has ``1 + ahead`` of ``cpu`` for each thread, and as many times its Dask resources, which
        Dask holds back.  For tasks that ask for one thread; a task with a better priority does not overtake those that wait
        there.
    """

    def __init__(self, cluster: Any, resources: Sequence[str] = ("cpu", "mem", "gpu"), *, ahead: int = 0) -> None:
        self._cluster, self._resources, self._ahead = cluster, tuple(resources), whole("ahead", ahead, 0)
        self._client: Any = None
        self._starting: dict[int, Run] = {}
        self._futures: dict[int, Future[Any]] = {}
        self._released: list[Future[Any]] = []
        self._graphs = 0
        self._workers: set[str] = set()
        self._life = uuid4().hex[:8]
        self._done: list[tuple[int, Future[Any]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._closed = False
        self._next = 0.0

    async def open(self, tell: Callable[[Told], None]) -> Iterable[Run]:
        """See `Executor.open`."""
        from distributed import Client

        self._tell, self._loop = tell, asyncio.get_running_loop()
        given = isinstance(self._cluster, Client)
        make: Any = Client
        self._client = self._cluster if given else await make(self._cluster, asynchronous=True)
        self._mine = not given
        await self._look()
        self._client.subscribe_topic("all", self._noted)
        self._later(self._follow())
        return ()

    def start(self, run: Run) -> None:
        """See `Executor.start`."""
        if not callable(run.payload):
            raise InputError(f"task {run.task!r}: a callable expected, got {run.payload!r}")
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
                    self._tell(Failed(run.number, error))

    def _submit(self, runs: Sequence[Run]) -> None:
        """Submit runs as one graph, with a layer for those that have worker and resources in common."""
        from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

        calls: dict[Any, dict[str, Any]] = {}
        for run in runs:
            held = tuple((name, amount) for name, amount in run.demand.items() if amount and name not in _NOT_DASKS)
            # Dask runs keys of one graph in their order.
            calls.setdefault((run.machine, held), {})[f"flowsched-{self._life}-{run.number:015d}"] = (run.payload,)
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
        for run in runs:
            future = self._futures[run.number] = futures[f"flowsched-{self._life}-{run.number:015d}"]
            future.add_done_callback(partial(self._over_in_thread, run.number))

    def stop(self, run: Run) -> None:
        """See `Executor.stop`."""
        self._starting.pop(run.number, None)
        future: Any = self._futures.pop(run.number, None)
        if future is not None:  # also one that is done: where its worker is gone, Dask would wait for another result
            self._later(self._cancel(future))
        self._tell(Stopped(run.number))

    def release(self, run: Run) -> None:
        """See `Executor.release`."""
        future = self._futures.pop(run.number, None)
        if future is not None:
            self._released.append(future)
            if len(self._released) == 1:
                self._loop.call_later(_LATER, self._released.clear)

    async def close(self) -> None:
        """See `Executor.close`."""
        self._closed = True  # a call to Dask may end otherwise than by its cancellation
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5.0)
        self._futures.clear()
        if self._mine:
            await self._client.close()
        else:
            self._client.unsubscribe_topic("all")

    async def _cancel(self, future: Future[Any]) -> None:
        await self._client.cancel([future], force=True)

    def _later(self, act: Any) -> None:
        task = asyncio.create_task(act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _over_in_thread(self, number: int, future: Future[Any]) -> None:
        self._loop.call_soon_threadsafe(self._over, number, future)

    def _over(self, number: int, future: Future[Any]) -> None:
        """Take note of a future that is done; the results of all that are done by now are fetched together."""
        if number in self._futures:
            self._done.append((number, future))
            if len(self._done) == 1:
                self._next = max(self._next + _TOGETHER, self._loop.time())
                self._loop.call_at(self._next, lambda: self._later(self._fetch()))

    async def _fetch(self) -> None:
        done, self._done = self._done, []
        good = [(number, future) for number, future in done if future.status == "finished"]
        try:
            values = await self._client.gather([future for _, future in good])
        except (Exception, asyncio.CancelledError):  # a worker died with its results
            values = None
        for (number, _), value in zip(good, values or (), strict=False):
            self._tell(Ended(number, value))
        for number, future in done:
            if values is None or future.status != "finished":
                self._later(self._ask(number, future))

    async def _ask(self, number: int, future: Future[Any]) -> None:
        """Tell the end of one run; where the worker is gone with it, `MachineRemoved` tells."""
        try:
            self._tell(Ended(number, await future))
        except asyncio.CancelledError:
            self._tell(Stopped(number))
        except Exception as error:
            self._tell(Failed(number, error, lost=type(error).__name__ == "KilledWorker"))

    def _noted(self, event: tuple[float, Any]) -> None:
        """Take note of an event of Dask's scheduler; one of each fetch of results is among them."""
        if "worker" in event[1]["action"]:
            self._changed.set()

    async def _follow(self) -> None:
        while not self._closed:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _POLL)
            self._changed.clear()
            with suppress(OSError):  # the scheduler does not answer now
                await self._look()

    async def _look(self) -> None:
        """Tell which workers have come and gone."""
        workers = (await self._client.scheduler.identity(n_workers=-1))["workers"]
        for address in self._workers - workers.keys():
            self._tell(MachineRemoved(address))
        for address in workers.keys() - self._workers:
            info = workers[address]
            has = {
                "cpu": info["nthreads"] * (1 + self._ahead),
                "mem": info["memory_limit"] / 2**20,
                **{name: amount * (1 + self._ahead) for name, amount in info["resources"].items()},
            }
            capacity = {name: has[name] for name in self._resources if name in has}
            self._tell(MachineAdded(address, capacity, rack=info["host"], labels={"name": str(info["name"])}))
        self._workers = set(workers)
