"""Metrics and spans of a gate for OpenTelemetry, by the package ``opentelemetry-api``.

    from lockgate.opentelemetry import instrument

    instrument(gate)

The instrumentations of drivers do not see the calls of a store: it talks to Redis, and admits in a
database, below the methods that they wrap.
"""

from collections.abc import Callable, Iterable
from time import time_ns
from typing import Final

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter
from opentelemetry.trace import (
    SpanKind,
    StatusCode,
    Tracer,
    TracerProvider,
    get_current_span,
    get_tracer,
)

from .gate import Gate
from .metrics import StoreCall

Observations = Iterable[Observation]

_SECOND: Final = 1_000_000_000
"""In nanoseconds, as spans tell the time."""


def instrument(
    gate: Gate,
    meter_provider: MeterProvider | None = None,
    tracer_provider: TracerProvider | None = None,
) -> None:
    """Report the counters of a gate, and trace the store calls that requests wait for.

    Each collection of the meter provider reads the counters. A call that is made while a recorded
    span is current, such as that of a request, gets a span of its own below it; it has the
    attributes ``db.system.name`` and ``db.operation.name`` (the verb of the store), and
    ``error.type`` if the store failed. A call outside of any span, such as the last write of usage,
    gets none.

    Args:
        gate: the gate.
        meter_provider: None: the global one.
        tracer_provider: None: the global one.
    """
    metrics = gate.metrics
    metrics.times_calls = True
    metrics.on_call = _tracing(get_tracer("lockgate", tracer_provider=tracer_provider))
    meter = get_meter("lockgate", meter_provider=meter_provider)

    def callback(observe: Callable[[], Observations]) -> Callable[[CallbackOptions], Observations]:
        return lambda _: list(observe())

    def admitted() -> Observations:
        for plan, number in metrics.admitted.copy().items():
            yield Observation(number, {"lockgate.plan": plan})

    def refused() -> Observations:
        for (code, plan, window, shadowed), number in metrics.refused.items():
            yield Observation(
                number,
                {
                    "error.type": code,
                    "lockgate.plan": plan,
                    "lockgate.window": window,
                    "lockgate.shadowed": shadowed,
                },
            )

    def events() -> Observations:
        for name, number in metrics.watched_events().items():
            yield Observation(number, {"lockgate.event": name})

    def repeated() -> Observations:
        yield Observation(metrics.repeated_refusals)

    def local() -> Observations:
        for outcome, number in metrics.watched_decisions().items():
            yield Observation(number, {"lockgate.outcome": outcome})

    def batches() -> Observations:
        yield Observation(metrics.batches)

    def batched() -> Observations:
        yield Observation(metrics.batched)

    def pipelines() -> Observations:
        yield Observation(metrics.pipelines.sent)

    def pipelined() -> Observations:
        yield Observation(metrics.pipelines.calls)

    def breakers() -> Observations:
        open_breakers = metrics.open_breakers.copy()
        yield Observation(len(open_breakers))

    def calls() -> Observations:
        for verb, histogram in metrics.store_calls.copy().items():
            yield Observation(sum(histogram.counts), {"lockgate.store.verb": verb})

    def seconds() -> Observations:
        for verb, histogram in metrics.store_calls.copy().items():
            yield Observation(histogram.total, {"lockgate.store.verb": verb})

    counters: list[tuple[str, Callable[[], Observations], str, str]] = [
        ("lockgate.requests.admitted", admitted, "{request}", "Admitted requests."),
        ("lockgate.requests.refused", refused, "{request}", "Refused requests."),
        ("lockgate.events", events, "{event}", "Events by name."),
        ("lockgate.refusals.repeated", repeated, "{request}", "Requests refused from memory."),
        ("lockgate.decisions.local", local, "{request}", "Requests limited without their store."),
        ("lockgate.store.batches", batches, "{transaction}", "Transactions that admit."),
        ("lockgate.store.batched", batched, "{request}", "Admissions in these transactions."),
        ("lockgate.store.pipelines", pipelines, "{pipeline}", "Pipelines to Redis."),
        ("lockgate.store.pipelined", pipelined, "{call}", "Calls in these pipelines."),
        ("lockgate.store.calls", calls, "{call}", "Calls of the store."),
        ("lockgate.store.time", seconds, "s", "Time in calls of the store."),
    ]
    for name, observe, unit, description in counters:
        meter.create_observable_counter(name, [callback(observe)], unit, description)
    meter.create_observable_up_down_counter(
        "lockgate.breakers.open", [callback(breakers)], "{breaker}", "Open circuit breakers."
    )


def _tracing(tracer: Tracer) -> Callable[[StoreCall], None]:
    """Return a function that makes a span of a call that has ended."""

    def trace(call: StoreCall) -> None:
        if not get_current_span().is_recording():
            return
        end = time_ns()
        span = tracer.start_span(
            f"lockgate {call.verb}",
            kind=SpanKind.CLIENT,
            attributes={"db.system.name": call.system, "db.operation.name": call.verb},
            start_time=end - round(call.seconds * _SECOND),
        )
        if call.error is not None:
            span.set_attribute("error.type", call.error)
            span.set_status(StatusCode.ERROR)
        span.end(end)

    return trace
