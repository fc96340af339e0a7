"""A Slurm cluster of the tests' own: munged, slurmctld and some slurmd, all on this machine and on free ports."""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

_CONFIG = """
ClusterName=flowsched
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/completed
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
SlurmdParameters=config_overrides
ReturnToService=1
KillWait=1
MinJobAge=300
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
GresTypes=gpu
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports[1]}-{last}] CPUs={cpus} RealMemory={memory} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def _ports(count: int) -> list[int]:
    """Free ports in a row."""
    for _ in range(100):
        with ExitStack() as probes:
            first = probes.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            ports = [first.getsockname()[1] + i for i in range(count)]
            with suppress(OSError, OverflowError):
                for port in ports[1:]:
                    probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
                return ports
    raise AssertionError("no free ports")


def end_marked(mark: bytes) -> None:
    """Kill what has the mark in its environment: daemons that have left their parents."""
    for _ in range(100):
        pids = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if mark in path.read_bytes().split(b"\0") and int(path.parent.name) != os.getpid():
                    pids.append(int(path.parent.name))
        if not pids:
            return
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


@dataclass(frozen=True)
class Slurm:
    """A cluster."""

    folder: Path
    restart: Callable[[], None]
    """Stop the controller, and start it again a second later."""


@contextmanager
def slurm(nodes: int = 3, cpus: int = 8, memory: int = 4000) -> Iterator[Slurm]:
    """A cluster with nodes n1, n2 ..., for the commands of this process; skips the test where Slurm is not installed."""
    path = os.environ.get("PATH", "") + ":/usr/sbin"
    programs = {name: shutil.which(name, path=path) for name in ("munged", "slurmctld", "slurmd", "sbatch")}
    if None in programs.values():
        pytest.skip("no Slurm on this machine: apt-get install slurm-wlm munge")
    folder = Path(tempfile.mkdtemp(prefix="flowsched-slurm-", dir="/tmp"))  # a socket's path must be short
    folder.chmod(0o755)  # munged refuses its socket in a folder that others cannot enter
    ports = _ports(nodes + 1)
    config = folder / "slurm.conf"
    config.write_text(
        _CONFIG.format(
            host=socket.gethostname().partition(".")[0], user=getpass.getuser(), folder=folder, ports=ports, last=ports[-1],
            nodes=nodes, cpus=cpus, memory=memory,
        )
    )  # fmt: skip
    (folder / "key").write_bytes(secrets.token_bytes(1024))
    (folder / "key").chmod(0o400)
    (folder / "state").mkdir()
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(config)
    munge = [programs["munged"], "--foreground", "--num-threads=2"]
    munge += [f"--{name}={folder}/{file}" for name, file in (("key-file", "key"), ("socket", "munge.socket"))]
    munge += [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")]
    controller = [programs["slurmctld"], "-D", "-f", str(config)]
    workers = [[programs["slurmd"], "-D", "-N", f"n{i + 1}", "-f", str(config)] for i in range(nodes)]
    daemons = []
    try:
        for command in (munge, controller, *workers):
            with (folder / "out").open("ab") as out:
                daemons.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out))
            for _ in range(200):
                if (folder / "munge.socket").exists():
                    break
                time.sleep(0.05)
        for _ in range(600):
            states = subprocess.run(["sinfo", "-h", "-N", "-o", "%T"], capture_output=True, text=True, check=False)
            if states.stdout.split() == ["idle"] * nodes:
                break
            time.sleep(0.05)
        else:
            logs = "".join(path.read_text()[-2000:] for path in (folder / "out", *folder.glob("*.log")))
            pytest.fail(f"Slurm does not begin: {states.stdout} {states.stderr}\n{logs}")

        def restart() -> None:
            daemons[1].terminate()
            daemons[1].wait()
            time.sleep(1.0)
            with (folder / "out").open("ab") as out:
                daemons[1] = subprocess.Popen(controller, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

        yield Slurm(folder, restart)
    finally:
        for daemon in reversed(daemons):
            daemon.kill()
            daemon.wait()
        end_marked(f"SLURM_CONF={config}".encode())
        if before is None:
            del os.environ["SLURM_CONF"]
        else:
            os.environ["SLURM_CONF"] = before
        shutil.rmtree(folder, ignore_errors=True)


__all__ = ["Slurm", "end_marked", "slurm"]
