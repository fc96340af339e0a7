"""The state of a flow network as data: a flat mapping of names to integers and vectors of integers, nothing else.

The state is complete.  A network made of it has the same ids, flow, potentials and kept basis, and the same order of everything that a solve looks at, so all its
later solves are those of the original, bit for bit.  Derived values are left out (excesses, degrees, tails and heads, the layout of memory).

n and m are the numbers of node and arc ids ever given; ids that are free again stand among them with zeros.  The half-arcs 2 a and 2 a + 1 are arc a seen from
its tail and from its head.

=====================  =======================================================================================================
``form``               number of this format: 3
``supply``             by node
``potential``          by node
``hint``               by node: where in its adjacency the next walk begins
``adjacent``           half-arcs, node by node
``degree``             by node: number of its own half-arcs; -1 where the id is free
``free_nodes``         free ids, in the order in which they will be given
``active``             nodes in the order in which solving looks for an excess: all that have one, and maybe others
``capacity``           by arc; 2**62 for unlimited
``flow``               by arc: the present flow, which a mutation may have moved away from the last solution
``lower``              by arc, or of length 0 if all are 0
``cost``               by arc
``free_arcs``          as ``free_nodes``
``bent``               half-arcs that may have room and a negative reduced cost
``solved``             1 if there is a last solution
``moved_arcs``         arcs whose ``flow`` may not be that of the last solution,
``moved_flow``         and their flow there
``moved_nodes``        nodes whose ``potential`` may not be that of the last solution,
``moved_potential``    and their potential there
``overflown``          1 if an excess has left its range
``hub``, ``hub_seen``  node that takes most of the flow, or -1, and the number of nodes when it was looked for
``cost_bound``         no |cost| is above it
``reshaped``           1 if nodes or arcs were added or removed since
``eccentric``          1 if the potentials are the simplex's choice
``cold_solves``, ``warm_solves``, ``budget``, ``patience``: counts, and limits of a solve
``record``             data for the choice between algorithms, and the cost of a cold solve: see `_cs.pyx`
``regret``, ``since``, ``until``: the same
``halted``             the algorithm that ran into the time limit of the last solve, by number; 0 if none did
``based``              1 if the simplex has a last basis; all that follows is empty or 0 if not
``news``               changes since it was made: arcs, and ~v for the supply of node v, one entry for each change
``known``              by node: the supplies that it knows
``basis_kept``         0 if it will only be thrown away; all that follows is empty or 0 then
``basis_name``         the basis has an order of nodes of its own: our node by its node; by its nodes go the next five, its root is n
``basis_parent``       in the tree
``basis_next``         preorder of the tree, circular, root included
``basis_tree``         the half-arc that leads to the parent; -1 if artificial: then it carries the surplus or deficit of the arcs at the node
``basis_potential``    that of the root is 0
``basis_slot``         half-arcs outside the tree, in the order in which they are priced, even at the lower bound, odd at the capacity; -1 where there is none
``basis_spare``        slots without one, in the order in which they will be used
``basis_flow``         by arc
``basis_room``         by arc: capacity above the lower bound, up to ``basis_wide``
``basis_cost``         by arc
``basis_anchor``, ``basis_depth``, ``basis_worn``, ``basis_trust``, ``basis_volume``, ``basis_negative``, ``basis_wide``, ``basis_top_cost``: see `simplex.pyx`
=====================  =======================================================================================================

`checked` looks at names, kinds and lengths.  The kernel checks the contents before it uses them (`_cs.Network.adopt`): ids, lists, bounds, balances,
the invariant (I).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from flowsched.exceptions import InputError

FORM: Final = 3

_FLAG = (0, 1)
_COUNT = (0, 2**62)
_ID = (-1, 2**31 - 1)

NUMBERS: Final[Mapping[str, tuple[int, int]]] = {
    "form": (FORM, FORM),
    "solved": _FLAG,
    "overflown": _FLAG,
    "hub": _ID,
    "hub_seen": (0, 2**32),
    "cost_bound": (0, 2**59 - 1),
    "reshaped": _FLAG,
    "eccentric": _FLAG,
    "cold_solves": _COUNT,
    "warm_solves": _COUNT,
    "regret": _COUNT,
    "since": (0, 2**31),
    "until": (0, 2**31),
    "halted": (0, 3),
    "budget": (0, 10**6),
    "patience": (-1, 2**62),
    "based": _FLAG,
    "basis_kept": _FLAG,
    "basis_anchor": (0, 2**31 - 1),
    "basis_depth": (-(2**31), 2**31 - 1),
    "basis_worn": _COUNT,
    "basis_trust": (0, 2**31),
    "basis_volume": _COUNT,
    "basis_negative": _COUNT,
    "basis_wide": _COUNT,
    "basis_top_cost": (0, 2**59),
}
"""Least and largest value of each number."""

ARRAYS: Final[Mapping[str, tuple[type[np.int32] | type[np.int64], str]]] = {
    "supply": (np.int64, "n"),
    "potential": (np.int64, "n"),
    "hint": (np.int32, "n"),
    "degree": (np.int32, "n"),
    "adjacent": (np.int32, ""),
    "free_nodes": (np.int32, ""),
    "active": (np.int32, ""),
    "capacity": (np.int64, "m"),
    "flow": (np.int64, "m"),
    "lower": (np.int64, "m or 0"),
    "cost": (np.int64, "m"),
    "free_arcs": (np.int32, ""),
    "bent": (np.int32, ""),
    "moved_arcs": (np.int32, ""),
    "moved_flow": (np.int64, "moved_arcs"),
    "moved_nodes": (np.int32, ""),
    "moved_potential": (np.int64, "moved_nodes"),
    "record": (np.int64, ""),
    "news": (np.int32, ""),
    "known": (np.int64, "n if based"),
    "basis_name": (np.int32, "n if kept"),
    "basis_parent": (np.int32, "n if kept"),
    "basis_next": (np.int32, "n + 1 if kept"),
    "basis_tree": (np.int32, "n if kept"),
    "basis_potential": (np.int64, "n if kept"),
    "basis_slot": (np.int32, ""),
    "basis_spare": (np.int32, ""),
    "basis_flow": (np.int64, "m if kept"),
    "basis_room": (np.int64, "m if kept"),
    "basis_cost": (np.int64, "m if kept"),
}
"""Kind and length of each vector."""


def checked(state: Any) -> dict[str, Any]:
    """Return a copy of a state, after a check of names, kinds, ranges and lengths.

    The InputError names the part that is missing, unknown, of another kind, out of range or of another length.
    """
    if not isinstance(state, Mapping):
        raise InputError(f"state: a mapping expected, got {type(state).__name__}")
    names = set(state)
    if names != _NAMES:
        for what, wrong in (("is missing", _NAMES - names), ("is not part of one", names - _NAMES)):
            if wrong:
                raise InputError(f"state: {min(map(str, wrong))!r:.80} {what}")
    own: dict[str, Any] = {}
    for name, (least, most) in NUMBERS.items():
        value = state[name]
        if type(value) is not int or not least <= value <= most:
            raise InputError(f"state: {name}: an int from {least} to {most} expected, got {value!r:.80}")
        own[name] = value
    for name, (kind, _) in ARRAYS.items():
        value = state[name]
        if type(value) is not np.ndarray or value.dtype != kind or value.ndim != 1:
            got = f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
            raise InputError(f"state: {name}: a vector of {kind.__name__} expected, got {got:.80}")
        own[name] = np.array(value, dtype=kind, order="C", copy=True)
    n, m, kept = len(own["supply"]), len(own["capacity"]), own["basis_kept"]
    if kept > own["based"]:
        raise InputError("state: basis_kept: there is no basis")
    lengths = {
        "n": (n,),
        "m": (m,),
        "m or 0": (m, 0),
        "moved_arcs": (len(own["moved_arcs"]),),
        "moved_nodes": (len(own["moved_nodes"]),),
        "n if based": (n * own["based"],),
        "n if kept": (n * kept,),
        "n + 1 if kept": ((n + 1) * kept,),
        "m if kept": (m * kept,),
    }
    for name, (_, length) in ARRAYS.items():
        if length and len(own[name]) not in lengths[length]:
            raise InputError(f"state: {name}: length {lengths[length][0]} expected, got {len(own[name])}")
    return own


_NAMES: Final = frozenset(NUMBERS) | frozenset(ARRAYS)
