"""Rules of the Kubernetes API on a set of placed pods, written from the API's documentation and apart from the scheduler.

It is given the objects as the API server has them at the end of a run, and returns a line for each rule that is broken.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

__all__ = ["broken"]

Object = Mapping[str, Any]

_FACTORS = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1)}
_FACTORS |= {letter: Decimal(1000) ** i for i, letter in enumerate("kMGTPE", 1)}
_FACTORS |= {f"{letter}i": Decimal(1024) ** i for i, letter in enumerate("KMGTPE", 1)}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def broken(nodes: Sequence[Object], pods: Sequence[Object], groups: Sequence[Object] = ()) -> list[str]:
    """Return the rules that the bound pods break.

    Rules on other pods are checked on the state at the end, so they are exact where no pod has left.

    Parameters
    ----------
    nodes, pods, groups : sequence of mapping
        All nodes, pods and pod groups that are there.
    """
    by_name = {node["metadata"]["name"]: node for node in nodes}
    placed = [pod for pod in pods if pod["spec"].get("nodeName") and not _is_over(pod)]
    found = list[str]()
    for pod in placed:
        node = by_name.get(pod["spec"]["nodeName"])
        if node is None:
            found.append(f"{_name(pod)}: node {pod['spec']['nodeName']} is not there")
        else:
            found += [f"{_name(pod)} on {node['metadata']['name']}: {why}" for why in _on_node(pod, node)]
    there = [pod for pod in placed if pod["spec"]["nodeName"] in by_name]
    found += _amounts(by_name, there)
    found += _between(by_name, there)
    found += _spread(by_name, there)
    found += _gangs(by_name, there, groups)
    return found


def _name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _is_over(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _labels(one: Object) -> Mapping[str, str]:
    return one["metadata"].get("labels") or {}


def _number(text: Any) -> Decimal:
    text = str(text)
    for length in (2, 1):
        if text[-length:] in _FACTORS:
            return Decimal(text[:-length]) * _FACTORS[text[-length:]]
    return Decimal(text)


def _requests(pod: Object) -> Counter[str]:
    """The sum over containers and sidecars, or an initial container's with the sidecars before it if that is more."""
    total, before, most = Counter[str](), Counter[str](), Counter[str]()

    def of(container: Object) -> Counter[str]:
        asked = (container.get("resources") or {}).get("requests") or {}
        return Counter({name: _number(text) for name, text in asked.items()})

    for container in pod["spec"].get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            before.update(of(container))
        else:
            most |= before + of(container)
    for container in pod["spec"]["containers"]:
        total.update(of(container))
    total.update(before)
    total |= most
    total.update({name: _number(text) for name, text in (pod["spec"].get("overhead") or {}).items()})
    total["pods"] = 1
    return total


def _amounts(nodes: Mapping[str, Object], pods: Sequence[Object]) -> Iterator[str]:
    used = defaultdict[str, Counter[str]](Counter)
    for pod in pods:
        used[pod["spec"]["nodeName"]].update(_requests(pod))
    for name, total in used.items():
        has = nodes[name]["status"].get("allocatable") or {}
        for resource, amount in total.items():
            if amount > _number(has.get(resource, 0)):
                yield f"node {name}: {amount} of {has.get(resource, 0)} {resource} are requested"


def _expression(one: Object, labels: Mapping[str, str]) -> bool:
    key, operator = str(one["key"]), str(one["operator"])
    values: list[str] = one.get("values") or []
    value: str | None = labels.get(key)
    if operator in ("In", "NotIn"):
        return (value in values) == (operator == "In")
    if operator in ("Exists", "DoesNotExist"):
        return (value is None) == (operator == "DoesNotExist")
    if value is None or not value.lstrip("+-").isdigit():
        return False
    return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])


