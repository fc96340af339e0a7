"""Tables of other programs: names of columns, dates, time spans and amounts with units, bad rows, tables in memory."""

from __future__ import annotations

import json
import math
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowsched as fs
from flowsched.boundary import units
from flowsched.cluster import Machine
from flowsched.exceptions import InputError, TraceError
from flowsched.sim import Arrival, Simulation, Trace, Workload, load_trace, write_trace

COLUMNS = {"arrival": "Submit Time", "duration": "Run Time", "cpu": "Cores", "mem": "Memory", "user": "Who"}
ROWS = [
    ("1", "2026-01-02T00:10:00", "1h", "1", "64G", "ann"),
    ("2", "2026-01-02 00:00:30", "90s", "500m", "1.5 GiB", ""),
    ("3", "2026-01-02T01:00:00+01:00", "1-00:00:01", "2", "100", "bob"),
]


def table(path: Path, rows: list[tuple[str, ...]], mark: str = ",") -> Path:
    head = ("JobID", *COLUMNS.values())
    path.write_text("".join(mark.join(row) + "\n" for row in (head, *rows)))
    return path


def contents(work: Workload) -> list[tuple[object, ...]]:
    return [(a.time, a.durations[0], dict(a.job.tasks[0].demand), a.job.user) for a in work.arrivals]


EXPECTED = [
    (0.0, 86401.0, {"cpu": 2, "mem": 100}, "bob"),
    (30.0, 90.0, {"cpu": 0.5, "mem": 1536}, None),
    (600.0, 3600.0, {"cpu": 1, "mem": 65536}, "ann"),
]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_a_table_with_columns_of_other_names(tmp_path: Path, mark: str) -> None:
    work = load_trace(table(tmp_path / "jobs.txt", ROWS, mark), columns=COLUMNS)
    assert contents(work) == EXPECTED
    assert any("2026-01-02T00:00:00Z" in note for note in work.notes)
    assert "columns that are not used: JobID" in work.notes


def test_json_lines_and_frames_say_the_same(tmp_path: Path) -> None:
    names = ("JobID", *COLUMNS.values())
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in ROWS))
    assert contents(load_trace(path, columns=COLUMNS)) == EXPECTED
    columns = dict(zip(names, zip(*ROWS, strict=True), strict=True))
    assert contents(Workload.from_frame(columns, columns=COLUMNS)) == EXPECTED
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(columns)
    frame["Run Time"] = [pandas.Timedelta(hours=1), pandas.Timedelta(seconds=90), pandas.Timedelta(days=1, seconds=1)]
    frame["Submit Time"] = pandas.to_datetime(frame["Submit Time"], format="ISO8601", utc=True)
    assert contents(Workload.from_frame(frame, columns=COLUMNS)) == EXPECTED
    frame["gang"] = pandas.array([None, None, 1], "Int64")  # a missing value that has no truth
    work = Workload.from_frame(frame, columns=COLUMNS)
    assert contents(work) == EXPECTED and [a.job.gang for a in work.arrivals] == [1, None, None]


