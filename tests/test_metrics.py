"""A gate counts its decisions, and Prometheus and OpenTelemetry read the counters."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from lockgate import PUBLIC, Gate, LockgateError, Plan, PlanBook, run
from lockgate.asgi import GateMiddleware
from lockgate.metrics import BUCKETS, Histogram, Metrics, StoreCall
from lockgate.opentelemetry import instrument
from lockgate.options import StoreOptions
from lockgate.prometheus import GateCollector
from tests.servers import redis_server

PLANS = PlanBook([Plan("small", 2, 100, 1000, 1)], default="small")


async def endpoint(request: Request) -> PlainTextResponse:
    return PlainTextResponse("done")


async def traffic(gate: Gate, *, shadow: Any = None) -> None:
    """Two admissions, three refusals by the minute's window, one unknown key, one public call."""
    created = await gate.keys.create("org_1", "ci", scopes=["*"])
    application = GateMiddleware(
        Starlette(routes=[Route("/jobs", endpoint), Route("/health", endpoint)]),
        gate,
        rules={"GET /jobs": "jobs:read", "GET /health": PUBLIC},
        shadow=shadow,
    )
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        good = {"Authorization": f"Bearer {created.text}"}
        for _ in range(5):
            await client.get("/jobs", headers=good)
        wrong = created.text[:-8] + "00000000"
        await client.get("/jobs", headers={"Authorization": f"Bearer {wrong}"})
        await client.get("/health")


@pytest.fixture
def gate() -> Gate:
    return Gate("memory://", brand="acme", plans=PLANS)


def families(gate: Gate) -> dict[str, Metric]:
    registry = CollectorRegistry()
    registry.register(GateCollector(gate))
    text = generate_latest(registry).decode()
    assert not [word for word in ("org_1", "acme_live", "/jobs", "127.0.0.1") if word in text]
    return {family.name: family for family in text_string_to_metric_families(text)}


