"""Records of tasks and machines, and the chains in which tasks stand.

There may be millions of records, so they have no header for the garbage collector (``no_gc``): a full collection scans
jobs and groups alone.  What the collector does not see may not be part of a cycle:

(C)  A task's record refers to its group, and nothing that is reached from a group owns a record.  `Cluster.tasks` owns all
     records.  Chains borrow them.  An id that refers back to its cluster would keep both for ever.

A *chain* is a doubly linked list through its records.  A record has two links: `PLACE` is of the chain of those that wait in
its group or run on its machine, `JOB` of the chain of its job.

(L)  A link has either no chain, or a living one in which ``a.next is b`` if and only if ``b.prev is a``; ``count`` records are
     between ``first`` and ``last``.
(D)  A record that is freed leaves its chains first, and a chain that is freed lets go of its records.  So no pointer
     outlives its target.
(X)  Every change of links is whole: it cannot fail once it has begun.

Loops hold a reference to the current record only; methods that return several make a list first, so the caller may alter the
chain in the meantime.
"""

cimport cython
from libc.math cimport INFINITY, NAN
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from flowsched.cluster._room cimport MICRO, RESOURCE, SLOTS, InventoryColumns, MovedFields, TypedColumns, fs_fetch

from collections import namedtuple
from math import inf
from operator import attrgetter
from types import MappingProxyType

from numpy import bool_, empty, float64, int64, uint8

from flowsched.cluster.model import Job, Machine

__all__ = ["Before", "Chain", "Changes", "Group", "IdPool", "JobRecord", "MachineRecord", "Placement", "TaskClass", "TaskRecord", "Transaction", "World"]

cdef extern from "Python.h":
    int Py_tp_descr_set
    void PyObject_GC_UnTrack(void* it)
    void* PyType_GetSlot(type of, int slot)
    object PyType_GenericAlloc(type of, Py_ssize_t count)
    void PyTuple_SET_ITEM(object it, Py_ssize_t at, void* value)    # takes over a reference
    void Py_INCREF(object it)

cdef class RunningTasksColumns:
    """Columns of `RunningTasks`."""

Placement = namedtuple("Placement", "row devices since", module=__name__)
Placement.__doc__ = "Row and devices of a running task, and the time of its start."

cdef object new = object.__new__, put = object.__setattr__
cdef object placement = Placement, highest = inf, lowest = -inf
cdef object _NOTHING = MappingProxyType({}), _NONE = frozenset()


ctypedef int (*Setter)(object slot, object of, object value) except -1

cdef tuple job_slots = (Job.id, Job.user, Job.priority, Job.gang, Job.deadline, Job.closed)
cdef Setter fill_slot = <Setter> PyType_GetSlot(type(Job.id), Py_tp_descr_set)    # a frozen dataclass is filled by its slots


cdef bint plainly(value, double* at) except -1:
    """Store a float, or NaN for None; return False for another value."""
    if value is None:
        at[0] = NAN
        return True
    if type(value) is not float or value != value:
        return False
    at[0] = value
    return True


cdef list options(array):
    """Return the values of an array, in which NaN is None."""
    cdef list found = array.tolist()
    cdef Py_ssize_t i
    for i in range(len(found)):
        if found[i] != found[i]:
            found[i] = None
    return found


@cython.final
@cython.no_gc
@cython.auto_pickle(False)
cdef class TaskRecord:
    """One task.

    Attributes
    ----------
    id : hashable
    group : Group
    index : int
    turn : int
        Orders everything that ever began to wait or to run: it grows, so equal turns mean that nothing happened to the
        task in between.
    since : float or None
        When it began to wait; None until a round sets the time.
    row : int
        Row of the machine where it runs, -1 while it waits.
    devices : tuple of int
        Devices on which it runs.
    began : float
        When it started.
    place : Placement or None
        The three together, None while it waits.
    gone : bool
    preempted : float
        When it was preempted last, -inf if never.
    duration : float
        Estimate of its run time, infinite without one.
    run : int
        Number of its present run, or of the last one while it waits; 0 before the first.  Moves that are tried and taken
        back alter no number.
    """

    __slots__ = ("id", "group", "index", "turn", "since", "row", "devices", "began", "gone", "preempted", "duration", "run")
    __numbers__ = ("index", "turn", "since", "row", "began", "gone", "preempted", "duration", "run")

    def __cinit__(self):
        self.devices = ()
        self.preempted, self.duration = lowest, highest
        self.row = -1

    def __init__(self, id, group, int32_t index, int64_t turn, since, duration=highest):
        self.id, self.group, self.index, self.turn, self.since, self.duration = id, group, index, turn, since, duration

    def __dealloc__(self):
        leave(<void*> self, PLACE)
        leave(<void*> self, JOB)

    def __lt__(self, TaskRecord other not None):
        return self.turn < other.turn

    def __hash__(self):
        return <Py_ssize_t> (<size_t> <void*> self >> 4)

    def __repr__(self):
        return f"<TaskRecord of {self.id!r}>"

    @staticmethod
    def __columns__(list tasks not None):
        """Return the values of all slots, by name, each over the tasks, for checkpoints: arrays of numbers, else lists.

        NaN in an array is None.
        """
        cdef TaskRecord task
        cdef Py_ssize_t i, count = len(tasks)
        numbers, times, gone = empty((4, count), int64), empty((4, count), float64), empty(count, bool_)
        cdef int64_t[:, ::1] at = numbers
        cdef double[:, ::1] then = times
        cdef uint8_t[::1] left = gone.view(uint8)
        cdef list ids = [None] * count, groups = [None] * count, devices = [None] * count
        cdef bint plain = True
        for i in range(count):
            task = tasks[i]
            at[0, i], at[1, i], at[2, i], at[3, i] = task.index, task.turn, task.row, task.run
            ids[i], groups[i], devices[i], left[i] = task.id, task.group, task.devices, task.gone
            plain = plain and plainly(task.since, &then[0, i]) and plainly(task.began, &then[1, i])
            plain = plain and plainly(task.preempted, &then[2, i]) and plainly(task.duration, &then[3, i])
        found = dict(id=ids, group=groups, index=numbers[0], turn=numbers[1], since=times[0], row=numbers[2], devices=devices)
        found.update(began=times[1], gone=gone, preempted=times[2], duration=times[3], run=numbers[3])
        if not plain:
            for name in ("since", "began", "preempted", "duration"):
                found[name] = list(map(attrgetter(name), tasks))
        return found

    @staticmethod
    def __fill__(list tasks not None, dict columns not None):
        """Set all slots of empty records from such columns."""
        cdef TaskRecord task
        cdef Py_ssize_t i, count = len(tasks)
        if columns.keys() != set(TaskRecord.__slots__) or set(map(len, columns.values())) != {count}:
            raise TypeError("tasks of other parts")
        cdef const int64_t[::1] index = columns["index"], turn = columns["turn"], row = columns["row"], run = columns["run"]
        cdef list ids = columns["id"], groups = columns["group"], devices = columns["devices"]
        cdef list others = [columns["since"], columns["began"], columns["gone"], columns["preempted"], columns["duration"]]
        for i in range(count):
            task = tasks[i]
            if index[i] != <int32_t> index[i] or row[i] != <int32_t> row[i]:
                raise OverflowError("a number of a task or a row")
            task.index, task.turn, task.row, task.run = <int32_t> index[i], turn[i], <int32_t> row[i], run[i]
            task.id, task.group, task.devices = ids[i], groups[i], devices[i]
        for i in range(5):
            others[i] = others[i] if type(others[i]) is list else options(others[i])
        cdef list since, began, gone, preempted, durations
        since, began, gone, preempted, durations = others
        for i in range(count):
            task = tasks[i]
            task.since, task.began, task.gone, task.preempted, task.duration = since[i], began[i], gone[i], preempted[i], durations[i]

    @property
    def place(self):
        return None if self.row < 0 else placement(self.row, self.devices, self.began)