def test_parquet(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    frame = arrow.table({"arrival": [0.0, 5.0], "duration": [1.0, None], "cpu": [1, 2]})
    parquet.write_table(frame.slice(0, 1), tmp_path / "x.parquet")
    assert contents(load_trace(tmp_path / "x.parquet")) == [(0.0, 1.0, {"cpu": 1}, None)]
    parquet.write_table(frame, tmp_path / "y.parquet")
    with pytest.raises(TraceError, match="y.parquet, row 1, column 'duration': a number of seconds"):
        load_trace(tmp_path / "y.parquet")


BAD = {
    "a word for a time span": (
        ("4", "2026-01-02", "soon", "1", "1", ""),
        "line 5, column 'Run Time': a number of seconds, or",
    ),
    "a number among dates": (
        ("4", "600", "1", "1", "1", ""),
        "line 5, column 'Submit Time': a date expected as in the first row",
    ),
    "no such date": (
        ("4", "2026-02-30", "1", "1", "1", ""),
        "line 5, column 'Submit Time': a number of seconds, or a date",
    ),
    "a unit of something else": (
        ("4", "2026-01-02", "1", "1", "3 apples", ""),
        "line 5, column 'Memory': a number of MiB, or",
    ),
    "below zero": (("4", "2026-01-02", "-5", "1", "1", ""), "line 5, column 'Run Time': a finite number >= 0"),
}


@pytest.mark.parametrize(("row", "message"), BAD.values(), ids=BAD)
def test_a_bad_row_is_an_error_or_skipped_with_a_note(tmp_path: Path, row: tuple[str, ...], message: str) -> None:
    path = table(tmp_path / "jobs.csv", [*ROWS, row])
    with pytest.raises(TraceError, match=message.replace(">=", r">=")):
        load_trace(path, columns=COLUMNS)
    work = load_trace(path, columns=COLUMNS, skip_bad=True)
    assert contents(work) == EXPECTED
    assert any(note.startswith("1 rows are skipped; the first:") and message in note for note in work.notes)


def test_a_skipped_row_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("task,job,arrival,duration,cpu,demand.fpga,gang\na,j,0,x,1,1,\na,j,0,5,1,,\nb,j,0,5,1,,2\n")
    work = load_trace(path, skip_bad=True)
    assert work.resources == ("cpu",) and [task.id for a in work.arrivals for task in a.job.tasks] == ["a"]


def test_names_of_columns_are_checked(tmp_path: Path) -> None:
    path = table(tmp_path / "jobs.csv", ROWS)
    with pytest.raises(InputError, match="columns: 'arival' is no column of tasks; did you mean 'arrival'?"):
        load_trace(path, columns={"arival": "Submit Time"})
    with pytest.raises(TraceError, match="line 1: no column 'Submitted'; the columns are JobID, Submit Time, Run Time"):
        load_trace(path, columns=COLUMNS | {"arrival": "Submitted"})
    with pytest.raises(TraceError, match="by these or by given names .*; found JobID, Submit Time"):
        load_trace(path)
    with pytest.raises(InputError, match="frame: no column 'arrival' for arrival; the columns are cpu"):
        Workload.from_frame({"cpu": [1]})
    with pytest.raises(InputError, match="frame: columns of one length"):
        Workload.from_frame({"arrival": [1], "duration": [1, 2]})


SACCT = """JobID|User|Submit|Start|End|Elapsed|Timelimit|ReqCPUS|ReqMem|NNodes|AllocTRES|State|
10|ann|2026-01-01T08:00:00|2026-01-01T08:01:00|2026-01-01T09:01:00|01:00:00|02:00:00|4|8G|2|cpu=4,gres/gpu=2,mem=8G,node=2|COMPLETED|
10.batch||2026-01-01T08:00:00|2026-01-01T08:01:00|2026-01-01T09:01:00|01:00:00||4||2|cpu=4|COMPLETED|
11|bob|2026-01-01T08:03:00|Unknown|Unknown|00:00:00|UNLIMITED|1|2Gc|1||PENDING|
12_7|bob|2026-01-01T08:04:00|2026-01-01T08:04:00|2026-01-01T08:05:30|00:01:30|UNLIMITED|3|2Gc|1||CANCELLED by 0|
13|bob|2026-01-01T08:04:00|2026-01-01T08:04:00|Unknown|00:01:30|1-00:00:00|3|4000Mn|1||RUNNING|
"""


def test_accounting_of_slurm(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(SACCT)
    work = load_trace(path, machines="2xcpu=4,mem=64G,gpu=1")
    assert work.resources == ("cpu", "mem", "gpu")
    assert contents(work) == [
        (0.0, 3600.0, {"cpu": 2, "gpu": 1, "mem": 4096}, "ann"),
        (240.0, 90.0, {"cpu": 3, "mem": 6144}, "bob"),
    ]
    assert [(a.job.gang, len(a.job.tasks), a.job.tasks[0].duration) for a in work.arrivals] == [
        (2, 2, 7200),
        (None, 1, None),
    ]
    assert {"left out: steps of jobs (1)", "left out: jobs that have not started or not ended (2)"} <= {*work.notes}
    for recorded in ("gres/gpu:a100=1,gres/gpu:t4=1", "gres/gpu=2,gres/gpu:a100=2"):
        path.write_text(SACCT.replace("gres/gpu=2", recorded))
        assert load_trace(path).arrivals[0].job.tasks[0].demand["gpu"] == 1
    path.write_text(SACCT.replace("02:00:00", "tomorrow"))
    with pytest.raises(TraceError, match="line 2, column 'Timelimit': a number of seconds, or a time span"):
        load_trace(path)


def test_workloads_of_batsim(tmp_path: Path) -> None:
    jobs = [
        {"id": 1, "subtime": 3, "walltime": 100, "res": 2, "profile": "d"},
        {"id": 2, "subtime": 0, "res": 1, "profile": "d"},
    ]
    document = {"nb_res": 3, "jobs": jobs, "profiles": {"d": {"type": "delay", "delay": 20}, "p": {"type": "parallel"}}}
    path = tmp_path / "x.json"
    path.write_text(json.dumps(document))
    work = load_trace(path)
    assert contents(work) == [(0.0, 20.0, {"cpu": 1}, None), (3.0, 20.0, {"cpu": 1}, None)]
    assert len(work.machines) == 3 and work.arrivals[1].job.gang == 2
    for change, message in (
        ({"profile": "p"}, "job 1, column 'profile': a profile of type 'delay' expected"),
        ({"profile": "q"}, "job 1, column 'profile': there is no profile 'q'"),
        ({"res": 0}, "job 1, column 'res': a whole number >= 1"),
        ({"subtime": "x"}, "job 1, column 'subtime': a number expected"),
    ):
        path.write_text(json.dumps(document | {"jobs": [jobs[0], jobs[1] | change]}))
        with pytest.raises(TraceError, match=message):
            load_trace(path)


@given(st.integers(0, 10**7))
def test_time_spans_are_read_in_all_forms(total: int) -> None:
    days, rest = divmod(total, 86400)
    hours, minutes, seconds = rest // 3600, rest % 3600 // 60, rest % 60
    forms = [
        str(total),
        f"{total}s",
        f"{days}d {hours}h{minutes}min {seconds}s",
        f"{days}-{hours:02}:{minutes:02}:{seconds:02}",
    ]
    assert {units.seconds(form) for form in forms} == {float(total)}
    assert units.seconds(f"{total * 1000}ms") == pytest.approx(total)


@given(st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)), st.integers(-12, 12))
def test_dates_are_read_in_their_zone(date: datetime, hours: int) -> None:
    local = date.replace(tzinfo=UTC) + timedelta(hours=hours)
    text = f"{local:%Y-%m-%dT%H:%M:%S}{'+' if hours >= 0 else '-'}{abs(hours):02}:00"
    assert units.moment(text) == date.replace(tzinfo=UTC, microsecond=0).timestamp()


