"""Which rule holds for a request, against a matcher that tries every rule (D31)."""

from collections.abc import Iterator
from functools import cache, reduce
from itertools import product
from time import process_time
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from lockgate.core.access_rule import ANY_KEY, PUBLIC, Rule, both
from lockgate.core.request_paths import Pattern, folded, odd
from lockgate.core.rule_book import RuleBook
from lockgate.core.scopes import Catalogue, Grants, Requirement
from lockgate.errors import ConfigurationError, InvalidRequest


@pytest.mark.parametrize(
    "rules",
    [
        *({key: PUBLIC} for key in ("", "GET", "/a", "get /a", "GET/a", "GET  /a", "GET\t/a")),
        *({key: PUBLIC} for key in ("G T /a", "** /a", " GET /a", "GET a b/x", "GET http://h/x")),
        *({key: PUBLIC} for key in ("GET h:80/x", "GET .h/x", "GET h")),
        *({"GET /a": value} for value in (None, ["jobs:read"], 7, Rule(accepts=()))),
    ],
    ids=str,
)
def test_a_rule_that_cannot_be_read_is_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"/a|cannot be read"):
        RuleBook(rules)


def test_an_odd_path_takes_no_longer_with_more_rules() -> None:
    """It has up to 64 readings, and each is matched before authentication."""

    def seconds(rules: int) -> float:
        named = [f"GET /{{tenant}}/part{n}/{form}" for n in range(rules) for form in ("{id}", "x")]
        book = RuleBook(dict.fromkeys(named, "a:b"))
        times: list[float] = []
        for _ in range(7):
            started = process_time()
            book.match("GET", "/t/part0/%2561;x//..\\a?b#c")
            times.append(process_time() - started)
        return min(times)

    assert seconds(250) < 4 * seconds(5)


def test_the_rules_that_admit_to_a_route_outlive_their_ids() -> None:
    """Of rules that are made for one look only, the next may get the id."""
    rules = {
        "* h.test/{a}/x/{c}": Rule("a:b", cost=2),
        "GET h.test/{a}/{b}/y": Rule("a:c", cost=3),
    }
    others = RuleBook(rules).for_route("GET", "/{a}/x/y").others
    assert [rule.cost for rule in others.values()] == [3]
    assert all(id(rule) == known for known, rule in others.items())


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


@cache
def reach(pattern: str) -> frozenset[str]:
    """The paths of PATHS, and these with a last slash, that a pattern matches."""
    candidates = [*PATHS, *(f"{path}/" for path in PATHS)]
    return frozenset(path for path in candidates if naive_matches(pattern, path))


@cache
def slashed(paths: frozenset[str]) -> frozenset[str]:
    """A set of paths, and these with a last slash more or less: /a/{p:path} has /a in it."""
    return paths | {path[:-1] if path.endswith("/") else f"{path}/" for path in paths}


def naive_entries(rules: dict[str, Rule], path: str) -> list[frozenset[str]]:
    """The most specific sets of paths that hold a path."""
    found = {reach(key.split(" ")[1]) for key in rules}
    found = {paths for paths in found if path in paths}
    return [paths for paths in found if not any(other < paths for other in found)]


def naive_rule(rules: dict[str, Rule], method: str, paths: frozenset[str]) -> Rule | None:
    """The rule of a method for a set of paths; None: it is not taken there."""
    named = {
        key.split(" ")[0]: rule for key, rule in rules.items() if reach(key.split(" ")[1]) == paths
    }
    for name in {"HEAD": ["HEAD", "GET", "*"]}.get(method, [method, "*"]):
        if name in named:
            return named[name]
    return None


def naive_match(rules: dict[str, Rule], method: str, path: str) -> list[Rule | None]:
    """Everything that a request must meet; None where its method is not taken."""
    twin = path[:-1] if path.endswith("/") else f"{path}/"
    own = naive_entries(rules, path)
    further = [
        paths
        for paths in naive_entries(rules, twin)
        if paths not in own and not any(slashed(paths) > slashed(mine) for mine in own)
    ]
    unnamed = [] if own else [ANY_KEY]
    return unnamed + [naive_rule(rules, method, paths) for paths in [*own, *further]]


