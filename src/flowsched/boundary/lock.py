"""A lock between processes: a file that is there while one of them has it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from flowsched.boundary import private

__all__ = ["Lock"]


class Lock:
    """An exclusive lock; the kernel releases it when its process ends, however that ends.

    Parameters
    ----------
    path : str
        Of the file.
    wait : bool
        Wait while another process has it.

    Raises
    ------
    BlockingIOError
        Another process has it, and `wait` is false.
    OSError
        The file cannot be opened or locked.
    """

    def __init__(self, path: str, wait: bool = False) -> None:
        self._path, self._fd = path, -1
        if sys.platform == "win32":
            return
        import fcntl

        while self._fd < 0:
            self._fd = private.opener(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                current = os.path.samestat(os.fstat(self._fd), os.stat(path))
            except FileNotFoundError:
                current = False
            except BaseException:
                self.leave()
                raise
            if not current:  # its owner has removed the file meanwhile
                self.leave()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release it."""
        if self._fd >= 0:
            with suppress(OSError):
                os.unlink(self._path)
            self.leave()

    def leave(self) -> None:
        """Close the file; a parent that has it open, too, keeps the lock."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)
