"""Check a wheel: compiled modules without debug information, no sources, and no more bytes than 10 MB.

python .ci/check_wheel.py WHEEL        exit status 1 and a line for each fault
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

MOST = 10_000_000
"""Bytes of a wheel above which someone should ask why."""

_DEBUG = (b".debug_info", b".zdebug_info", b"__debug_info")
"""Names of sections, in ELF and in Mach-O."""


def faults(wheel: Path) -> list[str]:
    """Return what is wrong with a wheel."""
    found = []
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size:,} bytes")
    if size > MOST:
        found.append(f"{wheel.name}: more than {MOST:,} bytes")
    with zipfile.ZipFile(wheel) as archive:
        modules = [name for name in archive.namelist() if name.endswith((".so", ".pyd"))]
        if not modules:
            found.append(f"{wheel.name}: no compiled module")
        debug = [name for name in modules if any(section in archive.read(name) for section in _DEBUG)]
        found += [f"{name}: has debug information" for name in debug]
        found += [f"{name}: source in a wheel" for name in archive.namelist() if name.endswith((".pyx", ".pxd", ".c"))]
    return found


if __name__ == "__main__":
    found = faults(Path(sys.argv[1]))
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
