"""Access rules: their requirements, and the comparison of their strictness."""

from itertools import product
from typing import Any

import pytest

from lockgate.core.access_rule import ANY_KEY, PUBLIC, Rule, both, not_allowed
from lockgate.core.limits import Limit
from lockgate.core.rule_book import RuleBook
from lockgate.core.scopes import Requirement
from lockgate.errors import ConfigurationError


def test_the_representation_of_a_rule_shows_its_requirements() -> None:
    assert str(Rule()) == "key, any scope"
    assert str(Rule("jobs:read", cost=5)) == "key, scope jobs:read, cost 5"
    assert str(Rule("a:b", accepts=("key", "session"))) == "key or session, scope a:b"
    assert str(PUBLIC) == "public"
    assert repr(Rule()) == "<Rule: key, any scope>"
    assert Rule("jobs:read").requires == Requirement("jobs:read")
    assert (ANY_KEY.requires, ANY_KEY.cost, ANY_KEY.accepts) == (None, 1, ("key",))
    assert (ANY_KEY.public, ANY_KEY.own, PUBLIC.public) == (False, False, True)


def test_rules_with_the_same_requirements_are_equal() -> None:
    rules = [*RULES[:5], Rule(accepts=("session",)), Rule(own=True)]
    for one, other in product(range(len(rules)), repeat=2):
        assert (rules[one] == rules[other]) == (one == other)
    assert Rule("a:b", cost=3) == Rule("a:b", cost=3)
    assert hash(Rule("a:b", cost=3)) == hash(Rule("a:b", cost=3))
    assert Rule() != "key"


@pytest.mark.parametrize("cost", [-1, 1.5, 0.0, 2.0, float("nan"), float("inf"), True, 2**63])
def test_a_cost_that_no_window_can_count_is_refused(cost: Any) -> None:
    """Cells hold 64-bit integers: with another cost the second request would fail."""
    with pytest.raises(ConfigurationError, match="cost"):
        Rule(cost=cost)


@pytest.mark.parametrize("scope", ["*", "jobs:*", "Jobs", "a b", ""])
def test_a_rule_requires_an_exact_scope(scope: str) -> None:
    """An empty one comes from a setting that was left empty, and must not open the route."""
    with pytest.raises(ConfigurationError):
        Rule(scope)
    with pytest.raises(ConfigurationError):
        RuleBook({"GET /a": scope})


def test_a_public_rule_has_no_requirements() -> None:
    with pytest.raises(ConfigurationError, match="public"):
        Rule("a:b", public=True)
    with pytest.raises(ConfigurationError, match="public"):
        Rule(cost=2, public=True)


RULES = [
    PUBLIC,
    Rule(),
    Rule("a:b"),
    Rule("a:c"),
    Rule("a:b", cost=2),
    Rule(slot=True),
    Rule(accepts=("key", "session")),
    not_allowed({"GET": Rule()}),
]


def test_every_rule_includes_a_public_one_but_not_a_refused_method() -> None:
    for rule in RULES:
        assert rule.includes(PUBLIC)
        assert not rule.includes(RULES[-1])
        assert PUBLIC.includes(rule) == rule.public


def test_a_rule_includes_rules_with_fewer_requirements() -> None:
    strict = Rule("a:b", cost=3, slot=True)
    for rule in (Rule(), Rule("a:b"), Rule(cost=3), Rule(slot=True), strict):
        assert strict.includes(rule)
        assert rule.includes(strict) == (rule is strict)
    assert not strict.includes(Rule("a:c"))
    assert Rule().includes(Rule(accepts=("key", "session")))
    assert not Rule(accepts=("key", "session")).includes(Rule())


def test_two_rules_together_include_each_of_them() -> None:
    guarded = [rule for rule in RULES if not rule.public and rule.allow is None]
    for one, other in product(guarded, repeat=2):
        together = both(one, other)
        assert together.includes(one) and together.includes(other)


def test_a_refused_method_needs_a_credential_of_its_path() -> None:
    assert not_allowed({"GET": Rule(), "POST": Rule()}).allow == ("GET", "POST")
    assert not_allowed({"GET": PUBLIC}).accepts == ("key",)
    assert not_allowed({"GET": Rule(accepts=("session",))}).accepts == ("key", "session")


def test_rules_that_hold_together_have_the_limits_and_the_credentials_of_both() -> None:
    one = Rule("a:b", slot="background", limits=[Limit("one", "1/minute")])
    other = Rule("a:c", slot=True, accepts=("key", "session"), limits=[Limit("other", "1/minute")])
    for rule in both(one, other), both(other, one):
        assert {limit.name for limit in rule.limits} == {"one", "other"}
        assert (rule.accepts, rule.background) == (("key",), True)
