"""Which paths have other readings than the one that is written (D31)."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lockgate.core.access_rule import PUBLIC
from lockgate.core.path_readings import folded, odd, readings
from lockgate.core.rule_book import RuleBook
from lockgate.errors import InvalidRequest


def naive_fold(path: str) -> str:
    kept: list[str] = []
    for segment in re.sub(r"[\x00-\x1f\x7f]", "", path).split("/"):
        if segment == "..":
            kept = kept[:-1]
        elif segment not in ("", "."):
            kept = [*kept, segment]
    return "/" + "/".join(kept)


@pytest.mark.parametrize("path", ["", "a", "a/b", "*", "http://h/a"])
def test_what_is_no_path_is_odd(path: str) -> None:
    assert odd(path)


@pytest.mark.parametrize(
    "path", ["/", "/a", "/a/", "/a/b/", "/.a", "/a./b", "/...", "/a/..b", "/.well-known/x", "/é b"]
)
def test_ordinary_paths_are_not_odd(path: str) -> None:
    assert not odd(path)
    assert RuleBook({"GET /{p:path}": PUBLIC}).match("GET", path).public


@given(st.text(st.sampled_from("/.ab\n\x00\x7f"), max_size=12))
def test_a_path_is_odd_unless_nothing_in_it_could_be_folded(path: str) -> None:
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


@pytest.mark.parametrize(
    "path", ["/a//../b;c=1;d/./%2e%2e/e\\f?g#h", "/%252e%252e/a", "//a;b/../c"]
)
def test_a_path_that_is_odd_in_many_ways_is_still_read(path: str) -> None:
    assert len(readings(path)) <= 64


def test_a_path_of_too_many_readings_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="not valid"):
        readings("/%25252525252525%25253b\\%255c//\\..;a\x01%2f?")
