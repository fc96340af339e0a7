"""Links of a simulated cluster, and their max-min fair division among transfers.

A machine has a link to the switch of its rack, and a rack an uplink to the core, which is never short (a tree, as in
Isard et al., "Quincy", SOSP 2009, section 2).  Each link carries its bandwidth in both directions at once::

                      core
          up(r0) /           \\ down(r1)
             rack r0         rack r1
      out(m0) /    \\        /     \\ in(m3)
            m0      m1     m2      m3

A transfer has one rate over all of its path.  Rates are max-min fair: no rate could grow except at the expense of one that
is not larger (Bertsekas and Gallager, "Data Networks", section 6.5.2).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from flowsched.boundary.validate import named, number, quoted
from flowsched.cluster.model import Machine
from flowsched.exceptions import InputError

_LEAST, _MOST = 1e-9, 1e18

_NOISE = 1 + 1e-12
"""Ratio of two shares of a link up to which they count as equal, for errors of rounding."""


@dataclass(frozen=True, slots=True)
class NetworkModel:
    """Bandwidth of the links of a cluster, over which tasks read their input before they work.

    A task that starts reads the parts of `Task.data` that its machine does not hold, all at once, each from the machine
    that holds it.  Data of a machine that is not there come from outside, through the core.  Transfers share each link
    max-min fairly.  A task that is stopped releases its share, and reads again when it starts again.

    Parameters
    ----------
    machine : float
        Bandwidth of a machine's link in each direction, in the unit of `Task.data` a second.
    rack : float
        Bandwidth of a rack's uplink in each direction.  A machine of no rack is connected to the core.

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
        form = "machine=BANDWIDTH and rack=BANDWIDTH"
        given = named("network", text, form)
        try:
            found = {name: float(figure) for name, figure in given.items()}
        except ValueError:
            found = {}
        if not found or not found.keys() <= {"machine", "rack"} or any(map(math.isnan, found.values())):
            raise InputError(f"network: {form} expected, got {quoted(text)}")
        return cls(**found)

    def bandwidth(self, link: tuple[str, Hashable]) -> float:
        """Return the bandwidth of a link: ``in`` or ``out`` of a machine, ``up`` or ``down`` of a rack."""
        return self.machine if link[0] in ("in", "out") else self.rack

    def path(self, source: Machine | None, to: Machine) -> list[tuple[str, Hashable]]:
        """Return the names of the links from a machine, or from outside, to another machine; without those that are never short."""
        links: list[tuple[str, Hashable]] = [("in", to.id)]
        if source is not None:
            links.append(("out", source.id))
        if not same_rack(source, to):
            links += [("up", source.rack)] if source is not None and source.rack is not None else []
            links += [("down", to.rack)] if to.rack is not None else []
        return [link for link in links if self.bandwidth(link) < math.inf]


def same_rack(source: Machine | None, to: Machine) -> bool:
    """Return True if two machines are in one rack; a machine of no rack is a rack of its own."""
    return source is not None and source.rack is not None and source.rack == to.rack


@dataclass(slots=True, eq=False)
class Link:
    """One direction of a link, and the transfers over it; `free` and `open_` belong to the progressive filling only."""

    name: tuple[str, Hashable]
    bandwidth: float
    serial: int
    transfers: dict[Transfer, None] = field(default_factory=dict, repr=False)
    free: float = 0.0
    open_: int = 0


@dataclass(slots=True, eq=False)
class Transfer:
    """A part of a task's input on its way from its holder, with `left` of its `amount` to come at `rate`."""

    task: Hashable
    holder: Hashable
    to: Machine
    kind: int
    amount: float
    left: float
    path: Sequence[Link] = ()
    rate: float = 0.0


def fair_rates(transfers: Iterable[Transfer], links: Iterable[Link]) -> None:
    """Set the max-min fair rate of each transfer, by progressive filling; it is infinite without links.

    The link with the smallest share for each of its transfers saturates first.  That share is the rate of its
    transfers, and the other links have less capacity for the rest by that amount.  The share of a link never falls, so
    a heap finds the next one.  `links` are all that have transfers.
    """
    for transfer in transfers:
        transfer.rate = math.inf
    heap = []
    for link in links:
        link.free, link.open_ = link.bandwidth, len(link.transfers)
        heap.append((link.free / link.open_, link.serial, link))
    heapify(heap)
    while heap:
        known, serial, link = heappop(heap)
        if not link.open_:
            continue
        share = link.free / link.open_
        if share > known * _NOISE:
            heappush(heap, (share, serial, link))
            continue
        for transfer in link.transfers:
            if transfer.rate == math.inf:
                transfer.rate = share
                for other in transfer.path:
                    other.free -= share
                    other.open_ -= 1


class Links:
    """The links of a cluster that have transfers; `transfers` has all of these in the order in which they began."""

    def __init__(self, model: NetworkModel) -> None:
        self.model = model
        self.transfers: dict[Transfer, None] = {}
        self._busy: dict[tuple[str, Hashable], Link] = {}
        self._serial = 0

    def add(self, transfer: Transfer, path: Iterable[tuple[str, Hashable]]) -> None:
        """Lead a transfer over the links of these names."""
        found = []
        for name in path:
            link = self._busy.get(name)
            if link is None:
                self._serial += 1
                link = self._busy[name] = Link(name, self.model.bandwidth(name), self._serial)
            link.transfers[transfer] = None
            found.append(link)
        transfer.path = found
        self.transfers[transfer] = None

    def remove(self, transfer: Transfer) -> None:
        """Free the links of a transfer."""
        del self.transfers[transfer]
        for link in transfer.path:
            del link.transfers[transfer]
            if not link.transfers:
                del self._busy[link.name]

    def share(self) -> None:
        """Set the rates of all transfers."""
        fair_rates(self.transfers, self._busy.values())
