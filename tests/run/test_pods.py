"""Pods and nodes of Kubernetes as tasks and machines: quantities, sums of requests, selectors, and rules on other pods."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import flowsched as fs
from flowsched.cluster.model import LARGEST
from flowsched.cluster.selectors import wanted_labels
from flowsched.run.executor import Run
from flowsched.run.podrules import Present, Rules, WaitsError
from flowsched.run.pods import (
    FIELDS,
    NAME,
    UnsupportedError,
    ask_of,
    facts,
    machine_of,
    made,
    meets_terms,
    node_terms,
    quantity,
    requests,
    selector,
    selects,
)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1", 1), ("+2", 2), (3, 3), ("0.5", 0.5), (".5", 0.5), ("5.", 5), ("500m", 0.5), ("250u", 25e-5), ("10n", 1e-8),
        ("2k", 2e3), ("1M", 1e6), ("1E", 1e18), ("1Ki", 1024), ("1.5Gi", 1.5 * 2**30), ("1Ei", 2.0**60), ("12e3", 12e3),
        ("1E3", 1e3), ("1e-2", 0.01),
    ],
)  # fmt: skip
def test_quantities(text: Any, amount: float) -> None:
    assert quantity(text) == pytest.approx(amount, rel=1e-12)


def test_shares_of_devices_are_refused() -> None:
    run = Run(1, "t", "n", payload="true", demand={"cpu": 0.5, "mem": 1.5, "gpu": 2, "example.com/fpga": 1})
    (one,) = made(run, "p", "d", "image")["spec"]["containers"]
    whole = {"nvidia.com/gpu": "2", "example.com/fpga": "1"}
    assert one["resources"] == {"requests": {"cpu": "500m", "memory": "2Mi", **whole}, "limits": whole}
    with pytest.raises(fs.InputError, match="whole devices, got 0.25 of gpu"):
        made(replace(run, demand={"gpu": 0.25}), "p", "d", "image")


@pytest.mark.parametrize("text", ["", "four", "1K", "1ki", "1 Gi", "1e", "--1", "1Zi"])
def test_no_quantities(text: str) -> None:
    with pytest.raises(ValueError, match="a quantity expected"):
        quantity(text)


def container(cpu: str = "1", **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}


def pod(name: str = "p", labels: Any = None, space: str = "s", node: str | None = None, **spec: Any) -> dict[str, Any]:
    spec.setdefault("containers", [container()])
    if node is not None:
        spec["nodeName"] = node
    about = {"name": name, "namespace": space, "uid": f"uid-{name}", "labels": labels or {}}
    return {"metadata": about, "spec": {"schedulerName": "flowsched", **spec}}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [container("1"), container("500m")]}, 1.5),
        ({"initContainers": [container("3")]}, 3),
        ({"initContainers": [container("2", restartPolicy="Always")]}, 3),
        ({"initContainers": [container("1", restartPolicy="Always"), container("4")]}, 5),
        ({"initContainers": [container("4"), container("1", restartPolicy="Always")]}, 4),
        ({"resources": {"requests": {"cpu": "5"}}}, 5),
        ({"overhead": {"cpu": "250m"}}, 1.25),
        ({"resources": {"requests": {"cpu": "5"}}, "overhead": {"cpu": "1"}}, 6),
        ({"containers": [{"name": "c"}]}, 0),
    ],
)
def test_requests_add_up(spec: dict[str, Any], cpu: float) -> None:
    assert requests(pod(**spec))["cpu"] == cpu


def test_a_resize_counts_the_larger_amount() -> None:
    one = pod() | {"status": {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "3"}}]}}
    assert requests(one)["cpu"] == 3


@pytest.mark.parametrize(("reason", "cpu"), [("Deferred", 8), ("Infeasible", 2)])
def test_a_resize_that_never_happens_counts_nothing(reason: str, cpu: int) -> None:
    now = {"name": "c", "allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "1"}}}
    pending = {"type": "PodResizePending", "status": "True", "reason": reason}
    one = pod(containers=[container("8")]) | {"status": {"containerStatuses": [now], "conditions": [pending]}}
    assert requests(one)["cpu"] == cpu


def test_all_resources_have_a_name() -> None:
    asks = {
        "memory": "1Gi",
        "ephemeral-storage": "2Gi",
        "hugepages-2Mi": "4Mi",
        "nvidia.com/gpu": "2",
        "google.com/tpu": "8",
    }
    found = requests(pod(containers=[{"name": "c", "resources": {"requests": asks}}]))
    assert found == {"mem": 1024, "ephemeral-storage": 2048, "hugepages-2Mi": 4, "gpu": 2, "google.com/tpu": 8}
    huge = requests(pod(containers=[{"name": "c", "resources": {"requests": {"x.org/y": "9E"}}}]))
    assert huge["x.org/y"] == LARGEST


def test_selectors() -> None:
    labels = {"a": "1", "b": "2"}
    expressions = [
        {"key": "a", "operator": "In", "values": ["1", "3"]},
        {"key": "c", "operator": "NotIn", "values": ["1"]},
        {"key": "b", "operator": "Exists"},
        {"key": "c", "operator": "DoesNotExist"},
    ]
    assert selects(selector("", {"matchLabels": {"b": "2"}, "matchExpressions": expressions}), labels)
    for i in range(4):
        assert selects(selector("", {"matchExpressions": [expressions[i]]}), labels)
    assert selects(selector("", {}), labels) and not selects(selector("", None), labels)
    with pytest.raises(UnsupportedError, match=r"^x\.matchExpressions\[0\]\.operator: 'Near' is not known"):
        selector("x", {"matchExpressions": [{"key": "a", "operator": "Near"}]})


@pytest.mark.parametrize(
    ("terms", "names"),
    [
        ([{"matchExpressions": [{"key": "n", "operator": "Gt", "values": ["5"]}]}], {"a"}),
        ([{"matchExpressions": [{"key": "n", "operator": "Lt", "values": ["5"]}]}], {"b"}),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["c"]}]}], {"c"}),
        ([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["c"]}]}], {"a", "b"}),
        ([{"matchExpressions": [{"key": "n", "operator": "DoesNotExist"}]}, {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}], {"a"}),
        ([{}], set()),
        ([], set()),
    ],
)  # fmt: skip
def test_terms_of_nodes(terms: Any, names: set[str]) -> None:
    labels = {"a": {"n": "12"}, "b": {"n": "-3"}, "c": {"n": "5.5"}}
    found = node_terms("", terms)
    assert {name for name, have in labels.items() if meets_terms(found, have | {NAME: name})} == names


def node(name: str, labels: Any = None, taints: Any = (), **has: str) -> dict[str, Any]:
    amounts = {"cpu": "4", "memory": "4Gi", "pods": "10"} | {key.replace("_", "-"): text for key, text in has.items()}
    about = {"name": name, "labels": {"host": name} | (labels or {})}
    return {"metadata": about, "spec": {"taints": list(taints)}, "status": {"allocatable": amounts}}


def required(*terms: Any) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


def starts_on(spec: dict[str, Any], nodes: list[dict[str, Any]]) -> set[Any]:
    """Return the nodes on which a scheduler would start a pod."""
    ask, found = ask_of("p", pod(**spec)), set()
    for each in nodes:
        sched = fs.Scheduler(resources=("cpu",))
        sched.apply(machine_of(each, (), ("cpu",), ask.wanted), fs.JobSubmitted("p", [ask.task(("cpu",))]))
        found |= set(sched.schedule(0.0).placements.values())
    return found


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ({}, {"a", "b", "c"}),
        ({"nodeSelector": {"zone": "x"}}, {"a", "b"}),
        (required(expression("zone", "In", "nowhere")), set()),
        (required(expression("zone", "NotIn", "x")), {"c"}),
        (required(expression("zone", "In", "nowhere"), expression("host", "In", "b")), {"b"}),
        (required(expression("size", "Gt", "4")), {"b"}),
        (required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["c"]}]}), {"c"}),
        (required(expression("size", "Gt", "4")) | {"nodeSelector": {"host": "a"}}, set()),
        ({"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": expression("host", "In", "a")}]}}}, {"a", "b", "c"}),
        ({"tolerations": [{"operator": "Exists"}]}, {"a", "b", "c", "tainted"}),
        ({"tolerations": [{"key": "t", "value": "v", "effect": "NoExecute", "tolerationSeconds": 300}]}, {"a", "b", "c", "tainted"}),
        ({"tolerations": [{"key": "t", "operator": "Equal", "value": "other"}]}, {"a", "b", "c"}),
    ],
)  # fmt: skip
def test_nodes_on_which_a_pod_may_start(spec: dict[str, Any], names: set[str]) -> None:
    taints = [{"key": "t", "value": "v", "effect": "NoExecute"}]
    nodes = [
        node("a", {"zone": "x", "size": "4"}),
        node("b", {"zone": "x", "size": "8"}),
        node("c", {"size": "4.5"}),
        node("tainted", taints=taints),
    ]
    assert starts_on(spec, nodes) == names


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"placementOfTheFuture": 1}, "spec.placementOfTheFuture"),
        ({"resourceClaims": [{"name": "g"}]}, "spec.resourceClaims"),
        ({"affinity": {"rackAffinity": {}}}, "spec.affinity.rackAffinity"),
        (required(expression("a", "Near", "b")), f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].operator"),
        ({"tolerations": [{"key": "a", "operator": "Lt", "value": "5"}]}, "spec.tolerations[0].operator"),
        ({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "rbd": {}}]}, "spec.volumes[1].rbd"),
        ({"preemptionPolicy": "Sometimes"}, "spec.preemptionPolicy"),
        ({"topologySpreadConstraints": [{"topologyKey": "z", "maxSkew": 1, "minReplicas": 2}]}, "spec.topologySpreadConstraints[0].minReplicas"),
        ({"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "z", "near": 1}]}}}, f"spec.affinity.podAffinity.{REQUIRED}[0].near"),
        ({"affinity": {"podAntiAffinity": {"requiredAlways": []}}}, "spec.affinity.podAntiAffinity.requiredAlways"),
    ],
)  # fmt: skip
def test_an_unknown_field_is_named(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        ask_of("p", pod(**spec))
    assert caught.value.field == field and str(caught.value).startswith(field)


def test_fields_that_do_not_constrain_are_translated() -> None:
    ask = ask_of("p", pod(**{name: None for name in FIELDS if name != "containers"}))
    assert not ask.constraints and not ask.spread and not ask.never


# -- rules on other pods ----------------------------------------------------------------------------------------------


def present(nodes: list[Any], pods: list[Any], **objects: dict[str, Any]) -> Present:
    there = Present()
    for one in nodes:
        there.set_node(one["metadata"]["name"], one)
    for i, one in enumerate(pods):
        there.set_pod(f"/{i}", facts(f"/{i}", one))
    there.objects |= objects
    return there


def names(there: Present, one: dict[str, Any], counted: tuple[str, ...] = ("cpu", "mem")) -> set[str] | str:
    """Return the nodes that the rules of a pod allow, or the text for which it waits."""
    from flowsched.cluster.selectors import meets

    ask = ask_of("/new", one)
    if there.plain(ask, counted):
        return set(there.nodes)
    try:
        rules: Rules = there.rules(ask, counted)
    except (WaitsError, UnsupportedError) as error:
        return str(error)

    def good(labels: dict[str, str]) -> bool:
        own = labels | {label: "" for label, terms in rules.wanted.items() if terms and meets_terms(terms, labels)}
        return all(meets(own.get(label), [each]) for label, wanted in rules.require.items() for each in wanted)

    return {name for name, each in there.nodes.items() if good(each.labels)}


NODES = [node("a", {"zone": "x"}), node("b", {"zone": "x"}), node("c", {"zone": "y"}), node("d")]


def term(key: str, selects: Any, **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": selects, **more}


def anti(*terms: Any) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}}


def near(*terms: Any) -> dict[str, Any]:
    return {"affinity": {"podAffinity": {REQUIRED: list(terms)}}}


APP = {"matchLabels": {"app": "x"}}
OF_APP = {"labels": {"app": "x"}}


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        (anti(term("host", APP)), {"b", "c", "d"}),
        (anti(term("zone", APP)), {"c", "d"}),
        (anti(term("zone", APP, namespaces=["other"])), {"a", "b", "c", "d"}),
        (anti(term("zone", {"matchLabels": {"app": "y"}}, namespaces=["other"])), {"a", "b", "d"}),
        (anti(term("zone", {}, namespaceSelector={})), {"d"}),
        (anti(term("zone", {}, namespaceSelector={"matchLabels": {"team": "b"}})), {"a", "b", "d"}),
        (anti(term("zone", None)), {"a", "b", "c", "d"}),
        (near(term("zone", APP)), {"a", "b"}),
        (near(term("host", APP), term("zone", APP)), {"a"}),
        (near(term("zone", {"matchLabels": {"app": "none"}})), f"no node meets spec.affinity.podAffinity.{REQUIRED}[0]"),
        (near(term("zone", {"matchLabels": {"me": "1"}})) | {"labels": {"me": "1"}}, {"a", "b", "c"}),
        (near(term("zone", APP)) | OF_APP, {"a", "b"}),
    ],
)  # fmt: skip
def test_affinity_and_anti_affinity(spec: dict[str, Any], allowed: Any) -> None:
    pods = [pod("one", {"app": "x"}, node="a"), pod("two", {"app": "y"}, space="other", node="c")]
    spaces = {"other": {"metadata": {"labels": {"team": "b"}}}}
    assert names(present(NODES, pods, namespaces=spaces), pod(**spec)) == allowed


def test_a_selector_of_namespaces_needs_them() -> None:
    there = present(NODES, [pod("one", {"app": "x"}, node="a")])
    spec = anti(term("zone", {}, namespaces=["other"], namespaceSelector={"matchLabels": {"team": "b"}}))
    assert (
        names(there, pod(**spec))
        == f"spec.affinity.podAntiAffinity.{REQUIRED}[0].namespaceSelector: namespaces cannot be read"
    )


def test_the_anti_affinity_of_a_pod_that_is_there_counts() -> None:
    there = present(NODES, [pod("one", node="a", **anti(term("zone", APP)))])
    assert names(there, pod(labels={"app": "x"})) == {"c", "d"}
    assert names(there, pod(labels={"app": "x"}, space="other")) == {"a", "b", "c", "d"}
    there.set_pod("/0", None)
    assert names(there, pod(labels={"app": "x"})) == {"a", "b", "c", "d"}


def spread(skew: int = 1, **more: Any) -> dict[str, Any]:
    one = {"maxSkew": skew, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": APP, **more}
    return {"topologySpreadConstraints": [one]}


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        (spread() | OF_APP, {"c"}),
        (spread(), {"a", "b", "c"}),
        (spread(2) | OF_APP, {"a", "b", "c"}),
        (spread(2, minDomains=3) | OF_APP, {"a", "b", "c"}),
        (spread(1, minDomains=3) | OF_APP, {"c"}),
        (spread() | OF_APP | {"nodeSelector": {"zone": "x"}}, {"a", "b"}),
        (spread(nodeAffinityPolicy="Ignore") | OF_APP | {"nodeSelector": {"zone": "x"}}, {"c"}),
        (spread(whenUnsatisfiable="ScheduleAnyway") | OF_APP, {"a", "b", "c", "d"}),
        (spread(matchLabelKeys=["rev"]) | {"labels": {"app": "x", "rev": "2"}}, {"a", "b", "c"}),
    ],
)  # fmt: skip
def test_spread(spec: dict[str, Any], allowed: set[str]) -> None:
    ending = pod("gone", {"app": "x", "rev": "1"}, node="c")
    ending["metadata"]["deletionTimestamp"] = "now"
    pods = [pod("one", {"app": "x", "rev": "1"}, node="a"), ending, pod("else", {"app": "x"}, space="other", node="c")]
    assert names(present(NODES, pods), pod(**spec)) == allowed


def test_spread_may_heed_taints() -> None:
    nodes = [*NODES[:3], node("e", {"zone": "z"}, taints=[{"key": "t", "effect": "NoExecute"}])]
    pods = [pod(str(i), {"app": "x"}, node=name) for i, name in enumerate("ac")]
    assert names(present(nodes, pods), pod(**spread() | OF_APP)) == {"e"}
    assert names(present(nodes, pods), pod(**spread(nodeTaintsPolicy="Honor") | OF_APP)) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("port", "allowed"),
    [
        ({"hostPort": 80}, {"b", "c", "d"}),
        ({"hostPort": 81}, {"a", "b", "c", "d"}),
        ({"hostPort": 80, "protocol": "UDP"}, {"a", "b", "c", "d"}),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"b", "c", "d"}),
        ({"hostPort": 443, "hostIP": "10.0.0.2"}, {"a", "b", "c", "d"}),
        ({"hostPort": 443, "hostIP": "10.0.0.1"}, {"b", "c", "d"}),
        ({"hostPort": 443}, {"b", "c", "d"}),
        ({"containerPort": 80}, {"a", "b", "c", "d"}),
    ],
)
def test_host_ports(port: dict[str, Any], allowed: set[str]) -> None:
    taken = [{"hostPort": 80}, {"hostPort": 443, "hostIP": "10.0.0.1"}]
    pods = [pod("one", node="a", containers=[container(ports=taken)])]
    assert names(present(NODES, pods), pod(containers=[container(ports=[port])])) == allowed


def asks(**amounts: str) -> dict[str, Any]:
    given = {key.replace("_", "-"): text for key, text in amounts.items()}
    return {"containers": [{"name": "c", "resources": {"requests": given}}]}


def test_resources_that_the_scheduler_does_not_count() -> None:
    nodes = [node("a", ephemeral_storage="10Gi"), node("b", ephemeral_storage="1Gi"), node("c")]
    there = present(nodes, [pod("one", node="a", **asks(ephemeral_storage="6Gi"))])
    assert names(there, pod(**asks(ephemeral_storage="1Gi"))) == {"a", "b"}
    assert names(there, pod(**asks(ephemeral_storage="4Gi"))) == {"a"}
    assert (
        names(there, pod(**asks(ephemeral_storage="5Gi")))
        == "no node meets spec.containers[*].resources.requests.ephemeral-storage"
    )
    assert names(there, pod(**asks(ephemeral_storage="5Gi")), ("ephemeral-storage",)) == {"a", "b", "c"}


def test_a_pod_that_displaces_no_other_needs_free_room() -> None:
    nodes = [node("a"), node("b"), node("c", pods="1")]
    there = present(nodes, [pod("one", node="a", containers=[container("3")]), pod("two", node="c")])
    assert names(there, pod(preemptionPolicy="Never", containers=[container("2")])) == {"b"}
    assert str(names(there, pod(preemptionPolicy="Never", containers=[container("5")]))).startswith("no node meets")


def claim(name: str, volume: str | None, phase: str = "Bound") -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "s"}, "spec": {"volumeName": volume}, "status": {"phase": phase}}


def volume(name: str, labels: Any = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"accessModes": ["ReadWriteOnce"], **spec}}


VOLUMES = {
    "local": volume("local", nodeAffinity={"required": {"nodeSelectorTerms": [expression("host", "In", "b"), expression("host", "In", "c")]}}),
    "zonal": volume("zonal", {"topology.kubernetes.io/zone": "z1__z2"}),
    "once": volume("once", accessModes=["ReadWriteOncePod"]),
    "csi": volume("csi", csi={"driver": "d", "volumeHandle": "h1"}),
    "csi2": volume("csi2", csi={"driver": "d", "volumeHandle": "h2"}),
    "disk": volume("disk", gcePersistentDisk={}),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("local", {"b", "c"}),
        ("zonal", {"a"}),
        ("once", "spec.volumes[0].persistentVolumeClaim: pod /1 uses claim 'once'"),
        ("csi", {"a", "b", "c"}),
        ("csi2", {"b", "c"}),
        ("disk", "spec.volumes[0].persistentVolumeClaim: volume 'disk' is of the kind gcePersistentDisk"),
        ("open", "spec.volumes[0].persistentVolumeClaim: claim 'open' is not bound to a volume"),
        ("none", "spec.volumes[0].persistentVolumeClaim: claim 'none' is not there"),
    ],
)
def test_volumes(name: str, allowed: Any) -> None:
    def uses(claim: str) -> dict[str, Any]:
        return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}

    nodes = [
        node("a", {"topology.kubernetes.io/zone": "z2"}),
        node("b", {"topology.kubernetes.io/zone": "z3"}),
        node("c"),
    ]
    claims = {f"s/{each}": claim(each, each) for each in VOLUMES} | {"s/open": claim("open", None, "Pending")}
    driver = {"name": "d", "allocatable": {"count": 1}}
    there = present(
        nodes,
        [pod("one", node="a", **uses("csi")), pod("two", node="b", **uses("once"))],
        persistentvolumeclaims=claims,
        persistentvolumes=VOLUMES,
        csinodes={"a": {"spec": {"drivers": [driver]}}, "b": {"spec": {"drivers": [driver]}}},
    )
    assert names(there, pod(**uses(name))) == allowed
    del there.objects["persistentvolumes"]
    if name not in ("none",):
        assert "cannot be read" in names(there, pod(**uses(name)))


def test_budgets_protect() -> None:
    there = present(NODES, [pod(str(i), {"app": "x"}, node="a") for i in range(3)] + [pod("other", node="a")])
    assert there.protected(["/3"]) == "none can be read"
    about = {"name": "keep", "namespace": "s"}
    there.objects["poddisruptionbudgets"] = {
        "s/keep": {"metadata": about, "spec": {"selector": APP}, "status": {"disruptionsAllowed": 1}}
    }
    assert there.protected(["/0"]) is None and there.protected(["/3"]) is None
    assert there.protected(["/0", "/1"]) == "s/keep"
    there.objects["poddisruptionbudgets"]["s/too"] = there.objects["poddisruptionbudgets"]["s/keep"]
    assert there.protected(["/0"]) == "s/too", "the server evicts no pod with two budgets"


def test_one_bad_object_is_an_error_of_its_own() -> None:
    bad = json.loads(json.dumps(pod()))
    bad["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "four"
    with pytest.raises(ValueError, match="a quantity expected, got 'four'"):
        ask_of("p", bad)


def spread_over(key: str, **more: Any) -> dict[str, Any]:
    rule = {"topologyKey": key, "maxSkew": 1, "labelSelector": APP, **more}
    return {"topologySpreadConstraints": [rule]}


RULED = [
    {}, OF_APP, anti(term("host", APP)), anti(term("zone", APP)) | OF_APP, anti(term("zone", {}, namespaceSelector={"matchLabels": {"team": "b"}})),
    near(term("zone", APP)), near(term("host", APP), term("zone", {"matchLabels": {"app": "y"}})), near(term("zone", APP)) | OF_APP,
    spread_over("zone") | OF_APP, spread_over("zone", minDomains=3, nodeTaintsPolicy="Honor"), spread_over("host", maxSkew=2) | OF_APP,
    spread_over("zone") | {"nodeSelector": {"zone": "x"}} | OF_APP,
]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_numbers_that_are_kept_are_those_of_counting_again(seed: int) -> None:
    """Nodes and pods come, change and go: rules, and the check of a node, are those of a new `Present`."""
    rnd = Random(seed)
    nodes, pods, spaces = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    kept = present([], [], namespaces={})

    def step() -> None:
        kind = rnd.random()
        if kind < 0.3:
            name = rnd.choice("abcde")
            labels = {"host": name} | rnd.choice([{}, {"zone": "x"}, {"zone": "y"}, {"zone": "z"}])
            nodes[name] = None if kind < 0.05 else node(name, labels)
            kept.set_node(name, nodes[name])
        elif kind < 0.4:
            name = rnd.choice(["s", "other"])
            spaces[name] = {"metadata": {"name": name, "labels": {"team": rnd.choice("ab")}}}
            kept.set_object("namespaces", name, spaces[name])
        else:
            path = f"/{rnd.randrange(12)}"
            spec = rnd.choice(RULED) | {"space": rnd.choice(["s", "other"]), "node": rnd.choice("abcde")}
            one = pod(path[1:], spec.pop("labels", {"app": rnd.choice("xy")}), **spec)
            if rnd.random() < 0.1:
                one["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            pods[path] = None if rnd.random() < 0.3 else one
            kept.set_pod(path, None if pods[path] is None else facts(path, one))

    for _ in range(150):
        step()
        there = {name: one for name, one in nodes.items() if one is not None}
        made = Present()
        for name, one in there.items():
            made.set_node(name, one)
        for path, one in pods.items():
            if one is not None:
                made.set_pod(path, facts(path, one))
        made.objects["namespaces"] = dict(spaces)
        spec = dict(rnd.choice(RULED))
        new = pod("new", spec.pop("labels", {}), **spec)
        allowed = names(kept, new)
        assert allowed == names(made, new)
        ask = ask_of("/new", new)
        good = {name for name in there if ask.suits(kept.nodes[name].labels) and kept.admits(ask, name)}
        assert good == (
            set() if isinstance(allowed, str) else {name for name in allowed if ask.suits(kept.nodes[name].labels)}
        )


def test_pods_of_a_wave_have_their_requirements_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    there = present(NODES, [pod("one", {"app": "x"}, node="a")])
    kinds: list[dict[str, Any]] = [
        {}, {"nodeSelector": {"zone": "x"}}, {"containers": [container("2")]},
        {"tolerations": [{"key": "k", "operator": "Exists"}]},
    ]  # fmt: skip
    asks = [ask_of(f"/{i}", pod(f"{i}", {"app": "x"}, **anti(term("host", APP)), **kinds[i % 4])) for i in range(40)]
    rules = there.rules(asks[0], ("cpu", "mem"))
    expected, calls = [ask.task(("cpu", "mem"), rules.require) for ask in asks], list[str]()
    monkeypatch.setattr(
        "flowsched.cluster.model.wanted_labels",
        lambda what, labels: (calls.append(what), wanted_labels(what, labels))[1],
    )
    assert [rules.task(ask, ("cpu", "mem")) for ask in asks] == expected
    assert sum("constraints" in what for what in calls) == len(kinds)


def test_a_trial_leaves_no_trace() -> None:
    there = present(NODES, [pod("one", {"app": "x"}, node="a")])
    ask, version = ask_of("/new", pod("new", {"app": "x"}, **anti(term("zone", APP)))), there.version
    assert [there.admits(ask, name) for name in "abcd"] == [False, False, True, True]
    with there.trial() as place:
        place("/new", ask.facts, "c")
        other = ask_of("/more", pod("more", {"app": "x"}))
        assert [there.admits(other, name) for name in "abcd"] == [True, True, False, True]
    assert there.version == version and ask.facts.node is None and there.admits(other, "c")
