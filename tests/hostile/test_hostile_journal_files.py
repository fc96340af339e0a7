"""Copies, forks, and journal files that others touch."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from calls import small
from effort import effort
from lives import world_of

import flowsched as fs
from flowsched.journal import store
from flowsched.journal.store import is_database


def test_copies_have_no_journal_and_leave_the_original_alone(tmp_path: Path) -> None:
    sched = small(tmp_path / "journal")
    for one in (copy.deepcopy(sched), copy.copy(sched)):
        assert one.journal is None and world_of(one) == world_of(sched)
    for thing in (sched, sched.journal, sched.journal.store):
        with pytest.raises(fs.InputError):
            pickle.dumps(thing)
    with pytest.raises(fs.InputError, match="only writer"):
        copy.deepcopy(sched.journal)
    with open(tmp_path / "other", "wb") as other:
        sched.commit(sched.schedule(2.0))
        assert other.tell() == 0
    state = world_of(sched)
    sched.journal.close()
    assert world_of(fs.Scheduler(resources=("cpu", "gpu"), journal=tmp_path / "journal")) == state


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_writes_nothing_and_holds_no_lock(tmp_path: Path) -> None:
    sched = small(tmp_path / "journal")
    there, back = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            sched.apply(fs.MachineAdded("child", {"cpu": 1}))
            os.write(back, b"acknowledged")
        except fs.JournalError as error:
            os.write(back, str(error).encode())
        finally:
            signal.pause()
            os._exit(0)
    try:
        assert b"belongs to the process that this one was forked from" in os.read(there, 1000)
        sched.apply(fs.MachineAdded("parent", {"cpu": 1}))
        sched.journal.close()
        again = fs.Scheduler(resources=("cpu", "gpu"), journal=tmp_path / "journal")
        assert "parent" in again.cluster.machines and "child" not in again.cluster.machines
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(there)
        os.close(back)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_children_that_end_as_programs_do_leave_the_database_alone(tmp_path: Path) -> None:
    """They collect and close all that they have, while the parent writes, and some outlive it."""
    code = """
import os, sys, gc, time
import flowsched as fs
sched = fs.Scheduler(resources=("cpu",), journal=sys.argv[1])
for i in range(int(sys.argv[2])):
    sched.apply(fs.MachineAdded(i, {"cpu": 1}))
    if not os.fork():
        if i % 2:
            del sched
            gc.collect()
        time.sleep(0.02 * (i % 3))
        sys.exit(0)  # the child's interpreter ends, with finalisers
    sched.commit(sched.schedule(float(i)))
