"""Links of a simulated cluster, and their max-min fair division among transfers.

A machine has a link to the switch of its rack, and a rack an uplink to the core, which is never short (a tree, as in
Isard et al., "Quincy", SOSP 2009, section 2).  Each link carries its bandwidth in both directions at once::

                      core
          up(r0) /           \\ down(r1)
             rack r0         rack r1
      out(m0) /    \\        /     \\ in(m3)
            m0      m1     m2      m3

A transfer has one rate over all of its path.  Rates are max-min fair: none could grow but at the expense of one that is
no larger (Bertsekas and Gallager, "Data Networks", section 6.5.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from flowsched.boundary.validate import number, quoted
from flowsched.cluster.model import Machine
from flowsched.exceptions import InputError

__all__ = ["Link", "NetworkModel", "fair_rates"]

Link = tuple[str, Hashable]
"""Direction and end: ``out`` and ``in`` of a machine, ``up`` and ``down`` of a rack."""

_LEAST, _MOST = 1e-9, 1e18


@dataclass(frozen=True, slots=True)
class NetworkModel:
    """Bandwidth of the links of a cluster, over which tasks read their input before they work.

    A task that starts reads the parts of `Task.data` that its machine does not hold, all at once, each from the machine
    that holds it.  What lies on a machine that is not there comes from outside, through the core.  Transfers share each
    link max-min fairly.  A task that is stopped gives its share back, and reads again when it starts again.

    Parameters
    ----------
    machine : float
        Bandwidth of a machine's link in each direction, in the unit of `Task.data` a second.
    rack : float
        Bandwidth of a rack's uplink in each direction.  A machine of no rack hangs on the core.

    Raises
    ------
    InputError
        A bandwidth is not above 0.

    Examples
    --------
    >>> NetworkModel.parse("machine=1.25e9, rack=5e9").rack
    5000000000.0
    """

    machine: float = math.inf
    rack: float = math.inf

    def __post_init__(self) -> None:
        for name in ("machine", "rack"):
            value = number(f"NetworkModel: {name}", getattr(self, name), _LEAST, finite=False)
            if _MOST < value < math.inf:
                raise InputError(f"NetworkModel: {name}: at most {_MOST:g} or infinity expected, got {value:g}")
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        both = (("machine", self.machine), ("rack", self.rack))
        return ",".join(f"{name}={value!r}".removesuffix(".0") for name, value in both if value < math.inf)

    @classmethod
    def parse(cls, text: str) -> NetworkModel:
        """Read a model such as ``machine=1.25e9,rack=5e9``, as `str` writes it; a link that is not named is never short.

        Raises
        ------
        InputError
            The text is no such list.
        """
        found: dict[str, float] = {}
        for part in text.split(","):
            name, _, figure = (side.strip() for side in part.partition("="))
            try:
                value = float(figure)
            except ValueError:
                value = math.nan
            if name not in ("machine", "rack") or name in found or math.isnan(value):
                raise InputError(f"network: machine=BANDWIDTH and rack=BANDWIDTH expected, got {quoted(part)}")
            found[name] = value
        return cls(**found)

    def bandwidth(self, link: Link) -> float:
        """Return the bandwidth of a link."""
        return self.machine if link[0] in ("in", "out") else self.rack

    def path(self, source: Machine | None, to: Machine) -> list[Link]:
        """Return the links from a machine, or from outside, to another machine; without those that are never short."""
        links: list[Link] = [("in", to.id)]
        if source is not None:
            links.append(("out", source.id))
        if not same_rack(source, to):
            links += [("up", source.rack)] if source is not None and source.rack is not None else []
            links += [("down", to.rack)] if to.rack is not None else []
        return [link for link in links if self.bandwidth(link) < math.inf]


def same_rack(source: Machine | None, to: Machine) -> bool:
    """Return whether two machines are in one rack; a machine of no rack is a rack of its own."""
    return source is not None and source.rack is not None and source.rack == to.rack


def fair_rates(paths: Sequence[Sequence[Link]], bandwidth: Callable[[Link], float]) -> list[float]:
    """Return the max-min fair rate of each transfer, by progressive filling.

    The link with the least to give to each of its transfers is full first.  These have their rate then, and the other
    links have so much less for the rest.  What a link can give to each never falls, so a heap finds the next one.

    Parameters
    ----------
    paths : sequence of sequence of Link
        The links of each transfer, each link once; one without links has an infinite rate.
    bandwidth : callable
        Of a link.

    Examples
    --------
    >>> paths = [[("up", 0)], [("up", 0), ("in", 1)], [("in", 1)]]
    >>> fair_rates(paths, {("up", 0): 4.0, ("in", 1): 10.0}.__getitem__)
    [2.0, 2.0, 8.0]
    """
    users: dict[Link, list[int]] = {}
    for i, path in enumerate(paths):
        for link in path:
            users.setdefault(link, []).append(i)
    links = list(users)
    free = {link: bandwidth(link) for link in links}
    open_ = {link: len(who) for link, who in users.items()}
    rates = [math.inf] * len(paths)
    heap = [(free[link] / open_[link], k) for k, link in enumerate(links)]
    heapify(heap)
    while heap:
        known, k = heappop(heap)
        link = links[k]
        if not open_[link]:
            continue
        share = free[link] / open_[link]
        if share > known:
            heappush(heap, (share, k))
            continue
        for i in users[link]:
            if rates[i] == math.inf:
                rates[i] = share
                for other in paths[i]:
                    free[other] -= share
                    open_[other] -= 1
    return rates
