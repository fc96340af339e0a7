"""The compiled kernel and its debug switches; everything else is in pyproject.toml.

``FLOWSCHED_DEBUG=1`` builds it with bounds, overflow and initialisation checks on, for the tests.
``FLOWSCHED_FAULTS=1`` builds it with fault points: tests make any allocation and any look for signals fail.
"""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

debug, faults = (os.environ.get(f"FLOWSCHED_{name}", "0") not in ("", "0") for name in ("DEBUG", "FAULTS"))

setup(
    ext_modules=cythonize(
        [
            Extension(
                f"flowsched.{name}",
                [f"src/flowsched/{name.replace('.', '/')}.pyx"],
                define_macros=[("FLOWSCHED_FAULTS", "1")] if faults else [],
                extra_compile_args=["-O1", "-g"] if debug else ["-O3"],
            )
            for name in ("_guard", "_cs", "_ns", "_scaling", "fgm._course", "fgm._match")
        ],
        compiler_directives={
            "language_level": 3,
            "boundscheck": debug,
            "wraparound": False,
            "initializedcheck": debug,
            "overflowcheck": False,
            "cdivision": True,
            "freethreading_compatible": True,
        },
        force=True,  # a change of directives alone does not make Cython translate again
    )
)
