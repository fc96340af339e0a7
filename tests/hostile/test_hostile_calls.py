"""Exceptions and signals at every point of every call of a scheduler: the state is as before the call or as after it.

Kinds of fault within a call, for every n:

* A signal whose handler raises, at the n-th bytecode.  The call must end before or after, and the next one must work.
* An exception out of nowhere at the n-th bytecode; the n-th allocation of an object fails; and in a build with fault points
  (``FLOWSCHED_FAULTS=1``) the n-th allocation of an array, or look for signals, of the kernels.  The call may leave a state
  that is neither, but then it says so from then on, and the journal has the state before or after.
"""

from __future__ import annotations

import copy
import dis
import gc
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from effort import FUZZ, effort
from faults import fail_object
from lives import POLICIES, Life, said, world_of

import flowsched as fs
from flowsched import _cs, _ns
from flowsched._guard import Exclusive, interruptible
from flowsched.cluster.audit import audit

PACKAGE = os.path.dirname(fs.__file__)


class Stop(BaseException):
    """Raised by a handler."""


class Fault(BaseException):
    """An exception out of nowhere."""


def small(journal: Path | None = None, policy: fs.Policy | None = None) -> fs.Scheduler:
    """A scheduler with tasks that run, wait and would be preempted."""
    sched = fs.Scheduler(policy or fs.Policy(), resources=("cpu", "gpu"), journal=journal)
    sched.apply(fs.MachineAdded("m1", {"cpu": 4, "gpu": 1}), fs.MachineAdded("m2", {"cpu": 2}, rack="r", slots=2))
    sched.apply(fs.JobSubmitted("old", [fs.Task(f"o{i}", {"cpu": 1}) for i in range(3)], user="u", priority=1))
    sched.commit(sched.schedule(1.0))
    sched.apply(fs.JobSubmitted("new", [fs.Task(f"n{i}", {"cpu": 2, "gpu": i % 2 / 2}) for i in range(2)], user="v"))
    return sched


def crowd(journal: Path | None = None) -> fs.Scheduler:
    """A scheduler before its first round, of which the kernels have something to do."""
    sched = fs.Scheduler(resources=("cpu", "gpu"), journal=journal)
    sched.apply(
        *(fs.MachineAdded(i, {"cpu": 4 + i % 3}, slots=4) for i in range(60)),
        *(
            fs.JobSubmitted(f"j{j}", [fs.Task((j, i), {"cpu": 1 + j % 3}) for i in range(5)], f"u{j % 7}", j % 4)
            for j in range(60)
        ),
    )
    return sched


def do_apply(sched: fs.Scheduler, rnd: fs.Round) -> None:
    sched.apply(fs.TaskCompleted("o0", time=2.0))


def do_submit(sched: fs.Scheduler, rnd: fs.Round) -> None:
    sched.apply(
        fs.JobSubmitted("more", [fs.Task("x", {"cpu": 1}), fs.Task("y", {"cpu": 1}, kind="k", apart=1)], user="w")
    )


def do_fail(sched: fs.Scheduler, rnd: fs.Round) -> None:
    sched.apply(fs.MachineFailed("m1", time=2.0))


def do_schedule(sched: fs.Scheduler, rnd: fs.Round) -> None:
    sched.schedule(3.0)


def do_commit(sched: fs.Scheduler, rnd: fs.Round) -> None:
    sched.commit(rnd)


def do_policy(sched: fs.Scheduler, rnd: fs.Round) -> None:
    sched.policy = fs.Policy.named("pack")


def do_compact(sched: fs.Scheduler, rnd: fs.Round) -> None:
    sched.compact()


CALLS = [do_apply, do_submit, do_fail, do_schedule, do_commit, do_policy, do_compact]
STRIDE = {call: 3000 if call is do_compact else 800 if call is do_schedule else 150 for call in CALLS}
"""Twice the mean distance of the points in a default run."""


