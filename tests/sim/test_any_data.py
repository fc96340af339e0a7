"""Tables of other programs: names of columns, dates, time spans and amounts with units, bad rows, tables in memory."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowsched as fs
from flowsched.boundary import units
from flowsched.exceptions import InputError, TraceError
from flowsched.sim import Workload, load_trace

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
