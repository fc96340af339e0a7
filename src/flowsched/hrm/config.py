"""Configuration of HRM's processes, in TOML: one file for all.  ``docs/reference/hrm_config.md`` has every key."""

from __future__ import annotations

import math
import socket
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from flowsched.boundary.toml import NEEDED, TomlFile
from flowsched.boundary.validate import mapping, number, ordered, quoted, seconds, text, truth, whole
from flowsched.exceptions import InputError
from flowsched.hrm.address import address
from flowsched.hrm.ids import name as name_of
from flowsched.hrm.topology import read_machine
from flowsched.hrm.units import Node, ResourceUnit, split_machine

Config = dict[str, Any]
"""A dict for each table, by its name; ``log``; and ``units``, pairs of a unit and the arguments of `Negotiator.add_units`."""


def read_config(path: str | Path, *, name: str | None = None, units: bool = False) -> Config:
    """Read a configuration and check all of it; the InputError names line, column and key of every fault.

    `name` is that of the scheduler or the machine, in place of the file's.  With `units`, the machine's topology is
    read and cut into units.
    """
    file = TomlFile(path)
    base = file.path.absolute().parent
    config: Config = file.table(
        (), {"log": (partial(_one_of, "debug info warning error"), "info")} | dict.fromkeys(_KEYS, (_any, None))
    )
    for part, keys in _KEYS.items():
        config[part] = file.table((part,), keys)
    told = config["negotiator"]
    told["machine_ttl"] = told["machine_ttl"] or told["ttl"]
    limits = {
        "negotiator": min(told["ttl"], told["machine_ttl"]),
        "scheduler": told["ttl"],
        "agent": told["machine_ttl"],
    }
    for part, ttl in limits.items():
        told = config[part]
        if told["period"] > ttl / 4 and "period" in file.content.get(part, ()):
            message = f"at most a quarter of the ttl of {ttl:g} s expected, got {told['period']:g}"
            file.faults.append(((part, "period"), f"{part}: period: {message}"))
        told["period"] = min(told["period"], ttl / 8)
        if part != "negotiator":
            told["name"] = name_of("--name", name) if name else told["name"] or socket.gethostname()
    agent = config["agent"]
    for key in ("output", "state", "topology"):
        agent[key] = agent[key] and base / agent[key]
    config["store"]["url"] = file.made(("store", "url"), "store", lambda: _url(base, config["store"]["url"]))
    config["units"] = _units(file, agent, units)
    file.check()
    return config


def _units(file: TomlFile, agent: dict[str, Any], wanted: bool) -> list[tuple[ResourceUnit, dict[str, Any]]]:
    """Check the keys of the machine, and return its units if they are wanted."""
    faults, told = len(file.faults), agent["node"] is not None
    queues = {key: file.table(("agent", "queue", key), _QUEUE) for key in agent["queue"]}
    node = file.table(("agent", "node"), _NODE if told else {})
    split = file.table(("agent", "split"), _SPLIT)
    if told and agent["topology"]:
        file.faults.append((("agent", "topology"), "agent: topology: given beside agent.node, which tells the machine"))
    if not wanted or len(file.faults) > faults:
        return []

    def read() -> Node:
        if told:
            return Node.uniform(agent["name"], **node)
        try:
            return read_machine(agent["topology"], id=agent["name"], gmem=agent["gmem"])
        except OSError as error:
            raise InputError(f"{agent['topology']}: {error.strerror}") from None

    machine = file.made(("agent", "node" if told else "topology"), "agent", read)
    how = {key: value for key, value in split.items() if value is not None}
    cut = machine and file.made(("agent", "split"), "agent", lambda: split_machine(machine, **how))
    # The CPU numbers of a machine described by the file are unknown.
    found = {str(unit.id)[len(agent["name"]) + 1 :]: replace(unit, cpus=()) if told else unit for unit in cut or ()}
    for key in queues.keys() - found.keys() if found else ():
        message = f"agent.queue.{key}: no such unit; the machine has: {', '.join(found)}"
        file.faults.append((("agent", "queue", key), message))
    usual = {key: agent[key] for key in _QUEUE}
    own = {key: {k: usual[k] if v is None else v for k, v in queue.items()} for key, queue in queues.items()}
    return [(unit, own.get(key, usual)) for key, unit in found.items()]


def _one_of(known: str, what: str, value: Any) -> str:
    if value not in known.split():
        raise InputError(f"{what}: one of {', '.join(known.split())} expected, got {quoted(value)}")
    return str(value)


def _kinds(what: str, value: Any) -> Sequence[str]:
    if not ordered(what, value):
        raise InputError(f"{what}: must not be empty")
    return [_one_of("batch stream", what, kind) for kind in value]


def _url(base: Path, url: str | None) -> str:
    file = str(url).removeprefix("sqlite:///")
    if url and (file in ("", ":memory:", "sqlite://") or not url.startswith(("sqlite:///", "postgresql"))):
        raise InputError(f"sqlite:///FILE or postgresql://USER@HOST/NAME expected, got {quoted(url)}")
    if url:
        address("url", url)
    return file if file == url else f"sqlite:///{base / file}"


def _any(what: str, value: Any) -> Any:
    return value


_least = partial(partial, number, least=0)

_count = partial(whole, least=1, most=1 << 20)

_QUEUE: dict[str, Any] = {
    "length": (partial(whole, least=0, most=1 << 40), None),
    "most": (partial(whole, least=1, most=1 << 40), None),
}

_NODE: dict[str, Any] = {
    "cores": (_count, NEEDED),
    "mem": (_least(), NEEDED),
    "gpus": (partial(whole, least=0, most=1 << 20), 0),
    "gmem": (_least(), 0),
    "numa": (_count, 1),
}

_SPLIT: dict[str, Any] = {
    "how": (partial(_one_of, "shared bound even"), None),
    "gpu_jobs": (_least(most=1), None),
    "cores_per_gpu": (_count, None),
    "cpu_units": (_count, None),
}

_KEYS: dict[str, dict[str, Any]] = {
    "store": {"url": (text, NEEDED), "patience": (_least(), 60.0)},
    "negotiator": {
        "ttl": (seconds, 30.0),
        "machine_ttl": (seconds, None),
        "max_wait": (partial(seconds, finite=False), math.inf),
        "patience": (_least(finite=False), math.inf),
        "shares": (truth, True),
        "default_duration": (seconds, 60.0),
        "period": (seconds, 1.0),
    },
    "scheduler": {
        "name": (name_of, None),
        "kinds": (_kinds, ["batch", "stream"]),
        "adopt": (partial(whole, least=0, most=2**31 - 1), 4),
        "seed": (partial(whole, least=0), 0),
        "period": (seconds, 0.2),
    },
    "agent": _QUEUE | {
        "length": (_QUEUE["length"][0], 2),
        "name": (name_of, None),
        "period": (seconds, 0.5),
        "topology": (text, None),
        "gmem": (_least(), None),
        "node": (mapping, None),
        "split": (mapping, {}),
        "queue": (mapping, {}),
        "output": (text, "output"),
        "state": (text, None),
        "cgroups": (truth, False),
    },
}  # fmt: skip
