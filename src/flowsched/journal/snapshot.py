"""Images: the whole state of a scheduler as bytes, with the network, its flow and its potentials.

An image gives back the very scheduler, down to the numbers of nodes and the order of arcs, so all later rounds are
those that it would have made.  That ties an image to one version of the package (`Extras.form`).  A policy is code and
stays outside; only the accounts that some share providers keep are in the image.  A fit rule is part of the cluster's
inventory; all that it refers to is in the image, and its classes are in its adapter's `Extras`.

Rules:

* An image is data (see `flowsched.journal.tables`), and names only the classes listed here and in those extras.
* The network checks its own part before it uses it, and the cluster's part is compared with itself (`audit`).
* The builder is a cache: a round that fails on the one that was read builds another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar
from zlib import crc32

import numpy as np

from flowsched.boundary.collector import uncollected
from flowsched.builder.batch import NetworkBatch
from flowsched.builder.builder import Builder
from flowsched.builder.claimants import Claimants
from flowsched.builder.class_arcs import ClassArcs
from flowsched.builder.groups import GroupNode, GroupNodes
from flowsched.builder.job_counts import JobCounts
from flowsched.builder.locality import Entry, LocalityArcs
from flowsched.builder.machines import MachineArcs
from flowsched.builder.racks import RackArcs
from flowsched.builder.reservations import GangReservation, Reservation, Reservations
from flowsched.builder.running import RunningArcs
from flowsched.builder.shares import Shares
from flowsched.builder.unscheduled import UnscheduledArcs
from flowsched.cluster import (
    Cluster,
    Job,
    Machine,
    Resources,
    User,
    affinity,
    columns,
    devices,
    inventory,
    membership,
    records,
    running,
    shapes,
    shunned,
    stopping,
)
from flowsched.cluster.audit import audit
from flowsched.exceptions import FlowschedError, InputError
from flowsched.journal import released
from flowsched.journal.accounts import completed
from flowsched.journal.tables import Objects, Piece, Schema, Tables, is_file, slots, stateful, tables_of
from flowsched.network.flow_network import FlowNetwork
from flowsched.policy import Fairness, Policy, providers
from flowsched.rounds.engine import State
from flowsched.sharing import deployment, deployment_sequence, ledger

_T = TypeVar("_T")

_MEANING = 6
"""Version of the attributes' meanings, to be changed with any of them; `form` itself detects other attributes."""


_CLASSES: dict[str, type] = {
    "tasks": records.TaskRecord, "jobs": records.JobRecord, "groups": records.Group, "classes": records.TaskClass,
    "machines": records.MachineRecord, "users": User, **{
        kind.__name__: kind for kind in (
            State, Cluster, Resources, Job, Machine, inventory.Inventory, devices.Asks, running.RunningTasks, affinity.Affinity,
            affinity.ClassAffinity, columns.IdPool, records.Changes, membership.Attempts, stopping.Stop, records.Placement, records.Chain,
            shapes.Shapes, shapes.Suitability, shunned.Shunned, FlowNetwork, NetworkBatch, Builder, GroupNodes, GroupNode, MachineArcs,
            RackArcs, ClassArcs, Reservations, Reservation, GangReservation, LocalityArcs, Entry, RunningArcs, Shares, Claimants,
            UnscheduledArcs, JobCounts, providers.Claims, deployment.Deployment, ledger.Ledger, deployment_sequence.DeploymentSequence,
            deployment_sequence.PeriodCounts,
        )
    },
}  # fmt: skip


_ROWS = {
    "tasks": {"group": "groups"}, "groups": {"job": "jobs", "cls": "classes", "waiting": "Chain"}, "machines": {"tasks": "Chain"},
    "jobs": {"job": "Job", "tasks": "Chain"},
}  # fmt: skip
"""Attributes that compiled code takes for objects without looking, by table, with the tables of these objects."""


