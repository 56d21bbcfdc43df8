"""Accounts in Redis: the verbs of accounts, which a store is made of.

An account lies with its organization, so both are written in one step, with the first key. Indexes
by token, e-mail and user lie elsewhere in a Cluster: they are written before, and say only where to
look. What they say is compared with the account itself.
"""

from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from redis.exceptions import RedisError, ResponseError

from ...errors import HandleTaken
from ...rules.accounts import Account, AccountDraft
from ...rules.digests import Digest
from ...rules.instants import MINUTE
from ...rules.keys import ApiKey, KeyDraft
from ...waiting import together
from ..contract import UNSEALED, Reseal, Store
from .calls import Call, Script, command, invocation, number
from .encoding import (
    Claim,
    read_account,
    read_claim,
    read_key,
    write_account,
    write_claim,
    write_digest,
    write_key,
    write_seal,
    write_user,
)
from .names import REMOVED, Names, read, slot_of, write

_REGISTER: Final = Script("clock", "records", "accounts", "register")
_CLAIM: Final = Script("clock", "records", "accounts", "claim")
_SIGN_OUT: Final = Script("accounts", "sign_out")
_REHASH_TOKEN: Final = Script("accounts", "rehash_token")
_UNCLAIM: Final = Script("unclaim")

_CLAIMED_AT_MOST: Final = MINUTE
"""How long after its claim a key may be inserted at the latest: no call takes a tenth of it."""


class Accounts(Store):
    """The verbs of accounts, and the claims of handles that they share with those of keys."""

    _names: Names

    @abstractmethod
    async def _ask(self, call: Call) -> Any:
        """Make a call and give its reply."""

    async def register(
        self, account: AccountDraft, key: KeyDraft, now: int | None = None
    ) -> tuple[Account, ApiKey]:
        organization = account.organization
        place = self._names.place(organization)
        claims = (
            (self._names.handle(key.handle), write_claim(Claim(organization, key.id))),
            (self._names.token(account.handle), write(organization)),
        )
        mine = self._names.email(account.billing_email)
        made: list[tuple[bytes, bytes]] = []
        try:
            for name, claim in claims:
                await self._claim(name, claim)
                made.append((name, claim))
            await self._ask(_index(b"SADD", mine, organization))
            answer = await self._ask(
                invocation(
                    _REGISTER,
                    place.slot,
                    place.keys,
                    *(number(now), *write_account(account), *write_key(key)),
                )
            )
            if answer is None:
                there = await self.account(organization)
                if there is None or there.billing_email != account.billing_email:
                    await self._ask(_index(b"SREM", mine, organization))
                raise HandleTaken
        except (ResponseError, HandleTaken):
            for name, claim in made:
                await self._unclaim(name, claim)
            raise
        record, first = cast(list[bytes], answer)
        return read_account(record), read_key(first, None)

    async def account(self, organization: str) -> Account | None:
        place = self._names.place(organization)
        question = command(place.slot, b"HGET", place.organization, b"account", repeatable=True)
        record = await self._ask(question)
        return None if record is None else read_account(record)

    async def account_by_token(self, handle: str) -> Account | None:
        name = self._names.token(handle)
        organization = await self._ask(command(slot_of(name), b"GET", name, repeatable=True))
        account = None if organization is None else await self.account(read(organization))
        # The organization may have got its account by another token.
        return account if account is not None and account.handle == handle else None

    async def accounts_by_email(self, billing_email: str) -> tuple[Account, ...]:
        accounts = await self._listed(
            self._names.email(billing_email), lambda a: a.billing_email == billing_email
        )
        return tuple(sorted(accounts, key=lambda a: (-a.created_at, a.organization)))

    async def accounts_by_user(self, user: str) -> tuple[Account, ...]:
        accounts = await self._listed(self._names.user(user), lambda a: a.claimed_by == user)
        return tuple(sorted(accounts, key=lambda a: (-(a.claimed_at or 0), a.organization)))

    async def claim_if_unclaimed(
        self,
        organization: str,
        user: str,
        *,
        revoke: bool,
        seals: Reseal = UNSEALED,
        now: int | None = None,
    ) -> Account | None:
        if await self.account(organization) is None:
            return None
        place = self._names.place(organization)
        await self._ask(_index(b"SADD", self._names.user(user), organization))
        record = await self._ask(
            invocation(
                _CLAIM,
                place.slot,
                place.keys,
                *(number(now), write_user(user), number(revoke), *map(write_seal, seals)),
                repeatable=True,
            )
        )
        account = None if record is None else read_account(record)
        if account is not None and account.claimed_by != user:
            with suppress(RedisError):  # It says where to look, and nothing is there.
                await self._ask(_index(b"SREM", self._names.user(user), organization))
        return account

    async def sign_out(self, organization: str) -> None:
        place = self._names.place(organization)
        await self._ask(invocation(_SIGN_OUT, place.slot, [place.organization]))

    async def rehash_token_if(self, handle: str, old: Digest, new: Digest) -> bool:
        account = await self.account_by_token(handle)
        if account is None:
            return False
        place = self._names.place(account.organization)
        values = *write_digest(old), *write_digest(new)
        call = invocation(_REHASH_TOKEN, place.slot, [place.organization], *values)
        return bool(await self._ask(call))

    async def _listed(self, name: bytes, which: Callable[[Account], bool]) -> list[Account]:
        members = await self._ask(command(slot_of(name), b"SMEMBERS", name, repeatable=True))
        # Anybody may register with an address, every day: together they share round trips.
        accounts = await together(self.account(read(m)) for m in cast(list[bytes], members))
        return [account for account in accounts if account is not None and which(account)]

    async def _claim(self, name: bytes, claim: bytes) -> None:
        """Claim a handle.

        Raises:
            HandleTaken: somebody has it.
        """
        if await self._ask(command(slot_of(name), b"SET", name, claim, b"NX")) is None:
            raise HandleTaken

    async def _claim_for_key(self, key: KeyDraft) -> tuple[bytes, bytes]:
        """Claim the handle of a key that is inserted next, and give the claim by its name.

        Whoever claimed it before may have lost its connection, or died, before it inserted a key.
        The handles of other systems' keys are not drawn anew, so such a claim has an end.

        Raises:
            HandleTaken: another key has it, or is just about to.
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
                if since is None or now - since < _CLAIMED_AT_MOST:
                    raise
                if await self.get(organization, id) is not None:
                    raise
                await self._unclaim(name, there)
            await self._claim(name, claim)
        return name, claim

    async def _unclaim(self, name: bytes, claim: bytes) -> None:
        with suppress(RedisError):  # A handle that nobody has is lost: there are 62**8 of them.
            await self._ask(invocation(_UNCLAIM, slot_of(name), [name], claim))


def _index(verb: bytes, name: bytes, organization: str) -> Call:
    return command(slot_of(name), verb, name, write(organization))
