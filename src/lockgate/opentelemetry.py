"""Metrics and spans of a gate for OpenTelemetry, by the package ``opentelemetry-api``.

    from lockgate.opentelemetry import instrument

    instrument(gate)

The instrumentations of drivers do not see the calls of a store: it talks to Redis, and admits in a
database, below the methods that they wrap.
"""

from collections.abc import Callable, Iterable
from functools import partial
from time import time_ns
from typing import Final

from .core.extras import extra
from .gate import Gate
from .metrics import Metrics, StoreCall

with extra("opentelemetry", "lockgate[otel]"):
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter
    from opentelemetry.trace import (
        SpanKind,
        StatusCode,
        Tracer,
        TracerProvider,
        get_current_span,
        get_tracer,
    )

Observe = Callable[[Metrics], Iterable[Observation]]

_SECOND: Final = 1_000_000_000
"""In nanoseconds, as spans tell the time."""


def instrument(
    gate: Gate,
    meter_provider: MeterProvider | None = None,
    tracer_provider: TracerProvider | None = None,
) -> None:
    """Report the counters of a gate, and trace the store calls that requests wait for.

    Each collection of the meter provider reads the counters. A call that is made while a recorded
    span is current, such as one of a request that began outside of the gate, gets its own span
    below it. That has the attributes ``db.system.name`` and ``db.operation.name`` (the verb of the
    store), and ``error.type`` if the store failed. A call outside of any span, such as the last
    write of usage, gets none.

    Args:
        gate: the gate.
        meter_provider: None: the global one.
        tracer_provider: None: the global one.
    """
    gate.metrics.times_calls = True
    gate.metrics.on_call = partial(_trace, get_tracer("lockgate", tracer_provider=tracer_provider))
    meter = get_meter("lockgate", meter_provider=meter_provider)

    def callback(observe: Observe, _: CallbackOptions) -> list[Observation]:
        return list(observe(gate.metrics))

    for name, observe, unit, description in _COUNTERS:
        meter.create_observable_counter(name, [partial(callback, observe)], unit, description)
    name, observe, unit, description = _OPEN_BREAKERS
    meter.create_observable_up_down_counter(name, [partial(callback, observe)], unit, description)


def _trace(tracer: Tracer, call: StoreCall) -> None:
    """Make a span of a call that has ended, below the current one."""
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


def _admitted(metrics: Metrics) -> Iterable[Observation]:
    for plan, number in metrics.admitted.copy().items():
        yield Observation(number, {"lockgate.plan": plan})


def _refused(metrics: Metrics) -> Iterable[Observation]:
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


def _events(metrics: Metrics) -> Iterable[Observation]:
    for name, number in metrics.watched_events().items():
        yield Observation(number, {"lockgate.event": name})


def _decisions(metrics: Metrics) -> Iterable[Observation]:
    for outcome, number in metrics.watched_decisions().items():
        yield Observation(number, {"lockgate.outcome": outcome})


def _calls(metrics: Metrics) -> Iterable[Observation]:
    for verb, histogram in metrics.store_calls.copy().items():
        yield Observation(sum(histogram.counts), {"lockgate.store.verb": verb})


def _seconds(metrics: Metrics) -> Iterable[Observation]:
    for verb, histogram in metrics.store_calls.copy().items():
        yield Observation(histogram.total, {"lockgate.store.verb": verb})


def _number(read: Callable[[Metrics], int]) -> Observe:
    """Observe one number without attributes."""
    return lambda metrics: [Observation(read(metrics))]


_Counter = tuple[str, Observe, str, str]
"""Name, observations, unit and description."""

_COUNTERS: Final[tuple[_Counter, ...]] = (
    ("lockgate.requests.admitted", _admitted, "{request}", "Admitted requests."),
    ("lockgate.requests.refused", _refused, "{request}", "Refused requests."),
    ("lockgate.events", _events, "{event}", "Events by name."),
    (
        "lockgate.refusals.repeated",
        _number(lambda metrics: metrics.repeated_refusals),
        "{request}",
        "Requests refused from memory.",
    ),
    ("lockgate.decisions.local", _decisions, "{request}", "Requests limited without their store."),
    (
        "lockgate.store.batches",
        _number(lambda metrics: metrics.batches),
        "{transaction}",
        "Transactions that admit.",
    ),
    (
        "lockgate.store.batched",
        _number(lambda metrics: metrics.batched),
        "{request}",
        "Admissions in these transactions.",
    ),
    (
        "lockgate.store.pipelines",
        _number(lambda metrics: metrics.pipelines.sent),
        "{pipeline}",
        "Pipelines to Redis.",
    ),
    (
        "lockgate.store.pipelined",
        _number(lambda metrics: metrics.pipelines.calls),
        "{call}",
        "Calls in these pipelines.",
    ),
    ("lockgate.store.calls", _calls, "{call}", "Calls of the store."),
    ("lockgate.store.time", _seconds, "s", "Time in calls of the store."),
)
_OPEN_BREAKERS: Final[_Counter] = (
    "lockgate.breakers.open",
    _number(lambda metrics: len(metrics.open_breakers)),
    "{breaker}",
    "Open circuit breakers.",
)
