"""The page of usage: the use of the limits, now and over time."""

from typing import Any, Final, cast

from ..core.api_keys import ApiKey
from ..core.limits import Limit, Subject
from ..core.periods import NAMES
from ..core.usage_history import By
from ..services.explain.findings import Explanation
from ..services.usage.reports import UsageReport
from ..web.operations.operation import Reply
from .charts import SPANS, chart_of, spans
from .moments import moment_of
from .visit import Visit

_DEFAULT: Final[By] = "hour"
_WIDTH: Final = 100


async def show_usage(visit: Visit) -> Reply:
    """Show the limits of the plan, credits, and usage over time."""
    explained = await visit.gate.explain(visit.owner)
    span = span_of(visit)
    report = await history_of(visit, visit.owner, None, span)
    return visit.page(
        "usage.html",
        plan=explained.plan,
        unread=explained.unread,
        meters=meters_of(visit, explained),
        credits=named_meters(visit, explained, credits=True),
        named=named_meters(visit, explained, credits=False),
        report=report,
        chart=None if report is None else chart_of(visit, report, span),
        spans=spans(visit, span),
    )


async def live_usage(visit: Visit) -> Reply:
    """Return the meters for the script of the page."""
    explained = await visit.gate.explain(visit.owner)
    return visit.site.data([*meters_of(visit, explained), *named_meters(visit, explained)])


def meters_of(visit: Visit, explained: Explanation) -> list[dict[str, Any]]:
    """Return the requests and the jobs of an organization as meters: those that its plan limits,
    and jobs that run without a limit."""
    t, slots = visit.site.texts, explained.slots
    shown = [
        _meter(visit, one.name, t(f"usage.{one.name}"), one.used, one.limit, one.until)
        for one in explained.windows
        if one.limit is not None
    ]
    if slots.limit or slots.used:
        title = t("usage.concurrent")
        shown.append(_meter(visit, "concurrent", title, slots.used, slots.limit, None))
    return shown


def named_meters(
    visit: Visit,
    explained: Explanation,
    by: Subject = "organization",
    *,
    credits: bool | None = None,
) -> list[dict[str, Any]]:
    """Return the windows of the named limits of an organization, or of one key of it, as meters.

    Args:
        visit: the visit of the page.
        explained: what is counted.
        by: whose limits.
        credits: whether those that are credits, which are budgets of holds and of calendar
            periods, or the others; None: both.
    """
    return [
        _meter(
            visit,
            f"{one.limit.name}-{window.name.replace(' ', '-')}",
            _named(visit, one.limit, window.name),
            *(window.used, window.limit, window.until, window.held),
            refuses=not one.limit.soft,
        )
        for one in explained.limits
        if one.limit.by == by and credits in (None, one.source == "hold" or bool(one.limit.quotas))
        for window in one.windows
    ]


async def meters_of_key(visit: Visit, key: ApiKey) -> list[dict[str, Any]]:
    """Return the windows of a key's limits, and of the named limits by key, as meters."""
    limits = *visit.gate.limits, *visit.gate.holds.limits.values()
    if not (key.limits or any(limit.by == "key" for limit in limits)):
        return []
    return named_meters(visit, await visit.gate.explain(visit.owner, key.id), "key")


def _named(visit: Visit, limit: Limit, window: str) -> str:
    """Return the title of a window of a named limit, sliding or of a calendar period."""
    unit = next((unit for unit, name in NAMES.items() if name == window), None)
    if unit is None:
        return visit.site.texts("usage.named", name=limit.name, span=_span(visit, window))
    span = visit.site.texts(f"span.{unit}")
    return visit.site.texts("usage.named_period", name=limit.name, span=span)


def _span(visit: Visit, window: str) -> str:
    """Return the length of a window, such as ``hour`` or ``15 minutes``, as people say it."""
    number, _, unit = window.rpartition(" ")
    return visit.site.texts(f"span.{unit}", n=number)


def _meter(
    visit: Visit,
    name: str,
    title: str,
    used: int,
    limit: int | None,
    until: int | None,
    held: int = 0,
    *,
    refuses: bool = True,
) -> dict[str, Any]:
    t, number = visit.site.texts, visit.site.number
    full = refuses and limit is not None and used >= limit
    text = t("usage.used", used=number(used))
    if limit is not None:
        of = "usage.held" if held else "usage.of"
        text = t(of, used=number(used), limit=number(limit), held=number(held))
    part = 0.0 if not limit else min(1.0, used / limit)
    level = "full" if full else "high" if part >= 0.8 else "low"
    ends = moment_of(until) if full and until else None
    return {
        "name": name,
        "title": title,
        "text": text,
        "used": used,
        "limit": limit,
        "percent": round(part * _WIDTH, 1),
        "level": level,
        "note": "" if ends is None else t("usage.full_until", time=ends.time),
        "until": "" if ends is None else ends.iso,
    }


def span_of(visit: Visit) -> By:
    """Return the span that a page's visitor has chosen."""
    chosen = visit.query.one("by")
    return cast(By, chosen) if chosen in SPANS else _DEFAULT


async def history_of(
    visit: Visit, organization: str, key: str | None, by: By
) -> UsageReport | None:
    """Return the usage of an organization, or of one key of it; None: none is kept."""
    return await visit.gate.usage(organization, key, by) if keeps_history(visit) else None


def keeps_history(visit: Visit) -> bool:
    """Return whether the gate keeps usage over time."""
    return visit.gate.recorder is not None and visit.gate.store.keeps_history
