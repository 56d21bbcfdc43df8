"""Cursors: a written position is read back; any other text is the caller's error."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate import Gate, MemoryStore, run
from lockgate.core.api_keys import NEVER, Position
from lockgate.core.digests import Peppers
from lockgate.core.sealed_texts import TextSeal
from lockgate.errors import InvalidRequest
from lockgate.services.cursors import read_cursor, write_cursor

PEPPER = b"a pepper of the tests of cursors"
SEAL = Peppers([PEPPER]).cursors
ID = "7e8b1ad6-0f0e-4c5b-9d0e-0c1a1f0f4f1e"


@given(
    st.integers(0, NEVER),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=64),
)
def test_a_cursor_is_read_as_it_was_written(instant: int, id: str) -> None:
    position = Position(instant, id)
    assert read_cursor(write_cursor(position, SEAL, "a list"), SEAL, "a list") == position


def encoded(content: bytes) -> str:
    return SEAL.write(content, "a list")


CURSOR = write_cursor(Position(1, ID), SEAL, "a list")
WRONG = [b"1.", b".x", b"x.y", b"-1.x", b"1.x y", b"1.\xff", b"1.x\n", b"1" * 17 + b".x"]


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "abc", "====", "MTIz", "a" * 121, "\ud800abcd", "ab\0cd"),
        *("\u0661\u0662\u0663\u0664", f"{CURSOR}=", f"{CURSOR}\n"),
        *map(encoded, (*WRONG, b"9007199254740992.x")),
    ],
    ids=ascii,
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_cursor(text, SEAL, "a list")
    assert [problem.field for problem in refused.value.problems] == ["cursor"]


@given(st.text(max_size=130) | st.binary(max_size=90).map(encoded))
def test_no_text_is_a_failure(text: str) -> None:
    try:
        found = read_cursor(text, SEAL, "a list")
    except InvalidRequest:
        return
    assert 0 <= found.instant <= NEVER


@pytest.mark.parametrize("peppers", [[], [PEPPER]])
def test_a_page_ends_where_the_next_begins_in_each_list_D45(peppers: list[bytes]) -> None:
    gate = listing(peppers)
    for list_ in lists(gate):
        first, cursor = run(list_(None))
        assert cursor is not None
        second, _ = run(list_(cursor))
        assert first and not {one.id for one in first} & {one.id for one in second}


def test_a_cursor_of_another_list_or_organization_is_refused_D45() -> None:
    gate = listing([PEPPER])
    cursors = [run(list_(None))[1] for list_ in lists(gate)]
    for place, list_ in enumerate(lists(gate)):
        for other, cursor in enumerate(cursors):
            assert cursor is not None
            if place != other:
                with pytest.raises(InvalidRequest, match="cursor"):
                    run(list_(cursor))


def test_a_cursor_that_a_caller_made_is_refused_D45() -> None:
    gate = listing([PEPPER])
    made = write_cursor(Position(NEVER, ID), TextSeal(()), "keys org_1")
    with pytest.raises(InvalidRequest, match="cursor"):
        run(gate.keys.list("org_1", cursor=made))


class Numbered(NamedTuple):
    """A record of the change log."""

    id: int


def listing(peppers: list[bytes]) -> Gate:
    """A gate with two organizations that have two keys each."""
    gate = Gate(MemoryStore(), brand="acme", peppers=peppers)
    for organization in ("org_1", "org_2"):
        for number in "12":
            run(gate.keys.create(organization, "ci", handle=f"{organization[-1]}AAAAAA{number}"))
    return gate


def lists(gate: Gate) -> list[Callable[[str | None], Coroutine[Any, Any, tuple[list[Any], Any]]]]:
    """Each list with a cursor, about one entry a page."""

    async def organizations(cursor: str | None) -> tuple[list[Any], str | None]:
        found = await gate.organizations.list(limit=1, cursor=cursor)
        return found.organizations, found.cursor

    async def search(cursor: str | None) -> tuple[list[Any], str | None]:
        found = await gate.keys.find("acme_live_1", limit=1, cursor=cursor)
        return found.keys, found.cursor

    async def keys(organization: str, cursor: str | None) -> tuple[list[Any], str | None]:
        found = await gate.keys.list(organization, limit=1, cursor=cursor)
        return found.keys, found.cursor

    async def changes(organization: str, cursor: str | None) -> tuple[list[Any], str | None]:
        found = await gate.changes.list(organization, limit=1, cursor=cursor)
        return [Numbered(one.number) for one in found.changes], found.cursor

    of = [partial(list_, id) for list_ in (keys, changes) for id in ("org_1", "org_2")]
    return [organizations, search, *of]