def _selected(selector: Object | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    exact: bool = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return exact and all(_expression(one, labels) for one in selector.get("matchExpressions") or ())


def _suits(pod: Object, node: Object) -> bool:
    """Return True if a node meets the node selector and the required node affinity."""
    labels, spec = _labels(node), pod["spec"]
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    if not required:
        return True
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(
        all(_expression(one, labels) for one in term.get("matchExpressions") or ())
        and all(_expression(one, fields) for one in term.get("matchFields") or ())
        for term in required["nodeSelectorTerms"]
        if term
    )


def _on_node(pod: Object, node: Object) -> Iterator[str]:
    if pod["spec"].get("schedulingGates"):
        yield "it has a scheduling gate"
    if not _suits(pod, node):
        yield "its node selector or node affinity is not met"
    for taint in node["spec"].get("taints") or ():
        if taint["effect"] == "NoSchedule" and not any(
            _tolerates(one, taint) for one in pod["spec"].get("tolerations") or ()
        ):
            yield f"taint {taint['key']}"


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    return toleration.get("operator") == "Exists" or (toleration.get("value") or "") == (taint.get("value") or "")


def _terms(pod: Object, kind: str) -> Sequence[Object]:
    return ((pod["spec"].get("affinity") or {}).get(kind) or {}).get(_REQUIRED) or ()


def _matches(term: Object, owner: Object, other: Object) -> bool:
    """Return True if a term of one pod selects another.  A namespace selector is not used by these workloads."""
    if term.get("namespaceSelector") is not None:
        raise NotImplementedError("namespaceSelector")
    spaces = term.get("namespaces") or [owner["metadata"]["namespace"]]
    return other["metadata"]["namespace"] in spaces and _selected(term.get("labelSelector"), _labels(other))


def _between(nodes: Mapping[str, Object], pods: Sequence[Object]) -> Iterator[str]:
    """Required affinity and anti-affinity, by the domains in which each kind of pods is."""
    kinds = dict[tuple[Any, ...], Object]()
    where = defaultdict[tuple[Any, ...], list[Object]](list)
    for pod in pods:
        kind = pod["metadata"]["namespace"], *sorted(_labels(pod).items())
        kinds.setdefault(kind, pod)
        where[kind].append(pod)
    domains = dict[tuple[str, tuple[Any, ...]], dict[str, list[Object]]]()

    def domain(key: str, kind: tuple[Any, ...]) -> dict[str, list[Object]]:
        if (key, kind) not in domains:
            found = domains[key, kind] = defaultdict(list)
            for one in where[kind]:
                value = _labels(nodes[one["spec"]["nodeName"]]).get(key)
                if value is not None:
                    found[value].append(one)
        return domains[key, kind]

    for pod in pods:
        labels = _labels(nodes[pod["spec"]["nodeName"]])
        for term in _terms(pod, "podAntiAffinity"):
            value = labels.get(term["topologyKey"])
            for kind, one in kinds.items():
                if value is not None and _matches(term, pod, one):
                    others = domain(term["topologyKey"], kind).get(value, ())
                    if any(other is not pod for other in others):
                        yield f"{_name(pod)}: anti-affinity, another pod in {term['topologyKey']}={value}"
        for term in _terms(pod, "podAffinity"):
            value = labels.get(term["topologyKey"])
            like = [kind for kind, one in kinds.items() if _matches(term, pod, one)]
            if value is None or not any(domain(term["topologyKey"], kind).get(value) for kind in like):
                yield f"{_name(pod)}: affinity, no such pod in {term['topologyKey']}={value}"


def _spread(nodes: Mapping[str, Object], pods: Sequence[Object]) -> Iterator[str]:
    seen = set[str]()
    for pod in pods:
        for one in pod["spec"].get("topologySpreadConstraints") or ():
            rule = f"{pod['metadata']['namespace']} {sorted(one.items(), key=str)}"
            if one["whenUnsatisfiable"] != "DoNotSchedule" or rule in seen:
                continue
            seen.add(rule)
            key, count = one["topologyKey"], Counter[str]()
            for node in nodes.values():
                if key in _labels(node) and _suits(pod, node):
                    count[_labels(node)[key]] += 0
            for other in pods:
                value = _labels(nodes[other["spec"]["nodeName"]]).get(key)
                same = other["metadata"]["namespace"] == pod["metadata"]["namespace"]
                if value in count and same and _selected(one.get("labelSelector"), _labels(other)):
                    count[str(value)] += 1
            least = min(count.values()) if len(count) >= one.get("minDomains", 1) else 0
            if count and max(count.values()) - least > one["maxSkew"]:
                yield f"spread over {key}: {dict(count)} differ by more than {one['maxSkew']}"


def _gangs(nodes: Mapping[str, Object], pods: Sequence[Object], groups: Sequence[Object]) -> Iterator[str]:
    known = {f"{one['metadata']['namespace']}/{one['metadata']['name']}": one for one in groups}
    members = defaultdict[str, list[Object]](list)
    for pod in pods:
        name = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
        if name:
            members[f"{pod['metadata']['namespace']}/{name}"].append(pod)
    for name, placed in members.items():
        spec = known[name]["spec"] if name in known else {}
        least = ((spec.get("schedulingPolicy") or {}).get("gang") or {}).get("minCount", 1)
        if len(placed) < least:
            yield f"pod group {name}: {len(placed)} pods have a node, at least {least} or none may"
        for topology in (spec.get("schedulingConstraints") or {}).get("topology") or ():
            values = {_labels(nodes[pod["spec"]["nodeName"]]).get(topology["key"]) for pod in placed}
            if len(values) > 1:
                yield f"pod group {name}: several values of {topology['key']}"