@dataclass(frozen=True, eq=False)
class Extras:
    """Classes that an adapter adds to images: its fit rule, and all that this refers to.

    `samples` makes an object of each of these classes, unless another one of them has it.  `renamed` has the names in
    journals of older versions of classes that have another name by now, `numbered` the numbers of immutable classes
    there.
    """

    classes: Sequence[type] = ()
    samples: Callable[[], Sequence[Any]] = tuple
    renamed: Mapping[type, str] = field(default_factory=dict)
    numbered: Mapping[int, type] = field(default_factory=dict)

    @cached_property
    def schema(self) -> Schema:
        """All classes that an image may name."""
        return Schema({**_CLASSES, **{kind.__name__: kind for kind in self.classes}})

    @cached_property
    def former(self) -> Mapping[Any, type]:
        """The classes by their names and numbers in old journals."""
        return {**{self.renamed.get(kind, kind.__name__): kind for kind in self.schema.names}, **self.numbered}

    @cached_property
    def parts(self) -> Mapping[type, Mapping[str, Any]]:
        """Attributes by class: names, each with a sample of its value."""
        cluster, network = Cluster(("cpu",)), FlowNetwork()
        found: dict[type, dict[str, Any]] = {}
        look: list[Any] = [cluster, Builder(cluster, network, Policy()), *self.samples()]
        while look:
            thing = look.pop()
            kind = type(thing)
            if kind in self.schema.names and kind not in found and (parts := _parts(thing)):
                found[kind] = parts
                look += parts.values()
            elif isinstance(thing, dict):
                look += thing.values()
            elif isinstance(thing, list | tuple | deque):
                look += thing
        return found

    @cached_property
    def form(self) -> int:
        """Number of the classes and attributes in images: an image of another form cannot be read."""
        kept = sorted((kind.__name__, sorted(parts)) for kind, parts in self.parts.items())
        fields = [(name, *_fields(getattr(records, name))) for name in records.__all__]
        kernel = tables_of(FlowNetwork(), Schema({"": FlowNetwork}), {}).forms
        return crc32(repr((_MEANING, sorted(self.schema.classes), kept, fields, kernel)).encode())

    def check(self, things: Mapping[type, Sequence[Any]]) -> None:
        """Raise TypeError for objects that have other parts than those of their class have, or parts of another kind."""
        for kind, of_kind in things.items():
            known = self.parts.get(kind)
            if known is None or kind is FlowNetwork:  # a network has checked itself
                continue
            for thing in of_kind:
                own = thing.fields() if isinstance(thing, records.World | columns.Columns) else {}
                # `__getstate__` takes them for granted
                _compare(kind, known, {**own, **getattr(thing, "__dict__", {})})
                # `__getstate__` may fill in attributes that the object itself lacks
                whole = hasattr(kind, "__setstate__") or all(hasattr(thing, name) for name in known)
                if not whole or not known.keys() <= (parts := _parts(thing)).keys():
                    raise TypeError(f"a {kind.__name__} of other parts")
                _compare(kind, known, parts)


