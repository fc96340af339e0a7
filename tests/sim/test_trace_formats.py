"""Formats of traces: each sample, twenty and more malformed ones, and conversion."""

from __future__ import annotations

import gzip
import math
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.cli.trace import describe
from flowsched.cluster.events import (
    JobSubmitted,
    MachineAdded,
    MachineDrained,
    MachineFailed,
    MachineUpdated,
)
from flowsched.cluster.model import Machine, Task
from flowsched.exceptions import InputError, TraceError
from flowsched.scheduler import Scheduler
from flowsched.sim import (
    TRACE_FORMATS,
    Arrival,
    Simulation,
    Trace,
    TraceFormat,
    Workload,
    load_trace,
    read_machines,
    scheduler,
    write_trace,
)
from flowsched.sim.traces.load import recognised

SAMPLES = Path(__file__).parents[1] / "data" / "traces"
DATA = Path(__file__).parents[3] / "shared" / "data"


def told(trace: Workload) -> list[tuple[Any, ...]]:
    """Time, job, user, gang, number of tasks, demand of the first, durations."""
    return [
        (a.time, a.job.id, a.job.user, a.job.gang, len(a.job.tasks), dict(a.job.tasks[0].demand), {*a.durations})
        for a in trace.arrivals
    ]


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("jobs.swf", "swf"), ("google2019", "google2019"), ("google2019/instance_events-000000000000.json", "google2019"),
        ("philly", "philly"), ("philly/cluster_job_log", "philly"), ("pai", "pai"), ("pai/pai_task_table.csv", "pai"),
        ("gavel/seven.trace", "gavel"), ("gavel/nine.trace", "gavel"), ("azure_2023.csv", "azure"),
        ("azure_2024.csv", "azure"), ("jobs.csv", "csv"), ("jobs.jsonl", "jsonl"), ("openb", "openb"),
        ("openb/openb_pod_list_multigpu50.csv", "openb"),
    ],
)  # fmt: skip
def test_contents_tell_the_format_whatever_the_name(name: str, format: str, tmp_path: Path) -> None:
    assert recognised(SAMPLES / name).name == format
    if (SAMPLES / name).is_file():
        shutil.copy(SAMPLES / name, tmp_path / "x.dat")
        assert recognised(tmp_path / "x.dat").name == format


def test_swf_jobs_are_gangs_of_processors() -> None:
    trace = load_trace(SAMPLES / "jobs.swf")
    assert told(trace) == [
        (0, "1", "3", 4, 4, {"cpu": 1}, {100}),
        (5, "2", "4", 2, 2, {"cpu": 1}, {50}),  # the allocated processors, where none are requested
        (20, "3", None, 10, 10, {"cpu": 1}, {0}),
        (40, "5", "4", 3, 3, {"cpu": 1}, {30}),
        (50, "6", "4", None, 1, {"cpu": 1}, {20}),  # the line of the whole job, not that of a part
    ]
    assert [t.duration for a in trace.arrivals for t in a.job.tasks[:1]] == [300, None, 60, 40, 40]
    assert [dict(m.capacity) for m in trace.machines] == [{"cpu": 3}, {"cpu": 3}, {"cpu": 2}, {"cpu": 2}]  # type: ignore[arg-type]
    assert trace.facts["unix_start"] == 1_000_000_000
    assert isinstance(trace, Trace)
    assert trace.notes == (
        "1 jobs wait for others in the trace, which is not modelled",
        "1 jobs have no run time; they are left out",
        "1 lines tell of parts of jobs; they are left out",
    )


def test_swf_as_one_pool_and_with_memory() -> None:
    pool = load_trace(SAMPLES / "jobs.swf", variant="pool")
    assert [dict(m.capacity) for m in pool.machines] == [{"cpu": 10}]  # type: ignore[arg-type]
    assert told(pool)[0] == (0, "1", "3", None, 1, {"cpu": 4}, {100})
    given = load_trace(SAMPLES / "jobs.swf", machines="2xcpu=8,mem=4096")
    assert given.resources == ("cpu", "mem")
    memory = [a.job.tasks[0].demand["mem"] for a in given.arrivals]  # type: ignore[call-overload]
    assert memory == [2, 0, 0.5, 0, 0]  # requested, else used, in MiB


