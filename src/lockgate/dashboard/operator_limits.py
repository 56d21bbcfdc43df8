"""The forms of operators for the plan and the limits of an organization."""

from collections.abc import Mapping
from typing import Any, Final

from ..core.instants import datetime_of, read_instant
from ..core.limit_changes import read_limit
from ..core.plans import LIMITS, SPANS, Plan
from ..services.explain.findings import Explanation
from ..services.organizations import OwnLimits
from .forms import Form
from .moments import Moment, moment_of
from .visit import Visit

HOURS: Final = (1, 4, 12)
DAYS: Final = (1, 3, 7)
"""How long a temporary limit lasts, unless its end is a date and time."""
_CHOSEN: Final = "12h"
_FIELDS: Final = ("plan", *LIMITS, "limit", "number", "span", "until", "zone")

_NAMES: Final = {
    "plan": "operator.plan",
    **{name: f"operator.{name}" for name in LIMITS},
    "limit": "operator.temporary_limit",
    "number": "operator.temporary_number",
    "until": "operator.temporary_end",
    "replaces": "operator.temporary",
    "new": "operator.organization",
}
"""The texts of the labels of fields, by the names of fields."""

Problems = Mapping[str, list[str]]
"""Sentences about what was entered, by field."""


def entered(form: Form) -> dict[str, str]:
    """Return the values that were entered in one of the forms, to show them again."""
    return {name: form.one(name) for name in _FIELDS if form.all(name)}


def values_of(limits: OwnLimits, explained: Explanation) -> dict[str, str]:
    """Return the values that the forms have at first.

    A temporary limit is for the window that refuses the next request, if one does.
    """
    own = {name: written(limits.own[name]) if name in limits.own else "" for name in LIMITS}
    first = {"limit": _refusing(explained), "number": "", "span": _CHOSEN, "until": "", "zone": ""}
    return {"plan": limits.assigned or limits.plan.name, **own, **first}


def spans(visit: Visit) -> list[tuple[str, str]]:
    """Return how long a temporary limit may last: the value of each choice, and its text."""
    t = visit.site.texts
    hours = [(f"{n}h", t("operator.temporary_hours", n=n)) for n in HOURS[1:]]
    days = [(f"{n}d", t("field.expires_days", n=n)) for n in DAYS[1:]]
    first, day = (f"{HOURS[0]}h", t("operator.temporary_hour")), ("1d", t("field.expires_day"))
    return [first, *hours, day, *days]


def temporary_of(limits: OwnLimits) -> list[tuple[str, int | None, int, Moment]]:
    """Return the temporary limits of an organization: name, limit, and the end twice."""
    found = limits.temporary.items()
    return [(name, limit, until, moment_of(until)) for name, (limit, until) in found]


def can_be_id(id: str) -> bool:
    """Return whether a text can be the id of an organization of which nothing is known.

    Hosts choose ids, so any text can be one; but one with spaces or line breaks was mistyped.
    """
    return id.isprintable() and " " not in id


async def _check_id(visit: Visit, id: str) -> dict[str, list[str]]:
    """Return the problems of an organization of which nothing is known: hosts create them without
    lockgate's knowledge, so the operator says whether it is one."""
    t, confirmed = visit.site.texts, visit.form.one("new") == id
    if (confirmed and can_be_id(id)) or await visit.gate.organizations.is_known(id):
        return {}
    return {
        "new": [t("operator.confirm_new", id=id) if can_be_id(id) else t("operator.impossible")]
    }


def present_of(plan: Plan) -> dict[str, str]:
    """Return the present limits as the forms send them back.

    A form that adds to a limit is refused once the limit is another: so a form that is sent twice
    adds once.
    """
    return {name: written(getattr(plan, name)) for name in LIMITS}


def written(limit: int | None) -> str:
    """Return a limit in the form in which it is entered."""
    return "none" if limit is None else str(limit)