RULES = st.dictionaries(
    st.builds("{} {}".format, st.sampled_from(["GET", "POST", "HEAD", "*"]), patterns()),
    st.sampled_from([PUBLIC, Rule("a:b"), Rule("a:c"), Rule(cost=2), Rule()]),
    min_size=1,
    max_size=6,
)
METHODS = st.sampled_from(["GET", "POST", "HEAD", "PUT"])


@given(RULES, METHODS, st.lists(st.sampled_from(PATHS), min_size=5, max_size=5), st.booleans())
@example({"GET /{x}-b": PUBLIC, "* /{z}-b": Rule("a:b")}, "GET", ["/a-b"], False)
@example({"GET /{x}": PUBLIC, "HEAD /{y}": Rule("a:b"), "* /{z}": PUBLIC}, "HEAD", ["/a"], True)
@example({"GET /a/{p:path}": Rule("a:b")}, "GET", ["/a"], False)
@example({"GET /a/{p:path}": PUBLIC}, "GET", ["/a"], False)
@example({"GET /a": Rule("a:b"), "GET /{p:path}": PUBLIC}, "GET", ["/a"], True)
@example({"GET /a": PUBLIC, "GET /a/{p:path}": Rule("a:b")}, "GET", ["/a"], False)
@example({"GET /a": PUBLIC, "GET /a/{p:path}": Rule("a:b")}, "GET", ["/a"], True)
@example({"POST /a": Rule("a:b"), "GET /{p:path}": PUBLIC}, "GET", ["/a"], True)
@example({"GET /a-{y}": PUBLIC, "POST /{x}-b": Rule("a:b")}, "GET", ["/a-b"], False)
@example({"GET /{x}/{y}": PUBLIC, "GET /{x}/a/{p:path}": Rule("a:b")}, "GET", ["/a/a"], False)
def test_the_most_specific_path_decides_with_the_methods_that_it_names(
    rules: dict[str, Rule], method: str, paths: list[str], slash: bool
) -> None:
    try:
        book = RuleBook(rules)
    except ConfigurationError:
        assume(False)
        raise
    assert {f"{named} {path}": rule for named, path, rule in book} == rules
    for path in (f"{path}/" if slash else path for path in paths):
        found, needed = book.match(method, path), naive_match(rules, method, path)
        if None in needed:
            assert found.allow is not None, path
            continue
        assert found.allow is None, path
        assert found.public == all(rule is not None and rule.public for rule in needed), path
        assert all(rule is not None and found.includes(rule) for rule in needed), path
        guarded = [rule for rule in needed if rule is not None and not rule.public]
        if guarded:
            assert found == reduce(both, guarded) or len(guarded) > 2, path


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


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "OPTIONS", "FOO", "post", ""])
def test_d31_a_general_rule_opens_no_method_of_a_path_that_is_named(method: str) -> None:
    """A handler that takes every method would run under a rule that is not its own."""
    book = RuleBook({"POST /jobs": Rule("jobs:write", cost=5), "GET /{p:path}": PUBLIC})
    assert book.match(method, "/jobs").allow == ("POST",)
    assert book.match(method, "/jobs/").allow == ("POST",)


def test_a_path_that_no_rule_names_needs_a_key() -> None:
    assert RuleBook({}).match("GET", "/a") is ANY_KEY
    assert RuleBook({}).match("", "") is ANY_KEY
    book = RuleBook({"GET /health": PUBLIC})
    assert book.match("GET", "/health/") is ANY_KEY
    for method in ("POST", "", "get"):
        refused = book.match(method, "/health")
        assert (refused.public, refused.takes_key, refused.allow) == (False, True, ("GET", "HEAD"))


def test_a_scope_outside_the_catalogue_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'jobs:reed'"):
        RuleBook({"GET /a": "jobs:reed"}, Catalogue.of())
    RuleBook({"GET /a": "jobs:read", "GET /b": PUBLIC}, Catalogue.of())
    RuleBook({"GET /a": "jobs:reed"})


