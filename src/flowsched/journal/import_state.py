"""A scheduler's state from the lines of an export.

See `flowsched.journal.export` for the format, and for its guarantees to readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from flowsched.boundary.validate import instance, truth, whole
from flowsched.builder.builder import Builder
from flowsched.builder.reservations import GangReservation, RememberedGang
from flowsched.cluster import Cluster, Job, Machine, Task, User
from flowsched.cluster.model import UNLIMITED
from flowsched.cluster.rebuild import Rebuild, found, time
from flowsched.cluster.records import JobRecord, TaskClass
from flowsched.exceptions import InputError, UnknownIdError
from flowsched.journal.accounts import booked
from flowsched.journal.engine import Engine, Line, adapter_of, header_of
from flowsched.journal.export import DEEPEST, LineReader
from flowsched.journal.records import Header
from flowsched.network.flow_network import FlowNetwork
from flowsched.policy import Policy
from flowsched.policy.serialize import describe, difference, parts, rebuild
from flowsched.rounds.engine import State

_P = TypeVar("_P", bound="Driven")


class Driven(Protocol):
    """A scheduler, or an adapter over one."""

    @property
    def engine(self) -> Engine: ...


def begun(source: Iterable[bytes], path: str = "") -> Header:
    """Read the settings of the scheduler from the first line."""
    return LineReader(source, path, None).read_head()


def read(begin: Callable[[Header], _P], source: Iterable[bytes], path: str = "") -> _P:
    """Make a scheduler by `begin` with the settings of the first line, and give it the state of the lines."""
    lines = LineReader(source, path, None)
    header = lines.read_head()
    with lines.checked():
        target = begin(header)
    _load(target.engine, lines, header, target.engine.policy)
    return target


def load(
    engine: Engine, source: Iterable[bytes], policy: Policy | None = None, path: str = "", record: int | None = None
) -> None:
    """Give an engine the state of the lines; at the end all of it, or else nothing has changed.

    The engine is as new, made as the first line says.  The providers of `policy` get the accounts, so they must be
    those that kept them; by default the policy is the described one, with parts of the engine's.  `path` and `record`
    are for error messages.  The class of a JournalError names the kind of fault, and its message the line.
    """
    lines = LineReader(source, path, record)
    _load(engine, lines, lines.read_head(), policy)


def _load(engine: Engine, lines: LineReader, head: Header, policy: Policy | None) -> None:
    mine = header_of(engine)
    with lines.checked():
        if (head.of, head.cluster_resources, head.seed) != (mine.of, mine.cluster_resources, mine.seed):
            lines.refuse(f"a state of a {head.of} with resources {', '.join(head.resources)} and seed {head.seed!r}")
        if (other := difference(head.adapter, mine.adapter, head.of)) is not None:
            lines.refuse(other)
        if policy is None:
            policy = _policy(head.policy, engine)
        _check_roles(policy)
        reading = _Reading(adapter_of(engine).blank_cluster(), lines.head)
    for line in lines.rows(reading.kinds):
        try:
            reading.kinds[line["is"]](line)
        except Exception:
            with lines.checked():
                raise
    with lines.checked():
        cluster = reading.rebuild.finish()
        builder = Builder(cluster, FlowNetwork(), policy)
        book = booked(policy, reading.accounts)
        reading.resume(builder, policy)
        adapter_of(engine).read_lines(cluster, reading.rebuild.classes, reading.learnt)
    engine.replace_state(State(cluster, builder.network, builder))
    book()


def _policy(description: Any, engine: Engine) -> Policy:
    """Make the policy again that was described, with parts of the engine's."""
    if describe(engine.policy) == description:
        return engine.policy
    try:
        policy = rebuild(description, adapter_of(engine).makers, parts(engine.policy))
    except UnknownIdError as error:
        raise InputError(f"the policy has a part of the caller's own, {error}, and the one given has not") from None
    return instance("policy", policy, Policy)


