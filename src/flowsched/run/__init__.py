"""Execution of decisions: a driver carries out a scheduler's rounds through an executor and reports events back.

`Driver` is an asyncio loop around a `flowsched.Scheduler`.  An `Executor` starts and stops runs: `LocalExecutor`
processes on this machine, `flowsched.run.dask.DaskExecutor` calls on a Dask cluster, `flowsched.run.ray.RayExecutor`
calls on a Ray cluster, `flowsched.run.ssh.SSHExecutor` commands on other hosts, `flowsched.run.slurm.SlurmExecutor` jobs
of Slurm, `flowsched.run.kubernetes.KubernetesExecutor` pods.
"""

from flowsched.run.command import Command, ExitStatusError
from flowsched.run.driver import Driver
from flowsched.run.executor import (
    Broken,
    Counting,
    Ended,
    Executor,
    ExecutorError,
    Failed,
    Holding,
    Left,
    NeverRunsError,
    Run,
    Started,
    Stopped,
    TaskCancelledError,
    TaskLostError,
    Told,
)
from flowsched.run.local import LocalExecutor, capacity_here

__all__ = [
    "Broken",
    "Command",
    "Counting",
    "Driver",
    "Ended",
    "Executor",
    "ExecutorError",
    "ExitStatusError",
    "Failed",
    "Holding",
    "Left",
    "LocalExecutor",
    "NeverRunsError",
    "Run",
    "Started",
    "Stopped",
    "TaskCancelledError",
    "TaskLostError",
    "Told",
    "capacity_here",
]
