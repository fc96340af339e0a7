"""Exceptions and signals at every point of every call of a scheduler: the state is as before the call or as after it.

Kinds of fault within a call, for every n:

* A signal whose handler raises, at the n-th bytecode.  The call must end before or after, and the next one must work.
* An exception out of nowhere at the n-th bytecode; the n-th allocation of an object fails; and in a build with fault points
  (``FLOWSCHED_FAULTS=1``) the n-th allocation of an array, or look for signals, of the kernels.  The call may leave a state
  that is neither, but then it says so from then on, and the journal has the state before or after.
"""

from __future__ import annotations

import dis
import gc
import os
import random
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from calls import Stop, crowd, send, small, state_of
from effort import FUZZ, effort
from faults import fail_object
from lives import POLICIES, Life, said, world_of

import flowsched as fs
from flowsched import _faults
from flowsched.cluster.audit import audit
from flowsched.journal.store import Row, Store

PACKAGE = os.path.dirname(fs.__file__)


class Fault(BaseException):
    """An exception out of nowhere."""


def do_apply(sched: fs.Scheduler, rnd: fs.Round) -> None:
    sched.apply(fs.TaskCompleted("o0", time=2.0))


def do_submit(sched: fs.Scheduler, rnd: fs.Round) -> None:
    sched.apply(
        fs.JobSubmitted("more", [fs.Task("x", {"cpu": 1}), fs.Task("y", {"cpu": 1}, kind="k", apart=1)], user="w")
    )


def do_fail(sched: fs.Scheduler, rnd: fs.Round) -> None:
    sched.apply(fs.MachineFailed("m1", time=2.0))


def do_together(sched: fs.Scheduler, rnd: fs.Round) -> None:
    sched.apply(
        fs.TaskCompleted("o0", time=2.0), fs.MachineFailed("m1", time=2.0), fs.UserAdded("new"), fs.MachineAdded("m1", {"cpu": 2}),
        fs.JobSubmitted("more", [fs.Task("x", {"cpu": 1}, kind="k", apart_in_rack=1)]), fs.TaskStarted("x", "m1"), atomic=True,
    )  # fmt: skip


def do_refuse(sched: fs.Scheduler, rnd: fs.Round) -> None:
    with suppress(fs.UnknownTaskError):
        sched.apply(fs.MachineFailed("m1", time=2.0), fs.TaskRemoved("o0"), fs.TaskRemoved("no"), atomic=True)


def do_schedule(sched: fs.Scheduler, rnd: fs.Round) -> None:
    sched.schedule(3.0)


def do_commit(sched: fs.Scheduler, rnd: fs.Round) -> None:
    sched.commit(rnd)


def do_policy(sched: fs.Scheduler, rnd: fs.Round) -> None:
    sched.policy = fs.Policy.named("pack")


def do_compact(sched: fs.Scheduler, rnd: fs.Round) -> None:
    sched.compact()


CALLS = [do_apply, do_submit, do_fail, do_together, do_refuse, do_schedule, do_commit, do_policy, do_compact]
some_calls = pytest.mark.parametrize(
    "call", [pytest.param(call, marks=() if call in (do_submit, do_commit) else pytest.mark.long) for call in CALLS]
)
STRIDE = {call: 3000 if call is do_compact else 100 if call is do_schedule else 60 for call in CALLS}
"""Twice the mean distance of the points in a default run; faults at bytecodes, which are many, have four times as much."""


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


def at_point(kind: str):
    """The n-th allocation of an array, or look for signals."""

    def fail(n: int, call) -> tuple[bool, bool]:
        raised = False
        _faults.fail_at(*((n, 0) if kind == "allocation" else (0, n)))
        try:
            call()
        except (MemoryError, KeyboardInterrupt):
            raised = True
        return raised, _faults.fail_at(0, 0)[kind == "signal"] >= n

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

    reference, rnd = fresh("earlier")
    if journal and rnd is not None:
        reference.journal._round.clear()  # as a round is lost that was not committed yet
        reference.journal.close()
        reference = fs.Scheduler(resources=("cpu", "gpu"), journal=tmp_path / "earlier")
    earlier = state_of(reference)
    if journal:
        reference.journal.close()
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
        assert read in ((before, after, earlier) if refused else (before, after)), (call.__name__, n)
        if refused is None:
            assert read == now, (call.__name__, n)
        elif not raised:
            assert read == after, (call.__name__, n)
        again.schedule(5.0)
        again.journal.close()
    return found


def told(what: str, call, found: Counter[str]) -> None:
    print(f"{what} in {call.__name__[3:]}: {found.total()} faults: {dict(found)}")


@some_calls
def test_a_signal_anywhere_comes_before_or_after(call, tmp_path: Path, raising_handler) -> None:
    found = walk(call, at_bytecode(send), tmp_path, effort(4, 1) * STRIDE[call])
    told("signals", call, found)
    assert found["refused from then on"] == 0 < found.total()


@some_calls
def test_an_exception_out_of_nowhere_leaves_no_half_state_in_use(call, tmp_path: Path) -> None:
    found = walk(call, at_bytecode(throw), tmp_path, effort(4, 1) * STRIDE[call])
    told("exceptions", call, found)
    assert found.total() > 0


def test_a_store_with_a_new_checkpoint_and_closed_can_be_opened_again_whatever_ended_it(tmp_path: Path) -> None:
    """An exception at every bytecode: the lock goes with the log, and the records are the old ones or the new ones."""
    path, n, found = tmp_path / "log", 0, Counter()
    while True:
        n += 1
        path.unlink(missing_ok=True)
        store = Store(path)
        store.begin(("cpu",), Row("begin", "old"))
        count, raised = interrupted(lambda store=store: store.checkpoint(Row("state", "new"), [b"all"]), n, throw)
        store.close()
        again = Store(path)
        records = again.records()
        (record,) = (row.body for _, row in records)
        assert record == "old" or records.checkpoint() == b"all"
        again.close()
        found[record] += 1
        if count < n:
            break
        assert isinstance(raised, Fault)
    assert record == "new" and found["old"] > 10 and found["new"] > 10


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


@pytest.mark.skipif(_faults.fail_at(0, 0) is None, reason="built without fault points (FLOWSCHED_FAULTS=1)")
@pytest.mark.parametrize("kind", ["allocation", "signal"])
def test_every_fault_point_in_a_round(kind: str, tmp_path: Path) -> None:
    found = walk(do_schedule, at_point(kind), tmp_path, 2, make=crowd)
    told(f"fault points ({kind})", do_schedule, found)
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
sched = fs.Scheduler(policy(), journal=fs.Journal(path))
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
again = fs.Scheduler(policy(), journal=fs.Journal(path, policies=[policy()]))
assert world_of(again) == state, "recovered otherwise"
again.schedule(1e6)
print("hit", hit)
"""


@pytest.mark.long
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


def test_a_round_that_raises_is_recovered_as_it_was(tmp_path: Path) -> None:
    """Whatever a policy raises, and wherever: the inventory agrees, and a recovered scheduler goes on with the same rounds."""
    for seed in range(effort(4, 200)):
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
