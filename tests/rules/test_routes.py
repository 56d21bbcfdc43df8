"""Which rule holds for a request, against a matcher that tries every rule (D31)."""

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from lockgate.errors import ConfigurationError
from lockgate.rules.paths import folded, odd
from lockgate.rules.routes import ANY_KEY, PUBLIC, Rule, RuleBook
from lockgate.rules.scopes import Catalogue, Grants, Requirement

# A rule


def test_a_rule_says_what_it_asks_for() -> None:
    assert str(Rule()) == "key, any scope"
    assert str(Rule("jobs:read", cost=5)) == "key, scope jobs:read, cost 5"
    assert str(Rule("a:b", accepts=("key", "session"))) == "key or session, scope a:b"
    assert str(PUBLIC) == "public"
    assert repr(Rule()) == "<Rule: key, any scope>"
    assert Rule("jobs:read").requires == Requirement("jobs:read")
    assert (ANY_KEY.requires, ANY_KEY.cost, ANY_KEY.accepts) == (None, 1, ("key",))
    assert (ANY_KEY.public, ANY_KEY.own, PUBLIC.public) == (False, False, True)


def test_rules_are_equal_when_they_ask_for_the_same() -> None:
    rules = [
        Rule(),
        Rule("a:b"),
        Rule("a:c"),
        Rule(cost=2),
        Rule(accepts=("session",)),
        Rule(own=True),
        PUBLIC,
    ]
    for one, other in product(range(len(rules)), repeat=2):
        assert (rules[one] == rules[other]) == (one == other)
    assert Rule("a:b", cost=3) == Rule("a:b", cost=3)
    assert hash(Rule("a:b", cost=3)) == hash(Rule("a:b", cost=3))
    assert Rule() != "key"


@pytest.mark.parametrize("cost", [0, -1, 1.5, 0.0])
def test_a_cost_below_one_or_broken_is_refused(cost: Any) -> None:
    with pytest.raises(ConfigurationError, match="cost"):
        Rule(cost=cost)


@pytest.mark.parametrize("cost", [2.0, float("nan"), float("inf"), True, 2**63])
def test_a_cost_that_no_window_can_count_is_refused(cost: Any) -> None:
    """Cells hold 64-bit integers: with another cost the second request would fail."""
    with pytest.raises(ConfigurationError, match="cost"):
        Rule(cost=cost)


@pytest.mark.parametrize("scope", ["*", "jobs:*", "Jobs", "a b"])
def test_a_rule_requires_an_exact_scope(scope: str) -> None:
    with pytest.raises(ConfigurationError, match="exact scope"):
        Rule(scope)


def test_an_empty_scope_is_not_no_scope() -> None:
    """It comes from a setting that was left empty, and must not open the route to every key."""
    with pytest.raises(ConfigurationError):
        Rule("")
    with pytest.raises(ConfigurationError):
        RuleBook({"GET /a": ""})


def test_a_public_rule_asks_for_nothing() -> None:
    with pytest.raises(ConfigurationError, match="public"):
        Rule("a:b", public=True)
    with pytest.raises(ConfigurationError, match="public"):
        Rule(cost=2, public=True)


@pytest.mark.parametrize(
    "key", ["", "GET", "/a", "get /a", "GET/a", "GET  /a", "GET\t/a", "G T /a", "** /a", " GET /a"]
)
def test_a_rule_that_cannot_be_read_is_refused(key: str) -> None:
    with pytest.raises(ConfigurationError):
        RuleBook({key: PUBLIC})


def test_a_last_slash_more_or_less_sheds_no_scope() -> None:
    """Some software serves both alike; being public is not passed on."""
    book = RuleBook({"GET /a": "a:b", "GET /b/": "a:c", "GET /open": PUBLIC, "GET /b": PUBLIC})
    assert book.match("GET", "/a/") == Rule("a:b")
    assert book.match("GET", "/b") == PUBLIC
    assert book.match("GET", "/open/") is ANY_KEY
    assert book.match("GET", "/elsewhere/") is ANY_KEY


