"""Topology of a machine: of this one from the system, or of any from the XML that hwloc's ``lstopo`` writes."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Hashable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from flowsched.exceptions import InputError
from flowsched.hrm.units import Core, Gpu, Node

_MIB = 2**20

_GPU_DEVICE = re.compile(r"(cuda|nvml|rsmi|ze|opencl)\d")


def read_machine(
    source: str | Path | None = None, *, id: Hashable | None = None, gmem: float | None = None, sys: str | Path = "/sys"
) -> Node:
    """Read cores, NUMA nodes, memory and GPUs of a machine.

    Parameters
    ----------
    source : path, optional
        An XML file of hwloc (version 1 or 2).  None for this machine: cores and NUMA nodes that this process may use
        from ``/sys`` (psutil where there is no such thing), GPUs from NVML if the module ``pynvml`` is there.
    id : hashable, optional
        Of the machine; by default the file's stem, or this machine's host name.
    gmem : number, optional
        MiB of each GPU whose memory the source does not give.
    sys : path
        The system's sysfs.

    Raises
    ------
    InputError
        The file is not hwloc's XML, or a GPU's memory is neither in it nor given by `gmem`.
    """
    if not isinstance(source, str | os.PathLike | None):
        raise InputError(f"source: the path of an XML file expected, got {source!r}")
    if source is not None:
        return _read_xml(Path(source), id, gmem)
    name = socket.gethostname() if id is None else id
    cores, mem = _system_cores(Path(sys))
    return Node(name, cores, _nvml_gpus(Path(sys)), mem)


# -- this machine -------------------------------------------------------------------------------------------------


def _system_cores(sys: Path) -> tuple[list[Core], dict[int, float]]:
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    nodes = sorted((sys / "devices/system/node").glob("node[0-9]*"))
    numa_of: dict[int, int] = {}
    mem: dict[int, float] = {}
    for node in nodes:
        index = int(node.name[4:])
        cpus = _cpu_list((node / "cpulist").read_text())
        total = re.search(r"MemTotal:\s*(\d+) kB", (node / "meminfo").read_text())
        mem[index] = int(total[1]) / 1024 if total else 0.0
        numa_of.update((cpu, index) for cpu in cpus if allowed is None or cpu in allowed)
    if not numa_of:
        return _psutil_cores(allowed)
    siblings: dict[tuple[int, ...], int] = {}
    for cpu, numa in sorted(numa_of.items()):
        told = sys / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        group = _cpu_list(told.read_text()) if told.exists() else [cpu]
        siblings[tuple(sorted(numa_of.keys() & set(group)))] = numa
    return [Core(cpus, numa) for cpus, numa in siblings.items()], mem


def _psutil_cores(allowed: set[int] | None) -> tuple[list[Core], dict[int, float]]:
    try:
        psutil = import_module("psutil")
    except ImportError as missing:
        raise ImportError("this system has no /sys to read: pip install 'flowsched[real]'", name="psutil") from missing
    cpus = sorted(allowed) if allowed else range(psutil.cpu_count() or 1)
    return [Core((cpu,)) for cpu in cpus], {0: psutil.virtual_memory().total / _MIB}


def _cpu_list(text: str) -> list[int]:
    """Return the numbers of a list such as ``0-3,8``."""
    spans = [part.split("-") for part in text.strip().split(",") if part]
    return [cpu for span in spans for cpu in range(int(span[0]), int(span[-1]) + 1)]


def _nvml_gpus(sys: Path) -> list[Gpu]:
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return []
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return []  # no driver: no GPU
    try:
        return [_nvml_gpu(nvml, i, sys) for i in range(nvml.nvmlDeviceGetCount())]
    finally:
        nvml.nvmlShutdown()


def _nvml_gpu(nvml: Any, index: int, sys: Path) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    model, bus = _text(nvml.nvmlDeviceGetName(handle)), _text(nvml.nvmlDeviceGetPciInfo(handle).busId)
    # NVML writes the domain with eight digits, /sys with four.
    told = sys / "bus/pci/devices" / bus[-12:].lower() / "numa_node"
    numa = int(told.read_text()) if told.exists() else -1
    return Gpu(nvml.nvmlDeviceGetMemoryInfo(handle).total / _MIB, None if numa < 0 else numa, model)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


# -- hwloc --------------------------------------------------------------------------------------------------------


def _read_xml(path: Path, id: Hashable | None, gmem: float | None) -> Node:
    try:
        root = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise InputError(f"{path}: not XML: {error}") from None
    if root.tag != "topology":
        raise InputError(f"{path}: line 1: <topology> of hwloc expected, got <{root.tag}>")
    machine = [item for item in root if item.tag == "object"]
    numas = {
        int(item.get("os_index", 0)): (_cpuset(item.get("cpuset")), int(item.get("local_memory", 0)) / _MIB)
        for item in root.iter("object")
        if item.get("type") == "NUMANode"
    }
    if not numas and machine:
        memory = int(machine[0].get("local_memory", 0)) / _MIB
        numas = {0: (_cpuset(machine[0].get("cpuset")), memory)}
    cores = []
    for item in root.iter("object"):
        if item.get("type") == "Core":
            cpus = tuple(sorted(int(pu.get("os_index", 0)) for pu in item.iter("object") if pu.get("type") == "PU"))
            cores.append(
                Core(cpus, next((n for n, (cpuset, _) in numas.items() if cpuset & _cpuset(item.get("cpuset"))), 0))
            )
    if not cores:
        raise InputError(f"{path}: no cores in it")
    gpus = [
        _xml_gpu(path, device, {n for n, (cpuset, _) in numas.items() if cpuset & near}, len(numas), gmem)
        for item in machine
        for device, near in _gpu_devices(item, _cpuset(item.get("cpuset")))
    ]
    return Node(path.stem if id is None else id, cores, gpus, {n: memory for n, (_, memory) in numas.items()})


def _gpu_devices(item: ElementTree.Element, near: int) -> Iterator[tuple[list[ElementTree.Element], int]]:
    """Return the devices of each GPU (CUDA, NVML, OpenCL), with the CPUs of the innermost object around it that has some."""
    near = _cpuset(item.get("cpuset")) or near
    inside = [child for child in item if child.tag == "object"]
    faces = [child for child in inside if child.get("type") == "OSDev" and _GPU_DEVICE.match(child.get("name", ""))]
    faces = [face for face in faces if _info(face, "OpenCLDeviceType") in (None, "GPU")]
    if faces:
        yield faces, near
    for child in inside:
        yield from _gpu_devices(child, near)


def _xml_gpu(path: Path, faces: list[ElementTree.Element], near: set[int], numas: int, gmem: float | None) -> Gpu:
    def told(*names: str) -> str | None:
        return next((value for name in names for face in faces if (value := _info(face, name))), None)

    model = told("GPUModel") or ""
    memory: float | None = None
    kib = told("CUDAGlobalMemorySize", "OpenCLGlobalMemorySize", "RSMIVRAMSize", "LevelZeroHBMSize")
    named = re.search(r"(\d+) ?GB\b", model)
    if kib:
        memory = int(re.sub(r"\D", "", kib)) / 1024
    elif named:
        memory = int(named[1]) * 1024
    memory = gmem if memory is None else memory
    if memory is None:
        raise InputError(f"{path}: the memory of GPU {faces[0].get('name')!r} ({model}) is not told; give gmem")
    return Gpu(memory, near.pop() if len(near) == 1 and numas > 1 else None, model)


def _info(item: ElementTree.Element, name: str) -> str | None:
    return next((info.get("value") for info in item if info.tag == "info" and info.get("name") == name), None)


def _cpuset(text: str | None) -> int:
    """Return a mask of CPUs as a number, from words of 32 bits, the most significant first; an empty one is 0."""
    value = 0
    for word in (text or "0").split(","):
        value = value << 32 | int(word or "0", 16)
    return value
