"""Metrics of a gate for Prometheus, by the package ``prometheus-client``.

    from prometheus_client import REGISTRY
    from lockgate.prometheus import GateCollector

    REGISTRY.register(GateCollector(gate))

Each worker process has its own counters: scrape each worker, or push to a gateway.
``prometheus_client``'s multiprocess mode does not collect custom collectors.
"""

from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from .core.extras import extra
from .gate import Gate
from .metrics import BUCKETS

with extra("prometheus", "lockgate[prometheus]", "prometheus_client"):
    from prometheus_client import Metric
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )
    from prometheus_client.registry import Collector


class GateCollector(Collector):
    """Reads the counters of a gate when Prometheus scrapes.

    Args:
        gate: the gate.
        namespace: the first part of the names of all metrics.
    """

    def __init__(self, gate: Gate, namespace: str = "lockgate") -> None:
        self._metrics: Final = gate.metrics
        gate.metrics.times_calls = True
        self._namespace: Final = namespace

    def collect(self) -> Iterator[Metric]:
        """Yield every metric. The registry calls it at each scrape."""
        metrics, prefix = self._metrics, self._namespace
        admitted = CounterMetricFamily(
            f"{prefix}_admitted_requests", "Admitted requests.", labels=["plan"]
        )
        for plan, number in metrics.admitted.copy().items():
            admitted.add_metric([plan], number)
        yield admitted
        refused = CounterMetricFamily(
            f"{prefix}_refused_requests",
            "Refused requests; with shadowed=true they passed all the same.",
            labels=["code", "plan", "window", "shadowed"],
        )
        for (code, plan, window, shadowed), number in metrics.refused.items():
            refused.add_metric([code, plan, window, str(shadowed).lower()], number)
        yield refused
        events = CounterMetricFamily(f"{prefix}_events", "Events by name.", labels=["event"])
        for name, number in metrics.watched_events().items():
            events.add_metric([name], number)
        yield events
        yield CounterMetricFamily(
            f"{prefix}_repeated_refusals",
            "Requests that were refused from memory, without a call of the store.",
            value=metrics.repeated_refusals,
        )
        local = CounterMetricFamily(
            f"{prefix}_local_decisions",
            "Requests that this process limited by itself while their store was away.",
            labels=["outcome"],
        )
        for outcome, number in metrics.watched_decisions().items():
            local.add_metric([outcome], number)
        yield local
        breakers = GaugeMetricFamily(
            f"{prefix}_breaker_open",
            "1 for each circuit breaker that is open; absent while it is closed.",
            labels=["store", "node"],
        )
        for about in metrics.open_breakers.copy():
            fields = dict(about)
            breakers.add_metric([fields.get("store", ""), fields.get("node", "")], 1)
        yield breakers
        yield from self._store_calls()

    def _store_calls(self) -> Iterator[Metric]:
        metrics, prefix = self._metrics, self._namespace
        yield CounterMetricFamily(
            f"{prefix}_batches",
            "Transactions of a database that made admissions.",
            value=metrics.batches,
        )
        yield CounterMetricFamily(
            f"{prefix}_batched_admissions",
            "Admissions in these transactions.",
            value=metrics.batched,
        )
        yield CounterMetricFamily(
            f"{prefix}_pipelines",
            "Pipelines of calls that were sent to Redis.",
            value=metrics.pipelines.sent,
        )
        yield CounterMetricFamily(
            f"{prefix}_pipelined_calls",
            "Calls in these pipelines.",
            value=metrics.pipelines.calls,
        )
        calls = HistogramMetricFamily(
            f"{prefix}_store_call_seconds", "Durations of store calls.", labels=["verb"]
        )
        for verb, histogram in metrics.store_calls.copy().items():
            bounds = [*map(str, BUCKETS), "+Inf"]
            cumulative = accumulate(histogram.counts)
            calls.add_metric([verb], list(zip(bounds, cumulative, strict=True)), histogram.total)
        yield calls
