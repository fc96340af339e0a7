"""Endings of commands: exit statuses, error messages, Ctrl-C and closed streams.

* Ctrl-C ends a command at any moment: "Interrupted." on the standard error, exit status 130, no traceback.  Other errors on the
  way out are not shown.
* Files are written before anything is printed, whole or not at all (`flowsched.boundary.files`).  Two outputs, or an output and an input,
  are never one file.
* If the reader of the standard output is gone, a command ends quietly with exit status 141, files written.  If the standard
  error cannot be written to, only its words are lost.
* A refusal of the system (a full disk, a closed stream, memory) is an error of one line, exit status 74.
* An error message holds no control characters, and no word of more than some 80 characters but a path.

A traceback means a mistake of the program.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click
from rich.console import Console

from flowsched.boundary.files import identity
from flowsched.exceptions import FlowschedError

REFUSED, INTERRUPTED, READER_GONE = 74, 130, 141
"""Exit statuses: of an input or output error in sysexits.h; of programs that SIGINT and SIGPIPE have ended, in shells."""

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)

_WORD, _MESSAGE = 84, 4000

_interrupted = False
"""True once Ctrl-C has come in this process."""


class BadInput(click.ClickException):
    """An error of one line and exit status 2."""

    exit_code = 2


class _NoReader(Exception):
    """The reader of the standard output is gone; click would end otherwise at a `BrokenPipeError`."""


class Command(click.Command):
    """A command with the endings of this module."""

    def main(self, *args: Any, standalone_mode: bool = True, **kwargs: Any) -> Any:
        """See `click.Command.main`."""
        run: Callable[..., Any] = super().main
        if not standalone_mode:
            return run(*args, standalone_mode=False, **kwargs)
        return _ended(lambda: run(*args, standalone_mode=False, **kwargs))

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """See `click.Command.make_context`."""
        with _distinguished():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """See `click.Command.invoke`."""
        with _distinguished():
            return super().invoke(ctx)


class Group(Command, click.Group):
    """A group of commands with the endings of this module."""

    command_class = Command
    group_class = type


@contextlib.contextmanager
def _distinguished() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise _NoReader from error
    except KeyboardInterrupt as error:
        raise click.Abort from error


class Out(Console):
    """The standard output; no wider than a page if it is not a terminal."""

    def __init__(self, width: int = 120) -> None:
        super().__init__(highlight=False, markup=False)
        if not self.is_terminal:
            self.width = width

    def on_broken_pipe(self) -> None:
        """Raise the error, which ends the command."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


class Words(Console):
    """The standard error: progress and remarks, which may get lost."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(stderr=True, quiet=quiet, highlight=False, markup=False)

    def on_broken_pipe(self) -> None:
        """Write nothing more."""
        self.quiet = True

    def print(self, *objects: Any, **options: Any) -> None:
        """See `rich.console.Console.print`."""
        try:
            super().print(*objects, **options)
        except OSError:
            self.quiet = True


def check_files(outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None] | None = None) -> None:
    """Refuse, before the work, outputs that cannot be written, or would overwrite each other or an input.

    Both mappings are by the option's name, which the error (BadInput) shows with the file.
    """
    taken: dict[object, str] = {}
    for name, path in (inputs or {}).items():
        if path is not None and (found := identity(path)) is not None:
            taken[found] = name
    for name, path in outputs.items():
        if path is None:
            continue
        if not path.absolute().parent.is_dir():
            raise BadInput(f"{path}: no such directory: {path.parent}")
        found = identity(path)
        if found is not None:
            if found in taken:
                raise BadInput(f"{path}: {name} and {taken[found]} are the same file")
            taken[found] = name
            beside = Path(os.path.realpath(path)).parent
            if not os.access(beside, os.W_OK):
                raise BadInput(f"{path}: no file can be written in {beside}")


@contextlib.contextmanager
def on_interrupt(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` at the first Ctrl-C within; the next one interrupts."""
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def first(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        stop()

    signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def process(run: Callable[[], object]) -> NoReturn:
    """Run the command line of this process, and exit."""
    _open_streams()
    handled = callable(signal.getsignal(signal.SIGINT))
    sys.unraisablehook = _unraisable
    code: Any = 0
    try:
        if handled:
            signal.signal(signal.SIGINT, _interrupt)
        run()
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:  # outside the command proper
        code = _code(KeyboardInterrupt())
    finally:
        if handled:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the end of Python is left
    sys.exit(code)


def shortened(message: str) -> str:
    """Return a message without control characters, and with overlong words cut; paths stay whole."""
    lines = []
    for line in message[: 4 * _MESSAGE].split("\n"):
        words = [_short(word) for word in line.split(" ")]
        lines.append(" ".join(words))
    return "\n".join(lines)[:_MESSAGE]


def _short(word: str) -> str:
    if not word.isprintable():
        word = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in word)
    # A path stays whole, if no name in it is longer than the system's limit of 255.
    return word if len(word) <= _WORD or ("/" in word and max(map(len, word.split("/"))) <= 255) else f"{word[:80]}..."