def test_nodes_and_pool_start_the_same_jobs(tmp_path: Path) -> None:
    waits = []
    for variant in ("nodes", "pool"):
        trace = load_trace(SAMPLES / "jobs.swf", variant=variant)
        metrics = Simulation(Scheduler(resources=("cpu",)), trace).run()
        waits.append(metrics.tasks["completed"] - trace.n_tasks)
    assert waits == [0, 0]


def test_openb_with_five_columns() -> None:
    trace = load_trace(SAMPLES / "openb", variant="multigpu50")
    assert told(trace) == [
        (0, "p0", None, None, 1, {"cpu": 12, "mem": 16384, "gpu": 1}, {math.inf}),
        (1, "p1", None, None, 1, {"cpu": 6, "mem": 12288, "gpu": 0.46}, {math.inf}),
        (2, "p2", None, None, 1, {"cpu": 8, "mem": 30517, "gpu": 0}, {math.inf}),
    ]
    assert [m.id for m in trace.machines] == ["n0"]  # the list of nodes with GPUs, where the other is not there
    assert trace.notes == ("the pods have no times; one a second arrives here, in order, and none ever ends",)  # type: ignore[attr-defined]
    assert not load_trace(SAMPLES / "openb" / "openb_pod_list_multigpu50.csv", machines=[]).machines