cdef void leave(void* it, int which) noexcept:
    """Take a record out of its chain, if it is in one."""
    cdef Link* link = &(<TaskRecord> it).link[which]
    if not link.chain:
        return
    if link.prev:
        (<TaskRecord> link.prev).link[which].next = link.next
    else:
        (<Chain> link.chain).first = link.next
    if link.next:
        (<TaskRecord> link.next).link[which].prev = link.prev
    else:
        (<Chain> link.chain).last = link.prev
    (<Chain> link.chain).count -= 1
    link.chain = link.next = link.prev = NULL


cdef void enter(void* it, Chain chain, void* behind) noexcept:
    """Put a record that is in no chain of this kind behind another one of the chain, or in front of all."""
    cdef int which = chain.which
    cdef Link* link = &(<TaskRecord> it).link[which]
    link.chain = <void*> chain
    link.prev = behind
    if behind:
        link.next = (<TaskRecord> behind).link[which].next
        (<TaskRecord> behind).link[which].next = it
    else:
        link.next = chain.first
        chain.first = it
    if link.next:
        (<TaskRecord> link.next).link[which].prev = it
    else:
        chain.last = it
    chain.count += 1


@cython.final
@cython.no_gc
@cython.auto_pickle(False)
cdef class Chain:
    """Tasks in an order, as a linked list; iteration is over those that are in it when it begins.

    Parameters
    ----------
    job : bool
        The tasks of a job; otherwise those that wait in a group or run on a machine.
    """

    __slots__ = ("job",)        # the only field of an image; the tasks are in the cluster's image

    def __cinit__(self, bint job=False):
        self.which = JOB if job else PLACE

    def __dealloc__(self):
        while self.first:
            leave(self.first, self.which)

    def __len__(self):
        return self.count

    def __contains__(self, record):
        return isinstance(record, TaskRecord) and (<TaskRecord> record).link[self.which].chain == <void*> self

    def __iter__(self):
        return iter(self.some(0, self.count))

    def __reversed__(self):
        return reversed(self.some(0, self.count))

    def __getitem__(self, where):
        cdef Py_ssize_t at
        if isinstance(where, slice):
            first, end, step = where.indices(self.count)
            return self.some(first, end)[::step] if step > 0 else self.some(0, self.count)[where]
        at = where
        if at == -1 and self.last:
            return <TaskRecord> self.last
        if at < 0:
            at += self.count
        if not 0 <= at < self.count:
            raise IndexError("no task has this position")
        return self.some(at, at + 1)[0]

    def __repr__(self):
        return f"Chain({self.some(0, self.count)!r})"

    cpdef TaskRecord head(self):
        """Return the first task, None without any."""
        return <TaskRecord> self.first if self.first else None

    cpdef list some(self, Py_ssize_t first, Py_ssize_t end):
        """Return the tasks from one position up to another one."""
        cdef list found = []
        cdef void* at = self.first
        cdef Py_ssize_t i
        for i in range(min(end, self.count)):
            if i >= first:
                found.append(<TaskRecord> at)
            at = (<TaskRecord> at).link[self.which].next
        return found

    def extend(self, list tasks not None, /):
        """Append tasks that are in no other chain of this kind.

        Raises
        ------
        ValueError
            One of them is in a chain; those in front of it have been appended.
        """
        append(self, tasks)

    def insert(self, list tasks not None, /):
        """Insert tasks in the order of their turns into a chain in this order.

        Nearly always they come at one of the ends: newcomers at the back, those of a round that is undone at the front.
        """
        insert(self, tasks)

    def remove(self, list tasks not None, /):
        """Take tasks out of the chain.

        Raises
        ------
        ValueError
            One of them is not in it; those in front of it are out.
        """
        take_out(self, tasks)

    def sort(self):
        """Put the tasks in the order of their turns."""
        cdef TaskRecord record
        cdef list tasks = sorted(self.some(0, self.count))
        for record in tasks:
            leave(<void*> record, self.which)
            enter(<void*> record, self, self.last)

    @property
    def job(self):
        return self.which == JOB

    @job.setter
    def job(self, bint job, /):
        if self.first:
            raise ValueError("a chain with tasks")
        self.which = JOB if job else PLACE


cdef int append(Chain chain, list tasks) except -1:
    cdef TaskRecord record
    for record in tasks:
        check_free(record, chain)
        enter(<void*> record, chain, chain.last)
    return 0


cdef int insert(Chain chain, list tasks) except -1:
    cdef void* low = NULL       # last record known to come before the task
    cdef void* high             # first record known to come after the task
    cdef void* at
    cdef TaskRecord record
    for record in tasks:
        check_free(record, chain)
        high = chain.last
        while high and (<TaskRecord> high).turn > record.turn:
            at = chain.first if low == NULL else (<TaskRecord> low).link[chain.which].next
            if (<TaskRecord> at).turn > record.turn:
                high = low
                break
            low = at
            high = (<TaskRecord> high).link[chain.which].prev
        enter(<void*> record, chain, high)
        low = <void*> record
    return 0


cdef int check_free(TaskRecord record, Chain chain) except -1:
    """Refuse a record that is in a chain of this kind."""
    if record is None:      # a typed variable may be None, and its links would be memory of others
        raise TypeError("a task expected, got None")
    if record.link[chain.which].chain:
        raise ValueError(f"task {record.id!r} is in a chain already")
    return 0


cdef int take_out(Chain chain, list tasks) except -1:
    cdef TaskRecord record
    for record in tasks:
        if record is None or record.link[chain.which].chain != <void*> chain:
            raise ValueError(f"task {getattr(record, 'id', None)!r} is not in this chain")
        leave(<void*> record, chain.which)
    return 0


@cython.final
@cython.no_gc
@cython.auto_pickle(False)
cdef class MachineRecord:
    """One machine.

    Attributes
    ----------
    id, capacity, rack, labels, slots, taints
        Those of the `Machine`; capacity and labels are shared by machines that are alike.
    machine : Machine
        The six together, made when it is read.
    row : int
        Its row in the inventory.
    failed, drained : bool
    tasks : Chain
        Those that run there.
    """

    __slots__ = ("id", "capacity", "rack", "labels", "slots", "taints", "row", "failed", "drained", "tasks")

    def __init__(self, machine, int32_t row):
        self.machine, self.row, self.tasks = machine, row, Chain()

    def __repr__(self):
        return f"<MachineRecord of {self.id!r}>"

    @property
    def machine(self):
        made = new(Machine)
        put(made, "id", self.id)
        put(made, "capacity", self.capacity)
        put(made, "rack", self.rack)
        put(made, "labels", self.labels)
        put(made, "slots", self.slots)
        put(made, "taints", self.taints)
        return made

    @machine.setter
    def machine(self, made, /):
        self.id, self.capacity, self.rack = made.id, made.capacity, made.rack
        self.labels, self.slots, self.taints = made.labels, made.slots, made.taints


