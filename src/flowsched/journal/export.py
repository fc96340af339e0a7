"""The whole state of a scheduler as lines of JSON that every later version reads.

What it is for: another build of the package, or another program, goes on with the same machines, jobs, tasks, placements,
ages, shares and debts.  The network with its flow is not in it; the next round builds it anew.  So only warmth is lost, and
with it the choice among equally good flows.

The format
----------
A file is text in UTF-8; every line is a JSON object, ends with a line feed, and says by its member ``is`` what it is.  Lines
come in this order, and name only what came before them.  Members that are not named here are ignored; so are lines of
unknown kind in a file of a later minor version.  A member with a value in brackets may be left out.

========== ===========================================================================================================
is         members
========== ===========================================================================================================
flowsched  ``format``: [major, minor], here [1, 0]; another major version is refused.  ``version`` of the package that
           wrote it.  ``resources``: names.  ``device`` [null]: the resource that consists of devices.  ``seed`` [0].
           ``policy``: names and settings of its parts, as `policy.describe` says.  ``adapter`` [null]: likewise, of an
           adapter such as FineGrained.  ``events``, ``turn``, ``serial``: how many events have happened, and the largest
           turn and serial given (see task, job and group).  ``levels`` [[]]: priorities that costs allow for.
user       ``id``, ``quota`` [1].
machine    ``id``, ``capacity``: amounts by resource, or in their order.  ``rack`` [null], ``labels`` [{}], ``slots``
           [null].  ``failed`` [false], ``drained`` [false].  ``row``: a number of its own; where machines are equally good,
           they are taken in the order of their rows.  The lines are in the order in which the machines joined.
class      A demand with all wishes, of which tasks are: ``class``: a number of its own.  ``demand``: whole numbers, in
           millionths of the unit of each resource, in the order of the resources.  ``priority``: that of the jobs.
           ``constraints`` [{}], ``prefers`` [{}], ``kind`` [null], ``apart`` [null], ``apart_in_rack`` [null], ``avoids``
           [[]]: as of a task.  ``roomy`` [false]: some machine had room for one more in the last round.  ``only`` []: [id of the one job whose tasks these are], where tasks without a kind are apart.
job        In the order in which they are known.  ``id``, ``serial``: of its own, shared with groups; groups come in the order of their serials.
           ``user`` [null], ``priority`` [0], ``gang`` [null], ``deadline`` [null].  ``most`` [0]: how many tasks it has
           had at a time.
group      Tasks of one job, one class and the same data: ``group``: its serial.  ``job``, ``class``.  ``data`` [[]]: pairs
           of machine and amount.  ``waits`` [null]: orders the groups of which tasks wait.
task       ``id``, ``group``.  ``turn``: a number of its own; of two tasks of a group the one with the lower turn starts
           first.  ``since`` [null]: when it began to wait; null is the next round.  ``preempted`` [null]: when last.
runs       ``machine``, ``tasks``: lists of a task, since when it runs, and the devices that it has if any.  A task that
           is in none of them waits.
hold       ``class``: a machine is kept for it (see `flowsched.builder.reservations`).  ``machine`` [null].  ``until``: time.  ``tried``
           [[]]: machines.
left out   ``groups``: of gangs that fell short, and are not tried again before there are news, or ``until`` [null]: time.
account    ``of``: which provider of the policy's fairness kept it, "share" or "within".  ``provider``: as the policy
           describes it.  ``account``: see `flowsched.journal.accounts`.
learnt     ``what`` and more: what an adapter has learnt, see `flowsched.fgm.export`.
end        ``lines``: how many came before this one.  ``crc`` [null]: CRC-32 of all of them, line feeds included.
========== ===========================================================================================================

Ids are strings, numbers, truth values, null, or lists of them up to 32 deep, which stand for tuples.  Whole numbers have less than 300
digits.  ``Infinity`` is a number.  Times are
in the unit of the events.

What is not in it
-----------------
* The network with its flow and potentials, and what rounds find out again: prices, reasons, machines where nobody can make
  room.  The first solve of each later round has the same optimum.  Which of several equally good flows is chosen, and so
  how the check of a round goes on from there, may differ.  Where no two flows are equally good, rounds are the same.
* Numbers that were free for the next machine, class or task.  They only order things that are equally good.
* Code: placement costs and providers of the caller's own.  A policy is told by what it consists of.
* Rounds that were not committed.  They cannot be committed to another scheduler either.
* Until the next round, `Scheduler.explain` says ``PENDING`` where it would have said ``SHARE``.
* A clock that is set back is noticed at once, where a scheduler that goes on notices it task by task.
* Of FineGrained what `flowsched.fgm.export` names.  Costs that depend on the time are looked at anew.

What a reader may rely on
-------------------------
A file that was cut off or altered is refused (`CorruptJournalError`), and so is one that says what cannot be
(`JournalMismatchError`); both name the line.  Nothing in a file can name code.  Either the whole state is read, or nothing
of the target has changed.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, Protocol, TypeVar
from zlib import crc32

from flowsched.builder.builder import Builder
from flowsched.cluster import Cluster, Job, Machine, Task, User
from flowsched.cluster.rebuild import Rebuild, found, time
from flowsched.cluster.records import TaskClass
from flowsched.exceptions import (
    CorruptJournalError,
    FlowschedError,
    InputError,
    JournalError,
    JournalMismatchError,
    UnknownIdError,
)
from flowsched.journal.accounts import accounts, booked
from flowsched.journal.codec import encode, plain
from flowsched.journal.journal import Header
from flowsched.journal.snapshot import State
from flowsched.network.flow_network import FlowNetwork
from flowsched.policy import Policy
from flowsched.policy.serialize import Makers, describe, difference, parts, rebuild
from flowsched.validate import truth

__all__ = ["FORMAT", "Portable", "begun", "lines", "load", "opened", "read", "replaced", "written"]

FORMAT = (1, 0)
"""Major and minor version of the format."""

DEEPEST = 32
"""So deep an id may be nested: what reads and writes it goes deeper with each level."""

DIGITS = 300
"""So many digits may a whole number have: with more, some arithmetic on floats would fail later."""

_HUGE = re.compile(rb"[0-9]{%d}" % DIGITS)

_Line = dict[str, Any]
_P = TypeVar("_P", bound="Portable")

_NONSENSE = (
    TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError, RecursionError, MemoryError,
)  # fmt: skip


class Portable(Protocol):
    """A scheduler, or an adapter over one, as this module sees it."""

    @property
    def policy(self) -> Policy:
        """What is aimed at."""
        ...

    @property
    def _makers(self) -> Makers: ...

    def _header(self) -> Header: ...

    def _state(self) -> State: ...

    def _take(self, state: State) -> None: ...

    def _blank(self) -> Cluster:
        """An empty cluster like its own, with a fit rule of its own if there is one."""
        ...

    def _learnt_lines(self, classes: Mapping[int, int]) -> Iterator[_Line]:
        """What an adapter has learnt; classes by index, as they are called in lines."""
        ...

    def _learn_lines(self, cluster: Cluster, classes: Mapping[int, TaskClass], learnt: Sequence[_Line]) -> None:
        """The rule of a rebuilt cluster comes to know this; classes as they are called in lines."""
        ...


# -- writing --------------------------------------------------------------------------------------------------------


def lines(kept: Portable) -> Iterator[bytes]:
    """The state, line by line; nothing may happen before the last one is there.

    Parameters
    ----------
    kept : Scheduler or adapter

    Yields
    ------
    bytes
        Each ends with a line feed.

    Raises
    ------
    InputError
        An id, or a provider's account, cannot be written down.
    """
    chain, count = 0, 0
    rows = _rows(kept)
    while True:
        try:
            line = next(rows, None)
            text = b"" if line is None else encode(line) + b"\n"
        except (
            ValueError,
            RecursionError,
        ) as error:  # a number of thousands of digits, an id that is nested without end
            raise InputError(f"a state can only hold ids that JSON can carry: {error}") from None
        if line is None:
            break
        chain, count = crc32(text, chain), count + 1
        yield text
    yield encode({"is": "end", "lines": count, "crc": chain}) + b"\n"


def _rows(kept: Portable) -> Iterator[_Line]:
    state = kept._state()
    cluster, builder = state.cluster, state.builder
    yield _head(kept, cluster, builder)
    for user in cluster.users.values():
        yield {"is": "user", "id": _plain(user.id), "quota": user.quota}
    # Counted anew, so that equal states are written alike whatever there was before.
    seats = {row: seat for seat, row in enumerate(sorted(cluster.by_row))}
    numbers = {
        index: number for number, index in enumerate(sorted(i for i, cls in cluster.by_class.items() if cls.tasks))
    }
    for machine in cluster.machines.values():
        yield _machine(machine.machine, seats[machine.row], machine.failed, machine.drained)
    roomy = set(builder.roomy())
    for index, number in numbers.items():
        yield _class(cluster.by_class[index], number) | _wanted(roomy=index in roomy)
    yield from _jobs(cluster, numbers)
    for task in cluster.tasks.values():
        line: _Line = {"is": "task", "id": _plain(task.id), "group": task.group.serial, "turn": task.turn}
        if task.since is not None:
            line["since"] = task.since
        if task.preempted > float("-inf"):
            line["preempted"] = task.preempted
        yield line
    for machine in cluster.machines.values():
        if machine.tasks:
            runs = [[_plain(t.id), t.place.since, *([list(t.place.devices)] if t.place.devices else [])]
                    for t in machine.tasks if t.place is not None]  # fmt: skip
            yield {"is": "runs", "machine": _plain(machine.machine.id), "tasks": runs}
    for cls, row, until, tried in builder.reservations.remember():
        at = cluster.by_row.get(row)
        machines = [_plain(cluster.by_row[r].machine.id) for r in tried if r in cluster.by_row]
        yield {"is": "hold", "class": numbers[cls.index], "machine": None if at is None else _plain(at.machine.id), "until": until,
               "tried": machines}  # fmt: skip
    groups, due = builder.remember()
    if groups:
        serials = [group.serial for group in groups]
        yield {"is": "left out", "groups": serials, "until": due if due < float("inf") else None}
    for where, provider, account in accounts(builder.policy):
        yield {"is": "account", "of": where, "provider": provider, "account": account}
    for learnt in kept._learnt_lines(numbers):
        yield {"is": "learnt", **learnt}


def _head(kept: Portable, cluster: Cluster, builder: Builder) -> _Line:
    header = kept._header()
    return {
        "is": "flowsched", "format": list(FORMAT), "version": header.version, "resources": list(header.resources),
        "device": header.device, "seed": header.seed, "policy": header.policy, "adapter": header.adapter,
        "events": cluster.events, "turn": cluster._turn, "serial": cluster._serial, "levels": builder.levels,
    }  # fmt: skip


def _told(**ids: Any) -> _Line:
    """Of ids and numbers those that are not None."""
    return {name: value for name, value in ids.items() if value is not None}


def _wanted(**wishes: Any) -> _Line:
    """Of wishes and flags those that there are."""
    return {name: value for name, value in wishes.items() if value}


def _machine(machine: Machine, row: int, failed: bool, drained: bool) -> _Line:
    line = {"is": "machine", "id": _plain(machine.id), "capacity": plain(machine.capacity), "row": row}
    about = _told(rack=_plain(machine.rack), slots=machine.slots)
    return {**line, **about, **_wanted(labels=dict(machine.labels), failed=failed, drained=drained)}


def _class(cls: TaskClass, number: int) -> _Line:
    (apart, apart_in_rack), job, avoids = cls.key[-3:]
    line = {"is": "class", "class": number, "demand": cls.demand.tolist(), "priority": cls.priority}
    line |= _told(kind=_plain(cls.kind), apart=apart, apart_in_rack=apart_in_rack)
    line |= _wanted(constraints=plain(cls.constraints), prefers=plain(cls.prefers))
    line |= _wanted(avoids=sorted((_plain(kind) for kind in avoids), key=encode))
    if cls.kind is None and (apart, apart_in_rack) != (None, None):
        line["only"] = [_plain(job)]
    return line


def _jobs(cluster: Cluster, numbers: Mapping[int, int]) -> Iterator[_Line]:
    ranks = {group: rank for rank, group in enumerate(g for groups in cluster.waiting.values() for g in groups)}
    for record in cluster.jobs.values():
        job = record.job
        line = {
            "is": "job",
            "id": _plain(job.id),
            "serial": record.serial,
            "priority": job.priority,
            "most": record.most,
        }
        yield line | _told(user=_plain(job.user), gang=job.gang, deadline=job.deadline)
    groups = [group for record in cluster.jobs.values() for group in record.groups.values()]
    for group in sorted(groups, key=lambda group: group.serial):
        line = {
            "is": "group",
            "group": group.serial,
            "job": _plain(group.job.job.id),
            "class": numbers[group.cls.index],
        }
        yield (
            line
            | _wanted(data=[[_plain(machine), amount] for machine, amount in group.data])
            | _told(waits=ranks.get(group))
        )


def _whole(digits: str) -> int:
    """A whole number that is no larger than floats are."""
    if len(digits) > DIGITS:
        raise ValueError(f"a whole number of {len(digits)} digits")
    return int(digits)


def _plain(id: Any, deep: int = DEEPEST) -> Any:
    """What JSON can hold of an id."""
    if isinstance(id, tuple):
        if not deep:
            raise InputError(f"a state can only hold ids that are nested at most {DEEPEST} deep")
        return [_plain(part, deep - 1) for part in id]
    if isinstance(id, int) and abs(id) >= 10 ** (DIGITS - 1):
        raise InputError(f"a state can only hold whole numbers of less than {DIGITS} digits")
    return id if type(id) is str else plain(id)


# -- reading --------------------------------------------------------------------------------------------------------


def _id(value: Any, deep: int = DEEPEST) -> Any:
    """What JSON made of an id."""
    if isinstance(value, list):
        if not deep:
            raise InputError(f"an id that is nested more than {DEEPEST} deep")
        return tuple([_id(part, deep - 1) for part in value])
    return value


class _Source:
    """Lines of JSON with their numbers, and a checksum."""

    def __init__(self, lines: Iterable[bytes], path: str, offset: int | None) -> None:
        self.path, self.offset = path, offset
        self.number = 0
        self.head: _Line = {}
        self._lines = iter(lines)
        self._chain = 0
        self._minor = 0
        self._said: JournalError | None = None

    def refuse(self, message: str, kind: type[JournalError] = JournalMismatchError) -> NoReturn:
        """Say what is wrong with the present line."""
        self._said = kind(f"line {self.number}: {message}", self.path, self.offset)
        raise self._said from None

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Whatever goes wrong meanwhile is said of the present line."""
        try:
            yield
        except FlowschedError as error:
            if error is self._said:
                raise
            self.refuse(str(error.args[0] if isinstance(error, JournalError) else error))
        except KeyError as error:
            self.refuse(f"{error} is missing")
        except _NONSENSE as error:
            self.refuse(f"a value that does not belong there: {type(error).__name__}: {error}")

    def read_head(self) -> Header:
        """The first line."""
        head = next(self._objects(), None)
        if head is None or head.get("is") != "flowsched":
            self.refuse('a state begins with a line that is "flowsched"')
        version = head.get("format")
        if (
            not isinstance(version, list)
            or len(version) != 2
            or any(type(part) is not int or part < 0 for part in version)
        ):
            self.refuse(f"format: two numbers expected, got {version!r}")
        if version[0] != FORMAT[0]:
            self.refuse(f"a state of format {version[0]}.{version[1]}; format {FORMAT[0]} is read here")
        self.head, self._minor = head, version[1]
        with self.checked():
            resources = head["resources"]
            if not isinstance(resources, list):
                self.refuse(f"resources: names expected, got {resources!r}")
            header = Header(
                str(head.get("version", "")), tuple(resources), head.get("device"), head.get("seed", 0), head["policy"],
                head.get("adapter"),
            )  # fmt: skip
            _ = header.cluster_resources, header.of
        return header

    def rows(self, known: Mapping[str, Any]) -> Iterator[_Line]:
        """The lines between the first and the last, as far as they are of a known kind."""
        for line in self._objects():
            kind = line.get("is")
            if kind == "end":
                if line.get("lines") != self.number - 1:
                    self.refuse(f"{line.get('lines')!r} lines were written before this one", CorruptJournalError)
                if line.get("crc") is not None and line["crc"] != self._before:
                    self.refuse(
                        "the lines before this one are not those that were written: wrong checksum", CorruptJournalError
                    )
                if next(self._objects(), None) is not None:
                    self.refuse("a line after the last one", CorruptJournalError)
                return
            if isinstance(kind, str) and kind in known:
                yield line
            elif self._minor <= FORMAT[1]:
                self.refuse(f"nothing is a {kind!r}")
        self.number += 1
        self.refuse("the file ends before its last line", CorruptJournalError)

    def _objects(self) -> Iterator[_Line]:
        while True:
            try:
                text = next(self._lines, None)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                self.number += 1
                self.refuse(f"the compressed file is damaged: {error}", CorruptJournalError)
            if text is None:
                return
            self.number += 1
            if not text.endswith(b"\n"):
                self.refuse("the file ends within a line", CorruptJournalError)
            try:
                line = json.loads(text.decode("utf-8"), parse_int=_whole if _HUGE.search(text) else None)
            except (ValueError, RecursionError) as error:
                self.refuse(f"no JSON: {error}", CorruptJournalError)
            if not isinstance(line, dict):
                self.refuse(f"a JSON object expected, got a {type(line).__name__}")
            self._before, self._chain = self._chain, crc32(text, self._chain)
            yield line