def test_openb_without_memory(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("name,cpu_milli,num_gpu,gpu_milli,gpu_spec,qos\np0,3152,1,590,,BE\n")
    trace = load_trace(tmp_path / "x.csv", machines=[])
    assert told(trace) == [(0, "p0", None, None, 1, {"cpu": 3.152, "mem": 0, "gpu": 0.59}, {math.inf})]
    assert trace.arrivals[0].job.priority == 2


def test_google_2019() -> None:
    trace = load_trace(SAMPLES / "google2019")
    assert [(a.time, a.job.id, a.job.user, a.job.priority, a.durations) for a in trace.arrivals] == [
        (0, "70", "ann", 1, (5, 8)),  # from its start; until the last time stamp
        (3, "80", None, 4, (5,)),
    ]
    assert trace.arrivals[1].job.tasks[0].demand == {"cpu": 0.5, "mem": 0}
    assert list(trace.machines) == [
        Machine("1", {"cpu": 0.5, "mem": 0.25}, "s1", {"platform": "p"}),
        Machine("2", {"cpu": 1, "mem": 1}, "s2"),
    ]
    assert list(trace.machine_events) == [
        MachineFailed("1", time=5.0),
        MachineAdded("1", {"cpu": 0.5, "mem": 0.5}, "s1", {"platform": "p"}, time=7.0),
    ]
    assert any("1 events concern alloc sets" in note for note in trace.notes)  # type: ignore[attr-defined]


def test_philly() -> None:
    trace = load_trace(SAMPLES / "philly")
    assert told(trace) == [
        (30, "app_1", "ann", 2, 2, {"gpu": 2}, {180}),  # all attempts together, on the GPUs of the last
        (60, "app_3", "bob", None, 1, {"gpu": 1}, {60}),
    ]
    assert [(m.id, dict(m.capacity), dict(m.labels)) for m in trace.machines] == [  # type: ignore[arg-type]
        ("m1", {"gpu": 2}, {"gpu_memory": "12GB"}),
        ("m2", {"gpu": 8}, {"gpu_memory": "24GB"}),
    ]


def test_pai() -> None:
    trace = load_trace(SAMPLES / "pai")
    job = trace.arrivals[0].job
    assert (trace.arrivals[0].time, job.id, job.user, job.gang) == (0, "aaa", "ann", 3)
    assert [dict(t.demand) for t in job.tasks] == [  # type: ignore[arg-type]
        {"cpu": 6, "mem": 30000, "gpu": 0.5},
        {"cpu": 6, "mem": 30000, "gpu": 0.5},
        {"cpu": 4, "mem": 10240, "gpu": 0},
    ]
    assert trace.arrivals[0].durations == (38, 38, 40)
    assert told(trace)[1] == (250, "ccc", None, None, 1, {"cpu": 0, "mem": 0, "gpu": 2}, {0})
    assert [(dict(m.capacity), dict(m.labels)) for m in trace.machines] == [  # type: ignore[arg-type]
        ({"cpu": 96, "mem": 524288, "gpu": 2}, {"gpu_model": "T4"}),
        ({"cpu": 96, "mem": 524288, "gpu": 0}, {}),
    ]


def test_gavel() -> None:
    trace = load_trace(SAMPLES / "gavel" / "seven.trace")
    assert told(trace) == [
        (0, "j1", None, None, 1, {"gpu": 1}, {100}),
        (10.5, "j2", None, 4, 4, {"gpu": 1}, {10}),
    ]
    assert told(load_trace(SAMPLES / "gavel" / "nine.trace")) == [(10.5, "j1", None, 4, 4, {"gpu": 1}, {10})]
    assert told(load_trace(SAMPLES / "gavel" / "seven.trace", variant="k80"))[0][-1] == {400}


def test_azure() -> None:
    trace = load_trace(SAMPLES / "azure_2023.csv")
    assert [(a.time, *a.durations) for a in trace.arrivals] == [(0, 1.0), (pytest.approx(0.052, abs=1e-6), 1.0)]
    assert trace.facts["start"] == "2023-11-16 18:17:03+00:00"
    assert load_trace(SAMPLES / "azure_2024.csv").arrivals[1].time == pytest.approx(1.007405, abs=1e-6)


def test_csv() -> None:
    trace = load_trace(SAMPLES / "jobs.csv")
    assert isinstance(trace, Trace)
    assert (trace.name, trace.notes, trace.units) == ("a day in the lab", ("written by hand",), {"license": "licences"})
    assert trace.resources == ("cpu", "mem", "gpu", "license")
    assert [(a.time, a.job.id, a.job.gang, a.job.priority, a.job.deadline, a.durations) for a in trace.arrivals] == [
        (0, "a", 2, 1, None, (60, 60)),
        (5.5, "b", None, 0, 3600, (math.inf,)),
        (7, "a", None, 1, None, (1.25,)),
    ]
    b = trace.arrivals[1].job.tasks[0]
    assert (dict(b.constraints), b.kind, b.apart) == ({"gpu_model": ("P100", "T4")}, "train", 1)
    assert b.demand == {"cpu": 1, "mem": 512, "gpu": 1, "license": 1}
    assert [(m.id, m.rack, m.slots, dict(m.labels)) for m in trace.machines] == [
        ("m0", "r0", 4, {"gpu_model": "T4"}),
        ("m1", "r1", None, {}),
    ]
    assert [type(e) for e in trace.machine_events] == [MachineDrained, MachineUpdated, MachineFailed, MachineAdded]


def test_json_lines_nest_or_not() -> None:
    trace = load_trace(SAMPLES / "jobs.jsonl")
    assert [dict(m.capacity) for m in trace.machines] == [{"cpu": 8, "gpu": 2}, {"cpu": 8, "gpu": 0}]  # type: ignore[arg-type]
    assert [(a.job.id, a.job.tasks[0].id) for a in trace.arrivals] == [("t0", "t0"), ("j", "b")]
    assert dict(trace.arrivals[1].job.tasks[0].constraints) == {"gpu_model": ("P100", "T4")}


SWF_ROW = "1 0 10 100 4 -1 -1 4 300 2048 1 3 1 1 1 1 -1 -1"
MALFORMED = {
    "too few columns": ("x.swf", SWF_ROW[:-3], "line 1: no column 'think_time'; 18 columns expected, got 17"),
    "far too few columns": ("x.swf", "1 0 10 100 4", "line 1: no column 'average_cpu'; 18 columns expected, got 5"),
    "too many columns": ("x.swf", SWF_ROW + " 7", "line 1: 18 columns expected, got 19"),
    "no number": ("x.swf", f"{SWF_ROW}\n{SWF_ROW.replace('300', 'soon')}", "line 2, column 'requested_time': a number expected, got 'soon'"),
    "below -1": ("x.swf", SWF_ROW.replace(" 10 ", " -2 "), "line 1, column 'wait': a finite number >= -1 expected, got '-2'"),
    "no submit time": ("x.swf", SWF_ROW.replace(" 0 ", " -1 ", 1), "line 1, column 'submit': a finite number >= 0 expected"),
    "a job twice": ("x.swf", f"{SWF_ROW}\n{SWF_ROW}", "line 2, column 'job': job '1' occurs twice"),
    "a bad directive": ("x.swf", f"; MaxNodes: many\n{SWF_ROW}", "line 1, column 'MaxNodes': a whole number expected, got 'many'"),
    "no job": ("x.swf", "; MaxNodes: 4\n", "no job that ran"),
    "unknown column": ("x.csv", "task,arrival,duration,cpu,durtion\na,0,1,1,5\n", "line 1, column 'durtion': unknown; known are task"),
    "no duration": ("x.csv", "task,arrival,cpu\na,0,1\n", "line 1: no column 'duration'"),
    "column twice": ("x.csv", "task,arrival,duration,cpu,cpu\na,0,1,1,5\n", "line 1: column 'cpu' occurs twice"),
    "empty duration": ("x.csv", "task,arrival,duration,cpu\na,0,,1\n", "line 2, column 'duration': a number of seconds, or a time span such as 90s, 15m or 1:30:00, expected, got ''"),
    "a task twice": ("x.csv", "task,arrival,duration,cpu\na,0,1,1\na,2,1,1\n", "line 3, column 'task': task 'a' occurs twice, first in line 2"),
    "no resource": ("x.csv", "task,arrival,duration\na,0,1\n", "line 2: no column of an amount"),
    "a gang too large": ("x.csv", "task,arrival,duration,cpu,gang\na,0,1,1,2\n", "line 2, column 'gang': at most 1 expected"),
    "two users": ("x.csv", "task,job,arrival,duration,cpu,user\na,j,0,1,1,ann\nb,j,0,1,1,bob\n", "line 3, column 'user': job 'j' has 'ann' in line 2"),
    "one and a half GPUs": ("x.csv", "task,arrival,duration,gpu\na,0,1,1.5\n", "line 2, column 'gpu': a share of one GPU or a whole number"),
    "nan": ("x.csv", "task,arrival,duration,cpu\na,nan,1,1\n", "line 2, column 'arrival': a finite number >= 0 expected, got 'nan'"),
    "a row too short": ("x.csv", "task,arrival,duration,cpu\na,0,1\n", "line 2: 4 columns expected as in the header, got 3"),
    "broken JSON": ("x.jsonl", '{"task": "a", "arrival": 0, "duration": 1, "cpu": 1}\n{"task": "b", \n', "line 2, column 14: not JSON"),
    "two objects in a line": ("x.jsonl", '{"task": "a", "arrival": 0} {"task": "b"}\n', "line 1, column 28: the end of the line expected"),
    "an array in a line": ("x.jsonl", '{"task": "a", "arrival": 0, "duration": 1, "cpu": 1}\n[1]\n', "line 2: a JSON object expected, got"),
    "a value that nests": ("x.jsonl", '{"arrival": 0, "duration": 1, "cpu": 1, "constraint": {"a": [["b"]]}}', "line 1, column 'constraint.a': a value, or a list of plain values expected"),
    "JSON that nests for ever": ("x.jsonl", '{"arrival": 0, "duration": 1, "cpu": 1}\n{"arrival": ' + "[" * 100_000, "line 2: not JSON"),
    "a huge number": ("x.jsonl", '{"arrival": 0, "duration": 1, "cpu": ' + "9" * 5000 + "}", "line 1"),
    "a machine twice": ("x.jsonl", '{"machine": "m", "cpu": 1}\n{"machine": "m", "cpu": 1}\n', "line 2, column 'machine': machine 'm' occurs twice"),
    "fails before it comes": ("x.jsonl", '{"machine": "m", "time": 3, "event": "fail"}\n{"arrival": 0, "duration": 1, "cpu": 1}\n', "line 1, column 'machine': machine 'm' is not there at 3 s"),
    "unknown event": ("x.jsonl", '{"machine": "m", "time": 3, "event": "burn"}\n', "line 1, column 'event': add, update, drain, fail, remove expected, got 'burn'"),
    "a bad time": ("x.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n", "line 2, column 'TIMESTAMP': a time such as"),
    "tokens": ("x.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00,1,few\n", "line 2, column 'GeneratedTokens': a whole number expected, got 'few'"),
    "a log without attempts": ("x.json", '[{"jobid": "a", "submitted_time": "2017-10-07 01:00:00", "attempts": []},\n{"jobid": "b", "submitted_time": "2017-10-07 01:00:00"}]', "line 2, column 'attempts': a list expected"),
    "a bad time of a log": ("x.json", '[{"jobid": "a", "submitted_time": "noon", "attempts": []}]', "line 1, column 'submitted_time': a time such as 2017-10-07"),
    "a log cut short": ("x.json", '[{"jobid": "a", "submitted_time": "2017-10-07 01:00:00", "attempts": []}', "line 1: ',' or ']' expected"),
    "only an end before its start": ("x.csv", "j,t,1.0,Terminated,20.0,10.0,600.0,1,50.0,T4\n", "no task that ran"),
    "another document": ("x.json", '{"name": "own",\n "workflow": {"tasks": []}}', "in none of the known formats"),
    "rows in an array": ("x.json", '[{"arrival": 0, "duration": 5, "cpu": 1}]', "in none of the known formats"),
    "another array": ("x.json", '[{"start": 0,\n "length": 5}]', "in none of the known formats"),
    "a long document": ("x.json", '{"tasks": [\n' + '{"id": 1},\n' * 9000 + "{}]}", "in none of the known formats"),
    "a broken document": ("x.json", '{"name": "own",\n "workflow": {"tasks": }}', "line 1, column 16: not JSON"),
    "a quote without end": ("x.csv", 'task,arrival,duration,cpu\na,0,1,1\n"b,1,1,1\nc,2,1,1\n', "line 3: not a row of a CSV file"),
    "text behind a quote": ("x.csv", 'task,arrival,duration,cpu\n"a"b,0,1,1\n', "line 2: not a row of a CSV file"),
    "no known format": ("x.csv", "# a remark\n\njob,start,end\na,0,1\n", "line 3: in none of the known formats"),
    "too many GPUs": ("x.jsonl", '{"machine": "m", "gpu": 5000}\n', "line 1, column 'gpu': at most 4096 expected"),
    "instances": ("x.csv", "j,t,1.5,Terminated,20.0,30.0,600.0,1,50.0,T4\n", "line 1, column 'inst_num': a whole number expected, got '1.5'"),
}  # fmt: skip


def test_what_is_no_text_is_named_by_line_and_column(tmp_path: Path) -> None:
    rows = "task,arrival,duration,cpu\n" + "".join(f"t{i},0,1,1\n" for i in range(5000))
    for name, pack in (("x.csv", bytes), ("x.csv.gz", gzip.compress)):
        (tmp_path / name).write_bytes(pack(rows.encode() + "é,".encode() + b"\xff,1,1\n"))
        with pytest.raises(TraceError, match=r"x.csv(.gz)?, line 5002, column 3: not a CSV file"):
            load_trace(tmp_path / name, "csv")


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_trace_is_refused_with_file_line_and_column(what: str, tmp_path: Path) -> None:
    name, text, says = MALFORMED[what]
    (tmp_path / name).write_text(text)
    with pytest.raises(TraceError) as caught:
        load_trace(tmp_path / name)
    assert says in str(caught.value)
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("google2019/instance_events-000000000000.json", '"type":"3"', '"type":"77"', r"line 3, column 'type': 0 to 10, or one of SUBMIT"),
        ("google2019/instance_events-000000000000.json", '"collection_id":"80",', "", r"line 5, column 'collection_id': it is missing"),
        ("google2019/instance_events-000000000000.json", '"cpus":0.5,"memory":null', '"cpus":"x"', r"line 5, column 'resource_request.cpus': a number"),
        ("google2019/machine_events.csv", "0,1,ADD,s1,0.5", "0,1,ADD,s1,-1", r"machine_events.csv, line 2, column 'capacity.cpus': a finite number"),
        ("google2019/machine_events.csv", "5000000,1,2", "5000000,9,2", r"line 4, column 'machine_id': machine '9' is removed or updated, but"),
        ("philly/cluster_machine_list", "m2", "m1", r"cluster_machine_list, line 3, column 'machineId': machine 'm1' occurs twice"),
        ("gavel/simulation_throughputs.json", '{"v100"', '{"v100', r"simulation_throughputs.json, line 1, column \d+: not JSON"),
        ("pai/pai_machine_spec.csv", "m2", "m1", r"pai_machine_spec.csv, line 2, column 'machine': machine 'm1' occurs twice"),
        ("gavel/seven.trace", "ResNet-18", "ResNet-99", r"seven.trace, line 1, column 'job_type': simulation_throughputs.json does not know"),
        ("gavel/seven.trace", "\t10.5", "\tsoon", r"line 2, column 'arrival_time': a number expected, got 'soon00000'"),
        ("gavel/simulation_throughputs.json", "v100", "tpu", r"simulation_throughputs.json: no throughputs of v100"),
        ("jobs.machines.csv", "1,add", "1,grow", r"jobs.machines.csv, line 7, column 'event'"),
        ("jobs.machines.csv", "8,16384,2,1", "8,16384,2.5,1", r"line 2, column 'gpu': a whole number of GPUs expected, got 2.5"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_sample_is_found(name: str, old: str, new: str, says: str, tmp_path: Path) -> None:
    shutil.copytree(SAMPLES, tmp_path, dirs_exist_ok=True)
    path = tmp_path / name
    text = path.read_text().replace("40,fail,,,,,,,\nm1,50,add", "40,fail,,,,,,,\nm1,501,add")
    assert old in text
    path.write_text(text.replace(old, new, 1))
    load = path if path.suffix == ".trace" else path.parent / "seven.trace" if "gavel" in name else path.parent
    with pytest.raises(TraceError, match=says):
        load_trace(tmp_path / "jobs.csv" if name.startswith("jobs") else load)


NASTY = ("x", "-7.5", "nan", "inf", "1e308", "9" * 30, "", '"', "\0", "99999999")
NASTY_JSON = ('"x"', "-1", "NaN", "1e999", '""', "{}", "[[1]]", "true", "9" * 400, "1.5")
WHOLE = r"no task|no job that ran|no machine is ever added|no throughputs of v100"
"""What is said of a file as a whole."""


def mistakes(line: str, kind: str) -> Iterator[str]:
    """A line with each of its values replaced by each nasty one, cut short, and with one value too many."""
    if kind == "json":
        for value in re.finditer(r'(?<=[:\[,])("[^"]*"|-?\d+(\.\d+)?|null|true)', line):
            yield from (line[: value.start()] + bad + line[value.end() :] for bad in NASTY_JSON)
        yield line[: len(line) // 2]
        return
    between = {".trace": "\t", ".swf": " "}.get(kind, ",")
    cells = line.split(between)
    for i in range(len(cells)):
        yield from (between.join([*cells[:i], bad, *cells[i + 1 :]]) for bad in NASTY)
    yield between.join(cells[:-1])
    yield between.join([*cells, "7"])


@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(str(path.relative_to(SAMPLES)), marks=pytest.mark.long if i % 3 else ())
        for i, path in enumerate(path for path in sorted(SAMPLES.rglob("*")) if path.is_file())
    ],
)
def test_whatever_is_wrong_is_said_with_file_and_line_or_loads_and_runs(sample: str, tmp_path: Path) -> None:
    shutil.copytree(SAMPLES, tmp_path, dirs_exist_ok=True)
    path = tmp_path / sample
    lines = path.read_text().splitlines()
    kind = "json" if lines[0][0] in "{[" else path.suffix
    target = {
        "gavel": path if kind == ".trace" else path.parent / "seven.trace",
        "openb": path.parent / "openb_pod_list_multigpu50.csv",
    }.get(path.parent.name, path.parent if path.parent != tmp_path else path)
    target = tmp_path / "jobs.csv" if sample == "jobs.machines.csv" else target
    refused = 0
    for number, line in enumerate(lines[:4]):
        for bad in mistakes(line, kind) if line.strip() else ():
            path.write_text("\n".join([*lines[:number], bad, *lines[number + 1 :]]) + "\n")
            try:
                work = load_trace(target)
            except TraceError as error:
                refused += 1
                assert str(path) in str(error), bad
                assert re.search(r", line \d+", str(error)) or re.search(WHOLE, str(error)), bad
            else:
                Simulation(scheduler("first-fit", work), work).run(until=0.0)
    assert refused


def test_what_is_no_trace_says_which_formats_there_are(tmp_path: Path) -> None:
    for text in (b"hello\n", b"name,age\nbob,7\n", b'{"name": 7}\n', b"[]"):
        (tmp_path / "x").write_bytes(text)
        with pytest.raises(
            TraceError,
            match=r"in none of the known formats \(openb, google2011, .*CSV trace needs the columns",
        ):
            load_trace(tmp_path / "x")
    for text in (b"[[[", b"{" * 70000, b'{"arrival": '):
        (tmp_path / "x").write_bytes(text)
        with pytest.raises(TraceError, match="x, line 1.*: not JSON|x, line 1: a JSON object expected"):
            load_trace(tmp_path / "x")
    with pytest.raises(TraceError, match="in none of the known formats"):
        load_trace(tmp_path)


def test_format_and_variant_by_name(tmp_path: Path) -> None:
    assert load_trace(SAMPLES / "jobs.swf", "swf").n_tasks == 20
    with pytest.raises(InputError, match="format: unknown name 'sfw'; known: openb"):
        load_trace(SAMPLES / "jobs.swf", "sfw")
    with pytest.raises(
        InputError, match=re.escape("variant: SWF (Parallel Workloads Archive) has no 'x'; there are: nodes, pool")
    ):
        load_trace(SAMPLES / "jobs.swf", variant="x")
    with pytest.raises(InputError, match="variant: CSV has no 'x'$"):
        load_trace(SAMPLES / "jobs.csv", variant="x")


def test_a_format_of_your_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = TraceFormat(
        "mine",
        "my trace",
        lambda source: source.text.startswith("mine"),
        lambda source, options: Trace("mine", [Arrival(0, JobSubmitted("j", (Task("t", {"cpu": 1}),)), (1,))], []),
    )
    monkeypatch.setitem(TRACE_FORMATS, "mine", mine)
    (tmp_path / "x").write_text("mine")
    assert load_trace(tmp_path / "x").name == "mine"


def figures(workload: Workload) -> dict[str, Any]:
    """Everything that a run measures but times of this computer and where the workload comes from."""
    metrics = Simulation(Scheduler(resources=workload.resources), workload).run().to_dict()
    del metrics["wall_clock"]
    known = ("workload", "machines", "tasks", "units", "end", "nothing_left")
    return {**metrics, "facts": {k: metrics["facts"][k] for k in known}}


ORIGINALS: dict[str, Callable[[], Workload]] = {
    "model": lambda: Workload.model(tasks=150, scale=0.02, load=1.3),
    "swf": lambda: load_trace(SAMPLES / "jobs.swf"),
    "csv": lambda: load_trace(SAMPLES / "jobs.csv"),
    "google2019": lambda: load_trace(SAMPLES / "google2019"),
    "pai": lambda: load_trace(SAMPLES / "pai"),
    "azure": lambda: load_trace(SAMPLES / "azure_2024.csv", machines="1xrequest=1"),
    "openb": lambda: load_trace(SAMPLES / "openb", variant="multigpu50"),
}


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".csv.gz", ".jsonl.gz"])
@pytest.mark.parametrize("name", ORIGINALS)
def test_what_is_converted_simulates_the_same(name: str, ending: str, tmp_path: Path) -> None:
    original = ORIGINALS[name]()
    write_trace(original, tmp_path / f"x{ending}")
    again = load_trace(tmp_path / f"x{ending}")
    assert figures(again) == figures(original)
    assert getattr(again, "notes", ()) == tuple(getattr(original, "notes", ()))


