"""The incremental DIMACS stream, against a plain reading of its records and a cold solve by another solver."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from dimacs_model import Plain
from hypothesis import given
from hypothesis import strategies as st

from flowsched.exceptions import CostRangeError, DimacsError, InfeasibleError, UnboundedError
from flowsched.network.dimacs_stream import IncrementalSession

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "flowlessly"
SMALL = ["graph_4m_2crs_6j", "graph_4m_2crs_10j"]
CHANGES = sorted(
    path.name for prefix in SMALL for path in FOLDER.glob(f"{prefix}_*.in") if not path.name.endswith("_incremental.in")
)
needs_graphs = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no Flowlessly graphs in {FOLDER}")

DIAMOND = """\
p min 4 5
c     2
c   /   \\      node 1 sends 4, node 4 takes them; costs 1 1 (above), 2 2 (below), 9 (direct)
c  1 --- 4
c   \\   /
c     3
n 1 4
n 4 -4
a 1 2 0 2 1
a 2 4 0 2 1
a 1 3 0 1 2
a 3 4 0 1 2
a 1 4 0 5 9
c EOI
"""


def answers(text, **options):
    """Run a stream; return each round's lines."""
    writer = io.StringIO()
    lines = text.splitlines() if isinstance(text, str) else text
    rounds = IncrementalSession(lines, writer, certified=True, **options).run()
    split = writer.getvalue().split("c EOI\n")
    assert split.pop() == ""
    assert len(split) == rounds
    return [answer.splitlines() for answer in split]


def costs(text):
    return [int(line[2:]) for answer in answers(text) for line in answer if line.startswith("s ")]


def read(name):
    data = (FOLDER / name).read_bytes()
    return (gzip.decompress(data) if name.endswith(".gz") else data).decode().splitlines()


# -- the protocol ------------------------------------------------------------------------------------------------


def test_answer_has_the_form_of_the_protocol():
    (answer,) = answers(DIAMOND)
    assert sorted(answer[:-3]) == ["f 1 2 2", "f 1 3 1", "f 1 4 1", "f 2 4 2", "f 3 4 1"]
    assert answer[-3] == "s 17"
    assert answer[-2].startswith("c certified")
    assert answer[-1].split()[:3] == ["c", "ALGORITHM", "TIME"]
    assert int(answer[-1].split()[3]) >= 0


def test_an_answer_comes_before_the_next_round_is_sent():
    program = (
        "import sys; from flowsched.network.dimacs_stream import IncrementalSession;"
        "IncrementalSession(sys.stdin.buffer, sys.stdout).run()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as solver:
        found = []
        for lines in (DIAMOND, "x 1 4 0 5 3\nc EOI\n", "c EOI\n"):
            solver.stdin.write(lines)
            solver.stdin.flush()
            found.append([line for line in iter(solver.stdout.readline, "c EOI\n") if line.startswith("s")])
        assert found == [["s 17\n"], ["s 10\n"], ["s 10\n"]]
        assert solver.poll() is None
        solver.stdin.write("c EOS\n")
        solver.stdin.flush()
        assert solver.wait() == 0


def test_stream_ends_with_eos_or_with_the_input():
    more = "x 1 4 0 5 1\n"
    assert costs(DIAMOND + "c EOS\n" + more) == [17]
    assert costs(DIAMOND + more) == [17, 4]  # the end of the input closes a round that has records
    assert costs(DIAMOND + "c nothing follows\n") == [17]
    assert costs("") == []


def test_lines_may_be_bytes():
    assert costs([line.encode() for line in DIAMOND.splitlines()]) == [17]


def test_a_round_may_change_nothing():
    assert costs(DIAMOND + "c EOI\nc EOI\n") == [17, 17, 17]


def test_rounds_after_the_first_are_warm():
    session = IncrementalSession((DIAMOND + "x 1 4 0 5 3\n").splitlines(), io.StringIO())
    session.run()
    assert session.network.solve().stats["warm"]
    assert session.rounds == 2


# -- what records mean -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "cost"),
    [
        ("x 1 4 0 1 5", 13),  # changes
        ("x 1 4 2 5 9", 22),  # a lower bound
        ("x 2 3 0 9 -9", 14),  # adds an arc, for one unit: the arc 3 -> 4 limits it
        ("x 1 3 0 0 2", 22),  # removes one
        ("x 2 1 0 0 2", 17),  # removes one that does not exist
        ("a 1 4 0 1 1", 9),  # a parallel arc
        ("a 1 4 0 1 1\nx 1 4 0 0 0 0 9", 9),  # removes the other one
        ("a 1 4 0 1 1\nx 1 4 0 0 0 0 1", 17),  # removes that one
        ("a 1 4 0 1 1\nx 1 4 0 4 2 0 1", 8),  # changes that one
        ("n 1 3", 8),  # the sink takes one less
        ("n 1 5\nn 4 -5", 26),  # or what it is told to take
        ("n 4 -5\nn 1 5", 26),
        ("r 2", 31),
        ("r 2\na 1 2 0 2 1", 31),  # back again, without its old arcs
        ("r 2\nn 2 1\na 2 4 0 1 0", 31),
        ("d 1 0 1\na 0 4 0 1 7", 24),
        ("d 1 1\na 0 4 0 1 7", 24),  # as older streams say it
        ("d 1 0 2 1\nc its arcs\na 0 2 0 1 0\na 2 0 0 1 0", 25),
        ("r 3\nd 1 0 1\na 0 4 0 1 7\nx 3 4 0 1 5", 27),  # it gets the number 3
        ("n 9 1 1\na 9 4 0 1 3", 20),  # a new number
    ],
)
def test_meaning_of_records(records, cost):
    plain = Plain()
    plain.play(DIAMOND.splitlines())
    plain.play(records.splitlines())
    answer = answers(DIAMOND + records)[-1]
    assert f"s {cost}" in answer
    plain.check(answer)


