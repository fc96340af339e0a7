"""Input over links: rates against the definition of max-min fairness, times against a plain fluid model."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st

import flowsched as fs
from flowsched.cluster.events import Event, JobSubmitted, MachineAdded, MachineDrained, MachineFailed
from flowsched.cluster.model import Machine, Task
from flowsched.exceptions import InputError
from flowsched.fgm import Stages
from flowsched.sim import Arrival, Execution, Metrics, NetworkModel, Simulation, Workload, compare, scheduler
from flowsched.sim.links import Link, Transfer, fair_rates
from flowsched.sim.plots import draw
from flowsched.sim.summary import tables

MACHINES = [Machine(f"m{i}", {"cpu": 4}, f"r{i // 2}", {"host": f"m{i}"}) for i in range(4)]


def run(
    tasks: Mapping[str, tuple[str, Mapping[str, float]]],
    model: NetworkModel,
    events: Sequence[Event] = (),
    at: Mapping[str, float] | None = None,
    **options: Any,
) -> Metrics:
    """Tasks of a second's work and one core: name -> machine and data; they arrive at 0 or as `at` says."""
    arrivals = [
        Arrival((at or {}).get(name, 0.0), JobSubmitted(name, (Task(name, {"cpu": 1}, {"host": (machine,)}, data=data),)), (1.0,))
        for name, (machine, data) in tasks.items()
    ]  # fmt: skip
    work = Workload("small", arrivals, MACHINES, events, resources=("cpu",))
    return Simulation(scheduler("first-fit", work), work, network=model, **options).run()


def column(metrics: Metrics, name: str) -> dict[str, Any]:
    return dict(zip(metrics.table["task"], metrics.table[name], strict=True))


@pytest.mark.parametrize(
    ("data", "seconds", "read"),
    [
        ({"m0": 100}, 0, (100, 0, 0)),
        ({"m1": 100}, 10, (0, 100, 0)),  # a machine's link of 10 a second
        ({"m2": 100}, 20, (0, 0, 100)),  # an uplink of 5
        ({"gone": 100}, 20, (0, 0, 100)),  # from outside
        ({"m0": 30, "m1": 50, "m2": 50}, 10, (30, 50, 50)),  # both at once, 5 each: the link of m0 is full
        ({"m1": 0.0}, 0, (0, 0, 0)),
    ],
)
def test_one_reader_needs_its_bytes_by_the_bandwidth(
    data: dict[str, float], seconds: float, read: tuple[float, ...]
) -> None:
    metrics = run({"a": ("m0", data)}, NetworkModel(machine=10, rack=5))
    assert metrics.ends == pytest.approx([seconds + 1])
    row = tuple(metrics.table[name][0] for name in ("read_machine", "read_rack", "read_elsewhere", "reading"))
    assert row == pytest.approx((*read, seconds))
    assert metrics.counts["data_read"] == pytest.approx(sum(read))


def test_two_on_one_uplink_have_half_each_and_then_all() -> None:
    """5 a second each: a is done after 4 s, and b has 10 for its other 20."""
    metrics = run({"a": ("m0", {"m2": 20}), "b": ("m1", {"m3": 40})}, NetworkModel(rack=10))
    assert column(metrics, "reading") == pytest.approx({"a": 4, "b": 6})
    assert metrics.ends == pytest.approx([5, 7])


def test_both_directions_of_a_link_are_apart() -> None:
    metrics = run({"a": ("m0", {"m2": 20}), "b": ("m2", {"m0": 40})}, NetworkModel(machine=10, rack=10))
    assert column(metrics, "reading") == pytest.approx({"a": 2, "b": 4})


def test_many_readers_of_one_machine_share_its_link() -> None:
    metrics = run({f"t{i}": (f"m{i}", {"m3": 10}) for i in range(3)}, NetworkModel(machine=10))
    assert metrics.ends == pytest.approx([4, 4, 4])


