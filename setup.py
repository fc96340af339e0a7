"""The compiled modules and their build switches; everything else is in pyproject.toml.

``FLOWSCHED_DEBUG=1`` builds with bounds and initialisation checks on and keeps debug information, for the tests.
``FLOWSCHED_FAULTS=1`` builds with fault points: tests make any allocation and any look for signals fail.
A change of either translates and compiles every module again; otherwise only what changed is built.
"""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCES = sorted(Path("src/flowsched").rglob("*.pyx"))


def switch(name: str) -> bool:
    """Return whether an environment variable is set to anything but 0."""
    return os.environ.get(f"FLOWSCHED_{name}", "0") not in ("", "0")


debug, faults = switch("DEBUG"), switch("FAULTS")
if sys.platform == "win32":  # MSVC optimises by default
    flags = ["/Od"] if debug else []
else:
    flags = ["-O1", "-g"] if debug else ["-O3", "-g0"]
    flags.append("-ffp-contract=off")  # costs are the same on every processor: aarch64 fuses otherwise

macros = [("FLOWSCHED_FLAGS", '"{}"'.format(" ".join([os.environ.get("CFLAGS", ""), *flags]).strip()))]
if faults:
    macros.append(("FLOWSCHED_FAULTS", "1"))

# Neither Cython nor setuptools compares switches, so the last ones are kept beside the C files.
build = Path("build")
build.mkdir(exist_ok=True)
last, switches = build / "switches", f"{debug} {faults} {flags}"
changed = not last.exists() or last.read_text(encoding="utf-8") != switches
last.write_text(switches, encoding="utf-8")

setup(
    options={"build_ext": {"force": changed, "parallel": os.cpu_count()}},
    ext_modules=cythonize(
        [
            Extension(
                ".".join(source.relative_to("src").with_suffix("").parts),
                [str(source)],
                define_macros=macros,
                extra_compile_args=flags,
            )
            for source in SOURCES
        ],
        build_dir="build/c",
        force=changed,
        compiler_directives={
            "language_level": 3,
            "auto_pickle": False,
            "boundscheck": debug,
            "wraparound": False,
            "initializedcheck": debug,
            "overflowcheck": False,
            "cdivision": True,
            "freethreading_compatible": True,
        },
    ),
)
