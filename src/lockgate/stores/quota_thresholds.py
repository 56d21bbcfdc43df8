"""Tell when 80 or 100 % of a calendar quota are used."""

import logging
from collections.abc import Sequence

from ..core.limit_windows import LimitWindows
from ..core.thresholds import quota_crossings
from ..core.timestamps import iso8601
from ..events import Events


def tell_quotas(
    events: Events, organization: str | None, limits: LimitWindows, used: Sequence[int], cost: int
) -> None:
    """Emit ``quota_threshold`` for each mark that an admission crossed.

    Args:
        events: receives the event.
        organization: its id; None for a subject outside of any.
        limits: in the periods of the admission.
        used: the use of each window that its reading tells.
        cost: the cost of the admission.
    """
    for crossed in quota_crossings(limits, used, cost):
        events.emit(
            "quota_threshold",
            logging.INFO,
            organization=organization,
            limit_name=crossed.name,
            period=crossed.quota.unit,
            share=crossed.share,
            used=crossed.used,
            limit=crossed.quota.limit,
            soft=crossed.quota.soft,
            resets_at=iso8601(crossed.ends),
        )
