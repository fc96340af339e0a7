"""Comparisons: the same arrivals for all, differences in pairs, processes that end with their parent."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flowsched as fs
from flowsched.exceptions import InputError
from flowsched.sim import MEASURES, Comparison, Outcome, Simulation, Spread, compare, scheduler, synthetic
from flowsched.sim.processes import each_in_a_process
from flowsched.sim.report import comparison_report

DECISION = "decision, mean"


def batch(seed: int) -> fs.sim.Workload:
    return synthetic("batch", tasks=100, scale=0.25, seed=seed)


def quit_at_once(seed: int) -> fs.sim.Workload:
    os._exit(7)


def refused(seed: int) -> fs.sim.Workload:
    raise InputError("no workload today")


def broken(seed: int) -> fs.sim.Workload:
    raise ZeroDivisionError("oops")


def told(found: Comparison) -> dict[str, Any]:
    """All but what this computer's clock tells."""
    out = found.to_dict()
    del out["summary"]
    for run in out["runs"]:
        del run["figures"][DECISION]
    return out


def test_figures_are_those_of_single_runs() -> None:
    found = compare(batch, ["fifo", "easy"], seeds=[4, 2])
    assert [(run.seed, run.scheduler) for run in found.outcomes] == [(4, "fifo"), (4, "easy"), (2, "fifo"), (2, "easy")]
    for run in found.outcomes:
        work = batch(run.seed)
        metrics = Simulation(scheduler(run.scheduler, work), work).run()
        assert run.figures["wait, mean"] == metrics.waits.mean()
        assert run.figures["bounded slowdown, mean"] == metrics.slowdown().mean
        assert run.figures["end"] == metrics.ends.max()
        assert max(run.waits) == metrics.waits.max() and max(run.waiting[1]) == metrics.series["waiting"].max()


