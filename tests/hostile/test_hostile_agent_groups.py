"""Control groups of the node agent: every id has a folder of its own.

Plain folders stand in for the machine's control groups.
"""

from __future__ import annotations

import gc
import os
import shutil
import string
from collections.abc import Sequence
from pathlib import Path

import pytest
from agents import SLEEP, UNIT
from effort import effort
from hypothesis import given
from hypothesis import strategies as st

from flowsched.boundary import control_groups
from flowsched.exceptions import InputError
from flowsched.hrm import Container, Outcome, ResourceUnit
from flowsched.hrm.agent.cgroups import Cgroups

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the agent runs on Linux only")

from flowsched.hrm.agent import Agent, Ended

EVIL = ["..", ".", "", "/", "a/../..", "cgroup.procs", "cgroup.kill", "memory.max", "%", "%h", "%2E%2E", "a%2Fb", "a/b", "\0",
        "\ud800", "x" * 10_000, "x" * 10_001, "é" * 300, "%" * 200, control_groups.name("x" * 10_000), "C", "c", " c", "c\n"]  # fmt: skip


def check_names(ids: Sequence[str]) -> None:
    names = [control_groups.name(id) for id in ids]
    assert len(set(names)) == len(set(ids))
    for each in names:
        assert 0 < len(each) <= 200 and set(each) <= set(string.ascii_letters + string.digits + "%_-"), each


def test_every_id_has_a_group_name_of_its_own() -> None:
    check_names(EVIL)


@given(st.lists(st.text(st.characters() | st.sampled_from("./%hC2E"), max_size=effort(40, 300)), max_size=8))
def test_no_two_ids_have_one_group_name(ids: list[str]) -> None:
    check_names(list({*ids, *EVIL}))


def test_a_container_reaches_its_own_group_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_groups, "remove", shutil.rmtree)  # the kernel's files vanish with their group
    root = tmp_path / "root"
    groups, unit = Cgroups(root), ResourceUnit("..", "m", vcore=1)
    files = ["cgroup.kill", "cgroup.procs", "cgroup.freeze", "cgroup.subtree_control"]
    root.mkdir()
    for file in files:
        (root / file).write_text("")
    groups.prepare(unit)
    for file in files:
        (groups.group(unit) / file).write_text("")
    for id in EVIL:
        group = groups.group(unit, id)
        assert group.resolve().parent == groups.group(unit).resolve() and groups.group(unit).resolve().parent == root
        groups.enter(unit, id, 12345)
        groups.freeze(unit, id, True)
        assert (group / "cgroup.procs").read_text() == "12345" and (group / "cgroup.freeze").read_text() == "1"
        groups.leave(unit, id)
        assert not group.exists()
        assert [(folder / file).read_text() for folder in (root, groups.group(unit)) for file in files] == [""] * 8
    with pytest.raises(InputError, match="another agent's"):
        Cgroups(root).prepare(unit)
    # What another one has left is ended when the unit is prepared again.
    groups.enter(unit, "left", 12345)
    killed = []
    monkeypatch.setattr(control_groups, "remove", lambda group: (killed.append((group / "cgroup.kill").read_text()), shutil.rmtree(group)))  # fmt: skip
    del groups  # an agent that is dropped gives up its units, too
    gc.collect()
    Cgroups(root).prepare(unit)
    assert killed == ["1"] and not (root / "flowsched-%2E%2E" / "left").exists()


@pytest.mark.parametrize("bad", ["\0", "a\0", "\ud800", "x" * 2000])
def test_ids_are_refused_at_the_door(tmp_path: Path, bad: str) -> None:
    with Agent([UNIT], state=tmp_path) as agent:
        with pytest.raises(InputError, match="container: id"):
            agent.submit("u", Container(bad), SLEEP)
        assert agent.submit("u", Container(".."), ["true"]).outcome is Outcome.STARTED
        assert agent.wait(30) == [Ended("..", 0)]
    with pytest.raises(InputError, match="machine|units"):
        Agent([ResourceUnit("u", bad)], state=tmp_path)
