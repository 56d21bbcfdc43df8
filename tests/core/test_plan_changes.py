"""What a record of the change log changed in a plan and its limits."""

from __future__ import annotations

import pytest

from lockgate.core.changes import HOST, Change, Fields
from lockgate.core.plan_changes import OF_PLAN, PlanDifference, headline, plan_differences

FREE: Fields = (("plan", "free"),)
RAISED: Fields = (*FREE, ("temporary_rpm", 50), ("temporary_rpm_ends_at", 2_000))
LATER: Fields = (*FREE, ("temporary_rpm", None), ("temporary_rpm_ends_at", 3_000))


def change(before: Fields, after: Fields, at: int = 1_000) -> Change:
    return Change(1, at, "plan_assigned", None, HOST, before, after)


@pytest.mark.parametrize(
    ("before", "after", "word", "differences"),
    [
        (
            (("plan", None),),
            FREE,
            "plan_changed",
            [PlanDifference("plan", "plan", None, "free")],
        ),
        (
            FREE,
            (("plan", "creator"), ("rpm", 7)),
            "plan_changed",
            [
                PlanDifference("plan", "plan", "free", "creator"),
                PlanDifference("limit", "rpm", OF_PLAN, 7),
            ],
        ),
        (
            (*FREE, ("rpd", 7)),
            (*FREE, ("rpm", None)),
            "limits_changed",
            [
                PlanDifference("limit", "rpm", OF_PLAN, None),
                PlanDifference("limit", "rpd", 7, OF_PLAN),
            ],
        ),
        (
            FREE,
            RAISED,
            "temporary_limit_set",
            [PlanDifference("temporary", "rpm", OF_PLAN, 50, 2_000)],
        ),
        (
            RAISED,
            LATER,
            "temporary_limit_set",
            [PlanDifference("temporary", "rpm", OF_PLAN, None, 3_000)],
        ),
        (
            RAISED,
            FREE,
            "temporary_limit_ended",
            [PlanDifference("ended", "rpm", 50, OF_PLAN, 2_000)],
        ),
        (FREE, FREE, "plan_assigned", []),
    ],
)
def test_a_record_tells_what_became_different(
    before: Fields, after: Fields, word: str, differences: list[PlanDifference]
) -> None:
    record = change(before, after)
    assert plan_differences(record) == differences
    assert headline(record) == word


def test_first_assignments_ended_limits_and_other_actions_are_told_by_what_they_did() -> None:
    assert headline(change((("plan", None),), RAISED)) == "temporary_limit_set"
    assert plan_differences(change(RAISED, FREE, at=2_000)) == [], "it had ended"
    record = Change(1, 1_000, "key_revoked", "id", HOST)
    assert (plan_differences(record), headline(record)) == ([], "key_revoked")
