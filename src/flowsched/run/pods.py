"""Pods and nodes of Kubernetes, as JSON has them, as tasks and machines.

Each field of a pod is in `FIELDS`: with a function that translates it, or with None where it does not constrain the
placement.  A field, an operator or a kind of volume that is not known here raises `UnsupportedError`, which names it: such
a pod waits.  Constraints between pods (see `flowsched.run.podrules`) and on volumes are only read here.

Requirements on nodes that `Task.constraints` cannot express (alternatives, comparisons of numbers) become a label of their
own: `machine_of` adds it to the machines of the nodes that meet them.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from math import ceil
from types import MappingProxyType
from typing import Any

from flowsched.boundary.validate import quoted
from flowsched.cluster.events import MachineAdded
from flowsched.cluster.model import LARGEST, Task
from flowsched.cluster.selectors import MEETS
from flowsched.exceptions import FlowschedError, InputError
from flowsched.run.adapter import record
from flowsched.run.command import command_of, outcome, script
from flowsched.run.executor import Ended, Failed, Run, Told
from flowsched.run.kubeapi import KubernetesError

ODD = (ArithmeticError, AttributeError, FlowschedError, LookupError, TypeError, ValueError)
"""Errors of reading an object that does not look as the API describes it."""

NAME = "field:metadata.name"
"""Label with the name of the node, where a task has a requirement on it; no label of a node has a colon."""

SCHEDULER = "flowsched"

DRIVER = "flowsched/driver"
"""The label with the name of the driver that has made a pod."""

RECORD = "flowsched/run"
"""The annotation with the record of a run, on its pod."""

_WHY = """>/dev/termination-log printf '%s' "$2" """
"""Keeps the reason why a command cannot begin, for `verdict`."""

_LOST = ("Evicted", "NodeLost", "NodeShutdown", "Terminated", "Shutdown", "Preempting", "NodeAffinity", "OutOf")
"""Prefixes of the reasons for which the node's kubelet, not the pod itself, ended it."""

Object = Mapping[str, Any]
Requirements = dict[str, list[tuple[Any, ...]]]

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class UnsupportedError(FlowschedError):
    """A field of a pod is not understood, so the pod waits.

    Attributes
    ----------
    field : str
        Its path in the pod.
    """

    def __init__(self, field: str, why: str = "") -> None:
        super().__init__(field, why)
        self.field, self.why = field, why

    def __str__(self) -> str:
        return f"{self.field}: {self.why}" if self.why else self.field


# -- quantities -----------------------------------------------------------------------------------------------------

_NAMES = {"cpu": "cpu", "memory": "mem", "nvidia.com/gpu": "gpu"}
"""Names here of resources; others keep their own."""

_QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([numkMGTPE]|[KMGTPE]i)?")
_UNITS = {"n": 1e-9, "u": 1e-6, "m": 1e-3} | {unit: 10.0 ** (3 * i) for i, unit in enumerate("kMGTPE", 1)}
_UNITS |= {f"{unit}i": 2.0 ** (10 * i) for i, unit in enumerate("KMGTPE", 1)}


def _is_storage(name: str) -> bool:
    return name == "ephemeral-storage" or name.startswith("hugepages-")


def is_whole(name: str) -> bool:
    """Return True for a resource of which a container has a whole number."""
    return name not in ("cpu", "mem") and not _is_storage(name)


