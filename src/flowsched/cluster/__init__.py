"""The cluster: machines, jobs, tasks and users, the events that change them, and their state.  It does not use networks."""

from flowsched.cluster.model import MICRO, Job, Machine, Resources, Task, Tasks, User
from flowsched.cluster.state import Cluster

__all__ = ["MICRO", "Cluster", "Job", "Machine", "Resources", "Task", "Tasks", "User"]
