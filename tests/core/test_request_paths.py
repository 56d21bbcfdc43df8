"""Paths with parameters, matched as routers do, and paths with several readings (D31)."""

import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from lockgate.core.access_rule import ANY_KEY, PUBLIC, Rule
from lockgate.core.request_paths import Pattern, folded, odd, readings
from lockgate.core.rule_book import RuleBook
from lockgate.errors import ConfigurationError, InvalidRequest


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", " /a", "//", "/a//b", "/a//", "/./a", "/a/..", "/a?b=1", "/a#b", "/a%20b"),
        *("/{", "/}", "/{}", "/{1a}", "/{a b}", "/{a:}", "/{{a}}", "/v1/<int:id>", "/v1/:id"),
        *("/a\n", "/a\x00", "/\x7f", "/v1/*", "/a;b", "/a\\b"),
        *("/{p:path}/a", "/a{p:path}", "/{p:path}a", "/{p:path}{q:path}", "/{p:path}/{q:path}"),
        "/{p:path}/",
    ],
)
def test_a_pattern_that_no_request_could_match_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        Pattern.of(text)
    with pytest.raises(ConfigurationError):
        RuleBook({f"GET {text}": PUBLIC})


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("/", ["/"], ["/a", "/{x}"]),
        ("/a", ["/a"], ["/a/", "/A", "/aa", "/b/a", "/a/b"]),
        ("/a/", ["/a/"], ["/a", "/a/b"]),
        ("/a.b", ["/a.b"], ["/aXb"]),
        ("/a/{x}", ["/a/1", "/a/é", "/a/a b", "/a/{x}"], ["/a/", "/a", "/a/1/2", "/a/1/"]),
        ("/a/{x:int}", ["/a/1", "/a/b"], ["/a/", "/a/1/2"]),
        ("/a/{x}/b", ["/a/1/b"], ["/a//b", "/a/1", "/a/1/2/b"]),
        ("/{x}.json", ["/a.json", "/a.b.json"], ["/.json", "/a.jsonx", "/aXjson", "/a/b.json"]),
        ("/{x}-{y}", ["/a-b", "/a-b-c", "/---"], ["/-", "/a-", "/-b", "/ab"]),
        ("/f/{p:path}", ["/f/", "/f/a", "/f/a/b", "/f/a/"], ["/f", "/fa", "/e/f/a"]),
        ("/{p:path}", ["/", "/a", "/a/b/"], []),
    ],
)
def test_a_pattern_matches_as_a_router_does(pattern: str, good: list[str], bad: list[str]) -> None:
    rule = Rule("a:b")
    book = RuleBook({f"GET {pattern}": rule})
    for path in good:
        assert book.match("GET", path) == rule, path
    matched = re.compile(Pattern.of(pattern).expression, re.DOTALL)
    for path in bad:
        assert not matched.fullmatch(path), path


@given(
    st.lists(st.sampled_from(["{x}", "a", ".", "ab", "a.a"]), min_size=1, max_size=6).map("".join),
    st.text(st.sampled_from("ab."), min_size=1, max_size=9),
)
@example("{x}.{x}", "...")
@example("{x}{x}{x}", "ab")
@example("{x}a.a{x}a", "ba.a.aa")
def test_a_segment_matches_if_any_values_of_its_parameters_do(shape: str, segment: str) -> None:
    """Whatever comes first is taken, and that is enough to find a way if there is one."""
    assume(shape not in {".", ".."} and segment not in {".", ".."})
    plain = "[^/]+".join(map(re.escape, shape.split("{x}")))
    found = re.fullmatch(plain, segment) is not None
    book = RuleBook({f"GET /{shape}/end": PUBLIC})
    assert book.match("GET", f"/{segment}/end").public == found


@pytest.mark.parametrize("shape", ["{a}.{b}", "{a}.{b}.{c}", "{a}{b}{c}{d}"])
def test_no_path_takes_long_to_match(shape: str) -> None:
    """Where every place of a parameter's end is tried, this takes from a minute to for ever."""
    book = RuleBook({f"GET /files/{shape}": PUBLIC})
    for filler in (".", "a", "a."):
        assert book.match("GET", f"/files/{filler * (4000 // len(filler))}/x") is ANY_KEY


def naive_fold(path: str) -> str:
    kept: list[str] = []
    for segment in re.sub(r"[\x00-\x1f\x7f]", "", path).split("/"):
        if segment == "..":
            kept = kept[:-1]
        elif segment not in ("", "."):
            kept = [*kept, segment]
    return "/" + "/".join(kept)


@pytest.mark.parametrize("path", ["", "a", "a/b", "*", "http://h/a"])
def test_a_target_that_is_no_path_is_odd(path: str) -> None:
    assert odd(path)


@pytest.mark.parametrize(
    "path", ["/", "/a", "/a/", "/a/b/", "/.a", "/a./b", "/...", "/a/..b", "/.well-known/x", "/é b"]
)
def test_ordinary_paths_are_not_odd(path: str) -> None:
    assert not odd(path)
    assert RuleBook({"GET /{p:path}": PUBLIC}).match("GET", path).public


@given(st.text(st.sampled_from("/.ab\n\x00\x7f"), max_size=12))
def test_a_path_with_a_part_that_could_be_folded_is_odd(path: str) -> None:
    tidy = folded(path)
    assert tidy == naive_fold(path)
    assert not odd(tidy)
    assert folded(tidy) == tidy
    assert odd(path) == (path not in {tidy, tidy.rstrip("/") + "/"})


@given(st.text(st.sampled_from("/.;\\%25aF\n?"), max_size=80))
@example("/;/a;/\\..;%2525;b\\/..;//%5c..?;a" * 2)
def test_no_path_has_more_than_64_readings(path: str) -> None:
    """Each one is matched with all rules, before any key is looked at: 80 characters had 3,190."""
    try:
        found = readings(f"/{path}")
    except InvalidRequest:
        return
    assert found[0] == f"/{path}"
    assert len(found) == len(set(found)) <= 64


@pytest.mark.parametrize("path", ["/admin?x", "/admin#x", "/admin%3fx", "/admin%23x"])
def test_a_query_that_was_encoded_may_end_a_path_D31(path: str) -> None:
    assert "/admin" in readings(path)
