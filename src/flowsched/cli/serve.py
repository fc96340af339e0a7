"""``flowsched serve``: a scheduler behind HTTP, for clients of any language."""

from __future__ import annotations

import asyncio
import os
import secrets
from pathlib import Path

import click

from flowsched.boundary.files import read
from flowsched.boundary.validate import quoted
from flowsched.cli import endings
from flowsched.cli.endings import BadInput
from flowsched.cli.replay import policy_named
from flowsched.exceptions import FlowschedError, InputError
from flowsched.journal.journal import Journal
from flowsched.policy import Policy
from flowsched.scheduler import Scheduler
from flowsched.serve import Service, ToldRequests, access

_FAILED = 1

_LONGEST = 4096


@click.command("serve", cls=endings.Command)
@click.option(
    "--journal", type=endings.FILE, metavar="FILE",
    help="File for the journal, from which the same command continues.",
)  # fmt: skip
@click.option(
    "--standby", is_flag=True, help="Wait while another service has the journal, and take over when that one has ended."
)
@click.option(
    "--history", type=click.FloatRange(0), metavar="DAYS",
    help="Days for which the journal keeps the history when it is compacted. By default all of it.",
)  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8642,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--token-file", type=endings.FILE, metavar="FILE",
    help="File with the token. By default the variable FLOWSCHED_TOKEN, or a new token, which is printed.",
)  # fmt: skip
@click.option(
    "--tokens", type=endings.FILE, metavar="FILE",
    help="TOML or JSON with tokens of the roles read, user and operator.",
)  # fmt: skip
@click.option("--certificate", type=endings.FILE, metavar="FILE", help="Certificate chain in PEM, for TLS; with --key.")
@click.option("--key", type=endings.FILE, metavar="FILE", help="Its private key in PEM, without a passphrase.")
@click.option(
    "--policy", metavar="NAME", default="pack", show_default=True,
    help=f"One of: {', '.join(Policy.names())}; or your own, MODULE:NAME.",
)  # fmt: skip
@click.option(
    "--resources",
    metavar="NAMES",
    default="cpu,mem,gpu",
    show_default=True,
    help="Names of the resources, comma-separated.",
)
@click.option(
    "--interval",
    type=click.FloatRange(0),
    default=0.02,
    show_default=True,
    help="Minimum time between rounds, in seconds.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Limit on the computing time of a round.",
)
def serve(
    journal: Path | None, standby: bool, history: float | None, host: str, port: int, token_file: Path | None, tokens: Path | None,
    certificate: Path | None, key: Path | None, policy: str, resources: str, interval: float, time_limit: float | None,
) -> None:  # fmt: skip
    """Serve a scheduler by HTTP: events in, rounds out, a live page at /.

    \b
    Examples:
      flowsched serve --journal cluster.journal
      flowsched serve --journal cluster.journal --standby    takes over from another service
      curl -H "Authorization: Bearer $FLOWSCHED_TOKEN" http://127.0.0.1:8642/v1/state

    An address that other machines reach needs your own token, and TLS: --certificate and --key, or a proxy in front.

    \b
    Exit status:
      0    ended by Ctrl-C or SIGTERM: requests are answered, the journal is whole
      1    the service has failed; the same command continues from the journal
      2    the command line is wrong, or the journal cannot be read
      74, 141  as `flowsched --help` says
    """
    try:
        from flowsched.serve import server
    except ImportError as missing:
        raise BadInput(str(missing)) from None
    token, known = token_of(token_file), tokens_of(tokens)
    if token is None and not known and not server.is_loopback(host):
        raise BadInput(
            f"--host {host}: others reach it, so it needs a token: --token-file, --tokens or FLOWSCHED_TOKEN"
        )
    chosen = policy_named(policy) if ":" in policy else Policy.named(policy)
    names = tuple(name.strip() for name in resources.split(","))
    if (certificate is None) != (key is None):
        raise BadInput("--certificate and --key: both expected, or none")
    chain = None if certificate is None else (str(certificate), str(key))
    if chain is not None:
        try:
            server.check_certificate(*chain)
        except InputError as error:
            raise BadInput(f"--certificate, --key: {error}") from None
    if standby and journal is None:
        raise BadInput("--standby: of a journal, so --journal FILE is needed")
    opened = None if journal is None else Journal(journal, durability="group", standby=standby)
    if standby and opened is not None:
        click.echo(f"Standby of {journal}", err=True)
        opened.open()
    listener = server.bound(host, port, 5.0 if standby else 0.0)
    scheduler = Scheduler(chosen, resources=names, journal=opened)
    told = ToldRequests(opened)
    seconds = None if history is None else 86400.0 * history
    service = Service(scheduler, told, interval=interval, round_limit=time_limit, history=seconds)
    if journal is None:
        click.echo("Without --journal, all is lost when the service ends.", err=True)
    made = None if token or known else secrets.token_urlsafe(24)
    if token or made:
        known = [*known, (token or made or "", access.OPERATOR)]
    address, number = listener.getsockname()[:2]
    where = f"{'http' if chain is None else 'https'}://{f'[{address}]' if ':' in address else address}:{number}/"

    def begun() -> None:
        click.echo(f"Serving at {where}{'' if made is None else f'#token={made}'}")

    try:
        asyncio.run(server.serve(service, listener, access.Tokens(known), begun=begun, certificate=chain))
    except FlowschedError as error:
        click.echo(f"flowsched serve: {endings.shortened(str(error))}", err=True)
        raise SystemExit(_FAILED) from None


def token_of(path: Path | None) -> str | None:
    """Return the token from the file or the environment."""
    if path is None:
        token = os.environ.get("FLOWSCHED_TOKEN")
    else:
        try:
            token = read(path, _LONGEST).decode().strip()
        except InputError as error:
            raise BadInput(f"--token-file: {error}") from None
        except (OSError, ValueError) as error:
            raise BadInput(f"--token-file: {path}: {getattr(error, 'strerror', None) or 'no text'}") from None
    if token is not None and not access.is_token(token):
        raise BadInput(
            f"token: at least {access.SHORTEST} visible ASCII characters expected, got {quoted('*' * len(token))}"
        )
    return token


def tokens_of(path: Path | None) -> list[tuple[str, access.Access]]:
    """Return the tokens of a file, none without one."""
    if path is None:
        return []
    try:
        return access.read_tokens(path)
    except InputError as error:
        raise BadInput(f"--tokens: {error}") from None
    except OSError as error:
        raise BadInput(f"--tokens: {path}: {error.strerror}") from None
