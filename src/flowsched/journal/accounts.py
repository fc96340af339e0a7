"""Accounts of share providers as plain values that JSON can hold, and back.

An account is the state of a provider without its settings, which are in the policy's description.  Values are written
as they are (None, truth values, numbers, strings), or as a dict of one member that names their kind::

    {"tuple": [...]}  {"list": [...]}  {"set": [...]}  {"frozenset": [...]}  {"dict": [[key, value], ...]}
    {"array": [type, shape, numbers]}          a NumPy array of numbers or truth values
    {"Deployment": {...}}  {"Sequence": {...}}  {"Ledger": {...}}          see `flowsched.sharing.deployment`

Nothing else can be written, and nothing else is read: no class and no function can be named.  Reading checks everything
before any provider is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from flowsched.boundary.validate import check_id, instance, mapping, number, ordered, truth, whole
from flowsched.exceptions import InputError
from flowsched.policy import Policy
from flowsched.policy.providers import SequenceShare
from flowsched.policy.serialize import describe
from flowsched.sharing.deployment import Deployment
from flowsched.sharing.deployment_sequence import DeploymentSequence
from flowsched.sharing.ledger import Ledger

MOST_USERS = 1 << 13
"""A ledger of more users is refused, for it takes their square."""

_LARGEST = (1 << 60) - 1

Account = tuple[str, Any, dict[str, Any]]
"""Place of a provider in the policy ("share", "within", "share.share", ...), its description, its account by name."""


def keepers(policy: Policy) -> dict[str, Any]:
    """Share providers that keep accounts, by their place in the policy, those inside of other providers included."""
    fairness = policy.fairness
    if fairness is None:
        return {}
    found: dict[str, Any] = {}
    look = [("share", fairness.share), ("within", fairness.within)]
    while look:
        where, provider = look.pop(0)
        if provider is None or any(provider is known for known in found.values()):
            continue
        if hasattr(provider, "committed"):
            found[where] = provider
        inner = getattr(provider, "share", None)
        if callable(inner) and len(look) + len(found) < 64:
            look.append((f"{where}.share", inner))
    return found


def accounts(policy: Policy) -> Iterator[Account]:
    """Yield the accounts of a policy's providers; raise InputError if one has something that cannot be written down."""
    for where, provider in keepers(policy).items():
        described = describe(provider)
        settings = set(described) if isinstance(described, dict) else set()
        settings |= getattr(type(provider), "later_settings", frozenset())
        kept = {name: value for name, value in vars(provider).items() if name not in settings}
        try:
            yield where, described, {name: _plain(value) for name, value in kept.items()}
        except RecursionError:
            raise InputError(f"policy: what {described} keeps refers to itself") from None


def booked(policy: Policy, kept: Mapping[str, tuple[Any, Any]]) -> Callable[[], None]:
    """Check accounts by place, each with its provider's description; return a function that books them all at once.

    Raise InputError if an account is nonsense, or the policy has no such provider.
    """
    known = keepers(policy)
    inventory: list[tuple[Any, dict[str, Any]]] = []
    for where, (described, account) in kept.items():
        provider = known.get(where)
        if provider is None or describe(provider) != described:
            name = described.get("is") if isinstance(described, dict) else described
            raise InputError(f"policy: fairness.{where} must be the {name} that kept the accounts, with its settings")
        instance(f"account of fairness.{where}", account, dict)
        for name in account:
            if not name.isidentifier() or name.startswith("__") or _is_code(getattr(type(provider), name, None)):
                raise InputError(f"account of fairness.{where}: {name!r} is nothing that it could keep")
        read = completed(provider, {name: _read(value) for name, value in account.items()})
        if type(provider) is SequenceShare:
            _check_deployment(provider, **read)
        inventory.append((provider, read))

    def book() -> None:
        for provider, account in inventory:
            vars(provider).update(account)

    return book


def completed(provider: Any, account: Mapping[str, Any]) -> dict[str, Any]:
    """Return an account with the values that one of an older version lacks, see `flowsched.policy.ShareProvider`."""
    return {**getattr(type(provider), "later", {}), **account}


