"""Files from strangers: DIMACS problems and streams, traces; mutated, truncated, too large.

Whatever is in them, they give flowsched's own errors, which name the line, or problems whose optima are proven; and memory
stays in proportion to what is in the file.
"""

from __future__ import annotations

import gzip
import io
import random
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from effort import effort

import flowsched as fs
from flowsched import cli
from flowsched.network.dimacs_stream import IncrementalSession
from flowsched.sim import Simulation, Trace, load_trace

MIB = 2**20

TOKENS = [
    "0", "-1", "1", "2", "3", "x", "c", "p", "n", "a", "r", "d", "min", "max", "EOI", "EOS", "1e3", "1.5", "nan", "inf", "0x10", "1_000", "+1",
    "-0", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "4611686018427387904", "4611686018427387903",
    "2147483647", "2147483648", "50000000", "1" + "0" * 400, "9" * 5000, "\u0661", "é", "\x00", "\ud83d\ude00", "", " ", "\t", "\r", "\n", "\n\n",
]  # fmt: skip


def mutated(text: str, rng: random.Random) -> bytes:
    """The text with some things changed that a writer, a disk or an enemy might change."""
    raw = text.encode()
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3, 8])):
        kind = rng.randrange(8)
        lines = raw.split(b"\n")
        at = rng.randrange(len(lines))
        token = rng.choice(TOKENS).encode("utf-8", "surrogatepass")
        if kind == 0 and raw:  # a byte
            i = rng.randrange(len(raw))
            raw = raw[:i] + bytes([rng.randrange(256)]) + raw[i + 1 :]
        elif kind == 1:  # a token of a line
            for separator in (b",", b" "):
                if separator in lines[at]:
                    fields = lines[at].split(separator)
                    fields[rng.randrange(len(fields))] = token
                    lines[at] = separator.join(fields)
                    break
            raw = b"\n".join(lines)
        elif kind == 2:  # a token more
            lines[at] += b" " + token
            raw = b"\n".join(lines)
        elif kind == 3:  # a line twice, or elsewhere
            lines.insert(rng.randrange(len(lines)), lines[at])
            raw = b"\n".join(lines)
        elif kind == 4:  # a line less
            del lines[at]
            raw = b"\n".join(lines)
        elif kind == 5:  # the end missing
            raw = raw[: rng.randrange(len(raw) + 1)]
        elif kind == 6:  # two lines in one
            raw = raw.replace(b"\n", rng.choice([b" ", b"\r", b"\r\n", b"\x0b"]), 1)
        else:
            i = rng.randrange(len(raw) + 1)
            raw = raw[:i] + token + raw[i:]
    if rng.random() < 0.2:
        packed = bytearray(gzip.compress(raw, 1))
        for _ in range(rng.choice([0, 0, 1, 2])):
            packed[rng.randrange(len(packed))] ^= 1 << rng.randrange(8)
        raw = bytes(packed[: rng.randrange(len(packed)) if rng.random() < 0.2 else len(packed)])
    return raw


def drawn(rng: random.Random) -> list[str]:
    """A feasible problem, as lines."""
    n = rng.randrange(2, 9)
    ends = [(rng.randrange(1, n + 1), rng.randrange(1, n + 1)) for _ in range(rng.randrange(3 * n))]
    arcs = [(t, h, 0, rng.randrange(9), rng.randrange(-9, 99)) for t, h in ends]
    arcs += [(i, i % n + 1, rng.randrange(2), rng.choice([100, 2**40]), rng.randrange(50)) for i in range(1, n + 1)]
    rng.shuffle(arcs)
    supply = rng.randrange(5)
    lines = [f"p min {n} {len(arcs)}", f"n 1 {supply}", f"n {n} {-supply}", "c a remark"]
    return lines + ["a " + " ".join(map(str, arc)) for arc in arcs]


def own(error: BaseException) -> None:
    """An error that is ours, and short."""
    assert isinstance(error, fs.FlowschedError), repr(error)
    assert len(str(error)) < 1000 and str(error).isprintable(), str(error)[:300]


