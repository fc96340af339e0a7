"""Journals, snapshots and images whose checksums are right and whose content is not: refused by name, or a scheduler that works."""

from __future__ import annotations

import json
import pickle
import random
import sys
from collections import Counter, OrderedDict, deque
from types import MappingProxyType

import fgm_lives
import numpy as np
import pytest
from effort import effort
from journal_rows import journal_of, records
from lives import POLICIES, Life, operations

import flowsched as fs
from flowsched.cluster import Cluster
from flowsched.cluster.audit import audit
from flowsched.cluster.shapes import Suitability
from flowsched.fgm import FineGrained
from flowsched.fgm.persistence import audit as fgm_audit
from flowsched.fgm.rule import Refused
from flowsched.journal.snapshot import PLAIN
from flowsched.journal.tables import Objects, Schema, Tables, tables_of

WILD = [
    None, True, -1, 0, 1, 2, 7, 2**31, -(2**31), 2**62, 2**70, -(2**70), 0.5, -3.0, 1e300, float("inf"), float("nan"), "", "m1", "cpu", "x" * 300,
    "__class__", [], [[]], [1], {}, {"is": "Policy"}, {"is": "partial"}, {"kind": "MachineAdded"}, ["cpu"], [None], {"cpu": -1},
]  # fmt: skip
MUST_NOT_HAPPEN = "code from a file ran"


def grow(seed: int) -> fs.Scheduler:
    sched = fs.Scheduler(POLICIES[seed % len(POLICIES)]())
    for _ in operations(seed, sched, 25 + seed % 20):
        pass
    return sched


def grow_fine(seed: int) -> FineGrained:
    fine = fgm_lives.born(seed)
    for _ in fgm_lives.fine_operations(seed, fine, 25):
        pass
    return fine


def altered(value, rnd: random.Random):
    """A JSON value with one place in it altered."""
    at, path = value, []
    while isinstance(at, list | dict) and at and rnd.random() < 0.93:
        key = rnd.choice(list(at) if isinstance(at, dict) else range(len(at)))
        path.append((at, key))
        at = at[key]
    if not path:
        return rnd.choice(WILD)
    holder, key = path[-1]
    match rnd.randrange(6):
        case 0 if isinstance(holder, list):
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(key, rnd.choice(WILD))
        case 2 if isinstance(holder, dict):
            holder[rnd.choice(["is", "kind", "time", "tasks", "extra", "capacity"])] = holder.pop(key)
        case 3 if isinstance(holder[key], int):
            holder[key] += rnd.choice([-1, 1, 256, 65536])
        case _:
            holder[key] = rnd.choice(WILD)
    return value


def altered_image(image: bytes, rnd: random.Random) -> bytes:
    """An image with one or two numbers, or something in its forms, altered."""
    tables = Tables.read(image)
    for _ in range(rnd.choice([1, 1, 2])):
        if rnd.random() < 0.35:
            tables.forms = altered(tables.forms, rnd)
            continue
        name = rnd.choice([name for name, column in tables.columns.items() if column.size])
        flat = tables.columns[name].flatten()
        at, bits = rnd.randrange(len(flat)), 8 * flat.itemsize
        if flat.dtype.kind == "f":
            flat[at] = rnd.choice([float("nan"), float("inf"), -1.0, 1e300, 0.5])
        else:
            near = int(rnd.choice([flat[at], flat[rnd.randrange(len(flat))]]))
            number = rnd.choice([near + 1, near - 1, near ^ 1 << rnd.randrange(bits), near, 0, -1, 2**31, 2**62, 65])
            flat.view(f"u{flat.itemsize}")[at] = number & (1 if flat.dtype == bool else 2**bits - 1)
        tables.columns[name] = flat.reshape(tables.columns[name].shape)
        match rnd.randrange(30):
            case 0:
                del tables.columns[name]
            case 1:
                tables.columns[name] = flat[: rnd.randrange(len(flat))]
            case 2:
                with np.errstate(all="ignore"):
                    tables.columns[name] = flat.astype(rnd.choice([np.float64, np.int64, np.uint8, bool]))
    return b"".join(tables.pieces())


