"""Classes compared with shapes by the values of labels: the same as one by one."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import flowsched as fs
from flowsched.cluster.selectors import wanted_labels
from flowsched.cluster.shapes import Suitability, unsuited

VALUES = ["1", "2", "3", "x"]


def labels(random: Random) -> dict[str, str]:
    return {name: random.choice(VALUES) for name in "abc" if random.random() < 0.7}


def wanted(random: Random) -> dict[str, object]:
    """Values, or requirements with each operator, on labels that machines may lack."""

    def some() -> list[str]:
        return random.sample(VALUES, random.randint(0, 3))

    def full() -> list[str]:
        return random.sample(VALUES, random.randint(1, 3))

    def requirement() -> tuple[object, ...]:
        operator = random.choice(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
        operands = {"In": full, "NotIn": full, "Gt": lambda: [2], "Lt": lambda: [2]}.get(operator, list)
        return operator, *operands()

    return {
        name: some() if random.random() < 0.4 else [requirement() for _ in range(random.randint(1, 2))]
        for name in random.sample("abcd", random.randint(0, 3))
    }


@given(st.integers(0, 2**32))
def test_new_classes_and_new_shapes_are_compared_as_one_by_one(seed: int) -> None:
    random, suitability, known = Random(seed), Suitability(-1), {}
    taints = [("t", "1", "NoSchedule"), ("t", "", "PreferNoSchedule"), ("u", "2", "NoExecute")]
    tolerations = [("t", "1", None), (None, None, None), ("u", None, "NoExecute")]
    for turn in range(12):
        if random.random() < 0.5:
            machine = fs.Machine(
                turn, (), labels=labels(random), slots=random.choice([None, 0, 3]), taints=random.sample(taints, random.randint(0, 2))
            )  # fmt: skip
            capacity = np.array([random.randint(0, 3), random.randint(0, 3)], np.int64)
            suitability.settle([random.randrange(6)], capacity, machine)
        else:
            demand = np.array([random.randint(0, 3), random.randint(0, 3)], np.int64)
            asked = wanted_labels("constraints", wanted(random)), random.sample(tolerations, random.randint(0, 2))
            class_id = random.randrange(4)
            suitability.add_class(class_id, demand, *asked)
            known[class_id] = demand, asked
        for class_id, (demand, asked) in known.items():
            for shape, key in suitability._keys.items():
                assert suitability._suits[class_id, shape] == (not any(unsuited(key, *asked))), (key, asked)
                enough = key[2] != 0 and all(need <= amount for need, amount in zip(demand, key[0], strict=True))
                assert suitability._holds[class_id, shape] == enough
        if known and random.random() < 0.3:
            class_id = random.choice(list(known))
            suitability.drop_class(class_id)
            del known[class_id]
