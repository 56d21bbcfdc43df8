"""Keys, accounts, plans and the change log in Redis: rows of an organization's hash.

A commit is one script, on the hash and the indexes of the organization. Claims of handles and
tokens, and the indexes by e-mail, by user and of reviews, lie in other slots of a Cluster: they are
entered first, and each is a hint that is compared with the row itself. What no row needs any more
is left last.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, cast

from ...core.accounts import Account
from ...core.api_keys import NEVER, ApiKey, Position
from ...core.bounded_dict import BoundedDict
from ...core.key_search import IMPORTED, KeySearch
from ...core.timestamps import HOUR, MINUTE, SECOND
from ...errors import HandleTaken
from ...sync import together
from ..answers import OrganizationSummary, StoreError, Usage, UsageBatch, reading_state
from ..rows import (
    LOG,
    REMOVED_AT_MOST,
    Commit,
    CommitVerdict,
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
    Write,
    stamped,
)
from ..usage_batches import count_parts
from .admission import ADD_USAGE
from .cache import Cache
from .codec import (
    RECORDS,
    Claim,
    read_account,
    read_change,
    read_claim,
    read_key,
    read_keys,
    read_placement,
    read_usage,
    write_account,
    write_change,
    write_claim,
    write_place,
    write_placement,
    write_record,
    write_usage,
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
from .transport.commands import Call, Script, command, invocation, number
from .transport.failures import Refused, Split, reraise
from .usage import Histories, written_batch

_COMMIT: Final = Script("commit.lua", "commit", KEYS, repeatable=True)
_CHANGE: Final = Script("commit.lua", "commit", KEYS_AND_WINDOWS, repeatable=True, is_change=True)
_COMMIT_RECORDS: Final = Script("commit.lua", "commit", ORGANIZATION, repeatable=True)
_REMOVE: Final = Script("commit.lua", "remove", KEYS, repeatable=True)
_REMOVE_UNUSED: Final = Script("commit.lua", "remove_unused", KEYS, repeatable=True)
_FIELDS: Final = Script("read_rows.lua", "fields", ORGANIZATION, repeatable=True)
_BY_CREATION: Final = Script(
    "read_rows.lua", "by_creation", ("organization", "created"), repeatable=True
)
_BY_EXPIRY: Final = Script("read_rows.lua", "by_expiry", ("organization", "live"), repeatable=True)
_BY_END: Final = ("organization", "live", "ended")
_ENDED: Final = Script("read_rows.lua", "ended", _BY_END, repeatable=True)
_DUE: Final = Script("read_rows.lua", "due", _BY_END, repeatable=True)
_UNCLAIM: Final = Script("keys.lua", "unclaim")
_READ_CHANGES: Final = Script("change_log.lua", "read_changes", ORGANIZATION, repeatable=True)
_REMOVE_CHANGES: Final = Script("change_log.lua", "remove_changes", ORGANIZATION, repeatable=True)

_CLAIM_LASTS: Final = MINUTE
"""Microseconds after which a claim without a key may be taken over; an insertion takes far less."""
_INSTANT: Final = 16
"""Digits with which a member of an index begins (``key_records.lua``)."""
_SCANNED_AT_ONCE: Final = b"200"
_SEARCHED_AT_ONCE: Final = b"1000"
_READ_AT_ONCE: Final = 250
_START: Final = "0 0"
"""The cursor with which a walk over all organizations begins."""


class _Kept(NamedTuple):
    """Rows with the bytes that are their versions, and the server's clock."""

    rows: list[tuple[Row, bytes]]
    now: int


class _Claim(NamedTuple):
    """The claim of a handle or a token for a row that is about to be inserted."""

    name: bytes
    value: bytes
    row: ApiKey | Account