def begun(source: Iterable[bytes], path: str = "") -> Header:
    """What the first line says of how the scheduler was made."""
    return _Source(source, path, None).read_head()


def read(begin: Callable[[Header], _P], source: Iterable[bytes], path: str = "") -> _P:
    """One made by `begin`, from what the first line says of how it was made, with the state that lines tell of."""
    lines = _Source(source, path, None)
    header = lines.read_head()
    with lines.checked():
        target = begin(header)
    _load(target, lines, header, target.policy)
    return target


def load(
    target: Portable, source: Iterable[bytes], policy: Policy | None = None, path: str = "", offset: int | None = None
) -> None:
    """Have the state that lines tell of; at the end all of it, or else nothing has changed.

    Parameters
    ----------
    target : Scheduler or adapter
        As new, made as the first line says.
    source : iterable of bytes
        What `lines` gave.
    policy : Policy, optional
        The one to go by: the accounts become those of its providers, which must be those that kept them.  By default the
        described one, with parts of the target's.
    path, offset
        For error messages.

    Raises
    ------
    JournalError
        Of what kind says what is wrong; the message names the line.
    """
    lines = _Source(source, path, offset)
    _load(target, lines, lines.read_head(), policy)


def _load(target: Portable, lines: _Source, head: Header, policy: Policy | None) -> None:
    mine = target._header()
    with lines.checked():
        if (head.of, head.cluster_resources, head.seed) != (mine.of, mine.cluster_resources, mine.seed):
            lines.refuse(f"a state of a {head.of} with resources {', '.join(head.resources)} and seed {head.seed!r}")
        if (other := difference(head.adapter, mine.adapter, head.of)) is not None:
            lines.refuse(other)
        if policy is None:
            policy = _policy(head.policy, target)
        _check_roles(policy)
        reading = _Reading(target._blank(), lines.head)
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
        target._learn_lines(cluster, reading.rebuild.classes, reading.learnt)
    target._take(State(cluster, builder.network, builder))
    book()