@lru_cache(4096)
def quantity(text: str | float) -> float:
    """Return a quantity, such as ``500m``, ``1.5Gi`` or ``12e3``."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError(f"a quantity expected, got {quoted(text)}")
    number, unit = match.groups()
    return float(number) * _UNITS.get(unit, 1.0)


def amounts(given: Mapping[str, Any]) -> Counter[str]:
    """Return quantities by the names of resources here; memory, storage and huge pages in MiB."""
    found = Counter[str]()
    for key, text in given.items():
        amount = quantity(text)
        if key == "memory" or _is_storage(key):
            amount /= 2**20
        found[_NAMES.get(key, key)] = min(amount, LARGEST)  # type: ignore[assignment]
    return found


def requests(pod: Object) -> Counter[str]:
    """Return the requests of a pod as kube-scheduler adds them up.

    An initial container needs its own with those of the sidecars before it.  Requests of the whole pod replace the sums,
    and the overhead comes on top.  Where a container is being resized, the larger amounts count, unless its node can never
    give it the new ones.
    """
    spec, status = pod["spec"], pod.get("status") or {}
    kinds = ("containerStatuses", "initContainerStatuses")
    granted = {one.get("name"): one for kind in kinds for one in status.get(kind) or ()}

    never = any(
        (one.get("type"), one.get("reason")) == ("PodResizePending", "Infeasible")
        for one in status.get("conditions") or ()
    )

    def of(container: Object) -> Counter[str]:
        now = granted.get(container.get("name"), {})
        given = {} if never and "resources" in now else container.get("resources") or {}
        asked = amounts(given.get("requests") or {})
        asked |= amounts(now.get("allocatedResources") or {})
        return asked | amounts((now.get("resources") or {}).get("requests") or {})

    total, sidecars, first = Counter[str](), Counter[str](), Counter[str]()
    for container in spec.get("containers") or ():
        total.update(of(container))
    for container in spec.get("initContainers") or ():
        own = of(container)
        if container.get("restartPolicy") == "Always":
            sidecars.update(own)
            first |= sidecars
        else:
            own.update(sidecars)
            first |= own
    total.update(sidecars)
    total |= first
    for name, amount in amounts((spec.get("resources") or {}).get("requests") or {}).items():
        total[name] = amount
    total.update(amounts(spec.get("overhead") or {}))
    return total


_requests = requests  # earlier name


# -- selectors ------------------------------------------------------------------------------------------------------


_INTEGER = re.compile(r"[+-]?[0-9]+")


def _above(value: str | None, bound: str) -> bool:
    return value is not None and _INTEGER.fullmatch(value) is not None and int(value) > int(bound)


def _below(value: str | None, bound: str) -> bool:
    return value is not None and _INTEGER.fullmatch(value) is not None and int(value) < int(bound)


_MEETS = {**MEETS, "Gt": _above, "Lt": _below}  # Kubernetes compares whole numbers only

Expression = tuple[str, str, tuple[str, ...]]
"""A label, an operator, and its values."""


def _expression(where: str, one: Object, operators: Iterable[str]) -> Expression:
    if one["operator"] not in operators:
        raise UnsupportedError(f"{where}.operator", f"{one['operator']!r} is not known")
    return one["key"], one["operator"], tuple(one.get("values") or ())


def _meet(labels: Mapping[str, str], expressions: Iterable[Expression]) -> bool:
    return all(_MEETS[operator](labels.get(key), *values) for key, operator, values in expressions)


def selector(where: str, given: Object | None) -> tuple[Expression, ...] | None:
    """Return a label selector as expressions, all of which have to be met; None for one that selects nothing."""
    if given is None:
        return None
    _known(where, given, ("matchLabels", "matchExpressions"))
    found: list[Expression] = [(key, "In", (value,)) for key, value in (given.get("matchLabels") or {}).items()]
    for i, one in enumerate(given.get("matchExpressions") or ()):
        found.append(_expression(f"{where}.matchExpressions[{i}]", one, ("In", "NotIn", "Exists", "DoesNotExist")))
    return tuple(found)


def selects(expressions: tuple[Expression, ...] | None, labels: Mapping[str, str]) -> bool:
    """Return True if a selector selects an object with these labels."""
    return expressions is not None and _meet(labels, expressions)


def _known(where: str, given: Object, fields: Iterable[str]) -> None:
    for name in given:
        if name not in fields:
            raise UnsupportedError(f"{where}.{name}")


NodeTerm = tuple[tuple[Expression, ...], ...]
"""Alternatives: the expressions of one of them have to be met by the labels and the name of a node."""


def node_terms(where: str, terms: Sequence[Object]) -> NodeTerm:
    """Return the terms of a node selector; an empty term selects no node."""
    found = []
    for i, term in enumerate(terms):
        at = f"{where}[{i}]"
        _known(at, term, ("matchExpressions", "matchFields"))
        each = [
            _expression(f"{at}.matchExpressions[{j}]", one, _MEETS)
            for j, one in enumerate(term.get("matchExpressions") or ())
        ]
        for j, one in enumerate(term.get("matchFields") or ()):
            if one["key"] != "metadata.name":
                raise UnsupportedError(f"{at}.matchFields[{j}].key", f"{one['key']!r} is not known")
            _, operator, values = _expression(f"{at}.matchFields[{j}]", one, ("In", "NotIn"))
            each.append((NAME, operator, values))
        if each:
            found.append(tuple(each))
    return tuple(found)


def meets_terms(terms: NodeTerm, labels: Mapping[str, str]) -> bool:
    """Return True if one of the terms is met by labels, which include `NAME`."""
    return any(_meet(labels, term) for term in terms)


# -- nodes ----------------------------------------------------------------------------------------------------------


def is_ready(node: Object) -> bool:
    """Return True if a node's kubelet says that it is ready."""
    try:
        conditions = (node.get("status") or {}).get("conditions") or ()
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    except ODD:
        return False


