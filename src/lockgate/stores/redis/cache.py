"""Redis as the cache of a :class:`CachedStore`.

Copies are kept like the records of a single store, under other names, so an admission is the same
script. The hash of an organization with copies also holds their fill token, and expires as a whole.
"""

from os import urandom
from typing import Final

from ...core.api_keys import ApiKey
from ...core.plans import Organization
from ...core.timestamps import MILLISECOND
from ..cached.base import COPIES_LAST, CacheStore
from .change_counter import COUNTERS_LAST, ChangeCounter
from .codec import Claim, write_claim, write_placement, write_record
from .key_names import ORGANIZATION, fields_of, slot_of
from .transport.client import confirmed
from .transport.commands import Script, command, invocation, number

_FILL_TOKEN: Final = Script("cache.lua", "fill_token", ORGANIZATION, repeatable=True)
_INSTALL: Final = Script("cache.lua", "install", ORGANIZATION, repeatable=True)
_REPLACE: Final = Script("cache.lua", "replace")
_FILL_TOKEN_BYTES: Final = 16
_COPIES_LAST: Final = b"%d" % (COPIES_LAST // MILLISECOND)


class Cache(ChangeCounter, CacheStore):
    """The verbs of :class:`~lockgate.stores.cached.base.CacheStore`."""

    @property
    def served_by(self) -> object:
        return self.clients.here().served_by

    def hold_copies(self) -> None:
        self._names = self._names.for_copies()
        self._losses.holds_copies = True

    async def fill_token(self, organization: str) -> str:
        values = urandom(_FILL_TOKEN_BYTES).hex().encode(), _COPIES_LAST
        call = self._names.place(organization).call(_FILL_TOKEN, *values)
        fill_token: bytes = await self._ask(call)
        return fill_token.decode()

    async def install(self, key: ApiKey, placed: Organization | None, fill_token: str) -> bool:
        place = self._names.place(key.organization)
        handle = self._names.handle(key.handle)
        claim = write_claim(Claim(key.organization, key.id))
        await self._ask(
            command(slot_of(handle), b"SET", handle, claim, b"PX", _COPIES_LAST, repeatable=True)
        )
        values = (
            *(fill_token.encode(), *fields_of(key.id), write_record(key)),
            *(number(key.request_count), number(key.last_used_at or 0)),
            b"" if placed is None else write_placement(placed),
        )
        return bool(await self._ask(place.call(_INSTALL, *values)))

    @confirmed
    async def forget(self, organization: str) -> None:
        place = self._names.place(organization)
        await self._recall(organization)
        await self._ask(command(place.slot, b"DEL", place.organization, repeatable=True))
        # Refusals that a copy caused are forgotten within a second.
        await self._count_change_of(organization)

    async def caught_up(self) -> int | None:
        await self.change_counter()  # Notices a loss of data.
        name = await self._caught_up_name()
        counter = await self._ask(command(slot_of(name), b"GET", name, repeatable=True))
        return None if counter is None else int(counter)

    @confirmed
    async def catch_up(self, before: int | None, change_counter: int) -> bool:
        name = await self._caught_up_name()
        values = number(before), number(change_counter), COUNTERS_LAST
        return bool(await self._ask(invocation(_REPLACE, slot_of(name), [name], *values)))

    async def _caught_up_name(self) -> bytes:
        """Return the name of the counter up to which copies are valid.

        The name depends on which primaries serve which slots. A replica that is promoted may lack
        the latest deletions of copies, and a counter kept by another primary does not know that.
        """
        return self._names.caught_up(await self.clients.here().arrangement())
