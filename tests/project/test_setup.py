"""The build script: which compiler switches it passes, and what makes it translate every module again."""

from __future__ import annotations

import json
import os
import runpy
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from pages import ROOT

SWITCHES = ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS", "FLOWSCHED_DEBUG", "FLOWSCHED_FAULTS")


class Command:
    """setuptools' `build_ext`, as far as setup.py knows it."""

    def __init__(self, folder: Path, inplace: bool) -> None:
        self.folder, self.inplace = folder, inplace
        self.compiled: list[str] = []

    def get_ext_fullpath(self, name: str) -> str:
        return str(self.folder.joinpath(*name.split(".")).with_suffix(".so"))

    def run(self) -> None:
        self.inplace = False
        self.build_extension(types.SimpleNamespace(name="flowsched._kernel"))

    def build_extension(self, extension: Any) -> None:
        built = Path(self.get_ext_fullpath(extension.name))
        if not built.exists() or built.stat().st_mtime < Path("_kernel.c").stat().st_mtime:
            self.compiled.append(extension.name)


class Build:
    """Runs of setup.py in a folder with one kernel; Cython and setuptools record their arguments."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, monkeypatch
        self.broken = False
        self.forced: list[bool] = []
        self.extensions: list[dict[str, Any]] = []
        self.command: type[Command]
        (folder / "src" / "flowsched").mkdir(parents=True)
        (folder / "src" / "flowsched" / "_kernel.pyx").touch()
        compilers = types.ModuleType("Cython.Build")
        compilers.cythonize = self.cythonize  # type: ignore[attr-defined]
        tools = types.ModuleType("setuptools")
        tools.setup = self.setup  # type: ignore[attr-defined]
        tools.Extension = lambda name, sources, **options: {"name": name, **options}  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "Cython", types.ModuleType("Cython"))
        monkeypatch.setitem(sys.modules, "Cython.Build", compilers)
        commands = types.ModuleType("setuptools.command.build_ext")
        commands.build_ext = Command  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "setuptools", tools)
        monkeypatch.setitem(sys.modules, "setuptools.command.build_ext", commands)
        monkeypatch.chdir(folder)

    def cythonize(self, extensions: list[dict[str, Any]], *, force: bool, **options: Any) -> list[dict[str, Any]]:
        self.forced.append(force)
        self.extensions += extensions
        if self.broken:
            raise SystemExit(1)
        return extensions

    def setup(self, *, cmdclass: dict[str, type[Command]], **options: Any) -> None:
        self.command = cmdclass["build_ext"]

    def run(self, **switches: str) -> bool:
        """Run the script under environment variables; return whether every module is translated again."""
        for name in SWITCHES:
            self.patch.delenv(name, raising=False)
        for name, value in switches.items():
            self.patch.setenv(name, value)
        self.extensions.clear()
        runpy.run_path(str(ROOT / "setup.py"))
        return self.forced[-1]

    @property
    def arguments(self) -> list[str]:
        return self.extensions[0]["extra_compile_args"]

    @property
    def flags(self) -> str:
        """The flags of the build, as `flowsched._guard` shows them."""
        return json.loads(dict(self.extensions[0]["define_macros"])["FLOWSCHED_FLAGS"])


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    return Build(tmp_path, monkeypatch)


@pytest.mark.skipif(sys.platform == "win32", reason="switches of GCC and Clang")
def test_the_users_flags_follow_the_defaults(build: Build) -> None:
    """As in uvloop #443 and astroscrappy #37: of two flags that contradict each other, compilers take the last."""
    build.run(CFLAGS="-O1 -g")
    assert build.arguments[0] == "-O3"
    assert build.arguments[-2:] == ["-O1", "-g"]
    assert build.flags == " ".join(build.arguments)


@pytest.mark.skipif(sys.platform == "win32", reason="switches of GCC and Clang")
def test_a_module_of_python_with_types_is_compiled_quickly(build: Build) -> None:
    for name in ("part.py", "part.pxd", "plain.py", "_kernel.pxd"):
        build.folder.joinpath("src", "flowsched", name).touch()
    build.run(CFLAGS="-g")
    assert {one["name"]: one["extra_compile_args"][0] for one in build.extensions} == {
        "flowsched._kernel": "-O3",
        "flowsched.part": "-O1",
    }
    assert all(one["extra_compile_args"][-1] == "-g" for one in build.extensions)


def test_flags_may_have_quotes(build: Build) -> None:
    build.run(CFLAGS=r"""-DNAME='"two words"' -DSLASH=\\""")
    assert build.arguments[-2:] == ['-DNAME="two words"', "-DSLASH=\\"]
    assert build.flags.endswith('-DNAME="two words" -DSLASH=\\')


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_change_of_a_switch_translates_every_module_again(build: Build, switch: str) -> None:
    """As in virtualjaguar-libretro #457: objects of other flags must not be kept."""
    assert build.run()
    assert not build.run()
    assert build.run(**{switch: "1"})
    assert not build.run(**{switch: "1"})
    assert build.run()


def test_a_build_that_failed_leaves_no_mixture(build: Build) -> None:
    """As in dreamland_code #664: some modules may have the new switches, and some the old ones."""
    build.run()
    build.broken = True
    with pytest.raises(SystemExit):
        build.run(FLOWSCHED_DEBUG="1")
    build.broken = False
    assert build.run(FLOWSCHED_DEBUG="1")
    assert not build.run(FLOWSCHED_DEBUG="1")
    build.broken = True
    with pytest.raises(SystemExit):
        build.run()
    build.broken = False
    assert build.run(FLOWSCHED_DEBUG="1")


@pytest.mark.parametrize("inplace", [True, False], ids=["in place", "for a wheel"])
@pytest.mark.parametrize("placed", ["absent", "older", "newer"])
def test_builds_in_place_keep_the_modules_that_are_newer(build: Build, inplace: bool, placed: str) -> None:
    """As in cython #6763: an editable installation, and the first build after it, would compile everything."""
    build.run()
    Path("_kernel.c").touch()
    if placed != "absent":
        module = Path("src", "flowsched", "_kernel.so")
        module.touch()
        time = Path("_kernel.c").stat().st_mtime + (1 if placed == "newer" else -1)
        os.utime(module, (time, time))
    command = build.command(build.folder / "lib", inplace)
    command.run()
    assert command.compiled == ([] if inplace and placed == "newer" else ["flowsched._kernel"])