def test_what_one_cannot_use_others_get() -> None:
    """a and b share the link of m2; c, in the same rack as they, has what they leave of the uplink."""
    tasks = {"a": ("m0", {"m2": 10}), "b": ("m1", {"m2": 10}), "c": ("m0", {"m3": 32})}
    metrics = run(tasks, NetworkModel(machine=4, rack=6))
    # 2 a second for a, b and c: the uplink of r1 is full.  Then c has 4 for its other 22.
    assert column(metrics, "reading") == pytest.approx({"a": 5, "b": 5, "c": 5 + 22 / 4})


class Script:
    """A scheduler that does what it is told: time -> deltas."""

    def __init__(self, plan: Mapping[float, Sequence[fs.Place | fs.Preempt]]) -> None:
        self.inner = fs.Scheduler(fs.Policy(preemption=None), resources=("cpu",))
        self.plan = dict(plan)

    def apply(self, *events: Event) -> None:
        self.inner.apply(*events)

    def schedule(self, now: float, time_limit: float | None = None) -> fs.Round:
        return replace(self.inner.schedule(now), deltas=tuple(self.plan.pop(now, ())), turns=None)

    def commit(self, rnd: fs.Round) -> fs.Commit:
        return self.inner.commit(rnd)


@pytest.mark.parametrize("preempted", ["restart", "resume"])
def test_a_reader_that_is_preempted_gives_its_share_back(preempted: Any) -> None:
    """a and b have 5 each until a is stopped at 2; b has 10 for its other 20.  a reads all of it again from 4 on."""
    plan = {
        0.0: [fs.Place("a", "m0", ()), fs.Place("b", "m0", ())],
        2.0: [fs.Preempt("a", "m0", None)],
        4.0: [fs.Place("a", "m1", ())],
    }
    jobs = [
        Arrival(0.0, JobSubmitted(n, (Task(n, {"cpu": 1}, data={"m2": s}),)), (1.0,)) for n, s in (("a", 40), ("b", 30))
    ]
    ticks = [MachineDrained("m3", time=2.0), MachineDrained("m3", time=4.0)]
    work = Workload("scripted", jobs, MACHINES, ticks, resources=("cpu",))
    metrics = Simulation(Script(plan), work, network=NetworkModel(rack=10), preempted=preempted).run()
    assert column(metrics, "end") == pytest.approx({"a": 9, "b": 5})
    assert column(metrics, "reading") == pytest.approx({"a": 6, "b": 4})
    assert column(metrics, "read_elsewhere") == pytest.approx({"a": 50, "b": 30})
    assert column(metrics, "lost") == pytest.approx({"a": 2, "b": 0})


def test_work_is_kept_without_the_time_of_reading() -> None:
    """It reads for 2 s, works for 0.5 s, and again reads for 2 s for the rest of its work."""
    events = [MachineFailed("m0", time=2.5), MachineAdded("m0", {"cpu": 4}, "r0", {"host": "m0"}, time=3.0)]
    for preempted, end in (("restart", 6.0), ("resume", 5.5)):
        metrics = run({"a": ("m0", {"m2": 20})}, NetworkModel(10), events, preempted=preempted)
        assert metrics.ends == pytest.approx([end])
        assert metrics.table["lost"] == pytest.approx([2.5 if preempted == "restart" else 2.0])
        assert metrics.counts["lost_seconds"] == pytest.approx(metrics.table["lost"][0])


def test_what_a_machine_held_that_fails_comes_from_outside() -> None:
    """a reads in its rack for 2 s; the rest comes over the uplink of half the bandwidth."""
    metrics = run({"a": ("m0", {"m1": 40})}, NetworkModel(10, 5), [MachineFailed("m1", time=2.0)])
    assert column(metrics, "reading") == pytest.approx({"a": 6})
    assert metrics.table["read_rack"] == pytest.approx([20]) and metrics.table["read_elsewhere"] == pytest.approx([20])
    free = run({"a": ("m0", {"m2": 40})}, NetworkModel(rack=math.inf, machine=10), [MachineFailed("m2", time=2.0)])
    assert free.ends == pytest.approx([5])


