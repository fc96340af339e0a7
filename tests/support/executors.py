"""An executor that follows the test's instructions only, and keeps the accounts of the real runs."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping
from typing import Any, TypeVar

from flowsched.cluster.events import MachineAdded
from flowsched.run import Ended, Failed, Left, Run, Stopped, Told

T = TypeVar("T")


class FakeExecutor:
    """Runs that begin when they are started, and end when the test says.

    Attributes
    ----------
    running : dict of number to Run
        What really runs.
    left : dict of number to Run
        What has left its machine, and has not ended.
    over : dict of number to Told
        Ended runs that are not released, and their reports.
    asked : list of int
        Runs that were to be stopped and run still, in order.
    held : dict of number to Run
        Those that wait until their machine has room, with `holding`: in the order of their starts.
    """

    latency = 0.0

    def __init__(self, demand: Mapping[Hashable, float] | None = None, holding: bool = False) -> None:
        self.holding = holding
        self.running: dict[int, Run] = {}
        self.held: dict[int, Run] = {}
        self.left: dict[int, Run] = {}
        self.over: dict[int, Told] = {}
        self.asked: list[int] = []
        self.numbers: set[int] = set()
        self.starts: list[Run] = []
        self.machines: dict[Hashable, float] = {}
        self.demand = {} if demand is None else demand
        self.tell: Callable[[Told], None] = lambda told: None
        self.refuses = False

    async def open(self, tell: Callable[[Told], None]) -> Iterable[Run]:
        self.tell = tell
        for machine, cpus in self.machines.items():
            tell(MachineAdded(machine, {"cpu": cpus}))

        return list(self.running.values())

    def start(self, run: Run) -> None:
        assert run.number not in self.numbers, "a number is used once"
        told = [*self.running.values(), *self.held.values()]
        assert all(other.task != run.task for other in [*told, *self.left.values()]), f"task {run.task} runs twice"
        if self.refuses:
            raise OSError("no")
        here = [other for other in told if other.machine == run.machine]
        if not (self.holds(run) and all(map(self.holds, here))):
            assert self._fits(run, here), f"machine {run.machine} is above capacity"
        self.numbers.add(run.number)
        self.starts.append(run)
        self.held[run.number] = run
        self._begin()

    def holds(self, run: Run) -> bool:
        """Tasks of one core are held back."""
        return self.holding and self.demand.get(run.task, 1) == 1

    def _fits(self, run: Run, beside: Iterable[Run]) -> bool:
        used = sum(self.demand.get(task, 1) for task in [*(other.task for other in beside), run.task])
        return used <= self.machines.get(run.machine, used)

    def _begin(self) -> None:
        for number, run in list(self.held.items()):
            if self._fits(run, [other for other in self.running.values() if other.machine == run.machine]):
                self.running[number] = self.held.pop(number)

    def stop(self, run: Run) -> None:
        if run.number in self.running or run.number in self.left:
            self.asked.append(run.number)
        else:
            self.held.pop(run.number, None)
            self.tell(Stopped(run.number))

    def release(self, run: Run) -> None:
        self.over.pop(run.number, None)

    async def close(self) -> None:
        pass

    def lose(self, machine: Hashable) -> None:
        """A machine dies with all that runs there."""
        for runs in (self.running, self.held, self.left):
            for number in [number for number, run in runs.items() if run.machine == machine]:
                del runs[number]
        self.machines.pop(machine, None)

    def leave(self, number: int) -> Told:
        """Make a run leave its machine; return its report."""
        self.left[number] = self.running.pop(number)
        self._begin()
        return Left(number)

    def end(self, number: int, how: str) -> Told:
        """End a run; return its report."""
        run = self.left.pop(number) if number in self.left else self.running.pop(number)
        told: Told
        if how == "ended":
            told = Ended(number, f"result of {run.task}")
        elif how == "stopped":
            told = Stopped(number)
        else:
            told = Failed(number, RuntimeError(how), lost=how == "lost")
        self.over[number] = told
        self._begin()
        return told


class FakeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while nothing is to be done, and then at once."""

    def __init__(self) -> None:
        super().__init__(_Still())
        self.now = 1000.0
        self._selector: Any
        self._selector.loop = self

    def time(self) -> float:
        return self.now


class _Still(selectors.SelectSelector):
    loop: FakeLoop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is not None and timeout > 0:
            ready = super().select(0)
            if not ready:
                self.loop.now += timeout
            return ready
        return super().select(timeout)


def run_fake(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in a loop of fake time."""
    with asyncio.Runner(loop_factory=FakeLoop) as runner:
        return runner.run(main())


__all__ = ["FakeExecutor", "FakeLoop", "run_fake"]
