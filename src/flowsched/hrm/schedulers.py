"""Several schedulers over one shared state: as processes of this machine, or as Ray actors on many.

Each is a `Worker`: a flow network of its own over a copy of the state, which is refreshed by its changes.  It claims
through the negotiator, and refused tasks stay in its network and are solved again, warm.  The assignment of jobs to schedulers
is in the shared state, too, so a scheduler that dies leaves nothing behind but jobs that the others adopt.

A worker's network is only a copy.  After a step that ended early, by whatever exception, the next one reads the copy again;
the claims of such a step are in the shared state, where the heartbeats find them.
A worker waits for a store that is away, for `Store.patience` seconds, and does not count that as time without work.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from flowsched._guard import Exclusive, interruptible
from flowsched.boundary.validate import whole
from flowsched.exceptions import InputError, StoreError
from flowsched.hrm.adapter import Hybrid
from flowsched.hrm.rebalancing import Elastic
from flowsched.hrm.state.claims import ExpiredError, Granted, JobState, Refusal
from flowsched.hrm.state.negotiator import Negotiator
from flowsched.hrm.state.store import Store


@dataclass(frozen=True)
class Tally:
    """Counts of a scheduler's work.

    `rounds` are those with tasks to place.  Claims were `granted`, refused because the unit had changed (`conflicts`),
    or refused because the job was at its share (`shares`).  `streams_refused` counts the times that a stream job could
    not have everything.
    """

    name: str
    rounds: int = 0
    granted: int = 0
    conflicts: int = 0
    shares: int = 0
    streams_refused: int = 0
    seconds_refresh: float = 0.0
    seconds_decide: float = 0.0
    seconds_commit: float = 0.0

    @property
    def conflict_ratio(self) -> float:
        """Conflicts divided by claims."""
        asked = self.granted + self.conflicts
        return self.conflicts / asked if asked else 0.0


class Worker:
    """One scheduler.  It serves one call at a time.

    Parameters
    ----------
    negotiator : Negotiator
    name : str
        Among all schedulers of the state.
    seed : int
        See `Hybrid`.
    adopt : int
        Most jobs without a scheduler that it takes in one step.
    launch : callable, optional
        Called with the tasks that it was granted and hands to the machines.
    elastic : Elastic, optional
        Its stream jobs grow and shrink by this, see `Negotiator.resize`.
    load : callable, optional
        Returns the load of a stream job, None where it is not known.
    kinds : sequence of {"batch", "stream"}
        Of the jobs without a scheduler that it takes.
    """

    def __init__(
        self,
        negotiator: Negotiator,
        name: str,
        *,
        seed: int = 0,
        adopt: int = 4,
        launch: Callable[[Sequence[str]], None] | None = None,
        elastic: Elastic | None = None,
        load: Callable[[str], float | None] | None = None,
        kinds: Sequence[str] = ("batch", "stream"),
    ) -> None:
        if (elastic is None) != (load is None):
            raise InputError("Worker: elastic and load are given together or not at all")
        self._elastic, self._load = elastic, load
        self.negotiator, self.name = negotiator, name
        self.hybrid = Hybrid(max_wait=negotiator.max_wait, seed=seed)
        self.tally = Tally(name)
        self._adopt, self._kinds = adopt, kinds
        self._launch = launch
        self._calls = Exclusive("Worker")
        self._stale = False
        negotiator.add_scheduler(name)

    def step(self) -> bool:
        """Refresh, decide, claim and launch once; return True while any job of any scheduler has open tasks.

        Raises
        ------
        StoreError
            The store failed, or was away for longer than its `patience`.
        """
        with self._calls, interruptible():
            if self._stale:
                self.hybrid.withdraw(list(self.hybrid.open))
            self._stale = True
            try:
                more = self._step()
            except ExpiredError:
                # This scheduler was given up: claimed but not launched tasks are open again, and the jobs have other schedulers.
                self.negotiator.add_scheduler(self.name)
                return True
            except StoreError as error:
                if not error.unknown:
                    raise
                return True
            self._stale = False
            return more

    def _step(self) -> bool:
        negotiator, hybrid = self.negotiator, self.hybrid
        late = negotiator.beat(self.name)
        negotiator.adopt(self.name, self._adopt, self._kinds)
        begin = time.perf_counter()
        hybrid.refresh(negotiator.units(hybrid.versions), negotiator.clock())
        jobs = self._resize(negotiator.jobs())
        mine = [job for job in jobs if job.scheduler == self.name]
        self._learn([job for job in mine if job.kind == "batch"])
        refreshed = time.perf_counter()
        granted = [self._place_stream(job) for job in mine if job.kind == "stream" and job.open]
        allowed = negotiator.allowed(job.job for job in mine if job.kind == "batch" and job.open)
        claims = hybrid.claims(negotiator.clock(), allowed) if hybrid.open else []
        decided = time.perf_counter()
        rest = {*late, *(claim.task for part in granted for claim in part.accepted)}
        going = negotiator.launch(self.name, rest) if rest else []
        if claims:
            # If this process ends before it has notified the machines, they get the tasks at their heartbeats.
            granted.append(negotiator.commit(self.name, claims, launch=True))
            hybrid.settle(granted[-1])
            going += [claim.task for claim in granted[-1].accepted]
        if going and self._launch is not None:
            self._launch(going)
        self._count(granted, bool(claims), refreshed - begin, decided - refreshed, time.perf_counter() - decided)
        return any(job.open for job in jobs)

    def _resize(self, jobs: list[JobState]) -> list[JobState]:
        """Resize this worker's running stream jobs by their loads; return the jobs as they are then."""
        changed = False
        if self._elastic is not None and self._load is not None:
            for job in jobs:
                if job.kind == "stream" and job.scheduler == self.name and job.held and not job.open:
                    load = self._load(job.job)
                    changed |= load is not None and any(self.negotiator.resize(job.job, load, self._elastic))
        return self.negotiator.jobs() if changed else jobs

    def _learn(self, jobs: Sequence[JobState]) -> None:
        """Bring the open tasks of the worker's jobs into the network; a job with another number of them is read again."""
        hybrid = self.hybrid
        held = dict.fromkeys((job.job for job in jobs), 0)
        for job in hybrid.open.values():
            held[str(job)] = held.get(str(job), 0) + 1
        wanted = {job.job: job.open for job in jobs}
        for name, count in held.items():
            if count == wanted.get(name, 0):
                continue
            tasks = {str(task.id): task for task in self.negotiator.tasks(name)} if name in wanted else {}
            known = {str(task) for task, of in hybrid.open.items() if of == name}
            hybrid.withdraw(known - tasks.keys())
            hybrid.submit(name, [task for id, task in tasks.items() if id not in known])

    def _place_stream(self, job: JobState) -> Granted:
        negotiator = self.negotiator
        return negotiator.stream(
            self.name, job.job, lambda tasks, units: self.hybrid.place_stream(tasks, units, negotiator.clock())
        )

    def _count(self, granted: Sequence[Granted], placed: bool, refresh: float, decide: float, commit: float) -> None:
        refusals = [refusal for part in granted for _, refusal in part.refused]
        old = self.tally
        self.tally = replace(
            old,
            rounds=old.rounds + placed,
            granted=old.granted + sum(len(part.accepted) for part in granted),
            conflicts=old.conflicts + refusals.count(Refusal.CONFLICT),
            shares=old.shares + refusals.count(Refusal.SHARE),
            streams_refused=old.streams_refused + sum(not part.accepted for part in granted[: len(granted) - placed]),
            seconds_refresh=old.seconds_refresh + refresh,
            seconds_decide=old.seconds_decide + decide,
            seconds_commit=old.seconds_commit + commit,
        )

    def run(self, patience: float = 1.0, pause: float = 0.01) -> Tally:
        """Step until no job has open tasks, or until nothing was granted for `patience` seconds."""
        store = self.negotiator.store
        last, known = time.monotonic(), (0, store.outages)
        while self.step():
            if (self.tally.granted, store.outages) != known:
                last, known = time.monotonic(), (self.tally.granted, store.outages)
            elif time.monotonic() - last > patience:
                break
            else:
                time.sleep(pause)
        return self.tally


