"""The evaluation of Sirius in small: its models, its comparators, its figures."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from effort import effort

from bench import sirius as experiment
from bench.rows import Outcome
from bench.sirius import fairness, latency, links, load, model, overhead, placement, priority, shares
from bench.sirius.links import LINK, Reading, ReadingJob, read_all, shared
from bench.sirius.model import Kind
from bench.sirius.plots import Figures
from bench.sirius.quincy import CORE, RACK, Firmament
from bench.sirius.slots import PriorityQueue, RandomPlacement
from bench.solver.instances import Rounds, SchedFamily
from flowsched import JobSubmitted, MachineAdded, Task, TaskCompleted

DATA = Path(__file__).parents[3] / "shared" / "data"


def job(seconds: list[float], source: list[int], size: float, time: float = 0.0) -> ReadingJob:
    return ReadingJob(time, np.array(seconds), np.array(source), size)


def test_snp_by_hand() -> None:
    """Two jobs: one ideal, one that took four times as long as it could have: the geometric mean is 1/2."""
    jobs = [job([1.0, 2.0], [0, 0], 0.0), job([1.0], [0], 0.0, time=3.0)]
    run = Reading(jobs, np.zeros(3), np.array([1.0, 2.0, 7.0]), 0.0, 0.0)
    assert run.snp() == pytest.approx(math.sqrt(1 / 4))


def test_speeds() -> None:
    assert Kind("g", (1, 1), off_gpu=1 / 3).speed("rack2") == pytest.approx(1 / 3)
    assert Kind("g", (1, 1), off_gpu=1 / 3).speed("rack1") == Kind("c", (1, 1)).speed("rack2") == 1.0


@pytest.mark.parametrize("seed", range(effort(4, 20)))
def test_rates_are_max_min_fair(seed: int) -> None:
    """No link carries more than it can; what does not get all that it wants has the largest rate on a full link."""
    rng = np.random.default_rng(seed)
    count, most_links = int(rng.integers(1, 40)), 6
    paths = np.sort(rng.integers(0, most_links + 1, (count, 3)), axis=1)
    paths[:, 1:][paths[:, 1:] == paths[:, :-1]] = most_links  # no link twice; the last one has no limit
    capacity = np.append(rng.uniform(1.0, 10.0, most_links), np.inf)
    most = rng.uniform(0.1, 5.0, count)
    rate = shared(paths, most, capacity)
    load = np.zeros(most_links + 1)
    np.add.at(load, paths.ravel(), np.repeat(rate, 3))
    assert (load <= capacity * (1 + 1e-9)).all() and (rate <= most * (1 + 1e-12)).all()
    for i in np.flatnonzero(rate < most * (1 - 1e-9)):
        full = [link for link in paths[i] if load[link] >= capacity[link] * (1 - 1e-9)]
        assert any(rate[i] >= rate[(paths == link).any(axis=1)].max() * (1 - 1e-9) for link in full)


class _There(RandomPlacement):
    """Puts every task on one machine."""

    def decide(self, now: float) -> dict[object, object]:
        return dict.fromkeys(self.waiting, 3)


@pytest.mark.parametrize(("source", "across", "within"), [(3, 0.0, 0.0), (4, 0.0, 1.0), (15, 1.0, 0.0)])
def test_readers_share_a_link(source: int, across: float, within: float) -> None:
    """Ten tasks read a second's worth of a link each: ten seconds, or one where the input is."""
    run = read_all([job([1.0] * 10, [source] * 10, LINK)], _There(0), 24)
    assert run.ends.max() == pytest.approx(1.0 if source == 3 else 10.0)
    assert (run.across, run.within) == (across, within)


def test_a_link_between_racks_is_shared_by_all_machines() -> None:
    """Machines of their own, but one link out of the rack: ten seconds, where within the rack it takes one."""
    here = list(range(10))

    class Over(RandomPlacement):
        by = 10

        def decide(self, now: float) -> dict[object, object]:
            return {task: (here[i] + self.by) % 20 for i, task in enumerate(self.waiting)}

    class Beside(Over):
        by = 1

    tasks = job([1.0] * 10, here, LINK)
    assert read_all([tasks], Over(0), 1).ends.max() == pytest.approx(10.0)
    assert read_all([job([1.0] * 9, here[:9], LINK)], Beside(0), 1).ends.max() == pytest.approx(1.0)


