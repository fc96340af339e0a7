"""Files that are written whole or not at all.

The new contents are written to a second file, which replaces the first one in one step.  After an interruption before that (Ctrl-C, a
full disk, a crash of the machine), the file is as it was, or not there.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from flowsched.exceptions import InputError


def replace(path: str | os.PathLike[str], data: str | bytes, mode: int | None = None, *, sync: bool = True) -> None:
    """Write a file as a whole, or raise OSError and leave the file as it was.

    Behind a symbolic link the target is replaced and the link stays; a device or a pipe is written to directly.  Text
    becomes UTF-8.  By default an old file keeps its permissions, and a new one has those that the umask leaves.  With
    `sync` the contents are on the disk before they take their place, so they outlive a crash of the machine.
    """
    raw = data.encode() if isinstance(data, str) else data
    target = Path(os.path.realpath(path))
    try:
        old = target.stat().st_mode
    except FileNotFoundError:
        old = stat.S_IFREG | (0o666 & ~_umask() if mode is None else mode)
    if not stat.S_ISREG(old):
        target.write_bytes(raw)
        return
    handle, beside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.", suffix=".tmp")
    try:
        with open(handle, "wb") as file:
            file.write(raw)
            file.flush()
            os.fchmod(handle, stat.S_IMODE(old) if mode is None else mode)
            if sync:
                os.fsync(handle)
        os.replace(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def clear(folder: Path) -> None:
    """Remove the files that interrupted calls of `replace` have left in a folder."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def read(path: str | os.PathLike[str], most: int) -> bytes:
    """Read a file or a pipe to its end; InputError if that is more than `most` bytes."""
    with open(path, "rb") as file:
        raw = file.read(most + 1)
    if len(raw) > most:
        raise InputError(f"{os.fspath(path)}: more than {most:,} bytes")
    return raw


def identity(path: str | os.PathLike[str]) -> object | None:
    """Return a key that is equal for two paths of one file, links of both kinds included; None for a device or pipe."""
    try:
        found = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def _umask() -> int:
    """Return the umask of the process, which can be read only by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
