"""One call at a time on a scheduler: threads, callbacks, finalisers, and signal handlers that wait."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections import Counter

import numpy as np
import pytest
from calls import Stop, send, small

import flowsched as fs
from flowsched._guard import Exclusive, interruptible
from flowsched.cluster.audit import audit


def test_a_second_thread_is_refused_and_nothing_is_lost() -> None:
    sched = fs.Scheduler(resources=("cpu",))
    refused: Counter[str] = Counter()
    accepted: list[str] = []

    def submit(name: str) -> None:
        for i in range(300):
            try:
                sched.apply(fs.JobSubmitted((name, i), [fs.Task((name, i), {"cpu": 1})]))
                accepted.append((name, i))
                if i % 20 == 0:
                    sched.schedule(float(i))
            except fs.ConcurrentUseError:
                refused[name] += 1

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=submit, args=(f"t{k}",)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert set(sched.cluster.tasks) == set(accepted)
    audit(sched.cluster)


def test_a_policy_that_calls_back_is_refused() -> None:
    errors = []

    def cost(cluster, classes, rows):
        try:
            sched.apply(fs.MachineAdded("other", {"cpu": 1}))
        except fs.ConcurrentUseError as error:
            errors.append(str(error))
        return np.zeros((len(classes), len(rows)))

    sched = fs.Scheduler(fs.Policy(placement=(fs.CustomCost(cost),)), resources=("cpu",))
    sched.apply(fs.MachineAdded("m", {"cpu": 1}), fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1})]))
    assert len(sched.schedule(0.0).placements) == 1
    assert errors and "Scheduler: used while another call on it is under way" in errors[0]
    assert list(sched.cluster.machines) == ["m"]


def test_a_finaliser_is_refused() -> None:
    sched = small()
    heard = []

    class Last:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            try:
                sched.apply(fs.TaskCompleted("o0"))
            except fs.ConcurrentUseError:
                heard.append("refused")
            else:
                heard.append("done")

    calls = 0

    def trace(frame, event, arg):
        nonlocal calls
        calls += 1
        if calls == 40:
            Last()
            gc.collect()
        return

    sys.setprofile(trace)
    try:
        sched.schedule(2.0)
    finally:
        sys.setprofile(None)
    assert heard == ["refused"]
    assert "o0" in sched.cluster.tasks


def test_handlers_run_once_the_call_is_over_and_are_put_back(raising_handler) -> None:
    guard, other, order = Exclusive("thing"), Exclusive("other"), []
    mine = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(Stop), guard:
        send()
        with other:
            order.append("inner")
        order.append("outer")
    assert order == ["inner", "outer"]
    assert signal.getsignal(signal.SIGUSR1) is mine
    with guard:
        with pytest.raises(fs.ConcurrentUseError, match="thing: used while"):
            guard.__enter__()
        with pytest.raises(Stop), interruptible():
            send()
            order.append("not reached")
        with pytest.raises(Stop), other, interruptible():
            send()
    assert order == ["inner", "outer"]
    with pytest.raises(Stop), guard:
        with pytest.raises(Stop), interruptible():
            send()
        with other:
            send()
            order.append("kept")
    assert order[-1] == "kept"


def test_several_signals_all_run_their_handlers() -> None:
    heard: list[int] = []
    kinds = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)

    def handler(number, frame):
        heard.append(number)
        raise Stop(number)

    before = [signal.signal(kind, handler) for kind in kinds]
    try:
        with pytest.raises(Stop) as caught, Exclusive("thing"):
            for kind in kinds:
                signal.raise_signal(kind)
        assert sorted(heard) == sorted(kinds) and caught.value.args[0] == heard[0]
        assert all(signal.getsignal(kind) is handler for kind in kinds)
    finally:
        for kind, old in zip(kinds, before, strict=True):
            signal.signal(kind, old)


def test_in_other_threads_handlers_are_let_be() -> None:
    seen = []

    def look() -> None:
        with Exclusive("thing"):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_thread_that_forks_is_the_main_one_of_the_child() -> None:
    ends: list[int] = []

    def fork() -> None:
        mine = signal.getsignal(signal.SIGINT)
        child = os.fork()
        if not child:
            with Exclusive("thing"):
                kept = signal.getsignal(signal.SIGINT) is not mine
            os._exit(0 if kept and signal.getsignal(signal.SIGINT) is mine else 1)
        ends.append(os.waitpid(child, 0)[1])

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    assert ends == [0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_the_child_of_a_thread_has_the_handlers_of_a_section_that_the_main_thread_is_in() -> None:
    ends: list[int] = []
    mine = signal.getsignal(signal.SIGINT)

    def fork() -> None:
        child = os.fork()
        if not child:
            os._exit(0 if signal.getsignal(signal.SIGINT) is mine else 1)
        ends.append(os.waitpid(child, 0)[1])

    with Exclusive("thing"):
        assert signal.getsignal(signal.SIGINT) is not mine
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
    assert ends == [0] and signal.getsignal(signal.SIGINT) is mine


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="looks into CPython's allocator")
def test_memory_that_ends_at_the_gate_keeps_no_handler() -> None:
    memory = pytest.importorskip("_testcapi", reason="this Python is built without _testcapi")
    guard, mine, ended = Exclusive("thing"), signal.getsignal(signal.SIGINT), 0
    for n in range(60):
        try:
            memory.set_nomemory(n, n + 1)
            with guard:
                pass
        except MemoryError:
            ended += 1
        finally:
            memory.remove_mem_hooks()
        with guard:
            pass
        assert signal.getsignal(signal.SIGINT) is mine, n
    assert ended > 0


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers that send signals here")
def test_a_handler_that_has_a_section_of_its_own_leaves_all_handlers_as_they_were() -> None:
    guard, heard = Exclusive("thing"), 0

    def handler(number, frame):
        nonlocal heard
        with Exclusive("other"):
            heard += 1

    kinds = (signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE, signal.SIGALRM)
    mine, before = signal.getsignal(signal.SIGINT), {kind: signal.signal(kind, handler) for kind in kinds}
    try:
        for i in range(20_000):
            signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + i % 10))
            with guard:
                assert signal.getsignal(signal.SIGINT) is not mine
            assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for kind, old in before.items():
            signal.signal(kind, old)
        signal.signal(signal.SIGINT, mine)
    assert heard > 100
