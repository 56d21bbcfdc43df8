"""The texts of the dashboard name every limit and window of a plan."""

from __future__ import annotations

from typing import Any

import pytest

from lockgate import Plan, PlanBook
from lockgate.core.plans import LIMITS, SPANS
from lockgate.dashboard import MESSAGES

from .consoles import make_gate, on_starlette

WINDOWS = [name for name, _ in SPANS.values()]


@pytest.mark.parametrize("start", ["limit", "usage", "refused"])
def test_each_window_and_the_slots_of_a_plan_have_their_texts(start: str) -> None:
    names = [f"{start}.{name}" for name in (*WINDOWS, "concurrent")]
    missing = [name for name in names if name not in MESSAGES]
    assert missing == [], "add them to `MESSAGES` in dashboard/messages.py"


def test_each_limit_of_a_plan_has_its_text() -> None:
    missing = [name for name in LIMITS if f"operator.{name}" not in MESSAGES]
    assert missing == [], "add `operator.NAME` to `MESSAGES` in dashboard/messages.py"


@pytest.mark.parametrize("limit", LIMITS)
def test_the_form_of_a_key_names_each_limit_of_the_plan(limit: str) -> None:
    limits: dict[str, Any] = {**dict.fromkeys(LIMITS), limit: 7}
    plan = Plan("free", **limits)
    name = SPANS[limit][0] if limit in SPANS else limit
    with on_starlette(lambda origin: make_gate(origin, plans=PlanBook([plan]))) as person:
        person.get("/keys/new").sees(f"{plan.name}: {MESSAGES[f'limit.{name}'].format(n=7)}.")