def test_a_rule_that_accepts_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="/a"):
        RuleBook({"GET /a": Rule(accepts=())})


# Precedence, methods and contradictions


PIECES = ["a", "b", "a-b", "{x}", "{y}", "{x}-b", "{z}-b", "a-{y}", "{p:path}"]
SEGMENTS = ["a", "b", "c", "a-b", "b-b", "a-a"]
PATHS = ["/" + "/".join(p) for n in (1, 2, 3, 4) for p in product(SEGMENTS, repeat=n)]


@st.composite
def patterns(draw: st.DrawFn) -> str:
    pieces = draw(st.lists(st.sampled_from(PIECES[:-1]), min_size=1, max_size=3))
    if draw(st.integers(0, 3)) == 0:
        pieces[-1] = PIECES[-1]
    return "/" + "/".join(pieces)


def piece_matches(piece: str, segment: str) -> bool:
    before, brace, rest = piece.partition("{")
    if not brace:
        return piece == segment
    after = rest.partition("}")[2]
    inner = len(segment) - len(before) - len(after)
    return inner > 0 and segment.startswith(before) and segment.endswith(after)


def naive_matches(pattern: str, path: str) -> bool:
    pieces, segments = pattern[1:].split("/"), path[1:].split("/")
    if pieces[-1] == "{p:path}":
        if len(segments) < len(pieces):
            return False
        pieces, segments = pieces[:-1], segments[: len(pieces) - 1]
    return len(pieces) == len(segments) and all(map(piece_matches, pieces, segments))


def kind(piece: str) -> int:
    """Literal, mixed, one parameter, the rest of the path."""
    if piece == "{p:path}":
        return 3
    if "{" not in piece:
        return 0
    return 2 if piece.startswith("{") and piece.endswith("}") else 1


def naive_match(rules: dict[str, Rule], method: str, path: str) -> Rule:
    """The rule that is named, or the one of the same path with or without a last slash."""
    rule = naive_named(rules, method, path)
    if rule is not None:
        return rule
    twin = naive_named(rules, method, path[:-1] if path.endswith("/") else f"{path}/")
    return ANY_KEY if twin is None or twin.public else twin


def naive_named(rules: dict[str, Rule], method: str, path: str) -> Rule | None:
    found: list[tuple[list[int], int, str]] = []
    for key in rules:
        named, pattern = key.split(" ")
        methods = {"HEAD": ["HEAD", "GET", "*"]}.get(method, [method, "*"])
        if named in methods and naive_matches(pattern, path):
            specific = [kind(piece) for piece in pattern[1:].split("/")]
            found.append((specific, methods.index(named), key))
    return rules[min(found)[2]] if found else None


RULES = st.dictionaries(
    st.builds("{} {}".format, st.sampled_from(["GET", "POST", "HEAD", "*"]), patterns()),
    st.sampled_from([PUBLIC, Rule("a:b"), Rule("a:c"), Rule(cost=2), Rule()]),
    min_size=1,
    max_size=6,
)
METHODS = st.sampled_from(["GET", "POST", "HEAD", "PUT"])
ANY_METHODS = METHODS | st.sampled_from(["get", "Head", "", "G\u017fT"])


@given(RULES, METHODS, st.lists(st.sampled_from(PATHS), min_size=5, max_size=5))
@example({"GET /{x}-b": PUBLIC, "* /{z}-b": Rule("a:b")}, "GET", ["/a-b"])
@example({"GET /{x}": PUBLIC, "HEAD /{y}": Rule("a:b"), "* /{z}": Rule("a:c")}, "HEAD", ["/a"])
@example({"GET /a/{p:path}": Rule("a:b")}, "GET", ["/a"])
@example({"GET /a/{p:path}": PUBLIC}, "GET", ["/a"])
def test_the_most_specific_rule_decides(
    rules: dict[str, Rule], method: str, paths: list[str]
) -> None:
    try:
        book = RuleBook(rules)
    except ConfigurationError:
        assume(False)
        raise
    assert {f"{named} {path}": rule for named, path, rule in book} == rules
    for path in paths:
        assert book.match(method, path) == naive_match(rules, method, path), path