@cython.final
@cython.auto_pickle(False)
cdef class TaskClass:
    """Tasks of any job with the same demand, constraints, priority and kind."""

    __slots__ = ("index", "key", "demand", "constraints", "priority", "kind", "prefers", "tolerations", "tasks")

    def __init__(self, int64_t index, tuple key, demand, constraints, int64_t priority, kind=None, prefers=_NOTHING, tolerations=()):
        self.index, self.key, self.demand, self.constraints, self.priority = index, key, demand, constraints, priority
        self.kind, self.prefers, self.tolerations = kind, prefers, tolerations

    def __repr__(self):
        return f"<TaskClass {self.index}>"

    @property
    def rank(self):
        """Sort key that does not depend on the order of arrival (without kinds, which may not be comparable)."""
        demand, constraints, priority = self.key[:3]
        if not constraints:
            return demand, constraints, priority
        # Label values cannot be compared with requirements.
        typed = tuple([(label, bool(wanted) and type(wanted[0]) is tuple, wanted) for label, wanted in constraints])
        return demand, typed, priority


@cython.final
@cython.auto_pickle(False)
cdef class Group:
    """Tasks of one job and one class with the same data: equal in every respect, so one node of the network.

    `waiting` is in order of the start of waiting; `on` has the start times of the running tasks, by machine row.
    """

    __slots__ = ("job", "cls", "serial", "data", "waiting", "on", "tasks")

    def __init__(self, JobRecord job, TaskClass cls, int64_t serial, tuple data=()):
        self.job, self.cls, self.serial, self.data = job, cls, serial, data
        self.waiting, self.on = Chain.__new__(Chain), {}

    def __repr__(self):
        return f"<Group {self.serial} of {self.job!r}>"

    @property
    def key(self):
        """Key among the groups of its job."""
        return (self.cls, frozenset(self.data)) if self.data else self.cls

    cpdef bint plain(self) except -1:
        """Return True without data and gang: its tasks have the same costs as others of its class and age."""
        return not self.data and self.job.job.gang is None


@cython.final
@cython.auto_pickle(False)
cdef class JobRecord:
    """One job and its tasks; `most` is the largest number of tasks that it has had at a time.

    `groups` is its only group, or all groups by key: most jobs have one, and a dict for each would be a third of the objects
    that the garbage collector visits.  See `each_group`, `group_of`, `add_group` and `drop_group`.
    """

    __slots__ = ("job", "serial", "tasks", "groups", "most")

    def __init__(self, job, int64_t serial, Chain tasks=None, groups=None, int64_t most=0):
        self.job, self.serial, self.groups, self.most = job, serial, groups, most
        self.tasks = Chain.__new__(Chain, True) if tasks is None else tasks

    def __repr__(self):
        return f"<JobRecord of {self.job.id!r}>"

    @staticmethod
    def __columns__(list jobs not None):
        """Return the groups of jobs by key, for images; all other attributes are stored unchanged."""
        return {"groups": [{group.key: group for group in job.each_group()} for job in jobs]}

    def fold(self):
        """Replace a dict of less than two groups, as images have it."""
        groups = self.groups
        if isinstance(groups, dict) and len(groups) < 2 and all([group.key == key for key, group in groups.items()]):
            self.groups = next(iter(groups.values()), None)

    def each_group(self):
        """Return its groups in order of arrival."""
        groups = self.groups
        if groups is None:
            return ()
        return groups.values() if isinstance(groups, dict) else (groups,)

    cpdef group_of(self, key):
        """Return the group of this key."""
        groups = self.groups
        if isinstance(groups, dict):
            return (<dict> groups).get(key)
        return groups if groups is not None and (<Group?> groups).key == key else None

    cpdef add_group(self, Group group):
        """Add a group with a new key."""
        groups = self.groups
        if groups is None:
            self.groups = group
        elif isinstance(groups, dict):
            groups[group.key] = group
        else:
            self.groups = {groups.key: groups, group.key: group}

    cpdef drop_group(self, Group group):
        """Forget one of the groups."""
        if isinstance(self.groups, dict):
            del self.groups[group.key]
        else:
            self.groups = None

    @property
    def gang_size(self):
        """Smallest number of its tasks that run together: less than its gang once tasks of a complete gang have ended."""
        gang = self.job.gang or 0
        return gang if self.most < gang else min(gang, len(self.tasks))

    @property
    def running(self):
        """Number of its running tasks."""
        cdef Group group
        cdef int64_t count = 0
        for group in self.each_group():
            count += group.tasks - group.waiting.count
        return count

    @property
    def lacks(self):
        """Number of waiting tasks that must start together; 0 if each may start alone."""
        gang = self.gang_size
        if gang <= 1:
            return 0
        lacks = gang - self.running
        return lacks if lacks > 1 else 0


@cython.final
@cython.auto_pickle(False)
cdef class Changes:
    """Changes since the last call of `Cluster.changes`; `Inventory.version` has the rows that only filled or emptied.

    Attributes
    ----------
    groups : dict of Group to dict of int
        Groups whose numbers of tasks changed, each with the rows where its number of running tasks changed.
    removed : list of Group
        Groups without tasks.
    machines : dict of int
        Rows of new machines and of machines whose rack changed.
    gone : list of int
        Rows of removed machines; they may be assigned again from now on.
    classes : list of int
        Indices of forgotten classes; likewise.
    """

    __slots__ = ("groups", "removed", "machines", "gone", "classes")

    def __cinit__(self):
        self.groups, self.removed, self.machines, self.gone, self.classes = {}, [], {}, [], []


@cython.final
@cython.auto_pickle(False)
cdef class IdPool:
    """A pool of indices; `take` returns the index last given back, else the next new one."""

    __slots__ = ("count", "_free")

    def __cinit__(self):
        self._free = []

    cpdef take(self):
        """Return an index that is not in use."""
        if self._free:
            return self._free.pop()
        self.count += 1
        return self.count - 1

    cpdef list take_some(self, Py_ssize_t count):
        """Return `count` indices that are not in use, as `take` would."""
        cdef list taken = []
        while count > 0:
            taken.append(self.take())
            count -= 1
        return taken

    cpdef give_some(self, indices):
        """Take back indices that are no longer in use, in this order."""
        self._free.extend(indices)

    cpdef give(self, index):
        """Take back an index that is no longer in use."""
        self._free.append(index)