@pytest.mark.parametrize("text", ["", "x", "1h2", "1:2:3:4", "--1", "1 d h", "G", "5 GB s", "1e", "0x10", "1h-2h"])
def test_other_text_is_refused(text: str) -> None:
    for read in (units.seconds, units.moment, units.mebibytes, units.cores):
        with pytest.raises(ValueError, match=r"."):
            read(text)


def test_a_comparison_as_a_frame() -> None:
    pytest.importorskip("pandas")
    found = fs.sim.compare(fs.sim.synthetic("poisson", tasks=40, scale=0.05), ["fifo", "first-fit"], seeds=2)
    frame = found.to_frame()
    assert frame["scheduler"].tolist() == ["fifo", "fifo", "first-fit", "first-fit"] or len(frame) == 4
    assert np.isfinite(frame["wait, mean"]).all()


WORKFLOW: dict[str, Any] = {
    "name": "w",
    "schemaVersion": "1.5",
    "workflow": {
        "specification": {
            "tasks": [
                {"name": "join", "id": "c", "parents": ["a", "b"], "children": []},
                {"name": "split", "id": "a", "parents": [], "children": ["b", "c"]},
                {"name": "work", "id": "b", "parents": ["a"], "children": ["c"]},
            ]
        },
        "execution": {
            "makespanInSeconds": 60,
            "tasks": [
                {"id": "a", "runtimeInSeconds": 10, "coreCount": 1, "memoryInBytes": 2**30},
                {"id": "b", "runtimeInSeconds": 20.5, "coreCount": 2},
                {"id": "c", "runtimeInSeconds": 5},
            ],
            "machines": [{"nodeName": "n", "cpu": {"coreCount": 4}, "memoryInBytes": 2**33}],
        },
    },
}