@cache
def reach(pattern: str) -> frozenset[str]:
    return frozenset(path for path in PATHS if naive_matches(pattern, path))


@given(patterns(), patterns())
@example("/a-b", "/{x}-b")
@example("/b", "/{x}-b")
@example("/{x}-b", "/a-{y}")
@example("/a/{x}", "/{y}/b")
@example("/{x}/{y}", "/{a}/{b}")
def test_rules_that_contradict_each_other_are_refused_and_no_others(one: str, other: str) -> None:
    """The paths here tell these patterns apart: each lies within another, outside or across."""
    assume(one != other)
    here, there = reach(one), reach(other)
    contradict = bool(here & there) and not (here < there or there < here)
    rules: dict[str, Rule | str] = {f"GET {one}": "a:b", f"GET {other}": "a:c"}
    if contradict:
        with pytest.raises(ConfigurationError, match="contradict each other"):
            RuleBook(rules)
    else:
        RuleBook(rules)
    RuleBook({f"GET {one}": "a:b", f"GET {other}": "a:b"})
    RuleBook({f"GET {one}": "a:b", f"POST {other}": "a:c"})


def test_a_contradiction_names_both_rules() -> None:
    with pytest.raises(ConfigurationError) as caught:
        RuleBook({"GET /a/{x}": "a:b", "GET /{y}/b": PUBLIC})
    for part in ("'GET /a/{x}'", "'GET /{y}/b'", "key, scope a:b", "public"):
        assert part in str(caught.value)


def test_the_path_decides_before_the_method() -> None:
    book = RuleBook({"GET /a/{x}": "a:b", "* /a/b": "a:c", "* /{p:path}": "a:d"})
    assert book.match("GET", "/a/b") == Rule("a:c")
    assert book.match("GET", "/a/c") == Rule("a:b")
    assert book.match("PUT", "/a/c") == Rule("a:d")
    assert book.match("PUT", "/a/b") == Rule("a:c")
    same = RuleBook({"* /a/{x}": "a:b", "GET /a/{y}": "a:c"})
    assert same.match("GET", "/a/1") == Rule("a:c")
    assert same.match("PUT", "/a/1") == Rule("a:b")


def test_head_follows_get_and_nothing_else_does() -> None:
    book = RuleBook({"GET /a": "a:b", "GET /b": "a:b", "HEAD /b": "a:c", "* /c": "a:d"})
    assert [book.match("HEAD", path) for path in ("/a", "/b", "/c")] == [
        Rule("a:b"),
        Rule("a:c"),
        Rule("a:d"),
    ]
    assert [book.match("OPTIONS", path) for path in ("/a", "/b", "/c")] == [
        ANY_KEY,
        ANY_KEY,
        Rule("a:d"),
    ]
    assert RuleBook({"HEAD /a": "a:b"}).match("GET", "/a") is ANY_KEY
    assert RuleBook({"HEAD /a": "a:b"}).match("HEAD", "/a") == Rule("a:b")


def test_a_path_that_no_rule_names_needs_a_key() -> None:
    assert RuleBook({}).match("GET", "/a") is ANY_KEY
    assert RuleBook({}).match("", "") is ANY_KEY
    book = RuleBook({"GET /health": PUBLIC})
    for method, path in (("POST", "/health"), ("", "/health"), ("GET", "/health/")):
        assert book.match(method, path) is ANY_KEY


def test_a_scope_outside_the_catalogue_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'jobs:reed'"):
        RuleBook({"GET /a": "jobs:reed"}, Catalogue.of())
    RuleBook({"GET /a": "jobs:read", "GET /b": PUBLIC}, Catalogue.of())
    RuleBook({"GET /a": "jobs:reed"})