def samples(family: Metric) -> dict[tuple[str, ...], float]:
    return {
        tuple(sorted(sample.labels.values(), reverse=True)): sample.value
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


async def test_prometheus_reads_admissions_and_refusals_by_plan_and_window(gate: Gate) -> None:
    """And no label holds a key, an organization, an address or a path."""
    await traffic(gate)
    found = families(gate)
    assert samples(found["lockgate_admitted_requests"])[("small",)] == 2
    refused = {
        (s.labels["code"], s.labels["plan"], s.labels["window"], s.labels["shadowed"]): s.value
        for s in found["lockgate_refused_requests"].samples
    }
    assert refused[("RATE_LIMIT_EXCEEDED", "small", "minute", "false")] == 3
    assert sum(refused.values()) == 4
    assert samples(found["lockgate_events"])[("key_created",)] == 1


async def test_requests_that_shadow_mode_admitted_are_counted_separately(gate: Gate) -> None:
    await traffic(gate, shadow="limits")
    shadowed = {refused.code: number for refused, number in gate.metrics.refused.items()}
    assert shadowed["RATE_LIMIT_EXCEEDED"] == 3
    assert {r.shadowed for r in gate.metrics.refused if r.window} == {True}


async def test_opentelemetry_collects_the_same_counts(gate: Gate) -> None:
    reader = InMemoryMetricReader()
    instrument(gate, MeterProvider([reader]))
    await traffic(gate)
    data = reader.get_metrics_data()
    assert data is not None
    metrics = {
        metric.name: metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    admitted: Any = metrics["lockgate.requests.admitted"].data.data_points
    by_plan = {point.attributes["lockgate.plan"]: point.value for point in admitted}
    assert by_plan["small"] == 2
    refused: Any = metrics["lockgate.requests.refused"].data.data_points
    by_code = {point.attributes["error.type"]: point.value for point in refused}
    assert by_code["RATE_LIMIT_EXCEEDED"] == 3
    repeated: Any = metrics["lockgate.refusals.repeated"].data.data_points
    assert [point.value for point in repeated] == [gate.metrics.repeated_refusals]
    breakers: Any = metrics["lockgate.breakers.open"].data.data_points
    assert [point.value for point in breakers] == [0]


@pytest.fixture
def spans() -> tuple[InMemorySpanExporter, TracerProvider]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter, provider


@pytest.mark.parametrize("awaits", [False, True], ids=["blocking", "awaiting"])
async def test_a_request_has_a_span_for_each_store_call_it_waits_for(
    tmp_path: Path, spans: tuple[InMemorySpanExporter, TracerProvider], awaits: bool
) -> None:
    exporter, provider = spans
    gate = Gate(f"sqlite:///{tmp_path}/keys.db?mode=rwc", brand="acme")
    instrument(gate, MeterProvider([InMemoryMetricReader()]), provider)
    created = await gate.keys.create("org_1", "ci")
    with provider.get_tracer("host").start_as_current_span("request") as request:
        if awaits:
            await gate.authenticate(created.text)
        else:
            await asyncio.to_thread(run, gate.authenticate(created.text))
    await gate.close()
    made = {span.name: span for span in exporter.get_finished_spans()}
    admit, whole = made["lockgate admit"], made["request"]
    assert admit.kind is SpanKind.CLIENT
    assert admit.attributes == {"db.system.name": "sqlite", "db.operation.name": "admit"}
    assert admit.parent is not None and admit.parent.span_id == request.get_span_context().span_id
    assert whole.start_time and whole.end_time and admit.start_time and admit.end_time
    # The wall clock of a span's ends and the clock of its duration may differ a little.
    assert whole.start_time - 10**7 < admit.start_time < admit.end_time < whole.end_time + 10**7
    provider.shutdown()


async def test_a_span_of_a_failed_store_call_has_its_error_and_no_other_calls_have_spans(
    spans: tuple[InMemorySpanExporter, TracerProvider],
) -> None:
    exporter, provider = spans
    with redis_server() as server:
        gate = Gate(server.url(), brand="acme")
        instrument(gate, MeterProvider([InMemoryMetricReader()]), provider)
        created = await gate.keys.create("org_1", "ci")
        await gate.authenticate(created.text)
        assert not exporter.get_finished_spans(), "no request is traced"
    with provider.get_tracer("host").start_as_current_span("request"), pytest.raises(LockgateError):
        await gate.authenticate(created.text)
    await gate.close()
    (failed,) = [span for span in exporter.get_finished_spans() if span.name == "lockgate admit"]
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes is not None
    assert failed.attributes["db.system.name"] == "redis"
    assert failed.attributes["error.type"] == "ConnectionError from ConnectionRefusedError"
    provider.shutdown()


def test_an_open_breaker_is_a_series_until_it_closes(gate: Gate) -> None:
    gate.events.emit("breaker_opened", store="RedisStore", node="h:1", error="Overdue")
    assert samples(families(gate)["lockgate_breaker_open"]) == {("h:1", "RedisStore"): 1}
    gate.events.emit("breaker_closed", store="RedisStore", node="h:1", away=1.5)
    assert samples(families(gate)["lockgate_breaker_open"]) == {}


def test_store_calls_are_a_histogram_with_cumulative_buckets(gate: Gate) -> None:
    for seconds in (0.0004, 0.0005, 0.02, 3.0):
        gate.metrics.call(StoreCall("redis", "admit", seconds))
    family = families(gate)["lockgate_store_call_seconds"]
    buckets = {s.labels["le"]: s.value for s in family.samples if s.name.endswith("_bucket")}
    assert buckets["0.0005"] == 2
    assert buckets["0.025"] == 3
    assert buckets["+Inf"] == 4
    assert [s.value for s in family.samples if s.name.endswith("_sum")] == [pytest.approx(3.0209)]


async def test_calls_and_batches_of_a_shared_store_are_counted_once_a_collector_is_attached(
    tmp_path: Path,
) -> None:
    gate = Gate(
        f"sqlite:///{tmp_path}/keys.db?mode=rwc",
        brand="acme",
        plans=PLANS,
        store_options=StoreOptions(deadline=20),
    )
    await traffic(gate)
    assert gate.metrics.store_calls == {}
    found = families(gate)
    assert samples(found["lockgate_repeated_refusals"]) == {(): 2}
    before = samples(found["lockgate_batched_admissions"])[()]
    assert before == samples(found["lockgate_batches"])[()]
    await gate.organizations.place("org_2", "enterprise", rpm=100, rph=100, rpd=100, concurrent=1)
    text = (await gate.keys.create("org_2", "ci")).text
    await gate.authenticate(text)
    batches, batched = gate.metrics.batches, gate.metrics.batched
    await asyncio.gather(*(gate.authenticate(text) for _ in range(20)))
    assert gate.metrics.batched - batched == 20
    assert gate.metrics.batches - batches < 20
    calls = families(gate)["lockgate_store_call_seconds"]
    counted = {s.labels["verb"]: s.value for s in calls.samples if s.name.endswith("_count")}
    assert counted["admit"] > 0
    await gate.close()


@pytest.mark.parametrize("awaits", [True, False], ids=["async", "sync"])
def test_redis_calls_that_share_a_pipeline_are_counted(
    awaits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No calls in the background, which a busy machine would make between two readings.
    monkeypatch.setattr("lockgate.stores.runtime.background.EVERY", 3600)
    plans = PlanBook([Plan("wide", 1000, None, None, 1)], default="wide")
    with redis_server() as server:
        options = StoreOptions(deadline=20)
        gate = Gate(server.url(), brand="acme", plans=plans, store_options=options)
        counts = gate.metrics.pipelines
        assert counts.sent == 0
        text = run(gate.keys.create("org_1", "ci")).text
        run(gate.authenticate(text))
        found = families(gate)
        sent = samples(found["lockgate_pipelines"])[()]
        assert 0 < sent == samples(found["lockgate_pipelined_calls"])[()]

        async def together() -> None:
            await gate.authenticate(text)
            before = counts.sent
            await asyncio.gather(*(gate.authenticate(text) for _ in range(20)))
            assert 1 <= counts.sent - before < 20
            await gate.store.close()

        calls = counts.calls
        if awaits:
            asyncio.run(together())
            assert counts.calls - calls >= 21
        else:
            run(gate.authenticate(text))
            assert counts.calls - calls == 1
        run(gate.close())


def test_local_decisions_are_counted_by_their_outcome(gate: Gate) -> None:
    for admitted in (True, True, False):
        gate.metrics.decide_locally(admitted=admitted)
    found = samples(families(gate)["lockgate_local_decisions"])
    assert found == {("admitted",): 2, ("refused",): 1}


def test_a_histogram_has_a_bucket_for_each_bound_and_one_more() -> None:
    histogram = Histogram()
    for seconds in (*BUCKETS, 99.0):
        histogram.observe(seconds)
    assert histogram.counts == [1] * (len(BUCKETS) + 1)


def test_plans_without_end_are_counted_together() -> None:
    metrics = Metrics()
    for number in range(10_000):
        metrics.admit(f"plan {number}")
        metrics.refuse("RATE_LIMIT_EXCEEDED", f"plan {number}", "rpm")
    assert sum(metrics.admitted.values()) == 10_000
    assert metrics.refused.total() == 10_000
    assert len(metrics.admitted) <= 201
    assert len(metrics.refused) <= 201
