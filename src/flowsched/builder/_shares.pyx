"""Shares, compiled: counts of jobs, claims, and the bounds of bundles; see `flowsched.builder.shares`.

Arrays by job are indexed as `Claimants.index` states, arrays by claimant by its number.  ``of[job]`` is the number of the claimant of a job, and `jobs` has the
indices of all jobs in order of arrival, the order in which numbers are summed.
"""

from libc.stdint cimport int64_t, uint8_t

from flowsched.cluster._room cimport InventoryColumns, check
from flowsched.cluster.records cimport Group, JobRecord

from operator import attrgetter

import numpy as np


cdef class JobCountsColumns:
    """Columns of `JobCounts`."""

    cdef public int64_t[::1] tasks, waiting, infeasible
    cdef public double[:, ::1] demand, held


cdef class UnscheduledArcsColumns:
    """Columns of `UnscheduledArcs`."""

    cdef public int64_t[::1] tail, head, base, slack, capacity, price, lower, room
    cdef public int64_t[:, ::1] rung, width


def ranked(dict index not None, bint users, int64_t[::1] of not None, /):
    """Return claimants in order of arrival, the jobs of each, and the indices of all jobs; set the number of each job's claimant in `of`.

    Parameters
    ----------
    index : dict of JobRecord to int
    users : bool
        True if users claim, False if jobs do.
    of : ndarray of int64
        By index of the job.
    """
    cdef dict numbers = {}
    cdef list members = [], jobs = sorted(index, key=attrgetter("serial"))
    cdef Py_ssize_t k
    cdef int64_t[::1] at
    found = np.empty(len(jobs), np.int64)
    at = found
    for k in range(len(jobs)):
        job = jobs[k]
        claimant = (<JobRecord?> job).job.user if users else (<JobRecord?> job).job.id
        number = numbers.setdefault(claimant, len(numbers))
        if number == len(members):
            members.append([])
        (<list> members[number]).append(job)
        at[k] = index[job]
        check(at[k], of.shape[0], "job")
        of[at[k]] = number
    return tuple(numbers), members, found


def recount(counts, jobs, dict index not None, /):
    """Bring the counts of jobs up to date, except for those without an index; return True if there were any."""
    cdef JobCountsColumns at = counts.typed
    cdef InventoryColumns world = counts.cluster.inventory.typed
    cdef dict feasible = counts.feasible, waived = counts.waived
    cdef Py_ssize_t d, width = min(at.demand.shape[1], world.demand.shape[1])
    cdef int64_t i, c, waiting, claiming, infeasible
    cdef bint some = False
    cdef Group group
    for job in jobs:
        found = index.get(job)
        if found is None:
            continue
        some = True
        i = found
        check(i, at.tasks.shape[0], "job")
        at.tasks[i] = at.waiting[i] = at.infeasible[i] = 0
        for d in range(width):
            at.demand[i, d] = at.held[i, d] = 0.0
        for group in (<JobRecord?> job).each_group():
            c, waiting, claiming = group.cls.index, group.waiting.count, 0
            check(c, world.demand.shape[0], "class")
            if feasible.get(group.cls, True):
                claiming = waived.get(group, waiting)
            infeasible = max(waiting - claiming, 0)
            at.tasks[i] += group.tasks
            at.waiting[i] += waiting
            at.infeasible[i] += infeasible
            for d in range(width):
                at.demand[i, d] += <double> (group.tasks - infeasible) * <double> world.demand[c, d]
                at.held[i, d] += <double> (group.tasks - waiting) * <double> world.demand[c, d]
    return some


def totals(counts, const int64_t[::1] jobs not None, const int64_t[::1] of not None, Py_ssize_t n, /):
    """Return the tasks of each of n claimants, and the waiting ones among them, shape (n,)."""
    cdef JobCountsColumns at = counts.typed
    tasks, waiting = np.zeros(n, np.int64), np.zeros(n, np.int64)
    cdef int64_t[::1] all_ = tasks, idle = waiting
    cdef Py_ssize_t k
    for k in range(jobs.shape[0]):
        check(jobs[k], min(of.shape[0], at.tasks.shape[0]), "job")
        check(of[jobs[k]], n, "claimant")
        all_[of[jobs[k]]] += at.tasks[jobs[k]]
        idle[of[jobs[k]]] += at.waiting[jobs[k]]
    return tasks, waiting


