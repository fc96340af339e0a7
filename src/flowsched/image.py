"""The whole state of a scheduler as bytes: what is, the network with its flow and potentials, and what mirrors both.

An image gives back the very scheduler, down to the numbers of nodes and the order of arcs, so that all later rounds are
those that it would have made.  That ties it to one version of the package (`form`).  A policy is code and stays outside;
of it only the accounts are kept that some share providers hold.  A fit rule is part of the cluster's books, so that all
that it refers to is in the image, if its `Extras` are told.  Bytes are read back by an unpickler that knows the package's
own classes, those extras and NumPy's arrays, and nothing else.
"""

from __future__ import annotations

import gc
import io
import pickle
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import signature
from types import BuiltinFunctionType, FunctionType, MappingProxyType
from typing import Any, TypeVar
from zlib import crc32

import numpy as np

from flowsched.builder import Builder
from flowsched.cluster import Cluster, Job, records
from flowsched.exceptions import InputError
from flowsched.network import FlowNetwork
from flowsched.policy import Fairness, Policy
from flowsched.quoting import quoted

__all__ = [
    "PLAIN", "Extras", "State", "pack", "pack_accounts", "twin", "unpack", "unpack_accounts", "with_own_accounts",
]  # fmt: skip

_T = TypeVar("_T")

_MEANING = 1
"""Another number whenever anything that is kept changes its meaning; that something else is kept, `form` sees itself."""

_OWN = frozenset(
    f"flowsched.{name}"
    for name in "_cs network edits builder places racks shares claimants tally outlets holds nearness stays image".split()
)
_NUMPY = frozenset(
    (module, name)
    for core in ("numpy.core", "numpy._core")
    for module, name in (
        ("numpy", "ndarray"), ("numpy", "dtype"), (f"{core}.multiarray", "_reconstruct"), (f"{core}.multiarray", "scalar"),
        (f"{core}.numeric", "_frombuffer"),
    )
)  # fmt: skip
_CONTAINERS = {("collections", kind.__name__): kind for kind in (deque, OrderedDict)}


@dataclass
class State:
    """All that a scheduler goes by."""

    cluster: Cluster
    network: FlowNetwork
    builder: Builder


@dataclass(frozen=True, eq=False)
class Extras:
    """What an adapter adds to images: a fit rule, and what that refers to.

    Parameters
    ----------
    modules : collection of str
        Where its classes are.
    things : callable
        Makes one of each of these classes, as far as another of them does not have it.
    """

    modules: Collection[str] = ()
    things: Callable[[], Sequence[Any]] = tuple

    @cached_property
    def form(self) -> int:
        """A number of what images consist of: an image of another form cannot be read."""
        cluster, network = Cluster(("cpu",)), FlowNetwork()
        kept: dict[str, list[str]] = {}
        look: list[Any] = [cluster, Builder(cluster, network, Policy()), *self.things()]
        while look:
            thing = look.pop()
            kind = type(thing)
            home = kind.__module__
            own = home in _OWN or home in self.modules or home.startswith("flowsched.cluster.")
            if own and kind.__name__ not in kept and (names := _attributes(thing)):
                kept[kind.__name__] = sorted(names)
                look += [getattr(thing, name) for name in names]
            elif isinstance(thing, dict):
                look += thing.values()
            elif isinstance(thing, list | tuple | deque):
                look += thing
        fields = [(name, *signature(getattr(records, name)).parameters) for name in records.__all__]
        kernel, numbers, _ = network.__getstate__()
        return crc32(repr((_MEANING, sorted(kept.items()), fields, list(kernel), len(numbers))).encode())


def _attributes(thing: Any) -> list[str]:
    return list(vars(thing)) if hasattr(thing, "__dict__") else list(getattr(thing, "__slots__", ()))


PLAIN = Extras()
"""Of a scheduler without an adapter."""


def pack(state: State, extras: Extras = PLAIN) -> bytes:
    """The state as bytes.

    Raises
    ------
    InputError
        An id or a provider's account is of a kind that cannot be written down, or there is a fit rule, and no extras.
    """
    return _written(state, state.builder.policy, None, extras)


def unpack(image: bytes, policy: Policy, extras: Extras = PLAIN) -> State:
    """The state that `pack` wrote, under a policy that says the same; its providers' accounts become those of then."""
    return _read(State, image, policy, extras)


def pack_accounts(policy: Policy, learnt: Any = None) -> bytes:
    """The accounts that a policy's providers keep, and what an adapter had learnt; nothing if there is neither."""
    return _written(learnt, policy, None) if _keepers(policy) or learnt is not None else b""


def unpack_accounts(image: bytes, policy: Policy, extras: Extras = PLAIN) -> Any:
    """Let a policy's providers have the accounts that `pack_accounts` wrote; what an adapter had learnt."""
    return _read(object, image, policy, extras)


