"""The store: its verbs, each once, over whichever lane the caller is in."""

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from redis.exceptions import ResponseError

from ...errors import HandleTaken, KeyLimitReached
from ...rules.accounts import Account
from ...rules.digests import Digest
from ...rules.instants import SECOND
from ...rules.keys import ApiKey, KeyDraft
from ...rules.plans import Organization
from ...rules.seals import Counted, tally
from ...rules.slots import Lease, SlotReading
from ..advising import Adviser
from ..contract import UNSEALED, Io, Reseal, Rows, Usage
from ..lanes import Lanes
from .accounts import Accounts
from .admissions import Admissions
from .advice import advice
from .calls import Call, Script, command, invocation, number
from .copies import Copies
from .encoding import (
    account_in,
    counted,
    read_key,
    read_keys,
    read_lease,
    read_placement,
    write_digest,
    write_key,
    write_placement,
)
from .lanes import Lane
from .lines import Line
from .names import DEFAULT_PREFIX, Names, fields_of, slot_of, write
from .servers import Client, servers_of
from .sights import Sights
from .turns import Turns

_INSERT: Final = Script("clock", "records", "insert")
_REVOKE: Final = Script("clock", "records", "revoke")
_REHASH: Final = Script("records", "rehash")
_USE: Final = Script("use")
_ACQUIRE: Final = Script("clock", "slots", "acquire")
_RENEW: Final = Script("clock", "slots", "renew")
_RELEASE: Final = Script("clock", "slots", "release")
_HELD: Final = Script("clock", "slots", "held")

_SCANNED_AT_ONCE: Final = b"1000"