def altered_record(body: bytes, rnd: random.Random) -> bytes:
    """A record that is still of its kind, mostly."""
    kind, text, line, rest = body[:1], *body[1:].partition(b"\n")
    if rest and rnd.random() < 0.8:
        front = json.loads(text)
        told = front[2] if kind == b"S" else 0
        return kind + text + line + rest[:told] + altered_image(rest[told:], rnd)
    if rnd.random() < 0.02:
        return bytes([rnd.randrange(256)]) + body[1:]
    return kind + json.dumps(altered(json.loads(text), rnd)).encode() + line + rest


def use(sched) -> None:
    """Use a restored scheduler as a caller does."""
    now = max((t.since or 0.0 for t in sched.cluster.tasks.values()), default=0.0) + 1.0
    sched.apply(
        fs.MachineAdded("new", {"cpu": 8, "mem": 8, "gpu": 1}),
        fs.JobSubmitted("more", [fs.Task("one", {"cpu": 1}), fs.Task("two", {"cpu": 2, "mem": 1})], time=now),
    )
    for step in range(2):
        rnd = sched.schedule(now + step)
        sched.commit(rnd)
        for task in list(sched.cluster.tasks)[:5]:
            sched.explain(task)
        dict(rnd.waiting)
        running = [t for t, record in sched.cluster.tasks.items() if record.place][:3]
        sched.apply(*(fs.TaskCompleted(t, time=now + step) for t in running))
        lost = [m for m, record in sched.cluster.machines.items() if not record.failed][:1]
        sched.apply(*(fs.MachineFailed(m, time=now + step) for m in lost))


class Watch:
    """Nothing that a file says is executed: neither an import, nor exec, nor a process."""

    def __init__(self) -> None:
        self.on = False
        self.found: Counter[str] = Counter()
        sys.addaudithook(self._hear)  # for good, so that it sleeps outside of `attempt`

    def _hear(self, event: str, args: tuple) -> None:
        if self.on and event in ("exec", "compile", "import", "subprocess.Popen", "os.system", "pickle.find_class"):
            raise AssertionError(MUST_NOT_HAPPEN)

    def attempt(self, read, data: bytes) -> None:
        """Read, and use what was read; an error that is not the package's own comes out."""
        self.on = True
        try:
            sched = read(data)
            self.found["read"] += 1
            use(sched)
            self.found["used"] += 1
        except fs.FlowschedError as error:
            self.found[type(error).__name__] += 1
        finally:
            self.on = False


WATCH = Watch()


@pytest.fixture
def watch() -> Watch:
    WATCH.found.clear()
    return WATCH


def test_parts_that_are_one_dict_are_refused() -> None:
    """A change of one would change the other: machines by shape were forgotten with what was worked out of them."""
    sched = grow(0)
    shapes = sched.cluster.inventory.suitability
    shapes._users = shapes._keys
    with pytest.raises(fs.JournalError):
        fs.Scheduler.restore(sched.snapshot())


def test_what_is_worked_out_of_shapes_is_not_taken_from_an_image() -> None:
    sched = grow(0)
    shapes = sched.cluster.inventory.suitability
    shapes._most = dict.fromkeys(shapes._wants, 10**9)
    assert 10**9 not in fs.Scheduler.restore(sched.snapshot()).cluster.inventory.suitability._most.values()


@pytest.mark.parametrize("kind", ["plain", "fgm"])
def test_altered_snapshots(kind: str, watch) -> None:
    maker, cls = (grow, fs.Scheduler) if kind == "plain" else (grow_fine, FineGrained)
    images = [records(maker(seed).snapshot()) for seed in range(effort(4, 40))]
    use(cls.restore(journal_of(images[0])))
    for seed in range(effort(80, 4000)):
        rnd = random.Random(seed)
        bodies = list(rnd.choice(images))
        which = 0 if rnd.random() < 0.1 else 1
        bodies[which] = altered_record(bodies[which], rnd)
        watch.attempt(cls.restore, journal_of(bodies))
    print(kind, dict(watch.found))
    assert watch.found["read"] > 0 and watch.found["JournalMismatchError"] > 0


