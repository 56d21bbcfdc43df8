"""The dashboard and the alert rules ask for metrics that a gate exposes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from lockgate import Gate
from lockgate.metrics import StoreCall
from lockgate.prometheus import GateCollector

FOLDER = Path(__file__).parents[2] / "docs" / "monitoring"


def alert_expressions() -> list[str]:
    groups = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]


def panel_expressions() -> list[str]:
    dashboard: Any = json.loads((FOLDER / "grafana.json").read_text())
    texts = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [text.replace("$__rate_interval", "5m").replace("$job", ".*") for text in texts]


@pytest.fixture(scope="module")
def exposed() -> set[str]:
    """The names of all series of a gate on which everything happened once."""
    gate = Gate("memory://", brand="acme")
    gate.metrics.admit("free")
    gate.metrics.refuse("RATE_LIMIT_EXCEEDED", "free", "minute")
    gate.metrics.call(StoreCall("redis", "admit", 0.01))
    gate.metrics.decide_locally(admitted=True)
    gate.events.emit("breaker_opened", store="RedisStore", node="h:1", error="Overdue")
    registry = CollectorRegistry()
    registry.register(GateCollector(gate))
    text = generate_latest(registry).decode()
    return set(re.findall(r"^(lockgate_\w+)", text, re.MULTILINE))


def test_an_expression_parses_and_names_series_that_exist(exposed: set[str]) -> None:
    for expression in (*alert_expressions(), *panel_expressions()):
        promql_parser.parse(expression)
        named = set(re.findall(r"lockgate_\w+", expression))
        assert named and named <= exposed, expression


def test_series_whose_increase_an_alert_waits_for_exist_before_the_fault() -> None:
    """A counter that appears with its first event has not increased, to Prometheus."""
    registry = CollectorRegistry()
    registry.register(GateCollector(Gate("memory://", brand="acme")))
    watched = 0
    for expression in alert_expressions():
        selectors = re.findall(r"(lockgate_\w+)\{(\w+)=~?\"([\w|]+)\"\}", expression)
        for name, label, values in selectors:
            for value in values.split("|"):
                watched += 1
                assert registry.get_sample_value(name, {label: value}) == 0, (name, value)
    assert watched >= 10


def test_many_refusals_are_an_alert_where_no_request_was_ever_admitted() -> None:
    """As after a deploy with a wrong pepper: a sum over no series is no number, not 0."""
    sums = [
        text
        for expression in alert_expressions()
        for text in re.findall(
            r"sum\(\w+\(lockgate_admitted_requests_total\[\w+\]\)\)(.*)", expression
        )
    ]
    assert len(sums) == 2
    assert all(text.startswith(" or vector(0)") for text in sums)
