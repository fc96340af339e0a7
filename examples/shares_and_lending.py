"""Three users share a cluster: by weights, with a guarantee, and over time by the deployment sequence."""

import flowsched as fs
from flowsched import sharing

USERS = {"ann": (3, 4), "bob": (1, 20), "eve": (1, 20)}  # quota, tasks


def cluster(fairness: fs.Fairness) -> fs.Scheduler:
    """Four machines of five cores, and the three users with their tasks."""
    sched = fs.Scheduler(fs.Policy(fairness=fairness), resources=("cpu",))
    sched.apply(*(fs.MachineAdded(f"node-{i}", {"cpu": 5}) for i in range(4)))
    for user, (quota, tasks) in USERS.items():
        sched.apply(
            fs.UserAdded(user, quota=quota),
            fs.JobSubmitted(user, [fs.Task(f"{user}-{i}", {"cpu": 1}) for i in range(tasks)], user=user),
        )
    return sched


def show(title: str, rnd: fs.Round) -> None:
    """Print the shares of a round."""
    print(title)
    for user, share in rnd.shares.items():
        lent = f", lends {share.lent}" if share.lent else ""
        borrowed = f", borrows {share.borrowed}" if share.borrowed else ""
        print(f"    {user}: entitled to {share.entitled}, runs {share.running}{lent}{borrowed}")


sched = cluster(fs.Fairness(fs.WeightedMaxMin(), over="user"))
rnd = sched.schedule(now=0.0)
sched.commit(rnd)
show("20 cores by weights 3 : 1 : 1; ann has four tasks only", rnd)

sched.apply(fs.JobSubmitted("more", [fs.Task(f"more-{i}", {"cpu": 1}) for i in range(10)], user="ann"))
sched.policy = fs.Policy(fairness=fs.Fairness(fs.WeightedMaxMin(), over="user", reclaim=True))
rnd = sched.schedule(now=10.0)
sched.commit(rnd)
show(f"ann comes back and reclaims her part: {len(rnd.preemptions)} tasks stop", rnd)

limits = {"bob": fs.Limits(guarantee=8), "eve": fs.Limits(maximum=2)}
show("bob is guaranteed 8, eve may run 2", cluster(fs.Fairness(fs.MaxMin(), "user", limits=limits)).schedule(now=0.0))

users = "".join("ABE"[user] for user in sharing.sequence([3, 1, 1]))
print(f"over time, one period of the deployment sequence for 3 : 1 : 1 is {users}")
