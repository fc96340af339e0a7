"""Configurations of HRM's processes: what they say, and the places of their faults."""

from __future__ import annotations

import random
import tomllib
from pathlib import Path

import pytest

from flowsched.boundary.toml import TomlFile, places
from flowsched.exceptions import InputError
from flowsched.hrm.config import read_config

STORE = "[store]\nurl = 'sqlite:///state.db'\n"


def test_a_file_with_a_store_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "hrm.toml"
    path.write_text(STORE)
    config = read_config(path)
    assert config["store"] == {"url": f"sqlite:///{tmp_path}/state.db", "patience": 60.0} and config["units"] == []
    assert config["agent"]["output"] == tmp_path / "output" and config["agent"]["state"] is None
    assert config["agent"]["name"] == config["scheduler"]["name"] != ""
    assert read_config(path, name="other")["agent"]["name"] == "other"
    here = read_config(path, name="here", units=True)["units"]  # as it is sensed
    assert here and all(str(unit.id).startswith("here/") and unit.cpus for unit, _ in here)


def test_every_key_is_read(tmp_path: Path) -> None:
    path = tmp_path / "hrm.toml"
    path.write_text(
        """
log = "debug"
[store]
url = "postgresql+psycopg://hrm@db/hrm"
patience = 5
[negotiator]
period = 0.5
ttl = 10
machine_ttl = 20
max_wait = inf
patience = 3.0
shares = false
default_duration = 9
[scheduler]
name = "s1"
kinds = ["batch"]
adopt = 0
seed = 3
period = 0.1
[agent]
name = "m1"
period = 1
length = 4
most = 6
output = "/var/log/hrm"
state = "records"
cgroups = true
[agent.node]
cores = 8
mem = 8000
gpus = 2
gmem = 1000
numa = 2
[agent.split]
how = "bound"
gpu_jobs = 0.3
cores_per_gpu = 2
cpu_units = 2
[agent.queue.cpu1]
length = 0
[agent.queue."gpu0"]
most = 2
"""
    )
    config = read_config(path, units=True)
    assert config["log"] == "debug" and config["store"] == {"url": "postgresql+psycopg://hrm@db/hrm", "patience": 5}
    assert config["negotiator"] == {
        "ttl": 10, "machine_ttl": 20, "max_wait": float("inf"), "patience": 3.0, "shares": False,
        "default_duration": 9, "period": 0.5,
    }  # fmt: skip
    assert config["scheduler"] == {"name": "s1", "kinds": ["batch"], "adopt": 0, "seed": 3, "period": 0.1}
    agent = config["agent"]
    assert (agent["name"], agent["period"], agent["cgroups"]) == ("m1", 1, True)
    assert (agent["output"], agent["state"]) == (Path("/var/log/hrm"), tmp_path / "records")
    assert {str(unit.id): (unit.vcore, told["length"], told["most"]) for unit, told in config["units"]} == {
        "m1/gpu0": (2, 4, 2), "m1/gpu1": (2, 4, 6), "m1/cpu0": (2, 4, 6), "m1/cpu1": (2, 0, 6),
    }  # fmt: skip
    assert all(unit.cpus == () for unit, _ in config["units"])  # the file does not tell the CPUs' numbers


FAULTS = [
    ("", "line 1, column 1: store: url: is missing"),
    ("[store]\n", "line 1, column 1: store: url: is missing"),
    ("store = 3\n", "line 1, column 1: store: a table expected, got 3"),
    ("[store]\nurl = 'mysql://x'\n", "line 2, column 1: store: url: sqlite:///FILE or postgresql://"),
    ("[store]\nurl = 'sqlite://'\n", "line 2, column 1: store: url: sqlite:///FILE"),
    ("[store]\nurl = 7\n", "line 2, column 1: store: url: must be text, got 7"),
    ("colour = 'red'\n" + STORE, "line 1, column 1: colour: unknown; known: agent, log, negotiator"),
    ("log = 'loud'\n" + STORE, "line 1, column 1: log: one of debug, info, warning, error expected, got 'loud'"),
    (STORE + "patience = -1\n", "line 3, column 1: store: patience: must be a finite number >= 0"),
    (STORE + "[negotiator]\n  ttl = 0\n", "line 4, column 3: negotiator: ttl: a positive number of seconds"),
    (STORE + "[negotiator]\nttl = inf\n", "line 4, column 1: negotiator: ttl:"),
    (STORE + "[negotiator]\nttl = 4\nperiod = 2", "line 5, column 1: negotiator: period: at most a quarter of the ttl"),
    (STORE + "[negotiator]\nshares = 1\n", "line 4, column 1: negotiator: shares: must be True or False"),
    (STORE + "[scheduler]\nkinds = ['batch', 'both']", "line 4, column 1: scheduler: kinds: one of batch, stream"),
    (STORE + "[scheduler]\nkinds = []", "line 4, column 1: scheduler: kinds: must not be empty"),
    (STORE + "[scheduler]\nkinds = 'batch'", "line 4, column 1: scheduler: kinds: must be a sequence"),
    (STORE + "[scheduler]\nname = \"a\\u0000\"", "line 4, column 1: scheduler: name: must not have a NUL"),
    (STORE + "[agent]\nqueue = {cpu = {lenght = 3}}\n", "line 4, column 1: agent.queue.cpu: lenght: unknown"),
    (STORE + "[agent.queue]\ncpu = 3\n", "line 4, column 1: agent.queue.cpu: a table expected"),
    (STORE + "[agent]\nqueue = 3\n", "line 4, column 1: agent: queue: must be a mapping"),
    (STORE + "[agent.node]\ncores = 4\nmem = 8\n[agent.queue.gpu7]\nlength = 1", "line 6, column 1: agent.queue.gpu7: no such unit; the machine has: cpu"),
    (STORE + "[agent.node]\ncores = 4\n", "line 3, column 1: agent.node: mem: is missing"),
    (STORE + "[agent.node]\ncores = 4\nmem = 8\nnuma = 9", "line 3, column 1: agent: node: "),
    (STORE + "[agent]\ntopology = 'x.xml'\nnode = {cores = 4, mem = 8}", "line 4, column 1: agent: topology: given beside"),
    (STORE + "[agent]\ntopology = 'none.xml'", "line 4, column 1: agent: topology: "),
    (STORE + "[agent]\nnode.cores = 4\nnode.mem = 8\nsplit.cpu_units = 9\n", "line 6, column 1: agent: split: cpu_units: only 4 cores"),
    (STORE + "[agent]\nsplit = {how = 'half'}\n", "line 4, column 1: agent.split: how: one of shared, bound, even"),
    (STORE + "[agent]\nperiod = 8\n", "line 4, column 1: agent: period: at most a quarter of the ttl of 30 s"),
    (STORE + "[agent]\ncgroups = 'yes'\n", "line 4, column 1: agent: cgroups: must be True or False"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), FAULTS)
