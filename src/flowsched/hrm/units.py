"""Resource units: the separately allocated parts of a machine, and the machines that they are cut from.

A GPU needs cores that are near to it, and a CPU job should not keep a GPU idle.  So a machine is cut in one of three
ways (``how`` of `split_machine`): with few GPU jobs all cores stay together and the GPUs share them ("shared"); with
both kinds each GPU is bound to some cores of its NUMA node and the rest is for CPU jobs ("bound"); with GPU jobs only
the cores are dealt out evenly ("even").  Source: HRM, section 3.1.

Shared cores are shared in time: a GPU container computes on them between its kernels, before CPU containers (HRM, section
3.2; see `Cgroups`).  Memory is not shared: every unit has its own part.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flowsched.boundary.validate import check_id, instance, number, whole
from flowsched.cluster.model import Resources
from flowsched.exceptions import InputError

Amounts = tuple[int, int, int, int]
"""Cores, memory, GPU memory (micro-units) and places."""

AMOUNTS = Resources(("vcore", "mem", "gmem"), device=None)
"""Resources of units and containers: cores, memory and GPU memory, the last two in MiB."""

_MOST = 1 << 20
"""Most cores, GPUs or NUMA nodes of a machine; a larger number is taken for a mistake."""

How = Literal["shared", "bound", "even"]


@dataclass(frozen=True, slots=True)
class Core:
    """A physical core: the logical CPUs that it shows, and its NUMA node."""

    cpus: tuple[int, ...]
    numa: int = 0


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU: its memory in MiB, its NUMA node (None where it is near to none or to all), its model."""

    gmem: float
    numa: int | None = None
    model: str = ""


