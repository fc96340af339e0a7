"""A resource of SimPy with request and release, whose requests flowsched places on machines."""

from collections.abc import Mapping
from typing import Any

try:
    import simpy
    from simpy.resources.base import BaseResource
    from simpy.resources.resource import Preempted, PriorityRequest, Release
except ImportError as missing:
    raise ImportError("this example needs SimPy: pip install simpy") from missing

import flowsched as fs

LAST = 2
"""A priority among the events of one time after `simpy.events.URGENT` and `simpy.events.NORMAL`."""


class Request(PriorityRequest):
    """Requests amounts of resources for each of its `tasks`; all of them start together, on `machines`.

    Further arguments are those of `fs.Task` (``labels``, ``prefers``, ``duration``, ...).
    """

    def __init__(
        self, resource: "Machines", demand: Mapping[str, float], priority: int = 0, tasks: int = 1, **options: Any
    ) -> None:
        super().__init__(resource, priority)
        self.number = resource.number = resource.number + 1
        self.machines: list[Any] = [None] * tasks
        parts = [fs.Task((self.number, i), demand, **options) for i in range(tasks)]
        resource.known[self.number] = self
        resource.tell(fs.JobSubmitted(self.number, parts, priority=priority, gang=tasks if tasks > 1 else None))

    def cancel(self) -> None:
        if not self.triggered and self in self.resource.queue:
            self.resource.queue.remove(self)
            self.resource.forget(self)


class Machines(BaseResource):
    """Machines in a SimPy environment, with the calls of `simpy.PreemptiveResource`.

    What is requested and released at one time is decided together, after all other events of that time.  The process of
    a request that is preempted is interrupted with `Preempted` as the cause, and the request is over.  A policy with
    ``preemption=None`` makes the resource a `simpy.PriorityResource`.
    """

    request = simpy.core.BoundClass(Request)
    release = simpy.core.BoundClass(Release)

    def __init__(
        self, env: simpy.Environment, machines: Mapping[Any, Mapping[str, float]], policy: fs.Policy | None = None
    ) -> None:
        super().__init__(env, capacity=len(machines))
        self.queue: list[Request] = self.put_queue
        self.users: list[Request] = []
        self.known: dict[int, Request] = {}
        self.number, self.news = 0, False
        names = dict.fromkeys(name for capacity in machines.values() for name in capacity)
        self.sched = fs.Scheduler(policy, resources=tuple(names))
        self.sched.apply(*(fs.MachineAdded(machine, capacity) for machine, capacity in machines.items()))

    def tell(self, *events: fs.Event) -> None:
        """Report to the scheduler, which decides at the end of the present time."""
        self.sched.apply(*events)
        if not self.news:
            self.news = True
            turn = simpy.Event(self._env)
            turn._ok, turn._value = True, None
            turn.callbacks.append(self.decide)
            self._env.schedule(turn, priority=LAST)

    def forget(self, request: Request) -> None:
        del self.known[request.number]
        self.tell(fs.JobRemoved(request.number))

    def decide(self, turn: simpy.Event) -> None:
        """Request a round, and carry it out."""
        self.news = False
        accepted = self.sched.commit(self.sched.schedule(self._env.now)).accepted
        placed = {d.machine: self.known[d.task[0]].proc for d in accepted if isinstance(d, fs.Place)}
        for delta in accepted:
            request = self.known.get(delta.task[0])
            if request is None:
                continue  # another task of its gang was preempted before
            if isinstance(delta, fs.Place):
                request.machines[delta.task[1]] = delta.machine
                if not request.triggered and None not in request.machines:
                    self.queue.remove(request)
                    self.users.append(request)
                    request.usage_since = self._env.now
                    request.succeed(request.machines)
            else:
                self.users.remove(request)
                self.forget(request)
                request.proc.interrupt(Preempted(placed.get(delta.machine), request.usage_since, self))

    @property
    def count(self) -> int:
        return len(self.users)

    def _trigger_put(self, event: Any) -> None:
        """Start nothing here: `decide` does."""

    def _do_get(self, event: Release) -> None:
        if event.request in self.users:
            self.users.remove(event.request)
            self.forget(event.request)
        event.succeed()


def job(
    env: simpy.Environment, machines: Machines, name: str, demand: Mapping[str, float], seconds: float, priority: int
):
    """Run to the end, again from the beginning after a preemption."""
    while True:
        with machines.request(demand, priority=priority) as request:
            where = yield request
            print(f"{env.now:4.0f} s  {name} starts on {where[0]}")
            try:
                yield env.timeout(seconds)
            except simpy.Interrupt:
                print(f"{env.now:4.0f} s  {name} was preempted")
                continue
        print(f"{env.now:4.0f} s  {name} ends")
        return


if __name__ == "__main__":
    env = simpy.Environment()
    machines = Machines(env, {"m0": {"cpu": 8}, "m1": {"cpu": 8, "gpu": 1}})
    for name, demand, seconds, priority in [
        ("train", {"cpu": 4, "gpu": 1}, 60, 1),
        ("build", {"cpu": 8}, 30, 1),
        ("test", {"cpu": 4}, 20, 1),
        ("urgent", {"cpu": 6}, 10, 0),
    ]:
        env.process(job(env, machines, name, demand, seconds, priority))
        env.run(until=env.now + 5)
    env.run()
