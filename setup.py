"""The compiled modules and their build switches; everything else is in pyproject.toml.

The modules keep to the limited C API of CPython 3.11, so that one wheel (cp311-abi3) serves that version and all later ones.
Free-threaded Pythons up to 3.14 have no limited API: a build by one of them is for its version alone (cp314-cp314t).

``FLOWSCHED_DEBUG=1`` builds with bounds and initialisation checks on and keeps debug information, for the tests.
``FLOWSCHED_FAULTS=1`` builds with fault points: tests make any allocation and any look for signals fail.
``FLOWSCHED_ABI3=0`` builds for the running Python alone, for distributions that build for each, and to measure the difference.
"""

import os
import re
import sys
import sysconfig
import zipfile
from pathlib import Path

from Cython.Build import cythonize
from Cython.Compiler import Options
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

try:
    from zopfli import zlib
except ImportError:
    zlib = None

MODULES = (
    "_guard",
    "_cs",
    "_ns",
    "_pairs",
    "_scaling",
    "fgm._course",
    "journal._encode",
)
"""Each is ``src/flowsched/NAME.pyx``, with ``/`` for a dot.  What they say of themselves stays in the source."""

PUBLIC = ("_simple", "cluster._records")
"""Users meet their classes, so these have docstrings: a fiftieth of the wheel in all modules."""

KERNELS = ("_cs", "_ns", "_scaling")
"""Loops over numbers: nearly all steps of ``-O2`` (``-O3`` is larger by an eighth and no faster)."""

HOT = (*KERNELS, "journal._encode")
"""Compiled for speed; the others, which mostly call Python or are as fast either way, for size."""

SHARED = "_flowsched_views"
"""The memory views of all modules, a quarter of each otherwise.

Cython writes ``src/flowsched/_flowsched_views.c``.  It enters the module in ``sys.modules`` without its package as well, hence the name.
"""


def switch(name: str, default: str = "0") -> bool:
    """Return whether an environment variable is set to anything but 0."""
    return os.environ.get(f"FLOWSCHED_{name}", default) not in ("", "0")


debug, faults = switch("DEBUG"), switch("FAULTS")
limited = switch("ABI3", "1") and not sysconfig.get_config_var("Py_GIL_DISABLED")

if sys.platform == "win32":  # MSVC optimises, and keeps debug information apart, by default
    compile_flags, link_flags = ["/Od"] if debug else [], []
else:
    compile_flags = ["-O1", "-g"] if debug else ["-O2", "-g0"]
    compile_flags.append("-ffp-contract=off")  # costs are the same on every processor: aarch64 fuses otherwise
    compile_flags += ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]  # of use to C++ alone
    if sys.platform == "linux":
        compile_flags.append("-fno-ipa-profile")  # what cold functions alone call is not cold
        compile_flags += ["-fno-plt", "-fmerge-all-constants"]  # smaller
        compile_flags.append("-fno-tree-tail-merge")  # smaller once it is compressed
    link_flags = (
        ["-s", "-Wl,--build-id=none", "-Wl,-z,noseparate-code"] if sys.platform == "linux" and not debug else []
    )

size = [] if debug or sys.platform == "win32" else ["-Os"]
alike = ["-fno-schedule-insns2", "-falign-jumps=1"] if sys.platform == "linux" and not debug else []
plain = ["-fno-tree-dominator-opts"] if sys.platform == "linux" and not debug else []
"""What is compiled without these steps is more alike, and a fortieth smaller once it is compressed."""

macros = {"FLOWSCHED_FLAGS": '"{}"'.format(" ".join([os.environ.get("CFLAGS", ""), *compile_flags]).strip())}
macros["CYTHON_COMPRESS_STRINGS"] = "0"  # what the wheel compresses again grows by that
if faults:
    macros["FLOWSCHED_FAULTS"] = "1"
if limited:
    macros["Py_LIMITED_API"] = "0x030b0000"


