"""Records of started containers on disk, by which the next agent can end the remains of this one.

Every agent has a folder that it locks for as long as it lives; the lock goes with the process, however that ends.
A record is in the folder before the container's process is released, and until all of the container's processes are gone.
A new agent takes each folder with a free lock, ends the recorded processes, and removes the folder; only then does it make
a folder of its own.  So no container runs next to the remains of an earlier one.
A record names a process by pid, start time, token and boot; a process that differs in one of these is not touched.

The records decide which processes are signalled, so they are used only if no other user may write there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4
from weakref import WeakSet

from flowsched.boundary import control_groups, files, private
from flowsched.exceptions import InputError
from flowsched.hrm.agent.processes import Family, boot_id, end


def default_folder() -> Path:
    """Return the folder of all agents of this user."""
    return Path(tempfile.gettempdir()) / f"flowsched-agents-{os.geteuid()}"


class Custody:
    """The records of one agent.

    `base` is the folder of the folders of all agents; `key` is that of an agent of which there must be one only.  Raise
    InputError if an agent of that key is at work, or others may write into the folder, and TimeLimitError if the
    remains of an agent do not end.
    """

    def __init__(self, base: Path, key: str | None = None) -> None:
        private.folder("state", base)
        mine = base / (uuid4().hex if key is None else hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest())
        self._boot = boot_id()
        # One agent begins at a time, so a locked folder belongs to a live one.
        turn = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(turn, fcntl.LOCK_EX)
            for folder in sorted(base.iterdir()):
                self._inherit(folder)
            private.made(mine)
            lock = FolderLock.take(mine)
            if lock is None:
                raise InputError(f"state: another agent of this machine is at work, see {mine}")
        finally:
            os.close(turn)
        self.folder, self._lock = mine, lock

    def _inherit(self, folder: Path) -> None:
        """End the remains of a dead agent, and remove its folder."""
        if not folder.is_dir() or (lock := FolderLock.take(folder)) is None:
            return
        try:
            records = [record for path in folder.glob("*.json") if (record := _read(path))["boot"] == self._boot]
            for record in records:
                if record["group"]:
                    control_groups.end(Path(record["group"]))
            end([Family(record["pid"], record["start"], record["token"]) for record in records])
            _remove(folder)
        finally:
            lock.release()

    def add(self, id: str, family: Family, group: Path | None) -> None:
        """Record a container before its release."""
        record = {"id": id, "boot": self._boot, **asdict(family), "group": None if group is None else str(group)}
        # A record that was not completed is of a process that was not released.
        files.replace(self.folder / f"{family.token}.json", json.dumps(record), private.MODE, sync=False)

    def remove(self, family: Family) -> None:
        """Remove the record of a container whose processes have ended."""
        (self.folder / f"{family.token}.json").unlink(missing_ok=True)

    def families(self) -> list[Family]:
        """Return the recorded families."""
        records = map(_read, self.folder.glob("*.json"))
        return [Family(record["pid"], record["start"], record["token"]) for record in records if record["boot"]]

    def close(self) -> None:
        """Remove the folder, after all containers have ended."""
        _remove(self.folder)
        self._lock.release()


def _read(path: Path) -> dict[str, Any]:
    nothing = {"boot": None, "group": None, "pid": 0, "start": 0, "token": ""}
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError):
        return nothing
    kinds: dict[str, Any] = {"boot": str, "pid": int, "start": int, "token": str, "group": (str, type(None))}
    good = isinstance(record, dict) and all(isinstance(record.get(name), kind) for name, kind in kinds.items())
    # A short token could occur in the environment of an unrelated process.
    return record if good and len(record["token"]) == 32 and record["pid"] > 1 else nothing


def _remove(folder: Path) -> None:
    for path in folder.glob("*.json"):
        path.unlink(missing_ok=True)
    files.clear(folder)
    with suppress(OSError):
        folder.rmdir()


class FolderLock:
    """The lock of a folder, held until it is released or the process ends; a forked process does not hold it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        _LOCKS.add(self)

    @staticmethod
    def take(folder: Path) -> FolderLock | None:
        """Take the lock; return None if it is held elsewhere or the folder is gone."""
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The folder may have been removed before it was locked.
            there = os.stat(folder, follow_symlinks=False)
            if (there.st_dev, there.st_ino) == (os.fstat(fd).st_dev, os.fstat(fd).st_ino):
                return FolderLock(fd)
        except (BlockingIOError, FileNotFoundError):
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        return None

    def __del__(self) -> None:
        self.release()

    def release(self) -> None:
        """Release the lock."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


_LOCKS: WeakSet[FolderLock] = WeakSet()


def _forked() -> None:
    for lock in list(_LOCKS):
        lock.release()


os.register_at_fork(after_in_child=_forked)
