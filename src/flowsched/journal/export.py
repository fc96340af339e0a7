"""Exports: the whole state of a scheduler as lines of JSON that every later version reads.

Purpose: another build of the package, or another program, goes on with the same machines, jobs, tasks, placements,
ages, shares and debts.  The network with its flow is not in it; the next round builds another one.  So only warmth is
lost, and with it the choice among equally good flows.

The format
----------
A file is text in UTF-8.  Every line is a JSON object, ends with a line feed, and names its kind by its member ``is``.
Lines come in this order, and refer to earlier lines only.  Members that are not named here are ignored; so are
lines of unknown kind in a file of a later minor version.  A member with a value in brackets may be left out.

========== ===========================================================================================================
is         members
========== ===========================================================================================================
flowsched  ``format``: [major, minor], here [1, 3]; another major version is refused.  ``version`` of the package that
           wrote it.  ``resources``: names.  ``device`` [null]: the resource that consists of devices.  ``seed`` [0].
           ``policy``: names and settings of its parts, as `policy.describe` says.  ``adapter`` [null]: likewise, of an
           adapter such as FineGrained.  ``events``, ``turn``, ``serial``: the number of events that happened, and the
           largest turn and serial given (see task, job and group).  ``levels`` [[]]: priorities that costs allow for.
           ``runs`` [0]: number of runs that have begun.  ``stale`` [0]: number of events on runs that had ended.
user       ``id``, ``quota`` [1].
machine    ``id``, ``capacity``: amounts by resource, or in their order.  ``rack`` [null], ``labels`` [{}], ``slots``
           [null], ``taints`` [[]]: lists of key, value and effect.  ``failed`` [false], ``drained`` [false].
           ``row``: a number of its own; equally good machines are taken in the order of their rows.  The lines are in
           the order in which the machines joined.
class      Demand and wishes of like tasks: ``class``: a number of its own.  ``demand``: whole numbers, in millionths of
           the unit of each resource, in the order of the resources.  ``priority``: that of the jobs.  ``constraints``
           [{}], ``prefers`` [{}], ``kind`` [null], ``apart`` [null], ``apart_in_rack`` [null], ``avoids`` [[]],
           ``tolerations`` [[]]: as of a task; a requirement is a list of its operator and its operands.
           ``roomy`` [false]: some machine had room for one more in the last round.  ``only`` []: the id of the one job
           that has these tasks, where tasks without a kind are apart.  ``failed_on`` [[]]: machines that they shun.
job        In the order in which they are known.  ``id``, ``serial``: a number of its own, also among those of groups;
           groups come in the order of their serials.  ``user`` [null], ``priority`` [0], ``gang`` [null], ``deadline``
           [null].  ``most`` [0]: the most tasks that it has had at a time.  ``closed`` [false]: it leaves with its last task.
group      Tasks of one job, one class and the same data: ``group``: its serial.  ``job``, ``class``.  ``data`` [[]]:
           pairs of machine and amount.  ``waits`` [null]: orders the groups of which tasks wait.
task       ``id``, ``group``.  ``turn``: a number of its own; of two tasks of a group the one with the lower turn starts
           first.  ``since`` [null]: the time when it began to wait; null is the next round.  ``preempted`` [null]: the
           time of its last preemption.  ``duration`` [null]: the estimate of its run time.  ``run`` [0]: the number of its
           run, or of its last one if it waits.  Where a task that runs has none, it gets the next one.  ``retries``
           [null]: number of failures left.  ``backoff`` [0]: as of a task.  ``failed_on`` [[]]: machines on which it
           failed, in this order.  ``rests``: its back-off ends at this time, null is not known before the next round,
           infinity while its last run stops.
           A task that rests is in no group; instead of it, ``job``, ``class`` and ``data`` [[]] are as of a group.
runs       ``machine``, ``tasks``: lists of a task, the time since when it runs, and the devices that it has if any.  A
           task that is in none of them waits.
stops      ``run``: a run that is stopping, and holds its room until its end.  ``task``, ``machine``.  ``demand``: whole numbers as
           of a class.  ``devices`` [[]], ``share`` [0]: the part that it holds of each, in millionths.  ``owner`` [[]]: the
           job and the user that it counts for.
hold       ``class``: a machine is kept for it (see `flowsched.builder.reservations`).  ``machine`` [null].  ``until``:
           time.  ``tried`` [[]]: machines.
gang       ``job``: a gang that waits.  ``short`` [false]: it waited at the end of the last round.  ``bounds`` [[]]: the most tasks that
           shares let run of its claimant, and of the job.  ``vain`` [null]: no room is kept for it until this time.  ``keeps`` [[]]: lists of a machine, a class, and a number
           of its tasks: room is kept for these.  ``until`` [null]: time.  ``timed`` [false]: they are expected to start then.  ``tried`` [[]]: machines.
left out   ``groups``: of gangs that fell short, and are not tried again before something changes, or ``until`` [null]:
           time.
account    ``of``: the provider of the policy's fairness that kept it, "share" or "within".  ``provider``: as the policy
           describes it.  ``account``: see `flowsched.journal.accounts`.
learnt     ``what`` and more: the knowledge of an adapter, see `flowsched.fgm.export`.
end        ``lines``: the number of lines before this one.  ``crc`` [null]: CRC-32 of all of them, line feeds included.
========== ===========================================================================================================

Ids are strings, numbers, truth values, null, or lists of them up to 32 deep, which stand for tuples.  Whole numbers
have less than 300 digits.  ``Infinity`` is a number.  Times are in the unit of the events.

Omissions
---------
* The network with its flow and potentials, and values that rounds compute again: prices, reasons, machines where no task
  can make room.  The first solve of each later round has the same optimum.  The choice among equally good flows may
  differ, and with it the further course of a round's check, the classes that had room, and the machines kept for them.
  Where no two flows are equally good, rounds are the same.
* Numbers that were free for the next machine, class or task.  They only order things that are equally good.
* Code: placement costs and providers of the caller's own.  Of a policy, its parts are named.
* Rounds that were not committed.  They cannot be committed to another scheduler either.
* Until the next round, `Scheduler.explain` says ``PENDING`` where it would have said ``SHARE``.
* A clock that is set back is noticed at once, where a scheduler that goes on notices it task by task.
* Parts of FineGrained, see `flowsched.fgm.export`.  Costs that depend on the time are computed again.

Versions
--------
* 1.6: ``gang``; the runs on a machine may exceed its capacity.
* 1.5: ``owner`` of stops.
* 1.4: ``retries``, ``backoff``, ``failed_on`` and ``rests`` of a task, ``failed_on`` of a class, ``stops``.
* 1.3: ``runs``, ``stale``, ``run`` of a task, ``closed`` of a job.
* 1.2: ``duration`` of a task.
* 1.1: taints, tolerations, and requirements in ``constraints`` and ``prefers``.

Guarantees for readers
----------------------
A file that was cut off or altered is refused (`CorruptJournalError`), and so is one with values that cannot be
(`JournalMismatchError`); both name the line.  Nothing in a file can name code.  Either the whole state is read, or
nothing of the reader has changed.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NoReturn
from zlib import crc32

from flowsched.boundary import private
from flowsched.builder.builder import Builder
from flowsched.cluster import Cluster, Machine
from flowsched.cluster.records import Group, TaskClass
from flowsched.exceptions import CorruptJournalError, FlowschedError, InputError, JournalError, JournalMismatchError
from flowsched.journal.accounts import accounts
from flowsched.journal.codec import encode, plain
from flowsched.journal.engine import Engine, Line, adapter_of, header_of
from flowsched.journal.records import Header

FORMAT = (1, 6)
"""Major and minor version of the format."""

DEEPEST = 32
"""Most levels of tuples within an id: readers and writers call themselves for each level."""

DIGITS = 300
"""Whole numbers have fewer digits: with more, some arithmetic on floats would fail later."""
_HUGE = re.compile(rb"[0-9]{%d}" % DIGITS)

_NONSENSE = (
    TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError, RecursionError, MemoryError,
)  # fmt: skip
"""Exceptions raised by values that agree with their checksum and still make no sense."""


def lines(engine: Engine) -> Iterator[bytes]:
    """Yield the state line by line, each with its line feed; nothing may happen before the last one is there.

    Raise InputError if an id, or a provider's account, cannot be written down.
    """
    chain, count = 0, 0
    rows = _rows(engine)
    while True:
        try:
            line = next(rows, None)
            text = b"" if line is None else encode(line) + b"\n"
        except (ValueError, RecursionError) as error:  # a number of thousands of digits, an id that contains itself
            raise InputError(f"a state can only hold ids that JSON can carry: {error}") from None
        if line is None:
            break
        chain, count = crc32(text, chain), count + 1
        yield text
    yield encode({"is": "end", "lines": count, "crc": chain}) + b"\n"


def _rows(engine: Engine) -> Iterator[Line]:
    state = engine.state()
    cluster, builder = state.cluster, state.builder
    yield _head(engine, cluster, builder)
    for user in cluster.users.values():
        yield {"is": "user", "id": _plain(user.id), "quota": user.quota}
    # Numbered from 0, so that equal states are written alike whatever there was before.
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
        line: Line = {"is": "task", "id": _plain(task.id), "turn": task.turn}
        if task.id in cluster.resting:
            line |= {"job": _plain(task.group.job.job.id), "class": numbers[task.group.cls.index],
                     "rests": cluster.resting[task.id]} | _wanted(data=_pairs(task.group))  # fmt: skip
        else:
            line["group"] = task.group.serial
        if task.id in cluster.attempts:
            left, backoff, failed_on = cluster.attempts[task.id]
            line |= {"retries": left} | _wanted(backoff=backoff, failed_on=[_plain(id) for id in failed_on])
        if task.since is not None:
            line["since"] = task.since
        if task.preempted > float("-inf"):
            line["preempted"] = task.preempted
        if task.duration < float("inf"):
            line["duration"] = task.duration
        if task.run:
            line["run"] = task.run
        yield line
    for machine in cluster.machines.values():
        if machine.tasks:
            runs = [[_plain(t.id), t.place.since, *([list(t.place.devices)] if t.place.devices else [])]
                    for t in machine.tasks if t.place is not None]  # fmt: skip
            yield {"is": "runs", "machine": _plain(machine.id), "tasks": runs}
    for run, stop in cluster.stopping.items():
        line = {"is": "stops", "run": run, "task": _plain(stop.task), "machine": _plain(cluster.by_row[stop.row].id)}
        more = _wanted(devices=list(stop.devices), share=stop.share, owner=[_plain(one) for one in stop.owner])
        yield line | {"demand": list(stop.demand)} | more
    for cls, row, until, tried in builder.reservations.remember():
        at = cluster.by_row.get(row)
        machines = [_plain(cluster.by_row[r].id) for r in tried if r in cluster.by_row]
        yield {"is": "hold", "class": numbers[cls.index], "machine": None if at is None else _plain(at.id), "until": until,
               "tried": machines}  # fmt: skip
    for job, short, bounds, vain, room in builder.reservations.remember_gangs():
        line = (
            {"is": "gang", "job": _plain(job.job.id)}
            | _wanted(short=short, bounds=list(bounds or ()))
            | _told(vain=vain)
        )
        kept = [] if room is None else [(row, cls, n) for row, tasks in room.rows.items() for cls, n in tasks.items()]
        if room is not None and all(
            row in cluster.by_row and cluster.by_class.get(cls.index) is cls for row, cls, _ in kept
        ):
            line["keeps"] = [[_plain(cluster.by_row[row].id), numbers[cls.index], count] for row, cls, count in kept]
            tried = [_plain(cluster.by_row[row].id) for row in room.tried if row in cluster.by_row]
            line |= {"until": room.until} | _wanted(timed=room.timed, tried=tried)
        yield line
    groups, due = builder.remember()
    if groups:
        serials = [group.serial for group in groups]
        yield {"is": "left out", "groups": serials, "until": due if due < float("inf") else None}
    for where, provider, account in accounts(builder.policy):
        yield {"is": "account", "of": where, "provider": provider, "account": account}
    for learnt in adapter_of(engine).lines(numbers):
        yield {"is": "learnt", **learnt}


def _head(engine: Engine, cluster: Cluster, builder: Builder) -> Line:
    header = header_of(engine)
    return {
        "is": "flowsched", "format": list(FORMAT), "version": header.version, "resources": list(header.resources),
        "device": header.device, "seed": header.seed, "policy": header.policy, "adapter": header.adapter,
        "events": cluster.events, "turn": cluster.turn, "serial": cluster.serial, "levels": builder.levels,
        "runs": cluster.runs, "stale": cluster.stale_events,
    }  # fmt: skip


def _told(**ids: Any) -> Line:
    """Return the ids and numbers that are not None."""
    return {name: value for name, value in ids.items() if value is not None}


def _wanted(**wishes: Any) -> Line:
    """Return the wishes and flags that are not empty or false."""
    return {name: value for name, value in wishes.items() if value}


def _machine(machine: Machine, row: int, failed: bool, drained: bool) -> Line:
    line = {"is": "machine", "id": _plain(machine.id), "capacity": plain(machine.capacity), "row": row}
    about = _told(rack=_plain(machine.rack), slots=machine.slots) | _wanted(taints=plain(machine.taints))
    return {**line, **about, **_wanted(labels=dict(machine.labels), failed=failed, drained=drained)}


def _class(cls: TaskClass, number: int) -> Line:
    (apart, apart_in_rack), job, avoids, *shuns = cls.key[6:]
    line = {"is": "class", "class": number, "demand": cls.demand.tolist(), "priority": cls.priority}
    line |= _told(kind=_plain(cls.kind), apart=apart, apart_in_rack=apart_in_rack)
    line |= _wanted(constraints=plain(cls.constraints), prefers=plain(cls.prefers), tolerations=plain(cls.tolerations))
    line |= _wanted(avoids=sorted((_plain(kind) for kind in avoids), key=encode))
    line |= _wanted(failed_on=sorted((_plain(id) for ids in shuns for id in ids), key=encode))
    if cls.kind is None and (apart, apart_in_rack) != (None, None):
        line["only"] = [_plain(job)]
    return line


def _jobs(cluster: Cluster, numbers: Mapping[int, int]) -> Iterator[Line]:
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
        yield line | _told(user=_plain(job.user), gang=job.gang, deadline=job.deadline) | _wanted(closed=job.closed)
    groups = [group for record in cluster.jobs.values() for group in record.each_group()]
    for group in sorted(groups, key=lambda group: group.serial):
        line = {
            "is": "group",
            "group": group.serial,
            "job": _plain(group.job.job.id),
            "class": numbers[group.cls.index],
        }
        yield (line | _wanted(data=_pairs(group)) | _told(waits=ranks.get(group)))


def _pairs(group: Group) -> list[list[Any]]:
    """Return the data of a group."""
    return [[_plain(machine), amount] for machine, amount in group.data]


def _plain(id: Any, deep: int = DEEPEST) -> Any:
    """Turn an id into a value for JSON."""
    if isinstance(id, tuple):
        if not deep:
            raise InputError(f"a state can only hold ids that are nested at most {DEEPEST} deep")
        return [_plain(part, deep - 1) for part in id]
    if isinstance(id, int) and abs(id) >= 10 ** (DIGITS - 1):
        raise InputError(f"a state can only hold whole numbers of less than {DIGITS} digits")
    return id if type(id) is str else plain(id)


# -- files ----------------------------------------------------------------------------------------------------------


def written(engine: Engine, path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write the state into a file, which is compressed if its name ends with ``.gz``."""
    with replaced(path, overwrite) as raw:
        if Path(path).suffix == ".gz":
            with gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
                file.writelines(lines(engine))
        else:
            raw.writelines(lines(engine))


