"""The status agrees with the reading."""

from __future__ import annotations

from lockgate import Plan
from lockgate.core.sliding_window import empty_state, hit, peek
from lockgate.services.usage.rate_limit_status import Status, WindowUsage, status_of
from tests.stores.making import NOW


def test_the_status_is_the_reading_in_other_words() -> None:
    plan = Plan("odd", rpm=5, rph=None, rpd=9, concurrent=None)
    reading, state = hit(empty_state(plan.windows), plan.windows, NOW, 3)
    status = status_of(plan, reading)
    assert status == Status(
        plan,
        {"minute": WindowUsage(3, 5), "hour": WindowUsage(3, None), "day": WindowUsage(3, 9)},
        NOW,
    )
    assert status_of(plan, peek(state, plan.windows, NOW + 1)) == status._replace(at=NOW + 1)