os._exit(0)
"""
    forks, path = effort(20, 200), tmp_path / "journal"
    folder = str(Path(fs.__file__).parents[1])
    command = [sys.executable, "-W", "ignore", "-c", code, str(path), str(forks)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": folder}, timeout=300)
    assert len(fs.Scheduler.restore(path).cluster.machines) == forks
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_other_connections_come_and_go(tmp_path: Path) -> None:
    """The log of an open database is there, whatever reads the database here or in other processes meanwhile."""
    path = tmp_path / "journal"
    small(path).journal.close()
    here = sqlite3.connect(path)
    here.execute("SELECT count(*) FROM calls").fetchone()  # has a lock before the scheduler has
    sched = fs.Scheduler(resources=("cpu", "gpu"), journal=path)
    look = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); print(c.execute('SELECT count(*) FROM calls').fetchone()[0]); c.close()"
    for i in range(4):
        fs.replay(path)
        assert is_database(path)
        with pytest.raises(fs.JournalError, match="in use"):
            fs.Scheduler(resources=("cpu", "gpu"), journal=path)
        sched.apply(fs.MachineAdded(("new", i), {"cpu": 1}))
        seen = subprocess.run([sys.executable, "-c", look, path], capture_output=True, text=True, check=True)
        assert int(seen.stdout) == sched.journal.store.n
        assert (tmp_path / "journal-wal").stat().st_size
    here.close()
    state = world_of(sched)
    sched.journal.close()
    assert world_of(fs.Scheduler(resources=("cpu", "gpu"), journal=path)) == state


def test_a_reader_that_stays_delays_only_the_emptying_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_WAL_LIMIT", 1 << 15)
    sched = small(tmp_path / "journal")
    wal = tmp_path / "journal-wal"
    with closing(sqlite3.connect(tmp_path / "journal", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        count = reader.execute("SELECT count(*) FROM calls").fetchone()
        for i in range(60):
            sched.apply(fs.MachineAdded(("new", i), {"cpu": 1}))
        assert reader.execute("SELECT count(*) FROM calls").fetchone() == count
        assert wal.stat().st_size > 60 * 1024
        reader.execute("COMMIT")
    for i in range(60, 90):
        sched.apply(fs.MachineAdded(("new", i), {"cpu": 1}))
    assert wal.stat().st_size < 50_000
    assert world_of(fs.Scheduler.restore(tmp_path / "journal")) == world_of(sched)


def test_a_writer_that_holds_the_lock_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And if it never ends, the call is not acknowledged."""
    monkeypatch.setattr(store, "_PATIENCE", 1.0)
    sched = small(tmp_path / "journal")
    with closing(sqlite3.connect(tmp_path / "journal", isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        rest = threading.Timer(0.2, other.execute, ["ROLLBACK"])
        rest.start()
        sched.apply(fs.MachineAdded("waited", {"cpu": 1}))
        rest.join()
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(fs.JournalError, match="could not be written .*locked"):
            sched.apply(fs.MachineAdded("never", {"cpu": 1}))
        other.execute("ROLLBACK")
    with pytest.raises(fs.JournalError, match="start again from the journal"):
        sched.apply(fs.MachineAdded("later", {"cpu": 1}))
    sched.journal.close()
    again = fs.Scheduler(resources=("cpu", "gpu"), journal=tmp_path / "journal").cluster.machines
    assert "waited" in again and not {"never", "later"} & again.keys()


@pytest.mark.skipif(sys.platform == "win32", reason="limits by rlimit")
def test_a_full_disk_is_an_error_and_what_was_acknowledged_is_there(tmp_path: Path) -> None:
    code = """
import resource, signal, sys
import flowsched as fs
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sched = fs.Scheduler(resources=("cpu",), journal=sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
for i in range(1000):
    try:
        sched.apply(fs.MachineAdded(i, {"cpu": 1}))
    except fs.JournalError as error:
        print(i, error)
        break
try:
    sched.apply(fs.MachineAdded("more", {"cpu": 1}))
except fs.JournalError as error:
    print(error)
"""
    for limit in (50_000, 65_537, 70_001):
        path = tmp_path / f"journal{limit}"
        command = [sys.executable, "-c", code, str(path), str(limit)]
        environment = {**os.environ, "PYTHONPATH": str(Path(fs.__file__).parents[1])}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        first, second = done.stdout.splitlines()
        assert "could not be written" in first and "start again from the journal" in second
        acknowledged = int(first.split()[0])
        assert acknowledged > 5
        assert list(fs.Scheduler(resources=("cpu",), journal=path).cluster.machines) == list(range(acknowledged))


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    link = tmp_path / "journal"
    link.symlink_to(tmp_path / "disk" / "real")
    sched = small(link)
    sched.compact()
    sched.apply(fs.MachineAdded("m3", {"cpu": 1}))
    assert link.is_symlink() and (tmp_path / "disk" / "real-wal").exists()
    for path in (link, tmp_path / "disk" / "real"):
        with pytest.raises(fs.JournalError, match="in use"):
            fs.Scheduler(resources=("cpu", "gpu"), journal=path)


@pytest.mark.parametrize("what", ["removed", "moved", "replaced", "cut", "log removed", "rows inserted"])
def test_a_file_that_others_touch_is_noticed_before_anything_is_acknowledged(tmp_path: Path, what: str) -> None:
    path = tmp_path / "journal"
    sched = small(path)
    match what:
        case "removed":
            path.unlink()
        case "moved":
            path.rename(tmp_path / "rotated")
        case "replaced":
            data = path.read_bytes()
            path.unlink()
            path.write_bytes(data)
        case "cut":
            os.truncate(path, 100)
        case "log removed":
            (tmp_path / "journal-wal").unlink()
        case "rows inserted":
            with sqlite3.connect(path) as other:
                other.execute("INSERT INTO calls (kind, body, chain) VALUES ('events', '[]', 0)")
            other.close()
    state = world_of(sched)
    for _ in range(2):
        with pytest.raises(fs.JournalError):
            sched.apply(fs.MachineAdded("m3", {"cpu": 1}))
    assert world_of(sched) == state or what == "rows inserted"  # which is noticed as it writes


@pytest.mark.parametrize("thing", ["/dev/zero", "/dev/null", "folder", "fifo"])
def test_only_regular_files_are_journals(tmp_path: Path, thing: str) -> None:
    path = Path(thing) if thing.startswith("/") else tmp_path / thing
    if thing == "folder":
        path.mkdir()
    if thing == "fifo":
        os.mkfifo(path)
    with pytest.raises(fs.JournalError, match="not a regular file"):
        fs.Scheduler.restore(path)
    with pytest.raises(fs.JournalError, match="not a regular file"):
        fs.Scheduler(journal=path)


@pytest.mark.long
def test_a_file_of_zeros_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "zeros"
    path.touch()
    os.truncate(path, effort(1, 3) << 30)
    code = f"""
import resource, flowsched as fs
resource.setrlimit(resource.RLIMIT_AS, (800 << 20, 800 << 20))
try: fs.Scheduler.restore({str(path)!r})
except fs.JournalMismatchError as error: print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "not a journal or snapshot" in done.stdout, done.stderr


@pytest.mark.parametrize("id", ["\ud83d\ude00", "\ud800", ("a", "\udfff")])
def test_ids_that_no_file_carries_are_refused_before_anything_happens(tmp_path: Path, id) -> None:
    sched = small(tmp_path / "journal")
    state, size = world_of(sched), sched.journal.size
    for event in (
        fs.MachineAdded(id, {"cpu": 1}),
        fs.MachineAdded("m9", {"cpu": 1}, labels={"zone": str(id)})
        if isinstance(id, str)
        else fs.MachineAdded("m9", {"cpu": 1}, rack=id),
        fs.JobSubmitted(id, [fs.Task("t", {"cpu": 1})]),
        fs.JobSubmitted("j", [fs.Task(id, {"cpu": 1})]),
    ):
        with pytest.raises(fs.InputError, match="surrogate"):
            sched.apply(event)
    assert world_of(sched) == state and sched.journal.size == size
    with pytest.raises(fs.InputError, match="can only hold integers"):
        sched.apply(fs.MachineAdded(10**5000, {"cpu": 1}))
    sched.apply(fs.MachineAdded("\U0001f600", {"cpu": 1}))
    assert "\U0001f600" in fs.Scheduler.restore(tmp_path / "journal").cluster.machines
