"""API keys in Redis: the verbs of keys, and the claims of their handles.

An organization's keys lie in one hash, the key's handle leads to it from elsewhere in a Cluster:
the handle is claimed before the key is inserted, and is believed only if the organization agrees.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast

from ...core.api_keys import NEVER, ApiKey, KeyDraft, KeyHistory, Position
from ...core.changes import ChangeDraft
from ...core.digests import Digest
from ...core.key_search import IMPORTED, KeySearch
from ...core.quota_leases import QuotaLeases
from ...core.timestamps import MINUTE
from ...errors import HandleTaken, KeyLimitReached
from ...sync import together
from ..answers import (
    FoundKeys,
    LogPage,
    Page,
    Removal,
    StoreError,
    Usage,
    UsageBatch,
    reading_state,
)
from ..usage_batches import count_parts
from .admission import ADD_USAGE
from .cache import Cache
from .codec import (
    RECORDS,
    Claim,
    read_change,
    read_claim,
    read_key,
    read_keys,
    write_change,
    write_claim,
    write_digest,
    write_key,
    write_place,
    write_record,
)
from .key_names import (
    KEYS,
    KEYS_AND_WINDOWS,
    ORGANIZATION,
    REMOVED,
    Place,
    fields_of,
    place_of,
    read,
    slot_of,
    write,
)
from .transport.client import confirmed
from .transport.commands import Script, command, invocation, number
from .transport.failures import Refused, Split, reraise
from .usage import Histories, written_batch

_INSERT: Final = Script("keys.lua", "insert", KEYS)
_UPDATE: Final = Script("keys.lua", "update", KEYS_AND_WINDOWS, is_change=True)
_ROTATE: Final = Script("keys.lua", "rotate", KEYS_AND_WINDOWS, is_change=True)
_REVOKE: Final = Script("keys.lua", "revoke", KEYS_AND_WINDOWS, repeatable=True, is_change=True)
_REVOKE_RECORD: Final = Script("keys.lua", "revoke_record", ORGANIZATION, repeatable=True)
_REHASH: Final = Script("keys.lua", "rehash", ORGANIZATION)
_LIST: Final = Script("keys.lua", "list", ("organization", "created"), repeatable=True)
_LIST_LIVE: Final = Script("keys.lua", "list_live", ("organization", "live"), repeatable=True)
_LIST_ENDED: Final = Script(
    "keys.lua", "list_ended", ("organization", "live", "ended"), repeatable=True
)
_REMOVE: Final = Script("keys.lua", "remove", KEYS)
_UNCLAIM: Final = Script("keys.lua", "unclaim")
_READ_CHANGES: Final = Script("change_log.lua", "read_changes", ORGANIZATION, repeatable=True)
_REMOVE_CHANGES: Final = Script("change_log.lua", "remove_changes", ORGANIZATION, repeatable=True)

_CLAIM_LASTS: Final = MINUTE
"""Microseconds after which a claim without a key may be taken over; an insertion takes far less."""
_INSTANT: Final = 16
"""Digits with which a member of an index begins (``key_records.lua``)."""
_SCANNED_AT_ONCE: Final = b"200"
SEARCHED_AT_ONCE: Final = b"1000"
_REMOVED_AT_ONCE: Final = 50
READ_AT_ONCE: Final = 250
_START: Final = "0 0"
"""The cursor with which a walk over all organizations begins."""


class Keys(Histories, Cache):
    """The verbs of :class:`~lockgate.stores.base.KeyStore`."""

    @confirmed
    async def insert(
        self,
        draft: KeyDraft,
        cap: int | None,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> ApiKey:
        key = await self._insert_by(_INSERT, (number(now), number(cap)), draft, cap, change)
        assert key is not None, "or the script answers why not"
        return key

    @confirmed
    async def update_if(
        self,
        old: ApiKey,
        new: ApiKey,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> bool:
        place = self._names.place(old.organization)
        values = number(now), write(old.id), write_record(old), write_record(new)
        call = place.call(_UPDATE, *values, write_change(change))
        is_done, older = await self._change(old.organization, call)
        if is_done:
            await self._count_change_of(old.organization, older)
        return bool(is_done)

    @confirmed
    async def rotate_if(
        self,
        old: ApiKey,
        new: ApiKey,
        successor: KeyDraft,
        cap: int | None,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> ApiKey | None:
        records = write(old.id), write_record(old), write_record(new)
        values = number(now), *records, number(cap)
        return await self._insert_by(_ROTATE, values, successor, cap, change)

    async def _insert_by(
        self,
        script: Script,
        values: tuple[bytes, ...],
        draft: KeyDraft,
        cap: int | None,
        change: ChangeDraft | None,
    ) -> ApiKey | None:
        """Insert a key by a script; return None where the script found another key changed.

        The key's handle lies in another slot of a Cluster: it is claimed first, and released if the
        script does not insert the key.
        """
        place = self._names.place(draft.organization)
        claimed = await self._claim_for_key(draft)
        older: QuotaLeases | None = ()
        try:
            call = place.call(script, *values, *write_key(draft), write_change(change))
            if script is _ROTATE:
                answer, older = await self._change(draft.organization, call)
            else:
                answer = await self._ask(call)
        except Refused:
            await self._unclaim(*claimed)
            raise
        if isinstance(answer, list):
            if script is _ROTATE:
                await self._count_change_of(draft.organization, older)
            history = draft.history or KeyHistory(0)
            key = read_key(cast(list[bytes], answer)[0], None)
            return key._replace(
                request_count=history.request_count, last_used_at=history.last_used_at
            )
        await self._unclaim(*claimed)
        if answer == b"changed":
            return None
        if answer == b"cap":
            raise KeyLimitReached(cap or 0)
        raise HandleTaken

    async def find(self, handle: str) -> ApiKey | None:
        claimed = await self._claimed(handle)
        return None if claimed is None else await self.get(*claimed)

    async def get(self, organization: str, id: str) -> ApiKey | None:
        record, usage, _ = await self._read_record(organization, id)
        with reading_state(organization, RECORDS):
            return None if record is None else read_key(record, usage)

    async def search(self, wanted: KeySearch, limit: int, cursor: str | None = None) -> FoundKeys:
        if wanted.id is not None:
            fields = fields_of(wanted.id)
            places, cursor = await self._scan(cursor, SEARCHED_AT_ONCE)
            calls = [command(p.slot, b"HMGET", p.organization, *fields) for p in places]
            records = await together(self._ask(call) for call in calls)
            return FoundKeys(read_keys([field for record in records for field in record]), cursor)
        names, cursor = await self._scan_names(
            cursor, self._names.handles(wanted.handle or IMPORTED), SEARCHED_AT_ONCE
        )
        start = len(self._names.handle(""))
        found = await together(self.find(read(name[start:])) for name in names)
        return FoundKeys([key for key in found if key and wanted.finds(key)], cursor)

    async def list(self, organization: str, limit: int, after: Position | None = None) -> Page:
        with reading_state(organization, RECORDS):
            return await self._newest(self._names.place(organization), limit, after)

    async def list_live(
        self,
        organization: str,
        limit: int,
        after: Position | None = None,
        now: int | None = None,
    ) -> Page:
        records = await self._live(self._names.place(organization), limit, after, now)
        with reading_state(organization, RECORDS):
            return read_keys(records)

    @confirmed
    async def revoke_if_live(
        self,
        organization: str,
        id: str,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> ApiKey | None:
        place = self._names.place(organization)
        values = number(now), write(id), write_change(change)
        older: QuotaLeases | None = None
        try:
            call = place.call(_REVOKE, *values).divisible()
            answer, older = await self._change(organization, call)
        except Split:
            answer = await self._revoke_by_parts(place, values)
        if answer is None:
            return None
        await self._count_change_of(organization, older)
        return read_key(*cast(list[bytes], answer))

    async def _revoke_by_parts(self, place: Place, values: tuple[bytes, ...]) -> Any:
        """Do the work of :data:`_REVOKE` one Redis key at a time, while a slot moves.

        The first call revokes. A process that dies after it leaves the revoked key in the index of
        live keys until the key is revoked again.
        """
        answer = await self._ask(place.call(_REVOKE_RECORD, *values))
        if answer is not None:
            key = read_key(*cast(list[bytes], answer))
            expiry = NEVER if key.expires_at is None else key.expires_at
            was, ends = (write_place(Position(at, key.id)) for at in (expiry, key.ends_at))
            for words in ((b"ZREM", place.live, was), (b"ZADD", place.ended, b"0", ends)):
                await self._ask(command(place.slot, *words, repeatable=True))
        return answer

    @confirmed
    async def rehash_if(self, handle: str, old: Digest, new: Digest) -> bool:
        claimed = await self._claimed(handle)
        if claimed is None:
            return False
        organization, id = claimed
        place = self._names.place(organization)
        values = fields_of(id)[0], *write_digest(old), *write_digest(new)
        moved = bool(await self._ask(place.call(_REHASH, *values)))
        if moved:
            await self._count_change()
        return moved

    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        parts: dict[str, list[bytes]] = {}
        for handle, (organization, id) in (await self._owners(usage)).items():
            requests, last_used_at = usage[handle]
            values = *fields_of(id), number(requests), number(last_used_at)
            if not (batch and organization in batch.answered):
                parts.setdefault(organization, []).extend(values)
        await count_parts(self._add_usage(*part, batch) for part in parts.items())

    async def _add_usage(
        self, organization: str, values: Iterable[bytes], batch: UsageBatch | None
    ) -> None:
        """Add to the usage of keys of one organization, in one call."""
        call = self._names.place(organization).call(ADD_USAGE, *written_batch(batch), *values)
        await self._ask(call._replace(repeatable=batch is not None), organization)
        if batch is not None:
            batch.answered.add(organization)

    @confirmed
    async def remove_ended(
        self, age: int, now: int | None = None, cursor: str | None = None
    ) -> Removal:
        until = (await self.now() if now is None else now) - age
        hashes, following = await self._scan(cursor)
        steps = await together(self._remove_ended(hash, until) for hash in hashes)
        removed = sum(removed for removed, _ in steps)
        if removed:
            await self._count_change()
        is_left = any(is_left for _, is_left in steps)
        return Removal(removed, cursor or _START if is_left else following)

    async def change_log(self, organization: str, limit: int, before: int | None = None) -> LogPage:
        place = self._names.place(organization)
        found = await self._ask(place.call(_READ_CHANGES, number(limit), number(before)))
        with reading_state(organization, RECORDS):
            pairs = zip(found[::2], found[1::2], strict=True)
            return [read_change(number, record) for number, record in pairs]

    async def _pages(self, place: Place) -> AsyncIterator[Page]:
        """Yield all keys of an organization by pages, newest first."""
        after: Position | None = None
        while True:
            page = await self._newest(place, READ_AT_ONCE, after)
            yield page
            if len(page) < READ_AT_ONCE:
                return
            after = Position(page[-1].created_at, page[-1].id)

    async def _newest(self, place: Place, limit: int, after: Position | None) -> Page:
        start = b"-"
        if after is not None:
            start = b"(" + write_place(after._replace(instant=NEVER - after.instant))
        values = start, number(limit)
        try:
            fields = await self._ask(place.call(_LIST, *values).divisible())
        except Split:
            fields = await self._list_by_parts(place, *values)
        return read_keys(fields)

    async def _list_by_parts(self, place: Place, start: bytes, limit: bytes) -> Any:
        """Do the work of :data:`_LIST` one Redis key at a time, while a slot moves."""
        words = b"ZRANGEBYLEX", place.created, start, b"+", b"LIMIT", b"0", limit
        members = await self._ask(command(place.slot, *words, repeatable=True))
        names = [name for member in members for name in fields_of(read(member[_INSTANT:]))]
        if not names:
            return []
        return await self._ask(
            command(place.slot, b"HMGET", place.organization, *names, repeatable=True)
        )

    async def _live(
        self, place: Place, limit: int, after: Position | None, now: int | None
    ) -> Sequence[bytes | None]:
        """Return alternating records and usage of live keys, the latest expiry first."""
        start = b"+" if after is None else b"(" + write_place(after)
        call = place.call(_LIST_LIVE, number(now), start, number(limit))
        fields: Sequence[bytes | None] = await self._ask(call)
        return fields

    async def _remove_ended(self, place: Place, until: int) -> tuple[int, bool]:
        """Remove some keys and old records of changes of one organization; return how many keys,
        and whether more may remain.

        The handles are marked first. A removal that is interrupted after that is repeated by the
        next, and until then the key appears in lists only.
        """
        limit = number(until), number(_REMOVED_AT_ONCE)
        unlogged = await self._ask(place.call(_REMOVE_CHANGES, *limit))
        due = read_keys(await self._ask(place.call(_LIST_ENDED, *limit)))
        if not due:
            return 0, unlogged == _REMOVED_AT_ONCE
        names = [self._names.handle(key.handle) for key in due]
        await together(self._ask(command(slot_of(n), b"SET", n, REMOVED)) for n in names)
        ids = [write(key.id) for key in due]
        removed = await self._ask(place.call(_REMOVE, *ids))
        await self.remove_histories(place, (key.handle for key in due))
        return removed, _REMOVED_AT_ONCE in {unlogged, len(due)}

    async def _scan(
        self, cursor: str | None, count: bytes = _SCANNED_AT_ONCE
    ) -> tuple[Sequence[Place], str | None]:
        """Return some organizations and the next cursor, None after the last ones."""
        names, following = await self._scan_names(cursor, self._names.pattern, count)
        return [place_of(name) for name in names if name.endswith(b"}")], following

    async def _scan_names(
        self, cursor: str | None, pattern: bytes, count: bytes
    ) -> tuple[Sequence[bytes], str | None]:
        """Return the names among the next ``count`` that match, and the next cursor.

        A cursor is the number of a server and a cursor of its ``SCAN``.
        """
        which, start = (cursor or _START).split()
        pipelines = [*(await self.clients.here().by_server()).values()]
        if int(which) >= len(pipelines):
            return [], None
        match = b"MATCH", pattern, b"COUNT", count
        answer = await pipelines[int(which)].ask(command(0, b"SCAN", start.encode(), *match))
        if isinstance(answer, Exception):
            reraise(answer)
        following, found = cast(tuple[bytes, list[bytes]], answer)
        names = [*dict.fromkeys(found)]
        if following != b"0":
            return names, f"{which} {following.decode()}"
        return names, f"{int(which) + 1} 0" if int(which) + 1 < len(pipelines) else None

    async def _claim(self, name: bytes, claim: bytes) -> None:
        """Claim a handle.

        Raises:
            HandleTaken: it has been claimed before.
        """
        if await self._ask(command(slot_of(name), b"SET", name, claim, b"NX")) is None:
            raise HandleTaken

    async def _claim_for_key(self, key: KeyDraft) -> tuple[bytes, bytes]:
        """Claim the handle of a key before its insertion; return its name and the claim.

        A process may die between its claim and its insertion. Imported keys cannot choose another
        handle, so a claim without a key may be taken over after a minute.

        Raises:
            HandleTaken: another key has the handle, or a younger claim.
        """
        name, now = self._names.handle(key.handle), await self.now()
        claim = write_claim(Claim(key.organization, key.id, now))
        try:
            await self._claim(name, claim)
        except HandleTaken:
            there = await self._ask(command(slot_of(name), b"GET", name, repeatable=True))
            if there == REMOVED:
                raise
            if there is not None:
                organization, id, since = read_claim(there)
                if since is None or now - since < _CLAIM_LASTS:
                    raise
                if await self.get(organization, id) is not None:
                    raise
                await self._unclaim(name, there)
            await self._claim(name, claim)
        return name, claim

    async def _unclaim(self, name: bytes, claim: bytes) -> None:
        with suppress(StoreError):  # A handle lost this way is one of 62**8.
            await self._ask(invocation(_UNCLAIM, slot_of(name), [name], claim))