def node_labels(node: Object) -> dict[str, str]:
    """Return the labels of a node, and its name as another one."""
    about = node["metadata"]
    return {**(about.get("labels") or {}), NAME: about["name"]}


_CORDONED = "node.kubernetes.io/unschedulable", "", "NoSchedule"


def node_taints(node: Object) -> tuple[tuple[str, str, str], ...]:
    """Return the taints of a node; a cordoned one has a taint, also where no controller adds it."""
    spec = node.get("spec") or {}
    taints = [(taint["key"], taint.get("value", ""), taint["effect"]) for taint in spec.get("taints") or ()]
    if spec.get("unschedulable") and _CORDONED not in taints:
        taints.append(_CORDONED)
    return tuple(taints)


def machine(node: Object, others: Iterable[Object], resources: Sequence[str]) -> MachineAdded:
    """Return a node as a machine, less the requests of other schedulers' pods on it.

    Parameters
    ----------
    node : mapping
    others : iterable of mapping
        Those pods.
    resources : sequence of str
    """
    return machine_of(node, list(map(requests, others)), resources)


def machine_of(
    node: Object,
    used: Collection[Counter[str]],
    resources: Sequence[str],
    wanted: Mapping[str, NodeTerm | None] = _NOTHING,
) -> MachineAdded:
    """Return a node as a machine, see `machine`.

    Parameters
    ----------
    node : mapping
    used : collection of Counter
        The requests of each other pod.
    resources : sequence of str
    wanted : mapping of str to NodeTerm
        Labels that the node has in addition if it meets the terms, and `NAME`, for which there are none.
    """
    has = amounts(node["status"]["allocatable"])
    slots = int(has.pop("pods", 0)) - len(used)
    for each in used:
        has.subtract(each)
    capacity = {name: max(has[name], 0) for name in resources if name in has}
    about = node["metadata"]
    labels = dict(about.get("labels") or {})
    if wanted:
        named = node_labels(node)
        for label, terms in wanted.items():
            if terms is None:
                labels[label] = named[label]
            elif meets_terms(terms, named):
                labels[label] = ""
    return MachineAdded(about["name"], capacity, labels=labels, slots=max(slots, 0), taints=node_taints(node))


# -- pods -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PodTerm:
    """A rule on the pods in the domain of a node: the nodes with the same value of the label `key`.

    Parameters
    ----------
    field : str
        Its path in the pod.
    key : str
    select : tuple of Expression or None
    spaces : frozenset of str
        Namespaces of the selected pods.
    space_select : tuple of Expression or None
        Selects further namespaces.
    """

    field: str
    key: str
    select: tuple[Expression, ...] | None
    spaces: frozenset[str]
    space_select: tuple[Expression, ...] | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """A limit of the difference between domains in their numbers of selected pods of the same namespace."""

    term: PodTerm
    skew: int
    domains: int
    affinity: bool
    taints: bool


@dataclass(eq=False, slots=True)
class Facts:
    """The parts of a pod that may constrain other pods.

    Parameters
    ----------
    path, uid, space : str
        Its name, identity and namespace.
    labels : mapping
    requests : Counter
        See `requests`.
    ports : frozenset of (protocol, address, port)
        Ports of its node that it takes.
    anti : tuple of PodTerm
        Its required anti-affinity.
    claims : tuple of (field, name)
        Claims of volumes.
    node : str or None
    ending : bool
        It is being deleted.
    """

    path: str
    uid: str
    space: str
    labels: Mapping[str, str]
    requests: Counter[str]
    ports: frozenset[tuple[str, str, int]]
    anti: tuple[PodTerm, ...]
    claims: tuple[tuple[str, str], ...]
    node: str | None
    ending: bool