def _policy(description: Any, target: Portable) -> Policy:
    """The policy that was described, made again with parts of the target's."""
    if describe(target.policy) == description:
        return target.policy
    try:
        policy = rebuild(description, target._makers, parts(target.policy))
    except UnknownIdError as error:
        raise InputError(f"the policy has a part of the caller's own, {error}, and the one given has not") from None
    if not isinstance(policy, Policy):
        raise InputError(f"policy: a Policy expected, got {policy!r}")
    return policy


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
    "priority": ("flowsched.policy.priority",), "fairness": ("flowsched.policy.providers",),
    "placement": ("flowsched.policy.placement", "flowsched.policy.fragmentation"),
}  # fmt: skip

_MOST_PARTS = 1000


class _Reading:
    """What becomes of each line."""

    def __init__(self, cluster: Cluster, head: _Line) -> None:
        self.rebuild = Rebuild(cluster, head.get("events", 0), head.get("turn", 0), head.get("serial", 0))
        self.levels = [Job(None, priority=level).priority for level in head.get("levels", [])]
        self.accounts: dict[str, tuple[Any, Any]] = {}
        self.learnt: list[_Line] = []
        self._holds: list[tuple[Any, Any, float, list[Any]]] = []
        self._out: list[Any] = []
        self._roomy: list[TaskClass] = []
        self._until = float("inf")
        self._stage = 0
        order = (
            ("user", self._user), ("machine", self._machine), ("class", self._class), ("job", self._job), ("group", self._group),
            ("task", self._task), ("runs", self._runs), ("hold", self._hold), ("left out", self._left_out),
            ("account", self._account), ("learnt", self.learnt.append),
        )  # fmt: skip
        self.kinds: dict[str, Callable[[_Line], None]] = {
            name: self._in_order(stage, name, step) for stage, (name, step) in enumerate(order)
        }

    def _in_order(self, stage: int, name: str, step: Callable[[_Line], None]) -> Callable[[_Line], None]:
        def checked(line: _Line) -> None:
            if stage != self._stage:
                if stage < self._stage:
                    raise InputError(f"a {name} comes too late")
                self._stage = stage
            step(line)

        return checked

    def _user(self, line: _Line) -> None:
        self.rebuild.user(User(_id(line["id"]), line.get("quota", 1.0)))

    def _machine(self, line: _Line) -> None:
        machine = Machine(
            _id(line["id"]), line["capacity"], _id(line.get("rack")), line.get("labels", {}), line.get("slots")
        )
        self.rebuild.machine(machine, line["row"], line.get("failed", False), line.get("drained", False))

    def _class(self, line: _Line) -> None:
        like = Task(
            None, (), line.get("constraints", {}), _id(line.get("kind")), (), line.get("prefers", {}), line.get("apart"),
            _id(line.get("avoids", []), DEEPEST + 1), line.get("apart_in_rack"),
        )  # fmt: skip
        cls = self.rebuild.task_class(
            line["class"], line["demand"], line["priority"], like, _id(line.get("only", []), DEEPEST + 1)
        )
        if truth("roomy", line.get("roomy", False)):
            self._roomy.append(cls)

    def _job(self, line: _Line) -> None:
        job = Job(
            _id(line["id"]),
            _id(line.get("user")),
            line.get("priority", 0),
            line.get("gang"),
            line.get("deadline"),
        )
        self.rebuild.job(job, line["serial"], line.get("most", 0))

    def _group(self, line: _Line) -> None:
        self.rebuild.group(
            line["group"], _id(line["job"]), line["class"], _id(line.get("data", []), DEEPEST + 2), line.get("waits")
        )

    def _task(self, line: _Line) -> None:
        self.rebuild.task(_id(line["id"]), line["group"], line["turn"], line.get("since"), line.get("preempted"))

    def _runs(self, line: _Line) -> None:
        self.rebuild.run(_id(line["machine"]), _id(line["tasks"], DEEPEST + 2))

    def _hold(self, line: _Line) -> None:
        machines = self.rebuild.cluster.machines
        cls = found(self.rebuild.classes, line["class"], "class")
        at = line.get("machine")
        row = -1 if at is None else found(machines, _id(at), "machine").row
        if any(cls is other or row == taken >= 0 for other, taken, *_ in self._holds):
            raise InputError("a class or a machine is held twice")
        tried = [found(machines, one, "machine").row for one in _id(line.get("tried", []), DEEPEST + 1)]
        self._holds.append((cls, row, time("until", line["until"]), tried))

    def _left_out(self, line: _Line) -> None:
        for serial in line["groups"]:
            self._out.append(found(self.rebuild.groups, serial, "group"))
        until = line.get("until")
        self._until = min(self._until, float("inf") if until is None else time("until", until))

    def _account(self, line: _Line) -> None:
        if not isinstance(line["of"], str) or line["of"] in self.accounts:
            raise InputError(f"an account of {line['of']!r}, or two of them")
        self.accounts[line["of"]] = line["provider"], line["account"]

    def resume(self, builder: Builder, policy: Policy) -> None:
        """What a builder knows beyond the cluster."""
        in_use = {cls.priority for cls in self.rebuild.classes.values()}
        policy.levels(sorted(in_use.union(self.levels)))  # raises where they are too far apart to be exact
        builder.reservations.resume(self._holds)
        builder.resume(self._out, self._until, self.levels, self._roomy)


