"""Commands on other hosts, over SSH; a host is a machine.

A host has a folder with a folder for each run: its record, its script, the *claim* of the one process that may run it (pid,
start time, boot), and its exit status.  A claim is made by a hard link, so there is one, however often a run is started.
The process goes on when the connection or the driver ends, and the next driver finds it there.

The commands for a host are sent in one *exchange*: a script that is executed as a whole or not at all, under a lock, and
answers with the states of all runs.  Each step of it is idempotent.  So an exchange whose answer was lost is sent again.
An increasing number and the driver's name keep out late exchanges.

A host needs Linux, ``/bin/sh``, ``flock``, ``setsid`` and a ``grep`` with ``-z``, and no Python.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from flowsched.boundary.validate import number, quoted
from flowsched.cluster.events import MachineAdded, MachineRemoved
from flowsched.exceptions import InputError
from flowsched.run.adapter import Acts, recorded
from flowsched.run.adapter import record as to_record
from flowsched.run.command import outcome, script
from flowsched.run.executor import Run, Stopped, Told

if TYPE_CHECKING:
    from asyncssh import SSHClientConnection

LOGGER = logging.getLogger("flowsched")

_LINE = re.compile(r"(this|[0-9a-f]{32}-\d+) (\w+) ?(.*)")
"""Of an answer; anything else was written by the files with which the user's shell begins."""

_ABSENT = 3
"""Answers in a row without a run, after which the host does not have it."""

_HOST = re.compile(r"(?:(?P<user>[^@\s]+)@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^@:\s]+)(?::(?P<port>\d{1,5}))?")


@dataclass(eq=False, slots=True)
class _Held:
    """A run on a host; without `run`, one that is unknown to the driver.

    `since` is when its stop was confirmed, `absent` counts answers that do not name it.
    """

    run: Run | None
    text: str = ""
    stopped: bool = False
    since: float | None = None
    over: bool = False
    absent: int = 0


@dataclass(eq=False, slots=True)
class _Host:
    """A host.

    Invariant: `runs` are all runs that may be there, by the names of their folders, except those to be dropped.
    """

    name: str
    target: dict[str, Any]
    runs: dict[str, _Held] = field(default_factory=dict)
    drops: set[str] = field(default_factory=set)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    tried: asyncio.Event = field(default_factory=asyncio.Event)
    turn: int = 0
    capacity: dict[str, float] = field(default_factory=dict)
    there: bool = False
    gone: asyncio.TimerHandle | None = None
    error: str = ""


class _RefusedError(Exception):
    """Another driver uses the host."""


