"""Power failures: of the writes that no sync covers, any may be lost, in any order."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from effort import effort
from lives import flow_of, operations, world_of
from mortals import BORN, scheduler

import flowsched as fs

SUPPORT = Path(__file__).parents[1] / "support"
CUTS = effort(25, 200)
SEED, CALLS = 3, 60

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs LD_PRELOAD and a C compiler"),
    pytest.mark.long,
]

LIFE = """
import os, sys
sys.path.insert(0, {support!r})
import flowsched as fs
from mortals import scheduler
from lives import operations
sched = scheduler({seed}, fs.Journal({journal!r}, durability={level!r}))
notes = os.open({notes!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for count, _ in enumerate(operations({seed}, sched, {calls}), 1):
    sched.journal.wait()
    if sched.journal.records == sched.journal.store.n:  # else a round waits for its commit
        os.write(notes, b"%d" % count)
os._exit(0)
"""


class Write(NamedTuple):
    """Of a letter: w(rite), t(runcate), s(ync) or u(nlink)."""

    what: str
    file: str
    at: int
    data: bytes


def written(log: Path) -> Iterator[Write]:
    data, at = log.read_bytes(), 0
    while at < len(data):
        what, name, size, offset = struct.unpack_from("<cIIq", data, at)
        at += 17
        file = data[at : at + name].decode()
        at += name
        yield Write(what.decode(), Path(file).name, offset, data[at : at + size])
        at += size


def disk(writes: list[Write], random: Random, lost: float) -> dict[str, bytes]:
    """The files after a failure: what was synced, and a part of the rest."""
    last = {write.file: i for i, write in enumerate(writes) if write.what == "s"}
    files: dict[str, bytearray] = {}
    for i, (what, file, at, data) in enumerate(writes):
        synced = last.get("life" if what == "u" else file, -1)  # a removal is a change of the folder
        if what == "s" or (i > synced and random.random() < lost):
            continue
        there = files.setdefault(file, bytearray())
        if what == "u":
            del files[file]
        elif what == "t":
            del there[at:]
            there.extend(bytes(at - len(there)))
        else:
            there.extend(bytes(max(at + len(data) - len(there), 0)))
            there[at : at + len(data)] = data
    return {file: bytes(data) for file, data in files.items()}


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("shim") / "writes.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", made, SUPPORT / "writes.c", "-ldl"], check=True)
    return made


@pytest.mark.parametrize("level", ["power", "group", "process"])
def test_what_was_acknowledged_survives_a_power_failure(tmp_path: Path, recorder: Path, level: str) -> None:
    """Under "process" any number of the last calls may be lost, but the rest is whole."""
    folder, log = tmp_path / "life", tmp_path / "log"
    folder.mkdir()
    code = LIFE.format(support=str(SUPPORT), seed=SEED, journal=str(folder / "state.db"), level=level,
                       notes=str(folder / "notes"), calls=CALLS)  # fmt: skip
    environment = {**os.environ, "LD_PRELOAD": str(recorder), "WRITES_FOLDER": str(folder), "WRITES_LOG": str(log),
                   "PYTHONPATH": str(Path(fs.__file__).parents[1])}  # fmt: skip
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    writes = list(written(log))
    unhurt = scheduler(SEED)
    lives = chain([None], operations(SEED, unhurt, CALLS))
    states = [(world_of(unhurt), flow_of(unhurt)) for _ in lives]
    first = next(i for i, write in enumerate(writes) if write.file == "notes")
    kept = []
    for cut in range(CUTS):
        random = Random(cut)
        end = random.randrange(first, len(writes) + 1)
        acknowledged = int([write.data for write in writes[:end] if write.file == "notes"][-1]) if end > first else 0
        there = tmp_path / f"cut{cut}"
        there.mkdir()
        for file, data in disk(writes[:end], random, random.choice([0.1, 0.5, 0.9, 1.0])).items():
            (there / file).write_bytes(data)
        again = BORN["Scheduler"][0](SEED, there / "state.db")
        state = world_of(again), flow_of(again)
        again.journal.close()
        newest = next((int(write.data) for write in writes[end:] if write.file == "notes"), CALLS)
        assert state in states[0 if level == "process" else acknowledged : newest + 1]
        kept.append(state in states[acknowledged:])
        shutil.rmtree(there)
    print(level, len(writes), "writes and syncs;", CUTS, "cuts;", sum(kept), "with all that was acknowledged")