def test_a_link_to_the_outside_that_is_never_short() -> None:
    """m4 is of no rack: with its source, the only link goes, and the rest is there at once."""
    lone = Machine("m4", {"cpu": 4})
    jobs = [Arrival(0.0, JobSubmitted("a", (Task("a", {"cpu": 1}, {"host": ("m4",)}, data={"m0": 40}),)), (1.0,))]
    machines = [MACHINES[0], Machine("m4", {"cpu": 4}, labels={"host": "m4"})]
    assert lone.rack is None
    work = Workload("w", jobs, machines, [MachineFailed("m0", time=3.0)], resources=("cpu",))
    assert Simulation(scheduler("fifo", work), work, network=NetworkModel(rack=10)).run().ends == pytest.approx([4])


def test_the_end_of_a_run_is_that_of_the_last_transfer() -> None:
    jobs = [Arrival(0.0, JobSubmitted("a", (Task("a", {"cpu": 1}, data={"gone": 40}),)), (math.inf,))]
    work = Workload("w", jobs, MACHINES, resources=("cpu",))
    for until, end, read in ((None, 4.0, 40.0), (3.0, 3.0, 30.0), (9.0, 4.0, 40.0)):
        metrics = Simulation(scheduler("fifo", work), work, network=NetworkModel(10)).run(until)
        assert metrics.facts["end"] == pytest.approx(end)
        assert (metrics.table["reading"], metrics.table["read_elsewhere"]) == (
            pytest.approx([end]),
            pytest.approx([read]),
        )


def test_a_task_that_reads_does_not_take_part_in_its_stages() -> None:
    """b's stage of 8 cores is alone for the 2 s in which a reads; then both want 8 of 4."""
    stages = Execution({"a": Stages([2], [[8]]), "b": Stages([2], [[8]])})
    metrics = run({"a": ("m0", {"m2": 20}), "b": ("m0", {})}, NetworkModel(10), execution=stages)
    assert metrics.ends == pytest.approx([8, 6])  # b: a second of work by 2 s, then a quarter of the speed
    assert column(metrics, "reading") == pytest.approx({"a": 2, "b": 0})


# -- rates ------------------------------------------------------------------------------------------------------

paths = st.lists(st.lists(st.integers(0, 4), unique=True, max_size=4), max_size=12)


@given(paths, st.lists(st.floats(0.01, 1e9), min_size=5, max_size=5))
def test_rates_are_max_min_fair(drawn: list[list[int]], width: list[float]) -> None:
    """No link above its bandwidth; each transfer has a full link on which none has more (Bertsekas and Gallager)."""
    links = range(len(width))
    made = [Link(("up", i), bandwidth, i) for i, bandwidth in enumerate(width)]
    transfers = [Transfer(i, None, MACHINES[0], 0, 1.0, 1.0, [made[k] for k in path]) for i, path in enumerate(drawn)]
    for transfer in transfers:
        for link in transfer.path:
            link.transfers[transfer] = None
    fair_rates(transfers, [link for link in made if link.transfers])
    rates = [transfer.rate for transfer in transfers]
    load = {link: sum(rate for rate, path in zip(rates, drawn, strict=True) if link in path) for link in links}
    assert all(load[link] <= width[link] * (1 + 1e-9) for link in links)
    for rate, path in zip(rates, drawn, strict=True):
        assert rate == math.inf if not path else any(
            load[link] >= width[link] * (1 - 1e-9)
            and all(other <= rate * (1 + 1e-9) for other, its in zip(rates, drawn, strict=True) if link in its)
            for link in path
        )  # fmt: skip


# -- whole runs -------------------------------------------------------------------------------------------------


