"""The forms of operators for the plan and the limits of an organization."""

from collections.abc import Mapping
from typing import Any, Final

from ..core.instants import datetime_of, read_instant
from ..core.limit_changes import read_limit
from ..core.plans import LIMITS, SPANS, Plan
from ..errors import ConfigurationError
from ..services.explanations import Explanation
from ..services.organizations import OwnLimits
from .forms import Form
from .visit import Visit

HOURS: Final = (1, 4, 12, 24, 72, 168)
"""How long a temporary limit lasts, unless its end is a date and time."""
_CHOSEN: Final = "12h"
_FIELDS: Final = ("plan", *LIMITS, "limit", "number", "span", "until", "zone")

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


def present_of(plan: Plan) -> dict[str, str]:
    """Return the present limits as the forms send them back.

    A form that adds to a limit is refused once the limit is another: so a form that is sent twice
    adds once.
    """
    return {name: written(getattr(plan, name)) for name in LIMITS}


def written(limit: int | None) -> str:
    """Return a limit as it is entered."""
    return "none" if limit is None else str(limit)


async def change_plan(visit: Visit, id: str) -> Problems:
    """Put an organization on a plan with the limits that were entered; return the problems."""
    form, problems = visit.form, dict[str, list[str]]()
    plan, own = (await visit.gate.organizations.limits(id)).lasting, dict[str, int | None]()
    for name in LIMITS:
        text = form.one(name).strip()
        if text:
            _read(visit, plan, name, text, name, own, problems)
    if not problems:
        try:
            with visit.changing():
                await visit.gate.organizations.place(id, form.one("plan"), **own)
        except ConfigurationError as problem:
            problems["plan"] = [str(problem)]
    return problems


async def set_limit(visit: Visit, id: str) -> Problems:
    """Give an organization a limit of its own until an instant; return the problems of the form."""
    form, t, problems = visit.form, visit.site.texts, dict[str, list[str]]()
    plan, own = (await visit.gate.organizations.limits(id)).plan, dict[str, Any]()
    name, text = form.one("limit"), form.one("number").strip()
    if name in LIMITS:
        _read(visit, plan, name, text, "number", own, problems)
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
    """Return what the page shows of problems: by field, and whether there are some of each form."""
    return {
        "problems": problems,
        "of_plan": bool(problems.keys() & {"plan", *LIMITS}),
        "of_limit": bool(problems.keys() & {"limit", "number", "until"}),
    }
