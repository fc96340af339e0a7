"""The plan of jobs: dependencies, holds, throttles and times, compared with a simple oracle."""

from __future__ import annotations

import random

import pytest
from graphs import expected, meant, random_graph, tasks_of, text_of

from flowsched.exceptions import InputError
from flowsched.run.jobs import JobFile, read_jobs
from flowsched.run.plan import CANCELLED, DONE, FAILED, SKIPPED, End, Plan


def jobs_of(text: str) -> JobFile:
    return read_jobs("jobs.toml", "out", content=text.encode())


def planned(text: str, now: float = 0.0) -> Plan:
    plan = Plan()
    plan.add(jobs_of(text).jobs, now)
    return plan


def released(plan: Plan, now: float = 0.0) -> list[str]:
    return [task for part in plan.released(now) for task in part.tasks]


@pytest.mark.parametrize("seed", range(200))
def test_random_graphs_end_as_the_oracle_says_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    graph = random_graph(chance)
    tasks = [task for name in graph for task in tasks_of(graph, name)]
    fails = {task for task in tasks if chance.random() < 0.2}
    oracle, runs = expected(graph, fails)
    needs = {
        task: {other for names in after.values() for pattern in names for other in meant(graph, pattern)}
        for name, (_, after) in graph.items()
        for task in tasks_of(graph, name)
    }
    file = jobs_of(text_of(graph))
    plan, running, ends, starts = Plan(), list[str](), dict[str, str](), list[str]()
    ends.update((task, end.outcome) for task, end in plan.add(file.jobs, 0.0))
    while True:
        for task in released(plan):
            assert needs[task] <= ends.keys() and not running.count(task), (
                "nothing starts before that on which it depends"
            )
            running.append(task)
            starts.append(task)
        if chance.random() < 0.1:  # a kill: the next plan has the ends and nothing else
            plan, running = Plan({task: End(outcome) for task, outcome in ends.items()}), []
            assert plan.add(file.jobs, 0.0) == [], "what follows from an end was recorded with it"
            continue
        if not running:
            break
        task = running.pop(chance.randrange(len(running)))
        for other, end in plan.end(task, End(FAILED if task in fails else DONE)):
            assert other not in ends
            ends[other] = end.outcome
    assert ends == oracle and plan.open == 0
    assert set(starts) == runs


def test_a_throttle_and_holds() -> None:
    plan = planned(
        "[[job]]\nname = 'a'\ncommand = 'x'\narray = '2-8:2,5'\nat_most = 2\n[[job]]\nname = 'b'\ncommand = 'x'\n"
    )
    assert released(plan) == ["a.2", "a.4", "b"]
    assert plan.why("a.6", 0.0)[0] == "AT_MOST"
    assert plan.hold(["a.4", "a.6"]) == ["a.4"]
    plan.withdrawn(["a.4"])
    assert released(plan) == ["a.8"], "the room of the held one goes to the next"
    assert plan.why("a.4", 0.0)[0] == "ON_HOLD"
    plan.end("a.2", End(DONE))
    assert released(plan) == ["a.5"]
    assert plan.release(["a.4", "a.8"]) == 1
    assert released(plan) == []
    plan.end("a.5", End(FAILED, "x"))
    assert released(plan) == ["a.4"]
    assert plan.counts("a") == {DONE: 1, FAILED: 1, CANCELLED: 0, SKIPPED: 0, "released": 2, "waiting": 1}


def test_times() -> None:
    plan = planned("[[job]]\nname = 'a'\ncommand = 'x'\nnot_before = '1m'\ndeadline = 300\n", 1000.0)
    assert released(plan, 1000.0) == [] and plan.due == 1060.0 and plan.overdue(1059.0) == []
    assert plan.why("a", 1000.0)[0] == "NOT_BEFORE"
    assert plan.overdue(1060.0) == [] and released(plan, 1060.0) == ["a"]
    assert plan.due == 1300.0 and plan.overdue(1300.0) == ["a"]


def test_a_priority_is_that_of_the_next_release() -> None:
    plan = planned("[[job]]\nname = 'a'\ncommand = 'x'\ncount = 3\npriority = 7\n")
    assert plan.prioritise(["a.1"], -2) == []
    assert [(part.tasks, part.priority) for part in plan.released(0.0)] == [(["a.1"], -2), (["a.0", "a.2"], 7)]
    assert plan.prioritise(["a.0"], 1) == ["a.0"]
    plan.withdrawn(["a.0"])
    assert [(part.tasks, part.priority) for part in plan.released(0.0)] == [(["a.0"], 1)]


def test_jobs_that_come_later_depend_on_those_that_are_there() -> None:
    plan = planned("[[job]]\nname = 'a'\ncommand = 'x'\ncount = 2\n")
    released(plan)
    plan.end("a.0", End(FAILED, "x"))
    text = "[[job]]\nname = 'b'\ncommand = 'x'\nafter = ['a.1']\n[[job]]\nname = 'c'\ncommand = 'x'\nafter = {failed = ['a']}\n"
    more = read_jobs(
        "more.toml",
        "out",
        content=(text + "[[job]]\nname = 'd'\ncommand = 'x'\nafter = ['a.*']\n").encode(),
        known=plan.names,
    )
    assert plan.add(more.jobs, 0.0) == [("d", End(FAILED, "not run: a.0 failed"))]
    assert plan.end("a.1", End(DONE)) == [("a.1", End(DONE))]
    assert sorted(released(plan)) == ["b", "c"]


