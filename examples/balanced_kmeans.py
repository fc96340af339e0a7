"""Balanced k-means: clusters of bounded sizes, with one min-cost flow that is kept between the iterations.

``--peers`` compares CPU times: every iteration is solved by OR-tools, too, and the whole run by k-means-constrained.
"""

import sys
import time

import numpy as np

import flowsched as fs


class Division:
    """Division of points among clusters of `least` to `most` points, at the least sum of costs."""

    def __init__(self, points, clusters, least, most):
        self.net = fs.FlowNetwork()
        point = self.net.add_nodes(1, count=points)
        cluster = self.net.add_nodes(0, count=clusters)
        (sink,) = self.net.add_nodes([-points])
        self.arcs = self.net.add_arcs(np.repeat(point, clusters), np.tile(cluster, points), 1, 0)
        self.net.add_arcs(cluster, sink, most, 0, lower=least)

    def __call__(self, cost):
        """Return the cluster of each point, and the sum of the costs."""
        self.net.set_cost(self.arcs, cost.ravel())
        total = self.net.solve().cost  # from the optimum of the iteration before
        return self.net.flow(self.arcs).reshape(cost.shape).argmax(axis=1), total


def costs(points, centers):
    """Distances in thousandths, as k-means-constrained rounds them."""
    return np.rint(1000 * np.sqrt(((points[:, None] - centers) ** 2).sum(axis=2))).astype(np.int64)


def kmeans(points, centers, least, most, iterations=100):
    """Yield the matrix of costs, the labels and the sum of the costs, until the labels stay."""
    divide, labels = Division(len(points), len(centers), least, most), None
    for _ in range(iterations):
        cost = costs(points, centers)
        before, (labels, total) = labels, divide(cost)
        yield cost, labels, total
        if before is not None and (labels == before).all():
            return
        centers = np.array([points[labels == k].mean(axis=0) for k in range(len(centers))])


def drawn(count, clusters, seed):
    """Return points around centers of unequal popularity, and the first centers."""
    rng = np.random.default_rng(seed)
    middle = 2 * rng.standard_normal((clusters, 2))
    popular = (clusters * rng.random(count) ** 2).astype(int)
    points = middle[popular] + rng.standard_normal((count, 2))
    return points, points[rng.choice(count, clusters, replace=False)]


def peers(number):
    """Compare CPU times: the solves of all iterations with OR-tools', and the whole run with k-means-constrained."""
    try:
        from ortools.graph.python.min_cost_flow import SimpleMinCostFlow
    except ImportError as missing:
        raise ImportError("pip install ortools") from missing
    try:
        from k_means_constrained import KMeansConstrained
    except ImportError:
        KMeansConstrained = None

    for count, clusters in [(600, 12), (5_000, 20), (20_000, 20)][:number]:
        least, most = int(0.8 * count / clusters), int(1.2 * count / clusters)
        points, centers = drawn(count, clusters, seed=1)
        times = [time.process_time()]
        steps = list(kmeans(points, centers, least, most, iterations=20))
        times.append(time.process_time())

        divide = Division(count, clusters, least, most)
        for cost, _, total in steps:
            assert divide(cost)[1] == total
        times.append(time.process_time())

        tail, head = np.divmod(np.arange(count * clusters), clusters)
        cluster, supply = count + np.arange(clusters), np.ones(count + clusters + 1, int)
        supply[count:] = [-least] * clusters + [clusters * least - count]
        for cost, _, total in steps:
            solver = SimpleMinCostFlow()
            arcs = solver.add_arcs_with_capacity_and_unit_cost(tail, count + head, np.ones_like(tail), cost.ravel())
            solver.add_arcs_with_capacity_and_unit_cost(
                cluster, [count + clusters] * clusters, [most - least] * clusters, [0] * clusters
            )
            solver.set_nodes_supplies(np.arange(len(supply)), supply)
            assert solver.solve() == solver.OPTIMAL
            solver.flows(arcs).reshape(cost.shape).argmax(axis=1)
            assert solver.optimal_cost() == total, "the same optimum in every iteration"
        times.append(time.process_time())
        whole, kept, other = np.diff(times) * 1e3
        print(f"{count} points, {clusters} clusters, {len(steps)} iterations")
        print(f"  solves: {kept:.0f} ms, OR-tools {other:.0f} ms, {other / kept:.1f} times")

        if KMeansConstrained is not None:
            begin = time.process_time()
            model = KMeansConstrained(clusters, least, most, init=centers, n_init=1, max_iter=len(steps), tol=0)
            model.fit(points)
            package = (time.process_time() - begin) * 1e3
            ours, theirs = (squares(points, labels) for labels in (steps[-1][1], model.labels_))
            print(f"  whole run: {whole:.0f} ms, k-means-constrained {package:.0f} ms, {package / whole:.1f} times")
            print(f"  squared distances: {ours / theirs:.4f} of theirs after {model.n_iter_} iterations")


def squares(points, labels):
    """Return the sum of squared distances to the means."""
    means = np.array([points[labels == k].mean(axis=0) for k in range(labels.max() + 1)])
    return ((points - means[labels]) ** 2).sum()


def main():
    """Divide 600 points."""
    points, centers = drawn(600, 12, seed=1)
    steps = list(kmeans(points, centers, least=40, most=60))
    for i in 0, 1, 2, len(steps) - 1:
        _, labels, total = steps[i]
        sizes = np.bincount(labels)
        print(f"iteration {i}: cost {total}, sizes {sizes.min()} to {sizes.max()}")


if __name__ == "__main__":
    if "--peers" in sys.argv:
        peers(1 if "--quick" in sys.argv else None)
    else:
        main()
