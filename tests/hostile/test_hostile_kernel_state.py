"""States of a network that say anything: each is refused by name, or is a network whose answers are right."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from effort import effort
from netmodel import ALGORITHMS, from_problem, mutate
from strategies import random_problem

import flowsched as fs
from flowsched.network.state import ARRAYS, NUMBERS

CASES = effort(800, 60_000)
WILD = (
    -(2**63),
    -(2**31),
    -(2**30),
    -5,
    -2,
    -1,
    0,
    1,
    2,
    7,
    10**6,
    2**30,
    2**31 - 1,
    2**59,
    2**60 - 1,
    2**61,
    2**62,
    2**63 - 1,
)


def lived(seed: int) -> fs.FlowNetwork:
    """A small network with a history: free ids, lower bounds, unlimited arcs, changes that wait, maybe a kept basis with news."""
    rng = np.random.default_rng(seed)
    mirror = from_problem(random_problem(rng, 4 + seed % 9, 10 + 3 * (seed % 9), lower=0.1 * (seed % 3), negative=0.1))
    net = mirror.net
    if seed % 4 == 1:
        net._set_budget(1 + seed % 7, 5 * (seed % 5) - 1)
    if seed % 4 == 3:
        return net
    _solved(net, seed)
    for _ in range(seed % 11):
        mutate(mirror, rng)
        if rng.random() < 0.3:
            _solved(net, seed + 1)
    if seed % 2:
        _solved(net, 3)
        arcs = net.arcs()
        for _ in range(seed % 5):
            few = rng.choice(arcs, min(3, len(arcs)), replace=False)
            net.set_cost(few, rng.integers(0, 50, len(few)))
            if rng.random() < 0.4:
                _solved(net, 3)
    if seed % 6 == 2 and net.num_arcs:
        bounded = net.arcs()[net.capacity() > 0][:1]
        net.set_capacity(bounded, fs.INF)
        net.set_cost(bounded, [-1])  # its half-arc is bent, if not a cycle without limit
    return net


def _solved(net: fs.FlowNetwork, seed: int) -> str:
    try:
        net.solve(algorithm=ALGORITHMS[seed % 4])
    except (fs.InfeasibleError, fs.UnboundedError) as error:
        return type(error).__name__
    return "optimal"


def answer(net: fs.FlowNetwork, algorithm: str) -> int | str:
    """Optimal cost, certified, or the name of the error."""
    try:
        solution = net.solve(algorithm=algorithm)
    except (fs.InfeasibleError, fs.UnboundedError) as error:
        return type(error).__name__
    assert solution.stats["gap"] == 0
    net.certify()
    return solution.cost


def anew(net: fs.FlowNetwork) -> fs.FlowNetwork:
    """The same data in a network without a past."""
    cold = fs.FlowNetwork()
    nodes = net.nodes()
    cold.add_nodes(net.supply())
    place = np.zeros(int(nodes[-1]) + 1 if len(nodes) else 0, np.int64)
    place[nodes] = np.arange(len(nodes))
    cold.add_arcs(place[net.tail()], place[net.head()], net.capacity(), net.cost(), lower=net.lower())
    return cold


def altered(net: fs.FlowNetwork, rng: np.random.Generator) -> None:
    """Some of everything: ids are given again, blocks grow, basis and potentials are used."""
    arcs = net.arcs()
    few = rng.choice(arcs, min(3, len(arcs)), replace=False) if len(arcs) else arcs
    net.set_cost(few, rng.integers(0, 9, len(few)))
    if rng.random() < 0.5:
        return
    new = net.add_nodes([0, 0])
    ends = np.concatenate([net.nodes()[:3], new])
    net.add_arcs(rng.choice(ends, 6), rng.choice(ends, 6), 4, rng.integers(0, 9, 6))
    if rng.random() < 0.5:
        net.remove_arcs(net.arcs()[::5])
        net.remove_nodes(new[:1])


def differs(state: dict, other: dict) -> list[str]:
    return [name for name in state if not np.array_equal(state[name], other[name])]


def damaged(state: dict, other: dict, rng: np.random.Generator) -> tuple[dict, str]:
    """The state with something else in one or two places."""
    state = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in state.items()}
    what = []
    for _ in range(1 + (rng.random() < 0.3)):
        kind = rng.integers(0, 12)
        name = str(rng.choice(list(ARRAYS)))
        array = state[name]
        if kind == 0:
            number = str(rng.choice(list(NUMBERS)))
            least, most = NUMBERS[number]
            state[number] = int(
                rng.choice([least, most, state[number] + 1, max(state[number] - 1, least), min(most, 10**6)])
            )
            name = number
        elif kind == 1:
            state[name] = array[: len(array) // 2] if rng.random() < 0.5 else np.append(array, array[:1])
        elif kind == 2:
            state[name] = array.astype(rng.choice([np.int32, np.int64, np.uint64, np.float64, np.int16]))
        elif kind == 3:
            same = [key for key in ARRAYS if state[key].dtype == array.dtype and len(state[key]) == len(array)]
            key = str(rng.choice(same))
            state[name], state[key] = state[key], array
        elif kind == 4:
            state[name] = other[name]
        elif len(array):
            i = int(rng.integers(len(array)))
            if kind < 8:
                array[i] = np.array(rng.choice(WILD)).astype(array.dtype)
            elif kind < 10:
                array[i] += rng.choice([-2, -1, 1, 2])
            else:
                j = int(rng.integers(len(array)))
                array[[i, j]] = array[[j, i]]
        what.append(f"{kind} {name}")
    return state, ", ".join(what)


@pytest.mark.parametrize("seed", range(effort(15, 600)))
def test_a_state_is_complete(seed):
    """A network made of the state equals the original, and so do all its later solves: costs, flows, potentials, counts."""
    net = lived(seed)
    state = net.state()
    assert all(type(value) in (int, np.ndarray) for value in state.values())
    twins = [net, fs.FlowNetwork.from_state(state), pickle.loads(pickle.dumps(net)), net.copy()]
    assert all(not differs(state, twin.state()) for twin in twins)
    for step in range(8):
        found = []
        for twin in twins:
            altered(twin, np.random.default_rng(1000 * seed + step))
            name = answer(twin, ALGORITHMS[(seed + step) % 5 % 4])
            found.append((name, twin.state()))
        for name, after in found[1:]:
            assert name == found[0][0]
            assert not differs(found[0][1], after)


def test_read_only_and_unaligned_vectors_of_other_memory_are_copied():
    net = lived(5)
    state = net.state()
    other = {}
    for name, value in state.items():
        if isinstance(value, np.ndarray):
            memory = b"x" + value.tobytes()
            other[name] = np.frombuffer(memory, value.dtype, len(value), 1)
            assert not other[name].flags.writeable
        else:
            other[name] = value
    twin = fs.FlowNetwork.from_state(other)
    assert not differs(state, twin.state())
    before = state["supply"].copy()
    twin = fs.FlowNetwork.from_state(state)
    state["supply"][:] = 7
    assert twin.supply().tolist() == before[twin.nodes()].tolist()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.pop("flow"), ["flow", "missing"]),
        (lambda s: s.update(more=1), ["more"]),
        (lambda s: s.update({1: 1}), ["1"]),
        (lambda s: s.update(form=2), ["form", "3 to 3"]),
        (lambda s: s.update(hub=True), ["hub"]),
        (lambda s: s.update(hub=10**400), ["hub"]),
        (lambda s: s.update(hub=np.int64(1)), ["hub"]),
        (lambda s: s.update(flow=s["flow"].tolist()), ["flow", "list"]),
        (lambda s: s.update(flow=s["flow"].astype(np.int32)), ["flow", "int32"]),
        (lambda s: s.update(flow=s["flow"].astype(">i8")), ["flow", ">i8"]),
        (lambda s: s.update(flow=np.ma.masked_array(s["flow"])), ["flow"]),
        (lambda s: s.update(flow=s["flow"].reshape(1, -1)), ["flow", "shape"]),
        (lambda s: s.update(flow=s["flow"].astype(object)), ["flow", "object"]),
        (lambda s: s.update(flow=s["flow"][:-1]), ["flow", "length"]),
        (lambda s: s["flow"].__setitem__(0, 2**62), ["flow[0]"]),
        (lambda s: s["adjacent"].__setitem__(0, 2**31 - 1), ["adjacent[0]"]),
        (lambda s: s["degree"].__setitem__(0, 2**31 - 1), ["degree[0]"]),
        (lambda s: s["potential"].__setitem__(slice(None), np.arange(len(s["potential"])) * 10**6), ["potential", "half-arc"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(change, words):
    state = lived(4).state()
    change(state)
    with pytest.raises(fs.exceptions.InputError) as caught:
        fs.FlowNetwork.from_state(state)
    for word in ["state", *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize("state", [None, (), [1], ({"half": 1}, (1, 2), None), b"", {}, "abc", {"form": 1}], ids=repr)
def test_what_is_no_state_at_all(state):
    with pytest.raises(fs.exceptions.InputError, match="state"):
        fs.FlowNetwork.from_state(state)
    net = lived(1)
    before = net.state()
    with pytest.raises(fs.exceptions.InputError, match="state"):
        net.__setstate__(state)
    assert not differs(before, net.state()), "a network that refuses a state stays as it is"


def test_damaged_states_are_refused_or_right(capsys):
    """Thousands of states with random words at random places; what is accepted must solve rightly, at once and after changes."""
    states = [lived(seed).state() for seed in range(80)]
    refused, right = {}, 0
    for case in range(CASES):
        rng = np.random.default_rng(case)
        state, what = damaged(states[case % 80], states[int(rng.integers(80))], rng)
        try:
            net = fs.FlowNetwork.from_state(state)
        except fs.exceptions.InputError as error:
            name = str(error).split(":")[1].split("[")[0].split(",")[0].strip()
            refused[name] = refused.get(name, 0) + 1
            continue
        except Exception as error:
            raise AssertionError(f"case {case}: {what}") from error
        for _ in range(2):
            assert answer(net, ALGORITHMS[case % 4]) == answer(anew(net), "repair"), f"case {case}: {what}"
            altered(net, rng)
        right += 1
    with capsys.disabled():
        print(f"\n{CASES} damaged states: {right} taken and right, refused for {refused}")
    assert right > CASES // 50
    assert sum(refused.values()) > CASES // 3
    assert len(refused) > 25, "most checks have fired"
