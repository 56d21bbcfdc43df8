"""A lane: what every way to the database can do, for those that block and those that await."""

from abc import ABC, abstractmethod
from typing import Final, TypeVar

from .admission import Charge, Outcome
from .transactions import Work

T = TypeVar("T")

GRACE: Final = 1.0
"""Seconds that closing waits for what is on its way."""


class Executor(ABC):
    """A way to the database, async in shape: a blocking one never suspends."""

    @abstractmethod
    async def read(self, work: Work[T]) -> T:
        """Do work that only reads."""

    @abstractmethod
    async def write(self, work: Work[T]) -> T:
        """Do work in a transaction of its own."""

    @abstractmethod
    async def charge(self, charge: Charge) -> Outcome:
        """Make a charge, in a transaction with others that wait now."""

    @abstractmethod
    def give_up(self) -> None:
        """Break off what hangs: whoever waits for it fails, and this lane is not used again."""

    @abstractmethod
    async def close(self) -> None:
        """Answer what waits, then let go of threads and of connections of our own."""
