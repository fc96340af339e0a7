"""Metrics of a scheduler for Prometheus, and its rounds as spans for OpenTelemetry.

`Scheduler.metrics` needs neither of them: it returns plain numbers, and `METRICS` has their meanings.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from flowsched.rounds.meter import METRICS, Metric, Metrics
from flowsched.rounds.values import Round
from flowsched.version import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer
    from prometheus_client import Metric as Family

__all__ = ["METRICS", "Measured", "Metric", "PrometheusCollector", "RoundSpans"]

_PREFIX = "flowsched_"


class Measured(Protocol):
    """An object with metrics: `Scheduler` or `FineGrained`."""

    def metrics(self) -> Metrics:
        """Return the numbers of `METRICS`."""


class PrometheusCollector:
    """Collector of a scheduler's metrics, for a registry of `prometheus_client`.

    Names are those of `METRICS` after ``flowsched_``.  A scrape reads the numbers and does not slow down rounds.  It may run
    in any thread.

    Parameters
    ----------
    scheduler : Scheduler or FineGrained
    labels : mapping of str to str, optional
        Labels of every metric; needed to distinguish several schedulers in one registry.

    Examples
    --------
    >>> import flowsched as fs
    >>> from prometheus_client import CollectorRegistry
    >>> registry = CollectorRegistry()
    >>> registry.register(PrometheusCollector(fs.Scheduler(), {"pool": "a"}))
    >>> float(registry.get_sample_value("flowsched_rounds_total", {"pool": "a"}))
    0.0
    """

    def __init__(self, scheduler: Measured, labels: Mapping[str, str] | None = None) -> None:
        try:
            from prometheus_client import core
        except ImportError as missing:
            raise ImportError("the collector needs prometheus-client: pip install 'flowsched[prometheus]'") from missing
        self._scheduler = scheduler
        self._names, self._values = list(labels or {}), list((labels or {}).values())
        self._core = core

    def collect(self) -> Iterator[Family]:
        """Yield the present values of all metrics."""
        core, numbers = self._core, self._scheduler.metrics()
        kinds = {"counter": core.CounterMetricFamily, "gauge": core.GaugeMetricFamily}
        for metric in METRICS:
            name, value = _PREFIX + metric.name, numbers[metric.name]
            if metric.kind == "histogram":
                assert isinstance(value, dict)
                histogram = core.HistogramMetricFamily(name, metric.help, labels=self._names)
                buckets = [(bound, count) for bound, count in value.items() if bound != "sum"]
                histogram.add_metric(self._values, buckets, value["sum"])
                yield histogram
            else:
                by_label = value if isinstance(value, dict) else {"": value}
                own = [metric.label] if metric.label else []
                family = kinds[metric.kind](name, metric.help, labels=[*self._names, *own])
                for label, number in by_label.items():
                    family.add_metric([*self._values, *([label] if own else [])], number)
                yield family


class RoundSpans:
    """Hook of `Scheduler.on_round` that makes an OpenTelemetry span of every round.

    A span is called ``flowsched.round``, lasts as long as the round, and is a child of the span around the call
    of `schedule`.  The phases alternate within a round, so they are attributes: seconds of each, and the round's
    counts.

    Parameters
    ----------
    tracer : opentelemetry.trace.Tracer, optional
        By default the tracer of the global provider.
    """

    def __init__(self, tracer: Tracer | None = None) -> None:
        if tracer is None:
            try:
                from opentelemetry import trace
            except ImportError as missing:
                raise ImportError("spans need opentelemetry-api: pip install 'flowsched[otel]'") from missing
            tracer = trace.get_tracer("flowsched", __version__)
        self._tracer = tracer

    def __call__(self, round: Round) -> None:
        """Make the span of a round."""
        end, stats = time.time_ns(), round.stats
        seconds = stats.seconds_update + stats.seconds_solve + stats.seconds_read
        attributes = {
            "flowsched.now": round.now,
            "flowsched.seconds.update": stats.seconds_update,
            "flowsched.seconds.solve": stats.seconds_solve,
            "flowsched.seconds.read": stats.seconds_read,
            "flowsched.placements": len(round.placements),
            "flowsched.preemptions": len(round.preemptions),
            "flowsched.migrations": len(round.migrations),
            "flowsched.waiting": len(round.waiting),
            "flowsched.network.nodes": stats.nodes,
            "flowsched.network.arcs": stats.arcs,
            "flowsched.network.changes": stats.changes,
            "flowsched.solves": stats.solves,
        }
        start = end - int(seconds * 1e9)
        self._tracer.start_span("flowsched.round", start_time=start, attributes=attributes).end(end)
