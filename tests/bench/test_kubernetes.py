"""The comparison with kube-scheduler: its verifier, its workloads, and a machine without the programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import kubernetes as experiment
from bench.kubernetes.shapes import read
from bench.kubernetes.verify import broken

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def node(name: str, labels: Any = None, taints: Any = (), **has: str) -> dict[str, Any]:
    amounts = {"cpu": "2", "memory": "1Gi", "pods": "3"} | has
    about = {"name": name, "labels": {"host": name} | (labels or {})}
    return {"metadata": about, "spec": {"taints": list(taints)}, "status": {"allocatable": amounts}}


def pod(name: str, on: str | None = "a", cpu: str = "500m", labels: Any = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    where = {} if on is None else {"nodeName": on}
    about = {"name": name, "namespace": "s", "labels": labels or {"app": name}}
    return {"metadata": about, "spec": {"containers": [container], **where, **spec}}


def apart(key: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "x"}}}
    return {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}


def near(key: str) -> dict[str, Any]:
    term = {
        "topologyKey": key,
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}]},
    }
    return {"affinity": {"podAffinity": {REQUIRED: [term]}}}


def zone(*values: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": list(values)}]}]
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


X = {"labels": {"app": "x"}}
SPREAD = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
SPREAD["labelSelector"] = {"matchLabels": {"app": "x"}}
TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("pods", "text"),
    [
        ([pod("p", cpu="1"), pod("q", cpu="1")], ""),
        ([pod("p", cpu="1"), pod("q", cpu="1001m")], "2.001 of 2 cpu"),
        ([pod(str(i), cpu="1m") for i in range(4)], "4 of 3 pods"),
        ([pod("p", "gone")], "node gone is not there"),
        ([pod("p", schedulingGates=[{"name": "g"}])], "scheduling gate"),
        ([pod("p", **zone("x"))], ""),
        ([pod("p", **zone("y"))], "node affinity"),
        ([pod("p", nodeSelector={"zone": "y"})], "node selector"),
        ([pod("p", "t")], "taint k"),
        ([pod("p", "t", tolerations=[{"key": "k", "value": "v"}])], ""),
        ([pod("p", "a", **X, **apart("zone")), pod("q", "c", **X)], ""),
        ([pod("p", "a", **X, **apart("zone")), pod("q", "b", **X)], "anti-affinity"),
        ([pod("p", "a", **apart("zone")), pod("q", "b", **X)], "anti-affinity"),
        ([pod("p", "a", **near("zone")), pod("q", "b", **X)], ""),
        ([pod("p", "a", **near("zone")), pod("q", "c", **X)], "affinity, no such pod"),
        ([pod("p", "a", **X, topologySpreadConstraints=[SPREAD]), pod("q", "b", **X)], "spread over zone"),
        ([pod("p", "a", **X, topologySpreadConstraints=[SPREAD]), pod("q", "c", **X)], ""),
        ([pod("p", schedulingGroup={"podGroupName": "g"}), pod("q", schedulingGroup={"podGroupName": "g"})], ""),
        ([pod("p", schedulingGroup={"podGroupName": "g"}), pod("q", None, schedulingGroup={"podGroupName": "g"})], "pod group s/g"),
    ],
)  # fmt: skip
def test_the_verifier_sees_each_broken_rule(pods: list[Any], text: str) -> None:
    nodes = [node("a", {"zone": "x"}), node("b", {"zone": "x"}), node("c", {"zone": "y"}), node("t", taints=[TAINT])]
    group = {"metadata": {"name": "g", "namespace": "s"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    found = broken(nodes, pods, [group])
    assert (bool(found), text in " ".join(found)) == (bool(text), True), found


def test_a_workload_has_numbers_in_proportion_to_the_nodes(tmp_path: Path) -> None:
    for name in ("misc", "templates"):
        (tmp_path / name).mkdir()
    (tmp_path / "misc/performance-config.yaml").write_text(
        "- name: SchedulingBasic\n  defaultPodTemplatePath: ../templates/own.yaml\n  workloadTemplate:\n"
        "  - {opcode: createNodes, countParam: $initNodes}\n  - {opcode: createPods, countParam: $measurePods}\n"
        "  workloads:\n  - {name: 5000Nodes_10000Pods, params: {initNodes: 5000, measurePods: 10000}}\n"
    )
    (tmp_path / "templates/own.yaml").write_text("kind: Pod")
    (tmp_path / "templates/node-default.yaml").write_text("kind: Node")
    (tmp_path / "templates/pod-default.yaml").write_text("kind: Default")
    found = read(tmp_path, "SchedulingBasic", 500).operations
    assert [(one["count"], one["template"]["kind"]) for one in found] == [(500, "Node"), (1000, "Pod")]
    gangs = read(tmp_path, "Gang", 500).operations
    assert [(one["count"], one["template"]["kind"]) for one in gangs] == [
        (500, "Node"),
        (100, "Default"),
        (300, "Default"),
    ]


def test_without_the_programs_a_note_says_what_is_missing(tmp_path: Path) -> None:
    outcome = experiment.run(quick=True, say=print, programs=tmp_path)
    assert not outcome.rows and "etcd, apiserver, scheduler_perf missing" in outcome.notes[0]
