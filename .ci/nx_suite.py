"""Run NetworkX's own tests of flows on its backend "flowsched", and count the calls that it answered.

    python .ci/nx_suite.py [PYTEST ARGUMENTS]

NetworkX must fall back to its own code where the backend declines a call (one that asks for another algorithm by
``flow_func``, or has fractions), so that passing alone proves nothing: each function of the backend must have answered
some calls.  Where flowsched is not installed but only importable, its entry points are taken from pyproject.toml.
"""

import functools
import importlib
import importlib.metadata
import os
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

SUITE = "networkx.algorithms.flow"
LEAST_CALLS = 2000  # the suite of NetworkX 3.6 makes about 6,600


class Calls:
    """Counts what NetworkX asks of the backend: calls answered (by a result or an error of NetworkX), and declined."""

    def __init__(self) -> None:
        self.answered: Counter[str] = Counter()
        self.declined: Counter[str] = Counter()
        self._depth = 0  # the backend's functions call each other

    def watch(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, with its calls counted."""

        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            try:
                result = function(*args, **kwargs)
            except NotImplementedError:
                self._depth -= 1
                self.declined[name] += not self._depth
                raise
            except BaseException:
                self._depth -= 1
                self.answered[name] += not self._depth
                raise
            self._depth -= 1
            self.answered[name] += not self._depth
            return result

        return counted

    def watch_run(self, can_run: Callable[..., bool | str]) -> Callable[..., bool | str]:
        """Return `can_run`, with its refusals counted."""

        @functools.wraps(can_run)
        def counted(name: str, args: Any, kwargs: Any) -> bool | str:
            answer = can_run(name, args, kwargs)
            self.declined[name] += answer is not True
            return answer

        return counted


def register(folder: str) -> None:
    """Make the entry points of pyproject.toml known, as an installation would."""
    project = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text())["project"]
    info = Path(folder) / f"flowsched-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: flowsched\nVersion: {project['version']}\n")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items())
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups))
    sys.path.insert(0, folder)


def main(arguments: list[str]) -> int:
    """Run the suite; return 0 if it passed and the backend had its part in it."""
    os.environ["NETWORKX_TEST_BACKEND"] = "flowsched"
    os.environ["NETWORKX_FALLBACK_TO_NX"] = "True"
    import pytest

    with tempfile.TemporaryDirectory() as folder:
        if not importlib.metadata.entry_points(group="networkx.backends", name="flowsched"):
            register(folder)
        import networkx

        names = sorted(networkx.utils.backends.backend_info["flowsched"]["functions"])
        backend = importlib.import_module("flowsched.nx_backend")
        calls = Calls()
        for name in names:
            setattr(backend, name, calls.watch(name, getattr(backend, name)))
        backend.can_run = calls.watch_run(backend.can_run)
        status = int(pytest.main(["-q", "-p", "no:cacheprovider", "--pyargs", SUITE, *arguments]))
    print(f"{'function':20} {'answered':>9} {'declined':>9}")
    for name in names:
        print(f"{name:20} {calls.answered[name]:9} {calls.declined[name]:9}")
    idle = [name for name in names if not calls.answered[name]]
    total = sum(calls.answered.values())
    print(f"{total} calls answered by flowsched")
    if idle or total < LEAST_CALLS:
        print(
            f"too few: at least {LEAST_CALLS} expected, and some of each function (none of: {', '.join(idle) or '-'})"
        )
        return status or 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
