"""Folders and files of state, which are their owner's alone.

State contains data of jobs: commands, environments, outputs, and with them passwords.  A folder that is made here has mode
0700, a file 0600, whatever the umask.  An existing one keeps its mode.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from flowsched.exceptions import InputError

MODE = 0o600
"""Of files."""

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def opener(path: str, flags: int) -> int:
    """Open a file, as the `opener` of `open`; a new one has mode 0600."""
    if flags & os.O_CREAT:
        with suppress(FileExistsError):
            new = os.open(path, flags | os.O_EXCL, MODE)
            if hasattr(os, "fchmod"):
                os.fchmod(new, MODE)
            return new
    return os.open(path, flags, MODE)


def made(path: Path) -> None:
    """Make a folder and those above it, where they are not there."""
    for missing in reversed([one for one in (path, *path.parents) if not one.exists()]):
        missing.mkdir(0o700, exist_ok=True)
        missing.chmod(0o700)
    path.mkdir(exist_ok=True)  # which raises where it is no folder


def folder(what: str, path: Path) -> None:
    """Make a folder for state, or take one that is there.

    Raise InputError if it is another user's, others may write there, or it is a symbolic link.
    """
    made(path)
    about = path.lstat()
    mine = not hasattr(os, "geteuid") or about.st_uid == os.geteuid()
    if not stat.S_ISDIR(about.st_mode) or not mine or about.st_mode & _OTHERS:
        raise InputError(f"{what}: a folder of this user's, where no other may write, expected: {path}")


def check_place(what: str, path: Path) -> None:
    """Check the place of a file of state, which is in a folder of any user.

    Raise InputError if all users may replace or alter the file, or it is another user's.
    """
    with suppress(OSError):
        about = path.parent.stat()
        if about.st_mode & stat.S_IWOTH and not about.st_mode & stat.S_ISVTX:
            raise InputError(f"{what}: all users may write in the folder {path.parent}")
    with suppress(OSError):
        about = path.stat()
        if stat.S_ISREG(about.st_mode) and about.st_mode & stat.S_IWOTH:
            raise InputError(f"{what}: all users may write to {path}")
        if stat.S_ISREG(about.st_mode) and hasattr(os, "geteuid") and about.st_uid != os.geteuid():
            raise InputError(f"{what}: {path} belongs to another user")
