"""Scopes: coverage by grants, and the catalogue (D8)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate.core.scopes import DEFAULT_SCOPES, Catalogue, Grants, Requirement, grants, requirement
from lockgate.errors import ConfigurationError

SEGMENTS = st.sampled_from(["a", "b", "ab", "a1", "a-b", "a_b"])
PATHS = st.lists(SEGMENTS, min_size=1, max_size=4)
SCOPES = PATHS.map(":".join)
NO_SCOPES = [
    *("", " ", ":", "a:", ":a", "a::b", "A", "a:B", "1a", "a b", "a:b\n", "\na", "é"),
    *("a.b", "a,b", "-a", "_a", "a/b"),
]
WILDCARDS = ["*", "a:*", "a:b:*", "**", "*:a", "a:*:b", "a*"]


# What covers what


@given(SCOPES)
def test_a_scope_covers_itself_and_the_wildcard_covers_it(scope: str) -> None:
    assert scope in Grants([scope])
    assert scope in Grants(["*"])
    assert scope not in Grants([])


@given(PATHS, PATHS)
def test_only_whole_segments_count(granted: list[str], needed: list[str]) -> None:
    """The law of covering, said once more by lists."""
    scope = ":".join(needed)
    assert (scope in Grants([":".join(granted)])) == (granted == needed)
    below = len(needed) > len(granted) and needed[: len(granted)] == granted
    assert (scope in Grants([":".join(granted) + ":*"])) == below


@given(st.lists(SCOPES | SCOPES.map("{}:*".format), max_size=4), SCOPES)
def test_grants_cover_a_scope_that_any_grant_covers(scopes: list[str], needed: str) -> None:
    assert (needed in Grants(scopes)) == any(needed in Grants([scope]) for scope in scopes)
    assert Grants(scopes).cover(Requirement(needed)) == (needed in Grants(scopes))


# What may be asked


@pytest.mark.parametrize("junk", NO_SCOPES)
def test_what_is_no_scope_covers_none_and_is_covered_by_none(junk: str) -> None:
    assert "a" not in Grants([junk]) and "a:b" not in Grants([junk])
    assert junk not in Grants(["*", "a"])
    with pytest.raises(ConfigurationError, match="exact scope"):
        Requirement(junk)


@pytest.mark.parametrize("junk", [None, 1, 1.5, b"a", ("a",), [], {}, object()])
def test_grants_contain_no_value_of_another_type(junk: object) -> None:
    assert junk not in Grants(["*", "a"])


@pytest.mark.parametrize("wildcard", WILDCARDS)
def test_a_requirement_cannot_be_a_wildcard(wildcard: str) -> None:
    """Otherwise a handler that requires ``jobs:*`` would admit by accident."""
    assert wildcard not in Grants(["*", wildcard])
    with pytest.raises(ConfigurationError, match="exact scope"):
        Requirement(wildcard)


@given(SCOPES, SCOPES)
def test_requirements_are_equal_by_their_scope(one: str, other: str) -> None:
    assert (Requirement(one) == Requirement(other)) == (one == other)
    assert len({Requirement(one), Requirement(one)}) == 1
    assert Requirement(one) != one
    assert repr(Requirement(one)) == f"Requirement({one!r})"
    assert requirement(one) is requirement(one)
    assert requirement(one) == Requirement(one)


def test_the_grants_that_cover_a_requirement_are_listed() -> None:
    assert Requirement("a:b:c").covering == {"*", "a:b:c", "a:*", "a:b:*"}
    assert Requirement("a").covering == {"*", "a"}


@given(st.lists(SCOPES | SCOPES.map("{}:*".format), max_size=4), SCOPES, SCOPES)
def test_two_requirements_together_need_both(scopes: list[str], one: str, other: str) -> None:
    both = Requirement(one).together(Requirement(other))
    granted = Grants(scopes)
    assert granted.cover(both) == (one in granted and other in granted)
    assert both == Requirement(one).together(Requirement(other))
    assert hash(both) == hash(Requirement(one).together(Requirement(other)))
    assert both != Requirement(one)
    assert requirement(one).also is None, "those that are shared stay as they are"


def test_grants_look_like_a_list() -> None:
    granted = Grants(["b", "a:*", "b"])
    assert list(granted) == ["b", "a:*", "b"]
    assert granted.scopes == ("b", "a:*", "b")
    assert repr(granted) == "Grants(['b', 'a:*', 'b'])"
    assert grants(("a", "b")) is grants(("a", "b"))
    assert list(grants(("a", "b"))) == ["a", "b"]


# The catalogue


def test_the_default_catalogue_is_the_specified_table_with_implied_scopes() -> None:
    areas, ends = ("models", "jobs", "upload", "account"), ("*", "read", "write")
    catalogue = Catalogue.of()
    assert catalogue.scopes == {"*", *(f"{area}:{end}" for area in areas for end in ends)}
    assert catalogue == Catalogue.of(DEFAULT_SCOPES)
    catalogue.check_requirement(Requirement("jobs:read"))
    catalogue.check_requirement(Requirement("account:write"))
    with pytest.raises(ConfigurationError, match=r"'jobs:reed'.*jobs:read, jobs:write"):
        catalogue.check_requirement(Requirement("jobs:reed"))


@given(st.sets(SCOPES | SCOPES.map("{}:*".format) | st.just("*"), max_size=6))
def test_a_catalogue_has_full_access_and_three_scopes_of_each_area_D51(scopes: set[str]) -> None:
    areas = {scope.split(":")[0] for scope in scopes} - {"*"}
    implied = {f"{area}:{last}" for area in areas for last in ("*", "read", "write")}
    assert Catalogue.of(scopes).scopes == {"*"} | scopes | implied


@pytest.mark.parametrize("junk", [*NO_SCOPES, "**", "*:a", "a:*:b", "a*", "*:*"])
def test_a_catalogue_holds_only_scopes(junk: str) -> None:
    with pytest.raises(ConfigurationError, match="is no scope"):
        Catalogue.of(["a", junk])