def test_altered_journals(tmp_path, watch) -> None:
    journals = []
    for seed in range(effort(4, 40)):
        path = tmp_path / f"j{seed}"
        sched = fs.Scheduler(POLICIES[seed % len(POLICIES)](), journal=path)
        for _ in operations(seed, sched, 30):
            pass
        sched.journal.close()
        journals.append(records(path))

    for seed in range(effort(80, 3000)):
        rnd = random.Random(seed)
        bodies = list(rnd.choice(journals))
        for _ in range(rnd.choice([1, 1, 2])):
            match rnd.randrange(8):
                case 0 if len(bodies) > 1:
                    del bodies[rnd.randrange(len(bodies))]
                case 1:
                    bodies.insert(rnd.randrange(len(bodies) + 1), rnd.choice(bodies))
                case 2:
                    bodies[rnd.randrange(len(bodies))] = bytes(rnd.randrange(256) for _ in range(rnd.randrange(9)))
                case _:
                    which = rnd.randrange(len(bodies))
                    if len(bodies[which]) > 8:
                        try:
                            bodies[which] = altered_record(bodies[which], rnd)
                        except ValueError:  # altered before, so that it is no JSON any more
                            pass
        watch.attempt(fs.Scheduler.restore, journal_of(bodies))
    print(dict(watch.found))
    assert watch.found["read"] > 0 and watch.found["JournalMismatchError"] > 0


class Evil:
    def __reduce__(self):
        return exec, (f"raise AssertionError({MUST_NOT_HAPPEN!r})",)


def test_a_pickle_is_not_read() -> None:
    bodies = records(grow(1).snapshot())
    for evil in (pickle.dumps(Evil(), protocol) for protocol in range(6)):
        for body in (b"S" + bodies[1][1:].partition(b"\n")[0] + b"\n" + evil, bodies[0] + b"\n" + evil):
            with pytest.raises(fs.JournalError):
                fs.Scheduler.restore(journal_of([bodies[0], body] if body[:1] == b"S" else [body]))


def _written(value: object, *classes: type) -> Tables:
    return Tables.read(b"".join(tables_of(value, _schema(*classes), {}).pieces()))


def _schema(*classes: type) -> Schema:
    return Schema({kind.__name__: kind for kind in classes})


def _read_again(tables: Tables, *classes: type) -> object:
    return Objects(Tables.read(b"".join(tables.pieces())), _schema(*classes), {}).make()


def test_tables_name_classes_of_their_schema_only() -> None:
    class Known:
        def method(self) -> None: ...

    class Other: ...

    thing = Known()
    thing.value = 3
    tables = _written(thing, Known)
    assert _read_again(tables, Known).value == 3
    with pytest.raises(KeyError):
        _read_again(tables, Other)
    tables.forms["Known"][1] = {"method": ["is", 3]}
    with pytest.raises(TypeError, match="no attribute that is kept"):
        _read_again(tables, Known)
    with pytest.raises(fs.InputError, match="can be written down"):
        _written([thing, Other()], Known)


@pytest.mark.parametrize("value", [
    {"a": (1, 2.5, None, True, False), ("t", 1): [b"x", -(2**90)], 3: {4, 5}, frozenset({6}): {}},
    [np.arange(6).reshape(2, 3), np.zeros((0, 4), np.uint8), np.array(3.5), np.array([True, False]), np.arange(3), np.arange(4)],
    [np.array(1.5), np.array(2.5)], [np.arange(2), np.arange(2)], [None, 0.5, float("nan")], [None, 0.5], ["a"] * 99, [()] * 3, [float("nan")],
    "\u00e9\U0001f600", float("-inf"), -0.0, [], (), 2**64, ["\u00e9", "", "b\0c", "\U0001f600"], [deque([1], 3), deque()], OrderedDict(b=1, a=2),
    MappingProxyType({1: "x"}), [True, 1, 1.0, "1"], 2**9_000,
])  # fmt: skip
def test_plain_values_come_back_equal(value) -> None:
    assert repr(_read_again(_written(value))) == repr(value)


