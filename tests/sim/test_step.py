"""Simulations by steps, and inside an environment of SimPy: the same history as in one run."""

from __future__ import annotations

from typing import Any

import pytest
import simpy

import flowsched as fs
from flowsched.exceptions import InputError
from flowsched.sim import Metrics, Simulation, Workload


def work() -> Workload:
    """Arrivals, preemptions, and a machine that fails and comes back; more than the machines hold."""
    made = Workload.model(tasks=150, scale=0.02, load=1.3)
    name = made.machines[0].id
    events = [fs.MachineFailed(name, time=2000.0), fs.MachineAdded(name, made.machines[0].capacity, time=4000.0)]
    return Workload("small", made.arrivals, made.machines, events)


def simulation(**options: Any) -> Simulation:
    return Simulation(fs.Scheduler(fs.Policy.named("spread")), work(), seed=3, **options)


def told(metrics: Metrics) -> dict[str, Any]:
    """All measurements but those of this computer's clock."""
    found = metrics.to_dict()
    del found["wall_clock"]
    return found | {"table": {k: list(map(repr, v)) for k, v in metrics.table.items()}}


OPTIONS: list[dict[str, Any]] = [{}, {"interval": 300.0, "on_events": False}, {"charge_solver": 5.0}]


@pytest.mark.long
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("until", [None, 3000.0])
def test_steps_are_a_run(options: dict[str, Any], until: float | None) -> None:
    stepped, times = simulation(**options), []
    while (progress := stepped.step(until)) is not None:
        times.append(progress.time)
    assert stepped.step(until) is None
    assert len(times) > 50 and times == sorted(set(times)), "each step is one time"
    assert told(stepped.metrics()) == told(simulation(**options).run(until))
    with pytest.raises(InputError, match="runs once"):
        stepped.run()


def test_a_run_goes_on_after_steps() -> None:
    some = simulation()
    for _ in range(20):
        some.step()
    assert told(some.run()) == told(simulation().run())


def test_stepping_ends_when_it_is_stopped() -> None:
    some = simulation()
    for _ in range(5):
        some.step()
    some.stop()
    assert some.step() is None
    assert 0 < some.metrics().facts["end"] < 3000 and not some.metrics().facts["nothing_left"]


@pytest.mark.parametrize("options", OPTIONS)
def test_in_an_environment_with_other_processes(options: dict[str, Any]) -> None:
    env = simpy.Environment()
    seen: list[float] = []

    def other() -> Any:
        while True:  # it never ends
            yield env.timeout(777.0)
            seen.append(env.now)

    env.process(other())
    embedded = simulation(env=env, **options)
    embedded.start()
    alone = simulation(**options).run()
    env.run(until=alone.facts["end"] + 1000.0)
    assert seen[:2] == [777.0, 1554.0]
    assert told(embedded.metrics()) == told(alone)


def test_it_may_begin_later() -> None:
    env = simpy.Environment(initial_time=5000.0)
    embedded = simulation(env=env)
    embedded.start()
    env.run(until=5000.5)
    metrics = embedded.metrics()
    assert metrics.facts["end"] >= 5000.0 and metrics.placed > 0
    assert min(metrics.table["arrival"]) == 5000.0 and min(metrics.waits) == 0.0


def test_what_is_no_environment() -> None:
    with pytest.raises(InputError, match=r"env: a simpy\.Environment or None expected, got 3"):
        simulation(env=3)