@pytest.mark.long
def test_processes_change_nothing() -> None:
    seen: list[tuple[int, int]] = []
    names = ["fifo", "easy", "random"]
    apart = compare(batch, names, 2, processes=2, said=lambda run, done, total: seen.append((done, total)))
    assert told(apart) == told(compare(batch, names, 2))
    assert seen == [(i, 6) for i in range(1, 7)]


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (refused, InputError, "no workload today"),
        (broken, RuntimeError, "ZeroDivisionError: oops"),
        (quit_at_once, ChildProcessError, "exit code 7"),
    ],
)
@pytest.mark.long
def test_errors_in_processes(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        compare(make, ["fifo"], processes=1)


def killed_once(folder: str, seed: int) -> fs.sim.Workload:
    """As the kernel does where memory is short: seed 1 at its first try, seed 3 always."""
    mark = Path(folder, f"{os.getpid()}.{seed}")
    mark.touch()
    if seed == 3 or (seed == 1 and len(list(Path(folder).glob("*.1"))) == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    return batch(seed)


@pytest.mark.long
def test_a_run_whose_process_is_killed_is_repeated(tmp_path: Path) -> None:
    make = partial(killed_once, str(tmp_path))
    found = compare(make, ["fifo"], 3, processes=2)
    assert told(found) == told(compare(batch, ["fifo"], 3)) and not found.lost
    assert len(list(tmp_path.glob("*.1"))) == 2
    found = compare(make, ["fifo"], [3, 4, 5, 6], processes=2)
    assert [run.seed for run in found.outcomes] == [4, 5, 6] and not found.whole
    assert found.lost == "processes of 1 runs ended at 3 tries each, exit code -9"
    assert len(list(tmp_path.glob("*.3"))) == 3


def test_what_is_stopped_gives_what_was_done() -> None:
    done: list[Outcome] = []
    found = compare(
        batch, ["fifo", "easy"], 3, said=lambda run, n, total: done.append(run), stopped=lambda: len(done) == 3
    )
    assert len(found.outcomes) == 3 and not found.whole
    assert found.difference("easy", "wait, mean").mean == pytest.approx(
        found.outcomes[1].figures["wait, mean"] - found.outcomes[0].figures["wait, mean"]
    ), "only the seed that both have counts"
    never = list(each_in_a_process(len, [(), ()], 1, lambda: True))
    assert never == []


def made(figures: dict[tuple[str, int], float]) -> Comparison:
    runs = tuple(Outcome(name, seed, dict.fromkeys(MEASURES, value)) for (name, seed), value in figures.items())
    return Comparison(("a", "b"), (0, 1), runs)


def test_paired_differences_by_hand(tmp_path: Path) -> None:
    found = made({("a", 0): 10.0, ("b", 0): 12.0, ("a", 1): 100.0, ("b", 1): 99.0})
    assert found.spread("a", "end") == Spread(55.0, 10.0, 100.0, pytest.approx(45 * 12.7062, rel=1e-5))
    assert found.difference("b", "end") == Spread(0.5, -1.0, 2.0, pytest.approx(1.5 * 12.7062, rel=1e-5))
    table = next(table for table in found.tables() if table.title == "End")
    assert table.rows[1] == ("b", "55.5 s", "9.21 min", "12 s", "99 s", "+500 ms", "19.1 s", "-1 s", "+2 s")
    found.to_csv(tmp_path / "c.csv")
    with open(tmp_path / "c.csv", newline="") as file:
        assert [(row["scheduler"], row["seed"], row["end"]) for row in csv.DictReader(file)] == [
            ("a", "0", "10.0"), ("b", "0", "12.0"), ("a", "1", "100.0"), ("b", "1", "99.0")
        ]  # fmt: skip


def test_intervals_agree_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    draw = np.random.default_rng(3)
    for count in (2, 3, 4, 7, 30, 400):
        values = draw.normal(5, 2, count)
        low, high = stats.t.interval(0.95, count - 1, values.mean(), stats.sem(values))
        assert Spread.of(values).half == pytest.approx((high - low) / 2, rel=2e-3)
    assert math.isnan(Spread.of([1.0]).half)


def test_waits_beyond_the_end_are_lower_bounds(tmp_path: Path) -> None:
    work = batch(1)
    found = compare(work, ["fifo", "flowsched"], until=1000)
    assert all(run.bounds == {"wait, mean", "wait, p99"} for run in found.outcomes)
    assert all(0 < run.figures["wait, p99"] < math.inf for run in found.outcomes)
    for table in found.tables():
        assert all(
            cell.startswith("> ") for name, cell in zip(table.columns, table.rows[0], strict=True) if "wait" in name
        )
    assert math.isnan(found.difference("flowsched", "wait, p99").mean)
    found.to_json(tmp_path / "c.json")
    runs = json.loads((tmp_path / "c.json").read_text())["runs"]
    assert [run["lower_bounds"] for run in runs] == [["wait, mean", "wait, p99"]] * 2
    pytest.importorskip("matplotlib")
    assert "&gt; " in comparison_report(found)


def test_differences_that_are_noise() -> None:
    found = made({("a", 0): 0.3, ("b", 0): 0.1 + 0.2, ("a", 1): 3.0, ("b", 1): 3.0})
    assert found.difference("b", "end") == Spread(0.0, 0.0, 0.0, 0.0)


def test_the_report_has_every_scheduler() -> None:
    pytest.importorskip("matplotlib")
    page = comparison_report(compare(batch, ["fifo", "flowsched:pack"], 2))
    assert page.count("<figure") == 7 and page.count("flowsched:pack") > 5 and "http" not in page.split("</style>")[1]
    assert comparison_report(Comparison(("a",), (0,), ())).count("<figure") == 0


def test_wrong_arguments() -> None:
    for arguments, words in (
        ((batch, []), "different names"),
        ((batch, "fifo"), "different names"),
        ((batch, ["fifo", "fifo"]), "different names"),
        ((batch, ["fifo"], 0), "seeds"),
        ((batch, ["fifo"], [1, 1]), "different seeds"),
        ((batch, ["nothing"]), "unknown name"),
    ):
        with pytest.raises(InputError, match=words):
            compare(*arguments)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a function that returns it"):
        compare(batch(0), ["fifo"], processes=1)
    assert compare(partial(synthetic, "poisson", tasks=30)(), ["fifo"]).whole


def test_a_record_is_continued(tmp_path: Path) -> None:
    """Also after a line that a kill has cut, and with more seeds; another comparison is refused, and a line with a fault is named."""
    path, done = tmp_path / "runs.jsonl", list[Outcome]()

    def once(seeds: int, **more: Any) -> Comparison:
        done.clear()
        return compare(batch, ["fifo", "easy"], seeds, record=path, said=lambda run, n, of: done.append(run), **more)

    once(2, stopped=lambda: len(done) == 3)
    path.write_bytes(path.read_bytes()[:-20])
    assert told(once(2)) == told(compare(batch, ["fifo", "easy"], 2)) and len(done) == 2
    first = path.read_bytes()
    assert told(once(3)) == told(compare(batch, ["fifo", "easy"], 3)) and len(done) == 2
    assert path.read_bytes().startswith(first) and len(first.splitlines()) == 5
    whole = path.read_bytes()
    with pytest.raises(InputError, match="line 1: of another comparison"):
        once(2, until=5.0)
    path.write_bytes(whole + b'{"scheduler": "fifo", "seed": 9}\n')
    with pytest.raises(InputError, match="line 8: no run of a comparison"):
        once(2)
    with pytest.raises(InputError, match="not a regular file"):
        compare(batch, ["fifo"], record="/dev/null")
    with pytest.raises(InputError, match="on: one of dask"):
        compare(batch, ["fifo"], on="moon")
