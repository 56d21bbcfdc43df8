"""The epoch: a number that is another one after every change to keys or plans.

It is the server's time with some random bits below, so that two changes never leave the same
number, not even after everything was lost. It is set after the change and before the change is
answered; a change whose epoch could not be set is reported as failed, and is asked for again.
"""

from abc import abstractmethod
from secrets import randbits
from typing import Any, Final

from ...core.timestamps import DAY, MILLISECOND
from ..base import Store
from .key_names import Names, slot_of
from .transport.commands import Call, command, number

_RANDOM_BITS: Final = 10
_LIFE: Final = b"%d" % (DAY // MILLISECOND)


class ChangeCounter(Store):
    """The verb of the epoch, and what moves it."""

    _names: Names

    @abstractmethod
    async def _ask(self, call: Call, organization: str | None = None) -> Any:
        """Make a call and give its reply."""

    async def change_counter(self) -> int | None:
        name = self._names.change_counter
        found = await self._ask(command(slot_of(name), b"GET", name, repeatable=True))
        if found is None:
            return await self._move()
        return int(found)

    async def _move(self) -> int:
        """Set another epoch."""
        name = self._names.change_counter
        change_counter = (await self.now() << _RANDOM_BITS) | randbits(_RANDOM_BITS)
        values = name, number(change_counter), b"PX", _LIFE
        await self._ask(command(slot_of(name), b"SET", *values, repeatable=True))
        return change_counter
