"""Control groups of runs: those of the kernel where this process may make them, and folders that stand in for them."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from killed_drivers import kill_again_and_again
from processes import alive

import flowsched as fs
from flowsched.boundary import control_groups
from flowsched.run import Driver, ExitStatusError, LocalExecutor, Run
from flowsched.run.local import Groups

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux's")

KERNELS = {"cgroup.controllers": "cpu memory", "cgroup.subtree_control": "", "cgroup.kill": "", "cgroup.procs": ""}


class Hierarchy:
    """Folders in place of groups: with the kernel's files, and what was in these when a group was removed.

    Attributes
    ----------
    gone : dict of str to dict of str to str
        Files of groups of runs by the group's name.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.gone = root, dict[str, dict[str, str]]()
        self.make(root)
        monkeypatch.setattr(control_groups, "make", self.make)
        monkeypatch.setattr(control_groups, "remove", self.remove)
        monkeypatch.setattr(control_groups, "controllers", self.controllers)

    def make(self, group: Path) -> None:
        group.mkdir(parents=True, exist_ok=True)
        for file, text in KERNELS.items():
            if not (group / file).exists():
                (group / file).write_text(text)

    def controllers(self, group: Path) -> set[str]:
        return {word.lstrip("+") for word in (group / "cgroup.subtree_control").read_text().split()}

    def remove(self, group: Path) -> None:
        if group.exists():
            self.gone[group.name] = {file.name: file.read_text() for file in group.iterdir()}
            shutil.rmtree(group)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hierarchy:
    return Hierarchy(tmp_path / "root", monkeypatch)


@pytest.fixture
def real() -> Iterator[Path]:
    """A group of the kernel's for one test."""
    root = control_groups.find()
    if root is None:
        pytest.skip("no control groups of version 2 that this process may use")
    group = root / f"flowsched-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    yield group
    assert not [path for path in group.iterdir() if path.is_dir()], "something was left"
    group.rmdir()


def run(root: Path, commands: dict[str, Any], **demand: float) -> tuple[dict[str, Any], Driver]:
    async def main() -> tuple[dict[str, Any], Driver]:
        executor = LocalExecutor({"cpu": 4, "mem": 500}, machine="here", grace=0.2, cgroup=root)
        async with Driver(fs.Scheduler(resources=("cpu", "mem")), executor) as driver:
            job = fs.JobSubmitted("job", [fs.Task(id, demand) for id in commands])
            futures = driver.submit(job, commands, time_limit=5.0)
            ends = await asyncio.gather(*futures.values(), return_exceptions=True)
            return dict(zip(futures, ends, strict=True)), driver

    return asyncio.run(main())


def test_a_run_has_a_group_with_its_demand_as_limits(stand_in: Hierarchy, tmp_path: Path) -> None:
    ends, _ = run(stand_in.root, {"a": f"echo $PPID > {tmp_path}/shell"}, cpu=1.5, mem=100.25)
    assert ends == {"a": 0}
    (files,) = stand_in.gone.values()
    assert files["memory.max"] == str(int(100.25 * 2**20)) and files["cpu.max"] == "150000 100000"
    assert files["cgroup.kill"] == "1"
    shell = int((tmp_path / "shell").read_text())
    assert shell - int(files["cgroup.procs"]) in (0, 1)  # a shell of the first process
    assert (stand_in.root / "cgroup.subtree_control").read_text() == "+cpu +memory"


def test_what_was_not_asked_for_is_not_limited(stand_in: Hierarchy) -> None:
    groups = Groups(stand_in.root, Path("/folder"), ())
    for number, demand in enumerate(({"cpu": 0.001}, {"mem": 1.0}, {})):
        one = Run(number, "t", "here", demand=demand)
        groups.enter(one, 1)
        written = {path.name: path.read_text() for path in groups.of(one).iterdir() if path.name not in KERNELS}
        assert written == [{"cpu.max": "1000 100000"}, {"memory.max": str(2**20)}, {}][number]


def test_a_controller_that_is_not_there_is_logged(
    stand_in: Hierarchy, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KERNELS, "cgroup.controllers", "cpu")
    (stand_in.root / "cgroup.controllers").write_text("cpu")
    with caplog.at_level(logging.WARNING, logger="flowsched"):
        assert run(stand_in.root, {"a": ["true"]}, cpu=1, mem=10)[0] == {"a": 0}
    assert "has no controller memory: runs are not limited in it" in caplog.text
    assert [set(files) - set(KERNELS) for files in stand_in.gone.values()] == [{"cpu.max"}]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: None, "a control group of version 2 expected"),
        (lambda root: root.mkdir(), "a control group of version 2 expected"),
        (lambda root: (root.mkdir(), (root / "cgroup.controllers").touch()), "has no cgroup.kill"),
    ],
)
def test_where_no_group_can_be_made_is_said_at_once(tmp_path: Path, make: Any, message: str) -> None:
    make(tmp_path / "root")
    folder = tmp_path / "runs"
    for _ in range(2):  # the folder is free again

        async def main() -> None:
            executor = LocalExecutor({"cpu": 1}, cgroup=tmp_path / "root", folder=folder)
            with pytest.raises(fs.InputError, match=message):
                await executor.open(lambda told: None)

        asyncio.run(main())


