"""The bodies of responses have a field for each fact of the services."""

from __future__ import annotations

from lockgate.core.plans import LIMITS, SPANS
from lockgate.web.operations.schemas import Limits, Usage


def test_the_status_has_a_field_for_each_limit_and_each_window_of_a_plan() -> None:
    """Pydantic leaves out values without a field, so a missing field would raise no error."""
    missing = [limit for limit in LIMITS if limit not in Limits.model_fields]
    assert missing == [], "add them to `Limits` in web/operations/schemas.py"
    windows = [name for name, _ in SPANS.values() if name not in Usage.model_fields]
    assert windows == [], "add them to `Usage` in web/operations/schemas.py"
