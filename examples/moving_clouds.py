"""Optimal transport from one cloud of points to another that moves: each step starts from the potentials of the last.

``--peers`` compares CPU times with POT, from scratch and from its potentials.
"""

import sys
import time

import numpy as np

import flowsched as fs


def clouds(count, steps, seed):
    """Yield integer matrices of squared distances between a cloud at rest and one that drifts."""
    rng = np.random.default_rng(seed)
    rest = rng.normal(0, 100, (count, 2))
    moving, speed = rng.normal(0, 100, (count, 2)) + [60, 0], rng.normal(0, 2, (count, 2))
    for step in range(steps):
        place = moving + step * speed
        yield np.rint(((rest[:, None] - place) ** 2).sum(axis=2)).astype(np.int64)


def transports(matrices, supply, demand):
    """Yield the exact plan of each matrix."""
    potential = None
    for cost in matrices:
        plan = fs.transport(cost, supply, demand, potential=potential)
        potential = plan.potential
        yield plan


def peers(number):
    """Compare CPU times: from the last potentials and from scratch, with POT's both ways."""
    try:
        import ot
    except ImportError as missing:
        raise ImportError("pip install pot") from missing

    print("points, steps, weights: warm, from scratch; POT warm, from scratch (ms); POT's faster one / warm")
    for weighted in False, True:
        for count, steps in [(200, 10), (500, 10), (1_500, 5)][:number]:
            rng = np.random.default_rng(2)
            draw = np.full(count, 1 / count)
            mass = [rng.multinomial(20 * count, draw) if weighted else np.ones(count, int) for _ in range(2)]
            matrices = list(clouds(count, steps, seed=1))
            floats = [cost.astype(float) for cost in matrices]
            a, b = (part.astype(float) for part in mass)

            times = [time.process_time()]
            exact = [plan.cost for plan in transports(matrices, *mass)]
            times.append(time.process_time())
            assert [fs.transport(cost, *mass).cost for cost in matrices] == exact
            times.append(time.process_time())
            warm, potential = [], None
            for cost in floats:
                _, log = ot.emd(a, b, cost, numItermax=10**7, log=True, potentials_init=potential)
                potential = log["u"], log["v"]
                warm.append(round(log["cost"]))
            times.append(time.process_time())
            scratch = [round(ot.emd2(a, b, cost, numItermax=10**7)) for cost in floats]
            times.append(time.process_time())
            assert warm == scratch == exact, "the same optimum in every step"
            spent = np.diff(times) * 1e3
            print(
                f"{count:5}, {steps}, {'drawn' if weighted else 'one'}: {spent[0]:.1f}, {spent[1]:.1f};"
                f" {spent[2]:.1f}, {spent[3]:.1f}; {min(spent[2:]) / spent[0]:.1f} times"
            )


def main():
    """Move a cloud of 200 points."""
    print("step: cost, pairs; pivots from the last potentials, from scratch")
    matrices = list(clouds(200, 5, seed=1))
    for step, (cost, plan) in enumerate(zip(matrices, transports(matrices, 1, 1), strict=True)):
        fresh = fs.transport(cost, 1, 1)
        assert fresh.cost == plan.cost
        print(f"{step}: {plan.cost}, {len(plan.rows)}; {plan.stats['pivots']}, {fresh.stats['pivots']}")


if __name__ == "__main__":
    if "--peers" in sys.argv:
        peers(1 if "--quick" in sys.argv else None)
    else:
        main()
