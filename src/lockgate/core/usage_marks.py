"""Marks: which batch of usage a store has counted last for each writer, so none counts twice (D33).

A writer numbers its batches upwards, and repeats one until it is answered before it begins the
next. So a store knows a repetition by the latest number alone, also one that arrives late.
"""

from typing import Final, NamedTuple, TypeAlias

from .timestamps import DAY

KEPT_DAYS: Final = 7
"""Days for which a mark is kept at least, as long as its owner has few enough of them."""
REPEATED_DAYS: Final = 6
"""Days after which a writer gives up a batch: until then its mark is kept, whatever the clocks."""
MARKS_AT_MOST: Final = 1024
"""The most marks of one owner. The processes that wrote least recently lose theirs."""


class Mark(NamedTuple):
    """The latest batch of one writer."""

    writer: str
    """16 ASCII characters, which no other writer has."""
    number: int
    at: int
    """When it was counted, in microseconds."""


Marks: TypeAlias = tuple[Mark, ...]
"""The marks of one owner, the latest last."""


def marked(marks: Marks, writer: str, number: int, now: int) -> Marks | None:
    """Return the marks with a batch that is to be counted now; None: it was counted before."""
    others: list[Mark] = []
    for mark in marks:
        if mark.writer != writer:
            others.append(mark)
        elif number <= mark.number:
            return None
    kept = [mark for mark in others if mark.at > now - KEPT_DAYS * DAY]
    return (*kept[1 - MARKS_AT_MOST :], Mark(writer, number, now))
