"""Ends: a process that ends by itself first writes what it only counted, if nobody closed it."""

import atexit
from contextlib import suppress
from typing import Final, Protocol
from weakref import WeakSet


class Ending(Protocol):
    """What has something to write before the process ends."""

    def ended(self) -> None:
        """Write it: no event loop runs here any more, and no thread can be started."""


_told: Final[WeakSet[Ending]] = WeakSet()


def at_process_end(one: Ending) -> None:
    """Tell it when this process ends, or one that is forked from it."""
    _told.add(one)


@atexit.register
def _tell() -> None:
    for one in list(_told):
        with suppress(Exception):  # It is no reason to leave out the others, nor to end otherwise.
            one.ended()