def test_the_rules_that_may_admit_to_a_route() -> None:
    book = RuleBook(
        {"GET /a/{id}": "a:b", "GET /a/me": "a:c", "* /f/{p:path}": PUBLIC, "GET /": "a:d"}
    )
    route = book.for_route("GET", "/a/{id:int}")
    assert route.own == Rule("a:b")
    assert route.admit(book.match("GET", "/a/1"))
    assert route.admit(book.match("GET", "/a/me"))  # A rule for one path of the route.
    assert route.admit(Rule("a:b", cost=9))
    for path in ("/f/x", "/", "/unnamed"):
        assert not route.admit(book.match("GET", path)), path
    assert not route.admit(book.match("PUT", "/a/1"))
    assert book.for_route("PUT", "/a/{id}").own.allow == ("GET", "HEAD")
    assert not book.for_route("PUT", "/a/{id}").admit(Rule("a:b"))
    assert book.for_route("PUT", "/f/{p:path}").own.public
    assert book.for_route("GET", "/elsewhere").own is ANY_KEY


def test_d31_a_rule_for_a_route_does_not_admit_to_a_route_that_takes_its_requests() -> None:
    """A router that matches in order sends /items/newest to /items/{id} if that comes first."""
    book = RuleBook({"GET /items/{id}": "a:b", "GET /items/newest": PUBLIC})
    newest = book.match("GET", "/items/newest")
    paths = "/items/{key:int}", "/items/newest/"
    routes = [("GET", Pattern.of_route(path).stem, None) for path in paths]
    assert book.for_route("GET", "/items/{key}").admit(newest)
    assert not book.for_route("GET", "/items/{key}", None, routes).admit(newest)
    assert book.for_route("GET", "/items/newest/", None, routes).admit(newest)


def test_d31_a_route_has_the_rule_that_names_its_pattern() -> None:
    """Another one may match an example of the route's paths, which a converter refuses there."""
    book = RuleBook({"GET /{year}/{month}": PUBLIC, "GET /{page:path}": "account:write"})
    pages = book.for_route("GET", "/{page:path}")
    assert pages.own == Rule("account:write")
    assert pages.admit(book.match("GET", "/a/b/c"))
    routes = [("GET", Pattern.of_route(p).stem, None) for p in ("/{y:int}/{m:int}", "/{page:path}")]
    assert not book.for_route("GET", "/{page:path}", None, routes).admit(book.match("GET", "/a/b"))


def test_d31_a_rule_for_every_method_is_for_the_route_of_its_path_alone() -> None:
    book = RuleBook({"* /hooks/{id}": PUBLIC, "GET /hooks/{name:path}": "account:write"})
    served = [("POST", "/hooks/{id:int}"), ("GET", "/hooks/{name:path}")]
    routes = [(method, Pattern.of_route(path).stem, None) for method, path in served]
    files = book.for_route("GET", "/hooks/{name:path}", None, routes)
    assert not files.admit(book.match("GET", "/hooks/secret"))
    assert files.admit(book.match("GET", "/hooks/a/b"))


@pytest.mark.parametrize("host", ["status.example", "{any}.example", "{any:int}.example"])
def test_d31_a_rule_of_a_host_opens_no_other_route_where_the_host_has_its_own(host: str) -> None:
    """A framework that reads the host in another way goes on to the route without one."""
    book = RuleBook({f"GET {host.replace(':int', '')}/": PUBLIC, "GET /": "account:read"})
    public = book.match("GET", "/", hosts=[b"status.example"])
    assert public.public
    anywhere, there = (("GET", Pattern.of_route("/").stem, at) for at in (None, host))
    assert book.for_route("GET", "/", None, [anywhere]).admit(public)
    assert not book.for_route("GET", "/", None, [anywhere, there]).admit(public)
    assert book.for_route("GET", "/", host, [anywhere, there]).admit(public)


@pytest.mark.parametrize("host", [b"status.example ", b" status.example", b"status.example\t"])
def test_d31_a_host_with_white_space_needs_the_rules_of_all_hosts(host: bytes) -> None:
    book = RuleBook({"GET status.example/": PUBLIC, "GET /": "account:read"})
    assert book.match("GET", "/", hosts=[host]) == Rule("account:read")


@pytest.mark.parametrize("method", ["delete", "Delete", "dELETE"])
def test_d31_another_letter_case_of_a_method_has_the_same_rule(method: str) -> None:
    book = RuleBook(
        {
            **{"* /a": PUBLIC, "DELETE /a": "a:write"},
            **{"* /b": "b:read", "DELETE /b": Rule("b:write", cost=3)},
            **{"GET /c": PUBLIC, "DELETE /c": "c:write", "* /d": PUBLIC},
        }
    )
    assert book.match(method, "/a").requires == Requirement("a:write")
    both = book.match(method, "/b")
    assert both.includes(Rule("b:write", cost=3)) and both.includes(Rule("b:read"))
    assert book.match(method, "/c").allow == ("DELETE", "GET", "HEAD")
    assert book.match(method, "/d").public