def claims(counts, const int64_t[::1] jobs not None, const int64_t[::1] of not None, Py_ssize_t n, const double[::1] capacity not None, /):
    """Return the amounts of the claims of n claimants; see `flowsched.policy.claims.Claims`.

    Parameters
    ----------
    counts : JobCounts
    jobs, of : ndarray of int64
    n : int
    capacity : ndarray of float64, shape (D,)
        Of each resource, and then that of the slots if these are limited.

    Returns
    -------
    tasks, running : ndarray of int64, shape (n,)
    demand, held, further : ndarray of float64, shape (n, D)
    """
    cdef JobCountsColumns at = counts.typed
    cdef Py_ssize_t k, i, d, resources = at.demand.shape[1], width = capacity.shape[0]
    if not resources <= width <= resources + 1:
        raise ValueError("claims: capacities of other resources")
    tasks, running = np.zeros(n, np.int64), np.zeros(n, np.int64)
    demand, held, further = np.zeros((n, width)), np.zeros((n, width)), np.zeros((n, width))
    cdef int64_t[::1] all_ = tasks, busy = running
    cdef double[:, ::1] mean = demand, use = held, more = further
    cdef int64_t job, idle
    for k in range(jobs.shape[0]):
        job = jobs[k]
        check(job, min(of.shape[0], at.tasks.shape[0]), "job")
        check(of[job], n, "claimant")
        i = of[job]
        all_[i] += at.tasks[job] - at.infeasible[job]
        busy[i] += at.tasks[job] - at.waiting[job]
        for d in range(resources):
            mean[i, d] += at.demand[job, d]
            use[i, d] += at.held[job, d]
    for i in range(n):
        idle = all_[i] - busy[i]
        if width > resources:
            mean[i, resources], use[i, resources] = all_[i], busy[i]
        for d in range(width):
            if idle > 0:
                more[i, d] = max(mean[i, d] - use[i, d], 0.0) / idle
            mean[i, d] /= max(all_[i], 1)
            if idle <= 0:
                more[i, d] = mean[i, d]
    return tasks, running, demand, held, further


def rivals(list members not None, dict index not None, counts, const uint8_t[::1] full not None, within, /):
    """Return the jobs with waiting tasks that are better than running ones of the same claimant, and all jobs of that claimant.

    Parameters
    ----------
    members : list of list of JobRecord
        Jobs of each claimant.
    index : dict of JobRecord to int
    counts : JobCounts
    full : ndarray of bool, shape (claimants,)
        Claimants at their bounds; others are left out.
    within : ndarray of int64 or None
        Bounds of the jobs themselves; jobs at theirs are left out.
    """
    cdef JobCountsColumns at = counts.typed
    cdef const int64_t[::1] most
    cdef bint bounded = within is not None
    cdef Py_ssize_t k
    cdef int64_t i, worst
    cdef list found = [], better
    cdef Group group
    cdef bint runs
    if bounded:
        most = within
    for k in range(min(len(members), full.shape[0])):
        if not full[k]:
            continue
        runs, worst = False, 0
        for job in <list?> members[k]:
            for group in (<JobRecord?> job).each_group():
                if group.tasks > group.waiting.count and (not runs or group.cls.priority > worst):
                    runs, worst = True, group.cls.priority
        if not runs:
            continue
        better = []
        for job in <list> members[k]:
            i = index[job]
            check(i, at.tasks.shape[0], "job")
            if not at.waiting[i]:
                continue
            if bounded:
                check(i, most.shape[0], "job")
                if at.tasks[i] - at.waiting[i] >= most[i]:
                    continue
            for group in (<JobRecord> job).each_group():
                if group.cls.priority < worst:
                    better.append(job)
                    break
        if better:
            found.append((better, members[k]))
    return found


def bound(mirror, const int64_t[::1] at not None, const int64_t[::1] tasks not None, const int64_t[::1] waiting not None,
          const int64_t[::1] guaranteed not None, const int64_t[::1] least not None, const int64_t[::1] most not None, int64_t price, int64_t whole, /):
    """Bound running tasks behind bundles in the mirror; see `UnscheduledArcs.bound_running`.

    Parameters
    ----------
    mirror : UnscheduledArcs
    at, tasks, waiting, guaranteed, least, most, price
        See `UnscheduledArcs.bound_running`.
    whole : int
        Capacity of a base arc.

    Returns
    -------
    opened, priced, lowered : tuple of (list of int, list of int)
        Base arcs that get another capacity, cost or lower bound, each with its new value.
    roomy : tuple of (list of int, list of int)
        Bundles of which the slack arc gets another capacity.
    missing : list of int
        Bundles without a slack arc that now need one.
    """
    cdef UnscheduledArcsColumns of = mirror.typed
    cdef list opened = [], priced = [], lowered = [], roomy = [], missing = [], costs = [], bounds = [], rooms = []
    cdef Py_ssize_t k, n = at.shape[0]
    cdef int64_t i, lower, held, room, cost
    if not n == tasks.shape[0] == waiting.shape[0] == guaranteed.shape[0] == least.shape[0] == most.shape[0]:
        raise ValueError("bound: arrays of different lengths")
    for k in range(n):
        i = at[k]
        check(i, of.base.shape[0], "bundle")
        lower = min(max(tasks[k] - max(most[k], tasks[k] - waiting[k]), 0), waiting[k])
        held = min(least[k], tasks[k] - lower)
        room = tasks[k] - lower - held
        cost = 2 * price if min(guaranteed[k], tasks[k] - lower) > 0 else price
        if of.capacity[i] != whole:
            of.capacity[i] = whole
            opened.append(of.base[i])
        if of.price[i] != cost:
            of.price[i] = cost
            priced.append(of.base[i])
            costs.append(cost)
        if of.lower[i] != lower:
            of.lower[i] = lower
            lowered.append(of.base[i])
            bounds.append(lower)
        if of.slack[i] < 0 and room > 0:
            missing.append(i)
        if of.room[i] != room:
            of.room[i] = room
            roomy.append(i)
            rooms.append(room)
    return (opened, [whole] * len(opened)), (priced, costs), (lowered, bounds), (roomy, rooms), missing