def state_of(sched: fs.Scheduler) -> tuple:
    """The state with the policy; tasks that no round has dated yet count as dated by the next one."""
    machines, tasks, jobs, users = world_of(sched)
    dated = [(t, place, turn, 3.0 if since is None else since, pre, i) for t, place, turn, since, pre, i in tasks]
    return machines, dated, jobs, users, fs.policy.serialize.describe(sched.policy)


PURE = frozenset(
    "LOAD_CONST LOAD_FAST STORE_FAST POP_TOP PUSH_NULL PRECALL CALL KW_NAMES CACHE NOP RESUME COPY SWAP RETURN_VALUE RETURN_CONST "
    "JUMP_FORWARD JUMP_BACKWARD PUSH_EXC_INFO POP_EXCEPT RERAISE WITH_EXCEPT_START COPY_FREE_VARS MAKE_CELL".split()
)
"""Bytecodes that move something about and cannot fail, and calls, in which others fail."""
AFTER = frozenset("CALL CALL_FUNCTION_EX CALL_KW JUMP_BACKWARD RESUME".split())
"""Bytecodes after which the interpreter looks for signals and exceptions from outside."""


def interrupted(call, at: int, fault) -> tuple[int, BaseException | None]:
    """Make a call, with a fault at the at-th bytecode of the package that may fail; how many there were, and what it raised."""
    count = 0
    last: dict[object, str] = {}

    def trace(frame, event, arg):
        nonlocal count
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            name, before = dis.opname[frame.f_code.co_code[frame.f_lasti]], last.get(frame)
            last[frame] = name
            # What comes after a call is raised by it; where a `with` returns, its end is already behind the `SWAP` that follows.
            if name not in PURE or (before in AFTER and name != "SWAP"):
                count += 1
                if count == at:
                    fault()
        return trace

    raised = None
    gc.disable()
    sys.settrace(trace)
    try:
        call()
    except (Stop, Fault) as error:
        raised = error
    except fs.FlowschedError as error:
        raised = error
    finally:
        sys.settrace(None)
        gc.enable()
    return count, raised


@pytest.fixture
def raising_handler():
    def handler(number, frame):
        raise Stop

    before = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, before)


def send() -> None:
    signal.raise_signal(signal.SIGUSR1)


def throw() -> None:
    raise Fault


def at_bytecode(fault):
    def fail(n: int, call) -> tuple[bool, bool]:
        count, raised = interrupted(call, n, fault)
        return raised is not None, count >= n

    return fail


def at_object(n: int, call) -> tuple[bool, bool]:
    """The n-th allocation of an object fails."""
    failed, reached = fail_object(n, call)
    return failed != "nothing raised", reached


def at_point(module, kind: str):
    """The n-th allocation of an array, or look for signals, of a kernel."""

    def fail(n: int, call) -> tuple[bool, bool]:
        raised = False
        module.fail_at(*((n, 0) if kind == "allocation" else (0, n)))
        try:
            call()
        except (MemoryError, KeyboardInterrupt):
            raised = True
        return raised, module.fail_at(0, 0)[kind == "signal"] >= n

    return fail