@pytest.mark.parametrize(
    "path", ["/adm\u0131n", "/adm\u0130n", "/ADM\u0130N", "/admin\ufffd", "/\ufffdadmin"]
)
def test_d31_letters_and_bytes_that_routers_fold_reach_no_closed_path(path: str) -> None:
    book = RuleBook({"GET /admin": "account:write", "GET /{p:path}": PUBLIC})
    assert book.match("GET", path).requires == Requirement("account:write")


def test_a_path_that_is_too_long_matches_no_rule() -> None:
    book = RuleBook({f"GET /{{a}}-{{b}}.{{c}}/{n}": PUBLIC for n in range(100)})
    assert book.match("GET", "/" + "a" * 4095) is ANY_KEY
    for path in ("/" + "a" * 4096, "/" + "a-" * 30_000):
        assert book.match("GET", path).allow == ()


@pytest.mark.parametrize("named", ["/api/admin", "/api/admin/"])
@pytest.mark.parametrize("route", ["/api/admin", "/api/admin/"])
def test_d31_a_public_rule_for_all_other_paths_does_not_admit_to_a_guarded_route(
    named: str, route: str
) -> None:
    book = RuleBook({f"GET {named}": "jobs:write", "GET /{p:path}": PUBLIC})
    assert not book.for_route("GET", route).admit(book.match("GET", "/x"))
    for path in ("/api/admin", "/api/admin/", "/api/admin/\n", "/API/admin", "/api/admin;x"):
        assert book.for_route("GET", route).admit(book.match("GET", path)), path
        assert book.match("GET", path).requires == Requirement("jobs:write")


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
def test_odd_paths_are_public_only_by_every_reading_and_guarded_as_their_folded_path(
    path: str,
) -> None:
    assert odd(path)
    assert folded(path) == "/a/b"
    assert RuleBook({"GET /a/b": PUBLIC}).match("GET", path) is ANY_KEY
    assert RuleBook({"* /{p:path}": PUBLIC}).match("GET", path).public  # By every reading.
    assert RuleBook({"GET /a/b": "a:b"}).match("GET", path) == Rule("a:b")
    assert RuleBook({"GET /a/{x}": "a:b", "* /{p:path}": PUBLIC}).match("GET", path) == Rule("a:b")


@pytest.mark.parametrize("raw", [b"/a%2Fb", b"/a%2fb", b"/a%2Fb?x=1"])
def test_an_encoded_slash_is_public_only_by_every_reading(raw: bytes) -> None:
    public = RuleBook({"GET /a/b": PUBLIC})
    assert public.match("GET", "/a/b", b"/a/b").public
    assert public.match("GET", "/a/b", raw) is ANY_KEY
    assert RuleBook({"* /{p:path}": PUBLIC}).match("GET", "/a/b", raw).public
    for named in ("/a/b", "/a/{x}"):
        assert RuleBook({f"GET {named}": "a:b"}).match("GET", "/a/b", raw) == Rule("a:b")
    spaced = RuleBook({"GET /a b": PUBLIC})  # Other characters are decoded once.
    assert spaced.match("GET", "/a b", b"/a%20b").public
    assert not spaced.match("GET", "/a%20b", b"/a%2520b").public


SEVERAL = RuleBook(
    {
        **{"GET /health": PUBLIC, "GET /static/{p:path}": PUBLIC, "GET /x": "x:y"},
        **{"GET /a/b": "a:b", "GET /admin/{p:path}": "admin:read"},
        **{"GET /root": "r:w", "GET /base/": "b:w"},
    }
)


