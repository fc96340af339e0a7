"""Frozen dataclasses that are made in every round: all at once."""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = ["frozen"]

_T = TypeVar("_T")

_new, _set = object.__new__, object.__setattr__


def frozen(cls: type[_T], attributes: dict[str, Any]) -> _T:
    """Return an object of a frozen dataclass without slots, which has these attributes.

    The generated ``__init__`` sets attribute by attribute through ``object.__setattr__`` and takes three times as long.

    Examples
    --------
    >>> from flowsched import RoundStats
    >>> told = {"nodes": 3, "arcs": 2, "changes": 5, "solves": 1, "gap": 0.0, "cost": 7,
    ...         "seconds_update": 0.1, "seconds_solve": 0.2, "seconds_read": 0.3}
    >>> frozen(RoundStats, told) == RoundStats(**told)
    True
    """
    made = _new(cls)
    _set(made, "__dict__", attributes)
    return made
