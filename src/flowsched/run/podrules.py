"""Rules of Kubernetes on pods that depend on other pods, on volumes, and on resources that the scheduler does not count.

At one time, with the pods that are there, each of these rules is a requirement on labels of the nodes: affinity allows some
values of the topology's label, anti-affinity excludes some, and a host port excludes some names of nodes.  So `Present.rules`
returns requirements of `flowsched.cluster.model.Task.constraints`.  They hold until one of the pods concerned is placed or
changes.  Pods that concern each other (`Rules.concerns`) therefore take turns, see `flowsched.run.podfeed`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from flowsched.cluster.model import Task, renamed
from flowsched.cluster.selectors import HARD, keeps_off
from flowsched.exceptions import FlowschedError
from flowsched.run.podcensus import Census, Kind
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
    tasks : dict of tuple to Task
        Tasks with these requirements, by their other facts; see `task`.
    """

    require: Requirements = field(default_factory=dict)
    wanted: dict[str, NodeTerm | None] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    fields: list[str] = field(default_factory=list)
    tasks: dict[tuple[Any, ...], Task] = field(default_factory=dict)

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

    def task(self, ask: Ask, resources: Sequence[str]) -> Task:
        """Return the task of a pod with these rules.

        Pods of a wave have them in common, and they may name most nodes, so they are checked once for pods that are alike.
        """
        if not self.require:
            return ask.task(resources)
        asked = ask.facts.requests
        demand = tuple(asked[name] for name in resources)
        key = demand, repr(ask.constraints), tuple(ask.prefers), tuple(ask.tolerations)
        like = self.tasks.get(key)
        if like is None:
            like = self.tasks[key] = ask.task(resources, self.require)
        return renamed(like, ask.facts.path)