def test_a_group_that_refuses_is_said_at_once(stand_in: Hierarchy, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(group: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(control_groups, "make", refuse)
    with pytest.raises(fs.InputError, match=r"no groups can be made in .*: .*Permission denied"):
        Groups(stand_in.root, Path("/folder"), ())


def test_a_run_without_memory_has_failed_and_is_not_lost(stand_in: Hierarchy) -> None:
    """Else it would run again and again."""
    line = f"for group in {stand_in.root}/*/*/; do echo 'oom_kill 1' > $group/memory.events; done; kill -9 $$"
    ends, driver = run(stand_in.root, {"a": line})
    assert isinstance(ends["a"], ExitStatusError) and ends["a"].status == 137
    assert str(ends["a"]) == "task 'a' needed more memory than it asked for: its control group has no more"
    assert driver.stats["failed"] == 1 and "lost" not in driver.stats


def test_groups_without_a_record_are_ended(stand_in: Hierarchy, tmp_path: Path) -> None:
    first = Groups(stand_in.root, tmp_path, ())
    runs = [Run(number, "t", "here") for number in (1, 2)]
    for one in runs:
        first.enter(one, 1)
    Groups(stand_in.root, tmp_path / "another", ())
    assert not stand_in.gone
    Groups(stand_in.root, tmp_path, [first.of(runs[0])])
    assert list(stand_in.gone) == ["2"] and stand_in.gone["2"]["cgroup.kill"] == "1"


def test_a_start_that_fails_leaves_no_group(stand_in: Hierarchy, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(group: Path, pid: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(control_groups, "enter", fail)
    ends, _ = run(stand_in.root, {"a": ["true"]}, cpu=1)
    assert isinstance(ends["a"], OSError) and len(stand_in.gone) == 1


@pytest.mark.long
def test_what_leaves_session_and_environment_is_killed_with_its_group(real: Path, tmp_path: Path) -> None:
    """Without a group neither the session nor the token in the environment would tell that it belongs to the run."""
    daemon = f"echo $$ > {tmp_path}/NAME; while :; do sleep 1000; done"
    line = "env -i setsid --fork sh -c '{}' & while [ ! -s {} ]; do sleep 0.01; done"
    commands = {
        "ends": line.format(daemon.replace("NAME", "ends"), tmp_path / "ends"),
        "slow": line.format(daemon.replace("NAME", "slow"), tmp_path / "slow") + "; sleep 1000",
    }
    ends, _ = run(real, commands, cpu=1, mem=100)
    assert ends["ends"] == 0 and isinstance(ends["slow"], fs.TimeLimitError)
    for name in commands:
        assert not alive(int((tmp_path / name).read_text()))


def test_limits_of_the_kernel(real: Path, tmp_path: Path) -> None:
    """What takes more memory than it asked for is killed; what wants more of the CPUs gets its share."""
    there = set((real / "cgroup.controllers").read_text().split())
    if not {"memory", "cpu"} <= there:
        pytest.skip(f"the control groups here have no controllers memory and cpu, only {sorted(there)}")
    hungry = [sys.executable, "-c", "bytearray(300 * 2**20)"]
    burn = "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass\nprint(time.process_time())"
    ends, driver = run(
        real, {"hungry": hungry, "burn": f"{sys.executable} -c '{burn}' > {tmp_path}/out"}, cpu=0.25, mem=60
    )
    assert isinstance(ends["hungry"], ExitStatusError) and "more memory" in str(ends["hungry"])
    assert driver.stats["failed"] == 1
    assert float((tmp_path / "out").read_text()) < 1.2


@pytest.mark.long
def test_drivers_that_are_killed_leave_their_groups_to_the_next(real: Path, tmp_path: Path) -> None:
    code = f"LocalExecutor({{'cpu': 3}}, machine='here', folder=f'{{folder}}/runs', cgroup={str(real)!r})"
    kill_again_and_again(tmp_path, "from flowsched.run import LocalExecutor", code, 20, step=0.13)
    assert list((tmp_path / "runs").iterdir()) == []