@cython.auto_pickle(False)
cdef class World:
    """State that moves of tasks change: waiting tasks, and running ones by machine; the base of `Cluster`.

    Attributes
    ----------
    inventory : Inventory
        Capacities and demands in arrays.
    by_row : dict of int to MachineRecord
    waiting : dict of TaskClass to dict of Group
        Classes with waiting tasks, and their groups with waiting tasks.
    queues : dict of TaskClass
        Data that a reader keeps for the waiting tasks of a class.  Its dict `changed` gets each group whose tasks start,
        stop, come or go, with True if the group has moved to the end of `waiting` since.
    moving : bool
        True in the middle of one move: after an exception there, the moves cannot be taken back.
    """

    def __init__(self, MovedFields inventory not None):
        self.inventory, self.by_row, self.waiting, self.queues = inventory, {}, {}, {}
        self.machines, self.tasks, self.jobs, self.attempts, self.resting, self.by_class = {}, {}, {}, {}, {}, {}
        self._waiting_ids, self._changes, self._timeless = {}, Changes.__new__(Changes), []
        self._classes, self._idle, self.by_index, self._indices = {}, {}, [], IdPool.__new__(IdPool)

    def fields(self):
        """Return the attributes of this class by name."""
        return {name: getattr(self, name) for name in _FIELDS}

    @property
    def turn(self):
        """Largest turn given so far."""
        return self._turn

    @property
    def touched(self):
        """Groups whose numbers of tasks changed since the last call of `Cluster.changes`."""
        return self._changes.groups

    @property
    def news(self):
        """Changes since the last call of `Cluster.changes`; they are kept."""
        return self._changes

    cpdef Changes changes(self, now=None):
        """Return the changes since the last call, and forget them; tasks submitted without a time wait since `now`."""
        cdef Changes changes = self._changes
        if now is not None:
            self.date(now)
            changes = self._changes
        self._changes = Changes.__new__(Changes)
        if self._idle or changes.gone:
            self._drop_unused(changes)
        return changes

    cpdef date(self, now):
        """Set the start of waiting to `now` for tasks without one, and end the rests whose back-off is over."""
        cdef TaskRecord task
        if self._timeless:
            for task in self._timeless:
                if task.since is None:
                    task.since = now
            self._timeless.clear()
        if self.resting:
            self._end_rests(now)

    cpdef tuple moment(self):
        """Return a state mark: its numbers change with each event, commit and trial, and at the end of a rest."""
        return self.events, self._turn, self.inventory.clock

    def waiting_ids(self, TaskClass cls not None):
        """Return the waiting tasks of a class, group by group."""
        ids = self._waiting_ids.get(cls)
        if ids is None:
            ids = self._waiting_ids[cls] = ids_of(self.waiting[cls])
        return ids

    def start(self, list tasks not None, int32_t row, tuple devices not None, now):
        """Start waiting tasks of one group now, each on these devices; the caller has checked their room."""
        begin(self, tasks, row, devices, now)

    def stop(self, TaskRecord task not None, now):
        """Stop a running task, which waits again."""
        stop(self, task, now)


@cython.final
@cython.auto_pickle(False)
cdef class Transaction:
    """Trial moves in a cluster, kept unless `rollback` takes them back without a trace.

    Parameters
    ----------
    cluster : Cluster
    now : float

    Attributes
    ----------
    before : dict of TaskRecord to Before
        State of each moved task before its first move, in the order of these moves.
    """

    def __init__(self, World cluster not None, now):
        self.cluster, self.now, self.before = cluster, now, {}

    @property
    def moving(self):
        """True in the middle of one move: after an exception there, the moves cannot be taken back."""
        return self.cluster.moving

    cpdef start(self, list tasks, int32_t row, devices):
        """Start waiting tasks of one group, each on these devices."""
        start_noted(self.before, self.cluster, tasks, row, tuple(devices), self.now)

    cpdef tuple start_rows(self, list tasks, Py_ssize_t done, list rows, Py_ssize_t full):
        """Start waiting tasks of one class on a series of machines, where slots and resources are the only limits.

        Parameters
        ----------
        tasks : list of TaskRecord
        done : int
            Number of tasks that have started.
        rows : list of (int, int)
            Machines, and the number of tasks for each.
        full : int
            Number of machines that have taken all of theirs.

        Returns
        -------
        done, full : int
            New values, up to the first machine with too little room, or the first task that is in `before`.
        """
        cdef list some
        cdef tuple pair
        cdef Py_ssize_t i, first
        cdef World world = self.cluster
        while full < len(rows):
            pair = rows[full]
            some = tasks[done:done + <Py_ssize_t> pair[1]]
            if not some or spare(world.inventory, pair[0], (<TaskRecord> some[0]).group.cls.index, len(some)) < len(some):
                break
            for task in some:
                if task in self.before:
                    return done, full
            first = 0
            for i in range(1, len(some) + 1):
                if i == len(some) or (<TaskRecord> some[i]).group is not (<TaskRecord> some[first]).group:
                    start_noted(self.before, world, some[first:i], pair[0], (), self.now)
                    first = i
            done += len(some)
            full += 1
        return done, full

    cpdef stop(self, TaskRecord task):
        """Stop a running task, which waits again."""
        note_states(self.before, [task])
        self.cluster.moving = True
        stop(self.cluster, task, self.now)
        self.cluster.moving = False

    cpdef restore(self, TaskRecord task):
        """Restore one task to its state before the trial."""
        self.cluster.moving = True
        put_back(self.cluster, [task], [self.before[task]])
        self.cluster.moving = False

    cpdef rollback(self):
        """Restore all tasks to their states before the trial; after an exception within a move, do nothing."""
        if self.cluster.moving:
            return
        if self.before:
            self.cluster.moving = True
            undo(self.before, self.cluster)
            self.before.clear()
            self.cluster.moving = False


_FIELDS = (
    "inventory", "by_row", "waiting", "queues", "machines", "tasks", "jobs", "attempts", "resting", "by_class", "by_index",
    "moving", "midway", "events", "_waiting_ids", "_changes", "_timeless", "_classes", "_idle", "_indices", "_turn", "_serial",
)


@cython.final
@cython.no_gc
@cython.auto_pickle(False)
cdef class Before:
    """Place, turn and `since` of a task at an earlier time; see `TaskRecord`."""


cdef int alike_twice(TaskRecord task, TaskRecord other, Before state, Before earlier) except -1:
    if task.group is not other.group or task.row != other.row:
        return False
    if task.row >= 0 and (task.devices is not other.devices and task.devices != other.devices or task.began != other.began):
        return False
    return state.place is earlier.place or state.place == earlier.place


cdef int note_states(dict before, list tasks) except -1:
    cdef TaskRecord task
    cdef Before state
    for task in tasks:
        if task not in before:
            state = Before.__new__(Before)
            state.place = None if task.row < 0 else placement(task.row, task.devices, task.began)
            state.turn, state.since = task.turn, task.since
            before[task] = state
    return 0


def ids_of(groups, /):
    """Return the ids of the waiting tasks, group by group."""
    cdef list ids = []
    cdef Chain chain
    cdef void* at
    cdef Group group
    for group in groups:
        chain = group.waiting
        at = chain.first
        while at:
            ids.append((<TaskRecord> at).id)
            at = (<TaskRecord> at).link[PLACE].next
    return tuple(ids)


def untouched(tasks not None, Py_ssize_t first, Py_ssize_t most, dict before not None, /):
    """Return the tasks from `first` on, `most` at most, up to one of another group or in `before`."""
    cdef list alike = []
    cdef TaskRecord task
    cdef Py_ssize_t i
    cdef Group group = (<TaskRecord> tasks[first]).group
    for i in range(first, min(first + most, len(tasks))):
        task = tasks[i]
        if task.group is not group or task in before:
            break
        alike.append(task)
    return alike


# -- deltas of rounds: `kinds` are the classes `Place` and `Preempt` ----------------------------------------------------------


def concerned(dict tasks not None, unit, turns, tuple kinds not None, /):
    """Return the tasks of deltas, each with its delta; or why one of them cannot happen: the task is gone, or has moved on."""
    cdef dict records = {}
    cdef TaskRecord record
    place, _ = kinds
    for delta in unit:
        id = delta.task
        found = tasks.get(id)
        if found is None:
            return "gone"
        record = found
        if turns is not None and record.turn != turns[id] or record in records or isinstance(delta, place) != (record.row < 0):
            return "moved on"
        records[record] = delta
    return records


