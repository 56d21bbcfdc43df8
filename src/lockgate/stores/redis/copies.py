"""Copies of keys and plans whose truth is elsewhere: what makes the store a cache as well.

They lie where records of its own would, so an admission is the same script. The hash of an
organization that holds copies also holds its fence, and expires as a whole.
"""

from os import urandom
from typing import Final

from ...rules.instants import DAY, MILLISECOND
from ...rules.keys import ApiKey
from ...rules.plans import Organization
from ..halves import COPIES_LAST, Cache
from ..lanes import Lanes
from .calls import Script, command, invocation, number
from .encoding import Claim, write_claim, write_placement, write_record
from .epochs import Epochs
from .lanes import Lane, lasting
from .names import fields_of, slot_of

_FENCE: Final = Script("copies", "fence")
_FORGET: Final = Script("copies", "forget")
_INSTALL: Final = Script("install")
_REPLACE: Final = Script("replace")
_FENCE_BYTES: Final = 16
_MARKED: Final = b"%d" % (DAY // MILLISECOND)
_LIFE: Final = b"%d" % (COPIES_LAST // MILLISECOND)


class Copies(Epochs, Cache):
    """The verbs of a cache."""

    _lanes: Lanes[Lane]

    @property
    def served_by(self) -> object:
        return self._lanes.here().served_by

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
        claim = write_claim(Claim(key.organization, key.id))
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

    @lasting
    async def forget(self, organization: str) -> None:
        place = self._names.place(organization)
        await self._ask(invocation(_FORGET, place.slot, [place.organization], repeatable=True))
        # Who was refused by a copy until here is asked for again within a second.
        await self._move()

    async def caught_up(self) -> int | None:
        name = await self._marker()
        epoch = await self._ask(command(slot_of(name), b"GET", name, repeatable=True))
        return None if epoch is None else int(epoch)

    @lasting
    async def catch_up(self, before: int | None, epoch: int) -> bool:
        name = await self._marker()
        values = number(before), number(epoch), _MARKED
        return bool(await self._ask(invocation(_REPLACE, slot_of(name), [name], *values)))

    async def _marker(self) -> bytes:
        """Where it says up to when copies are right.

        A replica that takes the place of its primary may not have heard of all that was voided
        there, while another primary of the Cluster says that it was. So what was said counts for
        the primaries of that time only.
        """
        return self._names.caught_up(await self._lanes.here().arrangement())