class Rows(Histories, Cache):
    """The three methods of :class:`~lockgate.stores.key_store.KeyStore`."""

    _entered: BoundedDict[tuple[bytes, str], None]
    """The latest hints that this process has entered, by the names of index and organization."""

    # Reading

    async def read(
        self,
        index: Index[R],
        prefix: tuple[str, ...],
        limit: int = 1,
        after: Position | None = None,
        now: int | None = None,
    ) -> Read[R]:
        if index is LOG:
            return cast(Read[R], await self._read_log(prefix[0], limit, after, now))
        with reading_state(None, RECORDS):
            kept = await self._rows(index.name, prefix, limit, after, now)
        rows = [cast(R, row) for row, _ in kept.rows]
        versions: list[Version] = [version for _, version in kept.rows]
        return Read(rows, versions, kept.now)

    async def _rows(
        self,
        index: str,
        prefix: tuple[str, ...],
        limit: int,
        after: Position | None,
        now: int | None,
    ) -> _Kept:
        name = prefix[0]
        match index:
            case "key_by_id":
                return await self._key(name, prefix[1], now)
            case "key_by_handle":
                claimed = await self._claimed(name)
                kept = await self._key(*(claimed or (name, name)), now)
                return kept if claimed is not None else kept._replace(rows=[])
            case "keys_by_creation":
                return await self._newest(self._names.place(name), limit, after, now)
            case "keys_by_end":
                return await self._unrevoked(self._names.place(name), limit, after, now)
            case "account":
                return await self._field(name, b"account", now)
            case "plan":
                return await self._field(name, b"plan", now)
            case "account_by_token":
                token = self._names.token(name)
                owner = await self._ask(command(slot_of(token), b"GET", token, repeatable=True))
                kept = await self._field(name if owner is None else read(owner), b"account", now)
                # The index may be stale: the organization's account may have another token.
                rows = [one for one in kept.rows if cast(Account, one[0]).handle == name]
                return kept._replace(rows=rows)
            case "accounts_by_email":
                email = self._names.email(name)

                def is_unclaimed(account: Account) -> bool:
                    return account.claimed_by is None and account.billing_email == name

                return await self._hinted(email, is_unclaimed, limit, after, now, is_up=True)
            case _:
                user = self._names.user(name)

                def is_claimed(account: Account) -> bool:
                    return account.claimed_by == name

                return await self._hinted(user, is_claimed, limit, after, now, is_up=False)

    async def _key(self, organization: str, id: str, now: int | None) -> _Kept:
        call = self._names.place(organization).call(_FIELDS, number(now), *fields_of(id))
        at, record, usage = await self._ask(call, organization)
        with reading_state(organization, RECORDS):
            found = [] if record is None else [(read_key(record, usage), record)]
        return _Kept([*found], int(at))

    async def _field(self, organization: str, field: bytes, now: int | None) -> _Kept:
        """Return the account or the plan of an organization."""
        call = self._names.place(organization).call(_FIELDS, number(now), field)
        at, record = await self._ask(call, organization)
        if record is None:
            return _Kept([], int(at))
        with reading_state(organization, RECORDS):
            is_account = field == b"account"
            row = read_account(record) if is_account else read_placement(organization, record)
        return _Kept([] if row is None else [(row, record)], int(at))

    async def _newest(
        self, place: Place, limit: int, after: Position | None, now: int | None = None
    ) -> _Kept:
        start = b"-"
        if after is not None:
            start = b"(" + write_place(after._replace(instant=NEVER - after.instant))
        words = b"ZRANGEBYLEX", place.created, start, b"+", b"LIMIT", b"0", number(limit)
        call = place.call(_BY_CREATION, number(now), start, number(limit))
        return await self._listed(place, call, words, now)

    async def _unrevoked(
        self, place: Place, limit: int, after: Position | None, now: int | None = None
    ) -> _Kept:
        """Return keys that are not revoked, the latest expiry first."""
        start = b"+" if after is None else b"(" + write_place(after)
        words = b"ZREVRANGEBYLEX", place.live, start, b"-", b"LIMIT", b"0", number(limit)
        call = place.call(_BY_EXPIRY, number(now), start, number(limit))
        return await self._listed(place, call, words, now)

    async def _listed(
        self, place: Place, call: Call, words: tuple[bytes, ...], now: int | None
    ) -> _Kept:
        """Return the keys of a page by a script, or one Redis key at a time while a slot moves."""
        try:
            at, *found = await self._ask(call.divisible())
        except Split:
            members = await self._ask(command(place.slot, *words, repeatable=True))
            names = [name for member in members for name in fields_of(read(member[_INSTANT:]))]
            call = place.call(_FIELDS, number(now), *(names or [b"plan"]))
            at, *found = await self._ask(call)
            found = found if names else []
        records = (record for record in found[::2] if record is not None)
        return _Kept([*zip(read_keys(found), records, strict=True)], int(at))

    async def _hinted(
        self,
        name: bytes,
        which: Callable[[Account], bool],
        limit: int,
        after: Position | None,
        now: int | None,
        *,
        is_up: bool,
    ) -> _Kept:
        """Return the first accounts at the entries of an index that fulfil its condition."""
        kept = _Kept([], 0)
        while len(kept.rows) < limit:
            entries = await self._entries(name, after, limit - len(kept.rows), is_up=is_up)
            if not entries:
                break
            after = entries[-1]
            found = await together(self._field(entry.id, b"account", now) for entry in entries)
            for entry, (rows, at) in zip(entries, found, strict=True):
                held = [one for one in rows if which(cast(Account, one[0]))]
                kept = _Kept([*kept.rows, *held], at)
                # A claim is for ever; before it is committed, or an account, there is a hint alone.
                is_claimed = any(cast(Account, row).claimed_by is not None for row, _ in rows)
                if not held and (is_claimed or (not rows and entry.instant < at - HOUR)):
                    await self._ask(_leave(name, entry.id))
        return kept if kept.now else kept._replace(now=await self._at(now))

    async def _entries(
        self, name: bytes, after: Position | None, count: int, *, is_up: bool
    ) -> list[Position]:
        """Return entries of an index after a position, in ascending or in descending order."""
        verb, start, end = b"ZRANGEBYSCORE", b"-inf", b"+inf"
        if not is_up:
            verb, start, end = b"ZREVRANGEBYSCORE", end, start
        start = start if after is None else number(after.instant)
        passed = 0
        while True:
            limit = b"WITHSCORES", b"LIMIT", number(passed), number(count)
            call = command(slot_of(name), verb, name, start, end, *limit, repeatable=True)
            found = cast(list[bytes], await self._ask(call))
            pairs = zip(found[::2], found[1::2], strict=True)
            entries = [Position(int(float(score)), read(member)) for member, score in pairs]
            wanted = [e for e in entries if after is None or (e > after if is_up else e < after)]
            if wanted or len(entries) < count:
                return wanted
            passed += count

    async def _read_log(
        self, organization: str, limit: int, after: Position | None, now: int | None
    ) -> Read[Any]:
        before = None if after is None else after.instant
        values = number(now), number(limit), number(before)
        at, *found = await self._ask(self._names.place(organization).call(_READ_CHANGES, *values))
        with reading_state(organization, RECORDS):
            pairs = zip(found[::2], found[1::2], strict=True)
            return Read([read_change(int(n), record) for n, record in pairs], [], int(at))

    # Commits

    @confirmed
    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        if commit.remove_ended is not None:
            return await self._remove_ended(commit, commit.remove_ended, now)
        if commit.remove_unused is not None:
            return await self._remove_unused(commit, commit.remove_unused, now)
        if not (commit.writes or commit.revoke_all or commit.change):
            await self._recall(commit.owner)
            await self._count_change()
            return Outcome("done", await self._at(now))
        try:
            claims = await self._enter(commit, now)
        except HandleTaken:
            return Outcome("taken", await self._at(now))
        try:
            outcome = await self._write(commit, now)
        except Refused:
            await self._unclaim(claims)
            raise
        if outcome.verdict == "done":
            with suppress(StoreError):  # It holds: a hint that stays only costs a vain look.
                await self._leave_hints(commit, outcome.rows)
        else:
            await self._unclaim(claims)
        return outcome

    async def _write(self, commit: Commit, now: int | None) -> Outcome:
        """Write the rows of a commit by its script, and count the change."""
        place = self._names.place(commit.owner)
        values = [
            *(commit.id.encode(), number(now), write_change(commit.change)),
            *(write(commit.owner), number(commit.room), number(commit.revoke_all)),
        ]
        for write_ in commit.writes:
            values += _written(write_)
        older, voids = None, commit.voids
        if not voids:
            answer = await self._ask(place.call(_COMMIT, *values), commit.owner)
        else:
            try:
                call = place.call(_CHANGE, *values)
                is_one = len(commit.writes) == 1 and not commit.revoke_all
                call = call.divisible() if is_one else call
                answer, older = await self._change(commit.owner, call)
            except Split:
                answer = await self._write_by_parts(place, commit, values)
        verdict, at, ended, *usage = cast(list[bytes], answer)
        if verdict != b"done":
            return Outcome(cast(CommitVerdict, verdict.decode()), int(at))
        if voids:
            await self._count_change_of(commit.owner, older)
        rows = zip(commit.writes, usage, strict=True)
        return Outcome(
            "done", int(at), tuple(_as_kept(one.new, int(at), use) for one, use in rows), int(ended)
        )

    async def _write_by_parts(
        self, place: Place, commit: Commit, values: Sequence[bytes]
    ) -> list[bytes]:
        """Write a single row of a commit one Redis key at a time, while a slot moves.

        The first call makes the change. A process that dies after it leaves the key in the indexes
        as it was, until it is changed again; admissions read the record alone.
        """
        answer = cast(list[bytes], await self._ask(place.call(_COMMIT_RECORDS, *values)))
        (write_,) = commit.writes
        old, new = write_.old, stamped(write_.new, int(answer[1]))
        if answer[0] == b"done" and isinstance(old, ApiKey) and isinstance(new, ApiKey):
            for words in ((b"ZREM", *_by_end(place, old)), (b"ZADD", *_by_end(place, new, b"0"))):
                await self._ask(command(place.slot, *words, repeatable=True))
        return answer

    async def _enter(self, commit: Commit, now: int | None) -> list[_Claim]:
        """Claim the handles of new rows, and enter hints of accounts; return the claims.

        Raises:
            HandleTaken: another row has or had a handle; nothing is claimed.
        """
        claims: list[_Claim] = []
        try:
            for old, _, new, _ in commit.writes:
                if isinstance(new, ApiKey) and old is None:
                    claims.append(await self._claim_for_key(new))
                elif isinstance(new, Account) and old is None:
                    claims.append(await self._claim_for_account(new))
            for old, _, new, _ in commit.writes:
                for name in self._hints(new, old):
                    if (name, commit.owner) in self._entered:
                        continue  # By an attempt before this one, which must not lose every race.
                    slot = self._names.place(commit.owner).slot
                    present = await self._time(slot) if now is None else now
                    at = _hinted_at(cast(Account, stamped(new, present)))
                    # An account that exists keeps the instant at which it was entered.
                    await self._ask(_enter(name, at, commit.owner, b"NX"))
                    self._entered[name, commit.owner] = None
        except (Refused, HandleTaken):
            await self._unclaim(claims)
            raise
        return claims

    async def _leave_hints(self, commit: Commit, rows: Sequence[Row | None]) -> None:
        """Set right the hints of the accounts that a commit has written."""
        for (old, _, _, _), row in zip(commit.writes, rows, strict=True):
            for name in self._hints(row, old):
                await self._ask(_enter(name, _hinted_at(cast(Account, row)), commit.owner))
            for name in self._hints(old, row):
                await self._ask(_leave(name, commit.owner))

    def _hints(self, row: Row | None, beside: Row | None) -> set[bytes]:
        """Return the names of the indexes in other slots that an account is in, and in another
        state is not."""
        if not isinstance(row, Account):
            return set()
        if isinstance(beside, Account) and row.claimed_by == beside.claimed_by:
            return set()  # Its e-mail stays the same (``commit.lua``).
        if row.claimed_by is not None:
            return {self._names.user(row.claimed_by)}
        return {self._names.email(row.billing_email), self._names.reviews}

    async def _remove_ended(self, commit: Commit, until: int, now: int | None) -> Outcome:
        """Remove keys and records of the change log that are due.

        The handles are marked first. A removal that is interrupted after that is repeated by the
        next, and until then the key appears in lists only.
        """
        place = self._names.place(commit.owner)
        limit = number(until), number(REMOVED_AT_MOST)
        unlogged = await self._ask(place.call(_REMOVE_CHANGES, *limit))
        _, *found = await self._ask(place.call(_ENDED, *limit))
        due = read_keys(found)
        names = [self._names.handle(key.handle) for key in due]
        await together(self._ask(command(slot_of(n), b"SET", n, REMOVED)) for n in names)
        values = commit.id.encode(), number(now), b"", *(write(key.id) for key in due)
        _, at, ended = await self._ask(place.call(_REMOVE, *values))
        if int(ended):
            if due:
                await self.remove_histories(place, (key.handle for key in due))
            await self._count_change()
        # A repetition finds other keys than the commit has removed: they are due, and still there.
        more = REMOVED_AT_MOST in {unlogged, len(due)} or int(ended) != len(due)
        return Outcome("done", int(at), (), int(ended), more)

    async def _remove_unused(self, commit: Commit, since: int, now: int | None) -> Outcome:
        owner, reviews = commit.owner, self._names.reviews
        place = self._names.place(owner)
        account = (await self._field(owner, b"account", now)).rows
        async for page in self._pages(place):
            for key in page:
                # A claim without an end: a handle stays taken after its key is removed.
                claim = write_claim(Claim(owner, key.id))
                name = self._names.handle(key.handle)
                await self._ask(command(slot_of(name), b"SET", name, claim, b"XX", repeatable=True))
        values = commit.id.encode(), number(now), write_change(commit.change), number(since)
        verdict, at, ended, why = await self._ask(place.call(_REMOVE_UNUSED, *values))
        if why == b"gone":
            for row, _ in account:
                assert isinstance(row, Account), "by its field"
                await self._ask(_leave(self._names.email(row.billing_email), owner))
                await self._unclaim([_Claim(self._names.token(row.handle), write(owner), row)])
                await self.remove_all_histories(place)
        if why in {b"gone", b"never"}:
            await self._ask(_leave(reviews, owner))
        else:
            await self._ask(_enter(reviews, int(why), owner, b"XX"))
        if verdict == b"done":
            await self._count_change()
        return Outcome(cast(CommitVerdict, verdict.decode()), int(at), (), int(ended))

    async def _claim(self, name: bytes, claim: bytes) -> None:
        """Claim a handle or a token.

        Raises:
            HandleTaken: it has been claimed before, by another organization.
        """
        if await self._ask(command(slot_of(name), b"SET", name, claim, b"NX")) is None:
            raise HandleTaken

    async def _claim_for_account(self, account: Account) -> _Claim:
        """Claim the token of an account before its insertion.

        Raises:
            HandleTaken: another account has the token's handle.
        """
        name, value = self._names.token(account.handle), write(account.organization)
        try:
            await self._claim(name, value)
        except HandleTaken:
            if await self._ask(command(slot_of(name), b"GET", name, repeatable=True)) != value:
                raise  # Otherwise it is a repetition: the script tells.
        return _Claim(name, value, account)

    async def _claim_for_key(self, key: ApiKey) -> _Claim:
        """Claim the handle of a key before its insertion.

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
                if (organization, id) == (key.organization, key.id):
                    return _Claim(name, there, key)  # A repetition: the script tells.
                if since is None or now - since < _CLAIM_LASTS:
                    raise
                if (await self._key(organization, id, now)).rows:
                    raise
                await self._ask(invocation(_UNCLAIM, slot_of(name), [name], there))
            await self._claim(name, claim)
        return _Claim(name, claim, key)

    async def _unclaim(self, claims: Sequence[_Claim]) -> None:
        """Give up claims, unless the row is there: a commit that is repeated may find it."""
        with suppress(StoreError):  # A handle lost this way is one of 62**8.
            for name, value, row in claims:
                owner = row.organization
                if isinstance(row, ApiKey):
                    kept = await self._key(owner, row.id, None)
                else:
                    kept = await self._field(owner, b"account", None)
                if not any(
                    cast(ApiKey | Account, one).handle == row.handle for one, _ in kept.rows
                ):
                    await self._ask(invocation(_UNCLAIM, slot_of(name), [name], value))

    # Walks

    async def walk(self, wanted: Wanted, limit: int, cursor: str | None = None) -> Walk:
        match wanted:
            case Ended(until):
                places, cursor = await self._scan(cursor)
                due = await together(self._ask(p.call(_DUE, number(until))) for p in places)
                return Walk(cursor, owners=tuple(read(id) for id in due if id))
            case Unused(since):
                reviews = self._names.reviews
                words = b"ZRANGEBYSCORE", reviews, b"-inf", number(since)
                page = b"LIMIT", b"0", number(limit)
                found = await self._ask(command(slot_of(reviews), *words, *page, repeatable=True))
                return Walk(None, owners=tuple(map(read, found)))
            case Summaries(now):
                return await self._summaries(await self._at(now), limit, cursor)
            case KeySearch():
                return await self._search(wanted, cursor)
            case None:
                return await self._all(limit, cursor)

    async def _all(self, limit: int, cursor: str | None) -> Walk:
        keys: list[ApiKey] = []
        accounts: list[Account] = []
        while True:
            places, cursor = await self._scan(cursor)
            for place in places:
                async for page in self._pages(place):
                    keys += page
                call = command(place.slot, b"HGET", place.organization, b"account", repeatable=True)
                kept = await self._ask(call)
                accounts += [] if kept is None else [read_account(kept)]
            if cursor is None or len(keys) + len(accounts) >= limit:
                return Walk(cursor, tuple(keys), tuple(accounts))

    async def _search(self, wanted: KeySearch, cursor: str | None) -> Walk:
        if wanted.id is not None:
            fields = fields_of(wanted.id)
            places, cursor = await self._scan(cursor, _SEARCHED_AT_ONCE)
            calls = [command(p.slot, b"HMGET", p.organization, *fields) for p in places]
            records = await together(self._ask(call) for call in calls)
            found = [read_key(*one) for one in records if one[0] is not None]
            return Walk(cursor, tuple(found))
        names, cursor = await self._scan_names(
            cursor, self._names.handles(wanted.handle or IMPORTED), _SEARCHED_AT_ONCE
        )
        start = len(self._names.handle(""))
        keys = await together(self.find(read(name[start:])) for name in names)
        return Walk(cursor, tuple(key for key in keys if key and wanted.finds(key)))

    async def _summaries(self, now: int, limit: int, cursor: str | None) -> Walk:
        found: list[OrganizationSummary] = []
        while True:
            places, cursor = await self._scan(cursor, _SEARCHED_AT_ONCE)
            summaries = await together(self._summary(place, now) for place in places)
            found += [one for one in summaries if one is not None]
            if cursor is None or len(found) >= limit:
                return Walk(cursor, organizations=tuple(found))

    async def _summary(self, place: Place, now: int) -> OrganizationSummary | None:
        """Return an organization with its live keys; None: it has neither a key nor a plan."""
        fields = b"plan", b"id"
        question = command(place.slot, b"HMGET", place.organization, *fields, repeatable=True)
        placed, named = await self._ask(question)
        if placed is None and not (await self._newest(place, 1, None)).rows:
            return None
        id, live, latest = read(named), 0, None
        after: Position | None = None
        while True:
            page = await self._page(place, self._unrevoked, after)
            keys = [key for key in page if key.ends_at > now]
            live += len(keys)
            used = (key.last_used_at for key in keys)
            latest = max((at for at in (latest, *used) if at is not None), default=None)
            if len(keys) < _READ_AT_ONCE:
                break
            after = Position(keys[-1].ends_at, keys[-1].id)
        with reading_state(id, RECORDS):
            return OrganizationSummary(id, read_placement(id, placed), live, latest)

    async def _page(
        self, place: Place, list_: Callable[..., Any], after: Position | None
    ) -> list[ApiKey]:
        kept = cast(_Kept, await list_(place, _READ_AT_ONCE, after))
        return [cast(ApiKey, row) for row, _ in kept.rows]

    async def _pages(self, place: Place) -> AsyncIterator[list[ApiKey]]:
        """Yield all keys of an organization by pages, newest first."""
        after: Position | None = None
        while True:
            page = await self._page(place, self._newest, after)
            yield page
            if len(page) < _READ_AT_ONCE:
                return
            after = Position(page[-1].created_at, page[-1].id)

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
        match_ = b"MATCH", pattern, b"COUNT", count
        answer = await pipelines[int(which)].ask(command(0, b"SCAN", start.encode(), *match_))
        if isinstance(answer, Exception):
            reraise(answer)
        following, found = cast(tuple[bytes, list[bytes]], answer)
        names = [*dict.fromkeys(found)]
        if following != b"0":
            return names, f"{which} {following.decode()}"
        return names, f"{int(which) + 1} 0" if int(which) + 1 < len(pipelines) else None

    # Usage, and time

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

    async def _time(self, slot: int) -> int:
        """Return the clock of the server of a slot, which also stamps its rows."""
        seconds, micros = await self._ask(command(slot, b"TIME", repeatable=True))
        return int(seconds) * SECOND + int(micros)


def _written(write_: Write) -> tuple[bytes, ...]:
    """Encode one row of a commit as ``commit.lua`` takes it."""
    old, version, new, must_live = write_
    expected = b"" if old is None else cast(bytes, version or _record(old))
    assert new is not None, "no commit removes a single row"
    if isinstance(new, ApiKey):
        usage = b"" if old is not None else write_usage(new)
        return fields_of(new.id)[0], expected, _record(new), number(must_live), usage
    field = b"account" if isinstance(new, Account) else b"plan"
    return field, expected, _record(new), b"", b""


def _record(row: Row) -> bytes:
    """Encode a row."""
    if isinstance(row, ApiKey):
        return write_record(row)
    return write_account(row) if isinstance(row, Account) else write_placement(row)


def _as_kept(row: Row | None, at: int, usage: bytes) -> Row | None:
    """Return a row as a commit of an instant has written it, a key with its usage."""
    row = stamped(row, at)
    return ApiKey(*row[:-2], *read_usage(usage)) if isinstance(row, ApiKey) else row


def _by_end(place: Place, key: ApiKey, *score: bytes) -> tuple[bytes, ...]:
    """Return the index of a key by its end, a score, and the key's member there."""
    index = place.live if key.revoked_at is None else place.ended
    return index, *score, write_place(Position(key.ends_at, key.id))


def _hinted_at(account: Account) -> int:
    """Return the instant at which an account is in the indexes of other slots."""
    return account.created_at if account.claimed_by is None else account.claimed_at or 0


def _enter(name: bytes, at: int, organization: str, *options: bytes) -> Call:
    values = *options, number(at), write(organization)
    return command(slot_of(name), b"ZADD", name, *values, repeatable=True)


def _leave(name: bytes, organization: str) -> Call:
    return command(slot_of(name), b"ZREM", name, write(organization), repeatable=True)
