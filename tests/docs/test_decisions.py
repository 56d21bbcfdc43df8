"""Every decision and guarantee that code, tests or pages cite is defined on one page."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from lockgate.testing import GUARANTEES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "design" / "decisions.md"
CITED = re.compile(r"(?<![A-Za-z0-9.-])([DWKRGHLP][1-9]\d?)(?![A-Za-z0-9])")
DEFINED = re.compile(r"^- \*\*([DWKRGHLP]\d+)\b", re.MULTILINE)
TEXTS = {".py", ".md", ".lua", ".pml", ".html"}
ROOMS = [ROOT / "src", ROOT / "tests", ROOT / "docs", ROOT / "examples"]


def texts() -> list[Path]:
    found = [path for room in ROOMS for path in room.rglob("*") if path.suffix in TEXTS]
    return sorted([*found, *ROOT.glob("*.md")])


def test_each_cited_number_is_defined() -> None:
    defined = set(DEFINED.findall(PAGE.read_text()))
    unknown = [
        f"{path.relative_to(ROOT)}: {number}"
        for path in texts()
        for number in CITED.findall(path.read_text())
        if number not in defined
    ]
    assert unknown == [], "define them in docs/design/decisions.md"


def test_each_number_is_defined_once() -> None:
    twice = [one for one, times in Counter(DEFINED.findall(PAGE.read_text())).items() if times > 1]
    assert twice == []


@pytest.mark.parametrize("text", ["(D{})", "test_a_key_is_refused_K{}", "W{};"])
def test_a_number_that_is_not_defined_is_found(text: str) -> None:
    assert not {*CITED.findall(text.format(99))} <= {*DEFINED.findall(PAGE.read_text())}


def test_the_guarantees_of_the_kit_are_defined() -> None:
    assert set(GUARANTEES) <= set(DEFINED.findall(PAGE.read_text()))