def starts(dict records not None, tuple kinds not None, /):
    """Return the tasks that start, in their order, their deltas, and the ends of runs: tasks of one group on the same devices of a machine."""
    cdef list tasks = [], deltas = [], ends = []
    cdef TaskRecord record, first = None
    _, preempt = kinds
    machine = devices = None
    for record, delta in records.items():
        if isinstance(delta, preempt):
            continue
        here, on = delta.machine, delta.devices
        if first is None or record.group is not first.group or not (here is machine or here == machine) or on != devices:
            if first is not None:
                ends.append(len(tasks))
            first, machine, devices = record, here, on
        tasks.append(record)
        deltas.append(delta)
    if first is not None:
        ends.append(len(tasks))
    return tasks, deltas, ends


def begin_runs(dict tasks not None, deltas, int64_t run, tuple kinds not None, /):
    """Number the runs that deltas have begun, in their order, after `run`; return the last number, and the numbers of the runs that they have ended."""
    cdef list ended = []
    cdef TaskRecord record
    place, preempt = kinds
    for delta in deltas:
        record = tasks[delta.task]
        if not isinstance(delta, place):
            ended.append(record.run)
            if isinstance(delta, preempt):
                continue
        run += 1
        record.run = run
    return run, ended


@cython.final
@cython.auto_pickle(False)
cdef class Starts:
    """Collected starts of a round.

    Attributes
    ----------
    tasks : list of TaskRecord
    machines : list of machine id
    devices : list of tuple of int
    turns : list of int
        Turns before the round.
    placements : dict of task to machine
    gangs : dict of task to int
        See `Round`.
    moment : tuple of int
        State mark of the cluster at the end of the round.
    """

    def __cinit__(self):
        self.tasks, self.machines, self.devices, self.turns, self.placements, self.gangs = [], [], [], [], {}, {}


cpdef tuple moved(dict before, dict machines):
    """Return the tasks that start, by their turns, and the other tasks that stop or move, in that order."""
    cdef Starts out = Starts.__new__(Starts)
    cdef dict placements = out.placements
    cdef list others = [], order = list(before)
    cdef TaskRecord task
    cdef Before state
    cdef int64_t turn = 0, row = -1
    group = gang = machine = None
    for task in order:
        if task.turn < turn:
            order.sort()
            break
        turn = task.turn
    for task in order:
        state = before[task]
        if state.place is None:
            if task.row < 0:
                continue
            if task.row != row:
                row = task.row
                machine = (<MachineRecord?> machines[row]).id
            placements[task.id] = machine
            if task.group is not group:
                group = task.group
                gang = None if group.job.job.gang is None else group.job.serial
            if gang is not None:
                out.gangs[task.id] = gang
            out.tasks.append(task)
            out.machines.append(machine)
            out.devices.append(task.devices)
            out.turns.append(state.turn)
        elif task.row < 0 or task.turn != state.turn:
            others.append(task)
    return out, others


cpdef Starts untried(World world, Group group, list rows):
    """Return the starts of all waiting tasks of a group on machines, as a trial would find them; None if a trial is needed.

    A trial is needed where more than slots and resources limits these starts.

    Parameters
    ----------
    world : Cluster
    group : Group
    rows : list of (int, int)
        Machines, each once, and the number of tasks for each.
    """
    cdef Starts out
    cdef tuple pair
    cdef int64_t units
    cdef TaskRecord task
    cdef void* at = group.waiting.first
    if not world.inventory.plain() or world.inventory.affinity._classes:
        return None
    out = Starts.__new__(Starts)
    for pair in rows:
        row, units = pair
        if spare(world.inventory, row, group.cls.index, units) < units:
            return None
        machine = (<MachineRecord?> world.by_row[row]).id
        while units > 0:
            if not at:
                return None
            task = <TaskRecord> at
            out.placements[task.id] = machine
            out.tasks.append(task)
            out.machines.append(machine)
            out.devices.append(task.devices)
            out.turns.append(task.turn)
            at = task.link[PLACE].next
            units -= 1
    if at:
        return None
    world._turn += len(out.tasks)       # as a trial
    return out


def places(list tasks not None, list machines not None, list devices not None, type place not None, /):
    """Return the deltas of tasks that start, each on its machine (by id) and devices.

    A delta refers to ids and devices alone, as a record does (C), so the collector need not scan it.
    """
    cdef list made = []
    cdef Py_ssize_t i
    cdef object task_slot = place.task, machine_slot = place.machine, devices_slot = place.devices
    for i in range(min(len(tasks), len(machines), len(devices))):
        one = PyType_GenericAlloc(place, 0)
        PyObject_GC_UnTrack(<void*> one)
        fill_slot(task_slot, one, (<TaskRecord?> tasks[i]).id)
        fill_slot(machine_slot, one, machines[i])
        fill_slot(devices_slot, one, devices[i])
        made.append(one)
    return made


cpdef JobRecord new_job(World world, id, priority, job=None):
    """Add a job.

    Parameters
    ----------
    world : Cluster
    id : hashable
    priority : int
    job : Job, optional
        By default, one with this id and priority and no other attribute; the caller has checked them.
    """
    cdef JobRecord record = JobRecord.__new__(JobRecord)
    cdef tuple values
    cdef Py_ssize_t i
    if job is None:
        job, values = PyType_GenericAlloc(Job, 0), (id, None, priority, None, None, False)
        for i in range(len(values)):
            fill_slot(job_slots[i], job, values[i])
    world._serial += 1
    record.job, record.serial, record.tasks = untracked(job), world._serial, Chain.__new__(Chain, True)
    world.jobs[id] = record
    return record


cpdef untracked(thing):
    """Return a value that refers to ids and numbers alone, as a record does (C): the collector need not scan it."""
    PyObject_GC_UnTrack(<void*> thing)
    return thing


# -- moves of many tasks ----------------------------------------------------------------------------------------------------
#
# Lengths and indices are checked before any column changes.

def alike(tuple tasks not None, tuple names not None, /):
    """Return the ends of the runs of objects whose attributes of these names are the same objects, or tuples of the same ones.

    Equal is not enough: True == 1.
    """
    cdef list ends = [], last = [None] * len(names)
    cdef Py_ssize_t i, k
    cdef bint other
    for i in range(len(tasks)):
        other = False
        for k in range(len(names)):
            value = getattr(tasks[i], names[k])
            if value is not last[k]:
                if not same_parts(value, last[k], 2):   # a task's data are pairs
                    other = True
                last[k] = value
        if other and i:
            ends.append(i)
    if tasks:
        ends.append(len(tasks))
    return ends


cdef bint same_parts(value, other, int deep) noexcept:
    """True if both are the same object, or tuples of the same objects; tuples may nest `deep` levels."""
    cdef Py_ssize_t i
    if value is other:
        return True
    if not deep or type(value) is not tuple or type(other) is not tuple or len(<tuple> value) != len(<tuple> other):
        return False
    for i in range(len(<tuple> value)):
        if not same_parts((<tuple> value)[i], (<tuple> other)[i], deep - 1):
            return False
    return True


