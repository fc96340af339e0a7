"""``flowsched kube-scheduler``: the scheduler of a Kubernetes cluster, next to others or alone."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from flowsched.boundary.toml import TomlFile
from flowsched.boundary.validate import mapping, quoted, seconds, text
from flowsched.cli import endings
from flowsched.cli.endings import BadInput
from flowsched.exceptions import FlowschedError, InputError
from flowsched.policy import Policy
from flowsched.run.kubescheduler import KubeScheduler, KubeSettings, LeaseSettings, default_lease

_FAILED = 1


@click.command("kube-scheduler", cls=endings.Command)
@click.option("--config", type=endings.FILE, metavar="FILE", help="Settings, in TOML.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Change nothing: print the node that each pod would get, and why others wait.",
)
@click.option(
    "--scheduler-name",
    "names",
    metavar="NAME",
    multiple=True,
    help="Value of schedulerName in the pods to schedule; may be repeated.  [default: flowsched]",
)
@click.option("--listen", metavar="HOST:PORT", help="Address of /healthz, /readyz and /metrics.  [default: none]")
@click.option("--verbose", is_flag=True, help="Log what is tried again, too.")
def kube_scheduler(
    config: Path | None, dry_run: bool, names: tuple[str, ...], listen: str | None, verbose: bool
) -> None:
    """Schedule the pods of a Kubernetes cluster that name flowsched as their scheduler.

    Credentials are those of KUBECONFIG or ~/.kube/config, or of the pod in which this runs. There several processes
    elect a leader.

    FILE is TOML; all keys are optional:

    \b
      scheduler_names = ["flowsched"]
      policy = "pack"            # by default: spread, and nodes are kept free for pods that wait for 10 s
      resources = ["cpu", "mem", "gpu"]   # by default all that nodes report
      listen = "0.0.0.0:10270"
      lost = 60                  # seconds until a node that is not ready is gone
      [lease]                    # by default in a cluster only
      namespace = "flowsched"
      name = "flowsched"
      duration = 15              # seconds

    \b
    Examples:
      flowsched kube-scheduler --dry-run --scheduler-name default-scheduler
      flowsched kube-scheduler --config flowsched.toml --listen 127.0.0.1:10270

    \b
    Exit status:
      0    ended by Ctrl-C or SIGTERM; the pods stay as they are
      1    the API server refuses the account, or another process has become the leader
      2    the command line or FILE is wrong
      74, 141  as `flowsched --help` says
    """
    settings = KubeSettings(lease=default_lease()) if config is None else read_settings(config)
    if names:
        settings = replace(settings, names=names)
    if listen is not None:
        settings = replace(settings, listen=_address("--listen", listen))
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    logging.getLogger("flowsched").setLevel(logging.INFO if verbose else logging.WARNING)
    try:
        asyncio.run(_run(KubeScheduler(settings, advise=partial(click.echo) if dry_run else None)))
    except InputError as error:
        raise BadInput(str(error)) from None
    except FlowschedError as error:
        click.echo(f"flowsched kube-scheduler: {endings.shortened(str(error))}", err=True)
        raise SystemExit(_FAILED) from None


async def _run(scheduler: KubeScheduler) -> None:
    gc.set_threshold(100_000, 50, 100)  # the JSON of pods has no cycles: the usual collections took a third of the time
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await scheduler.run(stop)


def read_settings(path: Path) -> KubeSettings:
    """Read a file of settings; the InputError names line, column and key of every fault."""
    file, default = TomlFile(path), KubeSettings()
    keys: dict[str, Any] = {
        "scheduler_names": (_texts, default.names),
        "policy": (_policy, default.policy),
        "resources": (_texts, ()),
        "listen": (_address, ""),
        "lost": (seconds, default.lost),
        "lease": (mapping, None),
    }
    top, lease = file.table((), keys), default_lease()
    if top.get("lease") is not None:
        keys = {"namespace": (text, ""), "name": (text, "flowsched"), "duration": (seconds, 15.0)}
        lease = LeaseSettings(**file.table(("lease",), keys, "lease"))
    file.check()
    return KubeSettings(top["scheduler_names"], top["policy"], top["resources"], top["listen"], top["lost"], lease)


def _texts(what: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(one, str) and one for one in value):
        raise InputError(f"{what}: a list of names expected, got {quoted(value)}")
    return tuple(value)


def _policy(what: str, value: Any) -> Policy:
    return Policy.named(text(what, value))


def _address(what: str, value: Any) -> str:
    host, _, port = text(what, value).rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise InputError(f"{what}: HOST:PORT expected, got {quoted(value)}")
    return f"{host}:{port}"
