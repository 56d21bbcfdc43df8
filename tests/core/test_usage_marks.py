"""Which batches of usage count: each once, and those of an idle writer are forgotten in time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lockgate.core.timestamps import DAY
from lockgate.core.usage_marks import (
    KEPT_DAYS,
    MARKS_AT_MOST,
    REPEATED_DAYS,
    Mark,
    Marks,
    marked,
)

NOW = 1_800_000_000_000_000


def named(number: int) -> str:
    return f"{number:016x}"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=30))
def test_a_batch_counts_once_and_none_after_a_later_one_D33(sent: list[tuple[int, int]]) -> None:
    marks: Marks = ()
    latest: dict[int, int] = {}
    for at, (writer, number) in enumerate(sent):
        after = marked(marks, named(writer), number, NOW + at)
        assert (after is not None) == (number > latest.get(writer, 0))
        if after is not None:
            marks, latest[writer] = after, number
    assert {mark.writer: mark.number for mark in marks} == {
        named(writer): number for writer, number in latest.items()
    }


def test_the_mark_of_an_idle_writer_outlives_its_repetitions_and_then_goes_W10() -> None:
    marks = marked((), named(1), 5, NOW)
    assert marks is not None
    late = NOW + KEPT_DAYS * DAY
    assert REPEATED_DAYS < KEPT_DAYS
    assert marked(marks, named(1), 5, late) is None
    still = marked(marks, named(2), 1, late - 1)
    assert still is not None
    assert [mark.writer for mark in still] == [named(1), named(2)]
    assert marked(marks, named(2), 1, late) == (Mark(named(2), 1, late),)


def test_marks_are_bounded_and_the_writers_of_lately_keep_theirs_W10() -> None:
    marks: Marks = ()
    for number in range(MARKS_AT_MOST + 5):
        marks = marked(marks, named(number), 1, NOW + number) or ()
    assert len(marks) == MARKS_AT_MOST
    assert marks[0].writer == named(5)
    renewed = marked(marks, named(5), 2, NOW)
    assert renewed is not None
    assert renewed[-1].writer == named(5)
    assert len(renewed) == MARKS_AT_MOST