def test_a_long_chain_fails_without_recursion() -> None:
    lines = "".join(
        f"[[job]]\nname = 'j{i}'\ncommand = 'x'\nafter = {[f'j{i - 1}'] if i else []}\n" for i in range(3000)
    )
    plan = planned(lines)
    assert released(plan) == ["j0"]
    over = plan.end("j0", End(FAILED, "x"))
    assert len(over) == 3000 and over[2] == ("j2", End(FAILED, "not run: j1 did not run"))


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_a_cancelled_task_counts_as_failed_in_every_form(begun: bool, late: bool) -> None:
    """Before it begins or while it runs; for jobs that were there, and for those submitted later."""
    first = "[[job]]\nname = 'fit'\ncommand = 'x'\ncount = 2\nat_most = 1\n"
    rest = "".join(
        f"[[job]]\nname = '{name}'\ncommand = 'x'\nafter = {after}\n"
        for name, after in (
            ("ok", "['fit']"), ("any", "{any = ['fit']}"), ("failed", "{failed = ['fit']}"), ("next", "{ok = ['ok']}"),
            ("mended", "{failed = ['ok']}"), ("other", "['fit.0']"),
        )
    )  # fmt: skip
    plan = planned(first if late else first + rest)
    over = dict[str, End]()
    started = released(plan)
    if begun:
        over |= plan.end("fit.0", End(DONE))
        started += released(plan)
    over |= plan.end("fit.1", End(CANCELLED, "an operator cancelled it"))
    if not begun:
        over |= plan.end("fit.0", End(DONE))
    if late:
        file = read_jobs("jobs.toml", "out", content=(first + rest).encode())
        over |= plan.add(file.jobs[1:], 0.0)
    started += released(plan)
    assert over.pop("fit.0").outcome == DONE and over.pop("fit.1").outcome == CANCELLED
    assert over == {"ok": End(FAILED, "not run: fit.1 was cancelled"), "next": End(FAILED, "not run: ok did not run")}
    ran = ["fit.0", "fit.1"] if begun else ["fit.0"]
    assert sorted(started) == sorted([*ran, "any", "failed", "mended", "other"])


MISTAKES = [
    ("[[job]]\nname = 'a'\ncommand = 'x'\nafter = ['b']", "line 4, column 1: job 'a': after: no job or task is named 'b'"),
    ("[[job]]\nname = 'prep'\ncommand = 'x'\n[[job]]\nname = 'a'\ncommand = 'x'\nafter = {ok = ['prpe']}", "line 7, column 1: job 'a': after: no job or task is named 'prpe'; did you mean 'prep'?"),
    ("[[job]]\nname = 'a'\ncommand = 'x'\nafter = {when = ['b']}", "line 4, column 1: job 'a': after: unknown form 'when'; known: ok, any, failed"),
    ("[[job]]\nname = 'a'\ncommand = 'x'\nafter = 'b'", "line 4, column 1: job 'a': after: names of jobs or tasks"),
    ("[[job]]\nname = 'a'\ncommand = 'x'\nafter = ['a']", "line 4, column 1: job 'a': after: a cycle: a -> a"),
    ("[[job]]\nname = 'a'\ncommand = 'x'\nafter = ['c.1']\n[[job]]\nname = 'b'\ncommand = 'x'\nafter = ['a']\n[[job]]\nname = 'c'\ncount = 2\ncommand = 'x'\nafter = {any = ['b']}", "line 4, column 1: job 'a': after: a cycle: a -> c -> b -> a"),
    ("[[job]]\nname = 'a'\ncommand = 'x'\narray = '1-'", "line 4, column 1: job 'a': array: ranges such as"),
    ("[[job]]\nname = 'a'\ncommand = 'x'\narray = '1-3'\ncount = 3", "line 4, column 1: job 'a': array: it stands for count"),
    ("[[job]]\nname = 'a'\ncommand = 'x'\narray = '0-10000000'", "line 4, column 1: job 'a': array: at most 1,000,000"),
    ("[[job]]\nname = 'a'\ncommand = 'x'\nnot_before = 'soon'", "line 4, column 1: job 'a': not_before: a number of seconds, or a time span"),
    ("[[job]]\nname = 'a'\ncommand = 'x'\ndeadline = 12:00:00", "line 4, column 1: job 'a': deadline: a date such as"),
    ("[[job]]\nname = 'a'\ncommand = 'x'\ncount = 2\ngang = 2\nat_most = 1", "line 6, column 1: job 'a': at_most: the tasks of a gang"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_mistakes_are_named_with_their_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        jobs_of(text)
    assert f"jobs.toml, {message}" in str(refused.value)
