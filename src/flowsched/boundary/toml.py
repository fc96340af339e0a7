"""Files of TOML that people write: every fault is named by line and column, all faults at once.

`tomllib` reports the place of a syntax error, and no place of a key.  So if there is a fault to report, a text that it has read
is scanned once more for the places of its statements.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from flowsched.boundary.files import read
from flowsched.boundary.validate import nearest, quoted
from flowsched.exceptions import FlowschedError, InputError

NEEDED = object()
"""Default of a key that must be there."""

_LONGEST = 1 << 26
"""Bytes of a file."""

Check = Callable[[str, Any], Any]
"""A check of `flowsched.boundary.validate`: given the name and the value, it returns the value."""

Where = tuple[str | int, ...]
"""Keys from the top of a file to a value; a table of an array has its index."""

_TOKEN = re.compile(
    r'''"""(?:\\.|[^\\])*?""""{0,2}|\'\'\'.*?\'\'\'\'{0,2}|"(?:\\.|[^"\\])*"|'[^']*'|#[^\n]*|[\[\]{}=.\n]|[^\s"'#\[\]{}=.]+''',
    re.DOTALL,
)


def places(text: str) -> dict[Where, int]:
    """Return the offset of the statement or heading of each key of a valid text; keys of inline tables are not looked for."""
    found: dict[Where, int] = {}
    arrays: dict[Where, int] = {}  # last index of arrays of tables
    table: Where = ()
    line: list[re.Match[str]] = []
    depth = 0
    for match in _TOKEN.finditer(f"{text}\n"):
        depth += (match[0] in ("[", "{")) - (match[0] in ("]", "}"))
        if match[0] != "\n" or depth:
            line += [match] * (match[0][0] != "#")
            continue
        brackets = 0 if not line or line[0][0] != "[" else 2 if line[1][0] == "[" else 1
        path = () if brackets else table
        for token in line[brackets:]:
            if token[0] in ("=", "]"):
                break
            if token[0] != ".":
                path += (arrays[path],) if brackets and path in arrays else ()
                path += (next(iter(tomllib.loads(f"{token[0]}=0"))),)
                found.setdefault(path, line[0].start())
        if brackets == 2:
            arrays[path] = arrays.get(path, -1) + 1
            path += (arrays[path],)
            found[path] = line[0].start()
        table = path if brackets else table
        line = []
    return found


class TomlFile:
    """A file of TOML, and the faults that are found in it.  `content` stands for that of the file, if it is given."""

    def __init__(self, path: str | os.PathLike[str], content: bytes | None = None) -> None:
        self.path = Path(path)
        raw = read(self.path, _LONGEST) if content is None else content
        try:
            self._text = raw.decode()
            self.content = tomllib.loads(self._text)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"{path}: {error}") from None
        self.faults: list[tuple[Where, str]] = []
        """Path of a key, and its fault; a missing key has the place of its table."""

    def check(self) -> None:
        """Raise InputError with a line for each fault, in the order of the file, if there are any."""
        found, lines = places(self._text) if self.faults else {}, []
        for where, message in self.faults:
            at = next((found[where[:i]] for i in range(len(where), 0, -1) if where[:i] in found), 0)
            line, column = self._text.count("\n", 0, at) + 1, at - self._text.rfind("\n", 0, at)
            lines.append((line, column, f"{self.path}, line {line}, column {column}: {message}"))
        if lines:
            raise InputError("\n".join(message for *_, message in sorted(lines, key=lambda line: line[:2])))

    def table(self, where: Where, keys: Mapping[str, tuple[Check, Any]], what: str | None = None) -> dict[str, Any]:
        """Return the checked values of a table, which may be missing, or their defaults.

        `where` is its path, () for the file itself; `keys` are those that it may have, or must have (`NEEDED`), each
        with a check and a default; `what` is its name in messages, by default its path.
        """
        what = ".".join(map(str, where)) if what is None else what
        given: Any = self.content
        for key in where:
            given = given[key] if isinstance(key, int) else given.get(key, {}) if isinstance(given, dict) else {}
        if not isinstance(given, dict):
            self.faults.append((where, f"{what}: a table expected, got {quoted(given)}"))
            given = {}
            keys = {key: (check, None if default is NEEDED else default) for key, (check, default) in keys.items()}
        known = ", ".join(sorted(keys))
        for key in given.keys() - keys.keys():
            self.made((*where, key), what, partial(_refuse, f"unknown; known: {known}{nearest(key, keys)}"))

        def value(key: str, check: Check, default: Any) -> Any:
            return (
                check(key, given[key]) if key in given else default if default is not NEEDED else _refuse("is missing")
            )

        usual = {key: None if default is NEEDED else default for key, (_, default) in keys.items()}
        return {k: self.made((*where, k), what, partial(value, k, *keys[k]), usual[k]) for k in keys}

    def made(self, where: Where, what: str, make: Callable[[], Any], default: Any = None) -> Any:
        """Call `make` and return its result; its error is a fault of the last key of a path."""
        try:
            return make()
        except FlowschedError as error:
            key = str(where[-1])
            said = str(error).removeprefix(key).lstrip(": ")
            self.faults.append((where, ": ".join(filter(None, (what, key, said)))))
            return default


def _refuse(message: str) -> None:
    raise InputError(message)
