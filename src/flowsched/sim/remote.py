"""A function of many arguments, on the workers of a Dask or Ray cluster: results come as they are done.

The clusters are used as they are: they send the work, and repeat that of a worker that dies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from flowsched.boundary.validate import quoted
from flowsched.exceptions import InputError

__all__ = ["each_on"]

_PAUSE = 0.1
"""Seconds between two calls of `stopped`."""

_TRIES = 3
"""Largest number of tries of a job whose worker dies on Ray; Dask has its own, ``allowed-failures``."""

FORMS = "dask://HOST:PORT", "ray", "ray://HOST:PORT"
"""Clusters."""

Job = TypeVar("Job")
Result = TypeVar("Result")


def each_on(
    where: str, run: Callable[[Job], Result], jobs: Sequence[Job], stopped: Callable[[], bool]
) -> Iterator[Result]:
    """Yield ``run(job)`` for each job as it is done, on the workers of a cluster; the arguments are those of `each_in_a_process`.

    The package must be installed on the workers.

    Raises
    ------
    InputError
        `where` is none of `FORMS`.
    ImportError
        The cluster's package is missing.
    ChildProcessError
        Workers died at each try of a job, or the cluster cannot be reached.
    """
    if where.startswith("dask://"):
        return _on_dask(f"tcp://{where.removeprefix('dask://')}", run, jobs, stopped)
    if where == "ray" or where.startswith("ray://"):
        return _on_ray("auto" if where == "ray" else where, run, jobs, stopped)
    raise InputError(f"on: one of {', '.join(FORMS)} expected, got {quoted(where)}")


def _on_dask(
    address: str, run: Callable[[Job], Result], jobs: Sequence[Job], stopped: Callable[[], bool]
) -> Iterator[Result]:
    try:
        distributed = import_module("distributed")
    except ImportError:
        raise ImportError("dask:// needs the package distributed") from None
    try:
        client = distributed.Client(address, set_as_default=False, timeout="10s")
    except OSError as error:
        raise ChildProcessError(f"{address}: no scheduler of Dask answers: {error}") from None
    lost = 0
    with client:
        done: SimpleQueue[Any] = SimpleQueue()
        futures = client.map(run, jobs, pure=False, batch_size=1000)
        for future in futures:
            future.add_done_callback(done.put)
        left = len(futures)
        try:
            while left and not stopped():
                try:
                    future = done.get(timeout=_PAUSE)
                except Empty:
                    continue
                left -= 1
                try:
                    yield future.result()
                except distributed.KilledWorker:
                    lost += 1
        finally:
            client.cancel(futures)
    _report(lost)


def _on_ray(
    address: str, run: Callable[[Job], Result], jobs: Sequence[Job], stopped: Callable[[], bool]
) -> Iterator[Result]:
    try:
        ray = import_module("ray")
    except ImportError:
        raise ImportError("ray:// needs the package ray") from None
    ours = not ray.is_initialized()
    if ours:
        try:
            ray.init(address, log_to_driver=False, logging_level="error")
        except ConnectionError as error:
            raise ChildProcessError(f"{address}: no Ray cluster answers: {error}") from None
    lost = 0
    try:
        one = ray.remote(num_cpus=1, max_retries=_TRIES - 1)(run)
        left = [one.remote(job) for job in jobs]
        try:
            while left and not stopped():
                done, left = ray.wait(left, timeout=_PAUSE)
                for reference in done:
                    try:
                        yield ray.get(reference)
                    except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError):
                        lost += 1
        finally:
            for reference in left:
                ray.cancel(reference, force=True)
    finally:
        if ours:
            ray.shutdown()
    _report(lost)


def _report(lost: int) -> None:
    if lost:
        raise ChildProcessError(f"workers of {lost} runs died at each try")
