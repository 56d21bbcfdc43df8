"""A key store on compare-and-set records."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from random import randrange
from typing import Final, cast

from ...core.accounts import Account
from ...core.api_keys import ApiKey, Position
from ...core.changes import Change
from ...core.key_search import KeySearch
from ...core.usage_history import UsageHistory
from ...errors import HandleTaken
from ...sync import together
from ..answers import HistoryOwner, OrganizationSummary, StoreError, Usage, UsageBatch
from ..base import IoMode
from ..directory import Directory
from ..rows import (
    LOG,
    Commit,
    Ended,
    Index,
    Outcome,
    R,
    Read,
    Row,
    Summaries,
    Unused,
    Version,
    Walk,
    Wanted,
    stamped,
    without_usage,
)
from ..usage_batches import count_parts
from .change_log import NO_LOG, TAIL, Log
from .log_pages import LogPages
from .record import Record
from .storage import Records, Shelf, record_name

_BUCKETS: Final = 64


class RecordKeys(Directory):
    """Keys, their usage, accounts, plans and the change log on :class:`Records`, without windows.

    Every change writes its organization's record with all keys: see :class:`RecordStore
    <lockgate.stores.key_value.RecordStore>`.
    """

    keeps_history = True

    def __init__(self, records: Records) -> None:
        self.records: Final = records
        self.io: IoMode = records.io
        self._shelf = Shelf(records)
        self._log_pages = LogPages(self._shelf)

    async def now(self) -> int:
        return await self._shelf.now()

    async def read(
        self,
        index: Index[R],
        prefix: tuple[str, ...],
        limit: int = 1,
        after: Position | None = None,
        now: int | None = None,
    ) -> Read[R]:
        rows = await self._rows(index.name, prefix, limit, after)
        page = index.page(cast(list[R], rows), limit, after)
        versions: list[Version] = []
        if index is not LOG:
            versions += [without_usage(cast(Row, row)) for row in page]
        return Read(page, versions, await self._at(now))

    async def _rows(
        self, index: str, prefix: tuple[str, ...], limit: int, after: Position | None
    ) -> Sequence[Row | Change]:
        """Return the rows under a prefix of an index, or those of a page."""
        name, shelf = prefix[0], self._shelf
        match index:
            case "key_by_handle":
                owner = await shelf.owner("key", name)
                key = None if owner is None else (await shelf.read(owner)).keys.get(name)
                return _those(key)
            case "key_by_id":
                return _those((await shelf.read(name)).key(prefix[1]))
            case "keys_by_creation" | "keys_by_end":
                return [*(await shelf.read(name)).keys.values()]
            case "account":
                return _those((await shelf.read(name)).account)
            case "account_by_token":
                owner = await shelf.owner("token", name)
                account = None if owner is None else (await shelf.read(owner)).account
                return _those(account if account is not None and account.handle == name else None)
            case "accounts_by_email":
                entries = await shelf.entered("email", name)
                entries = [entry for entry in entries if after is None or entry > after]
                return await self._hinted(
                    entries, lambda one: one.claimed_by is None and one.billing_email == name, limit
                )
            case "accounts_by_user":
                entries = await shelf.entered("user", name)
                entries = [entry for entry in reversed(entries) if after is None or entry < after]
                return await self._hinted(entries, lambda one: one.claimed_by == name, limit)
            case "plan":
                return _those((await shelf.read(name)).placed)
            case _:
                before = None if after is None else after.instant
                return await self._log_pages.newest(name, limit, before)

    async def _hinted(
        self, entries: Iterable[Position], which: Callable[[Account], bool], limit: int
    ) -> list[Row]:
        """Return the first accounts of index entries that fulfil a condition."""
        found: list[Row] = []
        for entry in entries:
            if len(found) == limit:
                break
            account = (await self._shelf.read(entry.id)).account
            if account is not None and which(account):
                found.append(account)
        return found

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        owner, log, last_used = commit.owner, NO_LOG, None
        removed: list[ApiKey | Account] = []

        def work(record: Record, at: int) -> Outcome:
            nonlocal log, removed, last_used
            before, last_used = record.rows(), record.last_use()
            outcome = record.commit(commit, at)
            log, after = record.log, record.rows()
            removed = [row for id, row in before.items() if id not in after]
            return outcome

        try:
            claims = await self._enter(commit, now)
        except HandleTaken:
            if commit.id not in (await self._shelf.read(owner)).made:
                return Outcome("taken", await self._at(now))
            claims = []
        outcome = await self._shelf.change(owner, work, now)
        if outcome.verdict == "done":
            for kind, handle in claims:
                await self._shelf.settle(kind, handle, owner)
            await self._leave(commit, outcome.rows)
        else:
            for kind, handle in claims:
                await self._shelf.waive(kind, handle)
        await self._remove(owner, removed)
        if commit.remove_unused is not None and last_used is not None and not removed:
            await self._shelf.enter("review", _bucket(owner), Position(last_used, owner))
        elif commit.remove_unused is not None:
            await self._shelf.leave("review", _bucket(owner), owner)
        if commit.remove_ended is not None:
            await self._log_pages.remove(record_name(owner), commit.remove_ended)
        if commit.change is not None:
            await self._archive(owner, log)
        return outcome

    async def _archive(self, organization: str, log: Log) -> None:
        """Move records of a change log to pages, once there are some."""
        if len(log.tail) >= TAIL:
            with suppress(StoreError, OSError):  # The change is made; the next one tries again.
                await self._log_pages.archive(organization, log)

    async def _enter(self, commit: Commit, now: int | None) -> list[tuple[str, str]]:
        """Claim the handles of new rows, and enter hints; return the claims.

        Raises:
            HandleTaken: another row has or had a handle; nothing is claimed.
        """
        claims: list[tuple[str, str]] = []
        try:
            for old, _, new, _ in commit.writes:
                if old is None and isinstance(new, ApiKey | Account):
                    kind = "key" if isinstance(new, ApiKey) else "token"
                    await self._shelf.claim(kind, new.handle, commit.owner)
                    claims.append((kind, new.handle))
        except HandleTaken:
            for kind, handle in claims:
                await self._shelf.waive(kind, handle)
            raise
        for old, _, new, _ in commit.writes:
            await self._move(_hints(old), _hints(stamped(new, await self._at(now))))
        return claims

    async def _move(self, old: "_Hints", new: "_Hints") -> None:
        for (kind, name), position in new.items():
            if old.get((kind, name)) != position:
                await self._shelf.enter(kind, name, position)

    async def _leave(self, commit: Commit, rows: Sequence[Row | None]) -> None:
        """Set right the hints of rows that a commit has written."""
        for write, row in zip(commit.writes, rows, strict=True):
            old, new = _hints(write.old), _hints(row)
            if isinstance(row, Account):
                await self._move(old, new)
            for kind, name in old.keys() - new.keys():
                await self._shelf.leave(kind, name, commit.owner)

    async def _remove(self, owner: str, rows: Iterable[ApiKey | Account]) -> None:
        """Remove what belonged to removed rows. The handles of keys stay taken."""
        for row in rows:
            handle = row.handle if isinstance(row, ApiKey) else None
            if handle is not None:
                await self._shelf.settle("key", handle, owner)
            await self._shelf.remove_history(HistoryOwner(owner, handle))
            if isinstance(row, Account):
                await self._shelf.waive("token", row.handle)
                for kind, name in _hints(row):
                    await self._shelf.leave(kind, name, owner)

    async def walk(self, wanted: Wanted, limit: int, cursor: str | None = None) -> Walk:
        if isinstance(wanted, Unused):
            return await self._unused(wanted.since, limit)
        keys: list[ApiKey] = []
        accounts: list[Account] = []
        owners: list[str] = []
        organizations: list[OrganizationSummary] = []
        at = await self._at(wanted.now) if isinstance(wanted, Summaries) else 0
        while True:
            names, cursor = await self._shelf.some(cursor)
            for name in names:
                record = await self._shelf.read_named(name)
                match wanted:
                    case Ended():
                        owners += [record.owner] if record.owner else []
                    case Summaries():
                        organizations += filter(None, [record.summary(at)])
                    case None:
                        keys += record.keys.values()
                        accounts += [] if record.account is None else [record.account]
                    case KeySearch():
                        keys += filter(wanted.finds, record.keys.values())
            if cursor is None or len(keys) + len(accounts) >= limit or owners or organizations:
                return Walk(
                    cursor, tuple(keys), tuple(accounts), tuple(owners), tuple(organizations)
                )

    async def _unused(self, since: int, limit: int) -> Walk:
        owners: list[str] = []
        first = randrange(_BUCKETS)  # noqa: S311 - no secret
        for number in range(_BUCKETS):
            bucket = str((first + number) % _BUCKETS)
            entered = await self._shelf.entered("review", bucket)
            owners += [entry.id for entry in entered if entry.instant <= since]
            if len(owners) >= limit:
                break
        return Walk(None, owners=tuple(owners[:limit]))

    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        owners = await together(self._shelf.owner("key", handle) for handle in usage)
        parts: dict[str, dict[str, Usage]] = {}
        for (handle, used), organization in zip(usage.items(), owners, strict=True):
            if organization is not None and not (batch and organization in batch.answered):
                parts.setdefault(organization, {})[handle] = used
        await count_parts(self._use(*part, batch) for part in parts.items())

    async def _use(
        self, organization: str, usage: Mapping[str, Usage], batch: UsageBatch | None
    ) -> None:
        """Add to the usage of keys of one organization."""

        def work(record: Record, at: int) -> None:
            record.use_all(usage, batch, at)

        await self._shelf.change(organization, work, None)
        if batch is not None:
            batch.answered.add(organization)

    async def add_history(
        self,
        additions: Mapping[HistoryOwner, UsageHistory],
        batch: UsageBatch | None = None,
    ) -> None:
        await count_parts(self._shelf.add(*addition, batch) for addition in additions.items())

    async def history(self, owner: HistoryOwner) -> UsageHistory:
        return await self._shelf.history(owner)

    async def close(self) -> None:
        await self.records.close()


def _those(row: Row | None) -> list[Row]:
    return [] if row is None else [row]


_Hints = dict[tuple[str, str], Position]
"""Places in indexes across organizations, by kind and name of the index."""


def _hints(row: Row | None) -> _Hints:
    """Return the places of an account in the indexes by e-mail, by user, and of reviews."""
    if not isinstance(row, Account):
        return {}
    if row.claimed_by is not None:
        return {("user", row.claimed_by): Position(row.claimed_at or 0, row.organization)}
    created = Position(row.created_at, row.organization)
    return {("email", row.billing_email): created, ("review", _bucket(row.organization)): created}


def _bucket(organization: str) -> str:
    """Return the review index of an organization; a single index would change too often."""
    digest = sha256(organization.encode("utf-8", "surrogatepass")).digest()
    return str(digest[0] % _BUCKETS)
