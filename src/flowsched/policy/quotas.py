"""Quotas: limits on the amounts that the tasks of a user, or of a job, take at the same time."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from flowsched.boundary.validate import mapping, number, quoted
from flowsched.cluster.model import Resources
from flowsched.exceptions import InputError

__all__ = ["Quotas", "checked_quotas"]


@dataclass(frozen=True)
class Quotas:
    """Limits on the resources of the running tasks of a claimant together; exact to the micro-unit.

    A quota limits starts: tasks that already run or are reported as started (`TaskStarted`) may exceed it.  If it is full, a
    better task takes the place of worse ones of the same claimant, provided that the policy stops tasks at all.  A stopping
    run counts until it has stopped.

    Parameters
    ----------
    amounts : mapping of user or job to (mapping of str to number)
        Limited resources by claimant, such as ``{"ann": {"gpu": 8, "cpu": 64}}``.
    over : "user" or "job"
        The claimants.
    default : mapping of str to number, optional
        Limit for each other claimant; none by default.  Jobs without a user are one claimant, None.
    """

    amounts: Mapping[Hashable, Mapping[str, float]]
    over: Literal["user", "job"] = "user"
    default: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        amounts = mapping("Quotas: amounts", self.amounts)
        checked = {who: _amounts(f"Quotas: amounts[{who!r}]", some) for who, some in amounts.items()}
        object.__setattr__(self, "amounts", checked)
        if self.over not in ("user", "job"):
            raise InputError(f"Quotas: over must be 'user' or 'job', got {quoted(self.over)}")
        if self.default is not None:
            object.__setattr__(self, "default", _amounts("Quotas: default", self.default))

    def limits(self, resources: Resources) -> tuple[dict[Hashable, Limit], Limit]:
        """Return the limits of claimants, and the limit of all others.

        Raises
        ------
        InputError
            A quota names an unknown resource.
        """
        named = {who: _limit(f"quota of {who!r}", some, resources) for who, some in self.amounts.items()}
        return named, _limit("quota by default", self.default or {}, resources)


Limit = tuple[tuple[int, int], ...]
"""Positions of resources, each with its limit in micro-units."""


def checked_quotas(given: Any) -> Quotas | None:
    """Return the quotas of a policy; a mapping is one of users."""
    if given is None or isinstance(given, Quotas):
        return given
    if not isinstance(given, Mapping):
        raise InputError(f"Policy: quotas must be Quotas, a mapping of users to amounts or None, got {quoted(given)}")
    return Quotas(given)


def _amounts(what: str, amounts: Any) -> dict[str, float]:
    found = mapping(what, amounts)
    for name in found:
        if not isinstance(name, str):
            raise InputError(f"{what}: names of resources expected, got {quoted(name)}")
    return {name: number(f"{what}[{name!r}]", amount, 0) for name, amount in found.items()}


def _limit(what: str, amounts: Mapping[str, float], resources: Resources) -> Limit:
    vector = resources.amounts(what, amounts).tolist()
    return tuple((resources.index[name], vector[resources.index[name]]) for name in amounts)