def test_sink_is_the_node_of_its_type_rather_than_the_only_one_of_negative_supply():
    text = "p min 3 2\nn 1 1 1\nn 2 -1 0\nn 3 0 3\na 1 2 0 1 1\na 1 3 0 9 2\nc EOI\nn 1 3\n"
    assert costs(text) == [1, 5]
    assert costs(text.replace("n 3 0 3", "n 3 0").replace("0 1 1", "0 9 1")) == [1, 3]


def test_assignments():
    # tasks 1 2 3 -> aggregator 4 -> units 5 6 -> sink 7; task 3 would rather wait at 8
    text = """\
p min 8 9
n 1 1 1
n 2 1 1
n 3 1 1
n 4 0 0
n 5 0 2
n 6 0 2
n 7 -3 3
a 1 4 0 1 1
a 2 5 0 1 1
a 3 4 0 1 9
a 4 5 0 1 0
a 4 6 0 1 1
a 5 7 0 1 0
a 6 7 0 1 0
a 3 8 0 1 5
a 8 7 0 1 0
c EOI
r 6
x 8 7 0 2 0
x 2 8 0 1 2
c EOI
x 5 7 0 2 0 0 0
"""
    found = [[line for line in answer if not line.startswith("c")] for answer in answers(text, assignments=True)]
    assert found == [["m 1 6", "m 2 5"], ["m 1 5"], ["m 1 5", "m 2 5"]]


def test_assignments_follow_every_unit_of_a_task():
    text = "p min 4 4\nn 1 3 1\nn 2 0 2\nn 3 0 2\nn 4 -3 3\na 1 2 0 1 0\na 1 3 0 5 1\na 2 4 0 1 0\na 3 4 0 9 0\n"
    (answer,) = answers(text, assignments=True)
    assert sorted(line for line in answer if line.startswith("m")) == ["m 1 2", "m 1 3", "m 1 3"]