def test_objects_in_circles_come_back() -> None:
    class Node: ...

    one, two = Node(), Node()
    one.near, two.near, one.all, two.all = {two: 1}, {one: 2}, [one, two, one], []
    again = _read_again(_written(one, Node), Node)
    (other,) = again.near
    assert list(other.near) == [again] and again.all == [again, other, again] and other.all == []


def test_memory_is_bounded_by_what_is_there() -> None:
    class Node: ...

    for more in (
        {"Node": [1 << 40, {}]},
        {"": [1, {"root": ["list", "none", 1 << 40]}]},
        {"": [1, {"root": ["one of", 1 << 40, "none"]}]},
    ):
        tables = _written([None], Node)
        tables.forms |= more
        with pytest.raises(ValueError, match="a number from 0 to"):
            _read_again(tables, Node)
    tables = _written([None, None, [None], []])
    tables.columns[".root.item.1.length"] = np.array([1 << 40, 0])
    with pytest.raises(ValueError, match="impossible lengths"):
        _read_again(tables)
    tables = _written([np.zeros(4), np.zeros(3)])
    tables.columns[".root.item.shape"] = np.array([[1 << 40], [1 << 40]])
    with pytest.raises(ValueError, match="a number from 0 to"):
        _read_again(tables)


def test_every_byte_of_a_snapshot_is_checked() -> None:
    image = grow(0).snapshot()
    rnd = random.Random(0)
    size = 8 + int.from_bytes(image[:8], "little")
    for at in [*rnd.sample(range(size), effort(300, 3000)), *rnd.sample(range(size, len(image)), effort(300, 3000))]:
        wrong = bytearray(image)
        wrong[at] ^= 1 << rnd.randrange(8)
        with pytest.raises(fs.JournalError, match="column|head|not a journal"):
            fs.Scheduler.restore(bytes(wrong))
    for end in [*range(effort(300, 3000)), *rnd.sample(range(size, len(image)), effort(300, 3000))]:
        with pytest.raises(
            fs.CorruptJournalError if end > 40 else fs.JournalError, match="cut off" if end > 40 else "snapshot"
        ):
            fs.Scheduler.restore(image[:end])
    with pytest.raises(fs.CorruptJournalError, match="more than the columns"):
        fs.Scheduler.restore(image + b"x")


def test_another_form_goes_on_from_the_lines(tmp_path) -> None:
    """A journal that another build compacted: same machines, placements, ages and shares; only warmth is lost."""
    for seed in range(effort(3, 100)):
        path = tmp_path / f"j{seed}"
        sched = fs.Scheduler(POLICIES[seed % len(POLICIES)](), journal=path)
        life = Life(seed)
        for _ in operations(seed, sched, 30, life=life):
            pass
        sched.compact()
        sched.journal.close()
        front, _, rest = (bodies := records(path))[1].partition(b"\n")
        made, *more = json.loads(front[1:])
        other = b"S" + json.dumps([made + 1, *more]).encode() + b"\n" + rest
        damaged = b"S" + front[1:] + b"\n" + rest[: more[1]] + b"".join(Tables().pieces())
        for body in (other, damaged):
            path.write_bytes(journal_of([bodies[0], body]))
            again = fs.Scheduler.restore(path)
            assert again.recovery.snapshot and not again.recovery.warm
            mine, its = sched.cluster, again.cluster
            assert {m: (r.machine, r.failed, r.drained) for m, r in mine.machines.items()} == {
                m: (r.machine, r.failed, r.drained) for m, r in its.machines.items()
            }
            assert [
                (t, mine.placement(t), r.place and r.place[1:], r.since, r.preempted) for t, r in mine.tasks.items()
            ] == [(t, its.placement(t), r.place and r.place[1:], r.since, r.preempted) for t, r in its.tasks.items()]
            assert fs.policy.serialize.describe(again.policy) == fs.policy.serialize.describe(sched.policy)
            again.commit(again.schedule(life.now + 9))


