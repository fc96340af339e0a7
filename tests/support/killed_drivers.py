"""Drivers that are killed with kill -9 again and again, each of which goes on where the last one was."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import flowsched as fs
from flowsched.run import Driver

_DRIVER = """
import asyncio, pathlib, sys
import flowsched as fs
from flowsched.run import Driver
{imports}

async def main(folder, count):
    sched = {scheduler}
    driver = Driver(sched, {executor})
    line = f"echo $0 >> {{folder}}/begun; sleep 0.15; echo $0 >> {{folder}}/done"
    commands = {{f"t{{i}}": ["sh", "-c", line, f"t{{i}}"] for i in range(count)}}
    print("begun", flush=True)
    known = driver.attach(commands)
    submitted = pathlib.Path(f"{{folder}}/submitted")
    async with driver:
        if not known and not submitted.exists():
            job = fs.JobSubmitted("job", [fs.Task(id, {{"cpu": 1}}, kind="k") for id in commands])
            driver.submit(job, commands)
        submitted.touch()
        await driver.drained()
        print(driver.stats)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


_PLAIN = 'fs.Scheduler(resources=("cpu",), journal=f"{folder}/journal")'


def kill_again_and_again(
    folder: Path, imports: str, executor: str, count: int, step: float, scheduler: str = _PLAIN
) -> None:
    """Run drivers over `folder` until one comes to the end of `count` tasks; every task was begun once and done once.

    Parameters
    ----------
    folder : Path
    imports, executor, scheduler : str
        Code; the latter two expressions, with `folder` as a name.
    count : int
    step : float
        The first drivers live for a tenth of a second and up to six steps.
    """
    environment = os.environ | {"PYTHONPATH": str(Path(fs.__file__).parents[1])}
    code = _DRIVER.format(imports=imports, executor=executor, scheduler=scheduler)
    command = [sys.executable, "-c", code, str(folder), str(count)]
    kills = 0
    for i in range(60):
        driver = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert driver.stdout is not None
            driver.stdout.readline()  # a busy machine imports slowly
            # They live longer and longer, so that a busy machine comes to the end, too.
            out, err = driver.communicate(timeout=(0.1 + step * (i % 7)) * 1.06**i)
        except subprocess.TimeoutExpired:
            driver.send_signal(signal.SIGKILL)
            driver.communicate()
            kills += 1
            continue
        assert driver.returncode == 0, err
        assert re.search("'rounds'", out)
        break
    else:
        pytest.fail("it never came to its end")
    assert kills >= 2
    names = sorted(f"t{i}" for i in range(count))
    for what in ("begun", "done"):
        times = Counter((folder / what).read_text().split())
        assert times == Counter(names), (what, times - Counter(names), Counter(names) - times)


@asynccontextmanager
async def dying(driver: Driver) -> AsyncIterator[Driver]:
    """Begin a driver that dies at the end of the block: nothing is stopped, and the next one may have its journal."""
    await driver.__aenter__()
    try:
        yield driver
    finally:
        assert driver._owner is not None and driver.scheduler.journal is not None
        driver._owner.cancel()
        await driver.executor.close()
        driver.scheduler.journal.close()


__all__ = ["dying", "kill_again_and_again"]
