"""Edge lists with named nodes, as columns: tuples, mappings, or a table such as a DataFrame."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from flowsched.exceptions import InputError
from flowsched.network.arguments import capacities, integers
from flowsched.network.results import INF, Int64Array

__all__ = ["Edges", "read_edges", "supplies_of"]

_ABSENT: Final = object()


@dataclass(slots=True)
class Edges:
    """Arcs by columns; a node's number is its place in ``names``."""

    names: dict[Hashable, int] = field(default_factory=dict)
    tail: list[int] = field(default_factory=list)
    head: list[int] = field(default_factory=list)
    capacity: Any = field(default_factory=list)
    cost: Any = field(default_factory=list)
    lower: Any = field(default_factory=list)

    def number(self, edge: int, name: Any) -> int:
        """Return the number of a node, new or known."""
        try:
            known = self.names.get(name)
            if known is not None:
                return known
            if name is None or name != name:
                raise InputError(f"edges[{edge}]: the name of a node is missing ({name!r})")
            return self.names.setdefault(name, len(self.names))
        except (TypeError, ValueError) as error:  # ValueError: the names are arrays
            if isinstance(error, InputError):
                raise
            raise InputError(f"edges[{edge}]: the name of a node must be hashable, got {name!r:.80}") from None


def read_edges(edges: Any, keys: tuple[str, str, str, str, str]) -> tuple[Edges, tuple[Int64Array, ...]]:
    """Read edges as `FlowNetwork.from_edges` takes them.

    Parameters
    ----------
    edges : iterable of tuple or mapping, mapping of columns, or table with ``columns``
    keys : source, target, capacity, cost, lower
        Names of columns and of keys.

    Returns
    -------
    found : Edges
    columns : tail, head, capacity, cost, lower
        Checked.

    Raises
    ------
    InputError
        Names the edge, or the column and the index.
    """
    names = edges if isinstance(edges, Mapping) else getattr(edges, "columns", None)
    if names is not None and not isinstance(edges, str):
        found = _of_table(edges, list(names), keys)
    else:
        found = _of_rows(edges, keys)
    m = len(found.tail)
    return found, (
        integers("tail", found.tail),
        integers("head", found.head),
        capacities(keys[2], found.capacity, m),
        integers(keys[3], found.cost, m),
        integers(keys[4], found.lower, m),
    )


def _of_table(table: Any, names: list[Any], keys: tuple[str, str, str, str, str]) -> Edges:
    for key in keys[:2]:
        if key not in names:
            raise InputError(f"edges: no column {key!r}; there are {', '.join(map(repr, names))}")
    found = Edges()
    starts, ends = list(table[keys[0]]), list(table[keys[1]])
    if len(starts) != len(ends):
        raise InputError(f"edges: {len(starts)} values in column {keys[0]!r}, {len(ends)} in {keys[1]!r}")
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        found.tail.append(found.number(i, start))
        found.head.append(found.number(i, end))
    found.capacity, found.cost, found.lower = (
        np.array(table[key]) if key in names else default for key, default in zip(keys[2:], (INF, 0, 0), strict=True)
    )
    return found


def _of_rows(edges: Iterable[Any], keys: tuple[str, str, str, str, str]) -> Edges:
    found = Edges()
    try:
        rows = iter(edges)
    except TypeError:
        raise InputError(f"edges: rows or a table expected, got {edges!r:.80}") from None
    for i, row in enumerate(rows):
        if isinstance(row, Mapping):
            start, end = (row.get(key, _ABSENT) for key in keys[:2])
            if start is _ABSENT or end is _ABSENT:
                raise InputError(f"edges[{i}]: no {keys[0 if start is _ABSENT else 1]!r} in {row!r:.80}")
            values = [row.get(key, default) for key, default in zip(keys[2:], (INF, 0, 0), strict=True)]
        else:
            try:
                start, end, *values = row
            except (TypeError, ValueError):
                raise InputError(
                    f"edges[{i}]: (source, target, capacity, cost, lower) expected, got {row!r:.80}"
                ) from None
            if len(values) == 1 and isinstance(values[0], Mapping):  # as NetworkX gives its edges
                values = [values[0].get(key, default) for key, default in zip(keys[2:], (INF, 0, 0), strict=True)]
            if len(values) > 3 or isinstance(row, str):
                raise InputError(f"edges[{i}]: (source, target, capacity, cost, lower) expected, got {row!r:.80}")
            values += [INF, 0, 0][len(values) :]
        found.tail.append(found.number(i, start))
        found.head.append(found.number(i, end))
        for column, value in zip((found.capacity, found.cost, found.lower), values, strict=True):
            column.append(value)
    return found


def supplies_of(found: Edges, supply: Mapping[Hashable, Any] | None) -> Int64Array:
    """Return the supplies by node; those that are not given are 0."""
    amounts = np.zeros(len(found.names), np.int64)
    if supply is None:
        return amounts
    if not isinstance(supply, Mapping):
        raise InputError(f"supply: a mapping of names to supplies expected, got {supply!r:.80}")
    for name, value in supply.items():
        if name not in found.names:
            raise InputError(f"supply: node {name!r:.80} is in no edge")
        amounts[found.names[name]] = integers(f"supply[{name!r:.80}]", value)[0]
    return amounts