def fluid(work: Workload, metrics: Metrics, model: NetworkModel) -> list[tuple[float, list[float]]]:
    """Return when each run had its input (nan: it never had), and what it read by kind, by a plain fluid model.

    It takes starts, stops and machines from the run, and raises all rates together until a link is full.
    """
    data = {t.id: t.data for a in work.arrivals for t in a.job.tasks}
    rack_of = {m.id: m.rack for m in work.machines}
    names, ids, runs = metrics.machines["machine"], metrics.table["task"], metrics.runs
    ready = [math.nan] * len(runs["start"])
    read = [[0.0, 0.0, 0.0] for _ in ready]
    flows: list[dict[str, Any]] = []
    up = dict.fromkeys(rack_of, True)

    def route(flow: dict[str, Any]) -> None:
        here, there = flow["to"], flow["from"]
        known = up.get(there, False)
        same = known and rack_of[there] is not None and rack_of[there] == rack_of[here]
        flow["kind"] = 0 if here == there else 1 if same else 2
        flow["path"] = [(here, "in")] + [(there, "out")] * known
        racks = [(rack_of[here], "down"), (rack_of[there] if known else None, "up")]
        if not same:
            flow["path"] += [(rack, way) for rack, way in racks if rack is not None]
        flow["path"] = [link for link in flow["path"] if width(link) < math.inf]

    def width(link: tuple[Any, str]) -> float:
        return model.machine if link[1] in ("in", "out") else model.rack

    events: list[tuple[float, int, Any]] = [(e.time or 0.0, 0, e) for e in work.machine_events]
    events += [(t, 2, i) for i, t in enumerate(runs["start"].tolist())]
    events += [
        (t, 1, i) for i, (t, how) in enumerate(zip(runs["end"].tolist(), runs["how"].tolist(), strict=True)) if how == 2
    ]
    events += [(metrics.facts["end"], 3, None)]
    now = 0.0
    for at, what, which in sorted(events, key=lambda e: e[:2]):
        while flows:
            for flow in flows:
                flow["rate"] = 0.0
            rising = [flow for flow in flows if flow["path"]]
            room = {link: width(link) for flow in flows for link in flow["path"]}
            while rising:
                count = {link: sum(link in flow["path"] for flow in rising) for link in room}
                step = min(room[link] / n for link, n in count.items() if n)
                for flow in rising:
                    flow["rate"] += step
                for link, n in count.items():
                    room[link] -= step * n
                full = {link for link in room if room[link] <= 1e-9 * width(link)}
                rising = [flow for flow in rising if not full.intersection(flow["path"])]
            for flow in flows:
                flow["takes"] = flow["left"] / flow["rate"] if flow["rate"] else 0.0
            step = min(at - now, *(flow["takes"] for flow in flows))
            now += step
            for flow in flows:
                read[flow["run"]][flow["kind"]] += (
                    min(flow["rate"] * step, flow["left"]) if flow["rate"] else flow["left"]
                )
                flow["left"] -= flow["rate"] * step if flow["rate"] else flow["left"]
            over = {flow["run"] for flow in flows if flow["left"] <= 1e-9}
            flows = [flow for flow in flows if flow["left"] > 1e-9]
            for run in over - {flow["run"] for flow in flows}:
                ready[run] = now
            if now >= at and not over:
                break
        now = at
        if what == 0:
            up[which.id] = isinstance(which, MachineAdded)
            for flow in flows if isinstance(which, MachineFailed) else ():
                if flow["from"] == which.id:
                    route(flow)
        elif what == 1:
            flows = [flow for flow in flows if flow["run"] != which]
        elif what == 2:
            here, any_ = names[runs["machine"][which]], False
            for holder, amount in data[ids[runs["task"][which]]]:
                flow = {"run": which, "to": here, "from": holder, "left": float(amount)}
                route(flow)
                if flow["kind"] == 0 or not flow["path"]:
                    read[which][flow["kind"]] += amount
                elif amount:
                    flows.append(flow)
                    any_ = True
            if not any_:
                ready[which] = now
    return list(zip(ready, read, strict=True))


