"""Plans and the book that knows them (D21, D25, W13)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate.core.plans import (
    ANONYMOUS,
    CREATOR,
    FREE,
    LIMITS,
    STARTER,
    Organization,
    Plan,
    PlanBook,
    check_limit,
)
from lockgate.core.sliding_window import Window
from lockgate.core.timestamps import DAY, HOUR, MINUTE
from lockgate.errors import ConfigurationError

NUMBERS: dict[str, int | None] = {"rpm": 1, "rph": 2, "rpd": 3, "concurrent": 4}
LIMIT = st.none() | st.integers(0, 2**53 - 1)


def numbers_of(plan: Plan) -> dict[str, int | None]:
    return {name: getattr(plan, name) for name in LIMITS}


@pytest.mark.parametrize(
    ("plan", "numbers"),
    [
        (FREE, (10, 100, 500, 2)),
        (STARTER, (30, 500, 5_000, 5)),
        (CREATOR, (60, 1_500, 20_000, 10)),
        (ANONYMOUS, (1_000, 20_000, 200_000, 0)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_default_plans_have_the_numbers_of_the_specification(
    plan: Plan, numbers: tuple[int, ...]
) -> None:
    assert (plan.rpm, plan.rph, plan.rpd, plan.concurrent) == numbers
    assert plan.resolution == 60


def test_a_plan_has_three_windows_with_a_grain_of_a_sixtieth() -> None:
    assert Plan("p", 1, None, 3, 4).windows == (
        Window("minute", MINUTE, 1, 1_000_000),
        Window("hour", HOUR, None, MINUTE),
        Window("day", DAY, 3, 24 * MINUTE),
    )
    exact = Plan("p", 1, 1, 1, 1, None)
    assert [window.grain for window in exact.windows] == [0, 0, 0], "every hit is kept"


@given(st.integers(1, 3_600))
def test_the_grain_is_at_most_its_part_of_the_span(resolution: int) -> None:
    for window in Plan("p", 1, 1, 1, 1, resolution).windows:
        assert 0 < window.grain <= window.span / resolution < window.grain + 1


@pytest.mark.parametrize(
    "name", ["", "Free", "a b", "é", "1a", "-a", "_a", "a\n", "a" * 65, "a.b", "a/b"]
)
def test_a_name_is_lower_case(name: str) -> None:
    with pytest.raises(ConfigurationError, match="Plan name"):
        Plan(name, 1, 1, 1, 1)
    for good in ("a", "a-1_b", "a" * 64):
        assert Plan(good, 1, 1, 1, 1).name == good


BAD_LIMITS: list[Any] = [-1, 2**53, 1.5, 1.0, True, False, "10", float("nan"), float("inf"), b"1"]


@pytest.mark.parametrize("limit", BAD_LIMITS, ids=repr)
@pytest.mark.parametrize("name", LIMITS)
def test_a_number_that_is_no_limit_is_refused_by_name(name: str, limit: Any) -> None:
    with pytest.raises(ConfigurationError, match=name):
        Plan("p", **{**NUMBERS, name: limit})
    with pytest.raises(ConfigurationError, match=name):
        PlanBook().place("org", "free", {name: limit})
    with pytest.raises(ConfigurationError, match="what is"):
        check_limit("what", limit)


@pytest.mark.parametrize("resolution", [0, -1, 3_601, 1.5, 60.0, True])
def test_a_resolution_out_of_range_or_broken_is_refused(resolution: Any) -> None:
    """A grain that is no integer would differ from store to store."""
    with pytest.raises(ConfigurationError, match="resolution"):
        Plan("p", 1, 1, 1, 1, resolution)


# The book


def test_the_book_knows_the_plans_of_the_specification() -> None:
    book = PlanBook()
    assert book.names == ["creator", "enterprise", "free", "starter"]
    assert book.default is FREE
    assert book.plan_of(None, 0) is FREE
    for plan in (FREE, STARTER, CREATOR):
        assert book.plan_of(book.place("org", plan.name, {}), 0) is plan


def test_a_plan_that_is_no_longer_known_gives_the_default() -> None:
    """It must not raise during a request."""
    book = PlanBook()
    assert book.plan_of(Organization("org", "gone"), 0) is FREE
    assert book.plan_of(Organization("org", "enterprise"), 0) is FREE
    assert book.plan_of(Organization("org", "gone", (("rpm", 7),)), 0) == Plan(
        "free", 7, 100, 500, 2
    )


@given(
    st.sampled_from(["free", "starter", "creator"]),
    st.dictionaries(st.sampled_from(LIMITS), LIMIT),
)
def test_an_organizations_own_limits_replace_its_plans(
    name: str, overrides: dict[str, int | None]
) -> None:
    book = PlanBook()
    organization = book.place("org", name, overrides)
    assert organization == ("org", name, tuple(sorted(overrides.items())))
    plan = book.plan_of(organization, 0)
    base = numbers_of(book.plan_of(Organization("org", name), 0))
    assert numbers_of(plan) == {**base, **overrides}
    assert (plan.name, plan.resolution) == (name, 60)
    assert book.plan_of(organization._replace(id="another"), 0) is plan, "resolved once"


@given(st.fixed_dictionaries(dict.fromkeys(LIMITS, LIMIT)))
def test_a_custom_plan_has_the_organizations_numbers(numbers: dict[str, int | None]) -> None:
    plan = PlanBook().plan_of(PlanBook().place("org", "enterprise", numbers), 0)
    assert numbers_of(plan) == numbers
    assert (plan.name, plan.resolution) == ("enterprise", 60)


@pytest.mark.parametrize("missing", LIMITS)
def test_a_custom_plan_needs_all_four_numbers(missing: str) -> None:
    numbers = {name: limit for name, limit in NUMBERS.items() if name != missing}
    with pytest.raises(ConfigurationError, match=f"give {missing} as well"):
        PlanBook().place("org", "enterprise", numbers)


def test_a_custom_plan_has_the_resolution_of_the_default_one() -> None:
    book = PlanBook([Plan("free", 1, 1, 1, 1, None)])
    assert book.plan_of(book.place("org", "enterprise", NUMBERS), 0).resolution is None


def test_an_unknown_plan_or_limit_is_refused_by_name() -> None:
    book = PlanBook()
    with pytest.raises(ConfigurationError, match="no plan 'gold'"):
        book.place("org", "gold", {})
    with pytest.raises(ConfigurationError, match="no limit 'rpx'"):
        book.place("org", "free", {"rpx": 1})


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"plans": [FREE, Plan("free", 1, 1, 1, 1)]}, "Two plans"),
        ({"custom": ["enterprise", "starter"]}, "'starter' has numbers and is custom"),
        ({"default": "gold"}, "default plan 'gold' is not among the plans"),
        ({"default": "enterprise"}, r"'enterprise' is custom.* choose one of \['creator', 'free'"),
        ({"plans": []}, "at least one plan"),
    ],
)
def test_a_book_that_contradicts_itself_is_refused(arguments: Any, match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        PlanBook(**arguments)


@pytest.mark.parametrize("name", ["Enterprise", "", "two words"])
def test_a_custom_plan_with_a_bad_name_is_refused_when_the_book_is_made(name: str) -> None:
    """Not by the first request of the first organization on it."""
    with pytest.raises(ConfigurationError):
        PlanBook(custom=[name])


def test_a_plan_that_became_custom_still_serves_its_organizations() -> None:
    """The organization was placed by an earlier book, with some limits overridden."""
    before = PlanBook([FREE, Plan("gold", 50, 500, 5_000, 5)], custom=())
    organization = before.place("org", "gold", {"rpm": 70})
    plan = PlanBook(custom=["gold"]).plan_of(organization, 0)
    assert plan.rpm == 70
    assert plan.rpd == FREE.rpd


def test_many_different_limits_do_not_fill_the_memory() -> None:
    book = PlanBook()
    for rpm in range(5_000):
        assert book.plan_of(Organization("org", "free", (("rpm", rpm),)), 0).rpm == rpm
    assert len(book._resolved) <= 4_096


def test_a_plan_has_the_limits_that_it_is_given() -> None:
    assert numbers_of(Plan("free", rpm=5)) == {
        "rpm": 5,
        "rph": None,
        "rpd": None,
        "concurrent": None,
    }
    assert [window.limit for window in Plan("internal").windows] == [None, None, None]


def test_the_first_plan_of_a_book_is_its_default() -> None:
    assert PlanBook([Plan("hobby", rpm=5), Plan("free", rpm=1)]).default.name == "hobby"
    assert PlanBook([Plan("hobby"), Plan("free")], default="free").default.name == "free"
    assert PlanBook().default.name == "free"
