"""Checks that no verb restores a field that another changes, and of what appears together."""

from collections.abc import Awaitable, Callable

from ...core.accounts import AccountDraft
from ...core.api_keys import ApiKey
from ...core.digests import Digest
from ...core.timestamps import DAY
from ...stores.base import PAGE_AT_MOST
from ..factories import NOW
from ..writers import TURNS, TURNS_AT_MOST, Owner, Subject, told
from .callers import Callers, breathe
from .check import Check, crowded

ACCOUNTS = 8
ROUNDS = 6


async def _write_at_once(crowd: Callers, owners: tuple[Owner, ...], *, account: bool) -> None:
    """Run a writer per field; each goes on until every other has made its turns."""
    store, subject = crowd.store, Subject(account=account)
    owners += ("usage",)
    await subject.create(store)
    writers = subject.writers(owners)
    busy = set(range(len(writers)))

    async def work(index: int) -> int:
        writer, turn = writers[index], 0
        while busy and turn < TURNS_AT_MOST:
            if turn:
                found = await writer.reads[turn % len(writer.reads)](store)
                said = told(writer, turn, found)
                crowd.see(found == writer.expected(turn), said, writer.sentence)
            turn += 1
            done = await writer.write(store, turn)
            said = f"{writer.verb}() was refused in turn {turn}, although no other call changed it."
            crowd.see(done is None or bool(done), said, writer.sentence)
            if turn == TURNS:
                busy.discard(index)
            await breathe()
        busy.discard(index)
        return turn

    turns = await crowd.at_once(len(writers), work)
    for writer, turn in zip(writers, turns, strict=True):
        for read in writer.reads:
            found = await read(store)
            crowd.see(found == writer.expected(turn), told(writer, turn, found), writer.sentence)


@crowded("D43", "keys")
async def no_verb_restores_a_field_of_a_key_that_another_changes(crowd: Callers) -> None:
    await _write_at_once(crowd, ("keys",), account=False)


@crowded("D15", "accounts")
async def no_verb_restores_a_field_of_an_account_that_another_changes(crowd: Callers) -> None:
    await _write_at_once(crowd, ("keys", "accounts", "plans"), account=True)


@crowded("W3", "admission")
async def no_verb_restores_what_another_changes(crowd: Callers) -> None:
    """An organization may be one record or one row, which every verb writes."""
    history: tuple[Owner, ...] = ("history",) if crowd.store.keeps_history else ()
    owners: tuple[Owner, ...] = (
        "keys",
        "accounts",
        "plans",
        "windows",
        "slots",
        "changes",
        *history,
    )
    await _write_at_once(crowd, owners, account=True)


Found = Callable[[], Awaitable[object]]


@crowded("R1", "accounts")
async def an_account_and_its_first_key_appear_together(crowd: Callers) -> None:
    """Readers continue until the last account is registered."""
    store, factory = crowd.store, crowd.factory
    names = [f"org_{number}" for number in range(ACCOUNTS)]
    drafts = [(factory.account(name), factory.draft(name)) for name in names]
    present = 0
    done = False

    def parts(number: int) -> tuple[list[tuple[str, Found]], list[tuple[str, Found]]]:
        account, key = drafts[number]

        return [
            ("account()", lambda: store.account(account.organization)),
            ("account_by_token()", lambda: store.account_by_token(account.handle)),
        ], [
            ("find()", lambda: store.find(key.handle)),
            ("get()", lambda: store.get(key.organization, key.id)),
            ("list()", lambda: store.list(key.organization, PAGE_AT_MOST)),
        ]

    async def read(index: int) -> None:
        turn = 0
        while not done:
            accounts, keys = parts(min(present, ACCOUNTS - 1))
            if index % 2:
                accounts, keys = keys, accounts
            name, first = accounts[turn % len(accounts)]
            other, second = keys[turn // 6 % len(keys)]
            if await first():
                said = f"{name} finds an account or its key, and {other} after it not the other."
                crowd.see(bool(await second()), said)
            turn += 1
            await breathe()

    async def work(index: int) -> None:
        nonlocal present, done
        if index:
            await read(index)
            return
        try:
            for present, (account, key) in enumerate(drafts):  # noqa: B007 - the readers' place
                await store.register(account, key, NOW)
        finally:
            done = True

    await crowd.at_once(5, work)
    removed = await store.remove_unclaimed(DAY, 2 * ACCOUNTS, NOW + DAY)
    crowd.see(removed == tuple(names), f"{removed} were removed of {names}.", "D46")


@crowded("K9", "keys")
async def a_revocation_and_a_new_digest_both_hold(crowd: Callers) -> None:
    store = crowd.store
    for turn in range(ROUNDS):
        key = await store.insert(crowd.factory.draft(), None, NOW)
        new = Digest("new", turn.to_bytes(32), None)

        async def work(index: int, key: ApiKey = key, new: Digest = new) -> bool:
            if index:
                return await store.rehash_if(key.handle, key.kept, new)
            return await store.revoke_if_live("org_1", key.id, NOW + 1) is not None

        _, *rehashed = await crowd.at_once(3, work)
        found = await store.find(key.handle)
        crowd.see(found is not None and found.revoked_at == NOW + 1, "It is not revoked.", "K3")
        said = "rehash_if() succeeded beside a revocation, and the digest is the old one."
        crowd.see(found is not None and (found.kept == new or not any(rehashed)), said)


@crowded("D46", "accounts")
async def no_verb_restores_a_token_that_a_claim_ended(crowd: Callers) -> None:
    """The other verbs continue until the claim is answered, so that each is at work beside it."""
    for turn in range(ROUNDS):
        account = crowd.factory.account(f"org_{turn}")
        await crowd.store.register(account, crowd.factory.draft(f"org_{turn}"), NOW)
        await _verbs_beside_a_claim(crowd, account)
        found = await crowd.store.account(account.organization)
        ended = found and found.token_revoked_at
        said = f"A claim ended the token at {NOW + 1}; after verbs at the same time it is {ended}."
        crowd.see(ended == NOW + 1, said)


async def _verbs_beside_a_claim(crowd: Callers, account: AccountDraft) -> None:
    store, id = crowd.store, account.organization
    digests = Digest(account.scheme, account.digest, account.seal), Digest("new", b"new", None)
    claimed, turns = False, [0] * 4

    async def work(index: int) -> None:
        nonlocal claimed
        if index == 0:
            while min(turns[1:]) < 2:
                await breathe()
            await store.claim_if_unclaimed(id, "ada", revoke=False, keep_token=False, now=NOW + 1)
            claimed = True
        while not claimed:
            turns[index] += 1
            if index == 1:
                await store.sign_in(id, NOW + 1)
            elif index == 2:
                await store.sign_out(id)
            else:
                old, new = digests[:: 1 if turns[index] % 2 else -1]
                await store.rehash_token_if(account.handle, old, new)
            await breathe()

    await crowd.at_once(4, work)


CHECKS: tuple[Check, ...] = (
    no_verb_restores_a_field_of_a_key_that_another_changes,
    no_verb_restores_a_field_of_an_account_that_another_changes,
    no_verb_restores_what_another_changes,
    a_revocation_and_a_new_digest_both_hold,
    no_verb_restores_a_token_that_a_claim_ended,
    an_account_and_its_first_key_appear_together,
)
