"""Estimates of the needs of tasks of one kind over their progress, learnt from completed tasks.

Source: M.-S. Zhou, X.-S. Dong, H. Chen and X.-J. Zhang, "Dynamically Fine-grained Scheduling
Method in Cloud Environment", Journal of Software 31(12), 2020 (FGM),
section 2.2 and equation (8).

A task is measured by *progress*, in a fixed number of points.  For each point the estimator keeps the amount of each
resource and the seconds that the task spends there.  With b_n the measurement of the n-th task, a_n the estimate after it::

    a_1 = b_1        a_n = a_{n-1} e^{-k} + b_n (1 - e^{-k})        k = max(0, 5/60 - r_c Thr)        Thr = 5 / (60
    limit)

so a task under compression r_c counts less, and not at all once r_c reaches the limit.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import ref

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowsched.boundary.validate import amounts, check_id, mapping, number, numbers, ordered, whole
from flowsched.exceptions import InputError

Floats = NDArray[np.float64]

_K = 5 / 60
"""Weight of a sample, as in Linux's load average: every 5 seconds, over a minute."""


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Needs of a task by progress.

    Attributes
    ----------
    demand : ndarray of float64, shape (points, resources)
        In the caller's units; point i is the progress from i/points to (i+1)/points.
    seconds : ndarray of float64, shape (points,)
        Uncompressed time spent at each point, in the unit of the events.
    samples : int
        Number of tasks that the estimate is based on.
    """

    demand: Floats
    seconds: Floats
    samples: int


@dataclass(frozen=True, slots=True)
class Seen:
    """One observation of a task."""

    kind: Hashable
    demand: Floats
    seconds: Floats
    compression: Floats


class Sized(tuple[Hashable, ...]):
    """A kind whose last part, a size, is replaced by a step of sizes; see `DemandEstimator.key`."""


class Estimate:
    """Running means of one kind, and the mean distance of its tasks from them."""

    def __init__(self, seen: Seen) -> None:
        self.demand = seen.demand.copy()
        self.seconds = seen.seconds.copy()
        self.spread = np.zeros_like(self.demand)
        # Variance of the means, as a fraction of that of a single task: the sum of the squared weights.
        self.doubt = np.ones_like(self.seconds)
        self.samples = 1

    def add(self, seen: Seen, thr: float) -> bool:
        """Take a task in; False where it was too compressed to count."""
        weight = -np.expm1(-np.maximum(0.0, _K - seen.compression * thr))
        if not weight.any():
            return False
        self.samples += 1
        far = seen.demand - self.demand
        # The spread starts at 0, so its first samples count as in a plain mean.
        quick = np.where(weight > 0, np.maximum(weight, 1 / (self.samples - 1)), 0.0)
        self.spread += quick[:, None] * (np.abs(far) - self.spread)
        self.demand += weight[:, None] * far
        self.doubt = (1 - weight) ** 2 * self.doubt + weight**2
        self.seconds += weight * (seen.seconds - self.seconds)
        return True


class Recorder(Protocol):
    """A journal, as an estimator sees it."""

    @property
    def closed(self) -> bool:
        """True once it records nothing more."""
        ...

    def record(self, words: Sequence[Any]) -> None:
        """Record a call: name and arguments of the method."""
        ...


MOST_POINTS = 100_000
"""Largest number of points of an estimate."""


class DemandEstimator:
    """Learns the needs of the tasks of each kind.

    `observe` only queues; the estimates change in `update`, which the caller runs while no decision waits for it.

    Parameters
    ----------
    resources : sequence of str
        Their order in every array.
    points : int
        Resolution of progress.
    limit : float
        Largest compression: a task under it no longer counts.
    cold : int
        Number of tasks that must have been seen before a profile is given.
    safety : mapping of str to float
        By resource, the number of mean deviations that are added to the mean; for resources that must not run short
        (memory).  FGM itself accepts that tasks exceed their estimates, and then adjusts the level of the machine.
    tolerance : float
        Kinds ``(..., size)`` whose last part, a number, differs by less than about this fraction are one.
    kinds : int
        Number of kinds that are remembered; the one that was updated least recently is forgotten first.
    pending : int
        Largest number of observations that wait for `update`; the oldest are dropped first.

    Examples
    --------
    >>> estimator = DemandEstimator(("cpu", "mem"), points=4, cold=1)
    >>> estimator.observe("wordcount", [[2, 1], [2, 1], [1, 1], [1, 1]], seconds=8.0)
    >>> estimator.update()
    ['wordcount']
    >>> estimator.profile("wordcount").demand[:, 0]
    array([2., 2., 1., 1.])
    """

    _recorder: ref[Recorder] | None = None

    def __init__(
        self,
        resources: Sequence[str] = ("cpu", "mem"),
        *,
        points: int = 100,
        limit: float = 0.1,
        cold: int = 3,
        safety: Mapping[str, float] | None = None,
        tolerance: float = 0.0,
        kinds: int = 4096,
        pending: int = 10_000,
    ) -> None:
        self.resources = ordered("DemandEstimator: resources", resources)
        if not self.resources or len(set(self.resources)) < len(self.resources):
            raise InputError(f"DemandEstimator: resources: names, each once, expected, got {resources!r}")
        self.points = whole("DemandEstimator: points", points, 1, MOST_POINTS)
        self.limit = number("DemandEstimator: limit", limit, 0)
        if not 0 < limit < 1:
            raise InputError(f"DemandEstimator: limit must lie between 0 and 1, got {limit!r}")
        self.cold = whole("DemandEstimator: cold", cold, 1)
        self.tolerance = number("DemandEstimator: tolerance", tolerance, 0)
        self._safety = np.zeros(len(self.resources))
        self.safety = dict(mapping("DemandEstimator: safety", {} if safety is None else safety))
        for name, times in self.safety.items():
            if name not in self.resources:
                raise InputError(f"DemandEstimator: safety[{name!r}]: the resources are {', '.join(self.resources)}")
            self._safety[self.resources.index(name)] = number(f"DemandEstimator: safety[{name!r}]", times, 0)
        self.kinds = whole("DemandEstimator: kinds", kinds, 1)
        self.pending = whole("DemandEstimator: pending", pending, 1)
        self._pending: deque[Seen] = deque(maxlen=self.pending)
        self._known: OrderedDict[Hashable, Estimate] = OrderedDict()

    def __len__(self) -> int:
        """Number of kinds that are known."""
        return len(self._known)

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but the recorder."""
        return {name: value for name, value in vars(self).items() if name != "_recorder"}

    def blank(self) -> DemandEstimator:
        """Return an empty estimator of the same settings."""
        other = copy(self)
        other._pending, other._known = deque(maxlen=self.pending), OrderedDict()
        return other

    @property
    def recorder(self) -> Recorder | None:
        """Journal that records the calls of `observe` and `update`, by a weak reference."""
        return None if self._recorder is None else self._recorder()

    @recorder.setter
    def recorder(self, recorder: Recorder) -> None:
        self._recorder = ref(recorder)

    def _tell(self, *words: Any) -> None:
        recorder = self.recorder
        if recorder is not None:
            recorder.record(words)

    def observe(self, kind: Hashable, demand: ArrayLike, seconds: ArrayLike, compression: ArrayLike = 0.0) -> None:
        """Queue the measurements of a task of this kind.

        Parameters
        ----------
        kind : hashable
        demand : array_like, shape (points, resources) or (resources,)
            Amounts used at each point, or all the time.
        seconds : array_like, shape (points,) or scalar
            Seconds spent at each point, or in all.
        compression : array_like, shape (points,) or scalar
            Compression at the time, 0 to 1.

        Raises
        ------
        InputError
            A kind without a hash, a shape that does not fit, a negative or non-finite number.
        """
        seen = self._checked(kind, demand, seconds, compression)
        self._tell("observe", kind, *(np.asarray(array, np.float64) for array in (demand, seconds, compression)))
        self._pending.append(seen)

    def queue(self, kind: Hashable, demand: ArrayLike, seconds: ArrayLike, compression: ArrayLike) -> None:
        """Queue measurements as `observe` does, within a call that is itself recorded."""
        self._pending.append(self._checked(kind, demand, seconds, compression))

    def _checked(self, kind: Hashable, demand: ArrayLike, seconds: ArrayLike, compression: ArrayLike) -> Seen:
        check_id("observe: kind", kind)
        p, d = self.points, len(self.resources)
        seen = amounts("observe: demand", demand)
        spent = amounts("observe: seconds", seconds, math.inf)
        squeezed = amounts("observe: compression", compression, 1)
        for name, array, shapes in (
            ("demand", seen, ((p, d), (d,))),
            ("seconds", spent, ((p,), ())),
            ("compression", squeezed, ((p,), ())),
        ):
            if array.shape not in shapes:
                raise InputError(f"observe: {name}: shape {' or '.join(map(str, shapes))} expected, got {array.shape}")
        spent = spent / p if spent.ndim == 0 else spent
        shaped = (np.broadcast_to(a, s) for a, s in ((seen, (p, d)), (spent, (p,)), (squeezed, (p,))))
        return Seen(self.key(kind), *shaped)

    def update(self, most: int | None = None) -> list[Hashable]:
        """Take in observations, the oldest first.

        Parameters
        ----------
        most : int, optional
            Largest number of observations to take in; the rest are left for later.

        Returns
        -------
        list
            Kinds whose estimate changed.
        """
        most = None if most is None else whole("update: most", most, 0)
        self._tell("update", most)
        return self.take_in(most)

    def take_in(self, most: int | None) -> list[Hashable]:
        """Take in observations as `update` does, within a call that is itself recorded."""
        most = len(self._pending) if most is None else whole("update: most", most, 0)
        changed: dict[Hashable, None] = {}
        thr = _K / self.limit
        for _ in range(min(most, len(self._pending))):
            seen = self._pending.popleft()
            estimate = self._known.get(seen.kind)
            if estimate is None:
                self._known[seen.kind] = Estimate(seen)
                changed[seen.kind] = None
            elif estimate.add(seen, thr):
                changed[seen.kind] = None
            self._known.move_to_end(seen.kind)
        while len(self._known) > self.kinds:
            changed.pop(self._known.popitem(last=False)[0], None)
        return list(changed)

    def profile(self, kind: Hashable | None, together: ArrayLike = 1, bound: ArrayLike = math.inf) -> Profile | None:
        """Return the needs of a task of this kind; None if too few were seen (it is then matched by its request).

        Parameters
        ----------
        kind : hashable
        together : array_like, shape (resources,) or scalar
            Number of such tasks that may share a machine.  The margin for safety is each one's part in the deviation of
            their sum: deviations cancel in part.  An error of the mean does not; it shrinks with more samples.
        bound : array_like, shape (resources,) or scalar
            Amount beyond which there is no margin, such as the request.
        """
        check_id("profile: kind", kind)
        many = numbers("profile: together", together)
        if many.shape not in ((), (len(self.resources),)) or not (many > 0).all():
            raise InputError(f"profile: together: {len(self.resources)} numbers > 0 or one expected, got {together!r}")
        estimate = self._known.get(self.key(kind))
        if estimate is None or estimate.samples < self.cold:
            return None
        variance = estimate.doubt[:, None] + 1.0 / many
        margin = self._safety * estimate.spread * np.sqrt(variance)
        margin = np.minimum(margin, np.maximum(np.asarray(bound, np.float64) - estimate.demand, 0.0))
        return Profile(estimate.demand + margin, estimate.seconds.copy(), estimate.samples)

    def seen(self, kind: Hashable) -> int:
        """Return the number of tasks of a kind that its estimate is based on."""
        estimate = self._known.get(self.key(kind))
        return 0 if estimate is None else estimate.samples

    def key(self, kind: Hashable | None) -> Hashable | None:
        """Return the key of a kind: itself, or with a tolerance the same with its size in steps."""
        if not self.tolerance or not isinstance(kind, tuple) or not kind or isinstance(kind, Sized):
            return kind
        size = kind[-1]
        if isinstance(size, bool) or not isinstance(size, int | float) or not 0 < size < math.inf:
            return kind
        return Sized((*kind[:-1], round(math.log(size) / math.log1p(self.tolerance))))