def test_random_keeps_to_slots() -> None:
    lots = RandomPlacement(seed=0)
    lots.apply(
        *(MachineAdded(f"m{i}", {"cpu": 1}, slots=1) for i in range(3)), JobSubmitted("j", [Task(i) for i in range(5)])
    )
    first = lots.schedule(0.0)
    lots.commit(first)
    assert sorted(first.placements.values()) == ["m0", "m1", "m2"]
    assert not lots.schedule(1.0).placements
    gone = next(iter(first.placements))
    lots.apply(TaskCompleted(gone))
    assert list(lots.schedule(2.0).placements.values()) == [first.placements[gone]]


def _price(task: Task, machine: int, per: float) -> float:
    data = dict(task.data)
    near = sum(amount for m, amount in data.items() if m // 2 == machine // 2)
    here = data.get(machine, 0.0)
    return (CORE * (sum(data.values()) - near) + RACK * (near - here)) / per


@pytest.mark.parametrize("seed", range(effort(5, 25)))
def test_firmament_finds_the_cheapest_of_all_assignments(seed: int) -> None:
    """Brute force over every way to place or not to place up to five tasks on four machines in two racks.

    An arc to a rack or to the cluster has the worst case's cost, as in Quincy, so the optimum of the network may be
    dearer for a task than its place: compared is the cost of the network's own model.
    """
    rng = np.random.default_rng(seed)
    slots = rng.integers(0, 3, 4).tolist()
    made = Firmament(link=1.0)
    made.apply(*(MachineAdded(m, {"cpu": 1}, f"rack{m // 2}", slots=slots[m], time=0.0) for m in range(4)))
    tasks = []
    for i in range(int(rng.integers(1, 6))):
        data = {int(m): float(rng.integers(1, 9)) for m in rng.choice(4, int(rng.integers(0, 3)), replace=False)}
        tasks.append(Task(i, {"cpu": 1}, data=data))
        made.apply(JobSubmitted(f"j{i}", [tasks[-1]], time=float(-rng.integers(0, 12))))
    since = {id: at for id, (_, _, at) in made.waiting.items()}
    problem, _ = made.network(0.0)
    places = made.schedule(0.0).placements
    assert all(list(places.values()).count(m) <= slots[m] for m in range(4))

    def cost(task: Task, machine: int | None) -> float:
        if machine is None:
            return -since[task.id]
        data = dict(task.data)
        options = [CORE * sum(data.values())]
        if any(m // 2 == machine // 2 for m in data):
            near = sum(amount for m, amount in data.items() if m // 2 == machine // 2)
            options.append(CORE * (sum(data.values()) - near) + RACK * near)
        if machine in data:
            options.append(_price(task, machine, 1.0))
        return min(options)

    best = min(
        sum(cost(task, m) for task, m in zip(tasks, chosen, strict=True))
        for chosen in itertools.product([None, 0, 1, 2, 3], repeat=len(tasks))
        if all(chosen.count(m) <= slots[m] for m in range(4))
    )
    assert sum(cost(task, places.get(task.id)) for task in tasks) == pytest.approx(best)
    assert problem.supply.sum() == 0


def test_firmament_prefers_data_then_the_rack_then_waits() -> None:
    made = Firmament(link=1.0)
    made.apply(
        *(MachineAdded(m, {"cpu": 1}, f"rack{m // 2}", slots=1, time=0.0) for m in range(4)),
        JobSubmitted("j", [Task(i, {"cpu": 1}, data={0: 4.0}) for i in range(3)], time=0.0),
    )
    assert list(made.schedule(1.0).placements.values()) == [0], "the rack costs 2 s, the cluster 4, waiting 1"
    assert sorted(made.schedule(3.0).placements.values()) == [0, 1]
    assert len(made.schedule(5.0).placements) == 3
    assert made.race <= min(made.seconds.values()) or made.race <= sum(made.seconds.values())


@pytest.mark.long
def test_network_schedulers_beat_random_by_less_traffic(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    jobs = fairness.jobs_of_load(fairness.BATCH, 5, 0.7, seed=1)
    runs = {name: read_all(jobs, make(), model.CORES) for name, make in fairness.schedulers(1).items()}
    assert all(0 < run.snp() <= 1 for run in runs.values())
    for name in ("Sirius", "Firmament", "Sirius without bounds"):
        assert runs[name].snp() > runs["random queue"].snp()
        assert runs[name].across < 0.1 < runs["random queue"].across
    outcome = Figures()
    outcome.snp = {name: {one: run.snp() for one, run in runs.items()} for name in ("batch", "service")}
    outcome.gpu = placement.measure_placement(outcome, seed=0)
    for count in (10, 20):
        assert outcome.gpu["Sirius"][count] == pytest.approx(outcome.gpu["GPU machines only"][count]), "all on GPUs"
    for count in (30, 40):
        assert outcome.gpu["Sirius"][count][1] < outcome.gpu["GPU machines only"][count][1]
    seconds = {kind.name: 1.0 for kind in priority.LOADS}
    outcome.priority = {f"Sirius, {name}": seconds for name in ("equal priority", "TPC-H first")}
    times = {"ICS": [1.0, 2.0], "cost scaling from scratch": [9.0, 20.0]}
    outcome.latency = {"5,000 machines": times, "10,000 machines": times}
    outcome.cost = {name: {1000: (1.0, 2.0)} for name in ("Sirius", overhead.SLOTS_ONLY, overhead.FILTER)}
    assert len(experiment.plot(outcome, tmp_path)) == 8


def test_same_slots_and_no_input_make_all_alike() -> None:
    """Services have no better place: whatever differs between schedulers is no matter of slots."""
    jobs = fairness.jobs_of_load(fairness.SERVICES, 5, 0.7, seed=2)
    snp = [read_all(jobs, make(), model.CORES).snp() for make in fairness.schedulers(2).values()]
    assert max(snp) - min(snp) < 0.02


def test_priority_frees_the_short_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "CORES", 5)
    monkeypatch.setattr(priority, "_EACH", 100)
    outcome = Figures()
    found = priority.measure_priority(outcome, seed=0)
    assert not outcome.wrong
    assert found["Sirius, TPC-H first"]["TPC-H"] < 1.0
    assert found["priority queue that preempts, TPC-H first"]["TPC-H"] < found["priority queue, TPC-H first"]["TPC-H"]
    assert found["Sirius, equal priority"]["TPC-H"] > 5.0


def test_latency_compares_equal_optima(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "MACHINES", (200, 300))
    monkeypatch.setattr(latency, "TASKS", range(1000, 1001))
    outcome = Figures()
    found = latency.measure_latency(outcome, True, 0, None)
    assert not outcome.wrong
    assert set(found) == {"200 machines", "300 machines"}
    assert all(row.value and row.baseline for row in outcome.rows)


def test_random_queues_keep_to_what_is_free() -> None:
    rng = np.random.default_rng(0)
    free = np.array([0, 2, 1, 0, 3])
    for _ in range(50):
        assert (np.bincount(latency.random_draws(free, 6, rng), minlength=5) == free).all()
        memory = np.array([9.0, 1.0, 5.0, 9.0, 5.0])
        places = latency.random_scan(free, memory, np.array([1.0, 1.0, 3.0]), rng)
        assert (np.bincount(places, minlength=5) <= free).all() and places.count(1) <= 1 and places[2] in (2, 4)


def test_job_sizes_of_a_trace(tmp_path: Path) -> None:
    notes: list[str] = []
    assert latency.job_sizes(None, notes) is None and latency.job_sizes(tmp_path, notes) is None
    assert notes[0].startswith("no --data") and notes[1].startswith("no DIR/google2011: ")
    folder = tmp_path / "google2011"
    folder.mkdir()
    (folder / "machine_events.csv").write_text("0,1,0,a,0.5,0.25\n")
    rows = [f"{i},,{job},{i},,0,user,0,0,0.1,0.1,0,0" for job, size in ((7, 1), (8, 3)) for i in range(size)]
    (folder / "task_events.csv").write_text("\n".join(rows) + "\n")
    sizes = latency.job_sizes(tmp_path, notes)
    assert sizes is not None and sorted(sizes.tolist()) == [1, 3] and len(notes) == 2
    drawn = {latency.GoogleFamily(sizes, 50, 200, 0).job_tasks() for _ in range(3)}
    assert drawn <= {1, 3}
    family = latency.GoogleFamily(None, 50, 200, 0)
    assert np.mean([family.job_tasks() for _ in range(20_000)]) == pytest.approx(38, rel=0.1)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.long
def test_cost_of_a_process_of_its_own() -> None:
    empty = overhead._measured("", 0, 0, 0, None)
    for kind in ("Sirius", overhead.SLOTS_ONLY, overhead.FILTER):
        median, peak, mean = overhead._measured(kind, 60, 3, 0, [1, 5])
        assert median > 0 < mean and peak >= 0.9 * empty[1] > 1 << 20


def test_links_by_number() -> None:
    assert links._path(3, 3) == (links._NONE,) * 4
    assert len(set(links._path(3, 15))) == 4 and len(set(links._path(3, 5)) - {links._NONE}) == 2


def test_a_queue_by_priority_stops_the_last_start_of_the_worst() -> None:
    queue = PriorityQueue()
    queue.apply(MachineAdded("m0", {"cpu": 1}, slots=1), MachineAdded("m1", {"cpu": 1}, slots=1))
    for now, task in enumerate("ab"):
        queue.apply(JobSubmitted(task, [Task(task)], priority=2, time=float(now)))
        queue.commit(queue.schedule(float(now)))
    where = dict(queue.where)
    queue.apply(
        JobSubmitted("c", [Task("c")], priority=2, time=2.0), JobSubmitted("d", [Task("d")], priority=1, time=3.0)
    )
    urgent = queue.schedule(3.0)
    assert dict(urgent.placements) == {"d": where["b"]} and list(urgent.preemptions) == ["b"]
    queue.commit(urgent)
    queue.apply(TaskCompleted("a", time=4.0))
    assert dict(queue.schedule(4.0).placements) == {"b": where["a"]}, "b has waited since 1, c since 2"


def test_max_min_shares_by_hand() -> None:
    assert shares.max_min(np.array([2.0, 8.0, 10.0]), 12.0).tolist() == [2.0, 5.0, 5.0]
    assert shares.max_min(np.array([1.0, 2.0]), 12.0).tolist() == [1.0, 2.0]


def test_shares_of_a_load_that_never_fills_the_cluster_have_no_row() -> None:
    outcome = Outcome()
    shares.measure_shares(outcome, 1, count=3)
    assert outcome.rows == [] and "left out" in outcome.notes[0]
    shares.measure_shares(outcome, 1)
    with_, without = outcome.rows[0].value, outcome.rows[0].baseline
    assert isinstance(with_, float) and isinstance(without, float) and with_ < without


def test_cs2_is_a_peer_by_its_own_words(tmp_path: Path) -> None:
    program = tmp_path / "cs2"
    program.write_text("#!/bin/sh\ngrep -c '^a' >&2\necho 'c time:            0.25    cost:              12'\n")
    program.chmod(0o755)
    family = SchedFamily(10, slots=2, tasks=5, seed=0)
    assert load.cs2_solve(family.problem(), str(program)) == (0.25, 12)
    program.write_text("#!/bin/sh\necho 'c nothing'\n")
    with pytest.raises(ValueError, match="no line with time and cost"):
        load.cs2_solve(family.problem(), str(program))


def test_the_flow_without_tasks_that_left_is_one_of_the_new_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Table 3 starts from the last flow: within bounds, and short of just the supply of the tasks that arrive."""
    rounds = Rounds(SchedFamily(50, slots=2, tasks=60, seed=3), 6, 1)
    before, after = rounds.family.problem(rounds.first), rounds.family.problem(rounds.tasks_after(1))
    none = np.zeros(0, np.int64)
    _, flow, _, _ = load._scaled(before, none, none)
    last = load._without(before, flow, rounds)
    assert (last >= 0).all() and (last <= after.capacity).all()
    net = (
        after.supply
        - np.bincount(after.tail, last, len(after.supply))
        + np.bincount(after.head, last, len(after.supply))
    )
    left = np.flatnonzero(net)
    first = len(after.supply) - 60
    assert left[:-6].tolist() == [first - 1 - rounds.family.jobs] and net[left[0]] == -6
    assert (left[-6:] - first).tolist() == rounds.changes[0].rows.tolist()
    assert load._scaled(after, last, np.zeros(len(after.supply), np.int64))[2] == load._scaled(after, none, none)[2]


def test_rows_by_load_compare_equal_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "MACHINES", 300)
    outcome = Outcome()
    load.measure_loads(outcome, True, 1)
    load.measure_printed(outcome, True, 1)
    assert outcome.wrong == [] and {row.setting.partition(":")[0] for row in outcome.rows} == {
        "load of 8%", "load of 97%", "load of 110%", "table 3",
    }  # fmt: skip