def walk(call, fail, tmp_path: Path, few: int, journal: bool = True, make=None) -> Counter[str]:
    """Faults at points of a call, under FLOWSCHED_FUZZ=1 at all of them but for `compact`; what became of it."""

    def fresh(name: str) -> tuple[fs.Scheduler, fs.Round]:
        path = tmp_path / name if journal else None
        if path:
            path.unlink(missing_ok=True)
        if make is not None:
            return make(path), None
        sched = small(path)
        return sched, sched.schedule(2.0)

    reference, rnd = fresh("reference")
    before = state_of(reference)
    call(reference, rnd)
    after = state_of(reference)
    then = reference.schedule(4.0)
    if journal:
        reference.journal.close()
    found: Counter[str] = Counter()
    chance, n = random.Random(call.__name__), 0
    while True:
        n += 1 if FUZZ and call is not do_compact else chance.randrange(1, max(few // effort(1, 20), 2))
        sched, rnd = fresh("journal")
        raised, reached = fail(n, lambda sched=sched, rnd=rnd: call(sched, rnd))
        if not reached:
            break
        refused = None
        try:
            sched.apply()
            sched.schedule(3.0)
        except fs.FlowschedError as error:
            refused = error
        if refused is None:
            now = state_of(sched)
            assert now in (before, after), (call.__name__, n)
            audit(sched.cluster)
            found["after" if now == after else "before"] += 1
            if now == after != before:
                assert sched.schedule(4.0).stats.cost == then.stats.cost
        else:
            assert isinstance(refused, fs.TornStateError | fs.JournalError), (call.__name__, n, refused)
            found["refused from then on"] += 1
        if not journal:
            continue
        sched.journal.close()
        again = fs.Scheduler(resources=("cpu", "gpu"), journal=tmp_path / "journal")
        read = state_of(again)
        assert read in (before, after), (call.__name__, n)
        if refused is None:
            assert read == now, (call.__name__, n)
        elif not raised:
            assert read == after, (call.__name__, n)
        again.schedule(5.0)
        again.journal.close()
    return found


def told(what: str, call, found: Counter[str]) -> None:
    print(f"{what} in {call.__name__[3:]}: {found.total()} faults: {dict(found)}")


@pytest.mark.parametrize("call", CALLS)
def test_a_signal_anywhere_comes_before_or_after(call, tmp_path: Path, raising_handler) -> None:
    found = walk(call, at_bytecode(send), tmp_path, STRIDE[call])
    told("signals", call, found)
    assert found["refused from then on"] == 0 < found.total()


@pytest.mark.parametrize("call", CALLS)
def test_an_exception_out_of_nowhere_leaves_no_half_state_in_use(call, tmp_path: Path) -> None:
    found = walk(call, at_bytecode(throw), tmp_path, STRIDE[call])
    told("exceptions", call, found)
    assert found.total() > 0


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="looks into CPython's allocator")
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # what closes meanwhile cannot say it otherwise
@pytest.mark.parametrize("call", [call for call in CALLS if call is not do_compact])
def test_memory_that_ends_anywhere_leaves_no_half_state_in_use(call, tmp_path: Path) -> None:
    pytest.importorskip("_testcapi", reason="this Python is built without _testcapi")
    found = walk(call, at_object, tmp_path, STRIDE[call], journal=call is not do_schedule)
    told("objects", call, found)
    assert found.total() > 0


@pytest.mark.skipif(_cs.fail_at(0, 0) is None, reason="built without fault points (FLOWSCHED_FAULTS=1)")
@pytest.mark.parametrize("kind", ["allocation", "signal"])
@pytest.mark.parametrize("module", [_cs, _ns], ids=["_cs", "_ns"])
def test_every_fault_point_of_the_kernels_in_a_round(module, kind: str, tmp_path: Path) -> None:
    found = walk(do_schedule, at_point(module, kind), tmp_path, 2, make=crowd)
    told(f"fault points ({kind}, {module.__name__})", do_schedule, found)
    assert found.total() > 10 and found["refused from then on"] == 0


# -- real signals at random moments ---------------------------------------------------------------------------------

CHILD = """
import os, random, signal, sys
sys.path.insert(0, {tests!r})
from lives import POLICIES, Life, operations, world_of
import flowsched as fs

class Stop(BaseException): ...
armed = False
def handler(number, frame):
    if armed: raise Stop
signal.signal(signal.SIGALRM, handler)
seed, tries, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
rnd = random.Random(seed)
policy = POLICIES[seed % len(POLICIES)]
sched = fs.Scheduler(policy(), journal=fs.Journal(path, fsync="never"))
hit, life = 0, Life(seed)
net, capacity = fs.FlowNetwork(), 100
nodes = net.add_nodes([capacity] + [0] * 60 + [-capacity])
arcs = net.add_arcs([0] * 60 + list(range(1, 61)), list(range(1, 61)) + [61] * 60, 5, list(range(120)))
best = net.solve().cost
for attempt in range(tries):
    try:
        armed = True  # again and again, since an exception that comes in a finaliser is lost
        signal.setitimer(signal.ITIMER_REAL, 0.0001 + rnd.random() ** 2 * 0.02, 0.1)
        for name in operations(seed, sched, 25, [policy], life):
            pass
        while True:
            more = net.add_nodes(3)
            extra = net.add_arcs([more[0]] * 200, [61] * 200, 1, 5)
            net.solve()
            net.remove_nodes(more)
    except Stop:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        hit += 1
    if rnd.random() < 0.2:
        sched.compact()
    ids = set(net.nodes().tolist())
    net.remove_nodes([n for n in ids if n > 61])
    assert net.num_nodes == 62 and net.num_arcs == 120, (net.num_nodes, net.num_arcs)
    assert net.solve().cost == best
state = world_of(sched)
sched.journal.close()
again = fs.Scheduler(policy(), journal=fs.Journal(path, fsync="never", policies=[policy()]))
assert world_of(again) == state, "recovered otherwise"
again.schedule(1e6)
print("hit", hit)
"""


def test_signals_at_random_moments(tmp_path: Path) -> None:
    """Every journal is readable and says what the scheduler that wrote it knew."""
    tests = str(Path(__file__).resolve().parents[1] / "support")
    hits = 0
    for seed in range(effort(3, 40)):
        code = CHILD.format(tests=tests)
        command = [sys.executable, "-c", code, str(seed), str(effort(20, 60)), str(tmp_path / f"j{seed}")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, (seed, done.stdout, done.stderr[-3000:])
        hits += int(done.stdout.split()[-1])
    print("signals that hit a call:", hits)
    assert hits > 0


# -- one call at a time ---------------------------------------------------------------------------------------------


def test_a_second_thread_is_refused_and_nothing_is_lost() -> None:
    sched = fs.Scheduler(resources=("cpu",))
    refused: Counter[str] = Counter()
    accepted: list[str] = []

    def submit(name: str) -> None:
        for i in range(300):
            try:
                sched.apply(fs.JobSubmitted((name, i), [fs.Task((name, i), {"cpu": 1})]))
                accepted.append((name, i))
                if i % 20 == 0:
                    sched.schedule(float(i))
            except fs.ConcurrentUseError:
                refused[name] += 1

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=submit, args=(f"t{k}",)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert set(sched.cluster.tasks) == set(accepted)
    audit(sched.cluster)


def test_a_policy_that_calls_back_is_refused() -> None:
    errors = []

    def cost(cluster, classes, rows):
        try:
            sched.apply(fs.MachineAdded("other", {"cpu": 1}))
        except fs.ConcurrentUseError as error:
            errors.append(str(error))
        return np.zeros((len(classes), len(rows)))

    sched = fs.Scheduler(fs.Policy(placement=(fs.CustomCost(cost),)), resources=("cpu",))
    sched.apply(fs.MachineAdded("m", {"cpu": 1}), fs.JobSubmitted("j", [fs.Task("t", {"cpu": 1})]))
    assert len(sched.schedule(0.0).placements) == 1
    assert errors and "Scheduler: used while another call on it is under way" in errors[0]
    assert list(sched.cluster.machines) == ["m"]


def test_a_finaliser_is_refused() -> None:
    sched = small()
    heard = []

    class Last:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            try:
                sched.apply(fs.TaskCompleted("o0"))
            except fs.ConcurrentUseError:
                heard.append("refused")
            else:
                heard.append("done")

    calls = 0

    def trace(frame, event, arg):
        nonlocal calls
        calls += 1
        if calls == 40:
            Last()
            gc.collect()
        return

    sys.setprofile(trace)
    try:
        sched.schedule(2.0)
    finally:
        sys.setprofile(None)
    assert heard == ["refused"]
    assert "o0" in sched.cluster.tasks


def test_handlers_run_once_the_call_is_over_and_are_put_back(raising_handler) -> None:
    guard, other, order = Exclusive("thing"), Exclusive("other"), []
    mine = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(Stop), guard:
        send()
        with other:
            order.append("inner")
        order.append("outer")
    assert order == ["inner", "outer"]
    assert signal.getsignal(signal.SIGUSR1) is mine
    with guard:
        with pytest.raises(fs.ConcurrentUseError, match="thing: used while"):
            guard.__enter__()
        with pytest.raises(Stop), interruptible():
            send()
            order.append("not reached")
        with pytest.raises(Stop), other, interruptible():
            send()
    assert order == ["inner", "outer"]
    with pytest.raises(Stop), guard:
        with pytest.raises(Stop), interruptible():
            send()
        with other:
            send()
            order.append("kept")
    assert order[-1] == "kept"


def test_several_signals_all_run_their_handlers() -> None:
    heard: list[int] = []
    kinds = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)

    def handler(number, frame):
        heard.append(number)
        raise Stop(number)

    before = [signal.signal(kind, handler) for kind in kinds]
    try:
        with pytest.raises(Stop) as caught, Exclusive("thing"):
            for kind in kinds:
                signal.raise_signal(kind)
        assert sorted(heard) == sorted(kinds) and caught.value.args[0] == heard[0]
        assert all(signal.getsignal(kind) is handler for kind in kinds)
    finally:
        for kind, old in zip(kinds, before, strict=True):
            signal.signal(kind, old)


def test_in_other_threads_handlers_are_let_be() -> None:
    seen = []

    def look() -> None:
        with Exclusive("thing"):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


# -- copies, forks and files ----------------------------------------------------------------------------------------


def test_copies_have_no_journal_and_leave_the_original_alone(tmp_path: Path) -> None:
    sched = small(tmp_path / "journal")
    for one in (copy.deepcopy(sched), copy.copy(sched)):
        assert one.journal is None and world_of(one) == world_of(sched)
    for thing in (sched, sched.journal, sched.journal.log):
        with pytest.raises(fs.InputError):
            pickle.dumps(thing)
    with pytest.raises(fs.InputError, match="only writer"):
        copy.deepcopy(sched.journal)
    with open(tmp_path / "other", "wb") as other:
        sched.commit(sched.schedule(2.0))
        assert other.tell() == 0
    state = world_of(sched)
    sched.journal.close()
    assert world_of(fs.Scheduler(resources=("cpu", "gpu"), journal=tmp_path / "journal")) == state


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_writes_nothing_and_holds_no_lock(tmp_path: Path) -> None:
    sched = small(tmp_path / "journal")
    there, back = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            sched.apply(fs.MachineAdded("child", {"cpu": 1}))
            os.write(back, b"acknowledged")
        except fs.JournalError as error:
            os.write(back, str(error).encode())
        finally:
            signal.pause()
            os._exit(0)
    try:
        assert b"belongs to the process that this one was forked from" in os.read(there, 1000)
        sched.apply(fs.MachineAdded("parent", {"cpu": 1}))
        sched.journal.close()
        again = fs.Scheduler(resources=("cpu", "gpu"), journal=tmp_path / "journal")
        assert "parent" in again.cluster.machines and "child" not in again.cluster.machines
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(there)
        os.close(back)


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    link = tmp_path / "journal"
    link.symlink_to(tmp_path / "disk" / "real")
    sched = small(link)
    sched.compact()
    sched.apply(fs.MachineAdded("m3", {"cpu": 1}))
    assert link.is_symlink() and (tmp_path / "disk" / "real").stat().st_size == sched.journal.size
    for path in (link, tmp_path / "disk" / "real"):
        with pytest.raises(fs.JournalError, match="in use"):
            fs.Scheduler(resources=("cpu", "gpu"), journal=path)


@pytest.mark.parametrize("what", ["removed", "moved", "replaced", "cut", "appended"])
def test_a_file_that_others_touch_is_noticed_before_anything_is_acknowledged(tmp_path: Path, what: str) -> None:
    path = tmp_path / "journal"
    sched = small(path)
    match what:
        case "removed":
            path.unlink()
        case "moved":
            path.rename(tmp_path / "rotated")
        case "replaced":
            data = path.read_bytes()
            path.unlink()
            path.write_bytes(data)
        case "cut":
            os.truncate(path, 100)
        case "appended":
            with open(path, "ab") as file:
                file.write(b"x")
    state = world_of(sched)
    for _ in range(2):
        with pytest.raises(fs.JournalError, match="was altered by others|was moved, removed or replaced"):
            sched.apply(fs.MachineAdded("m3", {"cpu": 1}))
    assert world_of(sched) == state


@pytest.mark.parametrize("thing", ["/dev/zero", "/dev/null", "folder", "fifo"])
def test_only_regular_files_are_journals(tmp_path: Path, thing: str) -> None:
    path = Path(thing) if thing.startswith("/") else tmp_path / thing
    if thing == "folder":
        path.mkdir()
    if thing == "fifo":
        os.mkfifo(path)
    with pytest.raises(fs.JournalError, match="not a regular file"):
        fs.Scheduler.restore(path)
    with pytest.raises(fs.JournalError, match="not a regular file"):
        fs.Scheduler(journal=path)


def test_a_file_of_zeros_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "zeros"
    path.touch()
    os.truncate(path, effort(1, 3) << 30)
    code = f"""
import resource, flowsched as fs
resource.setrlimit(resource.RLIMIT_AS, (800 << 20, 800 << 20))
try: fs.Scheduler.restore({str(path)!r})
except fs.JournalMismatchError as error: print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "nothing is in it" in done.stdout, done.stderr


@pytest.mark.parametrize("id", ["\ud83d\ude00", "\ud800", ("a", "\udfff")])
def test_ids_that_no_file_carries_are_refused_before_anything_happens(tmp_path: Path, id) -> None:
    sched = small(tmp_path / "journal")
    state, size = world_of(sched), sched.journal.size
    for event in (
        fs.MachineAdded(id, {"cpu": 1}),
        fs.MachineAdded("m9", {"cpu": 1}, labels={"zone": str(id)})
        if isinstance(id, str)
        else fs.MachineAdded("m9", {"cpu": 1}, rack=id),
        fs.JobSubmitted(id, [fs.Task("t", {"cpu": 1})]),
        fs.JobSubmitted("j", [fs.Task(id, {"cpu": 1})]),
    ):
        with pytest.raises(fs.InputError, match="surrogate"):
            sched.apply(event)
    assert world_of(sched) == state and sched.journal.size == size
    with pytest.raises(fs.InputError, match="can only hold integers"):
        sched.apply(fs.MachineAdded(10**5000, {"cpu": 1}))
    sched.apply(fs.MachineAdded("\U0001f600", {"cpu": 1}))
    assert "\U0001f600" in fs.Scheduler.restore(tmp_path / "journal").cluster.machines


def test_a_round_that_raises_is_recovered_as_it_was(tmp_path: Path) -> None:
    """Whatever a policy raises, and wherever: the inventory agrees, and a recovered scheduler goes on with the same rounds."""
    for seed in range(effort(12, 200)):
        fail, rnd = [False], random.Random(seed)

        def cost(cluster, classes, rows):
            if fail[0] and rnd.random() < 0.3:  # noqa: B023
                raise ZeroDivisionError
            return np.zeros((len(classes), len(rows)))

        base = POLICIES[seed % len(POLICIES)]()
        policy = replace(base, placement=(*base.placement, fs.CustomCost(cost)))
        sched = fs.Scheduler(policy, journal=tmp_path / f"j{seed}")
        life, raised = Life(seed), 0
        for step in range(30):
            sched.apply(*life.events(sched))
            fail[0] = step > 10
            before = world_of(sched)
            try:
                done = sched.schedule(life.later())
            except ZeroDivisionError:
                raised += 1
                assert [m[:4] for m in world_of(sched)[0]] == [m[:4] for m in before[0]]
                audit(sched.cluster)
            else:
                sched.commit(done, life.only(done))
            fail[0] = False
        sched.journal.close()
        again = fs.Scheduler(policy, journal=fs.Journal(tmp_path / f"j{seed}"))
        assert not again.recovery.differences
        assert world_of(again) == world_of(sched)
        now = life.later()
        assert said(again.schedule(now)) == said(sched.copy().schedule(now))