@st.composite
def worlds(draw: st.DrawFn) -> Workload:
    racks = [None, "r0", "r1"]
    machines = [Machine(f"m{i}", {"cpu": draw(st.integers(1, 3))}, draw(st.sampled_from(racks))) for i in range(4)]
    holders = st.sampled_from(["m0", "m1", "m2", "m3", "gone"])
    arrivals = []
    for i in range(draw(st.integers(1, 14))):
        data = draw(st.dictionaries(holders, st.integers(0, 60), max_size=3))
        job = JobSubmitted(f"j{i}", (Task(f"t{i}", {"cpu": 1}, data=data),), priority=draw(st.integers(0, 2)))
        arrivals.append(Arrival(draw(st.integers(0, 12)), job, (draw(st.sampled_from([0.5, 3.0, 8.0])),)))
    events: list[Event] = []
    at = 0.0
    for which, after, down in draw(
        st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6), st.integers(1, 6)), max_size=3)
    ):
        machine, at = machines[which], at + after
        events += [MachineFailed(machine.id, time=at + 0.25)]
        at += down
        events += [MachineAdded(machine.id, machine.capacity, machine.rack, time=at + 0.25)]
    return Workload("drawn", arrivals, machines, events, resources=("cpu",))


widths = st.sampled_from([1.0, 3.0, 7.5, 20.0, math.inf])


@settings(deadline=None, max_examples=effort(15, 1500))
@given(worlds(), widths, widths, st.sampled_from(["random", "flowsched:spread", "first-fit"]), st.sampled_from(["restart", "resume"]))  # fmt: skip
def test_a_run_is_that_of_a_fluid_model(work: Workload, machine: float, rack: float, name: str, preempted: Any) -> None:
    model = NetworkModel(machine, rack)
    simulation = Simulation(scheduler(name, work), work, network=model, preempted=preempted)
    metrics = simulation.run(until=60.0)
    runs, table, end = metrics.runs, metrics.table, metrics.facts["end"]
    found = fluid(work, metrics, model)
    left = dict(zip(table["task"], table["duration"], strict=True))
    reading, amounts = dict.fromkeys(left, 0.0), {task: [0.0, 0.0, 0.0] for task in left}
    for i, (ready, read) in enumerate(found):
        task, start, until, how = table["task"][runs["task"][i]], runs["start"][i], runs["end"][i], runs["how"][i]
        until = end if math.isnan(until) else until
        worked = 0.0 if math.isnan(ready) else until - ready
        reading[task] += (until if math.isnan(ready) else ready) - start
        amounts[task] = [a + b for a, b in zip(amounts[task], read, strict=True)]
        if how == 1:
            assert worked == pytest.approx(left[task], abs=1e-3)
        elif preempted == "resume":
            left[task] -= worked
        elif how == 0:
            assert worked <= left[task] + 1e-3
    assert column(metrics, "reading") == pytest.approx(reading, abs=1e-3)
    for i, where in enumerate(("machine", "rack", "elsewhere")):
        expected = {task: parts[i] for task, parts in amounts.items()}
        assert column(metrics, f"read_{where}") == pytest.approx(expected, abs=1e-2)
    counts = metrics.counts
    assert counts["data_on_machine"] == pytest.approx(sum(table["read_machine"]))
    assert counts["data_in_rack"] == pytest.approx(sum(table["read_rack"]))
    assert counts["data_read"] == pytest.approx(sum(map(sum, amounts.values())), abs=1e-2)
    assert metrics.tasks["completed"] == sum(runs["how"] == 1)


@settings(deadline=None, max_examples=20)
@given(worlds(), widths, widths)
def test_steps_are_a_run_and_runs_repeat(work: Workload, machine: float, rack: float) -> None:
    def made() -> Simulation:
        return Simulation(scheduler("flowsched:spread", work), work, network=NetworkModel(machine, rack))

    stepped, times = made(), []
    while (progress := stepped.step(60.0)) is not None:
        times.append(progress.time)
        stepped.metrics()
    one, other = stepped.metrics(), made().run(60.0)
    assert times == sorted(set(times))
    assert repr(one.table) == repr(other.table) and one.counts == other.counts and one.facts == other.facts
    assert repr(other.table) == repr(made().run(60.0).table)