def _check_roles(policy: Policy) -> None:
    """Refuse parts of the package's own where they do not belong: a file may name any of them anywhere."""
    places = [("priority", policy.priority), *(("placement", cost) for cost in policy.placement)]
    if policy.fairness is not None:
        look = [policy.fairness.share, policy.fairness.within]
        while look and len(places) < _MOST_PARTS:
            if (provider := look.pop()) is not None:
                places.append(("fairness", provider))
                look.append(getattr(provider, "share", None))
    for where, part in places:
        home = type(part).__module__
        if not callable(part) or (home.startswith("flowsched.policy") and home not in _ROLES[where]):
            raise InputError(f"policy: {where}: a {type(part).__name__} does not belong there")


_ROLES = {
    "priority": ("flowsched.policy.priority",), "fairness": ("flowsched.policy.providers", "flowsched.policy.sequence_share"),
    "placement": ("flowsched.policy.placement", "flowsched.policy.fragmentation"),
}  # fmt: skip

_MOST_PARTS = 1000


class _Reading:
    """The state so far, line by line."""

    def __init__(self, cluster: Cluster, head: Line) -> None:
        counts = [head.get(name, 0) for name in ("events", "turn", "serial", "runs", "stale")]
        self.rebuild = Rebuild(cluster, *counts)
        self.levels = [Job(None, priority=level).priority for level in head.get("levels", [])]
        self.accounts: dict[str, tuple[Any, Any]] = {}
        self.learnt: list[Line] = []
        self._holds: list[tuple[Any, Any, float, list[Any]]] = []
        self._gangs: dict[JobRecord, RememberedGang] = {}
        self._out: list[Any] = []
        self._roomy: list[TaskClass] = []
        self._until = float("inf")
        self._stage = 0
        order = (
            ("user", self._user), ("machine", self._machine), ("class", self._class), ("job", self._job), ("group", self._group),
            ("task", self._task), ("runs", self._runs), ("stops", self._stops), ("hold", self._hold), ("gang", self._gang), ("left out", self._left_out),
            ("account", self._account), ("learnt", self.learnt.append),
        )  # fmt: skip
        self.kinds: dict[str, Callable[[Line], None]] = {
            name: self._in_order(stage, name, step) for stage, (name, step) in enumerate(order)
        }

    def _in_order(self, stage: int, name: str, step: Callable[[Line], None]) -> Callable[[Line], None]:
        def checked(line: Line) -> None:
            if stage != self._stage:
                if stage < self._stage:
                    raise InputError(f"a {name} comes too late")
                self._stage = stage
            step(line)

        return checked

    def _user(self, line: Line) -> None:
        self.rebuild.user(User(_id(line["id"]), line.get("quota", 1.0)))

    def _machine(self, line: Line) -> None:
        machine = Machine(
            _id(line["id"]),
            line["capacity"],
            _id(line.get("rack")),
            line.get("labels", {}),
            line.get("slots"),
            line.get("taints", []),
        )
        self.rebuild.machine(machine, line["row"], line.get("failed", False), line.get("drained", False))

    def _class(self, line: Line) -> None:
        like = Task(
            None, (), line.get("constraints", {}), _id(line.get("kind")), (), line.get("prefers", {}), line.get("apart"),
            _id(line.get("avoids", []), DEEPEST + 1), line.get("apart_in_rack"), line.get("tolerations", []),
        )  # fmt: skip
        only, shuns = (_id(line.get(name, []), DEEPEST + 1) for name in ("only", "failed_on"))
        cls = self.rebuild.task_class(line["class"], line["demand"], line["priority"], like, only, shuns)
        if truth("roomy", line.get("roomy", False)):
            self._roomy.append(cls)

    def _job(self, line: Line) -> None:
        job = Job(
            _id(line["id"]),
            _id(line.get("user")),
            line.get("priority", 0),
            line.get("gang"),
            line.get("deadline"),
            line.get("closed", False),
        )
        self.rebuild.job(job, line["serial"], line.get("most", 0))

    def _group(self, line: Line) -> None:
        self.rebuild.group(
            line["group"], _id(line["job"]), line["class"], _id(line.get("data", []), DEEPEST + 2), line.get("waits")
        )

    def _task(self, line: Line) -> None:
        if "rests" in line:
            group = self.rebuild.rest(_id(line["job"]), line["class"], _id(line.get("data", []), DEEPEST + 2))
        else:
            group = found(self.rebuild.groups, line["group"], "group")
        task = self.rebuild.task(
            _id(line["id"]), group, line["turn"], line.get("since"), line.get("preempted"), line.get("duration"),
            line.get("run", 0),
        )  # fmt: skip
        if "retries" in line:
            failed_on = _id(line.get("failed_on", []), DEEPEST + 1)
            self.rebuild.retries(task, line["retries"], line.get("backoff", 0.0), failed_on)
        if "rests" in line:
            self.rebuild.rests(task, line["rests"])

    def _runs(self, line: Line) -> None:
        self.rebuild.run(_id(line["machine"]), _id(line["tasks"], DEEPEST + 2))

    def _stops(self, line: Line) -> None:
        demand, devices = line["demand"], line.get("devices", [])
        owner = _id(line.get("owner", []), DEEPEST + 1)
        self.rebuild.stop(
            line["run"], _id(line["task"]), _id(line["machine"]), demand, devices, line.get("share", 0), owner
        )

    def _hold(self, line: Line) -> None:
        machines = self.rebuild.cluster.machines
        cls = found(self.rebuild.classes, line["class"], "class")
        at = line.get("machine")
        row = -1 if at is None else found(machines, _id(at), "machine").row
        if any(cls is other or row == taken >= 0 for other, taken, *_ in self._holds):
            raise InputError("a class or a machine is held twice")
        tried = [found(machines, one, "machine").row for one in _id(line.get("tried", []), DEEPEST + 1)]
        self._holds.append((cls, row, time("until", line["until"]), tried))

    def _gang(self, line: Line) -> None:
        cluster = self.rebuild.cluster
        job = found(cluster.jobs, _id(line["job"]), "job")
        if job in self._gangs:
            raise InputError("a gang is told of twice")
        if not job.lacks:
            raise InputError(f"job {job.job.id!r}: no gang that waits")
        bounds, room = line.get("bounds", []), None
        if bounds:
            user, own = (whole("bounds", most, 0) for most in bounds)
            bounds = user, own
        if line.get("keeps"):
            rows: dict[int, dict[TaskClass, int]] = {}
            for machine, number, count in line["keeps"]:
                tasks = rows.setdefault(found(cluster.machines, _id(machine), "machine").row, {})
                tasks[found(self.rebuild.classes, number, "class")] = whole("keeps", count, 1, UNLIMITED)
            tried = [found(cluster.machines, one, "machine").row for one in _id(line.get("tried", []), DEEPEST + 1)]
            until, timed = time("until", line["until"]), truth("timed", line.get("timed", False))
            room = GangReservation(until, timed, rows, dict.fromkeys(tried))
        vain = line.get("vain")
        vain = None if vain is None else time("vain", vain)
        self._gangs[job] = job, truth("short", line.get("short", False)), bounds or None, vain, room

    def _left_out(self, line: Line) -> None:
        for serial in line["groups"]:
            self._out.append(found(self.rebuild.groups, serial, "group"))
        until = line.get("until")
        self._until = min(self._until, float("inf") if until is None else time("until", until))

    def _account(self, line: Line) -> None:
        if not isinstance(line["of"], str) or line["of"] in self.accounts:
            raise InputError(f"an account of {line['of']!r}, or two of them")
        self.accounts[line["of"]] = line["provider"], line["account"]

    def resume(self, builder: Builder, policy: Policy) -> None:
        """Give a builder its knowledge beyond the cluster."""
        in_use = {cls.priority for cls in self.rebuild.classes.values()}
        policy.levels(sorted(in_use.union(self.levels)))  # raises where they are too far apart to be exact
        builder.reservations.resume(self._holds)
        builder.reservations.resume_gangs(self._gangs.values())
        builder.resume(self._out, self._until, self.levels, self._roomy)


def _id(value: Any, deep: int = DEEPEST) -> Any:
    """Turn the JSON form of an id into the id again."""
    if isinstance(value, list):
        if not deep:
            raise InputError(f"an id that is nested more than {DEEPEST} deep")
        return tuple([_id(part, deep - 1) for part in value])
    return value
