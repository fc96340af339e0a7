"""Random graphs of jobs, and an oracle of their outcomes."""

from __future__ import annotations

from fnmatch import fnmatchcase
from random import Random

from flowsched.run.plan import CANCELLED, DONE, FAILED, SKIPPED

Graph = dict[str, tuple[int, dict[str, list[str]]]]
"""Number of tasks and dependencies by job."""


def random_graph(random: Random, jobs: int = 30) -> Graph:
    """Return a graph of at most that many jobs."""
    graph: Graph = {}
    for i in range(random.randint(1, jobs)):
        after: dict[str, list[str]] = {}
        for _ in range(random.choice((0, 1, 1, 2, 3)) if graph else 0):
            job = random.choice(list(graph))
            name = random.choice((job, f"{job[:1]}{job[1]}*", f"{job}.0" if graph[job][0] > 1 else job))
            after.setdefault(random.choice(("ok", "ok", "any", "failed")), []).append(name)
        graph[f"j{i:02}"] = random.choice((1, 1, 2, 4)), after
    for name, (_, after) in graph.items():  # no job may depend on itself through a pattern
        for form in after:
            after[form] = [
                one
                for one in after[form]
                if "*" not in one or not any(fnmatchcase(later, one) for later in graph if later >= name)
            ]
    return graph


def text_of(graph: Graph, command: str = "x") -> str:
    """Return the graph as a file of jobs."""
    lines = []
    for name, (count, after) in graph.items():
        table = ", ".join(f"{form} = {names}" for form, names in after.items())
        lines.append(f"[[job]]\nname = '{name}'\ncommand = '''{command}'''\ncount = {count}\nafter = {{{table}}}\n")
    return "".join(lines)


def tasks_of(graph: Graph, name: str) -> list[str]:
    """Return the tasks of a job."""
    return [name] if graph[name][0] == 1 else [f"{name}.{i}" for i in range(graph[name][0])]


def meant(graph: Graph, pattern: str) -> set[str]:
    """The oracle's reading of a name or pattern, task by task."""
    found = {task for job in graph if fnmatchcase(job, pattern) for task in tasks_of(graph, job)}
    return found | {task for job in graph for task in tasks_of(graph, job) if fnmatchcase(task, pattern)}


def expected(graph: Graph, fails: set[str]) -> tuple[dict[str, str], set[str]]:
    """The oracle: jobs in order, each with the outcomes of those before it; and the tasks that run."""
    ends, runs = dict[str, str](), set[str]()
    for name, (_, after) in graph.items():
        outcome = ""
        for form, names in after.items():
            for pattern in names:
                failed = any(ends[task] in (FAILED, CANCELLED) for task in meant(graph, pattern))
                if form == "ok" and failed:
                    outcome = FAILED
                elif form == "failed" and not failed:
                    outcome = outcome or SKIPPED
        for task in tasks_of(graph, name):
            ends[task] = outcome or (FAILED if task in fails else DONE)
            runs |= set() if outcome else {task}
    return ends, runs
