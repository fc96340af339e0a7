"""Check a wheel: its tag, its size, no debug information, and only symbols of the stable ABI that its tag promises.

python .ci/check_wheel.py WHEEL        exit status 1 and a line for each fault
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

MOST = 1_500_000
"""Bytes of a wheel."""

_TAG = re.compile(r"flowsched-[^-]+-(cp311-abi3|cp(\d+)-cp\2t)-[^-]+\.whl")
_DEBUG = (b".debug_info", b".zdebug_info", b"__debug_info")
"""Names of sections, in ELF and in Mach-O."""


def faults(wheel: Path) -> list[str]:
    """Return what is wrong with a wheel."""
    found = []
    tag = _TAG.fullmatch(wheel.name)
    if not tag:
        found.append(f"{wheel.name}: neither cp311-abi3 nor of a free-threaded Python")
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size:,} bytes")
    if size > MOST:
        found.append(f"{wheel.name}: more than {MOST:,} bytes")
    with zipfile.ZipFile(wheel) as archive:
        modules = [name for name in archive.namelist() if name.endswith((".so", ".pyd"))]
        if not modules:
            found.append(f"{wheel.name}: no compiled module")
        for name in modules:
            if any(section in archive.read(name) for section in _DEBUG):
                found.append(f"{name}: has debug information")
            if tag and tag[1] == "cp311-abi3" and ".abi3." not in name and not name.endswith(".pyd"):
                found.append(f"{name}: is for one Python alone")
        found += [f"{name}: source in a wheel" for name in archive.namelist() if name.endswith((".pyx", ".pxi", ".c"))]
    if tag and tag[1] == "cp311-abi3":
        audit = [sys.executable, "-m", "abi3audit", "--strict", "--summary", str(wheel)]
        if subprocess.run(audit, check=False).returncode:
            found.append(f"{wheel.name}: symbols outside of the stable ABI of 3.11")
    return found


if __name__ == "__main__":
    told = faults(Path(sys.argv[1]))
    print(*told, sep="\n", end="\n" if told else "")
    sys.exit(bool(told))
