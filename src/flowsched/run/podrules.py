"""Rules of Kubernetes on pods that depend on other pods, on volumes, and on resources that the scheduler does not count.

At one time, with the pods that are there, each of these rules is a requirement on labels of the nodes: affinity allows some
values of the topology's label, anti-affinity excludes some, and a host port excludes some names of nodes.  So `Present.rules`
returns requirements of `flowsched.cluster.model.Task.constraints`.  They hold until one of the pods concerned is placed or
changes.  Pods that concern each other (`Rules.concerns`) therefore take turns, see `flowsched.run.podfeed`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from flowsched.cluster.selectors import HARD, keeps_off
from flowsched.exceptions import FlowschedError
from flowsched.run.pods import (
    NAME,
    Ask,
    Facts,
    NodeTerm,
    Object,
    PodTerm,
    Requirements,
    Spread,
    UnsupportedError,
    amounts,
    node_labels,
    node_taints,
    node_terms,
    selector,
    selects,
)


class WaitsError(FlowschedError):
    """No node meets a rule now; the text names the field.

    Attributes
    ----------
    code : str
        Of `flowsched.ReasonCode`.
    """

    def __init__(self, text: str, code: str = "FILTERED") -> None:
        super().__init__(text, code)
        self.code = code

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(eq=False, slots=True)
class Rules:
    """The rules of a pod at one time.

    Parameters
    ----------
    require : dict
        Requirements on labels.
    wanted : dict
        Terms by the labels that stand for them.
    keys : set of str
        Pods with a common key concern each other.
    fields : list of str
        Those with requirements.
    """

    require: Requirements = field(default_factory=dict)
    wanted: dict[str, NodeTerm | None] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    fields: list[str] = field(default_factory=list)

    def add(self, where: str, label: str, operator: str, values: Iterable[str] = ()) -> None:
        """Add a requirement; one of no value is met by no node."""
        values = sorted(set(values))
        if operator == "In" and not values:
            raise WaitsError(f"no node meets {where}")
        if operator == "NotIn" and not values:
            return
        self.fields.append(where)
        self.require.setdefault(label, []).append((operator, *values))
        if label == NAME:
            self.wanted[NAME] = None


@dataclass(eq=False, slots=True)
class Node:
    """The parts of a node that rules read."""

    labels: dict[str, str]
    has: Counter[str]
    taints: tuple[tuple[str, str, str], ...]


def terms_of(ask: Ask) -> Iterator[PodTerm]:
    """Yield the rules of a pod on others."""
    yield from ask.affinity
    yield from ask.facts.anti
    yield from (spread.term for spread in ask.spread)


class Present:
    """Nodes, and the pods that are on them or about to be bound, with other objects on which rules depend.

    Attributes
    ----------
    version : int
        It grows with each change that may alter rules.
    objects : dict of kind to dict
        Namespaces, volumes, claims, CSI nodes and disruption budgets, as far as they can be read.
    """

    def __init__(self) -> None:
        self.version = 0
        self.nodes: dict[str, Node] = {}
        self.objects: dict[str, dict[str, Object]] = {}
        self._pods: dict[str, Facts] = {}
        self._on: dict[str, dict[str, Facts]] = {}
        self._anti: dict[str, Facts] = {}

    # -- changes ------------------------------------------------------------------------------------------------

    def set_node(self, name: str, node: Object | None) -> None:
        """Take note of a node, None for one that is gone."""
        self.nodes.pop(name, None)
        if node is not None:
            has = amounts((node.get("status") or {}).get("allocatable") or {})
            self.nodes[name] = Node(node_labels(node), has, node_taints(node))
        self.version += 1

    def set_pod(self, path: str, pod: Facts | None) -> None:
        """Take note of a pod on a node, None for one that is gone."""
        old = self._pods.pop(path, None)
        if old is not None:
            on = self._on[str(old.node)]
            del on[path]
            if not on:
                del self._on[str(old.node)]
            self._anti.pop(path, None)
        if pod is not None and pod.node is not None:
            self._pods[path] = self._on.setdefault(pod.node, {})[path] = pod
            if pod.anti:
                self._anti[path] = pod
        if old is not None or pod is not None:
            self.version += 1

    def room(self, key: str) -> dict[str, float]:
        """Return the CPUs that are free, by value of a label."""
        room = dict[str, float]()
        for name, node in self.nodes.items():
            if key in node.labels:
                used = sum(pod.requests["cpu"] for pod in self._on.get(name, {}).values())
                room[node.labels[key]] = room.get(node.labels[key], 0.0) + node.has["cpu"] - used
        return room

    def could_hold(self, ask: Ask) -> bool:
        """Return True if a node without pods would have room."""
        asked = ask.facts.requests.items()
        return any(all(node.has[name] >= amount for name, amount in asked) for node in self.nodes.values())

    # -- rules --------------------------------------------------------------------------------------------------

    def selects(self, term: PodTerm, pod: Facts) -> bool:
        """Return True if a term selects a pod."""
        if not selects(term.select, pod.labels):
            return False
        if pod.space in term.spaces:
            return True
        if term.space_select is None:
            return False
        return not term.space_select or selects(term.space_select, self._labels_of(term, pod.space))

    def _labels_of(self, term: PodTerm, space: str) -> Mapping[str, str]:
        spaces = self.objects.get("namespaces")
        if spaces is None:
            raise UnsupportedError(f"{term.field}.namespaceSelector", "namespaces cannot be read")
        return (spaces.get(space, {}).get("metadata") or {}).get("labels") or {}

    def concern(self, ask: Ask, keys: set[str], other: Ask, others: set[str]) -> bool:
        """Return True if the place of one of two pods, each with its keys, may alter the rules of the other."""
        return (
            not keys.isdisjoint(others)
            or any(self.selects(term, other.facts) for term in terms_of(ask))
            or any(self.selects(term, ask.facts) for term in terms_of(other))
        )

    def plain(self, ask: Ask, counted: Collection[str]) -> bool:
        """Return True if a pod has no rules, whatever pods there are; it may still concern others."""
        pod = ask.facts
        return not (
            self._anti
            or ask.affinity
            or pod.anti
            or ask.spread
            or pod.ports
            or pod.claims
            or ask.never
            or any(name not in counted for name in pod.requests)
        )

    def keys(self, ask: Ask, counted: Collection[str]) -> set[str]:
        """Return the keys of a pod, see `Rules`."""
        pod = ask.facts
        keys = {f"port {port}" for _, _, port in pod.ports}
        keys.update(f"resource {name}" for name in pod.requests if name not in counted)
        for where, name in pod.claims:
            spec = self._volume(where, pod.space, name)["spec"]
            if "csi" in spec:
                keys.add(f"driver {spec['csi']['driver']}")
            if _ONCE in (spec.get("accessModes") or ()):
                keys.add(f"claim {pod.space}/{name}")
        return keys

    def rules(self, ask: Ask, counted: Collection[str]) -> Rules:
        """Return the rules of a pod that waits; `counted` are the resources that the scheduler counts.

        Raises
        ------
        WaitsError
            No node meets them now.
        UnsupportedError
        """
        rules, pod = Rules(keys=self.keys(ask, counted)), ask.facts
        self._resources(ask, counted, rules)
        if pod.ports:
            rules.add("the host ports of spec.containers", NAME, "NotIn", self._with_ports(pod))
        for term in pod.anti:
            values = [value for other in self._pods.values() for value in self._domain(term, other)]
            rules.add(term.field, term.key, "NotIn", values)
        for other in self._anti.values():
            for term in other.anti:
                if self.selects(term, pod):
                    value = self._value(other, term.key)
                    rules.add(
                        f"the anti-affinity of pod {other.path}", term.key, "NotIn", () if value is None else (value,)
                    )
        if ask.affinity:
            self._affinity(ask, rules)
        for spread in ask.spread:
            self._spread(ask, spread, rules)
        for where, name in pod.claims:
            self._claim(pod, where, name, rules)
        return rules

    def _value(self, pod: Facts, key: str) -> str | None:
        node = self.nodes.get(str(pod.node))
        return None if node is None else node.labels.get(key)

    def _domain(self, term: PodTerm, pod: Facts) -> Iterator[str]:
        value = self._value(pod, term.key)
        if value is not None and self.selects(term, pod):
            yield value

    def _resources(self, ask: Ask, counted: Collection[str], rules: Rules) -> None:
        """Allow the nodes with room: for resources that the scheduler does not count, or for a pod that displaces no other."""
        asked = {name: amount for name, amount in ask.facts.requests.items() if amount > 0}
        need = asked if ask.never else {name: amount for name, amount in asked.items() if name not in counted}
        if not need and not ask.never:
            return
        good = {name for name, node in self.nodes.items() if self._has_room(name, node, need, ask.never)}
        where = ", ".join(f"spec.containers[*].resources.requests.{name}" for name in need) or "the number of pods"
        if len(good) * 2 > len(self.nodes):
            rules.add(where, NAME, "NotIn", self.nodes.keys() - good)
        else:
            rules.add(f"{where} without preemption" if ask.never else where, NAME, "In", good)

    def _has_room(self, name: str, node: Node, need: Mapping[str, float], slots: bool) -> bool:
        there = self._on.get(name, {}).values()
        if slots and "pods" in node.has and len(there) >= node.has["pods"]:
            return False
        return all(
            node.has[resource] - sum(pod.requests[resource] for pod in there) >= amount - 1e-9
            for resource, amount in need.items()
        )

    def _with_ports(self, pod: Facts) -> Iterator[str]:
        for name, there in self._on.items():
            if any(_clash(mine, other) for one in there.values() for other in one.ports for mine in pod.ports):
                yield name

    def _affinity(self, ask: Ask, rules: Rules) -> None:
        """Allow the domains in which a pod is that all terms select; the first of a group that selects itself is free."""
        chosen = [pod for pod in self._pods.values() if all(self.selects(term, pod) for term in ask.affinity)]
        domains = [
            (term, {v for pod in chosen if (v := self._value(pod, term.key)) is not None}) for term in ask.affinity
        ]
        first = not any(values for _, values in domains) and all(self.selects(term, ask.facts) for term in ask.affinity)
        for term, values in domains:
            if first:
                rules.add(term.field, term.key, "Exists")
            else:
                rules.add(term.field, term.key, "In", values)

    def _spread(self, ask: Ask, spread: Spread, rules: Rules) -> None:
        """Allow the domains that have at most `skew` more of the pods than the emptiest one, the new one included."""
        term, keys, count = spread.term, {each.term.key for each in ask.spread}, Counter[str]()
        for name, node in self.nodes.items():
            if not keys <= node.labels.keys() or (spread.affinity and not ask.suits(node.labels)):
                continue
            if spread.taints and any(taint[2] in HARD and keeps_off(taint, ask.tolerations) for taint in node.taints):
                continue
            there = self._on.get(name, {}).values()
            count[node.labels[term.key]] += sum(not pod.ending and self.selects(term, pod) for pod in there)
        least = min(count.values(), default=0) if len(count) >= spread.domains else 0
        most = spread.skew + least - self.selects(term, ask.facts)
        rules.add(term.field, term.key, "In", [value for value, number in count.items() if number <= most])

    # -- volumes ------------------------------------------------------------------------------------------------

    def _read(self, where: str, kind: str) -> dict[str, Object]:
        found = self.objects.get(kind)
        if found is None:
            raise UnsupportedError(where, f"{kind} cannot be read")
        return found

    def _volume(self, where: str, space: str, name: str) -> Object:
        """Return the volume to which a claim is bound."""
        claim = self._read(where, "persistentvolumeclaims").get(f"{space}/{name}")
        if claim is None:
            raise UnsupportedError(where, f"claim {name!r} is not there")
        volume = self._read(where, "persistentvolumes").get(str(claim["spec"].get("volumeName")))
        if (claim.get("status") or {}).get("phase") != "Bound" or volume is None:
            raise UnsupportedError(where, f"claim {name!r} is not bound to a volume")
        return volume

    def _claim(self, pod: Facts, where: str, name: str, rules: Rules) -> None:
        """Allow the nodes that reach the volume of a claim."""
        volume = self._volume(where, pod.space, name)
        spec, about = volume["spec"], volume["metadata"]
        required = (spec.get("nodeAffinity") or {}).get("required")
        if required:
            ask = Ask({}, pod)
            ask.meet(node_terms(f"{where}: nodeAffinity of volume {about['name']!r}", required["nodeSelectorTerms"]))
            rules.wanted |= ask.wanted
            for label, requirements in ask.constraints.items():
                rules.require.setdefault(label, []).extend(requirements)
        for label, value in (about.get("labels") or {}).items():
            if label in _ZONES:
                rules.add(where, label, "In", value.split("__"))
        if _ONCE in (spec.get("accessModes") or ()):
            for other in self._pods.values():
                if other.space == pod.space and any(claim == name for _, claim in other.claims):
                    raise WaitsError(f"{where}: pod {other.path} uses claim {name!r}")
        for kind in spec.keys() & _ATTACHED:
            raise UnsupportedError(where, f"volume {about['name']!r} is of the kind {kind}")
        if "csi" in spec:
            self._attachable(pod, where, spec["csi"]["driver"], rules)

    def _attachable(self, pod: Facts, where: str, driver: str, rules: Rules) -> None:
        """Exclude the nodes to which no more volumes of the driver can be attached."""
        limits = {
            name: one["allocatable"]["count"]
            for name, node in self._read(where, "csinodes").items()
            for one in (node.get("spec") or {}).get("drivers") or ()
            if one["name"] == driver and "count" in (one.get("allocatable") or {})
        }
        if not limits:
            return
        mine = self._attached(where, driver, [pod])
        there = {name: self._attached(where, driver, self._on.get(name, {}).values()) for name in limits}
        rules.add(where, NAME, "NotIn", [name for name, most in limits.items() if len(mine | there[name]) > most])

    def _attached(self, where: str, driver: str, pods: Iterable[Facts]) -> set[str]:
        volumes = (self._volume(where, pod.space, name) for pod in pods for _, name in pod.claims)
        handles = [volume["spec"]["csi"] for volume in volumes if "csi" in volume["spec"]]
        return {csi["volumeHandle"] for csi in handles if csi["driver"] == driver}

    # -- disruption budgets -------------------------------------------------------------------------------------

    def protected(self, victims: Iterable[str]) -> str | None:
        """Return the name of a disruption budget that these pods' deletion would exceed; None without one.

        The server evicts no pod with several budgets.
        """
        budgets = self.objects.get("poddisruptionbudgets")
        if budgets is None:
            return "none can be read"
        pods = [pod for path in victims if (pod := self._pods.get(path)) is not None and not pod.ending]
        seen = Counter[str]()
        for name, budget in budgets.items():
            space = budget["metadata"]["namespace"]
            select = selector("spec.selector", budget["spec"].get("selector"))
            mine = [pod.path for pod in pods if pod.space == space and selects(select, pod.labels)]
            seen.update(mine)
            count = len(mine)
            if any(seen[path] > 1 for path in mine) or count > (budget.get("status") or {}).get(
                "disruptionsAllowed", 0
            ):
                return name
        return None


_ONCE = "ReadWriteOncePod"

_ZONES = frozenset(
    f"{prefix}/{level}"
    for prefix in ("topology.kubernetes.io", "failure-domain.beta.kubernetes.io")
    for level in ("zone", "region")
)

_ATTACHED = frozenset(
    "awsElasticBlockStore azureDisk cinder gcePersistentDisk iscsi photonPersistentDisk portworxVolume quobyte rbd scaleIO "
    "storageos vsphereVolume".split()
)
"""Volumes that may exclude each other, or of which a node can attach a limited number."""


def _clash(one: tuple[str, str, int], two: tuple[str, str, int]) -> bool:
    addresses = {one[1], two[1]}
    return one[0] == two[0] and one[2] == two[2] and (len(addresses) == 1 or "0.0.0.0" in addresses)
