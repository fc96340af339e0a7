"""The openb trace placed by schedulers as Ray actors over one PostgreSQL server: ``FLOWSCHED_FUZZ=1``, ``pytest -s``."""

from __future__ import annotations

import csv
import os
import time
from pathlib import Path

import numpy as np
import pytest
from negotiators import audit
from servers import postgres

sa = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'flowsched[sql]'")
pytest.importorskip("ray", reason="Ray is not installed: pip install 'flowsched[ray]'")

from flowsched.hrm import Container, Negotiator, Node, ResourceUnit, Store, split_machine
from flowsched.hrm.schedulers import run_ray
from flowsched.hrm.state.schema import RT

OPENB = Path(__file__).parents[3] / "shared/data/openb"

pytestmark = [
    pytest.mark.skipif(not os.environ.get("FLOWSCHED_FUZZ"), reason="takes minutes: FLOWSCHED_FUZZ=1 runs it"),
    pytest.mark.skipif(not OPENB.is_dir(), reason="the openb trace is not in ../shared/data/openb"),
]


def read_units() -> list[ResourceUnit]:
    """A machine's GPUs with equal parts of its cores, a GPU's memory in thousandths of it; or all cores as one unit."""
    units = []
    with (OPENB / "openb_node_list_all_node.csv").open() as file:
        for row in csv.DictReader(file):
            cores, mem, gpus = int(row["cpu_milli"]) // 1000, int(row["memory_mib"]), int(row["gpu"])
            units += split_machine(Node.uniform(row["sn"], cores, mem, gpus, gmem=1000), "even" if gpus else "bound")
    return units


def read_containers() -> list[Container]:
    """A container for every GPU that a pod asks for, with its part of the rest; CPU pods are one container."""
    containers = []
    with (OPENB / "openb_pod_list_default.csv").open() as file:
        for row in csv.DictReader(file):
            parts = max(int(row["num_gpu"]), 1)
            vcore, mem = int(row["cpu_milli"]) / 1000 / parts, int(row["memory_mib"]) / parts
            gmem = int(row["gpu_milli"]) if int(row["num_gpu"]) else 0
            containers += [Container(f"{row['name']}-{i}", None, vcore, mem, gmem, 3600.0) for i in range(parts)]
    return containers


def test_four_actors_place_the_trace() -> None:
    units = read_units()
    kinds = {tuple(unit.capacity.tolist()) for unit in units}
    everything = read_containers()
    fit = [c for c in everything if any(all(a <= b for a, b in zip(c.need, kind, strict=False)) for kind in kinds)]
    print(
        f"\n{len(units)} units; {len(everything)} containers of 8152 pods, {len(everything) - len(fit)} fit on no unit"
    )
    with postgres() as url:
        store = Store(url)
        placed = {}
        for count in (1, 4):
            store.clear()
            negotiator = Negotiator(store)
            negotiator.add_units(units)
            for j in range(0, len(fit), 40):
                negotiator.submit(f"job-{j:05}", fit[j : j + 40])
            begin = time.time()
            # The trace's pods belong to no jobs, so no shares bind: a job is 40 pods that arrive together.
            tallies = run_ray(url, count, patience=10.0, shares=False)
            # Without the seconds at the end in which no scheduler finds work.
            seconds = store.look(sa.select(sa.func.max(RT.c.since)))[0][0] - begin
            audit(store)
            placed[count] = sum(tally.granted for tally in tallies)
            assert placed[count] == sum(job.held for job in negotiator.jobs())
            conflicts = sum(tally.conflicts for tally in tallies)
            print(
                f"{count} actors: {placed[count]} of {len(fit)} placed in {seconds:.1f} s (with starting them), "
                f"conflict ratio {conflicts / (placed[count] + conflicts):.1%}; longest of each scheduler: "
                f"refresh {max(t.seconds_refresh for t in tallies):.1f} s, "
                f"decide {max(t.seconds_decide for t in tallies):.1f} s, "
                f"commit {max(t.seconds_commit for t in tallies):.1f} s"
            )
            # What is left is left for want of room: there is none for any of it on any unit.
            free = np.unique([unit.free for unit in negotiator.units()], axis=0)
            left = {c.need for job in negotiator.jobs() for c in negotiator.tasks(job.job)}
            assert not any((np.array(need) <= free).all(axis=1).any() for need in left)
        # The order of arrival decides how much fits; four schedulers make no worse an order than one.
        assert placed[4] >= 0.98 * placed[1]
        store.close()
