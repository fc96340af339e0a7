"""The world: machines, jobs, tasks and users, what happens to them, and what is.  It knows nothing of networks."""

from flowsched.cluster.model import MICRO, Job, Machine, Resources, Task, User
from flowsched.cluster.state import Cluster

__all__ = ["MICRO", "Cluster", "Job", "Machine", "Resources", "Task", "User"]
