"""Limits that end by themselves, and the plan of an organization before and after."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate.core.changes import plan_fields
from lockgate.core.plans import FREE, LIMITS, Organization, PlanBook
from lockgate.core.temporary_limits import TemporaryLimit, told_apart, with_temporary
from lockgate.errors import ConfigurationError

LIMIT = st.none() | st.integers(0, 2**53 - 1)
INSTANT = st.integers(0, 100)


def test_a_temporary_limit_replaces_the_others_until_its_end() -> None:
    book = PlanBook()
    ends = {"rpd": TemporaryLimit(1000, 50), "rpm": TemporaryLimit(None, 70)}
    placed = book.place("org_1", "free", {"rpd": 700}, ends)
    found = [book.plan_of(placed, now) for now in (0, 49, 50, 69, 70)]
    assert [(plan.rpm, plan.rpd, plan.until) for plan in found] == [
        (None, 1000, 50),
        (None, 1000, 50),
        (None, 700, 70),
        (None, 700, 70),
        (10, 700, inf),
    ]
    assert book.plan_of(placed, 49) == found[0], "whatever the order of the instants"
    assert found[-1].concurrent == FREE.concurrent


@given(
    st.dictionaries(st.sampled_from(LIMITS), LIMIT),
    st.dictionaries(st.sampled_from(LIMITS), st.builds(TemporaryLimit, LIMIT, INSTANT)),
    st.lists(INSTANT, min_size=1),
)
def test_the_plan_is_a_function_of_the_instant(
    own: dict[str, int | None], temporary: dict[str, TemporaryLimit], instants: list[int]
) -> None:
    book = PlanBook()
    placed = book.place("org_1", "creator", own, temporary)
    assert told_apart(placed.overrides) == (own, temporary)
    assert placed.has_temporary_limits is bool(temporary)
    for now in instants:
        plan = book.plan_of(placed, now)
        for name in LIMITS:
            expected = getattr(book.plan("creator", (), now), name)
            expected = own.get(name, expected)
            if name in temporary and now < temporary[name].until:
                expected = temporary[name].limit
            assert getattr(plan, name) == expected
        ends = [limit.until for limit in temporary.values() if now < limit.until]
        assert plan.until == min(ends, default=inf)


def test_a_name_of_a_later_release_has_no_effect_and_an_unknown_one_is_refused() -> None:
    placed = Organization("org_1", "free", (("rpd@soon", 1), ("rpm?", 2), ("rpm", 7)))
    assert PlanBook().plan_of(placed, 0).rpm == 7
    assert not placed.has_temporary_limits
    for name, limit, said in (("rpx", 1, "no limit 'rpx'"), ("rpm", -1, "whole number")):
        with pytest.raises(ConfigurationError, match=said):
            PlanBook().place("org_1", "free", {}, {name: TemporaryLimit(limit, 2)})


def test_the_change_log_names_a_temporary_limit_and_its_end() -> None:
    kept = with_temporary({"rpm": 7}, {"rpd": TemporaryLimit(None, 50)})
    assert plan_fields(Organization("org_1", "free", kept)) == (
        ("plan", "free"),
        ("rpm", 7),
        ("temporary_rpd", None),
        ("temporary_rpd_ends_at", 50),
    )
