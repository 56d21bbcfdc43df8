"""Limits that operators enter: a number, a number to add, or none."""

import pytest

from lockgate.core.limit_changes import read_limit
from lockgate.core.sliding_window import LARGEST


def test_a_limit_is_a_number_a_number_to_add_or_none() -> None:
    assert read_limit("500", 30) == 500
    assert read_limit("500", None) == 500
    assert read_limit("+500", 30) == 530
    assert read_limit("none", 30) is None
    assert read_limit(str(LARGEST), 30) == LARGEST


@pytest.mark.parametrize(
    "text",
    ["", "many", "-1", "1.5", "+", "++5", "5+", "\N{ARABIC-INDIC DIGIT FIVE}", "None", "1" * 41],
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"use a number, \+number or none"):
        read_limit(text, 30)


def test_nothing_is_added_to_no_limit() -> None:
    with pytest.raises(ValueError, match="there is no limit to add to"):
        read_limit("+500", None)


@pytest.mark.parametrize("text", [str(LARGEST + 1), f"+{LARGEST}", "9" * 40])
def test_a_limit_beyond_the_largest_number_of_stores_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"use a number up to {LARGEST}"):
        read_limit(text, 1)


def test_a_number_to_add_is_more_than_none() -> None:
    with pytest.raises(ValueError, match="add a number of 1 or more"):
        read_limit("+0", 30)