class RedisStore(Admissions, Accounts, Copies):
    """Keeps everything in Redis or Valkey: one server, one that Sentinels watch, or a Cluster.

    An admission is one call of one script on the server that has the organization. The script
    compares what this process remembers of the key with what is kept; where anything differs it
    counts nothing and sends the fresh values back. The server's clock decides (D27).

    Args:
        sources: a URL; or a client of redis-py's, one that blocks, one that awaits, or one of
            each. From a URL, a store serves event loops and threads alike. Of a client the store
            takes the settings; its connections are its own.
        prefix: what all names start with.

    Raises:
        ConfigurationError: a URL that cannot be read, two clients of one colour, or a prefix that
            cannot be one.
    """

    def __init__(self, *sources: Client | str, prefix: str = DEFAULT_PREFIX) -> None:
        self._names = Names(prefix)
        self.keeps_time = True
        adviser = Adviser("Redis", advice)
        blocking, awaiting = (
            None if servers is None else partial(Lane, servers, Turns(servers.addresses), adviser)
            for servers in servers_of(sources)
        )
        self._blocking = None if blocking is None else blocking(awaiting=False)
        draw = None if awaiting is None else partial(awaiting, awaiting=True)
        self._lanes = Lanes(self._blocking, draw)
        self.io: Io = self._lanes.io
        self._sights = Sights()

    async def now(self) -> int:
        seconds, micros = await self._ask(command(0, b"TIME", repeatable=True))
        return int(seconds) * SECOND + int(micros)

    async def insert(self, draft: KeyDraft, cap: int | None, now: int | None = None) -> ApiKey:
        place = self._names.place(draft.organization)
        # The handle lies elsewhere in a Cluster: it is claimed first, and given back if need be.
        claimed = await self._claim_for_key(draft)
        try:
            answer = await self._ask(
                invocation(
                    _INSERT,
                    place.slot,
                    (place.organization, place.live),
                    *(number(now), number(cap), *write_key(draft)),
                )
            )
        except ResponseError:
            await self._unclaim(*claimed)
            raise
        if isinstance(answer, list):
            return read_key(cast(list[bytes], answer)[0], None)
        await self._unclaim(*claimed)
        if answer == b"cap":
            raise KeyLimitReached(cap or 0)
        raise HandleTaken

    async def find(self, handle: str) -> ApiKey | None:
        claimed = await self._claimed(handle)
        return None if claimed is None else await self.get(*claimed)

    async def get(self, organization: str, id: str) -> ApiKey | None:
        record, usage, _ = await self._kept(organization, id)
        return None if record is None else read_key(record, usage)

    async def list(self, organization: str) -> list[ApiKey]:
        place = self._names.place(organization)
        question = command(place.slot, b"HGETALL", place.organization, repeatable=True)
        keys = read_keys(await self._ask(question))
        return sorted(keys, key=lambda key: (-key.created_at, key.id))

    async def revoke_if_live(
        self, organization: str, id: str, now: int | None = None
    ) -> ApiKey | None:
        place = self._names.place(organization)
        answer = await self._ask(
            invocation(
                _REVOKE,
                place.slot,
                (place.organization, place.live),
                *(number(now), write(id)),
                repeatable=True,
            )
        )
        if answer is None:
            return None
        await self._move()
        return read_key(*cast(list[bytes], answer))

    async def rehash_if(self, handle: str, old: Digest, new: Digest) -> bool:
        claimed = await self._claimed(handle)
        if claimed is None:
            return False
        organization, id = claimed
        place = self._names.place(organization)
        values = fields_of(id)[0], *write_digest(old), *write_digest(new)
        call = invocation(_REHASH, place.slot, [place.organization], *values)
        moved = bool(await self._ask(call))
        if moved:
            await self._move()
        return moved

    async def add_usage(self, usage: Mapping[str, Usage]) -> None:
        for handle, (requests, last_used_at) in usage.items():
            if (claimed := await self._claimed(handle)) is None:
                continue
            organization, id = claimed
            place = self._names.place(organization)
            values = *fields_of(id), number(requests), number(last_used_at)
            await self._ask(invocation(_USE, place.slot, [place.organization], *values))

    async def census(self, now: int | None = None) -> dict[str, int]:
        now = await self.now() if now is None else now
        rows: list[Counted] = []
        async for hash in self._hashes():
            kept = await self._ask(command(slot_of(hash), b"HGETALL", hash, repeatable=True))
            rows += counted(kept, now)
        return tally(rows)

    async def acquire(
        self,
        organization: str,
        job: str,
        owner: str,
        limit: int | None,
        span: int,
        now: int | None = None,
    ) -> SlotReading:
        values = write(job), write(owner), number(limit), number(span)
        held, *lease = await self._slots(_ACQUIRE, organization, now, *values, repeatable=True)
        return SlotReading(read_lease(lease[0]) if lease else None, held, limit)

    async def renew(
        self, organization: str, job: str, owner: str, span: int, now: int | None = None
    ) -> Lease | None:
        values = write(job), write(owner), number(span)
        lease = await self._slots(_RENEW, organization, now, *values, repeatable=True)
        return None if lease is None else read_lease(lease)

    async def release(
        self, organization: str, job: str, owner: str, now: int | None = None
    ) -> bool:
        return bool(await self._slots(_RELEASE, organization, now, write(job), write(owner)))

    async def held(self, organization: str, now: int | None = None) -> tuple[Lease, ...]:
        leases = await self._slots(_HELD, organization, now, repeatable=True)
        return tuple(read_lease(lease) for lease in sorted(leases))

    async def organization(self, id: str) -> Organization | None:
        place = self._names.place(id)
        question = command(place.slot, b"HGET", place.organization, b"plan", repeatable=True)
        return read_placement(id, await self._ask(question))

    async def put_organization(self, organization: Organization) -> None:
        place = self._names.place(organization.id)
        placed = write_placement(organization)
        await self._ask(command(place.slot, b"HSET", place.organization, b"plan", placed))
        await self._move()

    async def claim_if_unclaimed(
        self,
        organization: str,
        user: str,
        *,
        revoke: bool,
        seals: Reseal = UNSEALED,
        now: int | None = None,
    ) -> Account | None:
        account = await super().claim_if_unclaimed(
            organization, user, revoke=revoke, seals=seals, now=now
        )
        if revoke and account is not None:
            await self._move()
        return account

    def start_over(self) -> None:
        self._lanes.here().start_over()

    async def close(self) -> None:
        await self._lanes.close()
        if self._blocking is not None:
            await self._blocking.close()

    async def _ask(self, call: Call) -> Any:
        lane = self._lanes.here()
        reply = await lane.ask(call)
        return await lane.insist(call, reply) if isinstance(reply, Exception) else reply

    async def _slots(
        self,
        script: Script,
        organization: str,
        now: int | None,
        *values: bytes,
        repeatable: bool = False,
    ) -> Any:
        place = self._names.place(organization)
        keys = place.leases, place.deadlines
        values = number(now), *values
        return await self._ask(invocation(script, place.slot, keys, *values, repeatable=repeatable))

    async def scan(self, cursor: str | None, limit: int) -> Rows:
        # Server by server, each by its own cursor.
        server, _, begun = (cursor or "0:0").partition(":")
        number, at = int(server), begun.encode()
        lines = await self._lanes.here().everyone()
        keys: list[ApiKey] = []
        accounts: list[Account] = []
        while number < len(lines) and len(keys) + len(accounts) < limit:
            at, names = await self._scan(lines[number], at, b"%d" % max(1, limit))
            for name in names:
                hash = await self._ask(command(slot_of(name), b"HGETALL", name, repeatable=True))
                keys += read_keys(hash)
                accounts += [] if (account := account_in(hash)) is None else [account]
            if at == b"0":
                number += 1
        return Rows(keys, accounts, f"{number}:{at.decode()}" if number < len(lines) else None)

    async def _hashes(self) -> AsyncIterator[bytes]:
        """The names of all organizations' hashes."""
        seen: set[bytes] = set()
        for line in await self._lanes.here().everyone():
            cursor = b"0"
            while True:
                cursor, names = await self._scan(line, cursor, _SCANNED_AT_ONCE)
                for name in names:
                    if name not in seen:
                        seen.add(name)
                        yield name
                if cursor == b"0":
                    break

    async def _scan(self, line: Line, cursor: bytes, count: bytes) -> tuple[bytes, Sequence[bytes]]:
        """Some of the names of organizations' hashes on a server, and where to go on."""
        scan = b"SCAN", cursor, b"MATCH", self._names.pattern, b"COUNT", count
        answer = await line.ask(command(0, *scan))
        if isinstance(answer, Exception):
            raise answer
        cursor, names = cast(tuple[bytes, Sequence[bytes]], answer)
        return cursor, [name for name in names if name.endswith(b"}")]