def _check_deployment(
    provider: SequenceShare,
    deployment: Any = None,
    grains: Any = True,
    held: Any = MappingProxyType({}),
    since: Any = None,
) -> None:
    truth("account: SequenceShare: grains", grains)
    if since is not None:
        number("account: SequenceShare: since", since)
    for user, amount in mapping("account: SequenceShare: held", held).items():
        check_id("account: SequenceShare: held", user)
        whole("account: SequenceShare: held", amount, 0, _LARGEST)
    made = Deployment({"anybody": 1}, mu=provider.mu, ticks=provider.ticks)
    if deployment is not None and (
        type(deployment) is not Deployment
        or any(getattr(deployment, name) != getattr(made, name) for name in ("mu", "ticks", "spares"))
        or deployment.sequence.method != made.sequence.method
    ):
        raise InputError("account: SequenceShare: deployment: one with the provider's settings expected")


def _is_code(attribute: Any) -> bool:
    return callable(attribute) or hasattr(attribute, "__get__")


# -- values ---------------------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if isinstance(value, np.generic):
        return _plain(value.item())
    if kind in (tuple, list, set, frozenset):
        return {kind.__name__: [_plain(one) for one in value]}
    if kind is dict:
        return {"dict": [[_plain(key), _plain(one)] for key, one in value.items()]}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return {"array": [value.dtype.str, list(value.shape), value.ravel().tolist()]}
    if kind is Deployment:
        return {"Deployment": _deployment(value)}
    if kind is DeploymentSequence:
        return {"Sequence": _sequence(value)}
    if kind is Ledger:
        return {"Ledger": _ledger(value)}
    if isinstance(value, str | int | float):
        return kind.__mro__[-2](value)
    raise InputError(
        f"a provider's account can only hold numbers, strings, arrays and containers of them, not {value!r}"
    )


def _read(value: Any) -> Any:
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise InputError("account: a value or a dict of one member expected, got a list")
        return value
    if len(value) != 1:
        raise InputError(f"account: a dict of one member expected, got {len(value)}")
    ((name, what),) = value.items()
    reader = _READERS.get(name)
    if reader is None:
        raise InputError(f"account: nothing is called {name!r}")
    return reader(what)


def _items(what: Any) -> list[Any]:
    instance("account", what, list)
    return [_read(one) for one in what]


def _hashed(what: Any) -> list[Any]:
    items = _items(what)
    for item in items:
        check_id("account", item)
    return items


def _dict(what: Any) -> dict[Any, Any]:
    pairs = ordered("account", what)
    if any(not isinstance(pair, list) or len(pair) != 2 for pair in pairs):
        raise InputError("account: dict: pairs expected")
    return dict(zip(_hashed([key for key, _ in pairs]), [_read(one) for _, one in pairs], strict=True))


def _array(what: Any) -> Any:
    if not isinstance(what, list) or len(what) != 3 or not isinstance(what[1], list) or not isinstance(what[2], list):
        raise InputError("account: array: type, shape and numbers expected")
    kind, shape, numbers = what
    try:
        dtype = np.dtype(kind)
        shape = [whole("account: array: shape", size, 0, len(numbers)) for size in shape]
        if dtype.kind not in "biuf" or len(shape) > 8 or any(type(one) not in (bool, int, float) for one in numbers):
            raise InputError(f"account: array: numbers expected, got {kind!r}")
        return np.array(numbers, dtype).reshape(shape)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"account: array: {error}") from None


# -- the package's own ----------------------------------------------------------------------------------------------


def _sequence(sequence: DeploymentSequence) -> dict[str, Any]:
    quotas = [[_plain(user), quota] for user, quota in sequence.quotas.items()]
    return {"quotas": quotas, "method": sequence.method, "position": sequence.position}