cdef list added(list ids, Group group, list indices, int64_t turn, since, duration, list by_index):
    """Return records of new tasks of a group, with these indices and the turns after `turn`; enter them in `by_index`."""
    cdef list records = []
    cdef TaskRecord record
    cdef Py_ssize_t i
    for i in range(len(ids)):
        record = TaskRecord.__new__(TaskRecord)
        record.id, record.group, record.index, record.turn = ids[i], group, indices[i], turn + i + 1
        record.since, record.duration = since, duration
        records.append(record)
        if not 0 <= record.index < len(by_index):
            raise IndexError(f"no place {record.index}")
        by_index[record.index] = record
    return records


cdef int renumber(World world, list tasks) except -1:
    """Give tasks the next turns."""
    cdef int64_t turn = world._turn
    cdef TaskRecord task
    for task in tasks:
        turn += 1
        task.turn = turn
    world._turn = turn
    return 0


cdef int64_t span(list tasks) except -1:
    """Length of columns that have a place for each of the tasks."""
    cdef TaskRecord task
    cdef int64_t most = 0
    for task in tasks:
        if task.index < 0:
            raise IndexError(f"task {task.id!r} has no place")
        most = max(most, task.index + 1)
    return most


cdef RunningTasksColumns columns_for(TypedColumns running, list tasks, bint grow):
    """Columns of `RunningTasks`, with a place for each of the tasks."""
    cdef int64_t need = span(tasks)
    cdef RunningTasksColumns at = running.typed
    if need > at.row.shape[0]:
        if not grow:
            raise IndexError("a task has no place")
        running.grow(tasks=need)
        at = running.typed
    return at


cdef int run(running, RunningTasksColumns at, list tasks, int32_t row, int64_t class_id, tuple devices, since) except -1:
    """Mark tasks as running on a machine, each on these devices."""
    cdef double now = since, end
    cdef TaskRecord task
    cdef int64_t estimated = 0
    for task in tasks:
        end = INFINITY if task.duration is highest else now + <double> task.duration
        task.row, task.devices, task.began = row, devices, since
        at.row[task.index], at.class_id[task.index], at.turn[task.index] = row, class_id, task.turn
        at.since[task.index], at.end[task.index] = now, end
        estimated += end < INFINITY
    if estimated:
        running.estimated += estimated
    return 0


cdef int run_no_more(running, RunningTasksColumns at, list tasks) except -1:
    """Mark tasks as no longer running."""
    cdef TaskRecord task
    cdef int64_t estimated = 0
    for task in tasks:
        task.row = at.row[task.index] = -1
        estimated += at.end[task.index] < INFINITY
    if estimated:
        running.estimated -= estimated
    return 0


def take(MovedFields inventory not None, int64_t row, int64_t class_id, devices, int64_t count, /):
    """Take the room of tasks of a class, each on these devices; with a negative count, give their room back.

    IndexError if the machine, the class or a device does not exist; then nothing has changed.
    """
    take_room(inventory, row, class_id, devices, count)


cdef int take_room(MovedFields inventory, int64_t row, int64_t class_id, devices, int64_t count) except -1:
    cdef InventoryColumns at = <InventoryColumns> inventory.typed
    cdef int64_t resources = at.free.shape[1], g, first, width
    cdef int64_t share = 0, d, i, clock = inventory.clock + 1
    cdef bint lacking = False
    cdef list totals = inventory._running_by_level, log = inventory._log
    if not (0 <= row < at.free.shape[0] and 0 <= class_id < at.demand.shape[0]):
        raise IndexError(f"no machine {row}, or no class {class_id}")
    first, width = at.first_device[row], at.num_devices[row]
    d = at.level[class_id]
    if not 0 <= d < min(at.running_at.shape[1], len(totals)):
        raise IndexError(f"no level {d}")
    for one in devices:
        if not 0 <= <int64_t> one < width:
            raise IndexError(f"no device {one}")
    at.running[row] += count
    at.running_at[row, d] += count
    totals[d] += count
    for d in range(resources):
        at.free[row, d] -= count * at.demand[class_id, d]
        lacking |= at.free[row, d] < 0
    if devices:
        g = inventory.suitability.device
        share = min(at.demand[class_id, g], MICRO) if 0 <= g < resources else 0
        for one in devices:
            i = first + <int64_t> one
            at.devices[i] -= count * share
            lacking |= at.devices[i] < 0
    inventory.clock = at.version[row] = clock
    if lacking or at.over[row] or at.running[row] > at.slots[row]:
        note_over(inventory, at, row)
    log.append(row)
    if len(log) > inventory._log_most:
        inventory._trim_log()
    affinity = inventory.affinity
    if affinity._classes:
        others = affinity.take(row, class_id, count)
        if others:
            inventory._touch_all(others)
    return 0


cdef uint32_t bits_over(MovedFields inventory, InventoryColumns at, int64_t row) except? 0:
    """Bits of the resources of which a machine's tasks take more than it has; resources that a rule decides on are left out."""
    cdef int64_t g = inventory.suitability.device, d
    cdef bint ruled = inventory.rule is not None
    cdef uint32_t bits = 0
    if not 0 <= row < at.free.shape[0]:
        raise IndexError(f"no machine {row}")
    if at.running[row] > at.slots[row]:
        bits |= SLOTS
    for d in range(at.free.shape[1]):
        if at.free[row, d] < 0 and (d == g or not ruled):
            bits |= <uint32_t> RESOURCE << d
    for d in range(at.first_device[row], at.first_device[row] + at.num_devices[row]):
        if at.devices[d] < 0:
            bits |= <uint32_t> RESOURCE << g
    return bits


cdef int note_over(MovedFields inventory, InventoryColumns at, int64_t row) except -1:
    """Update `Inventory.over` of a machine; the slots of the network depend on whether it is 0."""
    cdef uint32_t bits = bits_over(inventory, at, row)
    if bits != at.over[row]:
        at.over[row] = bits
        inventory.arranged = inventory.clock
    return 0


def over_capacity(MovedFields inventory not None, int64_t row, /):
    """Return the bits (see `flowsched.cluster.limits`) of the resources of which a machine's tasks take more than it has."""
    return bits_over(inventory, inventory.typed, row)


def spare_room(MovedFields inventory not None, int64_t row, int64_t class_id, int64_t most, /):
    """Return the number of further tasks of the class, up to `most`, that fit by slots and resources alone; 0 for a class with devices."""
    return spare(inventory, row, class_id, most)


