"""Lists of the library as a command prints them: as many entries as were asked for."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from .output import progress

T = TypeVar("T")


async def read_entries(
    ask: Callable[[int, str | None], Awaitable[tuple[list[T], str | None]]],
    limit: int,
    cursor: str | None,
    what: str,
) -> tuple[list[T], str | None]:
    """Read pages until there are enough entries; return them, and the cursor of the next page.

    A page of a list with a filter is the result of a bounded number of reads (G10), so it may be
    empty although it is not the last.

    Args:
        ask: returns a page and the cursor of the next one, by a limit and a cursor.
        limit: the number of entries.
        cursor: the page to begin with; None: the first.
        what: names the work on a terminal.
    """
    entries: list[T] = []
    with progress(what) as show:
        while True:
            some, cursor = await ask(limit - len(entries), cursor)
            entries += some
            show(f"{len(entries)} found")
            if cursor is None or len(entries) >= limit:
                return entries, cursor