@settings(deadline=None, max_examples=20)
@given(worlds())
def test_links_that_are_never_short_change_nothing(work: Workload) -> None:
    plain, wide = (
        Simulation(scheduler("first-fit", work), work, network=model).run(60.0) for model in (None, NetworkModel())
    )
    assert repr(plain.table) == repr(wide.table) and plain.counts == wide.counts
    assert plain.rounds["time"].tolist() == wide.rounds["time"].tolist()


# -- around it --------------------------------------------------------------------------------------------------


def test_a_model_is_read_as_it_is_written() -> None:
    model = NetworkModel.parse(" machine=1.25e9, rack=5e9 ")
    assert model == NetworkModel(1.25e9, 5e9) == NetworkModel.parse(str(model)) == pickle.loads(pickle.dumps(model))
    assert str(model) == "machine=1250000000,rack=5000000000"
    assert NetworkModel.parse("rack=inf,machine=0.1") == NetworkModel(0.1) == NetworkModel.parse("machine=0.1")
    assert str(NetworkModel(1 / 3)) == f"machine={1 / 3!r}" and str(NetworkModel()) == ""


@pytest.mark.parametrize("text", ["", "machine", "machine=", "disk=4", "machine=0", "rack=-1", "rack=1,rack=2", "machine=nan", "machine=1e19", "=1", "machine=1,"])  # fmt: skip
def test_wrong_models_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"[Nn]etwork"):
        NetworkModel.parse(text)


def test_what_is_no_model() -> None:
    work = Workload.model(tasks=5, scale=0.02)
    with pytest.raises(InputError, match="network: a NetworkModel or None expected, got 'rack=1'"):
        Simulation(fs.Scheduler(), work, network="rack=1")  # type: ignore[arg-type]


def test_a_comparison_has_what_was_read_and_how_long(tmp_path: Path) -> None:
    arrivals = [
        Arrival(float(i), JobSubmitted(i, (Task(i, {"cpu": 1}, data={f"m{3 - i % 4}": 10.0}),)), (3.0,))
        for i in range(40)
    ]
    work = Workload("w", arrivals, MACHINES, resources=("cpu",))
    found = compare(work, ["flowsched:local", "random"], options={"network": NetworkModel(rack=4)})
    near, random = found.outcomes
    assert near.figures["reading, mean"] == near.figures["input from elsewhere"] == 0
    assert random.figures["reading, mean"] > 1 and random.figures["turnaround, mean"] > 4
    assert near.figures["turnaround, mean"] == pytest.approx(3)
    assert found.facts["network"] == "rack=4"
    found.to_json(tmp_path / "c.json")


@pytest.mark.long
def test_tables_and_plots_tell_what_was_read() -> None:
    metrics = run({"a": ("m0", {"m0": 10, "m1": 20, "m2": 70}), "b": ("m1", {})}, NetworkModel(rack=10))
    rows = {table.title: table.rows for table in tables(metrics)}
    assert rows["Input of tasks"] == [
        ("from the task's machine", "10", "10.0 %"),
        ("from others in its rack", "20", "20.0 %"),
        ("from elsewhere", "70", "70.0 %"),
    ]
    turnaround = rows["Turnaround, from arrival to end"]
    assert [row[0] for row in turnaround] == ["2 tasks that completed", "1 that read input, for that"]
    assert turnaround[1][-1] == "7 s" and metrics.reading().n == 1
    assert metrics.turnaround().mean == pytest.approx((8 + 1) / 2)
    assert "reading, mean" in metrics._repr_html_() and metrics.to_dict()["reading_seconds"]["mean"] == pytest.approx(7)
    plots = {plot.title: plot for plot in draw(metrics)}
    assert "Reading" in plots and "light: it reads" in plots["Runs"].caption
    still = run({"a": ("m0", {"m0": 10})}, NetworkModel(rack=10))
    assert "Reading" not in {plot.title for plot in draw(still)}
    assert len(next(table.rows for table in tables(still) if table.title.startswith("Turnaround"))) == 1
