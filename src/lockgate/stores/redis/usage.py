"""Usage histories in Redis: one hash for each organization, beside the one that admissions use.

The process merges histories, and a script replaces those that are as the process read them. The
hash expires some time after its last write (W10).
"""

from collections.abc import Iterable, Mapping
from typing import Final, cast

from ...core.timestamps import DAY, MILLISECOND
from ...core.usage_history import KEPT_DAYS, UsageHistory, added
from ...sync import together
from ..answers import HistoryOwner, OutcomeUnknown, reading_state
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

    async def add_history(self, additions: Mapping[HistoryOwner, UsageHistory]) -> None:
        by_organization: dict[str, dict[bytes, UsageHistory]] = {}
        for (organization, handle), addition in additions.items():
            by_organization.setdefault(organization, {})[field_of(handle)] = addition
        steps = [
            self._add(self._names.place(organization), fields)
            for organization, fields in by_organization.items()
        ]
        failures = [failure for failure in await together(steps) if failure is not None]
        if failures and len(failures) < len(steps):
            raise OutcomeUnknown from failures[0]
        if failures:
            raise next((f for f in failures if isinstance(f, OutcomeUnknown)), failures[0])

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

    async def _add(self, place: Place, fields: dict[bytes, UsageHistory]) -> Exception | None:
        """Add to histories of one organization; return the failure, if there is one."""
        is_written = False
        try:
            for _ in range(_TRIES):
                words = b"HMGET", place.usage, *fields
                values = await self._ask(command(place.slot, *words, repeatable=True))
                triples = [
                    word
                    for (field, addition), value in zip(fields.items(), values, strict=True)
                    for word in (field, value or b"", added(value, addition))
                ]
                changed = await self._ask(place.call(_REPLACE, _LIFETIME, *triples))
                is_written = is_written or len(changed) < len(fields)
                fields = {field: fields[field] for field in cast(list[bytes], changed)}
                if not fields:
                    return None
        except Exception as failure:
            return OutcomeUnknown() if is_written else failure
        return OutcomeUnknown(f"{_TRIES} others were faster to write usage")


def field_of(handle: str | None) -> bytes:
    """Return the field of a key's history, or of the organization's as a whole."""
    return b"all" if handle is None else b"key " + write(handle)
