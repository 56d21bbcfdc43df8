"""Which paths have other readings than the one that is written (D31)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate.rules.access_rule import PUBLIC
from lockgate.rules.paths import folded, odd
from lockgate.rules.routes import RuleBook


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
