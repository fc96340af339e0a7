"""The pods that wait for flowsched, as tasks of a driver, and the reports on them to Kubernetes.

A pod without rules on other pods (see `flowsched.run.podrules`) is submitted at once.  The rules of others are computed for
the pods that are there, and hold until a pod that concerns them is placed.  So pods with rules are submitted in waves, of
which a round decides: `Feed.permitted` takes its places one after the other, and refuses those that break a rule by then.
Pods that a round does not place are withdrawn, and the next ones get their turn: those of highest priority, and of equals
the oldest.  Each has one turn after a change.  A wave is as large as rounds find places that agree.

Some rules can only be computed, not checked for one node (`flowsched.run.podrules.Present.together`).  Of the pods that
concern such a pod, at most one at a time is among the driver's tasks without a place.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from flowsched.cluster.events import JobSubmitted
from flowsched.cluster.selectors import meets
from flowsched.exceptions import FlowschedError
from flowsched.rounds.values import Migrate, ReasonCode, Round
from flowsched.run.driver import Driver
from flowsched.run.executor import Run
from flowsched.run.podreports import Advice, Reports
from flowsched.run.podrules import Present, Rules, WaitsError, terms_of
from flowsched.run.pods import (
    DRIVER,
    NAME,
    ODD,
    Ask,
    NodeTerm,
    Object,
    UnsupportedError,
    ask_of,
    facts,
    group_of,
    is_over,
    scheduler_of,
    seconds_of,
)

LOGGER = logging.getLogger("flowsched")

UNSUPPORTED = "UNSUPPORTED"
"""Reason of a pod with a field that is not understood."""

OPTIONAL = (
    "namespaces", "persistentvolumeclaims", "persistentvolumes", "csinodes", "poddisruptionbudgets", "podgroups",
)  # fmt: skip
"""Kinds of objects without which pods wait that need them."""

_SLICE = 0.02
"""Seconds for which rules are computed at a time."""

_SOON = 0.1
"""Seconds until a pod is tried again whose name is taken, or whose node has closed."""

_WAVE, _LARGEST_WAVE = 64, 4096
"""Number of pods with rules that are submitted together: at first, and at most."""

_AGAIN = 1.0
"""Seconds until a pod is tried again after a refusal."""


Adopted = tuple[Run, asyncio.Future[Any]]


@dataclass(eq=False, slots=True)
class _Waiting:
    """A pod that flowsched has to bind.

    Parameters
    ----------
    path, uid : str
    order : tuple
        Priority and age.
    pod : mapping
    ask : Ask or None
        None if it cannot be translated.
    rules : Rules
        Those with which it was submitted.
    version : int
        That of its last turn.
    future : Future or None
        Of its task; None while it is not submitted.
    node : str or None
        Its place, once a round has decided it.
    until : dict of node to time
        Nodes on which it may not displace other pods, for a while.
    rest : float
        Time before which it is not submitted.
    refusals : int
    waited : bool
        A round has not placed it.
    said : str
        The code of the last report.
    """

    path: str
    uid: str
    order: tuple[Any, ...]
    pod: Object
    ask: Ask | None = None
    rules: Rules = field(default_factory=Rules)
    version: int = -1
    future: asyncio.Future[Any] | None = None
    node: str | None = None
    until: dict[str, float] = field(default_factory=dict)
    rest: float = 0.0
    refusals: int = 0
    waited: bool = False
    said: str = ""


@dataclass(eq=False, slots=True)
class _Gang:
    """The pods of a pod group that flowsched has to bind or has bound, and the topology's domains that were tried.

    Parameters
    ----------
    members : dict of path to _Waiting
    version : int
        That of the trials.
    tried : set of str
    jobs : int
        Number of jobs that were submitted.
    """

    members: dict[str, _Waiting] = field(default_factory=dict)
    version: int = -1
    tried: set[str] = field(default_factory=set)
    jobs: int = 0


class Feed:
    """Submits the pods that wait for flowsched, cancels those that are deleted, and reports on them.

    Parameters
    ----------
    driver : Driver
    resources : sequence of str
    reports : Reports or Advice
        With the latter, pods are placed here only: nothing is changed, and no pod that is bound is taken over.
    refresh : callable
        Called when `wanted` has grown, to describe the machines again.
    hold : callable
        Called with the path of a pod that is taken over, the pod, and a function that does it.  It returns the future.
    names : collection of str
        Names of the scheduler in pods.
    begun : collection of str
        Paths of the pods that are being bound, or are bound, kept up to date.
    """

    def __init__(
        self,
        driver: Driver,
        resources: Sequence[str],
        reports: Reports | Advice,
        refresh: Callable[[], None],
        hold: Callable[[str, Object, Callable[[], Adopted]], asyncio.Future[Any]],
        names: Collection[str],
        begun: Collection[str] = (),
    ) -> None:
        self._driver, self._resources, self._reports, self._refresh = driver, tuple(resources), reports, refresh
        self._hold, self._names, self._begun = hold, frozenset(names), begun
        self._counted = frozenset(resources)
        self._loop = asyncio.get_running_loop()
        self._known: dict[str, _Waiting] = {}
        self._queue: dict[str, _Waiting] = {}  # not submitted
        self._line: list[tuple[Any, ...]] = []  # orders of the queue, and of some that have left it
        self._joined: list[tuple[Any, ...]] = []
        self._open: dict[str, _Waiting] = {}  # submitted, without a place
        self._ruled: dict[str, _Waiting] = {}  # those of them with rules
        self._alone: dict[str, _Waiting] = {}  # those of these that are not submitted in waves
        self._wave = _WAVE
        self._alike: tuple[int, dict[tuple[Any, ...], Rules]] = -1, {}  # rules of pods for a version
        self._blockers: set[str] = set()
        self._gangs: dict[str, _Gang] = {}
        self._due: asyncio.Handle | None = None
        self._complete = False
        self._victims: dict[str, str] = {}
        self._later: dict[str, dict[str, Object]] = {}  # bound and not taken over yet, by node
        self._late: dict[str, str] = {}  # their nodes
        self.present = Present()
        self.wanted: dict[str, NodeTerm | None] = {}

    @property
    def ending(self) -> bool:
        """True once the driver closes: the pods stay."""
        return self._driver.closing

    # -- changes of objects -------------------------------------------------------------------------------------

    def complete(self) -> None:
        """Take note that all pods are known; none is submitted before, as the rules of others would be unknown."""
        self._complete = True
        self._soon()

    def see_node(self, name: str, node: Object | None) -> None:
        """Take note of a node, None for one that is gone."""
        if self.present.set_node(name, node):
            self._give_up(name)
        self._soon()

    def _give_up(self, name: str) -> None:
        """Look for another place for the pods that wait for room on a node which is closed to them by now."""
        for path in self.present.on(name):
            known = self._known.get(path)
            if known is None or known.ask is None or path in self._begun or self.present.takes(known.ask, name):
                continue
            self.present.set_pod(path, None)
            known.ask.facts.node, known.version = None, -1
            known.rest = self._loop.time() + _SOON  # the driver hears of the node first
            self._withdraw(known)

    def changed(self) -> None:
        """Take note that the driver's machines have changed."""
        self.present.version += 1
        self._soon()

    def begin(self, kind: str) -> None:
        """Take note that a kind of objects can be read."""
        self.present.objects.setdefault(kind, {})
        self.changed()

    def see_object(self, kind: str, name: str, one: Object | None) -> None:
        """Take note of an object of another kind."""
        self.present.set_object(kind, name, one)
        self._soon()

    def see(self, path: str, pod: Object | None) -> None:
        """Take note of a pod, None for one that is deleted."""
        known = self._known.get(path)
        if path in self._late:
            self._later[self._late.pop(path)].pop(path, None)
        if known is not None and (pod is None or pod["metadata"].get("uid", "") != known.uid):
            self._drop(known)
            known = None
        if pod is not None and self._waits(pod):
            self._see_waiting(path, pod, known)
        elif isinstance(self._reports, Advice):
            if known is not None:
                self._drop(known)
                if pod is not None and "nodeName" in pod["spec"]:
                    self._reports.elsewhere(path, pod, pod["spec"]["nodeName"])
            there = pod is not None and "nodeName" in pod["spec"] and not is_over(pod)
            self.present.set_pod(path, facts(path, pod) if there and pod is not None else None)
        else:
            if known is not None and pod is not None and (known.future is None or "nodeName" not in pod["spec"]):
                self._drop(known)  # another scheduler has bound it, or it has ended before it was bound
            elif known is not None and pod is not None:
                before, known.pod = known.pod, pod
                if known.ask is not None and known.node == pod["spec"]["nodeName"] and _alike(before, pod):
                    labels = pod["metadata"].get("labels") or {}
                    if labels != known.ask.facts.labels:  # binding adds the node's topology
                        known.ask.facts.labels = labels
                        self.present.set_pod(path, known.ask.facts)
                        self._soon()
                    return
            there = pod is not None and "nodeName" in pod["spec"] and not is_over(pod)
            self.present.set_pod(path, facts(path, pod) if there and pod is not None else None)
            if pod is not None:
                self._adopt(path, pod)
        self._soon()

    def adoptable(self, path: str, pod: Object) -> bool:
        """Return True for a pod that is bound and has no run: an earlier driver, or an attempt that seemed to fail, has bound it."""
        if isinstance(self._reports, Advice) or not self._mine(pod) or is_over(pod):
            return False
        return "nodeName" in pod["spec"] and "deletionTimestamp" not in pod["metadata"] and path not in self._known

    def _adopt(self, path: str, pod: Object) -> None:
        """Take over a pod that is bound, once its node is there and no earlier run of it is left."""
        if self._driver.closing or not self.adoptable(path, pod):
            return
        about, node = pod["metadata"], pod["spec"]["nodeName"]
        if node not in self._driver.scheduler.cluster.machines or self._driver.knows(path):
            self._later.setdefault(node, {})[path] = pod
            self._late[path] = node
            return
        known = _Waiting(path, about.get("uid", ""), self._order(path, pod), pod, node=node, said="bound")
        try:
            known.ask = ask = ask_of(path, pod)
            created = seconds_of(about.get("creationTimestamp"))
            conditions = (pod.get("status") or {}).get("conditions") or ()
            bound = [one.get("lastTransitionTime") for one in conditions if one.get("type") == "PodScheduled"]
            event = JobSubmitted(path, [ask.task(self._resources)], ask.facts.space, known.order[0], time=created)
            since = seconds_of(bound[0]) if bound else created
            known.future = self._hold(path, pod, partial(self._driver.adopt, event, path, node, since))
        except ODD as error:
            LOGGER.warning("pod %s is left as it is: %s", path, error)
            return
        self._known[path] = known
        known.future.add_done_callback(partial(self._done, known))
        if ask.group:
            self._gangs.setdefault(ask.group, _Gang()).members[path] = known

    def _see_waiting(self, path: str, pod: Object, known: _Waiting | None) -> None:
        about = pod["metadata"]
        if known is None:
            self.present.set_pod(path, None)
            known = self._known[path] = _Waiting(path, about.get("uid", ""), self._order(path, pod), pod)
            self._join(known)
        elif pod["spec"] == known.pod["spec"] and about.get("labels") == known.pod["metadata"].get("labels"):
            known.pod = pod
            return
        known.pod = pod
        if known.node is None:
            self._withdraw(known)
            self._translate(known, pod)

    def _order(self, path: str, pod: Object) -> tuple[Any, ...]:
        created = pod["metadata"].get("creationTimestamp", "")
        return -(pod["spec"].get("priority") or 0), created, len(self._known), path

    def _mine(self, pod: Object) -> bool:
        """Return True if a pod is for this scheduler, and no driver has made it."""
        return scheduler_of(pod) in self._names and DRIVER not in (pod["metadata"].get("labels") or {})

    def _waits(self, pod: Object) -> bool:
        """Return True if a pod waits to be bound."""
        free = "nodeName" not in pod["spec"] and not pod["spec"].get("schedulingGates")
        return free and self._mine(pod) and "deletionTimestamp" not in pod["metadata"] and not is_over(pod)

    def undecided(self, path: str) -> bool:
        """Return True if no round has decided on a pod that waits."""
        known = self._known.get(path)
        if known is None or known.ask is None or known.node is not None or known.said:
            return False
        return known.future is not None or known.version == -1

    def _translate(self, known: _Waiting, pod: Object) -> None:
        known.version = -1
        self._leave(known)
        try:
            known.ask = ask_of(known.path, pod)
            if known.ask.group:
                self._gangs.setdefault(known.ask.group, _Gang()).members[known.path] = known
        except ODD as error:
            known.ask = None
            self._refuse(known, error)

    def _leave(self, known: _Waiting) -> None:
        """Take a pod out of its group."""
        gang = self._gangs.get(known.ask.group) if known.ask is not None else None
        if gang is not None and known.ask is not None:
            gang.members.pop(known.path, None)
            if not gang.members:
                del self._gangs[known.ask.group]

    def _drop(self, known: _Waiting) -> None:
        """Forget a pod; its task, if any, is cancelled."""
        self._withdraw(known)
        self._leave(known)
        del self._known[known.path]
        self._queue.pop(known.path, None)
        self.present.set_pod(known.path, None)

    def _withdraw(self, known: _Waiting) -> None:
        if known.future is not None:
            known.future, known.node = None, None
            self._driver.cancel(known.path)
            self._settled(known)
            self._join(known)

    # -- turns --------------------------------------------------------------------------------------------------

    def _soon(self, seconds: float = 0.0) -> None:
        if self._due is None or (isinstance(self._due, asyncio.TimerHandle) and not seconds):
            if self._due is not None:
                self._due.cancel()
            self._due = self._loop.call_later(seconds, self._look) if seconds else self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Submit the pods whose turn it is."""
        self._due = None
        if self._driver.closing or not self._complete:
            return
        now = self._loop.time()
        end, later, gangs = now + _SLICE, float("inf"), set[str]()
        for known in self._in_line():
            if known.ask is None or known.path not in self._queue:
                continue
            if known.rest > now:
                later = min(later, known.rest)
            elif known.ask.group:
                if known.ask.group not in gangs:
                    gangs.add(known.ask.group)
                    self._gang_turn(known.ask.group, self._gangs[known.ask.group], now)
            elif known.version != self.present.version:
                if self._loop.time() > end:
                    later = now
                    break
                self._turn(known, known.ask, now)
        if later <= now:
            self._soon()
        elif later < float("inf"):
            self._soon(later - now)

    def _in_line(self) -> Iterator[_Waiting]:
        """Yield the pods of the queue in order; sorting is cheap where most of the line is that of the last call."""
        self._line += self._joined
        self._joined.clear()
        if len(self._line) > 2 * len(self._queue):
            self._line = [known.order for known in self._queue.values()]
        self._line.sort()
        seen = None
        for order in list(self._line):
            known = self._queue.get(order[-1])
            if known is not None and known.order == order != seen:
                yield known
            seen = order

    def _join(self, known: _Waiting) -> None:
        self._queue[known.path] = known
        self._joined.append(known.order)

    def _turn(self, known: _Waiting, ask: Ask, now: float) -> None:
        """Submit a pod, unless it concerns one that has no place yet, or no node meets its rules."""
        known.until = {node: time for node, time in known.until.items() if time > now}
        try:
            if self._blocked(ask):
                return
            rules = self._rules(ask, known.until)
            known.version, known.rules, known.waited = self.present.version, rules, False
            self._submit(known.path, [(known, ask, rules)])
        except ODD as error:
            known.version = self.present.version if known.rest <= now else -1
            self._refuse(known, error)

    def _rules(self, ask: Ask, until: Collection[str]) -> Rules:
        """Return the rules of a pod now, which excludes some nodes for a while."""
        if self.present.plain(ask, self._counted):
            rules = Rules()
        elif until or not self._together(ask):
            rules = self.present.rules(ask, self._counted)
        else:  # those of all pods that are alike
            if self._alike[0] != self.present.version:
                self._alike = self.present.version, {}
            key = self.present.shape(ask)
            if key not in self._alike[1]:
                self._alike[1][key] = self.present.rules(ask, self._counted)
            return self._alike[1][key]
        rules.add("disruption budgets", NAME, "NotIn", until)
        return rules

    def _together(self, ask: Ask) -> bool:
        """Return True for a pod that may be submitted with others that concern it."""
        return not ask.group and self.present.together(ask, self._counted)

    def _blocked(self, ask: Ask) -> bool:
        """Return True if a pod concerns one that is submitted and has no place yet; that one's turn ends with its next round."""
        keys = self.present.keys(ask, self._counted)
        others = self._open if keys or any(terms_of(ask)) else self._ruled
        if self._together(ask):
            others = self._alone
            if len(self._ruled) >= self._wave and not self.present.plain(ask, self._counted):
                return True
        blockers = [
            path
            for path, other in others.items()
            if other.ask is not None and self.present.concern(ask, keys, other.ask, other.rules.keys)
        ]
        for path in blockers:
            self._blockers.add(path)
            if self._open[path].waited:
                self._loop.call_soon(self._turn_over, self._open[path], False)
        return bool(blockers)

    def _gang_turn(self, name: str, gang: _Gang, now: float) -> None:
        """Submit the pods of a group as a gang, and all for one domain of its topology at a time."""
        waiting = [one for one in gang.members.values() if one.path in self._queue and one.rest <= now]
        if any(path in self._open for path in gang.members):
            if any(one.version == -1 for one in waiting):  # there are more now
                for one in gang.members.values():
                    if one.path in self._open:
                        self._withdraw(one)
                        one.version = -1
                self._soon()
            return
        try:
            groups = self.present.objects.get("podgroups")
            if groups is None or name not in groups:
                raise UnsupportedError("spec.schedulingGroup", f"pod group {name} is not there")
            group = group_of(groups[name])
            there = [one.node for one in gang.members.values() if one.node is not None]
            least = group.least - len(there)
            if least > len(waiting):
                raise WaitsError(
                    f"{len(waiting) + len(there)} pods of group {name} are there, it needs {group.least}", "GANG_SHORT"
                )
            if gang.version != self.present.version:
                gang.version = self.present.version
                gang.tried.clear()
            elif not any(one.version != gang.version for one in waiting) and not group.key:
                return
            if least <= 1 and not group.key:
                for one in waiting:
                    if one.ask is not None and one.version != self.present.version:
                        self._turn(one, one.ask, now)
                return
            domain = self._domain(group.key, there, gang) if group.key else ""
            if domain is None:
                return
            self._submit_gang(name, gang, waiting, least, group.key, domain)
        except ODD as error:
            for one in waiting:
                one.version = self.present.version if one.rest <= now else -1
                self._refuse(one, error)

    def _domain(self, key: str, there: Sequence[str], gang: _Gang) -> str | None:
        """Return the next domain to try: that of the pods that are placed, or else the one with most room; None without any."""
        room = self.present.room(key)
        held = {self.present.nodes[name].labels.get(key, "") for name in there if name in self.present.nodes}
        left = (held or room.keys()) - gang.tried
        return max(sorted(left), key=lambda value: room.get(value, 0.0), default=None)

    def _submit_gang(
        self, name: str, gang: _Gang, waiting: Sequence[_Waiting], least: int, key: str, domain: str
    ) -> None:
        asks = [(known, known.ask, self._rules(known.ask, known.until)) for known in waiting if known.ask is not None]
        if key:
            for _, _, rules in asks:
                rules.add(f"schedulingConstraints.topology of pod group {name}", key, "In", (domain,))
        for i, (_, ask, rules) in enumerate(asks):
            if self._blocked(ask):
                return
            if any(self.present.concern(ask, rules.keys, other, others.keys) for _, other, others in asks[:i]):
                raise UnsupportedError("spec.schedulingGroup", "the pods of the group have rules on each other")
        gang.jobs += 1
        for known, _, rules in asks:
            known.version, known.rules, known.waited = self.present.version, rules, False
        self._submit(f"podgroup {name} {gang.jobs}", asks, least)
        if asks[0][0].future is not None:
            gang.tried.add(domain)

    def _submit(self, job: str, asks: Sequence[tuple[_Waiting, Ask, Rules]], least: int = 1) -> None:
        """Submit pods as a job; at least `least` of them start together, or none."""
        wanted = {label: terms for _, ask, rules in asks for label, terms in (ask.wanted | rules.wanted).items()}
        if not wanted.keys() <= self.wanted.keys():
            self.wanted |= wanted
            self._refresh()
        if any(self._driver.knows(known.path) for known, _, _ in asks):
            for known, _, _ in asks:  # the run of an earlier pod of that name has not ended
                known.rest, known.version = self._loop.time() + _SOON, -1
            return
        tasks = [rules.task(ask, self._resources) for _, ask, rules in asks]
        priority = min(known.order[0] for known, _, _ in asks)
        created = seconds_of(asks[0][0].pod["metadata"].get("creationTimestamp"))
        space = asks[0][1].facts.space
        event = JobSubmitted(job, tasks, space, priority, least if least > 1 else None, time=created)
        try:
            futures = self._driver.submit(event, {known.path: known.path for known, _, _ in asks})
        except FlowschedError:
            for known, _, _ in asks:
                self._rest(known)
            raise
        for known, ask, rules in asks:
            known.future = futures[known.path]
            known.future.add_done_callback(partial(self._done, known))
            del self._queue[known.path]
            self._open[known.path] = known
            if _has_rules(ask, rules):
                self._ruled[known.path] = known
                if not self._together(ask):
                    self._alone[known.path] = known

    def _settled(self, known: _Waiting) -> None:
        """Take note that a pod is submitted no more, or has a place."""
        for pods in (self._open, self._ruled, self._alone):
            pods.pop(known.path, None)

    def _done(self, known: _Waiting, future: asyncio.Future[Any]) -> None:
        """Take note of the end of a pod's task."""
        if known.future is not future:
            return
        known.future = known.node = None
        self._settled(known)
        if self._driver.closing:
            return
        if (
            known.path in self._victims
            or not self._waits(known.pod)
            or future.cancelled()
            or future.exception() is None
        ):
            self._leave(known)
            self._known.pop(known.path, None)  # it has run
            return
        self.present.set_pod(known.path, None)
        if known.ask is not None:
            known.ask.facts.node = None
        LOGGER.warning("pod %s: %s", known.path, future.exception())
        self._join(known)
        self._rest(known)
        self._soon()

    def _rest(self, known: _Waiting) -> None:
        known.refusals += 1
        known.rest, known.version = self._loop.time() + min(_AGAIN * 2 ** (known.refusals - 1), 60.0), -1

    # -- rounds -------------------------------------------------------------------------------------------------

    def permitted(self, round: Round) -> Collection[Hashable] | None:
        """Return the tasks that a round may start, None for all.

        A pod does not start if it has not the right to displace others, if it would displace pods of a disruption budget
        that is used up, or if its rules have changed and exclude its node.
        """
        bad = set[Hashable]()
        displaced: dict[str, list[str]] = {}
        causes = dict(_displaced(round))
        for victim, by in causes.items():
            for _ in causes:
                by = causes.get(by, by)
            displaced.setdefault(by, []).append(victim)
        gone: list[str] = []
        for by, victims in displaced.items():
            known = self._open.get(by)
            if known is None or known.ask is None:
                why: str | None = "it has a place"
            elif known.ask.never:
                why = "preemptionPolicy is Never"
            elif any(causes[victim] != by for victim in victims):
                why = "a victim would displace others"
            else:
                why = self._torn(victims) or self.present.protected([*gone, *victims])
            if why is None:
                gone += victims
                continue
            LOGGER.info("pod %s displaces no pod of %s now: %s", by, victims, why)
            bad.add(by)
            bad.update(path for path, number in round.gangs.items() if number == round.gangs.get(by, -1))
            if known is not None:
                nodes = [self._node_of(victim) for victim in victims if causes[victim] == by]
                known.until.update((str(node), self._loop.time() + _AGAIN) for node in nodes)
        places = list[tuple[_Waiting, Ask, str]]()
        for path, node in round.placements.items():
            known = self._open.get(str(path))
            if known is None and path in self._known:  # it was bound, and its node was lost
                bad.add(path)
                self._loop.call_soon(self._driver.cancel, path)
            if known is not None and known.ask is not None and path not in bad:
                places.append((known, known.ask, str(node)))
        for known in self._clashing(places):
            bad.add(known.path)
            bad.update(path for path, number in round.gangs.items() if number == round.gangs.get(known.path, -1))
        return None if not bad else [path for path in round.placements if path not in bad]

    def _clashing(self, places: Sequence[tuple[_Waiting, Ask, str]]) -> list[_Waiting]:
        """Return the pods whose rules exclude their nodes, given the places of the others.

        The places are taken one after the other, in an order in which each keeps to the rules at that time.
        """
        version = self.present.version
        left, refused = [], []
        for known, ask, node in places:
            if known.version == version or self._still(known, ask, node):
                left.append((known, ask, node))
            else:
                refused.append(known)
        if not self._ruled:
            return refused
        with self.present.trial() as place:
            while left:
                later = []
                for known, ask, node in left:
                    if self.present.plain(ask, self._counted) or self.present.admits(ask, node):
                        place(known.path, ask.facts, node)
                    else:
                        later.append((known, ask, node))
                if len(later) == len(left):
                    return refused + [known for known, _, _ in later]
                left = later
        return refused

    def _torn(self, victims: Sequence[str]) -> str | None:
        """Return a victim that is not bound yet, or a group that is displaced as a whole and has other pods."""
        for victim in victims:
            known = self._known.get(victim)
            if known is not None and "nodeName" not in known.pod["spec"]:
                return f"pod {victim} is being bound"
            ask = None if known is None else known.ask
            if ask is None or not ask.group:
                continue
            placed = {path for path, one in self._gangs[ask.group].members.items() if one.node is not None}
            groups = self.present.objects.get("podgroups") or {}
            if not placed <= set(victims) and (ask.group not in groups or group_of(groups[ask.group]).whole):
                return f"pod group {ask.group}"
        return None

    def _node_of(self, path: str) -> Hashable:
        cluster = self._driver.scheduler.cluster
        return cluster.placement(path) if path in cluster.tasks else None

    def _still(self, known: _Waiting, ask: Ask, node: str) -> bool:
        """Return True if a node meets the rules of a pod as they are now."""
        if self.present.plain(ask, self._counted):
            return True
        there = self.present.nodes.get(node)
        if there is None:
            return False
        try:
            if self._together(ask):
                return self.present.admits(ask, node)
            rules = self.present.rules(ask, self._counted)
        except ODD:
            return False
        return all(
            meets(there.labels.get(label), each)
            for label, each in rules.require.items()
            if label not in rules.wanted or label == NAME
        )

    def decided(self, round: Round) -> None:
        """Take note of a round that was carried out."""
        cluster, won = self._driver.scheduler.cluster, 0
        for path in round.placements:
            known = self._open.get(str(path))
            node = None if known is None or str(path) not in cluster.tasks else cluster.placement(path)
            if known is not None and known.ask is not None and node is not None:
                won += known.path in self._ruled
                self._settled(known)
                known.node = str(node)
                known.ask.facts.node = known.node
                self.present.set_pod(known.path, known.ask.facts)
        for victim, by_path in _displaced(round):
            by = self._known.get(by_path)
            if by is not None and by.node is not None:
                self._displace(victim, by)
        lost = sum(path in self._ruled for path in round.placements)  # their places did not agree
        if lost > won:
            self._wave = max(self._wave // 2, 1)
        elif won and not lost:
            self._wave = min(self._wave * 2, _LARGEST_WAVE)
        texts: dict[Any, str] = {}
        for path, known in self._open.items():
            reason = round.waiting.get(path)
            known.waited = reason is not None
            if reason is not None:
                code = reason.code.value if cluster.machines else "no nodes"
                if known.said != code:
                    like = code, id(cluster.tasks[path].group.cls), *known.rules.fields
                    if like not in texts:
                        texts[like] = self._text(known, reason.code.value)
                    self._report(known, code, texts[like])
            refused = path in round.placements
            if refused or (reason is not None and (known.until or path in self._ruled or path in self._blockers)):
                self._loop.call_soon(self._turn_over, known, refused)
        self._blockers.clear()
        self._soon()
        if any(node in cluster.machines for node in self._later):
            self._loop.call_soon(self._adopt_later)

    def _adopt_later(self) -> None:
        """Take over the pods of nodes that have come."""
        for node in self._later.keys() & self._driver.scheduler.cluster.machines.keys():
            for path, pod in self._later.pop(node).items():
                del self._late[path]
                self._adopt(path, pod)

    def _turn_over(self, known: _Waiting, refused: bool) -> None:
        """Withdraw a pod that a round has not placed; one that was refused its place is tried again at once."""
        if self._open.get(known.path) is known:
            self._withdraw(known)
            if refused:
                known.version = -1
            elif known.until:
                known.version, known.rest = -1, min(known.until.values())
            self._soon()

    def _displace(self, victim: str, by: _Waiting) -> None:
        """Report a victim of preemption, and that it does not run again: its owner makes another pod."""
        self._victims[victim] = f"Preempted by pod {by.path} on node {by.node}"
        self._reports.nominate(by.path, by.uid, str(by.node))
        self._loop.call_soon(self._driver.cancel, victim)

    def victim(self, path: str) -> str:
        """Return the reason for which a pod is displaced, once; empty if it is not."""
        return self._victims.pop(path, "")

    # -- reports ------------------------------------------------------------------------------------------------

    def _refuse(self, known: _Waiting, error: Exception) -> None:
        if isinstance(error, WaitsError):
            self._report(known, error.code, f"{error.code}: {error}")
            return
        if not isinstance(error, UnsupportedError):
            LOGGER.warning("pod %s is not understood: %s: %s", known.path, type(error).__name__, error)
        self._report(known, f"{UNSUPPORTED} {error}", f"{UNSUPPORTED}: {error}", UNSUPPORTED)

    def _report(self, known: _Waiting, code: str, text: str, reason: str = "Unschedulable") -> None:
        """Report why a pod waits, once for each code; an earlier driver may have said so already."""
        if known.said == code:
            return
        there = (known.pod.get("status") or {}).get("conditions") or ()
        again = not known.said and any(
            (one.get("type"), one.get("reason"), one.get("message")) == ("PodScheduled", reason, text) for one in there
        )
        known.said = code
        if not again:
            self._reports.waits(known.path, known.pod, reason, text)

    def _text(self, known: _Waiting, code: str) -> str:
        """Return a reason of the scheduler, the numbers of nodes by obstacle, and the fields with rules on other objects."""
        count = Counter[str]()
        for each in self._driver.scheduler.explain(known.path).detail.values():
            count.update(
                {"node affinity" if what.startswith("constraint term:") else what: n for what, n in each.items()}
            )
        obstacles = ", ".join(f"{number} {what}" for what, number in sorted(count.items()))
        if code == ReasonCode.NEVER_FITS and known.ask is not None and self.present.could_hold(known.ask):
            code = ReasonCode.NO_FIT.value  # others' pods are in the way
        rules = f"; rules: {', '.join(known.rules.fields)}" if known.rules.fields else ""
        return f"{code}: {len(self._driver.scheduler.cluster.machines)} nodes{': ' * bool(obstacles)}{obstacles}{rules}"

    def bound(self, path: str, node: str) -> None:
        """Report a pod that was bound."""
        known = self._known.get(path)
        if known is not None:
            self._reports.bound(path, known.pod, node)


def _displaced(round: Round) -> Iterator[tuple[str, str]]:
    """Yield the tasks that a round stops, each with the one for which it makes room."""
    for victim, why in round.preemptions.items():
        yield str(victim), str(why.by)
    for delta in round.deltas if round.migrations else ():
        if isinstance(delta, Migrate):
            yield str(delta.task), str(delta.by)


def _alike(before: Object, now: Object) -> bool:
    """Return True if a pod has been bound, or has got another status or labels, and its other facts are as before."""
    same = ("deletionTimestamp" in before["metadata"]) == ("deletionTimestamp" in now["metadata"])
    resized = "containerStatuses" in (now.get("status") or {})
    return (
        same and not resized and not is_over(now) and before["spec"].get("containers") == now["spec"].get("containers")
    )


def _has_rules(ask: Ask, rules: Rules) -> bool:
    """Return True if a pod has rules that may concern others."""
    return bool(rules.require or rules.keys or any(terms_of(ask)))
