"""What a record of the change log changed in the plan and the limits of an organization.

The log has one action for all of these, ``plan_assigned``, with the whole assignment before and
after it. An operator who reads the log asks which of them it was.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from .changes import Change, Value
from .plans import LIMITS
from .temporary_limits import TemporaryLimit

OF_PLAN: Final = "plan"
"""In place of a number: the limit of the plan applied, which the record does not tell."""


class PlanDifference(NamedTuple):
    """One difference that a change made."""

    kind: Literal["plan", "limit", "temporary", "ended"]
    """``limit``: an own limit without an end; ``temporary``: a temporary limit was set; ``ended``:
    one was ended before its time."""
    name: str
    """The limit; ``plan`` for the plan."""
    before: Value
    """The limit before, or :data:`OF_PLAN`, or the name of the plan. For ``temporary``:
    :data:`OF_PLAN`, since the record of the limit that it replaces has it."""
    after: Value
    until: int = 0
    """The end of a temporary limit, in microseconds."""


def plan_differences(change: Change) -> list[PlanDifference]:
    """Return what a change made different in a plan and its limits; nothing for other changes.

    A temporary limit that had reached its end before the change is none of them.
    """
    if change.action != "plan_assigned":
        return []
    before, after = dict(change.before), dict(change.after)
    found: list[PlanDifference] = []
    for name in ("plan", *LIMITS):
        old, new = before.get(name, OF_PLAN), after.get(name, OF_PLAN)
        if old != new:
            found.append(PlanDifference("plan" if name == "plan" else "limit", name, old, new))
    for name in LIMITS:
        ending, begun = _temporary(before, name), _temporary(after, name)
        if begun is not None and begun != ending:
            found.append(PlanDifference("temporary", name, OF_PLAN, *begun))
        elif ending is not None and begun is None and ending.until > change.at:
            found.append(PlanDifference("ended", name, ending.limit, OF_PLAN, ending.until))
    return found


def headline(change: Change) -> str:
    """Return what a change was, in a word: its action, and of a plan what became different.

    ``plan_changed``, ``limits_changed``, ``temporary_limit_set`` or ``temporary_limit_ended``; if
    nothing became different, the action.
    """
    found = plan_differences(change)
    kinds = {one.kind for one in found}
    is_first = any(one.kind == "plan" and one.before is None for one in found)
    if "plan" in kinds and (not is_first or len(kinds) == 1):
        return "plan_changed"
    if "temporary" in kinds:
        return "temporary_limit_set"
    if "limit" in kinds:
        return "limits_changed"
    return "temporary_limit_ended" if kinds else change.action


def _temporary(fields: Mapping[str, Value], name: str) -> TemporaryLimit | None:
    limit, until = fields.get(f"temporary_{name}"), fields.get(f"temporary_{name}_ends_at")
    if not isinstance(until, int):
        return None
    return TemporaryLimit(limit if isinstance(limit, int) else None, until)