@pytest.mark.parametrize(
    ("path", "raw", "scopes"),
    [
        # Most routers do not fold paths: for them these lie below /admin.
        ("/admin/x/../../health", b"", ["admin:read"]),
        ("/admin/..//health", b"", ["admin:read"]),
        ("/admin/\n/../../health", b"", ["admin:read"]),
        ("/admin/../a/b", b"", ["a:b", "admin:read"]),
        # Some merge slashes without resolving dots.
        ("//admin/../x", b"", ["admin:read", "x:y"]),
        ("///admin//..//x", b"", ["admin:read", "x:y"]),
        ("/admin/..", b"", ["admin:read"]),
        # A folded path is held to its last slash as well.
        *((f"/{path}/", b"", ["r:w"]) for path in ("/root", "./root", "x/../root", "root;")),
        *((f"/{path}", b"", ["r:w"]) for path in ("/root", "root\\")),
        *((f"/{path}/", b"", ["b:w"]) for path in ("/base", "./base", "x/../base", "base;")),
        *((f"/{path}", b"", ["b:w"]) for path in ("/base", "base\\")),
        # The raw target is a reading of its own.
        *(("/static/root", raw, ["r:w"]) for raw in (b"//root", b"//r%6fot", b"///root/")),
        *(("/x", raw, ["r:w", "x:y"]) for raw in (b"//root", b"//root?x=1")),
    ],
)
def test_d31_a_path_with_several_readings_needs_the_scopes_of_each(
    path: str, raw: bytes, scopes: list[str]
) -> None:
    needed = SEVERAL.match("GET", path, raw).requires
    assert needed is not None
    assert Grants(scopes).cover(needed) and Grants(["*"]).cover(needed)
    for one in scopes:
        assert not Grants([scope for scope in scopes if scope != one]).cover(needed)


def test_a_method_that_one_reading_refuses_matches_no_rule() -> None:
    book = RuleBook({"GET /a": "a:b", "GET /a/{id}": "a:b", "DELETE /a/{id}": "a:c"})
    assert book.match("GET", "/a/\0") == Rule("a:b")
    assert book.match("DELETE", "/a/\0").allow == ()
    assert book.match("PUT", "/a/\0").allow == ("GET", "HEAD")


def test_a_path_with_two_readings_has_the_stricter_cost_slot_and_credentials() -> None:
    book = RuleBook(
        {
            "GET /a": Rule(cost=3, accepts=("key", "session")),
            "GET /b/{p:path}": Rule("b:c", own=True, slot=True),
            "GET /c/{p:path}": Rule(cost=5, accepts=("session",)),
            "GET /d": "b:c",
            "GET /e/{p:path}": Rule(accepts=("key", "session")),
        }
    )
    one = book.match("GET", "/b/../a")
    assert one.slot and not book.match("GET", "/a").slot
    assert (one.cost, one.accepts, one.own, one.public) == (3, ("key",), True, False)
    assert one.requires is not None
    assert [Grants([scope]).cover(one.requires) for scope in ("b:c", "b:d")] == [True, False]
    assert book.match("GET", "/e/../d").accepts == ("key",)
    other = book.match("GET", "/c/../a")
    assert (other.cost, other.accepts, other.own, other.requires) == (5, ("session",), False, None)


@pytest.mark.parametrize("path", ["http://h/a", "x:/a", "*", "a", "h:80", "\\a"])
@pytest.mark.parametrize("raw", [b"", b"/a"])
def test_d31_a_target_that_is_no_path_is_refused(path: str, raw: bytes) -> None:
    with pytest.raises(InvalidRequest):
        RuleBook({"* /{p:path}": PUBLIC}).match("GET", path, raw)
    with pytest.raises(InvalidRequest):
        RuleBook({"GET /a": PUBLIC}).match("GET", "/a", path.encode())


def test_a_path_with_too_many_readings_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="not valid"):
        RuleBook({}).match("GET", "/a//../b;c=1;d/./%252e%252e/e\\f?g#h;%252525/./%252f//;x")


@given(RULES, METHODS, st.text(st.sampled_from(["/", ".", "a", "b", "-"]), max_size=10))
def test_no_odd_path_is_more_public_than_its_folded_path(
    rules: dict[str, Rule], method: str, path: str
) -> None:
    try:
        book = RuleBook(rules)
    except ConfigurationError:
        assume(False)
        raise
    if odd(f"/{path}") and book.match(method, f"/{path}").public:
        assert book.match(method, folded(f"/{path}")).public


# Letter case