class SSHExecutor(Acts):
    """Runs commands on hosts over SSH; a payload is a `Command`, or a command line.

    Paths are those of the host, from the user's home.  A host whose connection is lost is connected again.  If that takes too
    long, it is gone, and its tasks run elsewhere; its old runs are stopped before it is a machine again.

    Parameters
    ----------
    hosts : sequence of str
        ``HOST``, ``USER@HOST`` or ``USER@HOST:PORT``; also the names of the machines.
    resources : sequence of str
        Those of the flowsched scheduler.  A host has as much ``cpu`` as cores, its memory as ``mem`` in MiB, and ``gpu``.
    name : str, optional
        Name of the folder with the runs, which the next driver needs if this one is killed.  One driver at a time uses it:
        a host obeys the one that came last.  By default a new one, so that runs that outlive the driver are not found again.
    folder : str
        Where that folder is, on each host: the same file system for all its life, not shared with other hosts.
    options : mapping of str to object, optional
        For ``asyncssh.connect``, such as ``client_keys`` and ``known_hosts``.
    poll : float
        Seconds between two polls of the runs of a host.
    lost : float
        Seconds without a connection after which a host is gone.
    grace : float
        Seconds between SIGTERM and SIGKILL.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        resources: Sequence[str] = ("cpu", "mem", "gpu"),
        *,
        name: str = "",
        folder: str = ".flowsched",
        options: Mapping[str, Any] | None = None,
        poll: float = 0.5,
        lost: float = 60.0,
        grace: float = 5.0,
    ) -> None:
        super().__init__()
        self._resources, self._options = tuple(resources), dict(options or {})
        self._poll, self._lost, self._grace = (
            number("poll", poll, 0.01),
            number("lost", lost, 0),
            number("grace", grace, 0),
        )
        self._me, self._temporary = uuid4().hex, not name
        self._folder = f"{folder}/{name or self._me}"
        self._hosts = {text: _Host(text, _target(text)) for text in hosts}
        self._of: dict[int, tuple[_Host, str]] = {}
        self._serving: list[asyncio.Task[None]] = []
        self._opening, self._closing = True, asyncio.Event()

    async def open(self, tell: Callable[[Told], None]) -> Iterable[Run]:
        """See `Executor.open`; hosts that are not connected within `lost` come later, and their runs are stopped.

        Raises
        ------
        InputError
            No host can be connected.
        """
        self.tell, self._loop = tell, asyncio.get_running_loop()
        self._serving = [self.later(self._serve(host)) for host in self._hosts.values()]
        tried = asyncio.gather(*(host.tried.wait() for host in self._hosts.values()))
        with suppress(TimeoutError):
            await asyncio.wait_for(tried, self._lost)
        self._opening = False
        if not any(host.turn for host in self._hosts.values()):
            await self.close()
            errors = "; ".join(f"{host.name}: {host.error}" for host in self._hosts.values())
            raise InputError(f"hosts: none can be connected: {errors}")
        held = (host.runs[name].run for host, name in self._of.values())
        return [run for run in held if run is not None]

    def start(self, run: Run) -> None:
        """See `Executor.start`."""
        host, text = self._hosts[str(run.machine)], script(run, WHY)
        if "gpu" in host.capacity:
            text = f"export CUDA_VISIBLE_DEVICES={','.join(map(str, run.devices))}\n{text}"
        name = f"{self._me}-{run.number}"
        self._of[run.number] = host, name
        host.runs[name] = _Held(run, text)
        host.news.set()

    def stop(self, run: Run) -> None:
        """See `Executor.stop`."""
        host, name = self._of.get(run.number, (None, ""))
        if host is None or host.runs[name].over:
            self.tell(Stopped(run.number))
        else:
            host.runs[name].stopped = True
            host.news.set()

    def release(self, run: Run) -> None:
        """See `Executor.release`."""
        host, name = self._of.pop(run.number, (None, ""))
        if host is not None:
            held = host.runs[name]
            if held.over:
                del host.runs[name]
                host.drops.add(name)
            else:  # the host is gone, and the run is stopped when it is back
                held.run, held.stopped = None, True
            host.news.set()

    async def close(self) -> None:
        """See `Executor.close`."""
        for host in self._hosts.values():
            if host.gone is not None:
                host.gone.cancel()
            host.news.set()
        self._closing.set()
        if self._serving:
            await asyncio.wait(self._serving, timeout=5.0)
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def away(self) -> list[MachineAdded] | None:
        """See `flowsched.run.executor.Away`."""
        return [] if all(host.turn for host in self._hosts.values()) else None

    # -- connections --------------------------------------------------------------------------------------------

    async def _serve(self, host: _Host) -> None:
        """Keep a host connected."""
        import asyncssh

        pause = 0.1
        options: dict[str, Any] = {"keepalive_interval": 5, "keepalive_count_max": 3, "login_timeout": 20}
        while not self._closing.is_set() or host.there:  # at the end, a host gets the list of runs to drop
            try:
                async with asyncio.timeout(30.0):
                    connection = await asyncssh.connect(**(options | host.target | self._options))
                async with connection:
                    while not self._closing.is_set():
                        host.news.clear()
                        await self._exchange(host, connection)
                        pause, host.error = 0.1, ""
                        await self._rest(host, connection)
                    await self._exchange(host, connection)
                    return
            except _RefusedError:
                LOGGER.warning("host %s: another driver uses %s", host.name, self._folder)
                self._leave(host)
                return
            except Exception as error:  # also an answer that is not understood: the other hosts go on
                text = str(error) or type(error).__name__
                LOGGER.log(logging.INFO if text == host.error else logging.WARNING, "host %s: %s", host.name, text)
                host.error = text
                if self._temporary or isinstance(error, asyncssh.PermissionDenied | asyncssh.HostKeyNotVerifiable):
                    host.tried.set()  # nothing is to be found, or nothing will change
            if host.gone is None:
                host.gone = self._loop.call_later(self._lost, self._leave, host)
            if self._closing.is_set():
                await asyncio.sleep(pause)
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), pause)
            pause = min(2 * pause, 5.0)

    async def _rest(self, host: _Host, connection: SSHClientConnection) -> None:
        """Wait until there is something to do on a host, or its connection ends."""
        waits = [asyncio.create_task(host.news.wait()), asyncio.create_task(connection.wait_closed())]
        try:
            busy = any(not held.over for held in host.runs.values())
            timeout = self._poll if busy else None
            await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if waits[1].done():
                raise ConnectionError("the connection was lost")
        finally:
            for wait in waits:
                wait.cancel()

    def _leave(self, host: _Host) -> None:
        host.tried.set()
        if host.there:
            host.there = False
            self.tell(MachineRemoved(host.name))

    # -- exchanges ----------------------------------------------------------------------------------------------

    async def _exchange(self, host: _Host, connection: SSHClientConnection) -> None:
        """Send commands to a host, and process its answer: the states of its runs."""
        now, host.turn = self._loop.time(), host.turn + 1
        asked = {name: held for name, held in host.runs.items() if not held.over}
        drops = set(host.drops)
        acts = [["drop", name] for name in drops]
        for name, held in asked.items():
            if held.text and not held.stopped:
                assert held.run is not None
                acts.append(["start", name, to_record(held.run), held.text])
            elif held.since is not None and now >= held.since + self._grace:
                acts.append(["end", name])
            elif held.stopped and held.since is None:
                acts.append(["stop", name])
        acts.append(["states"])
        if not host.there:
            acts.append(["records"])
        if self._closing.is_set() and self._temporary:
            acts.append(["leave"])
        stopping = [held for held in asked.values() if held.stopped]
        text = exchange(self._folder, self._me, host.turn, acts)
        done = await connection.run("exec /bin/sh -s", input=text, check=False, timeout=300)
        answer = [match.groups() for line in str(done.stdout).splitlines() if (match := _LINE.fullmatch(line))]
        facts = {kind: rest for name, kind, rest in answer if name == "this"}
        if "refused" in facts:
            raise _RefusedError
        if "done" not in facts:
            raise ConnectionError(f"exit status {done.exit_status}: {str(done.stderr).strip()[-500:]}")
        host.drops -= drops
        for held in stopping:
            held.since = now if held.since is None else held.since
        states = {name: (kind, rest) for name, kind, rest in answer if kind in ("there", "over", "refused")}
        found = {name: rest for name, kind, rest in answer if kind == "record"}
        for name in states.keys() - host.runs.keys() - host.drops:
            asked[name] = host.runs[name] = self._found(host, name, found.get(name))
        for name, held in asked.items():
            sent = not (held.text and held.stopped)
            held.text, held.absent = "", 0 if name in states or not sent else held.absent + 1
            if 0 < held.absent < _ABSENT:  # a line may be garbled
                continue
            state, status = states.get(name, ("over", "none"))
            if state != "there" and not held.over:
                held.over = True
                self._tell_end(host, name, held, state, status)
        self._come(host, facts.get("has", ""))

    def _found(self, host: _Host, name: str, record: str | None) -> _Held:
        """Take over a run of an earlier driver; once this one has begun, a run that it does not know is stopped."""
        if record is None or not self._opening:
            return _Held(None, stopped=True)
        try:
            run = replace(recorded(record)[0], machine=host.name)
        except InputError as error:
            LOGGER.warning("host %s: %s; what runs there is stopped", host.name, error)
            return _Held(None, stopped=True)
        if run.number in self._of:
            return _Held(None, stopped=True)
        self._of[run.number] = host, name
        return _Held(run)

    def _tell_end(self, host: _Host, name: str, held: _Held, state: str, status: str) -> None:
        run = held.run
        if run is None:
            del host.runs[name]
            host.drops.add(name)
            host.news.set()
        else:
            why = f"host {host.name} cannot keep its record" if state == "refused" else "its processes were killed"
            code, _, reason = status.partition(" ")
            self.tell(outcome(run, int(code) if code.isdigit() else None, held.stopped, why, reason))

    def _come(self, host: _Host, has: str) -> None:
        """Take note of an answer; a host is a machine once nothing is left there that the driver does not know."""
        if host.gone is not None:
            host.gone.cancel()
            host.gone = None
        if not host.there and not has:
            host.news.set()  # it was given up while it answered
        elif not host.there and all(held.run is not None for held in host.runs.values()):
            if not re.fullmatch(r"\d+ \d+ \d+", has):
                raise ValueError(f"cores, memory and GPUs expected, got {quoted(has)}")
            cpus, memory, gpus = map(int, has.split())
            amounts = {"cpu": cpus, "mem": memory / 1024, "gpu": gpus}
            host.capacity = {name: amounts[name] for name in self._resources if amounts.get(name)}
            host.there = True
            self.tell(MachineAdded(host.name, host.capacity))
        host.tried.set()


def _target(text: str) -> dict[str, Any]:
    match = _HOST.fullmatch(text)
    if match is None:
        raise InputError(f"hosts: HOST, USER@HOST or USER@HOST:PORT expected, got {quoted(text)}")
    user, host, port = match["user"], match["host"].strip("[]"), match["port"]
    return {"host": host} | ({"username": user} if user else {}) | ({"port": int(port)} if port else {})


# -- scripts for the shells on a host ----------------------------------------------------------------------------------

_SCRIPT = r"""
mask=$(umask)
umask 077
cd && mkdir -p "$folder" && cd "$folder" && chmod 700 . || exit 3
exec 9>lock
flock -w 20 9 || exit 4
read -r boot </proc/sys/kernel/random/boot_id
had=; count=0
[ ! -e owner ] || read -r had count <owner
if [ "$turn" -gt 1 ]; then
    if [ "$had" != "$me" ]; then echo this refused; exit; fi
    [ "$turn" -gt "$count" ] || exit 5