def _objects(sched: fs.Scheduler) -> dict[type, object]:
    """One object of each class that a scheduler's state has, by the class."""
    found: dict[type, object] = {}
    look: list[object] = [sched.cluster, sched.builder]
    while look:
        thing = look.pop()
        if type(thing) in PLAIN.parts.keys() - {*found, fs.FlowNetwork}:  # a network checks itself
            found[type(thing)] = thing
            look += [getattr(thing, name) for name in PLAIN.parts[type(thing)] if name not in MADE]
    return found


MADE = ("_records", "_runs")
"""Parts of a cluster's state that are no attributes."""


@pytest.mark.parametrize(
    "other", [None, "text", 2**62, 1.5, object(), [1], [None], np.zeros((2, 2)), np.array([-1])], ids=repr
)
@pytest.mark.parametrize("name", MADE)
def test_tasks_of_another_kind_are_refused(name: str, other: object) -> None:
    sched = fs.Scheduler()
    sched.apply(fs.MachineAdded("m", {"cpu": 2}), fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1})]))
    sched.commit(sched.schedule(0.0))
    state = sched.cluster.__getstate__()
    with pytest.raises((AttributeError, LookupError, TypeError, ValueError)):
        Cluster.__new__(Cluster).__setstate__({**state, name: other})
        raise AssertionError("read")


def test_no_attribute_of_a_cluster_takes_the_place_of_a_method() -> None:
    state = fs.Scheduler().cluster.__getstate__()
    with pytest.raises(ValueError, match="hides what a cluster does"):
        Cluster.__new__(Cluster).__setstate__({**state, "apply": None})


def test_more_numbers_of_tasks_than_an_image_has_bytes_take_no_memory() -> None:
    state = fs.Scheduler().cluster.__getstate__()
    state["_indices"].count = 2**60
    with pytest.raises(ValueError, match="numbers of tasks"):
        Cluster.__new__(Cluster).__setstate__(state)


@pytest.mark.parametrize(
    ("name", "other"),
    [("gang", (1, 2)), ("gang", 0), ("gang", 1.5), ("priority", None), ("priority", 2**50), ("deadline", "soon")],
)
def test_a_job_that_cannot_be_is_refused(name: str, other: object) -> None:
    sched = fs.Scheduler()
    sched.apply(fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1})]))
    object.__setattr__(sched.cluster.jobs["j"].job, name, other)
    with pytest.raises(fs.FlowschedError):
        audit(sched.cluster)


@pytest.mark.parametrize(
    ("name", "other"),
    [("preempted", None), ("preempted", "then"), ("duration", -1.0), ("since", (0,)), ("duration", [])],
)
def test_a_task_with_times_that_are_none_is_refused(name: str, other: object) -> None:
    sched = fs.Scheduler()
    sched.apply(fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1})]))
    setattr(sched.cluster.tasks["t"], name, other)
    with pytest.raises(fs.FlowschedError):
        audit(sched.cluster)


@pytest.mark.parametrize("other", [2**40, 10**30, -1, None])
def test_affinity_over_more_rows_than_there_are_is_refused(other: object) -> None:
    sched = fs.Scheduler()
    sched.apply(fs.MachineAdded("m", {"cpu": 2}), fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1}, kind="k", apart=1)]))
    sched.cluster.inventory.affinity._top = other
    with pytest.raises(fs.FlowschedError, match="rows"):
        audit(sched.cluster)


