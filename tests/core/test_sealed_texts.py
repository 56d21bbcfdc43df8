"""Sealed texts: only what was written is read, and only where it was written for."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate.core.digests import Peppers
from lockgate.core.sealed_texts import TextSeal

OLD, NEW = b"the first pepper of these tests 1", b"the second pepper of these tests"
PLACES = st.text(max_size=9)


def seals(*peppers: bytes, next_pepper: bytes | None = None) -> tuple[TextSeal, TextSeal]:
    found = Peppers(peppers, next_pepper=next_pepper)
    return found.hold_ids, found.cursors


@pytest.mark.parametrize("peppers", [(), (OLD,)])
@given(content=st.binary(min_size=1, max_size=99), place=PLACES)
def test_a_text_is_read_as_it_was_written(
    peppers: tuple[bytes, ...], content: bytes, place: str
) -> None:
    for seal in seals(*peppers):
        assert seal.read(seal.write(content, place), place) == content


@given(st.binary(max_size=40), st.binary(max_size=40), PLACES, PLACES)
def test_a_seal_holds_for_one_content_and_one_place(
    content: bytes, other: bytes, place: str, elsewhere: str
) -> None:
    for seal in seals(OLD):
        size = len(seal.write(b"")) * 3 // 4
        forged = bytearray(size + len(other))
        text = seal.write(content, place)
        assert (place == elsewhere) is _reads(seal, text, elsewhere)
        assert not _reads(seal, urlsafe_b64encode(forged).decode().rstrip("="), place)
        assert not _reads(seal, urlsafe_b64encode(other).decode().rstrip("="), place)


@given(st.binary(min_size=1, max_size=40), st.data())
def test_a_text_with_one_bit_changed_is_refused(content: bytes, data: st.DataObject) -> None:
    for seal in seals(OLD):
        raw = bytearray(_decoded(seal.write(content)))
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        assert not _reads(seal, urlsafe_b64encode(raw).decode().rstrip("="))


def test_texts_outlive_each_step_of_a_rotation_of_the_pepper_K9() -> None:
    deploys = [
        seals(OLD),
        seals(OLD, next_pepper=NEW),
        seals(NEW, OLD),
        seals(NEW),
    ]
    for before, after in pairwise(deploys):
        for one, other in zip(before, after, strict=True):
            assert other.read(one.write(b"x")) == b"x"
            assert one.read(other.write(b"x")) == b"x"  # Both serve at once.
    for one, other in zip(deploys[0], deploys[-1], strict=True):
        assert not _reads(other, one.write(b"x"))


def test_each_kind_of_text_has_a_seal_of_its_own_that_shows_no_key() -> None:
    ids, cursors = seals(OLD)
    assert not _reads(ids, cursors.write(b"x"))
    assert not _reads(cursors, ids.write(b"x"))
    assert repr((ids, cursors)) == "(<TextSeal>, <TextSeal>)"
    # Without a pepper only this process makes ids of holds.
    ids, cursors = seals()
    assert ids.read(seals()[0].write(b"x")) == b"x"
    assert not _reads(ids, TextSeal(()).write(b"x"))
    assert not _reads(ids, seals(OLD)[0].write(b"x"))
    assert cursors.write(b"x") == "eA"


@pytest.mark.parametrize(
    "text", ["", "x", "====", "eA==", "eA\n", " eA", "é", "\ud800", None, 7, b"eA"]
)
@pytest.mark.parametrize("peppers", [(), (OLD,)])
def test_any_other_text_is_refused(peppers: tuple[bytes, ...], text: object) -> None:
    for seal in seals(*peppers):
        assert not _reads(seal, text)


def _decoded(text: str) -> bytes:
    return TextSeal(()).read(text)


def _reads(seal: TextSeal, text: object, place: str = "") -> bool:
    try:
        seal.read(text, place)
    except ValueError:
        return False
    return True
