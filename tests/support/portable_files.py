"""Files of `flowsched.journal.export` for the tests: how to compare and damage them, and invariants of any contents."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any
from zlib import crc32

import numpy as np

import flowsched as fs
from flowsched.cluster.limits import RESOURCE, SLOTS
from flowsched.cluster.model import MICRO
from flowsched.journal import export

Line = dict[str, Any]


def text(kept) -> bytes:
    """The whole file."""
    return b"".join(export.lines(kept.engine))


def parsed(data: bytes) -> list[Line]:
    """Return its lines without the last."""
    return [json.loads(line) for line in data.splitlines()[:-1]]


def sealed(lines: list[Line]) -> bytes:
    """A file of these lines, with a last line that agrees with them."""
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return body + json.dumps({"is": "end", "lines": len(lines), "crc": crc32(body)}).encode() + b"\n"


def alike(kept) -> list[str]:
    """Return the lines that must be equal after two schedulers have had the same deltas, whatever they tried before.

    Turns count as their order, classes by their contents, rows not at all, since new machines and classes take the place of
    old ones.  The order of tasks on a machine, and the times at which time alone brings changes, depend on trials.
    """
    lines = parsed(text(kept))
    classes = {
        line["class"]: json.dumps({**line, "class": 0, "roomy": 0}, sort_keys=True)
        for line in lines
        if line["is"] == "class"
    }
    lines = [line for line in lines if line["is"] != "class"]
    turns = {turn: i for i, turn in enumerate(sorted(line["turn"] for line in lines if line["is"] == "task"))}
    for line in lines:
        match line["is"]:
            case "flowsched":
                del line["turn"]
            case "machine":
                del line["row"]
            case "task":
                line["turn"] = turns[line["turn"]]
                if "class" in line:
                    line["class"] = classes[line["class"]]
            case "group":
                line["waits"], line["class"] = "waits" in line, classes[line["class"]]
            case "hold":
                line["class"] = classes[line["class"]]
            case "left out":
                del line["until"]
            case "runs":
                line["tasks"].sort(key=json.dumps)
    return [json.dumps(line) for line in lines]


def check_books(kept) -> None:
    """The books are those of the tasks, and it is noted where these take more than there is."""
    cluster, inventory = kept.cluster, kept.cluster.inventory
    places = {task.id: record.machine.id for record in cluster.machines.values() for task in record.tasks}
    assert places == {task.id: cluster.placement(task.id) for task in cluster.tasks.values() if task.place}
    g = cluster.resources.device_index
    for record in cluster.machines.values():
        row = record.row
        assert cluster.by_row[row] is record and not (record.failed and record.tasks)
        assert inventory.usable[row] == (not (record.failed or record.drained))
        free = inventory.capacity[row].tolist()
        rooms = inventory.rooms(row).tolist()
        devices = [MICRO if i < free[g] // MICRO else 0 for i in range(len(rooms))]
        for task in record.tasks:
            assert cluster.tasks[task.id] is task and task.place.row == row and not task.gone
            assert inventory.tasks.row[task.index] == row and inventory.tasks.turn[task.index] == task.turn
            free = [have - need for have, need in zip(free, task.group.cls.demand.tolist(), strict=True)]
            for device in task.place.devices:
                devices[device] -= inventory.device_share(task.group.cls.index)
        assert inventory.free[row].tolist() == free and rooms == devices and inventory.running[row] == len(record.tasks)
        over = {RESOURCE << d for d, left in enumerate(free) if left < 0 and (d == g or inventory.rule is None)}
        over |= {RESOURCE << g} if min(devices, default=0) < 0 else set()
        over |= {SLOTS} if inventory.running[row] > inventory.slots[row] else set()
        assert inventory.over[row] == sum(over)
    turns = [task.turn for task in cluster.tasks.values()]
    assert len(set(turns)) == len(turns)
    runs = [task.run for task in cluster.tasks.values() if task.run]
    assert len(set(runs)) == len(runs) and all(0 < run <= cluster.runs for run in runs)
    assert all(task.run for task in cluster.tasks.values() if task.place)
    for cls, groups in cluster.waiting.items():
        for group in groups:
            assert group.cls is cls and list(group.waiting) == sorted(
                t for t in group.job.tasks if t.group is group and not t.place
            )
    for job in cluster.jobs.values():
        for group in job.each_group():
            on: dict[int, list[float]] = {}
            for task in job.tasks:
                if task.group is group and task.place:
                    on.setdefault(task.place.row, []).append(task.place.since)
            assert {row: sorted(since) for row, since in group.on.items()} == {row: sorted(s) for row, s in on.items()}
            assert group.tasks == sum(task.group is group for task in job.tasks)
            assert bool(group.waiting) == (group in cluster.waiting.get(group.cls, {}))
    rows = np.array([record.row for record in cluster.machines.values() if record.tasks], np.int64)
    assert int(inventory.running[rows].sum()) == len(places)


WILD: list[Any] = [
    None, True, False, -1, 0, 1, 2, 1.5, -0.5, 2**31, 2**53 + 1, 2**60, 2**62, 2**63, 2**64, -(2**63), 10**400, 1e308, -1e308, 1e-320,
    float("inf"), float("-inf"), float("nan"), "", "x", "cpu", "\ud800", "\0", "__class__", [], {}, [[]], [None], [1, 2], {"is": "Policy"},
    {"is": "partial", "of": "os.system", "with": [["true"], {}]}, {"is": "os.system"}, {"is": "builtins.eval"}, {"tuple": [1]},
    {"dict": [[[], 1]]}, {"array": ["O", [1], [1]]}, {"array": ["<i8", [1 << 40], [1]]}, [[[[[[[[[[]]]]]]]]]],
]  # fmt: skip
NAMES = ["Policy", "LoadCost", "CustomCost", "MaxMin", "DRF", "Remaining", "SequenceShare", "WaitCost", "Task", "Claims", "mapping", "set",
         "StrictPriority", "WeightedPriority", "Locality", "FragmentationCost", "PlacementCost", "StaticQuotas", "Fairness"]  # fmt: skip


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there is something in a line."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield (*at, key)
            yield from paths(value[key], (*at, key))


def got(value: Any, path: tuple[Any, ...]) -> Any:
    """Return the value at a path."""
    for key in path:
        value = value[key]
    return value


class Breaker:
    """Alters files with knowledge of the format; checksums are right unless it says otherwise."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def broken(self, lines: list[Line]) -> bytes:
        """Another file."""
        lines = copy.deepcopy(lines)
        for _ in range(self.random.choice([1, 1, 1, 2, 3])):
            self._change(lines)
        data = sealed(lines)
        if self.random.random() < 0.05:
            data = self._damaged(data)
        return data

    def _change(self, lines: list[Line]) -> None:
        random = self.random
        # Rare kinds of lines are as interesting as those of which there are many.
        kind = random.choice(sorted({line.get("is", "") for line in lines if isinstance(line.get("is", ""), str)}))
        i = random.choice([i for i, line in enumerate(lines) if line.get("is") == kind] or [0])
        j = random.randrange(len(lines))
        match random.randrange(12):
            case 0:
                del lines[i]
                lines or lines.append({})
            case 1:
                lines.insert(j, copy.deepcopy(lines[i]))
            case 2:
                lines[i], lines[j] = lines[j], lines[i]
            case 3 if lines[i]:
                del lines[i][random.choice(list(lines[i]))]
            case _:
                self._value(lines, lines[i])

    def _value(self, lines: list[Line], line: Line) -> None:
        random = self.random
        places = list(paths(line))
        if not places:
            return
        *front, last = random.choice(places)
        where = got(line, tuple(front))
        old = where[last]
        others = [other for other in lines if other.get("is") == line.get("is")]
        near = random.choice(others) if others else line
        try:
            theirs = got(near, (*front, last))
        except (KeyError, IndexError, TypeError):
            theirs = None
        choices: list[Any] = [random.choice(WILD), theirs, random.choice(list(line.values()))]
        if isinstance(old, int | float) and not isinstance(old, bool):
            choices += [
                old + 1,
                old - 1,
                -old,
                float(old) if abs(old) < 1 << 900 else 0.0,
                str(old),
                old * 2,
                old * 1000,
            ]
        if isinstance(old, list):
            choices += [old[::-1], old + old, old[:-1], old[1:]]
        if last == "is" and front:
            choices += [random.choice(NAMES)] * 5
        where[last] = copy.deepcopy(random.choice(choices))

    def _damaged(self, data: bytes) -> bytes:
        random = self.random
        at = random.randrange(len(data))
        return random.choice([
            data[:at], data[:at] + bytes([random.randrange(256)]) + data[at + 1 :], data[:at] + data[at + 1 :], data + data,
            data[:at] + b"[" * 100_000 + data[at:], data.replace(b"\n", b"\r\n"), data.replace(b"\n", b"\n\n", 1), b"",
        ])  # fmt: skip


def files(seed: int, steps: int = 14) -> list[bytes]:
    """States worth breaking: of this many steps, one for each policy."""
    from lives import POLICIES, Life, live_alike

    makers = [lambda _, make=make: make() for make in POLICIES]
    found = []
    for i, maker in enumerate(POLICIES):
        life, sched = Life(seed + i), fs.Scheduler(maker())
        live_alike(life, sched, (), steps, makers)
        found.append(text(sched))
    return found


def fine_files(seed: int, steps: int = 25) -> list[bytes]:
    """The same of FineGrained."""
    from fgm_lives import born, fine_operations

    found = []
    for i in range(4):
        fine = born(seed + i)
        list(fine_operations(seed + i, fine, steps))
        found.append(text(fine))
    return found