@pytest.mark.parametrize("other", [-1, 2, 2**40, 0.5, None])
def test_a_refusal_for_want_of_an_unknown_resource_is_refused(other: object) -> None:
    fine = FineGrained(fs.Scheduler(resources=("cpu", "mem")))
    fine.apply(fs.MachineAdded("m", {"cpu": 2, "mem": 1}))
    rule = fine.cluster.inventory.rule
    rule._refused[0] = Refused([], short={0: (0, 1)})
    fgm_audit(rule, fine.cluster)
    rule._refused[0].short[0] = 0, other
    with pytest.raises(fs.FlowschedError, match="unknown resource"):
        fgm_audit(rule, fine.cluster)


@pytest.mark.parametrize(("level", "said"), [(-7, "level"), (5, "level"), (2, "compression")])
def test_levels_of_machines_that_do_not_exist_or_contradict_are_refused(level: int, said: str) -> None:
    """At such a level victims were chosen for a task that then did not fit."""
    fine = FineGrained(fs.Scheduler(resources=("cpu",)))
    fine.apply(fs.MachineAdded("m", {"cpu": 2}), fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1})]))
    fine.commit(fine.schedule(0.0))
    rule = fine.cluster.inventory.rule
    fgm_audit(rule, fine.cluster)
    rule._level[0] = level
    with pytest.raises(fs.FlowschedError, match=said):
        fgm_audit(rule, fine.cluster)


@pytest.mark.parametrize("points", [0, 2**40, 1.5, None])
def test_estimates_at_more_points_than_there_can_be_are_refused(points: object) -> None:
    fine = FineGrained(fs.Scheduler(resources=("cpu",)))
    rule = fine.cluster.inventory.rule
    rule.learner.estimator.points = points
    with pytest.raises(fs.FlowschedError, match="points"):
        fgm_audit(rule, fine.cluster)


def test_what_can_be_worked_out_is_not_taken_from_an_image() -> None:
    sched = fs.Scheduler()
    sched.apply(fs.MachineAdded("m", {"cpu": 2}), fs.JobSubmitted("j", [fs.Task("t", {"cpu": 4})]))
    sched.schedule(0.0)
    suitability = sched.cluster.inventory.suitability
    (index,) = (cls.index for cls in sched.cluster.waiting)
    right = suitability.now(1).of_row.tolist(), suitability.most(index), suitability.ever(index).tolist()
    state = {**vars(suitability), "_snapshot": object(), "_most": {index: 7}, "_ever": {index: "all"}}
    again = Suitability.__new__(Suitability)
    again.__setstate__(state)
    assert (again.now(1).of_row.tolist(), again.most(index), again.ever(index).tolist()) == right


@pytest.mark.parametrize("other", [None, "text", 2**62, -(2**62), 1.5, object()], ids=repr)
def test_an_attribute_of_another_kind_is_refused(other: object) -> None:
    objects, tried = _objects(fs.Scheduler()), 0
    assert len(objects) > 15
    for kind, thing in objects.items():
        for name, like in PLAIN.parts[kind].items():
            if like is None or isinstance(like, str) or name in MADE:
                continue
            if isinstance(like, float) and isinstance(other, int | float):
                continue
            before = getattr(thing, name)
            try:
                object.__setattr__(thing, name, other)
            except (TypeError, OverflowError):  # the attribute has a type of its own
                tried += 1
                continue
            except AttributeError:  # it is compiled, and only an image may say otherwise
                state = {**thing.__getstate__(), name: other}
                with (
                    pytest.MonkeyPatch.context() as patch,
                    pytest.raises(TypeError, match=rf"{kind.__name__}\.{name}: a"),
                ):
                    patch.setattr(kind, "__getstate__", lambda _, state=state: state)
                    PLAIN.check({kind: [thing]})
                continue
            if getattr(thing, name) is not other:  # as True for 1.5
                object.__setattr__(thing, name, before)
                continue
            with pytest.raises(TypeError, match=rf"{kind.__name__}\.{name}: a \w+ expected"):
                PLAIN.check({kind: [thing]})
            object.__setattr__(thing, name, before)
            PLAIN.check({kind: [thing]})
            tried += 1
    assert tried > 60