def test_the_rule_of_a_routes_own_pattern() -> None:
    book = RuleBook({"GET /a/{id}": "a:b", "* /f/{p:path}": PUBLIC})
    assert book.named("GET", "/a/{id}") == Rule("a:b")
    assert book.named("GET", "/a/{other:int}") == Rule("a:b")
    assert book.named("PUT", "/f/{p:path}") is PUBLIC
    assert book.named("PUT", "/a/{id}") is None


def test_many_rules_are_told_apart() -> None:
    book = RuleBook({f"GET /r{n}/{{x}}": f"area{n}:read" for n in range(300)})
    for n in (0, 99, 100, 299):
        assert book.match("GET", f"/r{n}/1") == Rule(f"area{n}:read")


# Odd paths


def spellings(path: str) -> Iterator[str]:
    """Ways to write a path that some software takes for the path itself."""
    yield path + "//"
    yield path + "/."
    yield path + "/./"
    yield path + "/x/.."
    yield path + "\n"
    yield path + "\x00"
    yield path.replace("/", "//")
    yield "/." + path
    yield "/x/.." + path
    yield "/.." + path
    yield path.replace("a", "a\t", 1)
    yield "/x/y/../.." + path + "/"


@pytest.mark.parametrize("path", list(spellings("/a/b")), ids=repr)
def test_odd_paths_are_never_public_and_guarded_as_what_they_fold_to(path: str) -> None:
    assert odd(path)
    assert folded(path) == "/a/b"
    assert RuleBook({"GET /a/b": PUBLIC}).match("GET", path) is ANY_KEY
    assert RuleBook({"* /{p:path}": PUBLIC}).match("GET", path) is ANY_KEY
    assert RuleBook({"GET /a/b": "a:b"}).match("GET", path) == Rule("a:b")
    assert RuleBook({"GET /a/{x}": "a:b", "* /{p:path}": PUBLIC}).match("GET", path) == Rule("a:b")


@pytest.mark.parametrize("raw", [b"/a%2Fb", b"/a%2fb", b"/a%2Fb?x=1"])
def test_an_encoded_slash_is_never_public(raw: bytes) -> None:
    public = RuleBook({"GET /a/b": PUBLIC, "* /{p:path}": PUBLIC})
    assert public.match("GET", "/a/b", b"/a/b") is PUBLIC
    assert public.match("GET", "/a/b", raw) is ANY_KEY
    assert RuleBook({"GET /a/b": "a:b"}).match("GET", "/a/b", raw) == Rule("a:b")
    assert RuleBook({"GET /a/{x}": "a:b"}).match("GET", "/a/b", raw) == Rule("a:b")


def test_other_encoded_characters_are_what_they_are() -> None:
    book = RuleBook({"GET /a b": PUBLIC})
    assert book.match("GET", "/a b", b"/a%20b") is PUBLIC
    assert RuleBook({"GET /a%2Fb": PUBLIC}).match("GET", "/a%2Fb", b"/a%252Fb") is PUBLIC


@pytest.mark.parametrize(
    "path", ["/admin/x/../../health", "/admin/..//health", "/admin/\n/../../health"]
)
def test_a_path_that_folds_to_a_public_one_is_guarded_as_it_is_written_too(path: str) -> None:
    """Most routers fold nothing: to them it lies below /admin (D31: as the application sees it)."""
    book = RuleBook({"GET /health": PUBLIC, "GET /admin/{p:path}": "admin:read"})
    assert folded(path) == "/health"
    assert book.match("GET", path) == Rule("admin:read")


@pytest.mark.parametrize("path", ["//admin/", "//admin", "/./admin/", "/x/../admin", "admin/"])
@pytest.mark.parametrize("named", ["/admin", "/admin/"])
def test_a_path_that_folds_is_held_to_its_last_slash_as_well(path: str, named: str) -> None:
    book = RuleBook({f"GET {named}": "a:b"})
    assert book.match("GET", path) == Rule("a:b")


