"""The operator's commands: ``flowsched ps``, ``submit``, ``cancel`` and others, on anything of flowsched that is running."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from flowsched.boundary import units
from flowsched.boundary.validate import quoted
from flowsched.cli import endings
from flowsched.cli.endings import BadInput
from flowsched.cli.serve import token_of
from flowsched.cli.targets import HRMTarget, ServiceTarget, StateTarget, Target
from flowsched.exceptions import InputError
from flowsched.run.control import NoDriverError
from flowsched.run.learn import said

_ABSENT = 1

_TICK = 0.3

Row = dict[str, Any]

_TARGETS = """
    \b
    The target is one of:
      --state DIR      a driver: `flowsched run --state DIR`
      --url URL        a service: `flowsched serve`
      --config FILE    HRM: `flowsched hrm`

    \b
    Exit status:
      0    done
      1    no driver is running, and nothing has happened
      2    the command line is wrong, or the target refuses the request; nothing has happened
      74, 141  as `flowsched --help` says
"""


def _command(name: str, *, change: bool = False) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command of a function, whose first parameters become the target and a function that prints an answer."""

    def made(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def run(
            state: Path | None, url: str | None, config: Path | None, token_file: Path | None, as_json: bool,
            request_id: str | None = None, **values: Any,
        ) -> None:  # fmt: skip
            target = _target(state, url, config, token_file)
            values |= {"id": request_id} if change else {}

            def out(answer: Row, shown: Callable[[], Any]) -> None:
                if as_json:
                    click.echo(json.dumps(answer, default=str))
                    return
                found = shown()
                if isinstance(found, str):
                    click.echo(found)
                elif found is not None:
                    endings.Out().print(found)

            try:
                function(target, out, **values)
            except NoDriverError as absent:
                click.echo(f"Error: {endings.shortened(str(absent))}", err=True)
                raise SystemExit(_ABSENT) from None

        run.__doc__ = f"{(function.__doc__ or '').rstrip()}\n{_TARGETS}"
        made: Any = run
        if change:
            made = click.option("--request-id", metavar="ID", help="Name of this request: with the same one it is done once.")(made)  # fmt: skip
        for option in (
            click.option("--json", "as_json", is_flag=True, help="Print the answer as a line of JSON."),
            click.option(
                "--token-file", type=endings.FILE, metavar="FILE",
                help="File with the token of the service. By default the variable FLOWSCHED_TOKEN.",
            ),
            click.option("--config", type=endings.FILE, metavar="FILE", envvar="FLOWSCHED_HRM", help="HRM's configuration file."),
            click.option("--url", metavar="URL", envvar="FLOWSCHED_URL", help="Address of a service."),
            click.option(
                "--state", type=endings.FOLDER, metavar="DIR", envvar="FLOWSCHED_STATE", show_envvar=True,
                help="Folder of the state of a driver.",
            ),
        ):  # fmt: skip
            made = option(made)
        return click.command(name, cls=endings.Command)(made)

    return made


def _target(state: Path | None, url: str | None, config: Path | None, token_file: Path | None) -> Target:
    """Return the target; one that is named on the command line goes before those of the environment."""
    given = {"state": state, "url": url, "config": config}
    context = click.get_current_context()
    named = [name for name in given if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE]
    chosen = named or [name for name, value in given.items() if value is not None]
    if len(chosen) != 1:
        what = "one target expected" if chosen else "which target? One expected"
        raise BadInput(f"{what}: --state DIR (or FLOWSCHED_STATE), --url URL, or --config FILE")
    if chosen == ["state"]:
        assert state is not None
        return StateTarget(state)
    if chosen == ["config"]:
        assert config is not None
        return HRMTarget(config)
    token = token_of(token_file)
    if token is None:
        raise BadInput("--url: the service's token is needed: --token-file or FLOWSCHED_TOKEN")
    assert url is not None
    return ServiceTarget(url, token)


_tasks = click.argument("tasks", nargs=-1, required=True, metavar="TASK...")
_machines = click.argument("machines", nargs=-1, required=True, metavar="NODE...")


@_command("ps")
@click.argument("tasks", nargs=-1, metavar="[TASK]...")
@click.option("--all", "all_", is_flag=True, help="Show tasks that have ended, too.")
def ps(target: Target, out: Callable[..., None], tasks: tuple[str, ...], all_: bool) -> None:
    """Show the tasks that run and wait, as squeue does.

    TASK is a name of a task or job, or a pattern such as 'fit.*'.  States are R (running), CG (stopping), PD (waiting),
    CD (done), F (failed), CA (cancelled) and SK (not needed).  Under `flowsched run --learn`, LEARNED is what tasks are
    matched by: CPU, memory and seconds, stage|by|stage, and the number of runs behind it.
    """
    answer = target.ask("ps", {"tasks": list(tasks), "all": all_})

    def table() -> Table:
        learns = any("learnt" in row for row in answer["tasks"])
        made = _table("TASK USER ST >TIME >PRIO NODE(REASON)" + " LEARNED" * learns)
        for row in answer["tasks"]:
            where = row.get("machine") or (f"({row['why']})" if row.get("why") else "")
            needs = [said(row.get("learnt"))] * learns
            made.add_row(
                *_cells(
                    row["task"], row["user"], row["state"], _span(row.get("seconds")), row["priority"], where, *needs
                )
            )
        return made

    out(answer, table)


@_command("nodes")
def nodes(target: Target, out: Callable[..., None]) -> None:
    """Show the machines, as sinfo does: allocated and total amounts, and why a machine is drained."""
    answer = target.ask("nodes", {})

    def table() -> Table:
        known = dict.fromkeys(name for row in answer["nodes"] for name, amount in row["capacity"].items() if amount)
        made = _table("NODE STATE >TASKS " + "".join(f">{name.upper()} " for name in known) + "REASON")
        for row in answer["nodes"]:
            amounts = (f"{_amount(row['used'].get(name, 0))}/{_amount(row['capacity'].get(name, 0))}" for name in known)
            made.add_row(*_cells(row["node"], _state(row), row["tasks"], *amounts, "; ".join(_whys(row))))
        return made

    out(answer, table)


def _whys(row: Row) -> Iterator[str]:
    if row["why"]:
        yield row["why"]
    for start, end in row.get("drains", ()):
        if end is not None or row["state"] == "up":
            yield f"drained from {_moment(start)}" + ("" if end is None else f" until {_moment(end)}")


def _state(row: Row) -> str:
    if row["state"] != "up":
        return "draining" if row["state"] == "drained" and row["tasks"] else str(row["state"])
    full = any(amount and row["used"].get(name, 0) >= amount for name, amount in row["capacity"].items())
    return "alloc" if full and row["tasks"] else "mix" if row["tasks"] else "idle"


@_command("submit", change=True)
@click.argument("words", nargs=-1, metavar="FILE | -- COMMAND [ARGUMENT]...", type=click.UNPROCESSED)
@click.option("--name", metavar="NAME", help="Name of the job of a COMMAND.  [default: the program's, with the time]")
@click.option("--cpu", type=float, metavar="N", help="Cores of each of its tasks.  [default: 1]")
@click.option("--mem", metavar="AMOUNT", help="Memory of each, in MiB or as 2G.")
@click.option("--gpu", type=float, metavar="N", help="GPUs of each.")
@click.option("--count", type=int, metavar="N", help="Number of its tasks.")
@click.option("--array", metavar="RANGES", help="Their indices, such as 1-9:2 or 1,5,7.")
@click.option("--at-most", type=int, metavar="N", help="Number of them that run at once.")
@click.option("--after", multiple=True, metavar="NAME", help="Job or task that has to end well before; repeatable.")
@click.option("--priority", type=int, metavar="N", help="Lower is better.")
@click.option("--time-limit", metavar="TIME", help="Time after which a run is stopped.")
@click.option("--retries", type=int, metavar="N", help="Number of failures after which a task runs again.")
@click.option("--output", type=endings.FOLDER, metavar="DIR", help="Folder for the output.  [default: the driver's]")
def submit(
    target: Target, out: Callable[..., None], words: tuple[str, ...], id: str | None, name: str | None,
    output: Path | None, **keys: Any,
) -> None:  # fmt: skip
    """Submit the jobs of FILE, or a COMMAND, to a running driver.

    \b
    Examples:
      flowsched submit more.toml --state today
      flowsched submit --state today --cpu 2 --after prep -- ./train.sh --epochs 3

    When this returns, the jobs are in the state: they run even if the driver is killed and started again.  They have
    the environment of the driver, and names that no other job of the state has.
    """
    given = {key: value for key, value in keys.items() if value not in (None, ())}
    if not words:
        raise BadInput("a FILE of jobs, or a COMMAND after -- expected")
    if len(words) == 1 and name is None and not given and words[0].endswith(".toml"):
        file = Path(words[0]).absolute()
        try:
            content = file.read_bytes().decode()
        except UnicodeDecodeError as error:
            raise BadInput(f"{file}: {error}") from None
    else:
        file = Path.cwd() / "command"
        content = _as_toml(words, name, given)
    body = {"file": str(file), "content": content, "output": None if output is None else str(output.absolute())}
    answer = target.ask("submit", body, id)
    jobs = answer["jobs"]
    named = ", ".join(jobs[:3]) + (f" and {len(jobs) - 3} others" if len(jobs) > 3 else "")
    out(answer, lambda: f"{_count(answer['tasks'], 'task')} submitted: {named}{_later(answer)}")


def _as_toml(words: tuple[str, ...], name: str | None, keys: Row) -> str:
    """Return a file of jobs with one job; texts of JSON are texts of TOML."""
    demand = {key: keys.pop(key) for key in ("cpu", "mem", "gpu") if key in keys}
    if name is None:
        program = "".join(c if c.isalnum() or c in "_-" else "_" for c in Path(words[0]).name)[:60] or "job"
        name = f"{program}-{datetime.now():%m%d-%H%M%S}-{os.getpid()}"
    values: Row = {"name": name, "command": list(words), **keys}
    lines = [
        f"{key} = {json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)}"
        for key, value in values.items()
    ]
    if demand:
        demand.setdefault("cpu", 1)
        lines.append("demand = {" + ", ".join(f"{key} = {json.dumps(value)}" for key, value in demand.items()) + "}")
    return "[[job]]\n" + "\n".join(lines) + "\n"


@_command("cancel", change=True)
@_tasks
def cancel(target: Target, out: Callable[..., None], tasks: tuple[str, ...], id: str | None) -> None:
    """Cancel tasks, jobs or patterns of them: running ones are stopped."""
    answer = target.ask("cancel", {"tasks": list(tasks)}, id)
    out(
        answer,
        lambda: f"{_count(answer['tasks'], 'task')} cancelled, {answer['running']} of them running{_later(answer)}",
    )


@_command("hold", change=True)
@_tasks
def hold(target: Target, out: Callable[..., None], tasks: tuple[str, ...], id: str | None) -> None:
    """Hold tasks, jobs or patterns of them: they do not start.  Those that run go on."""
    answer = target.ask("hold", {"tasks": list(tasks)}, id)
    out(answer, lambda: f"{_count(answer['tasks'], 'task')} held, {answer['running']} of them running{_later(answer)}")


@_command("release", change=True)
@_tasks
def release(target: Target, out: Callable[..., None], tasks: tuple[str, ...], id: str | None) -> None:
    """End the hold of tasks, jobs or patterns of them."""
    answer = target.ask("release", {"tasks": list(tasks)}, id)
    out(answer, lambda: f"{_count(answer['tasks'], 'task')} released{_later(answer)}")


@_command("priority", change=True)
@click.argument("value", type=int, metavar="N")
@_tasks
def priority(target: Target, out: Callable[..., None], value: int, tasks: tuple[str, ...], id: str | None) -> None:
    """Change the priority of tasks, jobs or patterns of them; lower is better, also below 0 (after --)."""
    answer = target.ask("priority", {"tasks": list(tasks), "priority": value}, id)
    out(
        answer,
        lambda: (
            f"{_count(answer['tasks'], 'task')} of priority {value}, {answer['running']} of them running{_later(answer)}"
        ),
    )


@_command("drain", change=True)
@_machines
@click.option("--at", metavar="TIME", help="Begin then: a date, or a time span from now.  [default: now]")
@click.option("--until", metavar="TIME", help="End then, likewise.  [default: with `flowsched resume`]")
def drain(
    target: Target, out: Callable[..., None], machines: tuple[str, ...], at: str | None, until: str | None, id: str | None
) -> None:  # fmt: skip
    """Drain machines, or patterns of them: running tasks go on, and no others start there.

    \b
    Examples:
      flowsched drain node-7
      flowsched drain 'rack2-*' --at 2026-12-24T18:00 --until 2026-12-24T20:00
    """
    times = {name: _when(f"--{name}", said, 1) for name, said in (("at", at), ("until", until)) if said is not None}
    answer = target.ask("drain", {"machines": list(machines), **times}, id)
    when = "".join(f" {'from' if name == 'at' else 'until'} {_moment(time)}" for name, time in times.items())
    out(
        answer,
        lambda: (
            f"{_count(len(answer['machines']), 'machine')} drained{when}, {_count(answer['running'], 'task')} running there{_later(answer)}"
        ),
    )


@_command("resume", change=True)
@_machines
def resume(target: Target, out: Callable[..., None], machines: tuple[str, ...], id: str | None) -> None:
    """End the drain of machines, or patterns of them."""
    answer = target.ask("resume", {"machines": list(machines)}, id)
    out(answer, lambda: f"{_count(len(answer['machines']), 'machine')} resumed{_later(answer)}")


@_command("why")
@click.argument("task")
def why(target: Target, out: Callable[..., None], task: str) -> None:
    """Explain why a task waits, or how it ended."""
    answer = target.ask("why", {"task": task})

    def words() -> str:
        lines = [f"{answer['task']} {_STATES.get(answer['state'], answer['state'])}"]
        if answer.get("machine"):
            lines[0] += f" on {answer['machine']}"
        if answer.get("why") and answer["state"] != "R":
            lines[0] += f": {answer['why']}"
        if answer.get("machines"):
            for shape, blockers in answer["machines"].items():
                lines.append(f"  {shape}: " + ", ".join(f"{what} ({count})" for what, count in blockers.items()))
            if answer.get("unblocked_by"):
                lines.append(f"  may start after {', '.join(answer['unblocked_by'])}")
        elif answer.get("detail"):
            lines.append(f"  {answer['detail']}")
        return "\n".join(lines)

    out(answer, words)


@_command("eta")
@click.argument("task")
def eta(target: Target, out: Callable[..., None], task: str) -> None:
    """Estimate when a task starts and ends.

    The durations are medians of the earlier tasks of each job, or time limits.  The scheduler then decides on a copy of
    its state until the task starts, as if no other tasks came.
    """
    answer = target.ask("eta", {"task": task})

    def words() -> str:
        said = f"{answer['task']} {_STATES.get(answer['state'], answer['state'])}"
        if "start" not in answer:
            return said
        start, end = answer["start"], answer["end"]
        said += f": start {_moment(start)}, end {_moment(end)}"
        return said + (f"\n  {answer['detail']}" if answer.get("detail") else "")

    out(answer, words)


@_command("log")
@click.argument("task")
@click.option("-f", "--follow", is_flag=True, help="Go on until the task has ended.")
@click.option("-n", "--lines", type=click.IntRange(0), metavar="N", help="Begin with the last N lines.")
def log(target: Target, out: Callable[..., None], task: str, follow: bool, lines: int | None) -> None:
    """Print the output of a task."""
    answer = target.ask("log", {"task": task})

    def words() -> None:
        path, at = Path(answer["path"]), 0
        where = "" if answer["machine"] in (None, "local") else f" (it runs on {answer['machine']})"
        if not path.exists() and not follow:
            raise BadInput(f"{path}: no output is here{where}")
        over = answer["ended"]
        if lines is not None and path.exists():
            at = _tail(path, lines)
        while True:
            if path.exists():
                with open(path, "rb") as file:
                    file.seek(at)
                    while block := file.read(1 << 16):
                        sys.stdout.buffer.write(block)
                        at += len(block)
                sys.stdout.buffer.flush()
            if over or not follow:
                return
            time.sleep(_TICK)
            try:
                over = target.ask("log", {"task": task})["ended"]
            except NoDriverError:
                over = True

    out(answer, words)


def _tail(path: Path, lines: int) -> int:
    """Return the offset of the last lines of a file."""
    with open(path, "rb") as file:
        at = end = file.seek(0, os.SEEK_END)
        text = b""
        while at and text.count(b"\n") <= lines:
            at = max(at - (1 << 16), 0)
            file.seek(at)
            text = file.read(end - at)
    parts = text.splitlines(keepends=True)
    return end - sum(map(len, parts[len(parts) - lines :] if lines else []))


@_command("acct")
@click.option(
    "--by", default="attempt", show_default=True, help="Sums by user, machine, job, task or day; or each attempt."
)
@click.option("--since", metavar="TIME", help="Attempts that ended after: a date, or a time span before now.")
@click.option("--until", metavar="TIME", help="Attempts that started before, likewise.")
@click.option("--user", metavar="NAME", help="Of one user.")
@click.option("--job", metavar="NAME", help="Of one job.")
def acct(
    target: Target,
    out: Callable[..., None],
    by: str,
    since: str | None,
    until: str | None,
    user: str | None,
    job: str | None,
) -> None:
    """Report the attempts at tasks, as sacct does: machine, times, exit status, CPU time and memory.

    It needs no running driver.  CPU time and memory are known of tasks on the driver's own machine.
    """
    from flowsched.run.records import BY

    if by not in BY:
        raise BadInput(f"--by: one of {', '.join(BY)} expected, got {quoted(by)}")
    body = {"by": by, "since": _when("--since", since), "until": _when("--until", until), "user": user, "job": job}
    answer = target.ask("acct", body)
    now = time.time()

    def table() -> Table:
        if by == "attempt":
            made = _table("TASK USER NODE START >ELAPSED >CPU >MEM STATE >EXIT REASON")
            for row in answer["rows"]:
                elapsed = (row["end"] or now) - row["start"]
                made.add_row(*_cells(
                    row["task"], row["user"], row["machine"], _moment(row["start"]), _span(elapsed), _seconds(row["cpu"]),
                    _mem(row["memory"]), row["outcome"] or "running", row["status"], row["reason"],
                ))  # fmt: skip
            return made
        made = _table(
            f"{by.upper()} >ATTEMPTS {'>TASKS ' if by != 'task' else ''}>DONE >FAILED >RUNNING >ELAPSED >CPU >MAXMEM"
        )
        for row in answer["rows"]:
            tasks = [row["tasks"]] if by != "task" else []
            made.add_row(*_cells(
                row[by], row["attempts"], *tasks, row["done"] or 0, row["failed"] or 0, row["running"], _span(row["seconds"]),
                _seconds(row["cpu"]), _mem(row["memory"]),
            ))  # fmt: skip
        return made

    out(answer, table)


_STATES = {
    "R": "runs", "CG": "is being stopped", "PD": "waits", "CD": "is done", "F": "has failed", "CA": "was cancelled",
    "SK": "was not needed",
}  # fmt: skip


def _when(what: str, value: str | None, sign: int = -1) -> float | None:
    """Return a date, in local time unless it states a zone, or the time of a span before or after now, in seconds since 1970."""
    if value is None:
        return None
    try:
        return datetime.fromisoformat(value.strip()).timestamp()
    except ValueError:
        pass
    try:
        return time.time() + sign * units.seconds(value)
    except ValueError:
        raise InputError(
            f"{what}: a date such as 2026-12-24, or a time span such as 2h, expected, got {quoted(value)}"
        ) from None


def _table(columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns.split():
        table.add_column(name.removeprefix(">"), justify="right" if name[0] == ">" else "left", overflow="fold")
    return table


def _cells(*values: object) -> Iterable[Text]:
    return (Text("" if value is None else str(value)) for value in values)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _later(answer: Row) -> str:
    if answer.get("later"):
        return "; the driver has gone, and does it when it goes on"
    return " (repeated: it was done before)" if answer.get("repeated") else ""


def _span(seconds: float | None) -> str:
    """Return a time as squeue writes it, such as 0:05, 12:00 and 1-02:03:04."""
    if seconds is None:
        return ""
    rest = int(max(seconds, 0))
    days, rest = divmod(rest, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _moment(when: float | None) -> str:
    return "unknown" if when is None else f"{datetime.fromtimestamp(when):%Y-%m-%d %H:%M:%S}"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}s"


def _mem(mebibytes: float | None) -> str:
    return "" if mebibytes is None else f"{mebibytes:,.0f}M" if mebibytes < 10_240 else f"{mebibytes / 1024:,.1f}G"


def _amount(value: float) -> str:
    return f"{value:.10g}" if value == int(value) else f"{value:.2f}".rstrip("0").rstrip(".")