@dataclass(slots=True)
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
        self._places: dict[str, str] = {}
        self._census = Census(self._label_of, self.selects)
        self._eligible: dict[tuple[Any, ...], tuple[dict[str, int], frozenset[str] | None]] = {}

    # -- changes ------------------------------------------------------------------------------------------------

    def set_node(self, name: str, node: Object | None) -> bool:
        """Take note of a node, None for one that is gone; return True if its labels or taints have changed."""
        old, new = self.nodes.pop(name, None), None
        if node is not None:
            has = amounts((node.get("status") or {}).get("allocatable") or {})
            new = self.nodes[name] = Node(node_labels(node), has, node_taints(node))
        if old == new:
            return False
        closed = old is None or new is None or (old.labels, old.taints) != (new.labels, new.taints)
        if closed:
            self._eligible.clear()
            if name in self._on:
                self._census.forget_labels()
        self.version += 1
        return closed

    def set_object(self, kind: str, name: str, one: Object | None) -> None:
        """Take note of an object of another kind, None for one that is gone."""
        known = self.objects.setdefault(kind, {})
        if one is None:
            known.pop(name, None)
        else:
            known[name] = one
        if kind == "namespaces":
            self._census.forget_selections()
        self.version += 1

    def set_pod(self, path: str, pod: Facts | None) -> None:
        """Take note of a pod on a node, None for one that is gone."""
        old = self._pods.pop(path, None)
        if old is not None:
            node = self._places.pop(path)
            on = self._on[node]
            del on[path]
            if not on:
                del self._on[node]
            self._census.remove(path)
        if pod is not None and pod.node is not None:
            self._pods[path] = self._on.setdefault(pod.node, {})[path] = pod
            self._places[path] = pod.node
            self._census.place(pod)
        if old is not None or pod is not None:
            self.version += 1

    @contextmanager
    def trial(self) -> Iterator[Callable[[str, Facts, str], None]]:
        """Return a function that places a pod without one on a node; all these places are undone at the end."""
        version, placed = self.version, list[Facts]()

        def place(path: str, pod: Facts, node: str) -> None:
            pod.node = node
            self.set_pod(path, pod)
            placed.append(pod)

        try:
            yield place
        finally:
            for pod in placed:
                self.set_pod(pod.path, None)
                pod.node = None
            self.version = version

    def _label_of(self, node: str, key: str) -> str | None:
        there = self.nodes.get(node)
        return None if there is None else there.labels.get(key)

    def on(self, name: str) -> list[str]:
        """Return the paths of the pods on a node."""
        return [*self._on.get(name, ())]

    def takes(self, ask: Ask, name: str) -> bool:
        """Return True if a node is there, and its labels and taints admit a pod."""
        node = self.nodes.get(name)
        if node is None or not ask.suits(node.labels):
            return False
        return not any(taint[2] in HARD and keeps_off(taint, ask.tolerations) for taint in node.taints)

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

    def selects(self, term: PodTerm, pod: Facts | Kind) -> bool:
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
            self._census.holders
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
            rules.add(term.field, term.key, "NotIn", self._census.values(term))
        for term in self._census.holders:
            if self.selects(term, pod):
                rules.add("the anti-affinity of other pods", term.key, "NotIn", self._census.held(term))
        if ask.affinity:
            self._affinity(ask, rules)
        for spread in ask.spread:
            self._spread(ask, spread, rules)
        for where, name in pod.claims:
            self._claim(pod, where, name, rules)
        return rules

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
        for term, values in self._near(ask):
            if values is None:
                rules.add(term.field, term.key, "Exists")
            else:
                rules.add(term.field, term.key, "In", values)

    def _near(self, ask: Ask) -> list[tuple[PodTerm, set[str] | None]]:
        """Return the domains that each term of affinity allows, None for all."""
        first, *others = ask.affinity
        kinds = self._census.kinds(first)
        if others:
            kinds = [kind for kind in kinds if all(self.selects(term, kind) for term in others)]
        found = [
            (term, set[str]().union(*(self._census.by(term.key, kind) for kind in kinds))) for term in ask.affinity
        ]
        if not any(values for _, values in found) and all(self.selects(term, ask.facts) for term in ask.affinity):
            return [(term, None) for term in ask.affinity]
        return [*found]

    def _spread(self, ask: Ask, spread: Spread, rules: Rules) -> None:
        """Allow the domains that have at most `skew` more of the pods than the emptiest one, the new one included."""
        count, most = self._counted(ask, spread)
        rules.add(
            spread.term.field, spread.term.key, "In", [value for value, number in count.items() if number <= most]
        )

    def _counted(self, ask: Ask, spread: Spread) -> tuple[dict[str, int], int]:
        """Return the numbers of selected pods by domain, and the largest number of a domain that takes one more."""
        term = spread.term
        keys = tuple(sorted({each.term.key for each in ask.spread}))
        about = repr(ask.constraints) if spread.affinity else "", repr(ask.tolerations) if spread.taints else ""
        kept = keys, term.key, *about
        if kept not in self._eligible:
            if len(self._eligible) > _KEPT:
                self._eligible.clear()
            able = [name for name, node in self.nodes.items() if self._is_eligible(ask, spread, keys, node)]
            every = sum(term.key in node.labels for node in self.nodes.values()) == len(able)
            values = dict.fromkeys((self.nodes[name].labels[term.key] for name in able), 0)
            self._eligible[kept] = values, None if every else frozenset(able)
        values, only = self._eligible[kept]
        count = dict(values)
        for kind in self._census.kinds(term):
            if kind.ending:
                continue
            if only is None:
                for value, number in self._census.by(term.key, kind).items():
                    count[value] += number
            else:
                for name, number in kind.pods.nodes.items():
                    if name in only:
                        count[self.nodes[name].labels[term.key]] += number
        least = min(count.values(), default=0) if len(count) >= spread.domains else 0
        return count, spread.skew + least - self.selects(term, ask.facts)

    def _is_eligible(self, ask: Ask, spread: Spread, keys: tuple[str, ...], node: Node) -> bool:
        if any(key not in node.labels for key in keys) or (spread.affinity and not ask.suits(node.labels)):
            return False
        return not spread.taints or not any(
            taint[2] in HARD and keeps_off(taint, ask.tolerations) for taint in node.taints
        )

    def shape(self, ask: Ask) -> tuple[Any, ...]:
        """Return a key that pods have in common whose rules on other pods are the same."""
        pod = ask.facts
        about = repr((ask.constraints, ask.tolerations)) if ask.spread else ""
        return pod.space, tuple(sorted(pod.labels.items())), pod.anti, ask.affinity, tuple(ask.spread), pod.ports, about

    def together(self, ask: Ask, counted: Collection[str]) -> bool:
        """Return True if `admits` knows all rules of a pod on others, so that several such pods may be placed at once."""
        return not (ask.never or ask.facts.claims or any(name not in counted for name in ask.facts.requests))

    def admits(self, ask: Ask, name: str) -> bool:
        """Return True if a node meets the rules of a pod on other pods now, see `together`."""
        node, pod = self.nodes.get(name), ask.facts
        if node is None:
            return False
        if pod.ports:
            there = self._on.get(name, {}).values()
            if any(_clash(mine, other) for one in there for other in one.ports for mine in pod.ports):
                return False
        for term in pod.anti:
            value = node.labels.get(term.key)
            if value is not None and self._census.number(term, value):
                return False
        for term in self._census.holders:
            value = node.labels.get(term.key)
            if value is not None and value in self._census.held(term) and self.selects(term, pod):
                return False
        if ask.affinity:
            for term, values in self._near(ask):
                value = node.labels.get(term.key)
                if value is None or (values is not None and value not in values):
                    return False
        for spread in ask.spread:
            count, most = self._counted(ask, spread)
            if count.get(node.labels.get(spread.term.key, ""), most + 1) > most:
                return False
        return True

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


_KEPT = 1000
"""Number of sets of eligible domains that are kept."""

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
