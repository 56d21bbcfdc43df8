"""Copies of keys and plans whose truth is elsewhere: what makes the store a cache as well.

They lie where records of its own would, so an admission is the same script. The hash of an
organization that holds copies also holds its fence, and expires as a whole.
"""

from abc import abstractmethod
from os import urandom
from typing import Any, Final

from ...rules.instants import MILLISECOND
from ...rules.keys import ApiKey
from ...rules.plans import Organization
from ..contract import COPIES_LAST, Cache
from .calls import Call, Script, command, invocation, number
from .encoding import write_claim, write_placement, write_record
from .names import Names, fields_of, slot_of

_FENCE: Final = Script("fence")
_INSTALL: Final = Script("install")
_REPLACE: Final = Script("replace")
_FENCE_BYTES: Final = 16
_LIFE: Final = b"%d" % (COPIES_LAST // MILLISECOND)


class Copies(Cache):
    """The verbs of a cache."""

    _names: Names

    @abstractmethod
    async def _ask(self, call: Call) -> Any:
        """Make a call and give its reply."""

    async def fence(self, organization: str) -> str:
        place = self._names.place(organization)
        values = urandom(_FENCE_BYTES).hex().encode(), _LIFE
        fence: bytes = await self._ask(
            invocation(_FENCE, place.slot, [place.organization], *values, repeatable=True)
        )
        return fence.decode()

    async def install(self, key: ApiKey, placed: Organization | None, fence: str) -> bool:
        place = self._names.place(key.organization)
        handle = self._names.handle(key.handle)
        claim = write_claim(key.organization, key.id)
        await self._ask(
            command(slot_of(handle), b"SET", handle, claim, b"PX", _LIFE, repeatable=True)
        )
        values = (
            *(fence.encode(), *fields_of(key.id), write_record(key)),
            *(number(key.request_count), number(key.last_used_at or 0)),
            b"" if placed is None else write_placement(placed),
        )
        call = invocation(_INSTALL, place.slot, [place.organization], *values, repeatable=True)
        return bool(await self._ask(call))

    async def forget(self, organization: str) -> None:
        place = self._names.place(organization)
        await self._ask(command(place.slot, b"DEL", place.organization, repeatable=True))

    async def caught_up(self) -> int | None:
        name = self._names.caught_up
        epoch = await self._ask(command(slot_of(name), b"GET", name, repeatable=True))
        return None if epoch is None else int(epoch)

    async def catch_up(self, before: int | None, epoch: int) -> bool:
        name = self._names.caught_up
        values = number(before), number(epoch)
        return bool(await self._ask(invocation(_REPLACE, slot_of(name), [name], *values)))