names = st.text("abc |,;#\"'\n\u00e9", min_size=1, max_size=6).filter(lambda text: text == text.strip())
amounts = st.floats(0, 1e6).map(lambda x: round(x, 6))


@settings(deadline=None, max_examples=effort(8, 600))
@given(data=st.data())
def test_every_task_comes_back_as_it_was(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    ids = data.draw(st.lists(names, min_size=1, max_size=4, unique=True))
    labels = st.dictionaries(
        st.sampled_from(["a", "b.c"]), st.lists(st.sampled_from(["x", "y z"]), min_size=1).map(tuple)
    )
    arrivals = [
        Arrival(
            data.draw(amounts),
            JobSubmitted(
                name,
                (Task(name, {"cpu": data.draw(amounts), "x.y": data.draw(amounts)}, data.draw(labels), duration=data.draw(st.none() | amounts)),),
                data.draw(st.none() | names),
                data.draw(st.integers(-5, 5)),
                deadline=data.draw(st.none() | amounts),
            ),
            (data.draw(amounts | st.just(math.inf)),),
        )
        for name in ids
    ]  # fmt: skip
    work = Workload("w", arrivals, [Machine("m", {"cpu": 1.5})], resources=("x.y", "cpu"), units={})
    path = tmp_path_factory.mktemp("t") / f"x{data.draw(st.sampled_from(['.csv', '.jsonl']))}"
    write_trace(work, path)
    again = load_trace(path)
    assert again.arrivals == work.arrivals
    assert (again.resources, again.units, again.machines) == (work.resources, work.units, work.machines)


@pytest.mark.parametrize(
    ("task", "says"),
    [
        (Task("t", {"cpu": 1}, prefers={"a": ["b"]}), "task 't': prefers has no column"),
        (Task("t", {"cpu": 1}, {"a": ["b|c"]}), "constraints"),
        (Task(7, {"cpu": 1}), "task 7: a text expected"),
        (Task(" t", {"cpu": 1}), "task ' t': a text expected"),
    ],
)
def test_what_has_no_column_is_not_written(task: Task, says: str, tmp_path: Path) -> None:
    work = Workload("w", [Arrival(0, JobSubmitted("j", (task,)), (1,))], [])
    with pytest.raises(InputError, match=says):
        write_trace(work, tmp_path / "x.csv")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="must end with .csv"):
        write_trace(work, tmp_path / "x.txt")