def by_progress(times: ArrayLike, usage: ArrayLike, duration: float, points: int) -> Floats:
    """Turn samples in time into amounts by progress: the nearest sample for each point.

    Progress is taken as the fraction of the duration that has passed.  A caller with a better measure gives its own
    arrays to `DemandEstimator.observe`.

    Parameters
    ----------
    times : array_like, shape (n,)
        Ascending, from the start of the task.
    usage : array_like, shape (n, resources)
        NaN where nothing was measured.
    duration : float
        From the start to the end.

    Returns
    -------
    ndarray of float64, shape (points, resources)
    """
    at, used = numbers("by_progress: times", times), numbers("by_progress: usage", usage)
    if at.ndim != 1 or not len(at) or used.ndim != 2 or len(at) != len(used):
        raise InputError(
            f"by_progress: one or more samples with a time each expected, got shapes {at.shape} and {used.shape}"
        )
    if not np.isfinite(at).all() or (np.diff(at) < 0).any():
        raise InputError("by_progress: times: finite numbers that ascend expected")
    number("by_progress: duration", duration, 0)
    whole("by_progress: points", points, 1)
    middle = (np.arange(points) + 0.5) / points * duration
    right = np.searchsorted(at, middle).clip(1, max(len(at) - 1, 1))
    left = right - 1
    right = np.minimum(right, len(at) - 1)
    nearest = np.where(middle - at[left] <= at[right] - middle, left, right)
    return used[nearest]
