"""The few patterns that may match a path, found by its segments."""

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate.core.request_paths import PathTree, Pattern

PIECES = ["a", "K", "\u0131", "ß", "a-b", "{x}", "{x}-b", ""]
PATTERNS = [
    Pattern.of_route("/" + "/".join(pieces))
    for pieces in [
        *(p for n in (1, 2, 3) for p in product(PIECES, repeat=n)),
        *((*p, "{p:path}") for n in (0, 1, 2) for p in product(PIECES, repeat=n)),
    ]
]
TREE = PathTree(PATTERNS)


@given(st.text("aKkiI\u0131\u0130\u212aßẞ-b/", max_size=12).map("/{}".format))
def test_every_pattern_that_matches_a_path_is_found(path: str) -> None:
    found = TREE.places(path)
    assert found == sorted(set(found))
    for place, pattern in enumerate(PATTERNS):
        if re.fullmatch(pattern.expression, path, re.DOTALL | re.IGNORECASE):
            assert place in found, pattern.text


@pytest.mark.parametrize(
    "path", ["/api/7/part7/x", "/API/7/Part7/x", "/api/7/part7/x/", "/api/7", "/", "//", "/\ufffd"]
)
def test_patterns_with_other_segments_are_not_matched(path: str) -> None:
    tree = PathTree(Pattern.of(f"/api/{{a}}/part{number}/{{b}}") for number in range(1000))
    assert tree.places(path) == ([7] if path.lower() == "/api/7/part7/x" else [])
