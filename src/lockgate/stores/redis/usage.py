"""Usage histories in Redis: one hash for each organization, beside the one that admissions use.

The process merges histories, and a script replaces them if all are as the process read them. The
hash expires some time after its last write (W10).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ...core.timestamps import DAY, MILLISECOND
from ...core.usage_history import KEPT_DAYS, UsageHistory, added
from ..answers import HistoryOwner, StoreError, UsageBatch, reading_state
from ..usage_batches import count_parts
from .admission import Admissions
from .key_names import Place, write
from .transport.commands import Script, command, number

_REPLACE: Final = Script("usage.lua", "replace", ("usage",))
_TRIES: Final = 100
"""Attempts to write a history that other processes write too, each about once a second."""
_LIFETIME: Final = number(KEPT_DAYS * DAY // MILLISECOND)


class Histories(Admissions):
    """The verbs of usage over time."""

    keeps_history = True

    async def add_history(
        self,
        additions: Mapping[HistoryOwner, UsageHistory],
        batch: UsageBatch | None = None,
    ) -> None:
        parts: dict[str, dict[bytes, UsageHistory]] = {}
        for (organization, handle), addition in additions.items():
            parts.setdefault(organization, {})[field_of(handle)] = addition
        await count_parts(self._add(*part, batch) for part in parts.items())

    async def history(self, owner: HistoryOwner) -> UsageHistory:
        organization, handle = owner
        place = self._names.place(organization)
        call = command(place.slot, b"HGET", place.usage, field_of(handle), repeatable=True)
        value = await self._ask(call, organization)
        with reading_state(organization, "its usage history in Redis"):
            return UsageHistory.decode(value)

    async def remove_histories(self, place: Place, handles: Iterable[str]) -> None:
        """Remove the histories of keys. They expire if this is never reached."""
        fields = [field_of(handle) for handle in handles]
        await self._ask(command(place.slot, b"HDEL", place.usage, *fields, repeatable=True))

    async def remove_all_histories(self, place: Place) -> None:
        """Remove the histories of an organization and its keys."""
        await self._ask(command(place.slot, b"DEL", place.usage, repeatable=True))

    async def _add(
        self, organization: str, fields: dict[bytes, UsageHistory], batch: UsageBatch | None
    ) -> None:
        """Add to histories of one organization."""
        place = self._names.place(organization)
        for _ in range(_TRIES):
            words = b"HMGET", place.usage, *fields
            values = await self._ask(command(place.slot, *words, repeatable=True))
            triples = [
                word
                for (field, addition), value in zip(fields.items(), values, strict=True)
                for word in (field, value or b"", added(value, addition))
            ]
            call = place.call(_REPLACE, _LIFETIME, *written_batch(batch), *triples)
            if await self._ask(call._replace(repeatable=batch is not None)):
                return
        raise StoreError(f"{_TRIES} others were faster to write usage")


def written_batch(batch: UsageBatch | None) -> tuple[bytes, bytes]:
    """Return the writer and the number of a batch, as the scripts take them."""
    return (b"", b"") if batch is None else (write(batch.writer), number(batch.number))


def field_of(handle: str | None) -> bytes:
    """Return the field of a key's history, or of the organization's as a whole."""
    return b"all" if handle is None else b"key " + write(handle)
