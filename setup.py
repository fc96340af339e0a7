"""The compiled modules and their build switches; everything else is in pyproject.toml.

``FLOWSCHED_DEBUG=1`` builds with bounds and initialisation checks on and keeps debug information, for the tests.
``FLOWSCHED_FAULTS=1`` builds with fault points: tests make any allocation and any look for signals fail.
A change of either, or of the compiler and its flags, translates and compiles every module again; otherwise only what changed is built.
Flags in ``CFLAGS`` override those of this file.
"""

import json
import os
import shlex
import shutil
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

PACKAGE = Path("src/flowsched")
TYPED = [types.with_suffix(".py") for types in PACKAGE.rglob("*.pxd") if types.with_suffix(".py").exists()]


class BuildInPlace(build_ext):
    """A build that keeps modules in place that are newer than their C files; setuptools only looks into its build folder.

    That folder is a temporary one in an editable installation, and an empty one in the first build after it.
    """

    def run(self) -> None:
        """Note whether this is a build in place before `build_ext.run` clears the flag."""
        self.keeps = bool(self.inplace)
        super().run()

    def build_extension(self, extension: Extension) -> None:
        """Take a module from its place if there is one, so that it is compiled only if a C file is newer."""
        built = Path(self.get_ext_fullpath(extension.name))
        placed = Path("src", *extension.name.split(".")[:-1], built.name)
        if self.keeps and placed.exists():
            built.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(placed, built)
        super().build_extension(extension)


def switch(name: str) -> bool:
    """Return whether an environment variable is set to anything but 0."""
    return os.environ.get(f"FLOWSCHED_{name}", "0") not in ("", "0")


debug, faults = switch("DEBUG"), switch("FAULTS")
if sys.platform == "win32":  # MSVC optimises by default
    flags = ["/Od"] if debug else []
else:
    flags = ["-O1", "-g"] if debug else ["-O3", "-g0"]
    flags.append("-ffp-contract=off")  # costs are the same on every processor: aarch64 fuses otherwise

# Modules of Python spend their time in functions of Python: to optimise them more makes only the build longer.
light = ["-O1" if flag == "-O3" else flag for flag in flags]
own = shlex.split(os.environ.get("CFLAGS", ""))  # once more, at the end: of contradictory flags the last one counts
flags, light = flags + own, light + own

macros = [("FLOWSCHED_FLAGS", json.dumps(" ".join(flags)))]
if faults:
    macros.append(("FLOWSCHED_FAULTS", "1"))

# Neither Cython nor setuptools compares switches. The last ones are kept next to the C files, and a change translates all of
# these again: new C files are compiled. No switches are kept while some C files may have the old ones and some the new.
last = Path("build", "switches")
switches = repr([debug, faults, flags, *map(os.environ.get, ("CC", "CPPFLAGS", "LDFLAGS"))])
changed = not last.exists() or last.read_text(encoding="utf-8") != switches
if changed:
    last.unlink(missing_ok=True)
DIRECTIVES = {
    "language_level": 3,
    "auto_pickle": False,
    "annotation_typing": False,  # types are in .pxd files
    "boundscheck": debug,
    "wraparound": False,
    "initializedcheck": debug,
    "overflowcheck": False,
    "show_performance_hints": False,
    "cdivision": True,
    "freethreading_compatible": True,
}
# Modules of Python keep Python's rules: an index may be negative, and a wrong one raises.
PYTHON = {**DIRECTIVES, "boundscheck": True, "wraparound": True, "cdivision": False}


def translated(sources: list[Path], directives: dict[str, object], flags: list[str]) -> list[Extension]:
    """Return the modules of these files, translated to C where one has changed."""
    names = [".".join(source.relative_to("src").with_suffix("").parts) for source in sources]
    modules = [
        Extension(name, [str(source)], define_macros=macros, extra_compile_args=flags)
        for name, source in zip(names, sources, strict=True)
    ]
    return cythonize(modules, build_dir="build/c", force=changed, compiler_directives=directives)


modules = [*translated(sorted(PACKAGE.rglob("*.pyx")), DIRECTIVES, flags), *translated(sorted(TYPED), PYTHON, light)]
last.parent.mkdir(exist_ok=True)
last.write_text(switches, encoding="utf-8")

setup(cmdclass={"build_ext": BuildInPlace}, options={"build_ext": {"parallel": os.cpu_count()}}, ext_modules=modules)
