"""Turns: in which order to ask servers that know the same, some of which may be gone."""

from collections.abc import Iterable, Iterator
from typing import Final

from ...resilience.deadlines import Overdue, left
from .config import Address

TOO_LITTLE: Final = 0.01
"""Seconds in which nobody answers who is not known yet."""


class SeedNodes:
    """Addresses to ask one after the other until one answers.

    A host that is gone says nothing, and whoever asks it is out of time before the next one. So it
    is put last before it is asked, and the next attempt begins with another, on whichever
    connections and in whichever event loop that is.

    Args:
        addresses: those that the settings name, of which one is enough.
    """

    def __init__(self, addresses: Iterable[Address]) -> None:
        self._named: Final = tuple(addresses)
        self.arranged: object = object()
        """Another object whenever a server was seen to take the place of another."""
        self.order: tuple[Address, ...] = self._named
        """It is replaced as a whole: threads may read it meanwhile."""

    def each(self, sooner: Iterable[Address] = ()) -> Iterator[Address]:
        """Give the addresses, each of which is put last, for as long as there is time.

        Args:
            sooner: those that come before all others.

        Raises:
            Overdue: there is none left to ask the next one.
        """
        for number, address in enumerate(dict.fromkeys((*sooner, *self.order))):
            seconds = left()
            if number and seconds is not None and seconds < TOO_LITTLE:
                raise Overdue
            self.order = (*(other for other in self.order if other != address), address)
            yield address

    def answered(self, address: Address, *told: Address) -> None:
        """Put it first that answered, then those it told of, then those that the settings name."""
        self.order = tuple(dict.fromkeys((address, *told, *self._named)))