def test_d31_another_letter_case_needs_the_scopes_of_both_spellings() -> None:
    book = RuleBook({"GET /Admin": "a:b", "GET /open": PUBLIC, "GET /{p:path}": PUBLIC})
    assert book.match("GET", "/admin").requires == Requirement("a:b")
    assert book.match("GET", "/ADMIN/").requires == Requirement("a:b")
    assert book.match("GET", "/OPEN").public
    assert RuleBook({"GET /open": PUBLIC}).match("GET", "/OPEN") is ANY_KEY
    one = RuleBook({"GET /{x}/secret": "a:b", "GET /{x}/{y}": "a:c"}).match("GET", "/1/SECRET")
    assert one.includes(Rule("a:b")) and one.includes(Rule("a:c"))


# Hosts

HOSTED: dict[str, Rule | str] = {
    "GET /": PUBLIC,
    "GET admin.example/": "admin:read",
    "* {tenant}.example/{p:path}": "tenant:read",
}


@pytest.mark.parametrize(
    ("host", "needed"),
    [
        (b"www.elsewhere", "public"),
        (b"admin.example", "admin:read"),
        (b"ADMIN.example:8080", "admin:read"),
        (b"one.example", "tenant:read"),
        (b"a.one.example", "public"),
        (b"[::1]:80", "public"),
    ],
)
def test_a_rule_for_a_host_comes_before_one_for_all_hosts(host: bytes, needed: str) -> None:
    rule = RuleBook(HOSTED).match("GET", "/", b"/", [host])
    assert "public" if rule.public else rule.requires and rule.requires.scope == needed


@pytest.mark.parametrize(
    "hosts",
    [
        [],
        [b"one.example", b"elsewhere"],
        [b"x", b"x"],
        *([b"www.elsewhere" + tail] for tail in (b".", b"@x", b"/x", b" x", b":x", b":1:2", b"\n")),
        [b""],
        [b" www.elsewhere"],
    ],
)
def test_a_request_without_one_plain_host_needs_the_scopes_of_every_host(
    hosts: list[bytes],
) -> None:
    """Routers compare host names in ways of their own: a dot behind one opened another route."""
    rule = RuleBook(HOSTED).match("GET", "/", b"/", hosts)
    assert rule.includes(Rule("admin:read")) and rule.includes(Rule("tenant:read"))


@pytest.mark.parametrize("path", ["/users/", "//users", "/USERS", "/./users", "/users;x"])
@pytest.mark.parametrize(
    "rule", [Rule(), Rule("admin:read"), Rule(cost=2), Rule(accepts=("key", "session"))]
)
def test_another_spelling_of_a_path_that_a_host_names_needs_its_rule(path: str, rule: Rule) -> None:
    """A rule that asks for any key was taken for none, and the public one of all hosts held."""
    book = RuleBook({"GET admin.example/users": rule, "GET /{p:path}": PUBLIC})
    found = book.match("GET", path, path.encode(), [b"admin.example"])
    assert not found.public
    assert found.cost == rule.cost and found.requires == rule.requires
    assert book.match("GET", path, path.encode(), [b"elsewhere"]).public


def test_another_spelling_of_a_path_that_a_host_names_needs_the_rule_of_all_hosts_too() -> None:
    book = RuleBook({"GET admin.example/users": Rule("a:b"), "GET /users/": Rule("a:c")})
    found = book.match("GET", "/users/", b"/users/", [b"admin.example"])
    assert found.includes(Rule("a:b")) and found.includes(Rule("a:c"))
    assert book.match("GET", "/other", b"/other", [b"admin.example"]) is ANY_KEY


def test_a_route_that_is_bound_to_a_host_is_opened_by_rules_for_this_host_only() -> None:
    public = RuleBook({"GET /": PUBLIC})
    assert not public.for_route("GET", "/", "admin.example").admit(public.match("GET", "/"))
    book = RuleBook(HOSTED)
    route = book.for_route("GET", "/", "admin.example")
    assert route.admit(book.match("GET", "/", b"/", [b"admin.example"]))
    assert not route.admit(book.match("GET", "/", b"/", [b"elsewhere"]))
    tenant = book.for_route("GET", "/x", "{name}.example")
    assert tenant.admit(book.match("GET", "/x", b"/x", [b"one.example"]))


def test_a_gate_for_one_host_binds_its_rules_to_it() -> None:
    book = RuleBook({"GET /health": PUBLIC}, host="api.example")
    assert book.match("GET", "/health", b"", [b"api.example"]).public
    assert book.match("GET", "/health", b"", [b"other.example"]) is ANY_KEY
