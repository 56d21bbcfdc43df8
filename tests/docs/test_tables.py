"""The tables of the reference pages are those of the code, and other pages name no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.events import events
from docs.tables import PAGES, filled
from lockgate import Event

REWRITE = "run `python -m docs.tables`, and describe what is new"


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_the_tables_of_a_page_are_those_of_the_code(page: Path) -> None:
    assert page.read_text() == filled(page.read_text()), REWRITE


def test_every_event_is_described() -> None:
    page = (PAGES / "events.md").read_text()
    described = {
        name for name, last in re.findall(r"^\| `(\w+)` .*\|(.*)\|$", page, re.M) if last.strip()
    }
    assert described == events().keys(), REWRITE


def test_the_docstring_of_an_event_lists_every_name() -> None:
    text = " ".join((Event.__doc__ or "").split())
    while (shorter := re.sub(r"\([^()]*\)", "", text)) != text:
        text = shorter
    assert set(re.findall(r"``(\w+)``", text)) - {"node"} == events().keys()


def test_the_page_on_errors_lists_a_refusal_that_shares_its_code() -> None:
    listed = (PAGES / "errors.md").read_text()
    assert "| 401 | `SESSION_INVALID` | `StepUpRequired` |" in listed
    assert "| 401 | `SESSION_INVALID` | `SessionTokenInvalid` |" in listed