def _work(url: str, name: str, seed: int, patience: float, shares: bool) -> Tally:
    return Worker(Negotiator(_connect(url), shares=shares), name, seed=seed).run(patience)


def _connect(url: str, patience: float = 60.0) -> Store:
    """Connect to a store that was there a moment ago, and may be away for a while."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return Store(url, patience)
        except StoreError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def run_processes(url: str, count: int, *, patience: float = 1.0, shares: bool = True) -> list[Tally]:
    """Run `count` schedulers as processes until they have placed the open tasks of a shared state.

    `url` is that of a `Store` that processes share.  After `patience` seconds without a grant a scheduler ends; the
    time while the store was away does not count.  For `shares` see `Negotiator`.
    """
    _check(url, count)
    # A forked child would share this process's connections.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context) as pool:
        done = [pool.submit(_work, url, f"scheduler-{i}", i, patience, shares) for i in range(count)]
        return [future.result() for future in done]


def run_ray(url: str, count: int, *, patience: float = 1.0, shares: bool = True) -> list[Tally]:
    """Run `count` schedulers as Ray actors, on the cluster that Ray is connected to (``ray.init``), or on this machine."""
    _check(url, count)
    try:
        ray: Any = import_module("ray")
    except ImportError as missing:
        raise ImportError("actors need Ray: pip install 'flowsched[ray]'", name="ray") from missing
    mine = not ray.is_initialized()
    if mine:
        ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        actors = [ray.remote(_Actor).remote(url, f"scheduler-{i}", i, shares) for i in range(count)]
        tallies: list[Tally] = ray.get([actor.run.remote(patience) for actor in actors])
        return tallies
    finally:
        if mine:
            ray.shutdown()


class _Actor:
    """A worker that connects to the store from its own process."""

    def __init__(self, url: str, name: str, seed: int, shares: bool) -> None:
        self.worker = Worker(Negotiator(_connect(url), shares=shares), name, seed=seed)

    def run(self, patience: float) -> Tally:
        return self.worker.run(patience)


def _check(url: str, count: int) -> None:
    whole("count", count, 1)
    store = Store(url)
    if store.url.endswith("sqlite://"):
        raise InputError(f"url: processes cannot share {url!r}; use a file or a server")
    store.close()