@contextmanager
def replaced(path: str | os.PathLike[str], overwrite: bool = False) -> Iterator[BinaryIO]:
    """Open a new file that is there when all of it has been written, and not before.

    Raise JournalError if there is one already, and it is not to be overwritten, or it cannot be written.
    """
    whole = Path(path)
    part = whole.with_name(f".{whole.name}.{os.getpid()}.part")
    try:
        if not overwrite and whole.exists():
            raise FileExistsError
        with open(part, "xb", opener=private.opener) as file:
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


@contextmanager
def opened(source: bytes | str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file with a state, or its contents, compressed by gzip or not, for reading line by line."""
    with io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if packed:
            with gzip.open(raw) as file:
                yield file  # type: ignore[misc]
        else:
            yield raw


class LineReader:
    """Lines of JSON with their numbers, and a checksum.

    Each ends with a line feed.  `path` and `record`, where the lines begin in a journal, are for error messages.
    `number` is that of the present line, from 1, and `head` is the first line.
    """

    def __init__(self, lines: Iterable[bytes], path: str, record: int | None) -> None:
        self.path, self.record = path, record
        self.number = 0
        self.head: Line = {}
        self._lines = iter(lines)
        self._chain = 0
        self._minor = 0
        self._said: JournalError | None = None

    def refuse(self, message: str, kind: type[JournalError] = JournalMismatchError) -> NoReturn:
        """Raise an error that names the present line."""
        self._said = kind(f"line {self.number}: {message}", self.path, self.record)
        raise self._said from None

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Turn every error in the block into one that names the present line."""
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
        """Read the first line."""
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

    def rows(self, known: Mapping[str, Any]) -> Iterator[Line]:
        """Yield the lines between the first and the last, as far as they are of a known kind."""
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

    def _objects(self) -> Iterator[Line]:
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


def _whole(digits: str) -> int:
    """Read a whole number no larger than floats are."""
    if len(digits) > DIGITS:
        raise ValueError(f"a whole number of {len(digits)} digits")
    return int(digits)
