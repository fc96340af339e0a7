"""Numbers of pods by domain of a topology, kept up to date pod by pod.

Pods of one namespace with the same labels are a kind, since all selectors treat them alike.  A rule on other pods asks for
the kinds that it selects and for their numbers by the values of one label of nodes.  So its cost is that of the domains, not
that of the pods, and a check of one domain is a look-up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from flowsched.run.pods import Facts, PodTerm

LabelOf = Callable[[str, str], str | None]
"""Value of a label of a node, both by name."""

_DEAD = 1000
"""Number of kinds without pods that are kept."""


@dataclass(eq=False, slots=True)
class Tally:
    """Numbers of some pods.

    Attributes
    ----------
    nodes : Counter of str
        By node; no number is 0.
    """

    nodes: Counter[str] = field(default_factory=Counter)
    _domains: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, node: str, change: int, label_of: LabelOf) -> None:
        """Add pods on a node."""
        _add(self.nodes, node, change)
        for key, count in self._domains.items():
            value = label_of(node, key)
            if value is not None:
                _add(count, value, change)

    def by(self, key: str, label_of: LabelOf) -> Mapping[str, int]:
        """Return the numbers by value of a label of nodes."""
        count = self._domains.get(key)
        if count is None:
            count = self._domains[key] = Counter()
            for node, number in self.nodes.items():
                value = label_of(node, key)
                if value is not None:
                    count[value] += number
        return count

    def forget(self) -> None:
        """Forget the values of labels."""
        self._domains.clear()


def _add(count: Counter[str], key: str, change: int) -> None:
    count[key] += change
    if not count[key]:
        del count[key]


@dataclass(eq=False, slots=True)
class Kind:
    """Pods that are the same to every selector.

    Parameters
    ----------
    space : str
    labels : mapping
    ending : bool
        They are being deleted.
    pods : Tally
    """

    space: str
    labels: Mapping[str, str]
    ending: bool
    pods: Tally = field(default_factory=Tally)


class Census:
    """Numbers of the pods on nodes.

    Parameters
    ----------
    label_of : callable
    selects : callable
        Returns True if a term selects a kind.
    """

    def __init__(self, label_of: LabelOf, selects: Callable[[PodTerm, Kind], bool]) -> None:
        self._label_of, self._selects = label_of, selects
        self._kinds: dict[tuple[object, ...], Kind] = {}
        self._selected: dict[PodTerm, list[Kind]] = {}
        self._places: dict[str, tuple[Kind, str, tuple[PodTerm, ...]]] = {}
        self.holders: dict[PodTerm, Tally] = {}
        """Pods with a required anti-affinity, by its terms."""

    def place(self, pod: Facts) -> None:
        """Count a pod on its node."""
        key = pod.space, pod.ending, tuple(sorted(pod.labels.items()))
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) > _DEAD and sum(not one.pods.nodes for one in self._kinds.values()) > _DEAD:
                self._kinds = {each: one for each, one in self._kinds.items() if one.pods.nodes}
                self._selected.clear()
            kind = self._kinds[key] = Kind(pod.space, dict(pod.labels), pod.ending)
            for term, kinds in self._selected.items():
                if self._selects(term, kind):
                    kinds.append(kind)
        node = str(pod.node)
        kind.pods.add(node, 1, self._label_of)
        self._places[pod.path] = kind, node, pod.anti
        for term in pod.anti:
            if term not in self.holders:
                self.holders[term] = Tally()
            self.holders[term].add(node, 1, self._label_of)

    def remove(self, path: str) -> None:
        """Count a pod no more."""
        kind, node, anti = self._places.pop(path)
        kind.pods.add(node, -1, self._label_of)
        for term in anti:
            tally = self.holders[term]
            tally.add(node, -1, self._label_of)
            if not tally.nodes:
                del self.holders[term]

    def forget_labels(self) -> None:
        """Take note that labels of nodes with pods have changed."""
        for tally in [*(kind.pods for kind in self._kinds.values()), *self.holders.values()]:
            tally.forget()

    def forget_selections(self) -> None:
        """Take note that labels of namespaces have changed."""
        self._selected.clear()

    def kinds(self, term: PodTerm) -> list[Kind]:
        """Return the kinds that a term selects."""
        found = self._selected.get(term)
        if found is None:
            if len(self._selected) > _DEAD:
                self._selected.clear()
            found = self._selected[term] = [kind for kind in self._kinds.values() if self._selects(term, kind)]
        return found

    def values(self, term: PodTerm) -> Iterator[str]:
        """Yield the domains with a pod that a term selects."""
        for kind in self.kinds(term):
            yield from kind.pods.by(term.key, self._label_of)

    def number(self, term: PodTerm, value: str) -> int:
        """Return the number of pods in a domain that a term selects."""
        return sum(kind.pods.by(term.key, self._label_of).get(value, 0) for kind in self.kinds(term))

    def by(self, key: str, kind: Kind) -> Mapping[str, int]:
        """Return the numbers of a kind by value of a label of nodes."""
        return kind.pods.by(key, self._label_of)

    def held(self, term: PodTerm) -> Mapping[str, int]:
        """Return the numbers of pods with a term of anti-affinity, by its domains."""
        return self.holders[term].by(term.key, self._label_of)
