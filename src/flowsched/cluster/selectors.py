"""Requirements on the labels of machines, and taints, in plain tuples that compare, hash and survive JSON.

A *requirement* is a tuple: an operator, and its operands.  The operators are those of Kubernetes' node affinity::

    In            the label has one of these values
    NotIn         the label has none of these values, or the machine has no such label
    Exists        the machine has the label
    DoesNotExist  the machine does not have the label
    Gt, Lt        the label is a number above, or below, this one

The requirement of a task on a label is a sequence of values, which means `In`, or a sequence of requirements, all of which must be met.
The functions of the operators' names return sequences of one; ``+`` joins them::

    Task("t", {"cpu": 1}, constraints={"zone": NotIn("a", "b"), "kernel": Gt(5) + Lt(7), "gpu_model": ("T4",)})

A *taint* of a machine, ``(key, value, effect)``, keeps tasks away that have no *toleration* for it, ``(key, value, effect)``,
where None stands for anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flowsched.boundary.validate import mapping, number, ordered, quoted
from flowsched.exceptions import InputError

__all__ = [
    "DoesNotExist",
    "Exists",
    "Gt",
    "In",
    "Lt",
    "NotIn",
    "Requirement",
    "Taint",
    "Toleration",
    "Wanted",
    "checked_taints",
    "checked_tolerations",
    "keeps_off",
    "meets",
    "wanted_labels",
]

Requirement = tuple[Any, ...]
Wanted = Sequence[Any]

HARD = ("NoSchedule", "NoExecute")
"""Effects of taints that exclude tasks without toleration."""

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
"""All effects; `PreferNoSchedule` makes the machine more expensive for tasks without toleration (see `TaintCost`)."""


def In(*values: str) -> tuple[Requirement, ...]:
    """Require that the label has one of these values; the same as the sequence of them."""
    return (("In", *values),)


def NotIn(*values: str) -> tuple[Requirement, ...]:
    """Require that the label has none of these values; a machine without the label meets this."""
    return (("NotIn", *values),)


def Exists() -> tuple[Requirement, ...]:
    """Require that the machine has the label, whatever its value."""
    return (("Exists",),)


def DoesNotExist() -> tuple[Requirement, ...]:
    """Require that the machine does not have the label."""
    return (("DoesNotExist",),)


def Gt(bound: float) -> tuple[Requirement, ...]:
    """Require that the label is a number above `bound`."""
    return (("Gt", bound),)


def Lt(bound: float) -> tuple[Requirement, ...]:
    """Require that the label is a number below `bound`."""
    return (("Lt", bound),)


def _number(value: str | None) -> float | None:
    """Return the number that a label contains, exact if it is whole; None for any other label."""
    if value is None:
        return None
    try:
        return int(value)
    except ValueError:
        pass
    try:
        said = float(value)
    except ValueError:
        return None
    return said if math.isfinite(said) else None


def _above(value: str | None, bound: float) -> bool:
    said = _number(value)
    return said is not None and said > bound


def _below(value: str | None, bound: float) -> bool:
    said = _number(value)
    return said is not None and said < bound


MEETS: dict[str, Callable[..., bool]] = {
    "In": lambda value, *values: value in values,
    "NotIn": lambda value, *values: value not in values,
    "Exists": lambda value: value is not None,
    "DoesNotExist": lambda value: value is None,
    "Gt": _above,
    "Lt": _below,
}
"""By operator, whether a value of a label, None without it, meets a requirement with these operands."""


def meets(value: str | None, wanted: Wanted) -> bool:
    """Return True if a label of this value, None without it, meets a requirement from `wanted_labels`."""
    if not wanted or type(wanted[0]) is str:
        return value in wanted
    return all(MEETS[operator](value, *operands) for operator, *operands in wanted)


def wanted_labels(what: str, labels: Mapping[str, Any]) -> dict[str, Wanted]:
    """Return requirements on labels in one form: equal requirements compare equal.

    Parameters
    ----------
    what : str
        Name in error messages.
    labels : mapping of str to sequence
        Label -> allowed values, or requirements.

    Returns
    -------
    dict of str to tuple
        By label in order: a sorted tuple of values; or a sorted tuple of requirements, each with sorted values.

    Raises
    ------
    InputError
    """
    found: dict[str, Wanted] = {}
    for label in sorted(mapping(what, labels), key=str):
        wanted = labels[label]
        if not isinstance(label, str):
            raise InputError(f"{what}[{quoted(label)}]: a label is text")
        values = _values(f"{what}[{quoted(label)}]", wanted)
        if all(isinstance(value, str) for value in values):
            found[label] = tuple(sorted(set(values)))
        else:
            found[label] = _requirements(f"{what}[{quoted(label)}]", values)
    return found


def _values(what: str, values: Any) -> tuple[Any, ...]:
    try:
        return ordered(what, sorted(values, key=repr) if isinstance(values, set | frozenset) else values)
    except InputError:
        raise InputError(f"{what} must be a sequence of label values or requirements, got {quoted(values)}") from None


def _requirements(what: str, requirements: Sequence[Any]) -> tuple[Any, ...]:
    checked = {_requirement(what, requirement) for requirement in requirements}
    if len(checked) == 1:
        ((operator, *values),) = checked
        if operator == "In":
            return tuple(values)
    return tuple(sorted(checked, key=lambda requirement: (requirement[0], requirement[1:])))


def _requirement(what: str, requirement: Any) -> Requirement:
    if not isinstance(requirement, tuple | list) or not requirement:
        raise InputError(f"{what} must be a sequence of label values or requirements, got {quoted(requirement)} in it")
    operator, *operands = requirement
    if not isinstance(operator, str) or operator not in MEETS:
        raise InputError(f"{what}: an operator of {', '.join(MEETS)} expected, got {quoted(operator)}")
    if operator in ("Gt", "Lt"):
        if len(operands) != 1:
            raise InputError(f"{what}: {operator} takes one number, got {quoted(operands)}")
        return operator, number(f"{what}: {operator}", operands[0])
    if operator in ("Exists", "DoesNotExist"):
        if operands:
            raise InputError(f"{what}: {operator} takes no values, got {quoted(operands)}")
    elif not operands:
        raise InputError(f"{what}: {operator} takes values, got none")
    for value in operands:
        if not isinstance(value, str):
            raise InputError(f"{what}: {operator} takes label values, got {quoted(value)}")
    return operator, *sorted(set(operands))


# -- taints -----------------------------------------------------------------------------------------------------------


def Taint(key: str, value: str = "", effect: str = "NoSchedule") -> Requirement:
    """Keep tasks off a machine that do not tolerate this taint.

    Parameters
    ----------
    key, value : str
    effect : "NoSchedule", "NoExecute" or "PreferNoSchedule"
        Tasks without toleration never start there, or prefer other machines by the weight of `TaintCost`.  Running tasks
        go on; in Kubernetes, its own controller evicts them from a machine with a taint of the effect NoExecute.
    """
    return key, value, effect


def Toleration(key: str | None = None, value: str | None = None, effect: str | None = None) -> Requirement:
    """Tolerate the taints of this key, value and effect; None is any."""
    return key, value, effect


def _triple(what: str, value: Any) -> Requirement:
    if not isinstance(value, tuple | list) or len(value) != 3:
        raise InputError(f"{what}: key, value and effect expected, got {quoted(value)}")
    return tuple(value)


def checked_taints(what: str, taints: Any) -> tuple[Requirement, ...]:
    """Return taints in order, each once."""
    found = {}
    for i, taint in enumerate(ordered(what, taints)):
        key, value, effect = _triple(f"{what}[{i}]", taint)
        if not isinstance(key, str) or not key or not isinstance(value, str):
            raise InputError(f"{what}[{i}]: key and value must be text, got {quoted(taint)}")
        if effect not in EFFECTS:
            raise InputError(f"{what}[{i}]: an effect of {', '.join(EFFECTS)} expected, got {quoted(effect)}")
        if (key, effect) in found:
            raise InputError(f"{what}[{i}]: another taint has the key {key!r} and the effect {effect}")
        found[key, effect] = (key, value, effect)
    return tuple(sorted(found.values()))


def checked_tolerations(what: str, tolerations: Any) -> tuple[Requirement, ...]:
    """Return tolerations in order, each once."""
    found = set()
    for i, toleration in enumerate(ordered(what, tolerations)):
        key, value, effect = _triple(f"{what}[{i}]", toleration)
        if not all(part is None or isinstance(part, str) for part in (key, value)):
            raise InputError(f"{what}[{i}]: key and value must be text or None, got {quoted(toleration)}")
        if key is None and value is not None:
            raise InputError(f"{what}[{i}]: a value without a key, got {quoted(toleration)}")
        if effect is not None and effect not in EFFECTS:
            raise InputError(f"{what}[{i}]: an effect of {', '.join(EFFECTS)} or None expected, got {quoted(effect)}")
        found.add((key, value, effect))
    return tuple(sorted(found, key=lambda one: tuple((part is not None, part or "") for part in one)))


def keeps_off(taint: Requirement, tolerations: Sequence[Requirement]) -> bool:
    """Return True if no toleration covers the taint."""
    return not any(
        all(wanted is None or wanted == part for wanted, part in zip(toleration, taint, strict=True))
        for toleration in tolerations
    )
