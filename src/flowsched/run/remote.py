"""What the shells of `flowsched.run.ssh` execute on a host."""

import shlex
from collections.abc import Iterable, Sequence

__all__ = ["BECOME", "WHY", "exchange"]

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
"""The process that becomes the command, in a session of its own: a command that kills its group does not reach who waits for it.

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

    Parameters
    ----------
    folder : str
        With the folders of the runs.
    me : str
        The driver.
    turn : int
        Number of the exchange, from 1.
    acts : iterable of sequence of str
        The script's functions and their arguments.
    """
    settings = {"folder": folder, "me": me, "turn": str(turn), "become": BECOME}
    lines = [f"{key}={shlex.quote(value)}" for key, value in settings.items()]
    return "\n".join(["main() {", *lines, _SCRIPT, *map(shlex.join, acts), "echo this done", "}", "main", ""])