def test_machines_in_words_and_from_files() -> None:
    made = read_machines("2xcpu=4,mem=1024 + 1 x gpu=8")
    assert [(m.id, dict(m.capacity)) for m in made] == [  # type: ignore[arg-type]
        ("m0", {"cpu": 4, "mem": 1024}),
        ("m1", {"cpu": 4, "mem": 1024}),
        ("m2", {"gpu": 8}),
    ]
    assert [m.id for m in read_machines(SAMPLES / "openb" / "openb_node_list_gpu_node.csv")] == ["n0"]
    for text, says in (
        ("nothing.csv", "neither a file nor such as 32xcpu=4"), ("2xcpu", "cpu: a number expected, got ''"),
        ("2xcpu=4,cpu=5", "each name once"), ("2xcpu=lots", "cpu: a number expected, got 'lots'"), ("0xcpu=1", "none"),
        ("2xcpu=4+three", "COUNTxNAME=AMOUNT,... expected, got 'three'"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=re.escape(says)):
            read_machines(text)
    with pytest.raises(TraceError, match="column 'time': machines that are there from the start"):
        read_machines(SAMPLES / "jobs.machines.csv")
    with pytest.raises(InputError, match="gpu"):
        load_trace(SAMPLES / "jobs.swf", machines="2xgpu=4")


@pytest.mark.parametrize("name", ORIGINALS)
def test_every_workload_can_be_described(name: str) -> None:
    work = ORIGINALS[name]()
    tables = describe(work)
    rows = {row[0]: row[1] for row in tables[0].rows}
    assert rows["tasks"] == str(work.n_tasks)
    assert rows["machines"] == str(len(work.machines))
    for table in tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}
    assert describe(Workload("empty", [], []))