def twin(state: State, policy: Policy | None = None, extras: Extras = PLAIN) -> State:
    """A state of its own that equals this one; ids and whatever else is the caller's are the same objects.

    Under a policy that says the same: if none is given, of the same parts but for accounts.
    """
    known = state.builder.policy
    if policy is None:
        policy = with_own_accounts(known) if _keepers(known) else known
    else:
        for mine, his in zip(_keepers(policy), _keepers(known), strict=True):
            vars(mine).update(deepcopy(vars(his)))
    shared: list[Any] = []
    return _read(State, _written(state, known, shared, extras), policy, extras, shared)


def with_own_accounts(policy: Policy) -> Policy:
    """The same policy with a fairness object, providers and accounts of its own."""
    fairness = policy.fairness
    assert fairness is not None
    return replace(policy, fairness=replace(fairness, share=deepcopy(fairness.share), within=deepcopy(fairness.within)))


def _keepers(policy: Policy) -> list[Any]:
    """Share providers that keep accounts."""
    fairness = policy.fairness
    providers = () if fairness is None else (fairness.share, fairness.within)
    return [provider for provider in providers if hasattr(provider, "committed")]


def _written(state: Any, policy: Policy, shared: list[Any] | None, extras: Extras = PLAIN) -> bytes:
    if isinstance(state, State) and (rule := state.cluster.books.rule) is not None and not extras.modules:
        raise InputError(f"a fit rule keeps a state of its own; ask its adapter for a copy of it: {rule!r}")
    file = io.BytesIO()
    with _uncollected():
        # A twin's policy has its own accounts already.
        accounts = [vars(provider) for provider in _keepers(policy)] if shared is None else []
        _Writer(file, policy, shared).dump((state, accounts))
    return file.getvalue()


def _read(kind: type[_T], image: bytes, policy: Policy, extras: Extras, shared: Sequence[Any] = ()) -> _T:
    with _uncollected():
        state, accounts = _Reader(image, policy, extras, shared).load()
    for provider, account in zip(_keepers(policy), accounts, strict=bool(accounts)):
        vars(provider).update(account)
    assert isinstance(state, kind)
    return state


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the garbage collector, which would look at every object again and again and find nothing."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _given(name: str | int) -> Any:
    """Stands for a thing that the reader brings along."""
    raise AssertionError(name)


def _frozen(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(mapping)


def _plain(value: Any) -> Any:
    return value


class _Replaced:
    """Stands for a policy, or its fairness, that no longer holds: only that it was another one matters."""


class _Writer(pickle.Pickler):
    """Writes the package's objects and arrays; others go to `shared`, or nowhere."""

    def __init__(self, file: io.BytesIO, policy: Policy, shared: list[Any] | None) -> None:
        super().__init__(file, protocol=5)
        self._policy = policy
        self._shared = shared
        self._own: dict[type, bool] = {}

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if self._own.get(kind):
            return NotImplemented
        if kind is Job:  # there may be many: what dataclasses do here takes ten times as long
            return Job, (obj.id, obj.user, obj.priority, obj.gang, obj.deadline)
        if obj is self._policy:
            return _given, ("policy",)
        if obj is self._policy.fairness:
            return _given, ("fairness",)
        if kind is Policy or kind is Fairness:
            return _Replaced, ()
        if kind is MappingProxyType:
            return _frozen, (dict(obj),)
        if isinstance(obj, np.generic) and self._shared is None:
            if isinstance(obj.item(), np.generic):
                raise InputError(f"only strings, numbers and tuples of them can be written down, not {quoted(obj)}")
            return _plain, (obj.item(),)
        named = isinstance(obj, type | FunctionType | BuiltinFunctionType)
        if (obj if named else kind) in _CONTAINERS.values():
            return NotImplemented
        home = obj.__module__ if named else kind.__module__
        if home.startswith(("flowsched.", "numpy")):
            self._own[kind] = not named
            return NotImplemented
        if self._shared is None:
            raise InputError(f"only strings, numbers and tuples of them can be written down, not {quoted(obj)}")
        self._shared.append(obj)
        return _given, (len(self._shared) - 1,)


class _Reader(pickle.Unpickler):
    """Reads what `_Writer` wrote."""

    def __init__(self, image: bytes, policy: Policy, extras: Extras, shared: Sequence[Any]) -> None:
        super().__init__(io.BytesIO(image))
        self._modules = _OWN.union(extras.modules)
        self._things: dict[str | int, Any] = {"policy": policy, "fairness": policy.fairness, **dict(enumerate(shared))}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (__name__, "_given"):
            return self._things.__getitem__
        if (module, name) == (__name__, "_frozen"):
            return _frozen
        if (module, name) == (__name__, "_plain"):
            return _plain
        own = module in self._modules or module.startswith(("flowsched.cluster.", "flowsched.policy"))
        known = (own and "." not in name) or (module, name) in _NUMPY or (module, name) in _CONTAINERS
        found = super().find_class(module, name) if known else None
        if found is None or (own and not isinstance(found, type)):
            raise InputError(f"image: {module}.{name} does not belong there")
        return found
