"""Locks of folders, held until they are released or the process ends in any way; forked processes do not hold them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from weakref import WeakSet

__all__ = ["FolderLock"]


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
