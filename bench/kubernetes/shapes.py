"""Workloads of scheduler_perf, Kubernetes' own benchmark of its scheduler, read from its configuration files.

A workload is a list of operations.  Its numbers of objects are those of the largest workload that Kubernetes measures,
multiplied by the ratio of the numbers of nodes.  That release has no workload of gangs, so those here are of our own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["SHAPES", "Shape", "Workload", "read"]


@dataclass(frozen=True, slots=True)
class Shape:
    """A workload of scheduler_perf.

    Parameters
    ----------
    area, name, size : str
        Folder of its file, name of its test case, and name of the workload whose numbers are taken.
    nodes : int
        Number of nodes for which these numbers are.
    """

    area: str
    name: str
    size: str
    nodes: int = 5000


SHAPES = {
    "SchedulingBasic": Shape("misc", "SchedulingBasic", "5000Nodes_10000Pods"),
    "Preemption": Shape("misc", "PreemptionBasic", "1000Nodes", 1000),
    "Unschedulable": Shape("misc", "Unschedulable", "5kNodes/100Init/10kPods"),
    "MixedChurn": Shape("misc", "SchedulingWithMixedChurn", "5000Nodes_10000Pods"),
    "NodeAffinity": Shape("affinity", "SchedulingNodeAffinity", "5000Nodes_10000Pods"),
    "PodAntiAffinity": Shape("affinity", "SchedulingPodAntiAffinity", "5000Nodes_2000Pods"),
    "TopologySpreading": Shape("topology_spreading", "TopologySpreading", "5000Nodes_5000Pods"),
    "Gated": Shape("misc", "SchedulingWhileGated", "1Node_10000GatedPods"),
    "Gang": Shape("", "Gang", "5000Nodes_9000Pods"),
}
"""The workloads by their names here."""

_GANG = {
    "name": "Gang",
    "defaultPodTemplatePath": "../templates/pod-default.yaml",
    "workloadTemplate": [
        {"opcode": "createNodes", "countParam": "$initNodes"},
        {"opcode": "createPods", "countParam": "$initPods"},
        {"opcode": "createGangs", "countParam": "$measureGangs", "size": 3, "collectMetrics": True},
    ],
    "workloads": [
        {"name": "5000Nodes_9000Pods", "params": {"initNodes": 5000, "initPods": 1000, "measureGangs": 3000}},
    ],
}


@dataclass(frozen=True, slots=True)
class Workload:
    """Operations with their numbers.

    Parameters
    ----------
    name : str
    nodes : int
        Number of nodes as asked for.
    operations : list of dict
        As in the file, with ``count`` in place of parameters, and objects in place of paths of templates:
        ``template`` and ``templates``.
    """

    name: str
    nodes: int
    operations: list[dict[str, Any]] = field(default_factory=list)


def read(folder: Path, name: str, nodes: int) -> Workload:
    """Return a workload for a number of nodes.

    Parameters
    ----------
    folder : Path
        ``scheduler_perf`` of Kubernetes' sources, as ``build.sh`` copies it.
    name : str
        One of `SHAPES`.
    nodes : int
    """
    import yaml

    shape = SHAPES[name]
    area = folder / (shape.area or "misc")
    if shape.area:
        cases = yaml.safe_load((area / "performance-config.yaml").read_text(encoding="utf-8"))
        case = next(one for one in cases if one["name"] == shape.name)
    else:
        case = _GANG
    size = next(one for one in case["workloads"] if one["name"] == shape.size)
    numbers = {key: math.ceil(value * nodes / shape.nodes) for key, value in size["params"].items()}

    def template(path: str) -> Any:
        return yaml.safe_load((area / path).read_text(encoding="utf-8"))

    found = Workload(name, nodes)
    default: Mapping[str, str] = {
        "createNodes": "../templates/node-default.yaml",
        "createPods": case.get("defaultPodTemplatePath", "../templates/pod-default.yaml"),
        "createGangs": case.get("defaultPodTemplatePath", ""),
    }
    for given in case["workloadTemplate"]:
        one = dict(given)
        if "countParam" in one:
            one["count"] = numbers[one["countParam"].removeprefix("$")]
        code = one["opcode"]
        path = one.get("podTemplatePath") or one.get("nodeTemplatePath") or default.get(code)
        if path:
            one["template"] = template(path)
        one["templates"] = [template(each) for each in one.get("templatePaths") or ()]
        found.operations.append(one)
    return found