@pytest.mark.parametrize("seed", range(effort(5, 200)))
def test_a_mutated_problem_is_refused_with_its_line_or_solved_to_a_proven_optimum(seed: int) -> None:
    rng = random.Random(seed)
    solved = 0
    for _ in range(100):
        data = mutated("\n".join(drawn(rng)) + "\n", rng)
        try:
            problem = fs.read_dimacs(io.BytesIO(data), limit=MIB)
        except fs.DimacsError as error:
            own(error)
            assert str(error).startswith(f"line {error.line}:") and error.line >= 1
            continue
        if len(problem.supply) > 10_000:
            continue
        try:
            result = fs.min_cost_flow(**problem.arguments())
        except (fs.InfeasibleError, fs.UnboundedError, fs.CostRangeError) as error:
            own(error)
            continue
        fs.certify(
            problem.tail, problem.head, problem.capacity, problem.cost, problem.supply, result, lower=problem.lower
        )
        solved += 1
        again = io.StringIO()
        fs.write_dimacs(problem, again)
        same = fs.read_dimacs(io.StringIO(again.getvalue()))
        assert all(
            np.array_equal(a, b) for a, b in zip(problem.arguments().values(), same.arguments().values(), strict=True)
        )
    assert solved >= 5


def rounds(rng: random.Random) -> list[str]:
    """A problem and some rounds of changes to it."""
    lines = [*drawn(rng), "c EOI"]
    n = int(lines[0].split()[2])
    for _ in range(rng.randrange(4)):
        for _ in range(rng.randrange(4)):
            a, b = rng.randrange(1, n + 3), rng.randrange(1, n + 3)
            lines.append(
                rng.choice(
                    [
                        f"x {a} {b} 0 {rng.randrange(9)} {rng.randrange(9)}", f"r {a}", f"n {a} {rng.randrange(-2, 3)}",
                        f"d {rng.randrange(2)} 0 1\na 0 {b} 0 9 3", f"a {a} {b} 0 5 1", f"n {a} 0 {rng.randrange(6)}",
                    ]
                )
            )  # fmt: skip
        lines.append("c EOI")
    return lines


@pytest.mark.parametrize("seed", range(effort(5, 200)))
def test_a_mutated_stream_is_refused_with_its_line_or_answered_with_proven_optima(seed: int) -> None:
    rng = random.Random(1000 + seed)
    answered = 0
    for _ in range(100):
        data = mutated("\n".join(rounds(rng)) + "\n", rng)
        reader = io.BytesIO(data) if rng.random() < 0.7 else data.split(b"\n")
        session = IncrementalSession(reader, io.StringIO(), certified=True, assignments=rng.random() < 0.1)
        try:
            session.run()
        except fs.FlowschedError as error:
            own(error)
            if isinstance(error, fs.DimacsError):
                assert error.line >= 1 and str(error).startswith(f"line {error.line}:")
        answered += session.rounds
    assert answered > 20


# -- sizes ---------------------------------------------------------------------------------------------------------------