async def change_plan(visit: Visit, id: str) -> Problems:
    """Put an organization on a plan with the limits that were entered; return the problems."""
    form, t, problems = visit.form, visit.site.texts, await _check_id(visit, id)
    chosen, plans = form.one("plan"), visit.gate.plans
    if chosen not in plans.names:
        problems["plan"] = [t("operator.wrong_plan")]
    plan, own = (await visit.gate.organizations.limits(id)).lasting, dict[str, int | None]()
    for name in LIMITS:
        text = form.one(name).strip()
        if text:
            _read(visit, plan, name, text, name, own, problems)
        elif chosen in plans.custom:
            problems[name] = [t("operator.own_number", plan=chosen)]
    if not problems:
        with visit.changing():
            await visit.gate.organizations.place(id, chosen, **own)
    return problems


async def set_limit(visit: Visit, id: str) -> Problems:
    """Give an organization its own limit until an instant; return the problems of the form."""
    form, t, problems = visit.form, visit.site.texts, await _check_id(visit, id)
    limits, own = await visit.gate.organizations.limits(id), dict[str, Any]()
    name, text = form.one("limit"), form.one("number").strip()
    if name in LIMITS:
        _read(visit, limits.plan, name, text, "number", own, problems)
        problems |= _replaced(visit, limits, name)
    else:
        problems["limit"] = [t("operator.wrong_limit")]
    now = await visit.gate.keys.now()
    end = _end(form, now)
    if end is None:
        problems["until"] = [t("operator.wrong_end")]
    elif end <= now:
        problems["until"] = [t("operator.past_end")]
    if end is not None and not problems:
        with visit.changing():
            await visit.gate.organizations.set_limits(id, until=datetime_of(end), **own)
    return problems


def _replaced(visit: Visit, limits: OwnLimits, name: str) -> dict[str, list[str]]:
    """Return the problem of a limit that would replace a temporary one, unless the form says so."""
    held = limits.temporary.get(name)
    if held is None or f"{name} {held.until}" in visit.form.all("replaces"):
        return {}
    t = visit.site.texts
    number = t("none").lower() if held.limit is None else visit.site.number(held.limit)
    words = {"limit": t(f"operator.{name}"), "number": number, "time": moment_of(held.until).time}
    return {"replaces": [t("operator.replaces", **words)]}


def _end(form: Form, now: int) -> int | None:
    """Return the instant at which a temporary limit ends; None: the form has none."""
    text = form.one("span")
    if not text and (until := form.one("until").strip()):
        text = until + form.one("zone")
    try:
        return read_instant(text).after(now)
    except ValueError:
        return None


def _read(
    visit: Visit,
    plan: Plan,
    name: str,
    text: str,
    field: str,
    own: dict[str, Any],
    problems: dict[str, list[str]],
) -> None:
    """Read a limit that was entered, or note what is wrong with it."""
    present = getattr(plan, name)
    before = visit.form.one(f"present_{name}", written(present))
    if text.startswith("+") and before != written(present):
        told = visit.site.texts("operator.changed_limit", now=written(present), before=before)
        problems[field] = [told]
        return
    try:
        own[name] = read_limit(text, present)
    except ValueError as problem:
        sentence = str(problem)
        problems[field] = [visit.site.texts.sentence(f"{sentence[:1].upper()}{sentence[1:]}.")]


def _refusing(explained: Explanation) -> str:
    """Return the name of the limit that refuses the next request the longest; the first without
    one."""
    named = {window: limit for limit, (window, _) in SPANS.items()}
    full = [
        (window.until is None, window.until or 0, named[window.name])
        for window in explained.windows
        if window.left is not None and window.left < explained.cost
    ]
    if full:
        return max(full)[2]
    slots = explained.slots
    takes_all = slots.limit is not None and slots.used >= slots.limit
    return "concurrent" if takes_all else LIMITS[0]


def shown_of(visit: Visit, problems: Problems) -> dict[str, Any]:
    """Return what the page shows of problems: by field, the names of fields, and of which form."""
    return {
        "problems": problems,
        "fields": _NAMES,
        "of_plan": visit.place == "/operator/organization" and bool(problems),
    }
