"""A function of many arguments, in several processes: results come as they are done."""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, TypeVar

from flowsched.exceptions import FlowschedError

_PAUSE = 0.1
"""Seconds between two calls of `stopped`."""

_TRIES = 3
"""Largest number of tries of a job whose process ends by itself."""

Job = TypeVar("Job")
Result = TypeVar("Result")


def each_in_a_process(
    run: Callable[[Job], Result], jobs: Sequence[Job], processes: int, stopped: Callable[[], bool]
) -> Iterator[Result]:
    """Yield ``run(job)`` for each job as it is done, begun in order; the processes are new, and stopped at the end.

    A process that ends by itself, for example because memory is short, is replaced, and its job begins again.  `run` is
    a function of a module; it and the jobs are sent to the processes.  If `stopped` returns True, they end in the
    middle of their work.

    A `FlowschedError` or `ImportError` of `run` is raised, others become RuntimeError.  Raise ChildProcessError if
    processes ended by themselves at each of `_TRIES` tries of a job; all other jobs are done by then.
    """
    context = multiprocessing.get_context("spawn")
    left = list(range(len(jobs)))[::-1]
    tries, codes = Counter[int](), list[int | None]()
    at: dict[Connection, tuple[SpawnProcess, int]] = {}
    begun: list[SpawnProcess] = []

    def begin() -> None:
        """Start one more process, on the next job."""
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(there, run), daemon=True)
        _start_deaf(process)
        begun.append(process)
        there.close()
        give(here, process)

    def give(connection: Connection, process: SpawnProcess) -> None:
        at[connection] = process, left.pop()
        with suppress(OSError):  # it has ended, which is seen when its answer is received
            connection.send(jobs[at[connection][1]])

    try:
        for _ in range(min(processes, len(jobs))):
            begin()
        while at and not stopped():
            for connection in wait(list(at), _PAUSE):
                assert isinstance(connection, Connection)
                process, number = at.pop(connection)
                try:
                    done, result = connection.recv()
                except (EOFError, OSError):
                    process.join()
                    connection.close()
                    tries[number] += 1
                    if tries[number] < _TRIES:
                        left.append(number)
                    else:
                        codes.append(process.exitcode)
                    if left:
                        begin()
                    continue
                if not done:
                    raise result
                if left:
                    give(connection, process)
                yield result
        if codes:
            code = ", ".join(sorted(set(map(str, codes))))
            raise ChildProcessError(f"processes of {len(codes)} runs ended at {_TRIES} tries each, exit code {code}")
    finally:
        for process in begun:
            process.terminate()
        for process in begun:
            process.join()


def _start_deaf(process: SpawnProcess) -> None:
    """Start a process that Ctrl-C does not reach: this one ends it."""
    if not hasattr(signal, "pthread_sigmask"):
        process.start()
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(connection: Connection, run: Callable[[Any], Any]) -> None:
    """Run jobs until the other end is closed."""
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        try:
            answer: tuple[bool, Any] = True, run(job)
        except (FlowschedError, ImportError) as error:
            answer = False, error
        except Exception as error:
            answer = False, RuntimeError(f"{type(error).__name__}: {error}")
        try:
            connection.send(answer)
        except OSError:  # the other end is gone
            return