@contextmanager
def peak(most: float) -> Iterator[None]:
    """Within, no more than so many MiB are taken."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most * MIB
    finally:
        tracemalloc.stop()


def test_a_header_alone_takes_no_memory() -> None:
    for header in (
        "p min 50000000 0",
        "p min 2147483647 0",
        "p min 2000000 0\nn 1 1\n",
        "p min 50000000 3\na 1 2 0 1 1",
    ):
        with peak(40), pytest.raises(fs.DimacsError, match=r"line 1: \d+ nodes are more than a file of this size"):
            fs.read_dimacs(io.StringIO(header))
    with peak(40):
        assert len(fs.read_dimacs(io.StringIO("p min 1000000 0")).supply) == 1_000_000
    with peak(40), pytest.raises(fs.DimacsError, match="the file ends after 0 of"):
        fs.read_dimacs(io.StringIO("p min 3 4000000000000"))
    result = CliRunner().invoke(cli.application(), ["solve", "-"], input="p min 50000000 0\n")
    assert result.exit_code == 1 and "more than a file of this size" in result.stderr


def test_a_problem_with_more_nodes_than_could_be_read_back_is_not_written() -> None:
    problem = fs.FlowProblem([0], [1], [1], [1], np.zeros(2_000_000, np.int64))
    with pytest.raises(fs.InputError, match="supply: 2000000 nodes"):
        fs.write_dimacs(problem, io.StringIO())


def test_a_stream_takes_memory_for_the_nodes_that_it_names() -> None:
    text = "p min 2000000000 1\nn 1 5\nn 1999999999 -5\na 1 1999999999 0 9 2\nc EOI\n"
    text += "r 77777777\nx 1999999998 77777777 0 4 1\nn 1500000000 2\nx 1500000000 1999999999 0 9 1\nn 1999999999 -7\nc EOI\n"
    text += "d 0 1\na 0 1 0 1 1\nr 1500000000\nn 1999999999 -5\nc EOI\nr 77777777\nc EOI\n"
    answers = io.StringIO()
    with peak(60):
        session = IncrementalSession(io.StringIO(text), answers, certified=True)
        assert session.run() == 4
    costs = [line for line in answers.getvalue().splitlines() if line.startswith("s ")]
    assert costs == ["s 10", "s 12", "s 10", "s 10"]
    # 77777777 was removed, came back, and was removed again.  The lowest free number was given to the new node meanwhile.
    with pytest.raises(fs.DimacsError, match="does not exist"):
        IncrementalSession(io.StringIO("p min 200000 0\nc EOI\nr 100000\nr 100000\n"), io.StringIO()).run()


@pytest.mark.parametrize("seed", range(effort(3, 60)))
def test_latent_nodes_are_nodes_like_others(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same stream gives the same costs whether nodes are added at once or when they are named."""
    rng = random.Random(seed)
    texts = ["\n".join(rounds(rng)) + "\n" for _ in range(30)]
    outcomes = []
    for at_once, block in ((2**16, 16), (0, 1), (2, 2)):
        monkeypatch.setattr("flowsched.network.dimacs_stream._AT_ONCE", at_once)
        monkeypatch.setattr("flowsched.network.dimacs_stream._BLOCK", block)
        outcomes.append([])
        for text in texts:
            answers, end = io.StringIO(), ""
            try:
                IncrementalSession(io.StringIO(text), answers, certified=True).run()
            except fs.FlowschedError as error:
                end = type(error).__name__ + (str(error) if isinstance(error, fs.DimacsError) else "")
            costs = [line for line in answers.getvalue().splitlines() if line.startswith("s ")]
            outcomes[-1].append((costs, end))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_archives_that_unpack_to_more_than_the_limit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.min.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(b"p min 2 1\n")
        for _ in range(64):
            file.write(bytes(MIB))
    assert path.stat().st_size < MIB
    with peak(40), pytest.raises(fs.DimacsError, match=r"line 2: the file is larger than the limit of 8388608 bytes"):
        fs.read_dimacs(path, limit=8 * MIB)
    result = CliRunner().invoke(cli.application(), ["solve", str(path), "--max-bytes", "1000000"])
    assert result.exit_code == 1 and "larger than the limit" in result.stderr
    with pytest.raises(fs.DimacsError, match="larger than the limit"):
        fs.read_dimacs("/dev/zero", limit=MIB)
    lines = tmp_path / "lines.min.gz"
    lines.write_bytes(gzip.compress(b"p min 2 1\n" + b"\n" * (8 * MIB), 1))
    with peak(80), pytest.raises(fs.DimacsError, match="most of them are empty"):
        fs.read_dimacs(lines)
    for limit in (0, -1, True, 1.5, "1"):
        with pytest.raises(fs.InputError, match="limit"):
            fs.read_dimacs(path, limit=limit)  # type: ignore[arg-type]
    exact = b"p min 2 1\na 1 2 0 1 1\n"
    assert len(fs.read_dimacs(io.BytesIO(exact), limit=len(exact)).tail) == 1
    with pytest.raises(fs.DimacsError, match="larger"):
        fs.read_dimacs(io.BytesIO(exact), limit=len(exact) - 1)


def test_a_line_without_an_end_is_not_read_to_its_end() -> None:
    with open("/dev/zero", "rb") as zeros, peak(40), pytest.raises(fs.DimacsError, match="line 1: the line is longer"):
        IncrementalSession(zeros, io.StringIO()).run()


# -- traces --------------------------------------------------------------------------------------------------------------

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,262144,0,\nn1,64000,1000,2,P100\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "p0,12000,10,1,1000,,LS,Running,0,100,10\n"
    "p1,6000,10,1,460,T4,BE,Running,5,50,5\n"
    "p2,500,10,0,0,,Burstable,Pending,20,25,\n"
    "p3,500,10,8,1000,,Guaranteed,Running,30,31,30\n"
)
MACHINES = "0,1,0,x,0.5,0.25\n0,2,0,x,1,1\n5000000,2,1,,,\n9000000,2,0,x,1,1\n9500000,1,2,x,0.75,0.5\n"
EVENTS = (
    "0,,7,0,,0,a,3,9,0.1,0.01,0,0\n0,,7,1,,0,a,3,9,0.1,0.01,0,1\n1000000,,7,0,1,1,a,3,9,,,,\n"
    "2000000,,7,1,2,1,a,3,9,,,,\n3000000,,7,0,1,4,a,3,9,,,,\n4000000,,7,1,2,5,a,3,9,,,,\n"
)

FILES = {
    "openb": {"openb_node_list_all_node.csv": NODES, "openb_pod_list_default.csv": PODS},
    "google": {"machine_events.csv": MACHINES, "task_events.csv": EVENTS},
}