@dataclass(frozen=True)
class Node:
    """A machine before it is cut.

    Parameters
    ----------
    id : hashable
    cores : sequence of Core
    gpus : sequence of Gpu
    mem : mapping of int to number
        Memory by NUMA node, in MiB.

    Raises
    ------
    InputError
        No cores, a core of a NUMA node without an entry in `mem`, or an amount that is not a number >= 0.
    """

    id: Hashable
    cores: Sequence[Core]
    gpus: Sequence[Gpu] = ()
    mem: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cores", tuple(self.cores))
        object.__setattr__(self, "gpus", tuple(self.gpus))
        if not self.cores:
            raise InputError(f"node {self.id!r}: cores must not be empty")
        for i, core in enumerate(self.cores):
            if core.numa not in self.mem:
                raise InputError(f"node {self.id!r}: cores[{i}] is on NUMA node {core.numa}, which mem does not tell")
        amounts = {f"mem[{numa}]": amount for numa, amount in self.mem.items()}
        amounts.update((f"gpus[{i}].gmem", gpu.gmem) for i, gpu in enumerate(self.gpus))
        for what, amount in amounts.items():
            number(f"node {self.id!r}: {what}", amount, 0)

    @staticmethod
    def uniform(id: Hashable, cores: int, mem: float, gpus: int = 0, gmem: float = 0, numa: int = 1) -> Node:
        """Make a machine with cores, memory and GPUs in equal parts on `numa` NUMA nodes.

        Raises
        ------
        InputError
            Fewer cores than NUMA nodes, or a negative number.
        """
        for what, count in (("cores", cores), ("gpus", gpus), ("numa", numa)):
            whole(f"node {id!r}: {what}", count, 0, _MOST)
        number(f"node {id!r}: mem", mem, 0)
        if not 1 <= numa <= cores:
            raise InputError(f"node {id!r}: 1 <= numa <= cores and gpus >= 0 expected, got {numa=}, {cores=}, {gpus=}")
        return Node(
            id,
            [Core((i,), i * numa // cores) for i in range(cores)],
            [Gpu(gmem, i * numa // gpus) for i in range(gpus)],
            dict.fromkeys(range(numa), mem / numa),
        )


@dataclass(frozen=True)
class ResourceUnit:
    """A part of a machine that is allocated by itself.

    Parameters
    ----------
    id : hashable
    machine : hashable
    vcore : number
        Cores; may be a fraction where several units share one core.
    mem, gmem : number
        Memory and GPU memory, in MiB.
    gpu : int or None
        Index of its GPU on the machine.
    cpus : tuple of int
        Logical CPUs that its containers are bound to; () for no binding.
    numa : tuple of int
        NUMA nodes of these.
    model : str
        Of the GPU.
    shared : bool
        The cores are another unit's, too, and only containers that take GPU memory run here.

    Raises
    ------
    InputError
        An amount is not a number >= 0, or there is GPU memory or a shared core without a GPU.
    """

    id: Hashable
    machine: Hashable = None
    vcore: float = 0
    mem: float = 0
    gmem: float = 0
    gpu: int | None = None
    cpus: tuple[int, ...] = ()
    numa: tuple[int, ...] = ()
    model: str = ""
    shared: bool = False
    capacity: NDArray[np.int64] = field(init=False, repr=False, compare=False)
    """The amounts in micro-units, in the order of `AMOUNTS`."""

    def __post_init__(self) -> None:
        check_id("unit: id", self.id)
        if self.gmem and self.gpu is None:
            raise InputError(f"unit {self.id!r}: gmem is {self.gmem!r}, but gpu is None")
        if self.shared and self.gpu is None:
            raise InputError(f"unit {self.id!r}: shared is {self.shared!r}, but gpu is None")
        capacity = AMOUNTS.capacity(f"unit {self.id!r}", (self.vcore, self.mem, self.gmem))
        object.__setattr__(self, "capacity", capacity)

    @property
    def type(self) -> Literal["gpu", "cpu"]:
        """Type of the unit's queues: "gpu" or "cpu"."""
        return "cpu" if self.gpu is None else "gpu"


def choose(gpu_jobs: float) -> How:
    """Return the method that the source's rule of thumb names for the part of the jobs that use a GPU, 0 to 1.

    That is "shared" up to a fifth (mostly CPU jobs), "even" for GPU jobs only, else "bound".
    """
    if not 0 <= number("gpu_jobs", gpu_jobs) <= 1:
        raise InputError(f"gpu_jobs: a number from 0 to 1 expected, got {gpu_jobs!r}")
    if gpu_jobs <= 0.2:
        return "shared"
    return "even" if gpu_jobs == 1 else "bound"


def split_machine(
    node: Node, how: How | None = None, *, gpu_jobs: float = 0.5, cores_per_gpu: int = 1, cpu_units: int = 1
) -> list[ResourceUnit]:
    """Cut a machine into resource units.

    Parameters
    ----------
    how : {"shared", "bound", "even"} or None
        None for the result of `choose`.  A machine without GPUs is always "bound": `cpu_units` units of cores.
    gpu_jobs : float
        For `choose`.
    cores_per_gpu : int
        For "bound": 1 suffices for jobs that only feed the GPU, more for those that compute on both.
    cpu_units : int
        Number of units of the cores that are bound to no GPU.

    Returns
    -------
    list of ResourceUnit
        GPUs first, then cores.  Every core and every GPU is in exactly one unit (unless there are more GPUs than
        cores: "even" then lets GPUs share a core in equal parts), and memory goes with the cores, each NUMA node's in
        equal parts.  With "shared" the units of cores are for CPU containers, and each GPU's unit has all cores
        again, for GPU containers; of the memory it has as much as the GPU's, at most an equal part.

    Raises
    ------
    InputError
        There are not enough cores, or an argument is out of range.
    """
    instance("node", node, Node)
    how = choose(gpu_jobs) if how is None else how
    if how not in ("shared", "bound", "even"):
        raise InputError(f"how: 'shared', 'bound' or 'even' expected, got {how!r}")
    for name, value in (("cores_per_gpu", cores_per_gpu), ("cpu_units", cpu_units)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name}: a whole number >= 1 expected, got {value!r}")
    gpus, cores = len(node.gpus), len(node.cores)
    if how == "even" and gpus > cores:
        return _sharing_cores(node)
    quota = [0] * gpus
    if how == "bound":
        quota = [cores_per_gpu] * gpus
    elif how == "even" and gpus:
        quota = [cores // gpus + (i < cores % gpus) for i in range(gpus)]
    left = cores - sum(quota)
    if left < 0 or (left == 0 and how == "bound" and gpus):
        raise InputError(
            f"node {node.id!r}: {cores_per_gpu} cores for each of {gpus} GPUs and one for CPU jobs, but it has {cores} cores"
        )
    if left and left < cpu_units:
        raise InputError(f"cpu_units: only {left} cores of node {node.id!r} are bound to no GPU, got {cpu_units}")
    bound, rest = _near(node, quota)
    units = [] if how == "shared" else [_unit(node, f"gpu{i}", taken, gpu=i) for i, taken in enumerate(bound)]
    if rest:
        edges = [round(i * len(rest) / cpu_units) for i in range(cpu_units + 1)]
        names = ["cpu"] if cpu_units == 1 else [f"cpu{i}" for i in range(cpu_units)]
        units += [_unit(node, name, rest[a:b]) for name, a, b in zip(names, edges, edges[1:], strict=False)]
    return _with_shared(node, units) if how == "shared" and gpus else units


def _with_shared(node: Node, units: Sequence[ResourceUnit]) -> list[ResourceUnit]:
    """Add a unit for each GPU, on the cores of all the units; its memory is taken from theirs."""
    total = sum(unit.mem for unit in units)
    whole_machine = _unit(node, "cpu", node.cores)
    mem = [math.floor(min(gpu.gmem, total / (len(node.gpus) + 1))) for gpu in node.gpus]
    gpus = [
        replace(whole_machine, id=f"{node.id}/gpu{i}", mem=mem[i], gmem=gpu.gmem, gpu=i, model=gpu.model, shared=True)
        for i, gpu in enumerate(node.gpus)
    ]
    left = 1 - sum(mem) / total if total else 0.0
    return gpus + [replace(unit, mem=math.floor(unit.mem * left + 1e-6)) for unit in units]


def _near(node: Node, quota: Sequence[int]) -> tuple[list[list[Core]], list[Core]]:
    """Cores for each GPU, of its own NUMA node as far as they reach; and the cores that are left, by NUMA node."""
    free = sorted(node.cores, key=lambda core: core.numa)
    bound: list[list[Core]] = [[] for _ in quota]
    # All GPUs take from their own node before any takes from another's.
    for near in (True, False):
        # One core at a time in turn, so that no GPU of a node leaves the others of it without.
        for turn in range(max(quota, default=0)):
            for i, gpu in enumerate(node.gpus):
                if len(bound[i]) <= min(turn, quota[i] - 1):
                    core = next((c for c in free if not near or gpu.numa is None or c.numa == gpu.numa), None)
                    if core is not None:
                        free.remove(core)
                        bound[i].append(core)
    return bound, free


def _sharing_cores(node: Node) -> list[ResourceUnit]:
    """More GPUs than cores: each gets an equal part of a core of its NUMA node, the least shared one."""
    users = [0] * len(node.cores)
    chosen = []
    for gpu in node.gpus:
        near = [i for i, core in enumerate(node.cores) if gpu.numa in (None, core.numa)] or list(range(len(users)))
        core = min(near, key=users.__getitem__)
        users[core] += 1
        chosen.append(core)
    return [_unit(node, f"gpu{i}", [node.cores[core]], gpu=i, part=1 / users[core]) for i, core in enumerate(chosen)]


def _unit(node: Node, name: str, cores: Sequence[Core], gpu: int | None = None, part: float = 1.0) -> ResourceUnit:
    on_numa = {numa: sum(core.numa == numa for core in node.cores) for numa in node.mem}
    device = None if gpu is None else node.gpus[gpu]
    return ResourceUnit(
        f"{node.id}/{name}",
        node.id,
        vcore=len(cores) * part,
        mem=math.floor(part * sum(node.mem[core.numa] / on_numa[core.numa] for core in cores) + 1e-6),
        gmem=device.gmem if device else 0,
        gpu=gpu,
        cpus=tuple(sorted(cpu for core in cores for cpu in core.cpus)),
        numa=tuple(sorted({core.numa for core in cores})),
        model=device.model if device else "",
    )
