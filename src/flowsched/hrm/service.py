"""HRM's parts as processes that run until a signal ends them; see `config`.

Any of them may be killed at any moment, and its successor goes on from the shared state.
SystemExit, raised by a handler of SIGTERM and SIGINT, ends one in order: a scheduler gives up its jobs and its claims, an agent
ends its containers, and their tasks are open again at once.  While the store is away they wait, and go on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import sqlalchemy as sa

from flowsched.boundary import private
from flowsched.cluster.model import MICRO
from flowsched.exceptions import DuplicateIdError, StoreError
from flowsched.hrm.agent import Agent
from flowsched.hrm.agent.cgroups import Cgroups
from flowsched.hrm.config import Config
from flowsched.hrm.run_times import RunTimes
from flowsched.hrm.schedulers import Worker
from flowsched.hrm.state.negotiator import Negotiator
from flowsched.hrm.state.schema import AMOUNT_NAMES, RS
from flowsched.hrm.state.store import Store
from flowsched.hrm.state.work import Commands
from flowsched.hrm.units import ResourceUnit

_LOG = logging.getLogger("flowsched.hrm")

_LAST_WORDS = 2.0
"""Seconds that an ending process waits for the store."""


@contextmanager
def connected(config: Config) -> Iterator[Negotiator]:
    """Connect to the store of a configuration."""
    store = Store(**config["store"])
    try:
        options = {
            key: value for key, value in config["negotiator"].items() if key not in ("period", "default_duration")
        }
        yield Negotiator(store, run_times=RunTimes(config["negotiator"]["default_duration"]), **options)
    finally:
        store.close()


@contextmanager
def _at_work(config: Config, part: str) -> Iterator[Negotiator]:
    """Connect, and report an orderly end of the process to the shared state."""
    name = config[part].get("name")
    with connected(config) as negotiator:
        try:
            yield negotiator
        except SystemExit:
            negotiator.store.patience = _LAST_WORDS
            with suppress(StoreError):
                if part != "negotiator":
                    who = {"machine" if part == "agent" else part: name}
                    _LOG.info("%s %s ends; %d tasks are open again", part, name, len(negotiator.leave(**who)))
            raise


def _say(config: Config, part: str, negotiator: Negotiator) -> None:
    """Log that a part is at work: it is visible in the shared state."""
    name = config[part].get("name")
    _LOG.info("%s at work on %s", part if name is None else f"{part} {name}", negotiator.store.address)


def _patiently(step: Callable[[], object]) -> None:
    try:
        step()
    except StoreError as error:
        _LOG.error("%s", error)


def run_negotiator(config: Config) -> None:
    """Declare silent schedulers and machines lost."""

    def step() -> None:
        lost = negotiator.expire()
        for what, names in (("scheduler", lost.schedulers), ("machine", lost.machines)):
            for name in names:
                _LOG.warning("%s %s is lost", what, name)

    with _at_work(config, "negotiator") as negotiator:
        _say(config, "negotiator", negotiator)
        while True:
            _patiently(step)
            time.sleep(config["negotiator"]["period"])


def run_scheduler(config: Config) -> None:
    """Place the tasks of jobs."""
    with _at_work(config, "scheduler") as negotiator:
        options = dict(config["scheduler"])
        period = options.pop("period")
        worker = Worker(negotiator, **options)
        _say(config, "scheduler", negotiator)
        while True:
            before = worker.tally.granted
            _patiently(worker.step)
            if placed := worker.tally.granted - before:
                _LOG.info("%d tasks placed", placed)
            else:
                time.sleep(period)


def run_agent(config: Config) -> None:
    """Run containers on this machine."""
    own = config["agent"]
    private.made(own["output"])
    units = {str(unit.id): unit for unit, _ in config["units"]}
    failed: dict[str, int | None] = {}

    def step(start: bool = True) -> None:
        if failed:
            commands.record(failed)
            failed.clear()
        _follow(agent, units, negotiator)
        agent.heartbeat(start=start)

    with _at_work(config, "agent") as negotiator:
        commands = Commands(negotiator.store, own["name"], own["output"])
        groups = Cgroups.find() if own["cgroups"] else None
        with Agent(
            list(units.values()), negotiator=negotiator, command=commands, cgroups=groups, state=own["state"]
        ) as agent:
            _join(negotiator, config)
            _say(config, "agent", negotiator)
            try:
                while True:
                    _patiently(step)
                    for ended in agent.step(own["period"]):
                        if ended.status:
                            failed[ended.id] = ended.status
                        level = logging.WARNING if ended.status else logging.INFO
                        _LOG.log(level, "task %s ended, exit status %d %s", ended.id, ended.status, ended.error)
            except SystemExit:
                negotiator.store.patience = _LAST_WORDS
                _patiently(lambda: step(start=False))
                raise


def _join(negotiator: Negotiator, config: Config) -> None:
    """Add the units of this machine; those that are there keep their queues, unless they have another size."""
    known = {unit.unit: unit.capacity[:3] for unit in negotiator.units()}
    new: dict[tuple[tuple[str, Any], ...], list[ResourceUnit]] = {}
    for unit, options in config["units"]:
        if known.get(unit.id, amounts := tuple(unit.capacity.tolist())) != amounts:
            _LOG.warning("unit %s has another size now: its tasks are open again", unit.id)
            negotiator.remove_units([unit.id])
            del known[unit.id]
        if unit.id not in known:
            new.setdefault(tuple(options.items()), []).append(unit)
    for how, units in new.items():  # those that are alike in one transaction
        try:
            negotiator.add_units(units, **dict(how))
        except DuplicateIdError:  # another process has added one meanwhile
            for unit in units:
                with suppress(DuplicateIdError):
                    negotiator.add_units([unit], **dict(how))


def _follow(agent: Agent, units: dict[str, ResourceUnit], negotiator: Negotiator) -> None:
    """Create, change and delete the agent's queues as the shared state has them."""
    rows = {row.ru_id: row for row in negotiator.store.look(_MINE, machine=agent.machine)}
    for id in agent.queues.keys() - rows.keys():
        _LOG.info("queue %s is deleted", id)
        agent.remove_queue(id)
    for id, row in rows.items():
        if id not in agent.queues:
            amounts: dict[str, Any] = {name: row._mapping[name] / MICRO for name in AMOUNT_NAMES[:3]}
            unit = units.get(id)
            if unit is None or any(getattr(unit, name) != amount for name, amount in amounts.items()):
                unit = ResourceUnit(id, agent.machine, **amounts)  # bound to no CPUs
            agent.add_queue(unit, most=row.places)
            _LOG.info("queue %s is created", id)
        elif agent.queues[id].capacity[3] != row.places:
            agent.set_queue(id, most=row.places)
            _LOG.info("queue %s: at most %d containers at once", id, row.places)


_MINE = sa.select(RS.c.ru_id, *(RS.c[name] for name in AMOUNT_NAMES)).where(RS.c.machine_id == sa.bindparam("machine"))
