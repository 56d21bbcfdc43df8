"""The rows of the audit log that operators read."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from ..core.api_keys import ApiKey
from ..core.changes import Actor, Change, Value
from ..core.plan_changes import OF_PLAN, PlanDifference, headline, plan_differences
from ..core.timestamps import DAY
from ..errors import NotFound
from .moments import moment_of
from .visit import Visit

_INSTANTS: Final = ("expires_at", "revoked_at", "_ends_at")
"""Endings of the names of fields that hold an instant."""


_NAMES: Final = {
    "name": "column.name",
    "scopes": "key.scopes",
    "expires_at": "key.expires",
    "revoked_at": "key.revoked",
    "labels": "key.labels",
    "addresses": "key.addresses",
    "successor": "key.successor",
}
"""The texts of the names of fields; other fields keep their own names."""


class Line(NamedTuple):
    """One thing that a change made different."""

    text: str
    until: str = ""
    """The instant in the text, for the script that shows it in local time."""


async def change_rows(
    visit: Visit, id: str, changes: Iterable[Change], keys: Iterable[ApiKey]
) -> list[dict[str, Any]]:
    """Return changes of an organization as rows.

    Args:
        visit: the visit of the page.
        id: the organization.
        changes: in their order.
        keys: some keys of the organization, whose names are known.
    """
    changes = [*changes]
    names = {key.id: key.name for key in keys}
    for key in {change.key for change in changes if change.key} - names.keys():
        with suppress(NotFound):  # It was removed since.
            names[key] = (await visit.gate.keys.get(id, key)).name
    return [
        {
            "at": moment_of(change.at),
            "title": _title(visit, change),
            "key": change.key,
            "key_name": names.get(change.key or ""),
            "actor": operator_actor(change.actor),
            "address": change.actor.address,
            "lines": _lines(visit, change),
        }
        for change in changes
    ]


def operator_actor(actor: Actor) -> str:
    """Return the originator of a change as operators know it."""
    return f"{actor.kind} {actor.id}" if actor.id else actor.kind


def _title(visit: Visit, change: Change) -> str:
    name = headline(change)
    return visit.site.texts.find(f"change.{name}") or name.replace("_", " ")


def _lines(visit: Visit, change: Change) -> list[Line]:
    if change.action == "plan_assigned":
        return [_difference(visit, one) for one in plan_differences(change)]
    before, after = dict(change.before), dict(change.after)
    return [
        _line(visit, name, before.get(name), after.get(name), is_new=name not in before)
        for name in dict.fromkeys([*before, *after])
    ]


def _line(visit: Visit, field: str, before: Value, after: Value, *, is_new: bool) -> Line:
    old, new = _value(visit, field, before), _value(visit, field, after)
    name = visit.site.texts(_NAMES[field]) if field in _NAMES else field
    kind = "change.to" if is_new else "change.from"
    text = visit.site.texts(kind, name=name, before=old.text, after=new.text)
    # The script shows one instant of a line: a line with two has them in UTC.
    return Line(text, "" if not is_new and old.until else new.until)


def _difference(visit: Visit, one: PlanDifference) -> Line:
    t, name = visit.site.texts, visit.site.texts(f"operator.{one.name}")
    before, after = _number(visit, one.before), _number(visit, one.after)
    if one.kind in {"temporary", "ended"}:
        until = moment_of(one.until)
        words = {"name": name, "before": before, "after": after, "time": until.time}
        return Line(t(f"change.{one.kind}", **words), until.iso)
    if one.kind == "plan" and one.before is None:
        return Line(t("change.to", name=name, after=after))
    return Line(t("change.from", name=name, before=before, after=after))


def _number(visit: Visit, value: Value) -> str:
    if value == OF_PLAN:
        return visit.site.texts("change.of_plan")
    if value is None:
        return visit.site.texts("none").lower()
    return visit.site.number(value) if isinstance(value, int) else str(value)


def _value(visit: Visit, field: str, value: Value) -> Line:
    if field.endswith(_INSTANTS) and type(value) is int and value > DAY:
        moment = moment_of(value)
        return Line(moment.time, moment.iso)
    if isinstance(value, tuple):
        return Line(", ".join(value))
    if value is None:
        t = visit.site.texts
        return Line(t("never") if field == "expires_at" else t("none").lower())
    return Line(str(value))
