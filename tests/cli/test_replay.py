"""The command ``flowsched replay``: what it prints, and its exit status."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from journal_rows import records, released
from lives import world_of

import flowsched as fs
from flowsched import cli
from flowsched.journal.released import MAGIC

COSTS = [0.0, 1.0]


def fickle(cluster, classes, rows):
    return np.tile(np.array(COSTS)[rows], (len(classes), 1))


def production() -> fs.Policy:
    return fs.Policy(placement=(fs.CustomCost(fickle),))


def run(path: Path, *options: str):
    return CliRunner().invoke(cli.application(), ["replay", str(path), *options])


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "journal"
    sched = fs.Scheduler(production(), ("cpu",), journal=path)
    sched.apply(
        fs.MachineAdded("a", {"cpu": 1}), fs.MachineAdded("b", {"cpu": 1}), fs.JobSubmitted("j", [fs.Task("t")])
    )
    sched.commit(sched.schedule(0.0))
    sched.schedule(1.0)
    sched.journal.close()
    return path


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    monkeypatch.setitem(globals(), "COSTS", [0.0, 1.0])


def test_the_same_again(journal: Path, tmp_path: Path) -> None:
    data = journal.read_bytes()
    done = run(journal, "--policy", f"{__name__}:production", "--json", str(tmp_path / "found.json"))
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["events", "3", "MachineAdded", "2,", "JobSubmitted", "1"] in lines
    assert ["commits", "1", "1", "placed,", "0", "preempted,", "0", "migrated"] in lines
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["rounds"], found["differences"], found["events"]) == (2, [], {"MachineAdded": 2, "JobSubmitted": 1})
    assert journal.read_bytes() == data
    assert run(journal, "--policy", f"{__name__}:production", "--quiet").output == ""


def test_a_round_that_differs(journal: Path) -> None:
    COSTS.reverse()
    done = run(journal, "--policy", f"{__name__}:production")
    assert done.exit_code == 1
    assert "Rounds that differ" in done.stdout
    (row,) = [line.split() for line in done.stdout.splitlines() if line.strip().endswith("deltas")]
    assert row[0] == "1" and row[-1] == "deltas"


def test_what_cannot_be_read(journal: Path, tmp_path: Path) -> None:
    done = run(journal)
    assert done.exit_code == 3
    assert (
        done.stderr
        == f"flowsched replay: {journal} at record 0: the policy has a part of the caller's own, {__name__}.fickle, and none of the policies given has it\n"
    )
    data = journal.read_bytes()
    assert data.count(b'"JobSubmitted"') == 1
    (tmp_path / "damaged").write_bytes(data.replace(b'"JobSubmitted"', b'"JobSubmittee"'))
    done = run(tmp_path / "damaged", "--policy", f"{__name__}:production")
    assert done.exit_code == 3 and "at record 2: the call does not agree with its checksum" in done.stderr
    for name in ("nonsense", f"{__name__}:nothing", f"{__name__}:COSTS"):
        assert run(journal, "--policy", name).exit_code == 2
    assert run(tmp_path / "nowhere").exit_code == 2
    assert run(journal, "--json", str(tmp_path / "nowhere" / "x")).exit_code == 2


def test_damage_before_the_last_checkpoint_is_told(journal: Path, tmp_path: Path) -> None:
    sched = fs.Scheduler(production(), ("cpu",), journal=fs.Journal(journal))
    sched.compact()
    sched.commit(sched.schedule(2.0))
    sched.journal.close()
    assert run(journal, "--policy", f"{__name__}:production").exit_code == 0
    shutil.copy(journal, tmp_path / "shorter")
    sched = fs.Scheduler(production(), ("cpu",), journal=fs.Journal(tmp_path / "shorter"))
    sched.compact(since=1.0)
    sched.journal.close()
    assert run(tmp_path / "shorter", "--policy", f"{__name__}:production").exit_code == 0
    journal.write_bytes(journal.read_bytes().replace(b'"JobSubmitted","id":"j"', b'"JobSubmitted","id":"k"'))
    fs.Scheduler(production(), ("cpu",), journal=journal).journal.close()
    done = run(journal, "--policy", f"{__name__}:production")
    assert done.exit_code == 3 and "at record 2: the call does not agree with its checksum" in done.stderr


def test_a_simulation_writes_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "run"
    done = CliRunner().invoke(
        cli.application(), ["simulate", "model", "--limit", "60", "--journal", str(path), "--quiet"]
    )
    assert done.exit_code == 0, done.output
    done = run(path)
    assert done.exit_code == 0, done.output
    assert "60 placed" in done.stdout
    done = CliRunner().invoke(
        cli.application(), ["simulate", "model", "--limit", "60", "--journal", str(path), "--quiet"]
    )
    assert done.exit_code == 2 and "is there already" in done.output


def test_a_journal_of_the_last_release_becomes_a_database(tmp_path: Path) -> None:
    """Its rounds are the same again, its damage is told, and a record that was cut off is left out."""
    sched = fs.Scheduler(resources=("cpu",), journal=tmp_path / "made")
    sched.apply(fs.MachineAdded("m", {"cpu": 2}), fs.JobSubmitted("j", [fs.Task(i, {"cpu": 1}) for i in range(3)]))
    sched.commit(sched.schedule(0.0))
    sched.policy = fs.Policy(fairness=fs.Fairness(fs.SequenceShare()))
    sched.commit(sched.schedule(1.0))
    state = world_of(sched)
    bodies = records(tmp_path / "made")
    old, new = tmp_path / "old", tmp_path / "new.db"
    data = released(bodies)

    def imported(contents: bytes):
        old.write_bytes(contents)
        new.unlink(missing_ok=True)
        return CliRunner().invoke(cli.application(), ["journal", "import", str(old), str(new)])

    assert imported(data).exit_code == 0
    again = fs.Scheduler(resources=("cpu",), journal=new)
    assert world_of(again) == state and not again.recovery.differences and again.recovery.rounds == 2
    again.journal.close()
    assert imported(data + data[-40:-10]).exit_code == 3
    assert imported(data[:-3]).exit_code == 0 and fs.replay(new).commits == 1
    for at in range(len(MAGIC), len(data), 7):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        done = imported(bytes(damaged))
        assert done.exit_code == 3 and "does not agree with its checksum" in done.stderr and not new.exists()
    with pytest.raises(fs.JournalMismatchError, match="`flowsched journal import` makes a database of it"):
        fs.Scheduler(journal=old)
