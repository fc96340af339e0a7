"""Debug mode finds costs and constraints that break their contract, and has nothing against those that keep it."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from lives import POLICIES, SCALES, Life, said
from power import MostTasks, PowerCap

import flowsched as fs


def run(policy: fs.Policy, rounds: int = 3) -> None:
    sched = fs.Scheduler(policy, resources=("cpu",))
    sched.apply(*(fs.MachineAdded(f"m{i}", {"cpu": 8}, rack=i // 2) for i in range(8)))
    for i in range(rounds):
        demands = ({"cpu": 1}, {"cpu": 2}) if i == 0 else ({"cpu": 1},)
        sched.apply(*(fs.JobSubmitted((i, j), [fs.Task((i, j), d)]) for j, d in enumerate(demands)))
        sched.commit(sched.schedule(float(i)))


def grid(classes: Any, rows: Any, value: Any) -> Any:
    return np.broadcast_to(value, (len(classes), len(rows)))


def alters_arrays(cluster: Any, classes: Any, rows: Any) -> Any:
    rows[:] = rows[::-1].copy()
    return grid(classes, rows, 0.5)


def alters_cluster(cluster: Any, classes: Any, rows: Any) -> Any:
    cluster.inventory.touch(0)
    return grid(classes, rows, 0.5)


TICKS = count()

IMPURE = {
    "chance": lambda cluster, classes, rows: grid(classes, rows, next(TICKS) % 7 / 7),
    "order": lambda cluster, classes, rows: grid(classes, rows, np.arange(len(rows)) / 10),
    "best of those asked": lambda cluster, classes, rows: grid(classes, rows, rows / max(rows.max(), 1)),
    "other classes": lambda cluster, classes, rows: grid(classes, rows, 1.0 / len(classes)),
    "other machines": lambda cluster, classes, rows: grid(
        classes, rows, 1 - sum(len(m.tasks) for m in cluster.by_row.values()) / 10
    ),
    "alters": alters_arrays,
    "touches": alters_cluster,
}


@pytest.mark.parametrize("name", IMPURE)
def test_an_impure_cost_is_named(name: str) -> None:
    cost = fs.CustomCost(IMPURE[name])
    run(fs.Policy(placement=[fs.LoadCost(), cost]))
    what = "alters the" if "alters" in name or name == "touches" else "contradicts itself"
    with pytest.raises(fs.InputError, match=rf"placement\[1\] \(CustomCost.*\) {what}"):
        run(fs.Policy(placement=[fs.LoadCost(), cost], debug=True))


class Impure(PowerCap):
    def __init__(self, room: Any) -> None:
        super().__init__()
        object.__setattr__(self, "say", room)

    def room(self, cluster: Any, classes: Any, rows: Any) -> Any:
        return self.say(cluster, classes, rows)


class SmallReach(PowerCap):
    def room(self, cluster: Any, classes: Any, rows: Any) -> Any:
        return PowerCap().room(cluster, classes, rows)

    def reach(self, cluster: Any, row: int) -> Any:
        return np.array([row])


@pytest.mark.parametrize("name", IMPURE)
def test_an_impure_constraint_is_named(name: str) -> None:
    def room(cluster: Any, classes: Any, rows: Any) -> Any:
        return np.rint(1000 * IMPURE[name](cluster, classes, rows)).astype(np.int64)

    what = "alters the" if "alters" in name or name == "touches" else "contradicts itself"
    with pytest.raises(fs.InputError, match=rf"constraint 'rack power' \(.*\): room {what}"):
        run(fs.Policy(constraints=[Impure(room)], debug=True))


def test_a_reach_that_is_too_small_is_found() -> None:
    with pytest.raises(fs.InputError, match="room contradicts itself: .* asked when nothing in its reach had changed"):
        run(fs.Policy(constraints=[SmallReach()], debug=True))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(len(POLICIES) + len(SCALES)))
def test_pure_parts_live_alike_in_debug_mode(seed: int) -> None:
    make, life = [*POLICIES, *SCALES][seed], Life(seed)
    plain = fs.Scheduler(replace(make(), constraints=[PowerCap(), MostTasks(3)]))
    debug = fs.Scheduler(replace(make(), constraints=[PowerCap(), MostTasks(3)], debug=True))
    for _ in range(25):
        events, now = life.events(plain), life.later()
        rounds = []
        for sched in (plain, debug):
            sched.apply(*events)
            rounds.append(sched.schedule(now))
            sched.commit(rounds[-1])
        assert said(rounds[0])[1:7] == said(rounds[1])[1:7]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.full((1, 1), -0.1), "returned -0.1; costs are numbers from 0 to 1"),
        (np.full((1, 1), 1.1), "returned 1.1; costs are numbers from 0 to 1"),
        (np.full((1, 1), np.nan), "returned nan; costs are numbers from 0 to 1"),
        (np.full((1, 1), np.inf), "returned inf; costs are numbers from 0 to 1"),
        (np.zeros((1, 2)), r"returned shape \(1, 2\), expected \(1, 1\)"),
        (0.5, r"returned shape \(\), expected \(1, 1\)"),
        (np.full((1, 1), "x"), "returned values of type <U1"),
        (np.full((1, 1), None), "returned values of type object"),
        (np.full((1, 1), 1j), "returned values of type complex128"),
    ],
)  # fmt: skip
def test_costs_are_numbers_from_0_to_1(value: Any, words: str) -> None:
    sched = fs.Scheduler(fs.Policy(placement=[fs.LoadCost(), fs.CustomCost(lambda *_: value)]), resources=("cpu",))
    sched.apply(fs.MachineAdded("m", {"cpu": 1}), fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1})]))
    with pytest.raises(fs.InputError, match=rf"placement\[1\] \(CustomCost.*{words}"):
        sched.schedule(0.0)


def test_debug_is_true_or_false() -> None:
    with pytest.raises(fs.InputError, match="debug must be True or False"):
        fs.Policy(debug=1)
