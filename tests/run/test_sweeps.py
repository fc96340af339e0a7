"""Comparisons on the workers of a Dask or Ray cluster of this machine, some of which are killed: the rows of one machine."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flowsched as fs
from flowsched.exceptions import InputError
from flowsched.sim import Comparison, Outcome, compare, synthetic

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore"),  # of clusters, and of what they leave open where workers are killed
]

NAMES, SEEDS = ("fifo", "easy", "flowsched"), 6


def batch(seed: int) -> fs.sim.Workload:
    return synthetic("batch", tasks=200, scale=0.25, seed=seed)


def slow(seed: int) -> fs.sim.Workload:
    synthetic("batch", tasks=4000, seed=seed)
    return batch(seed)


def refused(seed: int) -> fs.sim.Workload:
    raise InputError("no workload today")


def deadly(seed: int) -> fs.sim.Workload:
    if seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return batch(seed)


def rows(found: Comparison) -> list[dict[str, Any]]:
    """All but what this computer's clock tells."""
    runs: list[dict[str, Any]] = found.to_dict()["runs"]
    for run in runs:
        del run["figures"]["decision, mean"]
    return runs


@pytest.fixture(scope="module")
def here() -> list[dict[str, Any]]:
    return rows(compare(batch, NAMES, SEEDS))


@pytest.fixture(scope="module")
def dask() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with distributed.LocalCluster(
        n_workers=8, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL, memory_limit=None
    ) as cluster:
        yield cluster


def test_three_of_eight_workers_of_dask_are_killed(dask: Any, here: list[dict[str, Any]], tmp_path: Path) -> None:
    address = f"dask://{dask.scheduler_address.removeprefix('tcp://')}"
    killed = []

    def said(outcome: Outcome, done: int, total: int) -> None:
        if done in (2, 5, 8):
            worker = sorted(dask.workers)[len(killed)]
            killed.append(dask.workers[worker].pid)
            os.kill(killed[-1], signal.SIGKILL)

    found = compare(slow, NAMES, SEEDS, on=address, said=said, record=tmp_path / "runs.jsonl")
    assert len(killed) == 3 and found.whole and rows(found) == here
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 1 + len(NAMES) * SEEDS
    with pytest.raises(InputError, match="no workload today"):
        compare(refused, NAMES, 1, on=address)


def test_a_run_that_kills_its_workers_is_the_only_row_that_is_missing(dask: Any) -> None:
    address = f"dask://{dask.scheduler_address.removeprefix('tcp://')}"
    found = compare(deadly, ["fifo"], 4, on=address)
    assert [run.seed for run in found.outcomes] == [0, 2, 3] and "workers of 1 runs died" in found.lost


def test_on_ray(here: list[dict[str, Any]]) -> None:
    ray = pytest.importorskip("ray")
    ray.init(
        "local",
        num_cpus=3,
        include_dashboard=False,
        object_store_memory=80 << 20,
        log_to_driver=False,
        logging_level=50,
    )
    try:
        found = compare(batch, NAMES, SEEDS, on="ray")
        assert found.whole and rows(found) == here
        found = compare(deadly, ["fifo"], 3, on="ray")
        assert [run.seed for run in found.outcomes] == [0, 2] and "workers of 1 runs died" in found.lost
        with pytest.raises(InputError, match="no workload today"):
            compare(refused, NAMES, 1, on="ray")
    finally:
        ray.shutdown()


def test_a_cluster_that_does_not_answer() -> None:
    pytest.importorskip("distributed")
    with pytest.raises(ChildProcessError, match="no scheduler of Dask answers"):
        compare(batch, NAMES, 1, on="dask://127.0.0.1:9")
