"""Accounts in Redis: the verbs of accounts and the indexes that lead to them.

An account lies with its organization, so both are written in one step with the first key. Indexes
by token, e-mail, user and time of review lie in other slots of a Cluster: they are written first,
and each entry is only a hint that is compared with the account itself.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, cast

from ...core.accounts import Account, AccountDraft
from ...core.api_keys import ApiKey, KeyDraft, Position
from ...core.changes import ChangeDraft
from ...core.digests import Digest
from ...core.timestamps import HOUR, MILLISECOND, SECOND
from ...errors import HandleTaken
from ...sync import together
from ..answers import UNSEALED, Reseal, StoreError, reading_state
from ..base import PAGE_AT_MOST
from .codec import (
    RECORDS,
    Claim,
    read_account,
    read_key,
    write_account,
    write_change,
    write_claim,
    write_digest,
    write_key,
    write_seal,
    write_user,
)
from .key_names import KEYS, KEYS_AND_WINDOWS, ORGANIZATION, read, slot_of, write
from .keys import Keys
from .transport.client import confirmed
from .transport.commands import Call, Script, command, number
from .transport.failures import Refused

_REGISTER: Final = Script("accounts.lua", "register", KEYS)
_CLAIM: Final = Script("accounts.lua", "claim", KEYS_AND_WINDOWS, repeatable=True, is_change=True)
_REMOVE_UNCLAIMED: Final = Script("accounts.lua", "remove_unclaimed", KEYS)
_SIGN_IN: Final = Script("accounts.lua", "sign_in", ORGANIZATION, repeatable=True)
_SIGN_OUT: Final = Script("accounts.lua", "sign_out", ORGANIZATION)
_REHASH_TOKEN: Final = Script("accounts.lua", "rehash_token", ORGANIZATION)


class Accounts(Keys):
    """The verbs of :class:`~lockgate.stores.base.AccountStore`."""

    @confirmed
    async def register(
        self,
        account: AccountDraft,
        key: KeyDraft,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> tuple[Account, ApiKey]:
        organization = account.organization
        place = self._names.place(organization)
        claims = (
            (self._names.handle(key.handle), write_claim(Claim(organization, key.id))),
            (self._names.token(account.handle), write(organization)),
        )
        now = await self._time(place.slot) if now is None else now
        created = now - now % MILLISECOND
        mine = self._names.email(account.billing_email)
        made: list[tuple[bytes, bytes]] = []
        try:
            for name, claim in claims:
                await self._claim(name, claim)
                made.append((name, claim))
            for index in (mine, self._names.reviews):
                # An account that exists keeps the instant at which it was entered.
                await self._ask(_enter(index, created, organization, b"NX"))
            values = number(now), *write_account(account), *write_key(key)
            answer = await self._ask(place.call(_REGISTER, *values, write_change(change)))
            if answer is None:
                there = await self.account(organization)
                if there is None or there.billing_email != account.billing_email:
                    await self._ask(_leave(mine, organization))
                raise HandleTaken
        except (Refused, HandleTaken):
            for name, claim in made:
                await self._unclaim(name, claim)
            raise
        record, first = cast(list[bytes], answer)
        return read_account(record), read_key(first, None)

    async def account(self, organization: str) -> Account | None:
        place = self._names.place(organization)
        question = command(place.slot, b"HGET", place.organization, b"account", repeatable=True)
        record = await self._ask(question, organization)
        with reading_state(organization, RECORDS):
            return None if record is None else read_account(record)

    async def account_by_token(self, handle: str) -> Account | None:
        name = self._names.token(handle)
        organization = await self._ask(command(slot_of(name), b"GET", name, repeatable=True))
        account = None if organization is None else await self.account(read(organization))
        # The index may be stale: the organization's account may have another token.
        return account if account is not None and account.handle == handle else None

    async def unclaimed_by_email(
        self, billing_email: str, limit: int, after: Position | None = None
    ) -> tuple[Account, ...]:
        name = self._names.email(billing_email)
        found: list[Account] = []
        while len(found) < limit:
            positions = await self._later(name, after, limit - len(found))
            if not positions:
                break
            after = positions[-1]
            accounts = await self._accounts_at(positions)
            await self._forget_missing(name, positions, accounts)
            for account in accounts:
                if account.claimed_by is not None:  # The claimer died before it left this index.
                    await self._ask(_leave(name, account.organization))
                elif account.billing_email == billing_email:
                    found.append(account)
        return tuple(found)

    async def accounts_by_user(
        self, user: str, limit: int, after: Position | None = None
    ) -> tuple[Account, ...]:
        name = self._names.user(user)
        found: list[Account] = []
        while len(found) < limit:
            positions = await self._earlier(name, after, limit - len(found))
            if not positions:
                break
            after = positions[-1]
            accounts = await self._accounts_at(positions)
            found += [account for account in accounts if account.claimed_by == user]
        return tuple(found)

    @confirmed
    async def claim_if_unclaimed(
        self,
        organization: str,
        user: str,
        *,
        revoke: bool,
        keep_token: bool,
        seals: Reseal = UNSEALED,
        now: int | None = None,
        change: ChangeDraft | None = None,
    ) -> Account | None:
        if await self.account(organization) is None:
            return None
        place, mine = self._names.place(organization), self._names.user(user)
        now = await self._time(place.slot) if now is None else now
        await self._ask(_enter(mine, now, organization, b"NX"))
        values = number(now), write_user(user), number(revoke), number(keep_token)
        text = write_change(change)
        call = place.call(_CLAIM, *values, *map(write_seal, seals), text)
        record, older = await self._change(organization, call)
        account = None if record is None else read_account(record)
        # The claim holds from here on: an index that is not updated only costs a vain look.
        with suppress(StoreError):
            if account is None or account.claimed_by != user:
                await self._ask(_leave(mine, organization))
            else:
                if account.claimed_at != now:
                    await self._ask(_enter(mine, account.claimed_at or now, organization))
                await self._ask(_leave(self._names.email(account.billing_email), organization))
                await self._ask(_leave(self._names.reviews, organization))
        if account is not None and (revoke or not keep_token):
            await self._count_change_of(organization, older)
        return account

    @confirmed
    async def remove_unclaimed(
        self,
        idle: int,
        limit: int,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> tuple[str, ...]:
        now = await self.now() if now is None else now
        edge = now - idle
        due = await self._ask(
            command(
                slot_of(self._names.reviews),
                *(b"ZRANGEBYSCORE", self._names.reviews, b"-inf", number(edge)),
                *(b"LIMIT", b"0", number(limit)),
                repeatable=True,
            )
        )
        names = [read(member) for member in cast(list[bytes], due)]
        removed = [name for name in names if await self._remove_unclaimed(name, edge, now, change)]
        if removed:
            await self._count_change()
        return tuple(sorted(removed))

    async def _remove_unclaimed(
        self, organization: str, edge: int, now: int, change: ChangeDraft | None
    ) -> bool:
        place = self._names.place(organization)
        account = await self.account(organization)
        after: Position | None = None
        while True:
            keys = await self.list(organization, PAGE_AT_MOST, after)
            for key in keys:
                # A claim without an end: a handle stays taken after its key is removed.
                claim = write_claim(Claim(organization, key.id))
                name = self._names.handle(key.handle)
                await self._ask(command(slot_of(name), b"SET", name, claim, b"XX", repeatable=True))
            if len(keys) < PAGE_AT_MOST:
                break
            after = Position(keys[-1].created_at, keys[-1].id)
        values = number(now), number(edge), write_change(change)
        answer: bytes = await self._ask(place.call(_REMOVE_UNCLAIMED, *values))
        if answer in {b"removed", b"gone"} and account is not None:
            await self._ask(_leave(self._names.email(account.billing_email), organization))
            await self._unclaim(self._names.token(account.handle), write(organization))
            await self.remove_all_histories(place)
        if answer in {b"removed", b"gone", b"never"}:
            await self._ask(_leave(self._names.reviews, organization))
        else:
            await self._ask(_enter(self._names.reviews, int(answer), organization, b"XX"))
        return answer == b"removed"

    async def sign_in(self, organization: str, now: int | None = None) -> Account | None:
        place = self._names.place(organization)
        record = await self._ask(place.call(_SIGN_IN, number(now)))
        return None if record is None else read_account(record)

    @confirmed
    async def sign_out(self, organization: str) -> None:
        await self._ask(self._names.place(organization).call(_SIGN_OUT))
        await self._count_change()

    @confirmed
    async def rehash_token_if(self, handle: str, old: Digest, new: Digest) -> bool:
        account = await self.account_by_token(handle)
        if account is None:
            return False
        place = self._names.place(account.organization)
        values = *write_digest(old), *write_digest(new)
        return bool(await self._ask(place.call(_REHASH_TOKEN, *values)))

    async def _later(self, name: bytes, after: Position | None, count: int) -> list[Position]:
        """Return entries of an index after a position, in ascending order."""
        edge = b"-inf" if after is None else number(after.instant)
        return await self._entries(
            name,
            count,
            lambda entry: after is None or entry > after,
            *(b"ZRANGEBYSCORE", edge, b"+inf"),
        )

    async def _earlier(self, name: bytes, before: Position | None, count: int) -> list[Position]:
        """Return entries of an index before a position, in descending order."""
        edge = b"+inf" if before is None else number(before.instant)
        return await self._entries(
            name,
            count,
            lambda entry: before is None or entry < before,
            *(b"ZREVRANGEBYSCORE", edge, b"-inf"),
        )

    async def _entries(
        self, name: bytes, count: int, which: Callable[[Position], bool], verb: bytes, *edges: bytes
    ) -> list[Position]:
        """Return the first entries of a range that meet a condition, which the first few do not."""
        passed = 0
        while True:
            limit = b"WITHSCORES", b"LIMIT", number(passed), number(count)
            call = command(slot_of(name), verb, name, *edges, *limit, repeatable=True)
            found = cast(list[bytes], await self._ask(call))
            pairs = zip(found[::2], found[1::2], strict=True)
            entries = [Position(int(float(score)), read(member)) for member, score in pairs]
            wanted = list(filter(which, entries))
            if wanted or len(entries) < count:
                return wanted
            passed += count

    async def _accounts_at(self, positions: list[Position]) -> list[Account]:
        """Return the accounts that exist at the entries of an index, by one shared round trip."""
        accounts = await together(self.account(position.id) for position in positions)
        return [account for account in accounts if account is not None]

    async def _forget_missing(
        self, name: bytes, positions: list[Position], accounts: list[Account]
    ) -> None:
        """Remove index entries without an account, unless a registration may be under way."""
        missing = {entry.id for entry in positions}
        missing -= {account.organization for account in accounts}
        if missing:
            long_ago = await self.now() - HOUR
            for at, organization in positions:
                if organization in missing and at < long_ago:
                    await self._ask(_leave(name, organization))

    async def _time(self, slot: int) -> int:
        """Return the clock of the server of a slot, which also stamps the account."""
        seconds, micros = await self._ask(command(slot, b"TIME", repeatable=True))
        return int(seconds) * SECOND + int(micros)


def _enter(name: bytes, at: int, organization: str, *options: bytes) -> Call:
    values = *options, number(at), write(organization)
    return command(slot_of(name), b"ZADD", name, *values, repeatable=True)


def _leave(name: bytes, organization: str) -> Call:
    return command(slot_of(name), b"ZREM", name, write(organization), repeatable=True)