def written(folder: Path, kind: str, rng: random.Random) -> Path:
    folder.mkdir()
    for name, text in FILES[kind].items():
        data = mutated(text, rng) if rng.random() < 0.7 else text.encode()
        if data[:2] == b"\x1f\x8b" or rng.random() < 0.2:
            name += ".gz"
            data = data if data[:2] == b"\x1f\x8b" else gzip.compress(data, 1)
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("seed", range(effort(2, 60)))
@pytest.mark.parametrize("kind", list(FILES))
def test_a_mutated_trace_is_refused_with_its_place_or_can_be_simulated(kind: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"{kind}{seed}")
    read = 0
    for i in range(50):
        folder = written(tmp_path / str(i), kind, rng)
        try:
            trace = load_trace(folder, limit=MIB)
        except fs.TraceError as error:
            own(error)
            assert str(folder) in str(error)
            continue
        read += 1
        assert isinstance(trace, Trace)
        if rng.random() < 0.2:
            try:
                metrics = Simulation(fs.Scheduler(resources=trace.resources), trace.head(3)).run(1e5)
                assert sum(metrics.account().values()) == min(3, trace.n_tasks)
            except fs.InputError as error:
                own(error)
    assert read


@pytest.mark.parametrize(
    ("kind", "file", "old", "new", "column"),
    [
        ("openb", "openb_pod_list_default.csv", "12000", "1" + "0" * 400, "cpu_milli"),
        ("openb", "openb_pod_list_default.csv", "p0,12000,10", "p0,12000,1" + "0" * 400, "memory_mib"),
        ("openb", "openb_pod_list_default.csv", ",100,10\n", ",1" + "0" * 400 + ",10\n", "deletion_time"),
        ("openb", "openb_pod_list_default.csv", ",100,10\n", ",1e300,10\n", "deletion_time"),
        ("openb", "openb_pod_list_default.csv", "10,8,1000", "10,999999999,1000", "num_gpu"),
        ("openb", "openb_node_list_all_node.csv", "1000,2,", "1000,2000000000,", "gpu"),
        ("openb", "openb_node_list_all_node.csv", "64000", "9" * 400, "cpu_milli"),
        ("google", "machine_events.csv", "5000000", "9" * 400, "time"),
        ("google", "machine_events.csv", "0.5,", "1e308,", "cpu"),
        ("google", "task_events.csv", "0,,7,0", "9" * 400 + ",,7,0", "time"),
        ("google", "task_events.csv", ",,7,1,,0,", ",,7," + "9" * 400 + ",,0,", "index"),
        ("google", "task_events.csv", "0.01", "9" * 5000, "memory"),
    ],
)  # fmt: skip
def test_a_number_of_400_digits_is_named_with_file_line_and_column(
    kind: str, file: str, old: str, new: str, column: str, tmp_path: Path
) -> None:
    for name, text in FILES[kind].items():
        (tmp_path / name).write_text(text.replace(old, new, 1) if name == file else text)
    with pytest.raises(fs.TraceError, match=rf"{file}, line \d+, column '{column}'") as caught:
        load_trace(tmp_path)
    own(caught.value)
    result = CliRunner().invoke(cli.application(), ["simulate", "--trace", str(tmp_path)])
    assert result.exit_code == 2 and column in result.stderr and len(result.stderr) < 1000


def test_a_machine_that_occurs_twice_is_named(tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_all_node.csv").write_text(NODES + "n1,64000,1000,2,P100\n")
    (tmp_path / "openb_pod_list_default.csv").write_text(PODS)
    with pytest.raises(fs.TraceError, match=r"line 4, column 'sn': machine 'n1' occurs twice"):
        load_trace(tmp_path)


def test_traces_are_read_no_further_than_allowed(tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_all_node.csv").write_text(NODES)
    pods = tmp_path / "openb_pod_list_default.csv.gz"
    for filling, words in (
        (b"\n" * 2 * MIB, "most lines of the file are empty"),
        (b"x" * MIB * 16, "line 6: the line is longer"),
        ((b"," * 1000 + b"\n") * 20_000, "larger than the limit of 8388608 characters"),
    ):
        pods.write_bytes(gzip.compress(PODS.encode() + filling, 1))
        with pytest.raises(fs.TraceError, match=words):
            load_trace(tmp_path, limit=8 * MIB)
    with peak(20), pytest.raises(fs.TraceError, match="larger than the limit of 100 characters"):
        load_trace(tmp_path, limit=100)
    for limit in (0, -1, 1.5, True, "1"):
        with pytest.raises(fs.InputError, match="limit"):
            load_trace(tmp_path, limit=limit)  # type: ignore[arg-type]