def extension(name: str, suffix: str) -> Extension:
    """Return the extension module ``flowsched.NAME``."""
    return Extension(
        f"flowsched.{name}",
        [f"src/flowsched/{name.replace('.', '/')}{suffix}"],
        define_macros=list(macros.items()),
        extra_compile_args=[
            *compile_flags,
            *alike,
            *(() if name in KERNELS else plain),
            *(() if name in HOT else size),
        ],
        extra_link_args=link_flags,
        py_limited_api=limited,
    )


TALKS_TO_PYTHON = re.compile(
    r"^static (?:CYTHON_INLINE )?(?=PyObject \*__pyx_(?:pw|pf|f)_|int __pyx_(?:pw|pf)_)", re.MULTILINE
)
"""The beginning of a function that takes or returns objects, in Cython's C."""


class Build(build_ext):
    """Functions that talk to Python are compiled for size, beside loops that are compiled for speed: a quarter less.

    Builds in place leave no older file that would be imported before the new one.
    """

    def build_extension(self, ext: Extension) -> None:
        """See `setuptools.command.build_ext`."""
        if sys.platform != "win32":
            for source in map(Path, ext.sources):
                code = source.read_text(encoding="utf-8")
                source.write_text(TALKS_TO_PYTHON.sub("static __attribute__((cold)) ", code), encoding="utf-8")
        super().build_extension(ext)

    def copy_extensions_to_source(self) -> None:
        """See `setuptools.command.build_ext`."""
        super().copy_extensions_to_source()
        if limited:
            for built in self.extensions:
                own = built.name.replace(".", "/") + sysconfig.get_config_var("EXT_SUFFIX")
                Path("src", own).unlink(missing_ok=True)


class Smaller:
    """Compresses one file of an archive by Zopfli: a twentieth smaller than by zlib, and read by the same programs."""

    def __init__(self) -> None:
        self.data = bytearray()

    def compress(self, data: bytes) -> bytes:
        """Take in data."""
        self.data += data
        return b""

    def flush(self) -> bytes:
        """Return all of it, without the head and the checksum of zlib's own format."""
        return zlib.compress(bytes(self.data), numiterations=15)[2:-4]


class Wheel(bdist_wheel):
    """Wheels are compressed once more where Zopfli is there."""

    def run(self) -> None:
        """See `setuptools.command.bdist_wheel`."""
        super().run()
        if zlib is None:
            return
        for *_, name in self.distribution.dist_files:
            if name.endswith(".whl"):
                path = Path(name)
                plain = path.rename(path.with_suffix(".plain"))
                with zipfile.ZipFile(plain) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
                    for info in old.infolist():
                        data = old.read(info)
                        with new.open(info, "w") as file:  # from here on it is of the new archive
                            file._compressor = Smaller()
                            file.write(data)
                plain.unlink()


def translated(*extensions: Extension, docstrings: bool) -> list[Extension]:
    """Translate modules to C, with docstrings or without."""
    Options.docstrings = docstrings
    return cythonize(
        list(extensions),
        shared_utility_qualified_name=f"flowsched.{SHARED}",
        compiler_directives={
            "language_level": 3,
            "binding": False,  # builtin functions: a sixth smaller; a module with public ones sets it itself
            "auto_pickle": False,
            "boundscheck": debug,
            "wraparound": False,
            "initializedcheck": debug,
            "overflowcheck": False,
            "cdivision": True,
            "freethreading_compatible": True,
        },
        force=True,  # a change of directives alone does not make Cython translate again
    )


setup(
    cmdclass={"build_ext": Build, "bdist_wheel": Wheel},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if limited else {},
    ext_modules=[
        *translated(*(extension(name, ".pyx") for name in PUBLIC), docstrings=True),
        *translated(*(extension(name, ".pyx") for name in MODULES), extension(SHARED, ".c"), docstrings=False),
    ],
)
