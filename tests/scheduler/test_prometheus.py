"""A scrape parses and says what `Scheduler.metrics` says; the dashboard names what exists; a round is a span."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest
from lives import Life

import flowsched as fs
from flowsched import fgm
from flowsched.metrics import METRICS, PrometheusCollector, RoundSpans

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "examples" / "grafana_dashboard.json"


def lived(seed: int, steps: int = 30) -> fs.Scheduler:
    life, sched = Life(seed), fs.Scheduler()
    for _ in range(steps):
        sched.apply(*life.events(sched))
        sched.commit(sched.schedule(life.later()))
    return sched


def scrape(*collectors: PrometheusCollector) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The samples of a scrape in the text format, by name and labels."""
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return parsed(client.generate_latest(registry).decode())


def parsed(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    from prometheus_client.parser import text_string_to_metric_families

    samples: dict = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in samples
            samples[key] = sample.value
    return samples


def wanted(sched: fs.Scheduler | fgm.FineGrained, **labels: str) -> dict:
    """The samples that the numbers of a scheduler make."""
    samples, numbers = {}, sched.metrics()
    for metric in METRICS:
        name, value = f"flowsched_{metric.name}", numbers[metric.name]
        if metric.kind == "histogram":
            for bound, count in value.items():
                if bound == "sum":
                    samples[f"{name}_sum", tuple(sorted(labels.items()))] = count
                else:
                    le = {"le": bound if bound == "+Inf" else str(float(bound))}
                    samples[f"{name}_bucket", tuple(sorted((labels | le).items()))] = count
            samples[f"{name}_count", tuple(sorted(labels.items()))] = value["+Inf"]
        else:
            for label, number in value.items() if metric.label else [("", value)]:
                own = {metric.label: label} if metric.label else {}
                samples[name, tuple(sorted((labels | own).items()))] = number
    return samples


def same_bounds(samples: dict) -> dict:
    """Bounds of buckets as numbers, however they are spelt."""
    spelt = {}
    for (name, labels), value in samples.items():
        labels = tuple((k, str(float(v)) if k == "le" and v != "+Inf" else v) for k, v in labels)
        spelt[name, labels] = value
    return spelt


@pytest.mark.parametrize("seed", range(4))
def test_a_scrape_equals_metrics(seed: int) -> None:
    sched = lived(seed)
    assert same_bounds(scrape(PrometheusCollector(sched))) == wanted(sched)


def test_several_schedulers_share_a_registry_by_their_labels() -> None:
    flow, fine = lived(1), fgm.FineGrained(fs.Scheduler())
    pairs = [(flow, {"pool": "a"}), (fine, {"pool": 'b "quoted"\\\n'})]
    samples = scrape(*(PrometheusCollector(sched, labels) for sched, labels in pairs))
    assert same_bounds(samples) == wanted(flow, **pairs[0][1]) | wanted(fine, **pairs[1][1])


@pytest.mark.long
def test_a_server_is_scraped_while_rounds_are_made() -> None:
    client = pytest.importorskip("prometheus_client")
    sched, life, registry = fs.Scheduler(), Life(5), client.CollectorRegistry()
    registry.register(PrometheusCollector(sched))
    server, thread = client.start_http_server(0, "127.0.0.1", registry)
    rounds, wrong, done = [], [], threading.Event()

    def ask() -> None:
        while not done.is_set():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=30) as page:
                    rounds.append(parsed(page.read().decode())["flowsched_rounds_total", ()])
            except Exception as error:
                wrong.append(error)
                return

    asker = threading.Thread(target=ask)
    asker.start()
    try:
        for _ in range(200):
            sched.apply(*life.events(sched))
            sched.commit(sched.schedule(life.later()))
    finally:
        done.set()
        asker.join()
        server.shutdown()
        server.server_close()
        thread.join()
    assert wrong == []
    assert rounds and rounds == sorted(rounds) and rounds[-1] <= 200


def test_without_the_client_the_collector_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("prometheus_client", "opentelemetry"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'flowsched\[prometheus\]'"):
        PrometheusCollector(fs.Scheduler())
    with pytest.raises(ImportError, match=r"pip install 'flowsched\[otel\]'"):
        RoundSpans()


# -- the dashboard -------------------------------------------------------------------------------------------------


def panels(dashboard: dict) -> list[dict]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def test_the_dashboard_names_the_metrics_that_exist() -> None:
    """All of them and no other; as Prometheus spells them, with the suffixes of a histogram."""
    exist = {name for name, _ in scrape(PrometheusCollector(fs.Scheduler()))}
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    named = set()
    for panel in panels(dashboard):
        for target in panel["targets"]:
            named |= set(re.findall(r"flowsched_\w+", target["expr"]))
    assert named <= exist
    unnamed = {name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name in exist - named}
    assert unnamed <= {"flowsched_round_seconds"}


def test_labels_in_the_dashboard_are_those_of_the_metrics() -> None:
    labels = {metric.label for metric in METRICS if metric.label}
    for panel in panels(json.loads(DASHBOARD.read_text(encoding="utf-8"))):
        for target in panel["targets"]:
            for group in re.findall(r"by \(([^)]*)\)", target["expr"]):
                assert {name.strip() for name in group.split(",")} <= labels | {"instance"}
            for name in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                assert name in labels | {"instance"}


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)


# -- spans ---------------------------------------------------------------------------------------------------------


def test_a_round_is_a_span_below_that_of_its_caller() -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("test")
    sched = lived(2)
    sched.on_round.append(RoundSpans(tracer))
    with tracer.start_as_current_span("caller"):
        rnd = sched.schedule(1000.0)
    span, caller = kept.get_finished_spans()
    assert (span.name, caller.name) == ("flowsched.round", "caller")
    assert span.parent is not None and span.parent.span_id == caller.context.span_id
    assert caller.start_time <= span.start_time <= span.end_time <= caller.end_time
    stats, said = rnd.stats, span.attributes
    seconds = [stats.seconds_update, stats.seconds_solve, stats.seconds_read]
    assert [said[f"flowsched.seconds.{phase}"] for phase in ("update", "solve", "read")] == seconds
    assert (span.end_time - span.start_time) / 1e9 == pytest.approx(sum(seconds), abs=1e-6)
    counts = [said[f"flowsched.{name}"] for name in ("now", "waiting", "placements", "solves")]
    assert counts == [1000.0, len(rnd.waiting), len(rnd.placements), stats.solves]
    assert sched.metrics()["hook_errors_total"] == 0


def test_without_a_provider_spans_go_nowhere() -> None:
    pytest.importorskip("opentelemetry.trace")
    sched = lived(2)
    sched.on_round.append(RoundSpans())
    sched.schedule(1000.0)
    assert sched.metrics()["hook_errors_total"] == 0


def test_no_span_is_made_unless_it_is_asked_for() -> None:
    code = "import flowsched as fs, sys; fs.Scheduler().schedule(0.0); assert not {'opentelemetry', 'prometheus_client'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