fi
echo "$me $turn" >owner.new && mv -f owner.new owner || exit 3

# Set $state, $session and $start of process $1; $state is "" if there is none.
look_at() {
    state=; read -r stat <"/proc/$1/stat" || return 1
    set -- ${stat##*) }
    state=$1 session=$4 start=${20}
} 2>/dev/null

# Set $pid, the first process of run $1; return 0 if it is there.
alive() {
    pid=0 begun=0 since=
    read -r pid begun since <"$1/claim" || return 1
    [ "$since" = "$boot" ] && look_at "$pid" && [ "$start" = "$begun" ] && [ "$state" != Z ] && [ "$state" != X ]
} 2>/dev/null

# Kill all processes of run $1; return 1 if some do not end.
sweep() {
    for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        found=$(grep -lszxF -e "FLOWSCHED_CONTAINER=$PWD/$1" /proc/[0-9]*/environ | tr -dc '0-9\n')
        sessions=
        for file in claim task; do
            leader=0 first=0 since=
            [ ! -e "$1/$file" ] || read -r leader first since <"$1/$file"
            # A session's number is not used again as long as it has a process.
            [ "$since" = "$boot" ] && { ! look_at "$leader" || [ "$start" = "$first" ]; } && sessions="$sessions $leader "
        done
        for other in ${sessions:+/proc/[0-9]*}; do
            other=${other#/proc/}
            look_at "$other" && [ "$state" != Z ] && [ "$state" != X ] || continue
            case $sessions in *" $session "*) found="$found $other" ;; esac
        done
        [ -n "$found" ] || return 0
        kill -s KILL $found 2>/dev/null
        sleep 0.05
    done
    return 1
}

start() { # RUN RECORD SCRIPT
    [ ! -e "$1/record" ] || return 0
    mkdir -p "$1" && printf '%s' "$3" >"$1/script" && printf '%s\n' "$2" >"$1/new" && mv -f "$1/new" "$1/record" && return
    rm -rf "$1"
    echo "$1 refused"
}

stop() { # RUN: one that nothing has claimed never begins
    [ -e "$1/record" ] || return
    echo 0 0 0 >"$1/none" && ln "$1/none" "$1/claim" 2>/dev/null
    alive "$1" && kill -s TERM -- "-$pid" 2>/dev/null
    leader=0 first=0 since=
    [ ! -e "$1/task" ] || read -r leader first since <"$1/task"
    [ "$since" = "$boot" ] && look_at "$leader" && [ "$start" = "$first" ] && kill -s TERM -- "-$leader" 2>/dev/null
}

end() { # RUN
    alive "$1" && sweep "$1"
}

drop() { # RUN
    mv -f "$1" ".$1" && rm -rf ".$1"
} 2>/dev/null

states() {
    for run in */; do
        run=${run%/}
        [ -e "$run/record" ] || continue
        if [ ! -e "$run/claim" ]; then
            FLOWSCHED_CONTAINER=$PWD/$run setsid /bin/sh -c "$become" "$PWD/$run" "$mask" </dev/null >/dev/null 2>&1 9>&- &
        elif ! alive "$run" && { [ -e "$run/swept" ] || { sweep "$run" && : >"$run/swept"; }; }; then
            status=none why=
            [ ! -e "$run/status" ] || read -r status <"$run/status"
            [ ! -e "$run/why" ] || read -r why <"$run/why"
            printf '%s\n' "$run over $status${why:+ $why}"
            continue
        fi
        echo "$run there"
    done
}

leave() {
    set -- */
    [ -e "$1" ] || rm -rf "$PWD"
}

records() {
    set -- /proc/driver/nvidia/gpus/*
    [ -e "$1" ] || shift
    echo "this has $(nproc) $(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo) $#"
    rm -rf .[0-9a-f]*
    for run in */; do
        [ ! -e "${run}record" ] || printf '%s record %s\n' "${run%/}" "$(cat "${run}record")"
    done
}
"""
"""Functions for one exchange.  Settings: `folder`; `me`, the driver; `turn`, the number of the exchange; `become`."""

ENTER = """
boot=$1 mask=$2
read -r stat </proc/$$/stat && set -- ${stat##*) } && echo "$$ ${20} $boot" >"$0/task" || exit 126
umask "$mask"
. "$0/script"
"""
"""The process that becomes the command, in a session of its own: a command that kills its group does not kill its waiter.

Its arguments are the folder of the run, the id of this boot, and the umask.
"""

BECOME = f"""
cd -- "$0" && read -r stat </proc/$$/stat && read -r boot </proc/sys/kernel/random/boot_id || exit
mask=${{1:-077}}
set -- ${{stat##*) }}
echo "$$ ${{20}} $boot" >claim.$$ && ln claim.$$ claim || exit
trap : TERM
(cd; exec setsid /bin/sh -c {shlex.quote(ENTER)} "$0" "$boot" "$mask")
status=$?
echo $status >status.new && mv -f status.new status
"""
"""The process that waits for the command of a run, if the claim is its own.

Its arguments are the folder of the run and the umask of the login.  It outlives a SIGTERM to its group, so that the command has
its time to end.
"""

WHY = """>"$0/why" printf '%s\\n' "$2" """
"""Keeps the reason why a command cannot begin; for `flowsched.run.command.script`."""


def exchange(folder: str, me: str, turn: int, acts: Iterable[Sequence[str]]) -> str:
    """Return the text of one exchange for ``/bin/sh``, which executes nothing of it unless it has the whole text.

    `folder` has the folders of the runs, `me` is the driver, `turn` is the number of the exchange, from 1, and `acts`
    are the script's functions and their arguments.
    """
    settings = {"folder": folder, "me": me, "turn": str(turn), "become": BECOME}
    lines = [f"{key}={shlex.quote(value)}" for key, value in settings.items()]
    return "\n".join(["main() {", *lines, _SCRIPT, *map(shlex.join, acts), "echo this done", "}", "main", ""])