def _ended(run: Callable[[], Any]) -> NoReturn:
    try:
        code = run()
        _flush()
    except BaseException as error:
        code = _code(error)
    sys.exit(code if isinstance(code, int) else 0)


def _code(error: BaseException) -> int | str | None:
    """Write the reason for the end of a command, and return its exit status; a mistake of the program is raised again."""
    chain = list(_chain(error))
    if isinstance(error, SystemExit):
        if any(isinstance(cause, BrokenPipeError) for cause in chain):
            return _no_reader()
        try:
            _flush()
        except OSError as refused:
            return _code(refused)
        return error.code
    if _interrupted or any(isinstance(cause, KeyboardInterrupt) for cause in chain):
        _say("Interrupted.")
        _flush_or_drop()
        return INTERRUPTED
    if isinstance(error, _NoReader | BrokenPipeError):
        return _no_reader()
    if isinstance(error, click.ClickException):
        vars(error)["message"] = shortened(error.message)
        with contextlib.suppress(OSError):
            error.show()
        _flush_or_drop()
        return error.exit_code
    if isinstance(error, click.Abort):
        _say("Aborted.")
        return 1
    if isinstance(error, FlowschedError):
        _say(f"Error: {shortened(str(error))}")
        _flush_or_drop()
        return BadInput.exit_code
    if isinstance(error, MemoryError):
        _say(f"Error: not enough memory. {shortened(str(error))}".rstrip())
        return REFUSED
    if isinstance(error, OSError):
        where = "" if error.filename is None else f"{error.filename}: "
        _say(f"Error: {shortened(where + (error.strerror or str(error)))}")
        _flush_or_drop()
        return REFUSED
    raise error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception, its causes and its contexts."""
    waiting, seen = [error], set()
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [one.__cause__, one.__context__]


def _say(words: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        click.echo(words, err=True)


def _flush() -> None:
    """Flush the standard output, or raise its `OSError`: once, not again when Python ends."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        _drop()
        raise OSError(error.errno, error.strerror, "standard output") from None
    except ValueError:  # it is closed
        pass


def _flush_or_drop() -> None:
    with contextlib.suppress(OSError):
        _flush()


def _no_reader() -> int:
    _drop()
    return READER_GONE


def _drop() -> None:
    """Discard the rest of the standard output, or Python would complain of it at its end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        sys.stdout.flush()


def _open_streams() -> None:
    """Replace standard streams that are missing, so that no file gets their numbers.

    Reading finds the end, and writing to the standard output is an error.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # Opening takes the lowest number that is free.
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115  # as long as we


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C."""
    global _interrupted
    _interrupted = True
    raise KeyboardInterrupt


def _unraisable(unraisable: Any) -> None:
    """Raise Ctrl-C again a little later if it came where nothing can be raised (in a finaliser)."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt) or unraisable.exc_type is KeyboardInterrupt:
        later = threading.Timer(0.001, signal.raise_signal, (signal.SIGINT,))
        later.daemon = True
        later.start()
    else:
        sys.__unraisablehook__(unraisable)
