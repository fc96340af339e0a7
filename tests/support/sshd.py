"""An OpenSSH server of the tests' own, on a free port, with keys and home in a temporary folder."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from slurm import end_marked

_CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
MaxStartups 100
SetEnv HOME={folder}/home
"""


class Host:
    """A host.  Its folder of runs is in `home`."""

    def __init__(self, sshd: str, keygen: str, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir()
        (self.home / ".bashrc").write_text("echo this is what some users have there\n")
        for key in ("host_key", "user_key"):
            command = [keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        (folder / "config").write_text(_CONFIG.format(port=self.port, folder=folder))
        self.name = f"{getpass.getuser()}@127.0.0.1:{self.port}"
        self._sshd, self._process = sshd, None
        self.begin()

    @property
    def options(self) -> dict[str, Any]:
        """For ``asyncssh.connect``."""
        return {"client_keys": [str(self.folder / "user_key")], "known_hosts": None, "config": None}

    def begin(self) -> None:
        """Start the server."""
        with (self.folder / "log").open("ab") as log:
            command = [self._sshd, "-D", "-e", "-f", str(self.folder / "config")]
            self._process: Any = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        for _ in range(400):
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            assert self._process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.02)
        pytest.fail("sshd does not begin")

    def cut(self) -> int:
        """Kill the processes of all connections; return how many there were."""
        parents = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = path.read_text().rpartition(") ")[2].split()
                if fields[0] not in "ZX":
                    parents[int(path.parent.name)] = int(fields[1])
        pids = {pid for pid, parent in parents.items() if parent == self._process.pid}
        pids |= {pid for pid, parent in parents.items() if parent in pids}
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    def end(self) -> None:
        """Kill the server and its connections, but not what they have started apart."""
        self._process.send_signal(signal.SIGSTOP)  # so that it accepts no more
        self.cut()
        self._process.kill()
        self._process.wait()


@contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """Servers; skips the test where sshd is not installed."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
    sshd, keygen = shutil.which("sshd", path=path), shutil.which("ssh-keygen", path=path)
    if sshd is None or keygen is None:
        pytest.skip("no SSH server on this machine: apt-get install openssh-server")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where Debian's server confines itself
    folder = Path(tempfile.mkdtemp(prefix="flowsched-ssh-"))
    begun: list[Host] = []
    try:
        for i in range(count):
            (folder / str(i)).mkdir()
            begun.append(Host(sshd, keygen, folder / str(i)))
        yield begun
    finally:
        for host in begun:
            host.end()
            end_marked(f"HOME={host.home}".encode())
        shutil.rmtree(folder, ignore_errors=True)


__all__ = ["Host", "hosts"]