cdef int64_t spare(MovedFields inventory, int64_t row, int64_t class_id, int64_t most) except -1:
    cdef InventoryColumns at = inventory.typed
    cdef int64_t resources = at.free.shape[1], g = inventory.suitability.device, d, count, need, free
    if not (0 <= row < at.free.shape[0] and 0 <= class_id < at.demand.shape[0]):
        raise IndexError(f"no machine {row}, or no class {class_id}")
    if 0 <= g < resources and at.demand[class_id, g] or at.over[row]:
        return 0
    count = min(at.slots[row] - at.running[row], most)
    if inventory.rule is None:
        for d in range(resources):
            need, free = at.demand[class_id, d], at.free[row, d]
            if need > 0:
                count = min(count, free // need if free > 0 else 0)
    return max(count, 0)


@cython.boundscheck(False)      # memory is only prefetched
def fetch(MovedFields inventory not None, dict tasks not None, ids, /):
    """Prefetch the memory of running tasks that are about to end, and of their machines: without it, most of the time is spent on cache misses."""
    cdef list found = []
    cdef InventoryColumns at = inventory.typed
    cdef RunningTasksColumns running = (<TypedColumns?> inventory.tasks).typed
    cdef const int64_t* row = &running.row[0]
    cdef const double* end = &running.end[0]
    cdef const int64_t* free = &at.free[0, 0]
    cdef const int64_t* running_at = &at.running_at[0, 0]
    cdef TaskRecord task
    cdef int which
    for id in ids:
        one = tasks.get(id)
        if one is not None:
            fs_fetch(<char*> <void*> one + 64)
            fs_fetch(<char*> <void*> one + 128)
            found.append(one)
    for task in found:
        fs_fetch(<void*> task.group)
        fs_fetch(<char*> <void*> task.group + 64)
        for which in range(2):
            fs_fetch(task.link[which].chain)
            if task.link[which].next:
                fs_fetch(&(<TaskRecord> task.link[which].next).link[which])
            if task.link[which].prev:
                fs_fetch(&(<TaskRecord> task.link[which].prev).link[which])
        fs_fetch(row + task.index)
        fs_fetch(end + task.index)
        fs_fetch(free + task.row * at.free.shape[1])
        fs_fetch(&at.running[task.row])
        fs_fetch(running_at + task.row * at.running_at.shape[1])
        fs_fetch(&at.version[task.row])


# -- moves in a cluster: `world` is its `Transitions`, and the tasks are of one group -------------------------------------------


def settle(World world not None, list tasks not None, int32_t row, tuple devices not None, since, /):
    """Place tasks on a machine as running since then, each on these devices."""
    place(world, tasks, (<TaskRecord> tasks[0]).group, row, devices, since)


cdef int place(World world, list tasks, Group group, int32_t row, tuple devices, since) except -1:
    cdef MovedFields inventory = world.inventory
    cdef int64_t class_id = group.cls.index
    cdef dict on = group.on, machines = world.by_row
    cdef Py_ssize_t count = len(tasks)
    cdef object key = row
    cdef TypedColumns running = inventory.tasks
    cdef RunningTasksColumns at = columns_for(running, tasks, True)
    take_room(inventory, row, class_id, devices, count)
    append((<MachineRecord?> machines[key]).tasks, tasks)
    run(running, at, tasks, row, class_id, devices, since)
    began = (since,) if count == 1 else (since,) * count
    others = on.get(key)
    on[key] = began if others is None else <tuple?> others + began
    (<dict> touched(world, group))[key] = None
    return 0


def unsettle(World world not None, list tasks not None, /):
    """Remove tasks that run together, since one time, from their machine."""
    displace(world, tasks)


cdef int displace(World world, list tasks) except -1:
    cdef TaskRecord first = tasks[0]
    cdef Group group = first.group
    cdef object since = first.began, row = first.row
    cdef MovedFields inventory = world.inventory
    cdef dict on = group.on, machines = world.by_row
    cdef list began
    cdef TypedColumns running = inventory.tasks
    cdef RunningTasksColumns at = columns_for(running, tasks, False)
    take_room(inventory, first.row, group.cls.index, first.devices, -len(tasks))
    take_out((<MachineRecord?> machines[row]).tasks, tasks)
    run_no_more(running, at, tasks)
    if len(tasks) == len(<tuple> on[row]):
        del on[row]
    else:
        began = list(<tuple> on[row])
        for _ in range(len(tasks)):
            began.remove(since)
        on[row] = tuple(began)
    (<dict> touched(world, group))[row] = None
    return 0


cdef int note(World world, TaskClass cls, Group group, bint entered) except -1:
    """Report to the reader of a class's queue that a group has changed, and whether it `entered` the queue, at the end."""
    queue = (<dict> world.queues).get(cls)
    if queue is not None:
        changed = <dict> queue.changed
        if entered:
            changed.pop(group, None)
            changed[group] = True
        else:
            changed.setdefault(group, False)
    return 0


cdef int wait(World world, list tasks, Group group) except -1:
    """Queue tasks, in the order of their turns."""
    cdef TaskRecord task
    cdef TaskClass cls = group.cls
    cdef dict waiting = world.waiting, told = world._waiting_ids
    cdef Chain chain = group.waiting
    note(world, cls, group, not chain.count)
    insert(chain, tasks)
    for task in tasks:
        if task.since is None:
            (<list> world._timeless).append(task)
    (<dict> waiting.setdefault(cls, {}))[group] = None
    told.pop(cls, None)
    return 0


cdef int wait_no_more(World world, list tasks, Group group) except -1:
    """Remove tasks from the queue."""
    cdef TaskClass cls = group.cls
    cdef dict waiting = world.waiting, told = world._waiting_ids
    cdef Chain chain = group.waiting
    note(world, cls, group, False)
    take_out(chain, tasks)
    if not chain.count:
        del waiting[cls][group]
        if not waiting[cls]:
            del waiting[cls]
            (<dict> world.queues).pop(cls, None)
    told.pop(cls, None)
    return 0


cdef int begin(World world, list tasks, int32_t row, tuple devices, now) except -1:
    cdef Group group = (<TaskRecord> tasks[0]).group
    wait_no_more(world, tasks, group)
    renumber(world, tasks)
    return place(world, tasks, group, row, devices, now)


cdef int stop(World world, TaskRecord task, now) except -1:
    """Stop a running task, which waits again."""
    displace(world, [task])
    return queue_again(world, task, now)


def again(World world not None, TaskRecord task not None, now, /):
    """Queue a task behind all others, as waiting since `now`."""
    queue_again(world, task, now)


cdef int queue_again(World world, TaskRecord task, now) except -1:
    cdef list tasks = [task]
    renumber(world, tasks)
    task.since = now
    wait(world, tasks, task.group)
    touched(world, task.group)
    return 0


cdef int put_back(World world, list tasks, list states) except -1:
    cdef Before state = states[0]
    cdef TaskRecord task = tasks[0]
    cdef Group group = task.group
    cdef Py_ssize_t i
    if task.row < 0:
        wait_no_more(world, tasks, group)
        touched(world, group)
    else:
        displace(world, tasks)
    for i in range(len(tasks)):
        task, state = tasks[i], states[i]
        task.turn, task.since = state.turn, state.since
    if state.place is None:
        tasks.sort()
        wait(world, tasks, group)
    else:
        place(world, tasks, group, state.place.row, state.place.devices, state.place.since)
    return 0


cdef int undo(dict before, World world) except -1:
    """Return all tasks to their recorded states, the last ones first."""
    cdef list tasks = [], states = []
    cdef TaskRecord task, first = None
    cdef Before state, earlier = None
    for task, state in reversed(before.items()):
        if tasks and not alike_twice(task, first, state, earlier):
            put_back(world, tasks, states)
            tasks, states = [], []
        if not tasks:
            first, earlier = task, state
        tasks.append(task)
        states.append(state)
    if tasks:
        put_back(world, tasks, states)
    return 0


cpdef int64_t start_again(World world, list tasks, list machines, list devices, int64_t run, now) except -1:
    """Start tasks on machines (by id) and devices as they started in a trial, since which nothing has happened.

    Their runs are numbered after `run`; the last number is returned.  The state is as after a commit that checks: tasks with
    devices start one by one, and those of one group on the same devices share one tuple.
    """
    cdef dict records = world.machines
    cdef TaskRecord task
    cdef Py_ssize_t i, first = 0, begun = 0, count = min(len(tasks), len(machines), len(devices))
    cdef bint last
    for i in range(count):
        task = tasks[i]
        run += 1
        task.run = run
        last = i + 1 == count or not (machines[i + 1] is machines[i] and (<TaskRecord> tasks[i + 1]).group is task.group and devices[i + 1] == devices[i])
        if last or devices[i]:
            begin(world, tasks[begun:i + 1], (<MachineRecord?> records[machines[i]]).row, devices[first], now)
            begun = i + 1
        if last:
            first = begun
    return run


cdef int start_noted(dict before, World world, list tasks, int32_t row, tuple devices, now) except -1:
    note_states(before, tasks)
    world.moving = True
    begin(world, tasks, row, devices, now)
    world.moving = False
    return 0


cdef dict touched(World world, Group group):
    """Record that the group has changed; return the rows where its number of running tasks has."""
    cdef dict groups = world._changes.groups
    rows = groups.get(group)
    if rows is None:
        rows = groups[group] = {}
    return rows


# -- tasks come and go --------------------------------------------------------------------------------------------------------


def depart(World world not None, TaskRecord task not None, /):
    """Take a task out of its group, or end its rest."""
    leave_group(world, task)


cdef int leave_group(World world, TaskRecord task) except -1:
    cdef Group group = task.group
    cdef TaskClass cls = group.cls
    if world.resting and task.id in world.resting:
        del world.resting[task.id]
    else:
        if task.row < 0:
            wait_no_more(world, [task], group)
            touched(world, group)
        else:
            displace(world, [task])
        group.tasks -= 1
        if not group.tasks:
            group.job.drop_group(group)
            del world._changes.groups[group]
            world._changes.removed.append(group)
    cls.tasks -= 1
    if not cls.tasks:
        world._idle[cls.key] = None
    return 0


def remove_task(World world not None, TaskRecord task not None, /):
    """Take a task out of the cluster; a closed job leaves with its last one."""
    remove(world, task)


cdef int remove(World world, TaskRecord task) except -1:
    cdef JobRecord job = task.group.job
    leave_group(world, task)
    task.gone = True
    del world.tasks[task.id]
    if world.attempts:
        world.attempts.pop(task.id, None)
    take_out(job.tasks, [task])
    world.by_index[task.index] = None
    world._indices.give(task.index)
    if not job.tasks.count and job.job.closed:
        del world.jobs[job.job.id]
    return 0


cdef object ended_run(type kind, tuple values):
    """Value of a named tuple, without the steps of its constructor."""
    made = PyType_GenericAlloc(kind, len(values))
    cdef Py_ssize_t i
    for i in range(len(values)):
        Py_INCREF(values[i])
        PyTuple_SET_ITEM(made, i, <void*> values[i])
    return made


cpdef list complete(World world, list tasks, type ended):
    """Remove completed tasks; return their runs, as values of the class `EndedRun`."""
    cdef TaskRecord task
    cdef list over = []
    for task in tasks:
        over.append(ended_run(ended, (task.id, task.run, (<MachineRecord?> world.by_row[task.row]).id, "TaskCompleted")))
    for task in tasks:
        remove(world, task)
    return over


cpdef list add_tasks(World world, Group group, list ids, time, duration):
    """Add new tasks to the queue of a group."""
    cdef Py_ssize_t count = len(ids)
    cdef list indices = world._indices.take_some(count), records
    cdef JobRecord job = group.job
    while len(world.by_index) < world._indices.count:
        world.by_index.append(None)
    records = added(ids, group, indices, world._turn, time, duration, world.by_index)
    world._turn += count
    for record in records:
        world.tasks[(<TaskRecord> record).id] = record
    append(job.tasks, records)
    job.most = max(job.most, job.tasks.count)
    group.tasks += count
    group.cls.tasks += count
    wait(world, records, group)
    touched(world, group)
    return records


cpdef Group found_group(World world, Group group):
    """Add a group to its job."""
    world._serial += 1
    group.serial = world._serial
    group.job.add_group(group)
    return group


cpdef Group group_for(World world, JobRecord job, task, demand, shuns=()):
    """Return the group of tasks of a job like this one that keep away from the machines in `shuns`; a new one if there is none."""
    cdef tuple spread = (task.apart, task.apart_in_rack), key, pairs = task.data
    cdef TaskClass cls
    cdef dict known = world._plain
    kind, constraints, prefers = task.kind, task.constraints, task.prefers
    cdef bint plain = kind is None and not (constraints or prefers or task.tolerations or task.avoids or shuns or pairs) and spread[0] is spread[1] is None
    if plain and known is not None:
        found = known.get((<Py_ssize_t> <void*> demand, job.job.priority))
        if found is not None and (<tuple> found)[0] is demand and (<TaskClass?> (<tuple> found)[1]).tasks:
            cls = (<tuple> found)[1]
            return group_in(world, job, cls, pairs)
    of_job = job.job.id if kind is None and (spread[0] is not None or spread[1] is not None) else None
    key = (
        demand.tobytes(), tuple(constraints.items()) if constraints else (), job.job.priority, kind,
        tuple(prefers.items()) if prefers else (), task.tolerations, spread, of_job, frozenset(task.avoids) if task.avoids else _NONE,
    )
    if shuns:
        key += (shuns,)
    found = world._classes.get(key)
    if found is None:
        found = world._new_class(TaskClass(-1, key, demand, constraints, job.job.priority, kind, prefers, task.tolerations))
    cls = found
    if not cls.tasks:
        world._idle.pop(key, None)
    if plain:
        if known is None or len(known) > 1000:
            known = world._plain = {}
        known[<Py_ssize_t> <void*> demand, job.job.priority] = demand, cls
    return group_in(world, job, cls, pairs)


cdef Group group_in(World world, JobRecord job, TaskClass cls, tuple data):
    """Group of a job's tasks of a class with these data; a new one if there is none."""
    group = None if job.groups is None else job.group_of((cls, frozenset(data)) if data else cls)
    return found_group(world, Group(job, cls, 0, data)) if group is None else group


def misplaced(dict tasks not None, list numbered not None, dict by_row not None, int64_t devices):
    """Return what is wrong with the ids, numbers and chains of the tasks of a cluster that was read from a file; None if nothing is.

    A record is in at most one chain of each kind.  So if lengths agree, too, chains have their tasks and no others.
    """
    cdef TaskRecord task
    cdef Chain chain = None
    cdef int32_t row = -1
    for id, record in tasks.items():
        if type(record) is not TaskRecord:
            return "a task under another id"
        task = record
        if task.id is not id and task.id != id:
            return "a task under another id"
        if not 0 <= task.index < len(numbered) or numbered[task.index] is not record:
            return "tasks and their numbers differ"
        if task.gone:
            return "a task that has left is still there"
        if task.group is None or task.group.cls is None or task.group.job is None or task.link[JOB].chain != <void*> task.group.job.tasks:
            return "a job and its tasks differ"
        if task.row < 0:
            continue
        if task.row != row:
            machine = by_row.get(task.row)
            if machine is None:
                return "a task runs on no machine"
            chain, row = machine.tasks, task.row
        if task.link[PLACE].chain != <void*> chain:
            return "a machine and its tasks differ"
        if not task.run or not isinstance(task.began, int | float):
            return "a task runs nowhere"
        for device in task.devices:
            if type(device) is not int or not 0 <= device < devices:
                return "a task runs on no device"
    return None
