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
    ("text", "own", "said"),
    [
        *((text, 30, r"use a number, \+number or none") for text in ("", "many", "-1", "1.5", "+")),
        *(
            (text, 30, r"use a number, \+number or none")
            for text in ("++5", "5+", "None", "1" * 41)
        ),
        ("\N{ARABIC-INDIC DIGIT FIVE}", 30, r"use a number, \+number or none"),
        ("+500", None, "there is no limit to add to"),
        ("+0", 30, "add a number of 1 or more"),
        (str(LARGEST + 1), 1, f"use a number up to {LARGEST}"),
        (f"+{LARGEST}", 1, f"use a number up to {LARGEST}"),
        ("9" * 40, 1, f"use a number up to {LARGEST}"),
    ],
)
def test_any_other_text_is_refused(text: str, own: int | None, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_limit(text, own)