# -- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "line", "message"),
    [
        ("y 1 2", 15, "unknown record 'y', expected c, p, n, a, x, d or r"),
        ("p min 4 5", 15, "a second problem line"),
        ("c fine\n\nx 1 4", 17, "expected x TAIL HEAD LOWER CAPACITY COST"),
        ("x 1 4 0 5 9 0 1 1", 15, "expected x"),
        ("r", 15, "expected r NODE"),
        ("x 1 4 0 5 9.5", 15, "cost '9.5' is not an integer"),
        ("x 1 4 0 5 1_0", 15, "cost '1_0' is not an integer"),
        ("x 1 4 0 9223372036854775808 1", 15, "capacity 9223372036854775808 does not fit in 64 bits"),
        ("x 1 5 0 5 9", 15, "head 5 is not one of the nodes 1 to 4"),
        ("a 0 4 0 5 9", 15, "tail 0 is not one of the nodes"),
        ("a 1 4 0 -1 9", 15, "capacity -1 is negative"),
        ("a 1 4 -1 1 9", 15, "lower bound -1 is negative"),
        ("x 1 4 6 5 9", 15, "lower bound 6 above capacity 5"),
        ("n 0 1", 15, "node 0 is not one of the numbers"),
        ("n 3 0 6", 15, "type 6 of a node is not one of 0 to 5"),
        ("r 3\nr 3", 16, "node 3 does not exist"),
        ("r 5", 15, "node 5 does not exist"),
        ("a 1 4 0 5 1\nx 1 4 0 5 2", 16, "2 parallel arcs 1 4: OLD_COST must tell which"),
        ("a 1 4 0 5 1\nx 1 4 0 5 2 0 7", 16, "none of the parallel arcs 1 4 costs 7"),
        ("d 1 0 1\na 1 4 0 5 1", 16, "one end, and only one, must be 0"),
        ("d 1 0 1\na 0 0 0 5 1", 16, "one end, and only one, must be 0"),
        ("d 1 0 2\na 0 4 0 5 1\nn 1 4", 17, "'n' record where 1 more arcs of a new node are due"),
        ("d 1 0 2\na 0 4 0 5 1\nc EOI", 17, "the round ends where 1 more arcs of a new node are due"),
        ("d 1 0 -2", 15, "a negative number of arcs: -2"),
    ],
)
def test_malformed_records_name_their_line(records, line, message):
    with pytest.raises(DimacsError, match=f"^line {line}: ") as caught:
        answers(DIAMOND + records)
    assert message in str(caught.value)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("c EOI", 1, "no problem line"),
        ("n 1 1", 1, "'n' record before the problem line"),
        ("p max 1 1", 1, "problem type 'max', expected min"),
        ("p min 2 2\na 1 2 0 1 1\nc EOI", 3, "the round ends after 1 of 2 arcs"),
        ("p min 2 1\na 1 2 0 1 1\na 1 2 0 1 1", 3, "more arcs than the 1 of the problem line"),
    ],
)
def test_malformed_first_rounds(text, line, message):
    with pytest.raises(DimacsError, match=f"^line {line}: ") as caught:
        answers(text)
    assert message in str(caught.value)


def test_assignments_need_types():
    with pytest.raises(DimacsError, match="line 14: assignments need the nodes' types"):
        answers(DIAMOND, assignments=True)


def test_infeasible_round_names_nodes_of_the_stream():
    with pytest.raises(
        InfeasibleError, match=r"^round 2: no flow meets the supplies: nodes 1 .*7 must send 1 more"
    ) as caught:
        answers(DIAMOND + "x 1 4 0 0 9\nn 7 0\na 1 7 0 9 0\n")
    assert caught.value.cut[[0, 6]].all()  # node 7 can only keep what comes
    assert not caught.value.cut[[3, 4, 5]].any()  # nodes 5 and 6 do not exist
    with pytest.raises(InfeasibleError, match="^round 1: the supplies sum to 1, not to 0"):
        answers(DIAMOND.replace("n 1 4", "n 1 5"))


def test_other_failures_name_the_round():
    unlimited = 2**62
    with pytest.raises(UnboundedError, match=r"^round 2: the cycle (1 -> 2|2 -> 1) of unlimited capacity"):
        answers(DIAMOND + f"x 1 2 0 {unlimited} 1\na 2 1 0 {unlimited} -2\n")
    with pytest.raises(CostRangeError, match=r"^round 2: "):
        answers(DIAMOND + f"x 1 2 0 1 {2**60}\n")


# -- against another solver --------------------------------------------------------------------------------------


@needs_graphs
@pytest.mark.parametrize("algorithm", ["auto", "cost_scaling"])
@pytest.mark.parametrize("name", CHANGES)
def test_flowlessly_changes(name, algorithm):
    graph = next(prefix for prefix in SMALL if name.startswith(prefix + "_"))
    plain = Plain()
    text = [*read(f"{graph}.in"), "c EOI", *read(name), "c EOI"]
    found = answers(text, algorithm=algorithm)
    for lines, answer in zip((read(f"{graph}.in"), read(name)), found, strict=True):
        plain.play(lines)
        plain.check(answer)