# -- files ----------------------------------------------------------------------------------------------------------


@contextmanager
def opened(source: bytes | str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file with a state, or its contents, compressed by gzip or not, to be read line by line."""
    with io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if packed:
            with gzip.open(raw) as file:
                yield file  # type: ignore[misc]
        else:
            yield raw


def written(kept: Portable, path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write the state into a file; compressed if its name ends with ``.gz``."""
    with replaced(path, overwrite) as raw:
        if Path(path).suffix == ".gz":
            with gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
                file.writelines(lines(kept))
        else:
            raw.writelines(lines(kept))


@contextmanager
def replaced(path: str | os.PathLike[str], overwrite: bool = False) -> Iterator[BinaryIO]:
    """A new file that is there when all of it has been written, and not before.

    Raises
    ------
    JournalError
        There is one already, and it is not to be overwritten; or it cannot be written.
    """
    whole = Path(path)
    part = whole.with_name(f".{whole.name}.{os.getpid()}.part")
    try:
        if not overwrite and whole.exists():
            raise FileExistsError
        with open(part, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            os.replace(part, whole)
        else:
            os.link(part, whole)  # unlike a renaming, it never replaces anything
    except FileExistsError:
        raise JournalError("is there already", str(whole)) from None
    except OSError as error:
        raise JournalError(f"cannot be written: {error.strerror or error}", str(whole)) from error
    finally:
        part.unlink(missing_ok=True)