@pytest.mark.parametrize("code", [-1, -(2**63), 2**63 - 1, 1, 2, 1 << 32])
def test_a_row_that_does_not_exist_is_refused(code: int) -> None:
    class Node: ...

    node = Node()
    for value in ([node, node], ["a"] * 9):
        tables = _written(value, Node)
        (name,) = tables.columns.keys() & {".root.item", ".root.item.code"}
        tables.columns[name] = np.full_like(tables.columns[name], code)
        with pytest.raises(IndexError):
            _read_again(tables, Node)
    tables = _written([node], Node)
    assert tables.forms[""][1]["root"] == ["list", ["row", "Node", 0], 1]
    tables.forms[""][1]["root"][1][2] = code
    with pytest.raises(ValueError, match="a number from 0 to 0"):
        _read_again(tables, Node)


@pytest.mark.parametrize(
    "name", ["tasks.group", "groups.job", "groups.cls", "groups.waiting", "machines.tasks", "jobs.job", "jobs.tasks"]
)
def test_rows_that_compiled_code_relies_on_are_no_none(name: str) -> None:
    front, _, image = (bodies := records(_running().snapshot()))[1].partition(b"\n")
    tables, (table, part) = Tables.read(image), name.split(".")
    tables.forms[table][1][part] = "none"
    del tables.columns[name]
    with pytest.raises(fs.JournalMismatchError, match=f"{name}: rows of"):
        fs.Scheduler.restore(journal_of([bodies[0], front + b"\n" + b"".join(tables.pieces())]))


def test_two_tasks_of_one_number_are_refused() -> None:
    front, _, image = (bodies := records(_running().snapshot()))[1].partition(b"\n")
    tables = Tables.read(image)
    tables.columns["tasks.index"] = np.zeros_like(tables.columns["tasks.index"])
    with pytest.raises(fs.JournalMismatchError, match="a task expected|in a chain already"):
        fs.Scheduler.restore(journal_of([bodies[0], front + b"\n" + b"".join(tables.pieces())]))
    assert repr(None) == "None"


def _running() -> fs.Scheduler:
    sched = fs.Scheduler()
    sched.apply(
        *(fs.MachineAdded(m, {"cpu": 4, "gpu": 2}) for m in "mn"),
        fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1, "gpu": 0.5}) for i in range(5)]),
        fs.JobSubmitted("k", [fs.Task("w", {"cpu": 9})]),
    )
    sched.commit(sched.schedule(0.0))
    assert sum(record.row >= 0 for record in sched.cluster.tasks.values()) == 5
    return sched


@pytest.mark.parametrize("part", [
    "a row without tasks", "a row of another group", "one start less", "a device too many", "a device that is none", "another start", "no machine",
    "a number twice", "a waiting task that left", "two records under one id", "tasks in two chains", "a job with a chain of another",
])  # fmt: skip
def test_running_tasks_that_contradict_each_other_are_refused(part: str) -> None:
    sched = _running()
    cluster = sched.cluster
    audit(cluster)
    task = next(record for record in cluster.tasks.values() if record.row >= 0)
    group, waits = task.group, cluster.tasks["w"]
    match part:
        case "a row without tasks":
            group.on[cluster.inventory.rows] = ()
        case "a row of another group":
            waits.group.on[0] = group.on[0]
        case "one start less":
            row = next(iter(group.on))
            group.on[row] = group.on[row][1:]
        case "a device too many":
            task.devices += (1 - task.devices[0],)
        case "a device that is none":
            task.devices = (True,)
        case "another start":
            task.began = 1.0
        case "no machine":
            task.row = 7
        case "a number twice":
            task.run = next(other.run for other in cluster.tasks.values() if other.run not in (0, task.run))
        case "a waiting task that left":
            waits.gone = True
        case "two records under one id":
            cluster.tasks["w"] = task
        case "tasks in two chains":
            cluster.machines["m"].tasks = cluster.machines["n"].tasks
        case "a job with a chain of another":
            cluster.jobs["k"].tasks = cluster.jobs["j"].tasks
    with pytest.raises(fs.FlowschedError):
        audit(cluster)
