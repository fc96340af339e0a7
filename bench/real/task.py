"""One task: ``task.py busy SECONDS PART`` or ``task.py grow SECONDS MIB``.

``busy`` computes for a part of one CPU's time, as long as that takes; ``grow`` takes memory evenly.
"""

import sys
import time

STEP = 0.02


def busy(seconds: float, part: float) -> None:
    """Use ``seconds * part`` CPU seconds, at most a part of the time."""
    done = 0.0
    while done < seconds * part:
        start = time.thread_time()
        while time.thread_time() - start < STEP * part:
            pass
        done += time.thread_time() - start
        time.sleep(STEP * (1 - part))


def grow(seconds: float, mebibytes: float) -> None:
    """Take memory evenly until the end."""
    held = []
    for _ in range(int(mebibytes)):
        held.append(bytearray(1 << 20))
        time.sleep(seconds / mebibytes)


if __name__ == "__main__":
    {"busy": busy, "grow": grow}[sys.argv[1]](*map(float, sys.argv[2:]))