@pytest.mark.parametrize("path", ["//admin/../x", "admin/..", "///admin//..//x"])
def test_who_folds_slashes_need_not_fold_dots(path: str) -> None:
    book = RuleBook({"GET /admin/{p:path}": "admin:read", "GET /x": "a:b"})
    needed = book.match("GET", path).requires
    assert needed is not None
    assert not Grants(["a:b"]).cover(needed)


@pytest.mark.parametrize("raw", [b"//admin", b"//%61dmin", b"///admin/", b"//admin?x=1"])
def test_what_came_on_the_wire_is_a_reading_of_its_own(raw: bytes) -> None:
    book = RuleBook({"GET /admin": "a:b", "GET /static/{p:path}": PUBLIC, "GET /x": "x:y"})
    assert book.match("GET", "/static/admin", raw) == Rule("a:b")
    both = book.match("GET", "/x", raw).requires
    assert both is not None
    assert [Grants(g).cover(both) for g in (["a:b"], ["x:y"], ["a:b", "x:y"])] == [0, 0, 1]


@pytest.mark.parametrize(
    ("granted", "enough"),
    [
        (["a:b"], False),
        (["admin:read"], False),
        (["a:*", "jobs:read"], False),
        ([], False),
        (["a:b", "admin:read"], True),
        (["a:*", "admin:*"], True),
        (["*"], True),
    ],
)
def test_a_path_with_two_readings_needs_what_both_need(granted: list[str], enough: bool) -> None:
    book = RuleBook({"GET /a/b": "a:b", "GET /admin/{p:path}": "admin:read"})
    needed = book.match("GET", "/admin/../a/b").requires
    assert needed is not None
    assert Grants(granted).cover(needed) is enough
    assert needed != Requirement("a:b")
    assert needed != Requirement("admin:read")


def test_a_path_with_two_readings_holds_a_slot_if_either_does() -> None:
    book = RuleBook({"GET /a": "a:b", "GET /b/{p:path}": Rule("b:c", slot=True)})
    assert book.match("GET", "/b/../a").slot
    assert not book.match("GET", "/a").slot


def test_a_path_with_two_readings_costs_and_accepts_what_the_stricter_one_does() -> None:
    book = RuleBook(
        {
            "GET /a": Rule(cost=3, accepts=("key", "session")),
            "GET /b/{p:path}": Rule("b:c", own=True),
            "GET /c/{p:path}": Rule(cost=5, accepts=("session",)),
            "GET /d": "b:c",
            "GET /e/{p:path}": Rule(accepts=("key", "session")),
        }
    )
    one = book.match("GET", "/b/../a")
    assert (one.cost, one.accepts, one.own, one.public) == (3, ("key",), True, False)
    assert one.requires is not None
    assert [Grants([scope]).cover(one.requires) for scope in ("b:c", "b:d")] == [True, False]
    assert book.match("GET", "/e/../d").accepts == ("key",)
    other = book.match("GET", "/c/../a")
    assert (other.cost, other.accepts, other.own, other.requires) == (5, ("session",), False, None)


@pytest.mark.parametrize("method", ["get", "Get", "gET"])
def test_a_method_in_another_case_is_never_public_and_guarded_all_the_same(method: str) -> None:
    """Some software takes it for the method in upper case."""
    book = RuleBook({"GET /a": PUBLIC, "GET /b": "a:b", "* /c": PUBLIC, "* /d": "a:d"})
    assert [book.match(method, path) for path in ("/a", "/b", "/c", "/d")] == [
        ANY_KEY,
        Rule("a:b"),
        ANY_KEY,
        Rule("a:d"),
    ]


@given(RULES, ANY_METHODS, st.text(st.sampled_from(["/", ".", "a", "b", "-"]), max_size=10))
def test_no_odd_path_is_public(rules: dict[str, Rule], method: str, path: str) -> None:
    try:
        book = RuleBook(rules)
    except ConfigurationError:
        assume(False)
        raise
    if odd("/" + path):
        assert not book.match(method, "/" + path).public
    assert not book.match(method, "/" + path, b"/%2f").public
