"""A scheduler is killed in the middle of its work, and the next process continues its work."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import flowsched as fs

WORK = """
import sys
import flowsched as fs

sched = fs.Scheduler(resources=("cpu",), journal=sys.argv[1])
sched.apply(*(fs.MachineAdded(f"m{i}", {"cpu": 4}) for i in range(10)))
for i in range(100_000):
    sched.apply(fs.JobSubmitted(i, [fs.Task(i, {"cpu": 1})]))
    sched.commit(sched.schedule(now=float(i)))
    print(i, flush=True)  # acknowledged only after it is in the journal
    if i >= 30:
        sched.apply(fs.TaskCompleted(i - 30), fs.JobRemoved(i - 30))
"""

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "journal"
    child = subprocess.Popen([sys.executable, "-c", WORK, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    acknowledged = -1
    for line in child.stdout:
        acknowledged = int(line)
        if acknowledged == 200:
            os.kill(child.pid, signal.SIGKILL)  # no handler sees this
            break
    for line in child.stdout:  # lines that it printed before the kill reached it
        if line.endswith("\n"):
            acknowledged = int(line)
    child.wait()

    sched = fs.Scheduler(resources=("cpu",), journal=path)
    assert sched.recovery is not None
    print("killed by SIGKILL, then recovered")
    print("every acknowledged job is there:", sched.cluster.placement(acknowledged) is not None)
    print("rounds that differ:", len(sched.recovery.differences))
    sched.apply(fs.JobSubmitted("next", [fs.Task("next", {"cpu": 1})]))
    print("continues:", list(sched.schedule(now=1e6).placements))
    sched.compact()
    print("journal compacted; the next recovery reads one snapshot")
    sched.journal.close()