@pytest.mark.skipif(not (DATA / "gavel").is_dir(), reason="the Gavel trace is not in ../shared/data")
def test_the_real_gavel_trace() -> None:
    trace = load_trace(DATA / "gavel" / "msr-seed0-11cb48.trace")
    assert (len(trace.arrivals), trace.n_tasks) == (1819, 2563)


@pytest.mark.skipif(not (DATA / "azure_llm2023").is_dir(), reason="the Azure trace is not in ../shared/data")
def test_the_real_azure_trace() -> None:
    assert load_trace(DATA / "azure_llm2023" / "AzureLLMInferenceTrace_code.csv").n_tasks == 8819


def test_rows_that_contradict_themselves_are_left_out_and_counted(tmp_path: Path) -> None:
    """One bad row of a published trace costs that row, and no row disappears without a note."""
    rows = ["a,w,2,Terminated,100,200,600,29.3,100,V100", "b,w,1,Terminated,200,150,100,1,50,T4"]
    rows += [",w,1,Terminated,120,130,100,1,50,T4", ",w,1,Terminated,500,900,100,1,50,T4", rows[0]]
    (tmp_path / "pai_task_table.csv").write_text("\n".join(rows))
    trace = load_trace(tmp_path, machines="1xcpu=96,mem=1048576,gpu=8")
    assert [(a.job.id, len(a.durations)) for a in trace.arrivals] == [("a", 4), ("line 3", 1), ("line 4", 1)]
    assert list(trace.notes) == [
        "1 tasks have the job and the name of an earlier one; both run",
        "1 tasks end before they start; they are left out",
        "2 tasks have no job name; each is a job of its own",
        "3 jobs are not in pai_job_table; they arrive when their first task began",
    ]
