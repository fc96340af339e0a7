"""Cutting machines into resource units, and reading machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowsched.exceptions import InputError
from flowsched.hrm import Core, Gpu, Node, ResourceUnit, read_machine, split_machine
from flowsched.hrm.units import choose

HWLOC = Path(__file__).parents[3] / "shared/data/hwloc"

needs_hwloc = pytest.mark.skipif(not HWLOC.is_dir(), reason="the hwloc samples are not in ../shared/data/hwloc")


def two_sockets() -> Node:
    """8 cores of 2 threads and 2 GPUs on 2 NUMA nodes, the GPUs listed against the order of the nodes."""
    return Node(
        "m", [Core((i, i + 8), i // 4) for i in range(8)], [Gpu(1000, 1, "B"), Gpu(500, 0, "A")], {0: 4000, 1: 8000}
    )


def test_shared_keeps_the_cores_together() -> None:
    first, second, cpu = split_machine(two_sockets(), "shared")
    assert (cpu.type, cpu.vcore, cpu.gmem, cpu.numa, cpu.shared) == ("cpu", 8, 0, (0, 1), False)
    assert (first.type, first.gmem, second.gmem, second.model) == ("gpu", 1000, 500, "A")
    # GPUs use all cores beside the CPU unit, and memory as large as their own, which no other unit has.
    for gpu in (first, second):
        assert gpu.shared and (gpu.vcore, gpu.cpus, gpu.numa, gpu.mem) == (8, cpu.cpus, cpu.numa, gpu.gmem)
    assert cpu.mem == 12000 - 1000 - 500
    # A GPU with more memory than the machine leaves others an equal part.
    assert [unit.mem for unit in split_machine(Node.uniform("m", 4, 900, gpus=2, gmem=5000), "shared")] == [300] * 3


def test_bound_takes_near_cores_and_leaves_the_rest() -> None:
    first, second, *cpu = split_machine(two_sockets(), "bound", cores_per_gpu=2, cpu_units=2)
    assert (first.cpus, first.numa, first.mem) == ((4, 5, 12, 13), (1,), 4000)
    assert (second.cpus, second.numa, second.mem) == ((0, 1, 8, 9), (0,), 2000)
    assert [unit.cpus for unit in cpu] == [(2, 3, 10, 11), (6, 7, 14, 15)]


def test_even_deals_all_cores() -> None:
    first, second = split_machine(two_sockets(), "even")
    assert (first.cpus, second.cpus) == ((4, 5, 6, 7, 12, 13, 14, 15), (0, 1, 2, 3, 8, 9, 10, 11))
    assert (first.vcore, first.mem, second.mem) == (4, 8000, 4000)


def test_more_gpus_than_cores_share_them() -> None:
    node = Node.uniform("m", cores=2, mem=600, gpus=3, gmem=10)
    units = split_machine(node, "even")
    assert [unit.cpus for unit in units] == [(0,), (1,), (0,)]
    assert [unit.vcore for unit in units] == [0.5, 1, 0.5]
    assert [unit.mem for unit in units] == [150, 300, 150]


def test_rule_of_thumb() -> None:
    assert [choose(part) for part in (0, 0.2, 0.21, 0.99, 1)] == ["shared", "shared", "bound", "bound", "even"]
    assert len(split_machine(two_sockets(), gpu_jobs=0.5)) == 3
    assert split_machine(two_sockets(), gpu_jobs=1) == split_machine(two_sockets(), "even")


@given(
    cores=st.integers(1, 24),
    gpus=st.integers(0, 10),
    numa=st.integers(1, 4),
    how=st.sampled_from(["shared", "bound", "even"]),
    per=st.integers(1, 3),
)
def test_nothing_is_lost_and_nothing_is_in_two_units(cores: int, gpus: int, numa: int, how: str, per: int) -> None:
    node = Node.uniform("m", cores, mem=1000.0 * cores, gpus=gpus, gmem=16, numa=min(numa, cores))
    try:
        units = split_machine(node, how, cores_per_gpu=per)  # type: ignore[arg-type]
    except InputError:
        assert how == "bound" and gpus * per >= cores
        return
    assert sum(unit.vcore for unit in units if not unit.shared) == pytest.approx(cores)
    assert all(unit.vcore == cores for unit in units if unit.shared)
    assert [unit.gpu for unit in units if unit.type == "gpu"] == list(range(gpus))
    cpus = [cpu for unit in units for cpu in unit.cpus if not unit.shared]
    if how != "even" or gpus <= cores:
        assert sorted(cpus) == list(range(cores))
    assert 1000 * cores - len(units) <= sum(unit.mem for unit in units) <= 1000 * cores


def test_a_gpu_gets_a_far_core_only_when_the_near_ones_are_gone() -> None:
    node = Node("m", [Core((i,), i // 4) for i in range(8)], [Gpu(1, 0), Gpu(1, 0), Gpu(1, 0), Gpu(1, 1)], {0: 8, 1: 8})
    units = split_machine(node, "even")
    assert [unit.cpus for unit in units] == [(0, 3), (1, 6), (2, 7), (4, 5)]


def test_refusals_name_the_argument() -> None:
    with pytest.raises(InputError, match="2 cores for each of 4 GPUs"):
        split_machine(Node.uniform("m", 8, 8, gpus=4), "bound", cores_per_gpu=2)
    with pytest.raises(InputError, match="how"):
        split_machine(two_sockets(), "odd")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="cpu_units"):
        split_machine(two_sockets(), "bound", cpu_units=9)
    with pytest.raises(InputError, match=r"cores\[0\] is on NUMA node 3"):
        Node("m", [Core((0,), 3)], mem={0: 1})
    with pytest.raises(InputError, match="gmem"):
        ResourceUnit("u", vcore=1, gmem=5)


@needs_hwloc
def test_dgx2_has_sixteen_gpus_on_two_sockets() -> None:
    node = read_machine(HWLOC / "nvidiaDGX2.xml")
    assert len(node.gpus) == 16 and [gpu.numa for gpu in node.gpus] == [0] * 8 + [1] * 8
    assert {gpu.gmem for gpu in node.gpus} == {32768}  # from the model's name: the file does not tell more
    assert [core.cpus for core in node.cores] == [(0,), (1,), (24,), (25,)]
    units = split_machine(node, "even")
    assert all(unit.numa == (node.gpus[i].numa,) for i, unit in enumerate(units))


@needs_hwloc
def test_power8_has_four_gpus_and_sparse_cpu_numbers() -> None:
    node = read_machine(HWLOC / "power8gpudistances.v2.xml", id="p8")
    assert [(gpu.numa, gpu.model, gpu.gmem) for gpu in node.gpus] == [
        (numa, "Tesla P100-SXM2-16GB", 16671616 / 1024) for numa in (0, 0, 1, 1)
    ]
    assert node.cores[-1] == Core((104, 105), 1)
    units = split_machine(node, "bound")
    assert [unit.cpus for unit in units[:4]] == [(0, 1), (8, 9), (80, 81), (88, 89)]


@needs_hwloc
def test_two_socket_server_has_cores_of_two_threads() -> None:
    node = read_machine(HWLOC / "32em64t-2n8c2t-pci-normalio.xml")
    assert len(node.cores) == 16 and all(len(core.cpus) == 2 for core in node.cores)
    assert [(gpu.gmem, gpu.numa) for gpu in node.gpus] == [(11519.5625, 1), (3015, 1)]


def test_memory_that_is_not_told_must_be_given(tmp_path: Path) -> None:
    file = tmp_path / "box.xml"
    file.write_text(
        '<topology><object type="Machine" cpuset="0x1"><object type="NUMANode" os_index="0" cpuset="0x1"/>'
        '<object type="Core" cpuset="0x1"><object type="PU" os_index="0"/></object>'
        '<object type="PCIDev"><object type="OSDev" name="cuda0"/></object></object></topology>'
    )
    with pytest.raises(InputError, match="'cuda0'.*gmem"):
        read_machine(file)
    node = read_machine(file, gmem=123)
    assert (node.id, node.gpus) == ("box", (Gpu(123, None),))
    file.write_text("<html/>")
    with pytest.raises(InputError, match="<html>"):
        read_machine(file)
    file.write_text("nonsense")
    with pytest.raises(InputError, match="not XML"):
        read_machine(file)


def test_cores_of_a_system_with_threads_and_two_nodes(tmp_path: Path) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("this process may use one CPU only")
    a, b = allowed[:2]
    for numa, cpu in ((0, a), (1, b)):
        folder = tmp_path / f"devices/system/node/node{numa}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{cpu},4000\n")
        (folder / "meminfo").write_text(f"Node {numa} MemTotal:    {2048 * (numa + 1)} kB\n")
    siblings = tmp_path / f"devices/system/cpu/cpu{a}/topology"
    siblings.mkdir(parents=True)
    (siblings / "thread_siblings_list").write_text(f"{a},4000\n")
    node = read_machine(sys=tmp_path, id="me")
    assert (node.cores, node.mem) == ((Core((a,), 0), Core((b,), 1)), {0: 2.0, 1: 4.0})


def test_this_machine() -> None:
    node = read_machine()
    assert sum(len(core.cpus) for core in node.cores) == len(os.sched_getaffinity(0))
    assert sum(node.mem.values()) > 0