def _fields(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of a class of records."""
    fields: tuple[str, ...] = getattr(kind, "_fields", ()) or getattr(kind, "__slots__", ())
    return fields


def _parts(thing: Any) -> dict[str, Any]:
    """Return the attributes that an image keeps."""
    kind = type(thing)
    if issubclass(kind, tuple):
        return {}
    state = stateful(kind) and thing.__getstate__()
    if isinstance(state, dict):
        return state
    return {
        name: getattr(thing, name) for name in slots(kind).union(getattr(thing, "__dict__", ())) if hasattr(thing, name)
    }


def _compare(kind: type, known: Mapping[str, Any], parts: Mapping[str, Any]) -> None:
    """Refuse parts of another kind than the samples; a string may stand for any id."""
    for name in known.keys() & parts.keys():
        like = known[name]
        if not isinstance(like, str | None) and not _alike(parts[name], like):
            raise TypeError(f"{kind.__name__}.{name}: a {type(like).__name__} expected")


_MOST = 1 << 62
"""Upper bound of the counts in an image: they grow by one at a time, in arrays of 64 bits."""


def _alike(value: Any, like: Any) -> bool:
    if type(like) is int:
        return type(value) is int and -_MOST < value < _MOST
    if isinstance(like, float):
        return isinstance(value, int | float)
    if isinstance(like, np.ndarray):
        return isinstance(value, np.ndarray) and value.dtype == like.dtype and value.ndim == like.ndim
    if isinstance(like, dict | MappingProxyType):
        return isinstance(value, dict | MappingProxyType)
    return isinstance(value, type(like))


PLAIN = Extras()
"""Of a scheduler without an adapter."""


def pack(state: State, extras: Extras = PLAIN, **about: str) -> list[Piece]:
    """Return the state as bytes, in pieces that are to be joined before anything changes; `about` is put in front of them.

    Raise InputError if an id or a provider's account is of a kind that cannot be written down, or there is a fit rule,
    and no extras.
    """
    return _written(state, state.builder.policy, extras, about)


def unpack(tables: Tables, policy: Policy, extras: Extras = PLAIN) -> State:
    """Return the state that `pack` wrote, under a policy of the same description; its providers get the accounts."""
    return _read(State, tables, policy, extras)


def pack_accounts(policy: Policy, warm_state: Any = None, extras: Extras = PLAIN) -> bytes:
    """Return the accounts that a policy's providers keep, with an adapter's warm state; nothing if there is neither."""
    return b"".join(_written(warm_state, policy, extras, {})) if _keepers(policy) or warm_state is not None else b""


def unpack_accounts(image: bytes, policy: Policy, extras: Extras = PLAIN) -> Any:
    """Give a policy's providers the accounts that `pack_accounts` wrote; return the adapter's warm state."""
    return _read(object, image, policy, extras)


def clone(state: State, policy: Policy | None = None, extras: Extras = PLAIN) -> State:
    """Return an equal state that shares no mutable object with this one, except ids and other objects of the caller.

    The clone's policy is of the same description; by default the same one, with accounts of its own.
    """
    known = state.builder.policy
    if policy is None:
        policy = with_own_accounts(known) if _keepers(known) else known
    else:
        for mine, his in zip(_keepers(policy), _keepers(known), strict=True):
            vars(mine).update(deepcopy(vars(his)))
    with uncollected():
        cloned: State
        cloned, _ = Objects(_taken(state, known, extras, True), extras.schema, _given(policy)).make()
    return cloned


def with_own_accounts(policy: Policy) -> Policy:
    """Return the same policy with a fairness object, providers and accounts of its own."""
    fairness = policy.fairness
    assert fairness is not None
    return replace(policy, fairness=replace(fairness, share=deepcopy(fairness.share), within=deepcopy(fairness.within)))


def _keepers(policy: Policy) -> list[Any]:
    """Share providers that keep accounts."""
    fairness = policy.fairness
    providers = () if fairness is None else (fairness.share, fairness.within)
    return [provider for provider in providers if hasattr(provider, "committed")]


def _given(policy: Policy) -> dict[str, Any]:
    """Objects that are not written down, by name: the reader has its own."""
    return {"policy": policy, "fairness": policy.fairness, "another policy": _REPLACED}


def _taken(state: Any, policy: Policy, extras: Extras, foreign: bool) -> Tables:
    if (
        isinstance(state, State)
        and (rule := state.cluster.inventory.rule) is not None
        and type(rule) not in extras.schema.names
    ):
        raise InputError(f"a fit rule keeps a state of its own; ask its adapter for a copy of it: {rule!r}")
    # A clone's policy has its own accounts already.
    accounts = [] if foreign else [vars(provider) for provider in _keepers(policy)]
    instead = {Policy: "another policy", Fairness: "another policy"}
    return tables_of((state, accounts), extras.schema, _given(policy), foreign, instead)


def _written(state: Any, policy: Policy, extras: Extras, about: dict[str, str]) -> list[Piece]:
    with uncollected():
        tables = _taken(state, policy, extras, False)
        tables.about = about
        return tables.pieces()


def _read(kind: type[_T], image: Tables | bytes, policy: Policy, extras: Extras) -> _T:
    try:
        with uncollected():
            if isinstance(image, bytes) and not is_file(image):
                made, (state, accounts) = released.objects(image, extras.former, _given(policy))
            else:
                tables = image if isinstance(image, Tables) else Tables.read(image)
                _check_rows(tables.forms)
                objects = Objects(tables, extras.schema, _given(policy))
                made, (state, accounts) = objects.made, objects.make()
            extras.check(made)
            if not isinstance(state, kind):
                raise TypeError(f"a {kind.__name__} expected")
            if isinstance(state, State):
                _check(state)
        keepers = _keepers(policy)
        if accounts and len(accounts) != len(keepers):
            raise ValueError("accounts of other share providers")
        for provider, account in zip(keepers, accounts, strict=False):
            kept = completed(provider, account)
            missing = vars(provider).keys() - kept.keys() - getattr(type(provider), "later_settings", set())
            if missing or kept.keys() - vars(provider).keys():
                raise TypeError(f"accounts of something else than a {type(provider).__name__}")
            vars(provider).update(kept)
    except FlowschedError as error:
        raise InputError(f"image: {error}") from error
    except (AttributeError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise InputError(f"image: it does not hold together: {type(error).__name__}: {error}") from error
    return state


def _check_rows(forms: Mapping[str, Any]) -> None:
    for table, parts in _ROWS.items():
        rows, has = forms.get(table, (0, {}))
        for name, other in parts.items():
            if rows and has[name][:2] != ["row", other]:
                raise TypeError(f"{table}.{name}: rows of {other} expected")


def _check(state: State) -> None:
    """Refuse parts that do not belong together, or a cluster that contradicts itself."""
    kinds = {"cluster": Cluster, "network": FlowNetwork, "builder": Builder}
    for name, kind in kinds.items():
        if type(getattr(state, name)) is not kind:
            raise TypeError(f"a {kind.__name__} expected")
    builder = state.builder
    if (
        builder.cluster is not state.cluster
        or builder.network is not state.network
        or type(builder.policy) is not Policy
    ):
        raise ValueError("parts of several states")
    audit(state.cluster)
    builder.reservations.check()


class _Replaced:
    """Stands for a policy, or its fairness, that no longer holds: it only matters that it was another one."""


_REPLACED = _Replaced()