def facts(path: str, pod: Object) -> Facts:
    """Return the facts of a pod."""
    about, spec = pod["metadata"], pod["spec"]
    return Facts(
        path,
        about.get("uid", ""),
        about.get("namespace", "default"),
        about.get("labels") or {},
        requests(pod),
        _ports(spec),
        _pod_terms(pod, "podAntiAffinity"),
        _claims(pod),
        spec.get("nodeName"),
        "deletionTimestamp" in about,
    )


def _ports(spec: Object) -> frozenset[tuple[str, str, int]]:
    lasting = [one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    return frozenset(
        (port.get("protocol") or "TCP", port.get("hostIP") or "0.0.0.0", port["hostPort"])
        for container in [*(spec.get("containers") or ()), *lasting]
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )


_TERM = ("labelSelector", "topologyKey", "namespaces", "namespaceSelector", "matchLabelKeys", "mismatchLabelKeys")


def _pod_terms(pod: Object, kind: str) -> tuple[PodTerm, ...]:
    """Return the required terms of affinity or anti-affinity; preferred ones do not constrain."""
    given = (pod["spec"].get("affinity") or {}).get(kind) or {}
    where, found = f"spec.affinity.{kind}", []
    _known(where, given, (_REQUIRED, _PREFERRED))
    for i, term in enumerate(given.get(_REQUIRED) or ()):
        at = f"{where}.{_REQUIRED}[{i}]"
        _known(at, term, _TERM)
        spaces, more = term.get("namespaces") or (), term.get("namespaceSelector")
        if not spaces and more is None:
            spaces = (pod["metadata"].get("namespace", "default"),)
        select = _with_keys(pod, term, selector(f"{at}.labelSelector", term.get("labelSelector")))
        space_select = selector(f"{at}.namespaceSelector", more)
        found.append(PodTerm(at, term["topologyKey"], select, frozenset(spaces), space_select))
    return tuple(found)


def _with_keys(pod: Object, term: Object, select: tuple[Expression, ...] | None) -> tuple[Expression, ...] | None:
    """Add the labels that have to be, or not to be, the same as the pod's own."""
    labels = pod["metadata"].get("labels") or {}
    if select is None:
        return None
    for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        select += tuple((key, operator, (labels[key],)) for key in term.get(name) or () if key in labels)
    return select


def _claims(pod: Object) -> tuple[tuple[str, str], ...]:
    found = []
    for i, volume in enumerate(pod["spec"].get("volumes") or ()):
        at = f"spec.volumes[{i}]"
        if "persistentVolumeClaim" in volume:
            found.append((f"{at}.persistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]))
        elif "ephemeral" in volume:
            found.append((f"{at}.ephemeral", f"{pod['metadata']['name']}-{volume['name']}"))
    return tuple(found)


@dataclass(eq=False, slots=True)
class Ask:
    """A pod's requirements.

    Parameters
    ----------
    pod : mapping
    facts : Facts
    constraints : dict
        Label -> requirements of `Task.constraints`.
    wanted : dict
        Terms by the labels that stand for them, see `machine_of`.
    prefers : list of str
        Such labels that are preferred.
    tolerations : list
    affinity : tuple of PodTerm
    spread : list of Spread
    never : bool
        It displaces no other pod.
    group : str
        ``NAMESPACE/NAME`` of its pod group; empty without one.
    """

    pod: Object
    facts: Facts
    constraints: Requirements = field(default_factory=dict)
    wanted: dict[str, NodeTerm | None] = field(default_factory=dict)
    prefers: list[str] = field(default_factory=list)
    tolerations: list[tuple[str | None, str | None, str | None]] = field(default_factory=list)
    affinity: tuple[PodTerm, ...] = ()
    spread: list[Spread] = field(default_factory=list)
    never: bool = False
    group: str = ""

    def require(self, label: str, *requirement: Any) -> None:
        """Add a requirement on a label."""
        self.constraints.setdefault(label, []).append(requirement)
        if label == NAME:
            self.wanted[NAME] = None

    def meet(self, terms: NodeTerm) -> None:
        """Add the requirement that one of the terms is met."""
        plain = ("In", "NotIn", "Exists", "DoesNotExist")
        if len(terms) == 1 and all(operator in plain for _, operator, _ in terms[0]):
            for key, operator, values in terms[0]:
                self.require(key, operator, *values)
        else:
            self.require(self.label_of(terms), "Exists")

    def label_of(self, terms: NodeTerm) -> str:
        """Return the label that stands for the terms."""
        label = f"term:{sha256(json.dumps(terms).encode()).hexdigest()[:16]}"
        self.wanted[label] = terms
        return label

    def task(self, resources: Sequence[str], more: Mapping[str, list[tuple[Any, ...]]] = _NOTHING) -> Task:
        """Return the task of the pod, with more requirements on labels."""
        constraints = {label: list(each) for label, each in self.constraints.items()}
        for label, requirements in more.items():
            constraints.setdefault(label, []).extend(requirements)
        asked = self.facts.requests
        demand = {name: asked[name] for name in resources if asked[name]}
        prefers = dict.fromkeys(self.prefers, (("Exists",),))
        return Task(self.facts.path, demand, constraints, prefers=prefers, tolerations=self.tolerations)

    def suits(self, labels: Mapping[str, str]) -> bool:
        """Return True if a node with these labels meets the node selector and the node affinity."""
        for label, requirements in self.constraints.items():
            terms = self.wanted.get(label)
            value = labels.get(label) if terms is None else ("" if meets_terms(terms, labels) else None)
            if not all(_MEETS[operator](value, *values) for operator, *values in requirements):
                return False
        return True


_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def _node_selector(ask: Ask, given: Object) -> None:
    for key, value in given.items():
        ask.require(key, "In", value)


def _affinity(ask: Ask, given: Object) -> None:
    _known("spec.affinity", given, ("nodeAffinity", "podAffinity", "podAntiAffinity"))
    nodes = given.get("nodeAffinity") or {}
    _known("spec.affinity.nodeAffinity", nodes, (_REQUIRED, _PREFERRED))
    if nodes.get(_REQUIRED):
        where = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
        ask.meet(node_terms(where, nodes[_REQUIRED]["nodeSelectorTerms"]))
    for i, one in enumerate(nodes.get(_PREFERRED) or ()):
        terms = node_terms(f"spec.affinity.nodeAffinity.{_PREFERRED}[{i}].preference", [one["preference"]])
        if terms:
            ask.prefers.append(ask.label_of(terms))
    ask.affinity = _pod_terms(ask.pod, "podAffinity")


def _tolerations(ask: Ask, given: Sequence[Object]) -> None:
    for i, one in enumerate(given):
        operator = one.get("operator") or "Equal"
        if operator not in ("Equal", "Exists"):
            raise UnsupportedError(f"spec.tolerations[{i}].operator", f"{operator!r} is not known")
        value = None if operator == "Exists" else one.get("value") or ""
        ask.tolerations.append((one.get("key") or None, value, one.get("effect") or None))


_SPREAD = (
    "labelSelector", "matchLabelKeys", "maxSkew", "minDomains", "nodeAffinityPolicy", "nodeTaintsPolicy", "topologyKey",
    "whenUnsatisfiable",
)  # fmt: skip


def _spread(ask: Ask, given: Sequence[Object]) -> None:
    for i, one in enumerate(given):
        at = f"spec.topologySpreadConstraints[{i}]"
        _known(at, one, _SPREAD)
        if one.get("whenUnsatisfiable", "DoNotSchedule") == "ScheduleAnyway":
            continue
        select = _with_keys(ask.pod, one, selector(f"{at}.labelSelector", one.get("labelSelector")))
        term = PodTerm(at, one["topologyKey"], select, frozenset((ask.facts.space,)))
        affinity, taints = one.get("nodeAffinityPolicy", "Honor"), one.get("nodeTaintsPolicy", "Ignore")
        for name, policy in (("nodeAffinityPolicy", affinity), ("nodeTaintsPolicy", taints)):
            if policy not in ("Honor", "Ignore"):
                raise UnsupportedError(f"{at}.{name}", f"{policy!r} is not known")
        ask.spread.append(
            Spread(term, one["maxSkew"], one.get("minDomains") or 1, affinity == "Honor", taints == "Honor")
        )


_FREE_VOLUMES = frozenset(
    "azureFile cephfs configMap csi downwardAPI emptyDir fc flexVolume flocker gitRepo glusterfs hostPath image nfs projected "
    "secret".split()
)
"""Volumes that every node can have, as far as kube-scheduler knows."""


def _volumes(_: Ask, given: Sequence[Object]) -> None:
    for i, volume in enumerate(given):
        for kind in volume.keys() - _FREE_VOLUMES - {"name", "persistentVolumeClaim", "ephemeral"}:
            raise UnsupportedError(f"spec.volumes[{i}].{kind}")


def _preemption(ask: Ask, given: str) -> None:
    if given not in ("Never", "PreemptLowerPriority"):
        raise UnsupportedError("spec.preemptionPolicy", f"{given!r} is not known")
    ask.never = given == "Never"


def _group(ask: Ask, given: Object) -> None:
    _known("spec.schedulingGroup", given, ("podGroupName",))
    ask.group = f"{ask.facts.space}/{given['podGroupName']}"


@dataclass(frozen=True, slots=True)
class Group:
    """A pod group.

    Parameters
    ----------
    least : int
        Smallest number of its pods that run at the same time; 1 without such a limit.
    key : str
        Label of nodes whose value all of its pods have in common; empty without one.
    whole : bool
        It is displaced as a whole.
    """

    least: int
    key: str
    whole: bool


def group_of(one: Object) -> Group:
    """Return a pod group of ``scheduling.k8s.io/v1alpha2``.

    Raises
    ------
    UnsupportedError
    """
    where, spec = "spec.schedulingGroup: spec", one["spec"]
    _known(where, {name: given for name, given in spec.items() if given}, _GROUP)
    policy, limits = spec["schedulingPolicy"], spec.get("schedulingConstraints") or {}
    _known(f"{where}.schedulingPolicy", policy, ("basic", "gang"))
    _known(f"{where}.schedulingConstraints", limits, ("topology",))
    keys = [each["key"] for each in limits.get("topology") or ()]
    if len(keys) > 1:
        raise UnsupportedError(f"{where}.schedulingConstraints.topology[1]")
    mode = spec.get("disruptionMode") or "Pod"
    if mode not in ("Pod", "PodGroup"):
        raise UnsupportedError(f"{where}.disruptionMode", f"{mode!r} is not known")
    gang = policy.get("gang")
    return Group(gang["minCount"] if gang else 1, keys[0] if keys else "", mode == "PodGroup")


_GROUP = (
    "disruptionMode", "podGroupTemplateRef", "priority", "priorityClassName", "schedulingConstraints", "schedulingPolicy",
)  # fmt: skip


def _unsupported(name: str) -> Callable[[Ask, Any], None]:
    def refuse(_: Ask, __: Any) -> None:
        raise UnsupportedError(f"spec.{name}")

    return refuse


FIELDS: dict[str, Callable[[Ask, Any], None] | None] = {
    "affinity": _affinity,
    "nodeSelector": _node_selector,
    "preemptionPolicy": _preemption,
    "resourceClaims": _unsupported("resourceClaims"),
    "schedulingGroup": _group,
    "tolerations": _tolerations,
    "topologySpreadConstraints": _spread,
    "volumes": _volumes,
    "workloadRef": _unsupported("workloadRef"),
    # Read by `requests`, `facts` and `waits`, or by the queue.
    **dict.fromkeys("containers initContainers overhead priority resources schedulerName schedulingGates".split()),
    # No constraint on nodes; admission has turned classes into numbers, selectors and tolerations.
    **dict.fromkeys(
        "activeDeadlineSeconds automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks ephemeralContainers "
        "hostAliases hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride imagePullSecrets nodeName os "
        "priorityClassName readinessGates restartPolicy runtimeClassName securityContext serviceAccount serviceAccountName "
        "setHostnameAsFQDN shareProcessNamespace subdomain terminationGracePeriodSeconds".split()
    ),
}
"""Translators of the fields of a pod's specification."""


def ask_of(path: str, pod: Object) -> Ask:
    """Return the requirements of a pod that waits.

    Raises
    ------
    UnsupportedError
    """
    ask = Ask(pod, facts(path, pod))
    for name, given in pod["spec"].items():
        if name not in FIELDS:
            raise UnsupportedError(f"spec.{name}")
        translate = FIELDS[name]
        if translate is not None and given:
            translate(ask, given)
    return ask


def task(id: str, pod: Object, resources: Sequence[str]) -> Task:
    """Return a pod as a task, without the rules that depend on other objects.

    Raises
    ------
    UnsupportedError
    """
    return ask_of(id, pod).task(resources)


def scheduler_of(pod: Object) -> str:
    """Return the name of the scheduler that has to bind a pod."""
    return str(pod["spec"].get("schedulerName") or "default-scheduler")


def seconds_of(stamp: str | None) -> float | None:
    """Return a time of the API as seconds of the epoch, none of which is to come; None if it is not known."""
    return min(datetime.fromisoformat(stamp).timestamp(), time.time()) if stamp else None


def is_over(pod: Object) -> bool:
    """Return True if a pod has ended, well or not."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


# -- pods of runs --------------------------------------------------------------------------------------------------


def made(run: Run, name: str, driver: str, image: str) -> dict[str, Any]:
    """Return the pod of a run: its payload, or one that runs its command.

    Raises
    ------
    InputError
        It demands a share of a device.
    """
    check_whole(f"task {run.task!r}", run.demand)
    if isinstance(run.payload, Mapping):
        pod: dict[str, Any] = json.loads(json.dumps(run.payload))
    else:
        command = replace(command_of(run), output=None, errors=None)  # they are in the log
        text = script(replace(run, payload=command), _WHY)
        asks = {"cpu": f"{ceil(1000 * run.demand.get('cpu', 0))}m", "memory": f"{ceil(run.demand.get('mem', 0))}Mi"}
        names = {own: name for name, own in _NAMES.items()}
        whole = {names.get(name, name): str(ceil(run.demand[name])) for name in run.demand if is_whole(name)}
        share = {"requests": asks | whole, "limits": whole}
        container = {"name": "run", "image": image, "command": ["/bin/sh", "-c", text], "resources": share}
        pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    about = pod.setdefault("metadata", {})
    about["name"] = name
    about.setdefault("labels", {})[DRIVER] = driver
    about.setdefault("annotations", {})[RECORD] = record(run)
    pod["spec"]["schedulerName"] = SCHEDULER
    return {"apiVersion": "v1", "kind": "Pod"} | pod


def check_whole(where: str, demand: Mapping[str, float]) -> None:
    """Refuse a share of a device: nodes count whole ones.

    Raises
    ------
    InputError
    """
    for name, amount in demand.items():
        if is_whole(name) and isinstance(amount, float) and not amount.is_integer():
            raise InputError(f"{where}: Kubernetes counts whole devices, got {amount:g} of {name}")


def binding(path: str, uid: str, run: Run) -> dict[str, Any]:
    """Return the object that binds the pod of a run to its node; another pod of its name is not bound."""
    target = {"apiVersion": "v1", "kind": "Node", "name": run.machine}
    about = {"name": path.rpartition("/")[2]} | ({"uid": uid} if uid else {})
    return {"apiVersion": "v1", "kind": "Binding", "metadata": about, "target": target}


def eviction(path: str, uid: str) -> dict[str, Any]:
    """Return the object that evicts a pod; another pod of its name is not evicted."""
    space, name = path.split("/")[4::2]
    options = {"deleteOptions": {"preconditions": {"uid": uid}}} if uid else {}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": space}} | options


def verdict(run: Run, pod: Mapping[str, Any]) -> Told:
    """Return the report of a run whose pod has ended."""
    status = pod["status"]
    if status["phase"] != "Failed":
        return Ended(run.number, 0)
    codes = [each.get("state", {}).get("terminated", {}) for each in status.get("containerStatuses") or ()]
    bad = [(code["exitCode"], code.get("message") or "") for code in codes if code.get("exitCode")]
    reason = status.get("reason") or ""
    if bad and not reason:
        return outcome(run, bad[0][0], False, reason=" ".join(bad[0][1].split()))
    error = KubernetesError(f"task {run.task!r}: its pod failed: {reason} {status.get('message') or ''}")
    return Failed(run.number, error, lost=reason.startswith(_LOST))
