"""Counters in a file that several processes of one machine share."""

from collections.abc import Iterable
from mmap import mmap
from pathlib import Path
from struct import Struct
from time import monotonic, sleep
from typing import Final, Self

_NUMBER: Final = Struct("<q")
_PLACES: Final = 8
_SPINS: Final = 2_000
_PAUSE: Final = 0.0002
PATIENCE: Final = 60.0
"""Seconds until all other processes must have come."""


class Board:
    """One counter for each of a few processes, read without a lock.

    Args:
        path: a file; :meth:`create` makes it.
        place: the counter that this process sets.
    """

    def __init__(self, path: str, place: int) -> None:
        self._place = place
        with Path(path).open("r+b") as file:
            self._map = mmap(file.fileno(), _PLACES * _NUMBER.size)

    @classmethod
    def create(cls, path: str, place: int) -> Self:
        """Create the file, with all counters at 0."""
        Path(path).write_bytes(bytes(_PLACES * _NUMBER.size))
        return cls(path, place)

    def set(self, number: int) -> None:
        """Set this process's counter."""
        _NUMBER.pack_into(self._map, self._place * _NUMBER.size, number)

    def of(self, place: int) -> int:
        """Return the counter of a process."""
        return int(_NUMBER.unpack_from(self._map, place * _NUMBER.size)[0])

    def wait(self, places: Iterable[int], number: int) -> None:
        """Wait until these processes' counters have reached a number.

        Raises:
            TimeoutError: they have not, after :data:`PATIENCE` seconds.
        """
        places, spins, end = [*places], 0, monotonic() + PATIENCE
        while any(self.of(place) < number for place in places):
            spins += 1
            sleep(0 if spins < _SPINS else _PAUSE)
            if spins > _SPINS and monotonic() > end:
                raise TimeoutError(f"Another process did not come within {PATIENCE:g} s.")

    def close(self) -> None:
        """Release the memory."""
        self._map.close()
