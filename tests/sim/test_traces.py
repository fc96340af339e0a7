"""Traces: what is read, and what is said about a file that cannot be."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from flowsched.cluster.events import MachineAdded, MachineFailed, MachineUpdated
from flowsched.exceptions import InputError, TraceError
from flowsched.sim import Trace, load_trace

DATA = Path(__file__).parents[3] / "shared" / "data"

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,262144,0,\nn1,64000,1000,2,P100\n"
PODS_HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)
PODS = (
    PODS_HEADER
    + "p0,12000,16384,1,1000,,LS,Running,0,100,10\n"
    + "p1,6000,12288,1,460,P100|T4,BE,Running,5,50,5\n"
    + "p2,500,10,0,0,,Burstable,Pending,20,25,\n"
    + "p3,500,10,8,1000,,Guaranteed,Running,30,31,30\n"
)


def openb(directory: Path, pods: str = PODS, nodes: str = NODES, variant: str = "default") -> Path:
    (directory / "openb_node_list_all_node.csv").write_text(nodes)
    (directory / f"openb_pod_list_{variant}.csv").write_text(pods)
    return directory


def google(directory: Path, machines: str, tasks: str) -> Path:
    (directory / "machine_events.csv").write_text(machines)
    (directory / "task_events.csv").write_text(tasks)
    return directory


def test_openb_machines(tmp_path: Path) -> None:
    trace = load_trace(openb(tmp_path))
    assert [m.id for m in trace.machines] == ["n0", "n1"]
    assert trace.machines[1].capacity == {"cpu": 64, "mem": 1000, "gpu": 2}
    assert [dict(m.labels) for m in trace.machines] == [{}, {"gpu_model": "P100"}]


def test_openb_pods(tmp_path: Path) -> None:
    trace = load_trace(openb(tmp_path))
    assert isinstance(trace, Trace)
    tasks = [a.job.tasks[0] for a in trace.arrivals]
    assert [t.id for t in tasks] == ["p0", "p1", "p2", "p3"]
    assert [t.demand["gpu"] for t in tasks] == [1, 0.46, 0, 8]  # type: ignore[call-overload]
    assert tasks[0].demand == {"cpu": 12, "mem": 16384, "gpu": 1}
    assert dict(tasks[1].constraints) == {"gpu_model": ("P100", "T4")}
    assert [a.job.priority for a in trace.arrivals] == [0, 2, 1, 0]
    assert [a.time for a in trace.arrivals] == [0, 5, 20, 30]
    assert [a.durations[0] for a in trace.arrivals] == [90, 45, 5, 1]
    assert any("1 pods were never scheduled" in note for note in trace.notes)


def test_openb_variants_and_single_files(tmp_path: Path) -> None:
    openb(tmp_path)
    openb(tmp_path, PODS_HEADER + "q,1,1,0,0,,LS,Running,0,1,0\n", variant="other")
    assert load_trace(tmp_path).n_tasks == 4
    assert load_trace(tmp_path, variant="other").n_tasks == 1
    assert load_trace(tmp_path / "openb_pod_list_other.csv").name == "openb (other)"
    with pytest.raises(TraceError, match="no variant 'nope'; there are: default, other"):
        load_trace(tmp_path, variant="nope")
    with pytest.raises(InputError, match="variant"):
        load_trace(tmp_path / "openb_pod_list_other.csv", variant="default")


def test_openb_priorities_can_be_chosen(tmp_path: Path) -> None:
    priorities = {"LS": 5, "BE": 6, "Burstable": 7, "Guaranteed": 8}
    trace = load_trace(openb(tmp_path), qos_priority=priorities)
    assert [a.job.priority for a in trace.arrivals] == [5, 6, 7, 8]


def test_gzipped_files_and_byte_order_marks(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "openb_pod_list_default.csv.gz", "wt", encoding="utf-8-sig") as file:
        file.write(PODS.replace("\n", "\r\n"))
    (tmp_path / "openb_node_list_all_node.csv").write_text(NODES)
    assert load_trace(tmp_path).n_tasks == 4


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("num_gpu,", "gpus,", r"line 1: no column 'num_gpu'; the columns are name, "),
        ("6000,12288", "many,12288", r"line 3, column 'cpu_milli': a whole number expected, got 'many'"),
        ("6000,12288", "-1,12288", r"line 3, column 'cpu_milli': a whole number >= 0 expected, got '-1'"),
        ("6000,12288", ",12288", r"line 3, column 'cpu_milli': a whole number expected, got ''"),
        ("5,50,5", "nan,50,5", r"line 3, column 'creation_time': a finite number >= 0 expected, got 'nan'"),
        ("LS,Running", "VIP,Running", r"line 2, column 'qos': Guaranteed, LS, Burstable, BE expected, got 'VIP'"),
        ("8,1000,", "8,500,", r"line 5, column 'gpu_milli': a share of one GPU needs num_gpu = 1, got 8 GPUs with 500"),
        ("1,460,", "1,1460,", r"line 3, column 'gpu_milli': at most 1000 expected"),
        ("p1,", "p0,", r"line 3, column 'name': pod 'p0' occurs twice"),
        ("5,50,5\n", "5,50\n", r"line 3: 11 columns expected as in the header, got 10"),
        (PODS, "", r"openb_pod_list_default.csv: the file is empty"),
        (PODS, PODS_HEADER, r"openb_pod_list_default.csv: no pod that ran"),
    ],
)
def test_openb_complaints_say_where(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in PODS
    with pytest.raises(TraceError, match=says) as caught:
        load_trace(openb(tmp_path, PODS.replace(old, new)))
    assert "openb_pod_list_default.csv" in str(caught.value)


def test_openb_needs_its_machines(tmp_path: Path) -> None:
    openb(tmp_path)
    (tmp_path / "openb_node_list_all_node.csv").unlink()
    with pytest.raises(TraceError, match=r"openb_node_list_all_node.csv: no such file"):
        load_trace(tmp_path / "openb_pod_list_default.csv")
    with pytest.raises(TraceError, match=r"openb_node_list_all_node.csv: no such file"):
        load_trace(tmp_path)
    with pytest.raises(TraceError, match="openb_node_list_all_node.csv: a header but no machines"):
        load_trace(openb(tmp_path, nodes=NODES.splitlines()[0]))


def test_what_is_no_file_of_text(tmp_path: Path) -> None:
    openb(tmp_path)
    (tmp_path / "openb_pod_list_default.csv").write_bytes(b"\xff\xfe\x00name")
    with pytest.raises(TraceError, match="not a CSV file"):
        load_trace(tmp_path)
    (tmp_path / "openb_pod_list_default.csv").rename(tmp_path / "openb_pod_list_default.csv.gz")
    with pytest.raises(TraceError, match="gz: "):
        load_trace(tmp_path)


def test_names() -> None:
    assert load_trace("model").name == "model of openb"
    with pytest.raises(TraceError, match="nowhere: no such file or directory"):
        load_trace("nowhere")
    with pytest.raises(InputError, match="variant"):
        load_trace("model", variant="default")


MACHINES = (
    "0,1,0,x,0.5,0.25\n0,2,0,x,1,1\n5000000,1,1,x,,\n6000000,1,0,x,0.5,0.5\n7000000,2,2,x,0.75,\n8000000,3,0,y,1,1\n"
)
TASKS = (
    "0,,7,0,,0,ann,3,9,0.125,0.25,0.1,0\n"
    "0,,7,1,,0,ann,3,9,0.125,0.25,0.1,0\n"
    "1000000,,7,0,1,1,ann,3,9,0.125,0.25,0.1,0\n"
    "2000000,,8,0,,0,bob,0,0,0.5,0.5,0.1,1\n"
    "3000000,,7,0,1,2,ann,3,9,0.125,0.25,0.1,0\n"
    "3000000,,7,0,1,0,ann,3,9,0.125,0.25,0.1,0\n"
    "4000000,,7,0,2,1,ann,3,9,0.125,0.25,0.1,0\n"
    "5000000,,7,2,,0,ann,3,9,0.125,0.25,0.1,0\n"
    "9000000,,7,0,2,4,ann,3,9,0.125,0.25,0.1,0\n"
    "9500000,,8,0,,5,bob,0,0,0.5,0.5,0.1,1\n"
    f"{2**63 - 1},,9,0,,0,bob,0,0,0.5,0.5,0.1,1\n"
)


@pytest.mark.parametrize("header", ["", "time,missing,job\n", "#Time stamp (microseconds),Machine ID\n"])
def test_google_events(tmp_path: Path, header: str) -> None:
    trace = load_trace(google(tmp_path, header + MACHINES, header + TASKS))
    assert isinstance(trace, Trace)
    assert trace.resources == ("cpu", "mem")
    assert [(m.id, dict(m.capacity)) for m in trace.machines] == [  # type: ignore[arg-type]
        ("1", {"cpu": 0.5, "mem": 0.25}),
        ("2", {"cpu": 1, "mem": 1}),
    ]
    assert list(trace.machine_events) == [
        MachineFailed("1", time=5.0),
        MachineAdded("1", {"cpu": 0.5, "mem": 0.5}, labels={"platform": "x"}, time=6.0),
        MachineUpdated("2", {"cpu": 0.75, "mem": 1.0}, time=7.0),
        MachineAdded("3", {"cpu": 1, "mem": 1}, labels={"platform": "y"}, time=8.0),
    ]
    assert [(a.time, a.job.id, [t.id for t in a.job.tasks], a.durations) for a in trace.arrivals] == [
        (0.0, "7", ["7-0", "7-1"], (5.0, 9.5)),  # 7-0: from its second start; 7-1: never ends
        (2.0, "8", ["8-0"], (7.5,)),  # never scheduled: from submission
        (5.0, "7", ["7-2"], (4.5,)),
    ]
    assert [(a.job.user, a.job.priority) for a in trace.arrivals] == [("ann", 2), ("bob", 11), ("ann", 2)]
    assert trace.different_machine == {"8"}
    assert len(trace.notes) == 3


def test_google_parts_in_directories(tmp_path: Path) -> None:
    for table, text in (("machine_events", MACHINES), ("task_events", TASKS)):
        (tmp_path / table).mkdir()
        lines = text.splitlines(keepends=True)
        for i, part in enumerate((lines[:3], lines[3:])):
            with gzip.open(tmp_path / table / f"part-{i:05d}-of-00002.csv.gz", "wt") as file:
                file.writelines(part)
    assert load_trace(tmp_path).n_tasks == 4


@pytest.mark.parametrize(
    ("machines", "tasks", "says"),
    [
        ("0,1,0,x,a,1\n", TASKS, r"machine_events.csv, line 1, column 'cpu': a number expected, got 'a'"),
        ("0,1,7,x,1,1\n", TASKS, r"machine_events.csv, line 1, column 'event': 0 \(ADD\)"),
        (
            "0,1,1,x,1,1\n",
            TASKS,
            r"machine_events.csv, line 1, column 'machine': machine '1' is removed or updated, but",
        ),
        ("0,1\n", TASKS, r"machine_events.csv, line 1: no column 'event'"),
        ("", TASKS, r"machine_events.csv: no machine is ever added"),
        (MACHINES, "0,,7,0,,9\n", r"task_events.csv, line 1, column 'event': 0 to 8 expected, got 9"),
        (MACHINES, "0,,7,0,,0,a,3,12\n", r"task_events.csv, line 1, column 'priority': 0 to 11 expected, got 12"),
        (MACHINES, "0,,7,x,,0\n", r"task_events.csv, line 1, column 'index': a whole number expected, got 'x'"),
        (MACHINES, "0,,7\n", r"task_events.csv, line 1: no column 'index' \(6 columns expected, got 3\)"),
        (MACHINES, "", r"task_events.csv: no task is ever submitted"),
    ],
)
def test_google_complaints_say_where(tmp_path: Path, machines: str, tasks: str, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        load_trace(google(tmp_path, machines, tasks))


def test_google_needs_both_tables(tmp_path: Path) -> None:
    google(tmp_path, MACHINES, TASKS)
    with pytest.raises(InputError, match="variant"):
        load_trace(tmp_path, variant="x")
    (tmp_path / "machine_events.csv").unlink()
    with pytest.raises(TraceError, match=r"no machine_events"):
        load_trace(tmp_path)


@pytest.mark.skipif(not (DATA / "openb").is_dir(), reason="the openb trace is not in ../shared/data")
@pytest.mark.parametrize(("variant", "constrained"), [(None, 0), ("gpuspec33", 2388)])
def test_the_real_openb_trace(variant: str | None, constrained: int) -> None:
    trace = load_trace(DATA / "openb", variant=variant)
    tasks = [a.job.tasks[0] for a in trace.arrivals]
    assert (len(trace.machines), trace.n_tasks) == (1523, 8152)
    assert sum(bool(t.constraints) for t in tasks) == constrained
    assert sum(0 < t.demand["gpu"] < 1 for t in tasks) == 3078  # type: ignore[call-overload]
    assert trace.load()["gpu"].peak == pytest.approx(64.59 / 6212)


@pytest.mark.skipif(not (DATA / "google2011_sample").is_dir(), reason="the Google sample is not in ../shared/data")
def test_the_real_google_sample() -> None:
    trace = load_trace(DATA / "google2011_sample")
    assert (len(trace.machines), len(trace.machine_events), trace.n_tasks) == (4, 4, 10)
    assert {a.job.id for a in trace.arrivals} == {"1", "2", "3", "4"}