def _read_sequence(what: Any) -> DeploymentSequence:
    quotas = _members(what, "Sequence", "quotas", "position")[0]
    if not isinstance(quotas, list) or any(not isinstance(pair, list) or len(pair) != 2 for pair in quotas):
        raise InputError("account: Sequence: quotas: pairs expected")
    users = _hashed([user for user, _ in quotas])
    if len(set(users)) < len(users) or len(users) > MOST_USERS:
        raise InputError(f"account: Sequence: at most {MOST_USERS} users, each once, expected")
    named = dict(zip(users, (quota for _, quota in quotas), strict=True))
    sequence = DeploymentSequence(
        named, what.get("method", "max_deficit"), whole("position", what["position"], 0, _LARGEST)
    )
    if sequence.position != what["position"]:
        raise InputError(f"account: Sequence: position {what['position']} is not below {sequence.total}")
    return sequence


def _ledger(ledger: Ledger) -> dict[str, Any]:
    debts = [[int(t), int(s), int(ledger.debt[t, s])] for t, s in zip(*np.nonzero(ledger.debt), strict=True)]
    return {"users": [_plain(user) for user in ledger.users], "debts": debts}


def _read_ledger(what: Any) -> Ledger:
    names, debts = _members(what, "Ledger", "users", "debts")
    users = _hashed(names)
    if len(set(users)) < len(users) or len(users) > MOST_USERS:
        raise InputError(f"account: Ledger: at most {MOST_USERS} users, each once, expected")
    ledger = Ledger()
    ledger.users = tuple(users)
    ledger.debt = np.zeros((len(users), len(users)), np.int64)
    total = 0
    for debt in ordered("account: Ledger: debts", debts):
        if not isinstance(debt, list) or len(debt) != 3:
            raise InputError(f"account: Ledger: borrower, lender and units expected, got {debt!r}")
        t, s = (whole("account: Ledger: user", user, 0, len(users) - 1) for user in debt[:2])
        ledger.debt[t, s] = units = whole("account: Ledger: units", debt[2], 1, _LARGEST)
        total += units
    if total > _LARGEST or (ledger.debt.any(axis=0) & ledger.debt.any(axis=1)).any():
        raise InputError("account: Ledger: a user both owes and is owed, or debts are too large")
    return ledger


def _deployment(deployment: Deployment) -> dict[str, Any]:
    return {
        **_sequence(deployment.sequence), "debts": _ledger(deployment.ledger)["debts"], "mu": deployment.mu,
        "spares": deployment.spares, "ticks": deployment.ticks, "carried": deployment._carried.tolist(),
        "leaving": [_plain(user) for user in deployment._leaving],
    }  # fmt: skip


def _read_deployment(what: Any) -> Deployment:
    debts, carried, leaving = _members(what, "Deployment", "debts", "carried", "leaving")
    sequence = _read_sequence(what)
    settings = {name: what[name] for name in ("mu", "spares", "ticks") if name in what}
    deployment = Deployment(sequence.quotas, method=sequence.method, **settings)
    deployment.sequence = sequence
    deployment.ledger = _read_ledger({"users": [user for user, _ in what["quotas"]], "debts": debts})
    part = _array(["<f8", [len(sequence.users)], carried])
    if not (np.isfinite(part) & (part >= 0)).all():
        raise InputError("account: Deployment: carried: numbers >= 0 expected")
    deployment._carried = part
    gone = _hashed(leaving)
    if not set(gone) <= set(sequence.users) or len(gone) >= max(len(sequence.users), 1):
        raise InputError("account: Deployment: leaving: some of the users expected, and not all of them")
    deployment._leaving = dict.fromkeys(gone)
    return deployment


def _members(what: Any, kind: str, *names: str) -> list[Any]:
    instance(f"account: {kind}", what, dict)
    missing = [name for name in names if name not in what]
    if missing:
        raise InputError(f"account: {kind}: {missing[0]} is missing")
    return [what[name] for name in names]


_READERS: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda what: tuple(_items(what)), "list": _items, "set": lambda what: set(_hashed(what)),
    "frozenset": lambda what: frozenset(_hashed(what)), "dict": _dict, "array": _array, "Deployment": _read_deployment,
    "Sequence": _read_sequence, "Ledger": _read_ledger,
}  # fmt: skip