@needs_graphs
def test_all_flowlessly_changes_in_a_row():
    for graph in SMALL:
        plain = Plain()
        rounds = [read(f"{graph}.in")]
        for name in CHANGES:
            if name.startswith(graph + "_") and "_rem_machine" not in name:
                rounds += [read(name)]
        if graph == SMALL[1]:  # its numbers of nodes are those of this graph
            rounds[1:1] = [read("changes.in")]
        taken = []
        for lines in rounds:
            gone = {int(line.split()[1]) for line in taken if line.startswith("r ")}
            taken += [line for line in lines if not (line.startswith("r ") and int(line.split()[1]) in gone)] + [
                "c EOI"
            ]
        found = answers(taken)
        assert len(found) == len(rounds)
        start = 0
        for answer in found:
            end = taken.index("c EOI", start)
            plain.play(taken[start:end])
            plain.check(answer)
            start = end + 1


@needs_graphs
@pytest.mark.parametrize("name", SMALL)
def test_flowlessly_incremental_lists(name):
    plain, text = Plain(), []
    for path in read(f"{name}_incremental.in"):
        lines = read(Path(path).name)
        plain.play(lines)
        text += [*lines, "c EOI"]
    plain.check(answers(text)[-1])


@pytest.mark.long
@needs_graphs
def test_large_graph_with_tasks_that_come_and_go():
    lines = read("graph_100m_8j_100t_10p.in.gz")
    tasks = [line.split()[1] for line in lines if line.startswith("n ") and line.split()[2] == "1"]
    plain = Plain()
    rounds = [lines]
    rng = np.random.default_rng(1)
    for _ in range(4):
        gone = [tasks.pop(i) for i in sorted(rng.choice(len(tasks), 10, replace=False))[::-1]]
        records = [f"r {task}" for task in gone]
        for task in gone[:6]:  # comes back under the same number, with its old arcs at new costs
            records.append(f"n {task} 1 1")
            records += [
                f"a {task} {line.split()[2]} 0 1 {rng.integers(0, 300)} 0"
                for line in lines
                if line.startswith(f"a {task} ")
            ]
            tasks.append(task)
        rounds.append(records)
    text = [line for records in rounds for line in [*records, "c EOI"]]
    for records, answer in zip(rounds, answers(text), strict=True):
        plain.play(records)
        plain.check(answer)


@st.composite
def streams(draw):
    """A stream whose rounds all have a flow: each node of a chain 1 -> 2 -> ... can send to the sink 1 at a price."""
    number = st.integers(2, 9)
    value = st.integers(0, 5)
    cost = st.integers(-9, 9)
    nodes = draw(st.integers(2, 6))
    lines = [f"p min {nodes} {nodes - 1}", "n 1 0 3"]
    lines += [f"a {node} 1 0 1000 100" for node in range(2, nodes + 1)]
    alive = set(range(2, nodes + 1))
    rounds = [lines]
    for _ in range(draw(st.integers(1, 5))):
        lines = []
        for _ in range(draw(st.integers(0, 8))):
            kind = draw(st.sampled_from("naxrd"))
            node = draw(st.sampled_from(sorted(alive))) if alive else 0
            if kind == "n":
                new = draw(number)
                lines.append(f"n {new} {draw(value)}")
                if new not in alive:
                    alive.add(new)
                    lines.append(f"a {new} 1 0 1000 100 0")
            elif kind == "d":
                new = min(set(range(2, 20)) - alive)
                alive.add(new)
                lines += [f"d {draw(value)} 0 2 1", "a 0 1 0 1000 100", f"a {node or 1} 0 0 {draw(value)} {draw(cost)}"]
            elif kind == "r" and node:
                alive.remove(node)
                lines.append(f"r {node}")
            elif kind in "ax" and node:
                head = draw(st.sampled_from(sorted(alive | {1})))
                if head != 1:
                    lines.append(f"x {node} {head} 0 {draw(value)} {draw(cost)}")
        rounds.append(lines)
    return rounds


@given(streams())
def test_random_streams(rounds):
    plain = Plain()
    text = [line for records in rounds for line in [*records, "c EOI"]]
    for records, answer in zip(rounds, answers(text), strict=True):
        plain.play(records)
        plain.check(answer)


@needs_graphs
def test_a_round_that_runs_out_of_time_tells_its_gap():
    (answer,) = answers(["c"] + read("graph_1000m_32j_100t_10p.in.gz"), time_limit=1e-6)
    (gap,) = [int(line.split()[2]) for line in answer if line.startswith("c GAP ")]
    (cost,) = [int(line[2:]) for line in answer if line.startswith("s ")]
    (optimum,) = costs(read("graph_1000m_32j_100t_10p.in.gz"))
    assert optimum <= cost <= optimum + gap
    assert not any(line.startswith("c certified") for line in answer)
