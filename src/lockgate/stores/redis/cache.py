"""Copies of keys and plans whose truth is elsewhere: what makes the store a cache as well.

They lie where records of its own would, so an admission is the same script. The hash of an
organization that holds copies also holds its fence, and expires as a whole.
"""

from os import urandom
from typing import Final

from ...core.api_keys import ApiKey
from ...core.plans import Organization
from ...core.timestamps import DAY, MILLISECOND
from ..cached.base import COPIES_LAST, CacheStore
from ..runtime.per_loop import PerLoop
from .change_counter import ChangeCounter
from .codec import Claim, write_claim, write_placement, write_record
from .key_names import fields_of, slot_of
from .transport.client import Transport, lasting
from .transport.commands import Script, command, invocation, number

_FILL_TOKEN: Final = Script("cache.lua", "fill_token")
_FORGET: Final = Script("cache.lua", "forget")
_INSTALL: Final = Script("cache.lua", "install")
_REPLACE: Final = Script("cache.lua", "replace")
_FILL_TOKEN_BYTES: Final = 16
_MARKED: Final = b"%d" % (DAY // MILLISECOND)
_LIFE: Final = b"%d" % (COPIES_LAST // MILLISECOND)


class Copies(ChangeCounter, CacheStore):
    """The verbs of a cache."""

    _lanes: PerLoop[Transport]

    @property
    def served_by(self) -> object:
        return self._lanes.here().served_by

    async def fill_token(self, organization: str) -> str:
        place = self._names.place(organization)
        values = urandom(_FILL_TOKEN_BYTES).hex().encode(), _LIFE
        fill_token: bytes = await self._ask(
            invocation(_FILL_TOKEN, place.slot, [place.organization], *values, repeatable=True)
        )
        return fill_token.decode()

    async def install(self, key: ApiKey, placed: Organization | None, fill_token: str) -> bool:
        place = self._names.place(key.organization)
        handle = self._names.handle(key.handle)
        claim = write_claim(Claim(key.organization, key.id))
        await self._ask(
            command(slot_of(handle), b"SET", handle, claim, b"PX", _LIFE, repeatable=True)
        )
        values = (
            *(fill_token.encode(), *fields_of(key.id), write_record(key)),
            *(number(key.request_count), number(key.last_used_at or 0)),
            b"" if placed is None else write_placement(placed),
        )
        call = invocation(_INSTALL, place.slot, [place.organization], *values, repeatable=True)
        return bool(await self._ask(call))

    @lasting
    async def forget(self, organization: str) -> None:
        place = self._names.place(organization)
        await self._ask(invocation(_FORGET, place.slot, [place.organization], repeatable=True))
        # Who was refused by a copy until here is asked for again within a second.
        await self._move()

    async def caught_up(self) -> int | None:
        name = await self._marker()
        change_counter = await self._ask(command(slot_of(name), b"GET", name, repeatable=True))
        return None if change_counter is None else int(change_counter)

    @lasting
    async def catch_up(self, before: int | None, change_counter: int) -> bool:
        name = await self._marker()
        values = number(before), number(change_counter), _MARKED
        return bool(await self._ask(invocation(_REPLACE, slot_of(name), [name], *values)))

    async def _marker(self) -> bytes:
        """Where it says up to when copies are right.

        A replica that takes the place of its primary may not have heard of all that was voided
        there, while another primary of the Cluster says that it was. So what was said counts for
        the primaries of that time only.
        """
        return self._names.caught_up(await self._lanes.here().arrangement())