def test_workflows_wait_for_parents(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_text(json.dumps(WORKFLOW))
    work = load_trace(path)
    assert {a.job.tasks[0].id: (a.after, dict(a.job.tasks[0].demand)) for a in work.arrivals} == {
        "a": ((), {"cpu": 1, "mem": 1024}), "b": (("a",), {"cpu": 2}), "c": (("a", "b"), {"cpu": 1})
    }  # fmt: skip
    assert work.machines[0].capacity == {"cpu": 4, "mem": 8192}
    table = Simulation(fs.Scheduler(fs.Policy(), resources=work.resources), work).run().table
    assert dict(zip(table["task"], zip(table["arrival"], table["end"], strict=True), strict=True)) == {
        "a": (0, 10), "b": (10, 30.5), "c": (30.5, 35.5)
    }  # fmt: skip
    old: dict[str, Any] = {"name": "w", "schemaVersion": "1.3", "workflow": {"tasks": [
        {"name": "x_a", "id": "a", "runtime": 1, "cores": 1, "memory": 1024, "parents": []},
        {"name": "x_b", "id": "b", "runtime": 2, "cores": 1, "parents": ["x_a"]},
    ], "machines": []}}  # fmt: skip
    path.write_text(json.dumps(old))
    assert [a.after for a in load_trace(path, machines="1xcpu=4,mem=1G").arrivals] == [(), ("a",)]
    for change, message in (
        ({"parents": ["z"]}, "task 1, column 'parents': there is no task 'z'"),
        ({"id": "a"}, "task 1, column 'id': task 'a' occurs twice"),
        ({"runtime": "soon"}, "record 1, column 'runtime': a number expected"),
        ({"id": "c", "parents": ["c"]}, "w.json: after: tasks wait for each other: 'c'"),
    ):
        tasks = old["workflow"]["tasks"]
        path.write_text(json.dumps(old | {"workflow": {"tasks": [tasks[0], tasks[1] | change]}}))
        with pytest.raises(TraceError, match=message):
            load_trace(path)


def test_columns_of_dependencies(tmp_path: Path) -> None:
    path, again = tmp_path / "t.csv", tmp_path / "again.csv"
    path.write_text("task,job,arrival,duration,cpu,after\na,j,0,10,1,\nb,j,0,10,1,\nc,j,5,10,1,a|b\nd,k,100,1,1,c\n")
    work = load_trace(path, machines="1xcpu=1")
    write_trace(work, again)
    for one in (work, load_trace(again, machines="1xcpu=1")):
        metrics = Simulation(fs.Scheduler(fs.Policy(), resources=one.resources), one).run()
        assert metrics.table["arrival"] == [0, 0, 20, 100] and metrics.tasks["completed"] == 4
    short = Simulation(fs.Scheduler(fs.Policy(), resources=work.resources), work).run(15)
    assert short.tasks["not_arrived"] == 2 and short.tasks["running"] == 1
    assert work.head(3).head(2).arrivals[0].job.tasks[0].id == "a" and not work.hold().arrivals[-1].after
    assert [a.after for a in work.head(3).arrivals] == [(), ("a", "b")]
    path.write_text("task,arrival,duration,cpu,after\na,0,1,1,\nb,0,1,1,z\n")
    with pytest.raises(TraceError, match="line 3, column 'after': there is no task 'z'"):
        load_trace(path)


@given(st.integers(0, 2**32))
def test_tasks_start_after_those_that_they_wait_for(seed: int) -> None:
    draw = random.Random(seed)
    names = [f"t{i}" for i in range(draw.randrange(1, 25))]
    arrivals = [
        Arrival(
            draw.choice((0.0, 3.0, 10.0)),
            fs.JobSubmitted(draw.choice("jkl") + str(i // 5), [fs.Task(name, {"cpu": draw.choice((1, 2))})]),
            (float(draw.randrange(9)),),
            draw.sample(names[:i], draw.randrange(min(i, 3) + 1)),
        )
        for i, name in enumerate(names)
    ]
    work = Workload("random", arrivals, [Machine("m", {"cpu": 3})], resources=("cpu",))
    table = Simulation(fs.Scheduler(fs.Policy(), resources=("cpu",)), work).run().table
    ends, starts = (dict(zip(table["task"], table[name], strict=True)) for name in ("end", "first_start"))
    arrived = dict(zip(table["task"], table["arrival"], strict=True))
    for arrival in arrivals:
        for task in arrival.job.tasks:
            assert arrived[task.id] == max([arrival.time, *(ends[before] for before in arrival.after)])
            assert starts[task.id] >= arrived[task.id]


STAMP = "2026-01-01T00:00:00Z"


def pod(name: str, created: str, begun: str = "", ended: str = "", **spec: Any) -> dict[str, Any]:
    state = {"terminated": {"startedAt": begun, "finishedAt": ended}} if ended else {"running": {"startedAt": begun}}
    asks = {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "1"}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "creationTimestamp": created, "ownerReferences": [
            {"kind": "Job", "name": "train", "controller": True}
        ]},
        "spec": {"containers": [{"name": "c", "resources": {"requests": asks}}], "priority": 7, **spec},
        "status": {"phase": "Running", "containerStatuses": [{"name": "c", "state": state}] if begun else []},
    }  # fmt: skip


def test_lists_of_kubernetes(tmp_path: Path) -> None:
    daemon = pod("log", STAMP, STAMP, nodeName="n")
    daemon["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    selected = pod("b", "2026-01-01T00:00:30Z", nodeSelector={"disk": "ssd"})
    node = {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"disk": "ssd"}},
        "spec": {}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2", "pods": "11"}},
    }  # fmt: skip
    odd = pod("odd", STAMP, resourceClaims=[{"name": "x"}])
    items = [node, daemon, pod("a", STAMP, "2026-01-01T00:00:05Z", "2026-01-01T00:01:05Z"), selected, odd]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {}}))
    work = load_trace(path)
    assert work.machines == (Machine("n", {"cpu": 3.5, "mem": 7168, "gpu": 1}, labels={"disk": "ssd"}, slots=10),)
    first, second = work.arrivals
    assert (first.time, *first.durations, second.time, *second.durations) == (0, 60, 30, math.inf)
    assert first.job.id == second.job.id == "team/Job/train" and first.job.user == "team" and first.job.priority == -7
    assert isinstance(work, Trace)
    notes = "\n".join(work.notes)
    assert "pods with spec.resourceClaims, which is not modelled (1)" in notes and "without an end (1)" in notes
    metrics = Simulation(fs.Scheduler(fs.Policy(), resources=work.resources), work).run()
    assert (metrics.tasks["completed"], metrics.tasks["running"]) == (1, 1)
    for change, message in (
        ({"metadata": {}}, "item 0: an object with metadata.name expected"),
        ({"metadata": {"name": "p", "namespace": "s"}, "spec": {"containers": []}}, "Pod s/p: a time is missing"),
        ({"metadata": {"name": "p"}, "spec": {"containers": 3}}, "Pod p: not as the API describes it"),
    ):
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [change]}))
        with pytest.raises(TraceError, match=message):
            load_trace(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("task,arrival,duration,cpu\n\u00e9,0,5,1\n".encode("latin-1"), "line 2, column 1: neither text in UTF-8 nor Parquet"),
        ("task,arrival\n".encode("utf-16"), "line 1, column 1: neither text in UTF-8"),
        (b"", "the file is empty"),
        (b"\xef\xbb\xbf", "the file is empty"),
        (b" \n\n", "the file is empty"),
    ],
)  # fmt: skip
def test_files_that_are_no_text_are_named_so(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=message):
        load_trace(path)


def test_rows_of_another_length_are_skipped_on_request(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("task,arrival,duration,cpu\na,0,5,1\nb,0,5\nc,x,1,1\n")
    with pytest.raises(TraceError, match="line 3: 4 columns expected as in the header, got 3"):
        load_trace(path)
    work = load_trace(path, skip_bad=True)
    assert work.n_tasks == 1 and isinstance(work, Trace)
    assert work.notes[-1].startswith("2 rows are skipped; the first: ") and "line 3: 4 columns" in work.notes[-1]
