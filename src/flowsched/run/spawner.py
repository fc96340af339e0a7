"""Starts the processes of runs on this machine from a small process that stays.

An interpreter for each run would take most of its time.  So there is one, the spawner, which is a copy of nothing large, and
forks twice for a run.  Its child is the run's first process, in a session of its own.  It waits at a gate until the run is on
record, or ends there if the driver dies.  Then it makes the command, in a process group of its own, waits for it, and writes its
CPU time, the peak of its memory and its exit status into a file.  It survives a SIGTERM, so the command has its time to end.
Processes that the command leaves behind become its children, and it ends them.  If it cannot, or is killed, the driver looks
for them among all processes.

The spawner ends with the driver's end of its socket.  First processes go on.

Linux only.
"""

from __future__ import annotations

import marshal
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from uuid import uuid4

from flowsched.hrm.agent.processes import BECOME, Entry, Family, Gate, is_open, start_time

_SERVER = (
    BECOME
    + """
import ctypes, gc, marshal, select, socket, struct
gc.disable()
try:
    prctl = ctypes.CDLL(None).prctl
except (OSError, AttributeError):
    prctl = lambda *_: -1
link = socket.socket(fileno=int(sys.argv[1]))
def received(size):
    data, keys = b"", []
    while len(data) < size:
        try:
            more, new, _, _ = socket.recv_fds(link, size - len(data), 1)
        except ConnectionError:
            more = b""
        if not more:
            os._exit(0)
        data += more
        keys += new
    return data, keys
def send(*values):
    data = marshal.dumps(values)
    try:
        link.sendall(struct.pack("=I", len(data)) + data)
    except OSError:
        os._exit(0)
environment = dict(os.environ)
def ends_children():  # also those of killed ones, which become its own; True once there are none
    for _ in range(1000):
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
                for pid in file.read().split():
                    os.kill(int(pid), _signal.SIGKILL)
        except ChildProcessError:
            return True
        except ProcessLookupError:
            pass
        except OSError:
            return False
        select.select([], [], [], 0.001)
    return False
def first(gate, status, folder, output, errors, command, token, own):
    os.setsid()
    link.close()
    _signal.set_wakeup_fd(-1)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    _signal.signal(_signal.SIGTERM, _signal.SIG_IGN)
    go = os.read(gate, 3)
    os.close(gate)
    if not go:
        os._exit(125)
    adopts = prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER: orphans of the command become children of this process
    child = os.fork()
    if not child:
        _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
        environment["FLOWSCHED_CONTAINER"] = token
        become(status, "", folder, output, errors, command, environment, own)
    ended = 0
    while ended != child:
        ended, code, used = os.wait4(-1, 0)
    code = os.waitstatus_to_exitcode(code)
    code = code if code >= 0 else 128 - code
    alone = " alone" if adopts and ends_children() else ""
    try:
        file = os.open(status, os.O_WRONLY | os.O_APPEND)
        os.write(file, f"{used.ru_utime + used.ru_stime:.6f} {used.ru_maxrss}{alone}\\n{code}\\n".encode())
    except OSError:
        pass
    os._exit(code)
waker, wake = os.pipe()
os.set_blocking(wake, False)
os.set_blocking(waker, False)
_signal.signal(_signal.SIGCHLD, lambda *_: None)
_signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
while True:
    ready, _, _ = select.select([link, waker], [], [])
    if waker in ready:
        os.read(waker, 4096)
        while True:
            try:
                pid, code = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            send(pid, os.waitstatus_to_exitcode(code))
    if link in ready:
        size, keys = received(4)
        data, more = received(struct.unpack("=I", size)[0])
        (gate,) = keys + more
        try:
            pid = os.fork()
        except OSError as error:
            send(0, error.errno)
        else:
            if not pid:
                first(gate, *marshal.loads(data))
            send(0, -pid)
        os.close(gate)
"""
)
"""The program of the spawner.  It answers each request with 0 and the negative pid, or an errno; an exited child is a pid and its status."""


class Spawner:
    """The spawner of one driver.

    Attributes
    ----------
    exits : dict of int to int
        Exit statuses of first processes that have ended, by pid, as far as they were reported.
    """

    def __init__(self) -> None:
        self.exits: dict[int, int] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None

    def hold(self, command: Sequence[str], entry: Entry, status: str) -> Gate:
        """Start the first process of a run, with this process's environment when the spawner began; keep it at its gate.

        Raise OSError or ValueError if there is no process, no descriptor or no memory left, or the command is none.
        """
        token = uuid4().hex
        own = list(entry.environment.items())
        for text in (*command, *(part for pair in own for part in pair)):
            os.fsencode(text)  # which raises where it is none
            if "\0" in text:
                raise ValueError("embedded null byte")
        what = status, entry.directory, entry.output, entry.errors, list(command), token, own
        data = marshal.dumps(what)
        gate, key = os.pipe()
        try:
            pid = self._asked(data, gate)
            start = start_time(pid)
            if start is None:
                raise ProcessLookupError(f"process {pid} is not in /proc")
            return Gate(Family(pid, start, token), key)
        except BaseException:
            os.close(key)
            raise
        finally:
            os.close(gate)

    def _asked(self, data: bytes, gate: int) -> int:
        """Send a request and return the pid; a spawner that has died is replaced, once."""
        for again in (False, True):
            if self._link is None:
                self._begin()
            assert self._link is not None
            try:
                socket.send_fds(self._link, [struct.pack("=I", len(data))], [gate])
                self._link.sendall(data)
                while True:
                    pid, value = self._received()
                    if pid:
                        self.exits[pid] = value
                    elif value < 0:
                        return -value
                    else:
                        raise OSError(value, os.strerror(value))
            except (ConnectionError, EOFError):
                self.close()
                if again:
                    raise
        raise AssertionError

    def _begin(self) -> None:
        self._link, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _SERVER, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=None if is_open(1) else subprocess.DEVNULL,
                stderr=None if is_open(2) else subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        finally:
            theirs.close()

    def _received(self) -> tuple[int, int]:
        assert self._link is not None
        (size,) = struct.unpack("=I", self._whole(4))
        pid, value = marshal.loads(self._whole(size))
        return pid, value

    def _whole(self, size: int) -> bytes:
        assert self._link is not None
        data = b""
        while len(data) < size:
            more = self._link.recv(size - len(data))
            if not more:
                raise EOFError("the spawner has ended")
            data += more
        return data

    def look(self) -> None:
        """Take in the exits that were reported."""
        if self._link is None:
            return
        with suppress(OSError, EOFError):
            while self._link.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                pid, value = self._received()
                self.exits[pid] = value

    def close(self) -> None:
        """End the spawner; first processes go on."""
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._process is not None:
            self._process.wait()
            self._process = None