def test_faults_have_their_places(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "hrm.toml"
    path.write_text(text)
    with pytest.raises(InputError) as raised:
        read_config(path, units=True)
    (line,) = str(raised.value).splitlines()
    assert line.startswith(f"{path}, {message}"), line


def test_all_faults_are_named_at_once(tmp_path: Path) -> None:
    path = tmp_path / "hrm.toml"
    path.write_text(
        "log = 3\n[negotiator]\nttl = 'x'\nperiod = -1\n[agent]\nlength = -1\n[agent.node]\ncore = 4\n[agent.split]\ncpu_units = 0"
    )
    with pytest.raises(InputError) as raised:
        read_config(path, units=True)
    said = [line.removeprefix(f"{path}, ").partition(": ")[0] for line in str(raised.value).splitlines()]
    # The URL, then the log; the node has an unknown key and lacks two.
    assert sorted(said) == sorted(f"line {n}, column {c}" for n, c in [(1, 1), (1, 1), (3, 1), (4, 1), (6, 1), (7, 1), (7, 1), (8, 1), (10, 1)])  # fmt: skip


@pytest.mark.parametrize("text", ["x = [", "[a]\n[a]\n", "\xff", "a = " + "[" * 100_000])
def test_what_is_no_toml_is_one_fault(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hrm.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=str(path)):
        TomlFile(path)


# -- places of keys -------------------------------------------------------------------------------------------------


class Writer:
    """A random text of TOML, and where its keys begin."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.text = ""
        self.at: dict[tuple[str | int, ...], int] = {}
        self.fresh = iter(range(10**6))

    def add(self, text: str) -> None:
        self.text += text

    def key(self) -> tuple[str, str]:
        name = f"k{next(self.fresh)}"
        odd = self.rng.choice([name, name, f"{name}.x = [", f"{name} '#"])
        return (odd, f'"{odd}"' if odd != name or self.rng.random() < 0.3 else name)

    def value(self, where: tuple[str | int, ...], depth: int, line: bool) -> None:
        kind = self.rng.randrange(9 if depth else 7)
        newline = "\n" if line else ""
        if kind < 7:
            self.add(
                ["1", "-1.5e3", "true", '"a\\"= [1]#"', "'{b = 2}\\'", "1979-05-27T07:32:00Z", f'"""a {newline}k0 = 1 \\""x"" """"'][kind]
            )  # fmt: skip
        elif kind == 7:
            self.add("[")
            for i in range(self.rng.randrange(3)):
                self.add(self.rng.choice([" ", f"{newline}"]) + (" # ]\n" if line and self.rng.random() < 0.3 else ""))
                self.value((*where, i), depth - 1, line)
                self.add(" ,")
            self.add("]")
        else:
            self.add("{")
            for i in range(self.rng.randrange(3)):
                self.add(" , " if i else " ")
                self.pair(where, depth - 1, False)
            self.add("}")

    def pair(self, base: tuple[str | int, ...], depth: int, line: bool = True) -> None:
        at, where, spelt = len(self.text), base, []
        for _ in range(self.rng.choice([1, 1, 2])):
            name, written = self.key()
            where += (name,)
            spelt.append(written)
            if line:
                self.at[where] = at
        self.add(self.rng.choice([".", " . "]).join(spelt) + self.rng.choice(["=", " = "]))
        self.value(where, depth, line)

    def table(self) -> None:
        name, written = self.key()
        if self.rng.random() < 0.5:
            self.at[(name,)] = len(self.text)
            self.add(f"[{written}]")
            self.pairs((name,))
            return
        for i in range(self.rng.randrange(1, 4)):
            at = len(self.text)
            self.at.setdefault((name,), at)
            self.at[name, i] = at
            self.add(f"[[{written}]]")
            self.pairs((name, i))
            if self.rng.random() < 0.5:
                self.at[name, i, "sub"] = len(self.text)
                self.add(f"[{written} . sub]")
                self.pairs((name, i, "sub"))

    def pairs(self, where: tuple[str | int, ...]) -> None:
        self.add(" # [x]\n")
        for _ in range(self.rng.randrange(4)):
            self.add(self.rng.choice(["", "  ", "\n", "# c = 1\n"]))
            self.pair(where, 3)
            self.add(self.rng.choice(["\n", " # = {\n", "\r\n"]))


def test_keys_are_found_where_they_are() -> None:
    for seed in range(300):
        writer = Writer(seed)
        writer.pairs(())
        for _ in range(writer.rng.randrange(4)):
            writer.table()
        tomllib.loads(writer.text)
        assert places(writer.text) == writer.at, writer.text
