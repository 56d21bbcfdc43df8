"""The store: its verbs, each once, over whichever lane the caller is in."""

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, Final, cast

from ...core.accounts import Account
from ...core.api_keys import NEVER, ApiKey, KeyDraft, Position
from ...core.bounded_dict import BoundedDict
from ...core.digests import Digest
from ...core.leases import Lease, SlotReading
from ...core.plans import Organization
from ...core.row_seals import Counted, counted_account, tally
from ...errors import ConfigurationError, HandleTaken, KeyLimitReached
from ...events import Events
from ...waiting import together
from ..base import (
    UNSEALED,
    Census,
    IoMode,
    Page,
    Removal,
    Reseal,
    Rows,
    Usage,
    reading_state,
)
from ..resilience.circuit_breaker import CircuitBreakers
from ..runtime.log_hints import Adviser
from ..runtime.per_loop import PerLoop
from .accounts import Accounts
from .admission import USE, Admissions
from .cache import Copies
from .codec import (
    RECORDS,
    read_account,
    read_counted,
    read_key,
    read_keys,
    read_lease,
    read_placement,
    write_digest,
    write_key,
    write_place,
    write_placement,
)
from .error_hints import advice
from .key_hints import AT_MOST, KeyHint
from .key_names import (
    DEFAULT_PREFIX,
    REMOVED,
    Names,
    Place,
    fields_of,
    place_of,
    read,
    slot_of,
    write,
)
from .transport.client import Transport, lasting
from .transport.commands import Call, Script, command, invocation, number
from .transport.config import Client, Servers, servers_of
from .transport.connection import Refused, Split, reraise
from .transport.seed_nodes import SeedNodes
from .transport.sentinels import Watch

_INSERT: Final = Script("clock", "records", "insert")
_REVOKE: Final = Script("clock", "records", "revoke")
_MARK_REVOKED: Final = Script("clock", "records", "mark_revoked")
_REHASH: Final = Script("records", "rehash")
_NEWEST: Final = Script("records", "page", "newest")
_LIVE: Final = Script("clock", "records", "page", "live")
_DUE: Final = Script("records", "page", "due")
_REMOVE: Final = Script("records", "remove")
_ACQUIRE: Final = Script("clock", "slots", "acquire")
_RENEW: Final = Script("clock", "slots", "renew")
_RELEASE: Final = Script("clock", "slots", "release")
_HELD: Final = Script("clock", "slots", "held")

_INSTANT: Final = 16
"""Digits with which a member of an index begins: see ``records.lua``."""
_SCANNED_AT_ONCE: Final = b"200"
_REMOVED_AT_ONCE: Final = 50
_READ_AT_ONCE: Final = 250
_CLOCKS: Final = range(0, 16384, 1024)
"""Slots of whichever servers: any of them tells the time."""
_DURABILITY: Final = re.compile(r"replicas:([1-9][0-9]?)")
_START: Final = "0 0"
"""The cursor with which a walk over all organizations begins."""


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
        durability: ``"replicas:1"``: a change to keys, plans or accounts is answered once so many
            replicas have it; otherwise the call fails and can be repeated. Only with Sentinels,
            which put a replica in the primary's place. None: a primary that is lost may take
            changes with it that no replica had.

    Raises:
        ConfigurationError: a URL that cannot be read, two clients of one colour, or a prefix or a
            durability that cannot be one.
    """

    def __init__(
        self,
        *sources: Client | str,
        prefix: str = DEFAULT_PREFIX,
        durability: str | None = None,
    ) -> None:
        self._names = Names(prefix)
        self.enforces_deadline = True
        adviser, servers = Adviser("Redis", advice), servers_of(sources)
        replicas = _replicas(durability)
        self._watches: list[Watch] = []

        def lane(reached: Servers) -> Callable[..., Transport]:
            watch = None
            if reached.kind == "sentinel":
                watch = Watch(reached, replicas, self._names.acknowledged)
                self._watches.append(watch)
            elif replicas:
                raise ConfigurationError("durability is for a Redis that Sentinels watch.")
            return partial(Transport, reached, SeedNodes(reached.addresses), adviser, watch)

        blocking, awaiting = (None if each is None else lane(each) for each in servers)
        self._blocking = None if blocking is None else blocking(awaiting=False)
        draw = None if awaiting is None else partial(awaiting, awaiting=True)
        self._lanes = PerLoop(self._blocking, draw)
        self.io: IoMode = self._lanes.io
        self._key_hints = BoundedDict[str, KeyHint](AT_MOST)
        self._nodes = CircuitBreakers(type(self).__name__)
        self._is_cluster = any(lane is not None and lane.kind == "cluster" for lane in servers)

    def watch(self, events: Events, deadline: float) -> bool:
        if self._is_cluster:
            self._nodes.watch(events, deadline)
        return self._is_cluster

    async def now(self) -> int:
        lane, failing = self._lanes.here(), self._nodes.failing
        slots = (slot for slot in _CLOCKS if not failing or lane.node(slot) not in failing)
        return await self._time(next(slots, 0))

    @lasting
    async def insert(self, draft: KeyDraft, cap: int | None, now: int | None = None) -> ApiKey:
        place = self._names.place(draft.organization)
        # The handle lies elsewhere in a Cluster: it is claimed first, and given back if need be.
        claimed = await self._claim_for_key(draft)
        try:
            answer = await self._ask(
                invocation(
                    _INSERT,
                    place.slot,
                    place.keys,
                    *(number(now), number(cap), *write_key(draft)),
                )
            )
        except Refused:
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
        with reading_state(organization, RECORDS):
            return None if record is None else read_key(record, usage)

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

    @lasting
    async def revoke_if_live(
        self, organization: str, id: str, now: int | None = None
    ) -> ApiKey | None:
        place = self._names.place(organization)
        values = number(now), write(id)
        call = invocation(_REVOKE, place.slot, place.keys, *values, repeatable=True)
        try:
            answer = await self._ask(call.divisible())
        except Split:
            answer = await self._revoke_by_parts(place, values)
        if answer is None:
            return None
        await self._move()
        return read_key(*cast(list[bytes], answer))

    async def _revoke_by_parts(self, place: Place, values: tuple[bytes, bytes]) -> Any:
        """Do what :data:`_REVOKE` does, one key at a time, while a slot is moved.

        The first call revokes. A caller who dies after it leaves a revoked key among the live ones
        of the index, until the key is revoked again.
        """
        marking = invocation(
            _MARK_REVOKED, place.slot, [place.organization], *values, repeatable=True
        )
        answer = await self._ask(marking)
        if answer is not None:
            key = read_key(*cast(list[bytes], answer))
            expiry = NEVER if key.expires_at is None else key.expires_at
            was, ends = (write_place(Position(at, key.id)) for at in (expiry, key.ends_at))
            for words in ((b"ZREM", place.live, was), (b"ZADD", place.ended, b"0", ends)):
                await self._ask(command(place.slot, *words, repeatable=True))
        return answer

    @lasting
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
            await self._ask(invocation(USE, place.slot, [place.organization], *values))

    @lasting
    async def remove_ended(
        self, age: int, now: int | None = None, cursor: str | None = None
    ) -> Removal:
        until = (await self.now() if now is None else now) - age
        hashes, following = await self._scan(cursor)
        steps = await together(self._remove_ended(hash, until) for hash in hashes)
        removed = sum(removed for removed, _ in steps)
        if removed:
            await self._move()
        is_left = any(is_left for _, is_left in steps)
        return Removal(removed, cursor or _START if is_left else following)

    async def census(self, now: int | None = None, cursor: str | None = None) -> Census:
        now = await self.now() if now is None else now
        rows: list[Counted] = []
        places, cursor = await self._scan(cursor)
        for place in places:
            rows += [row async for row in self._counted(place, now)]
        return Census(tally(rows), cursor)

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
        placed = await self._ask(question, id)
        with reading_state(id, RECORDS):
            return read_placement(id, placed)

    @lasting
    async def put_organization(self, organization: Organization) -> None:
        place = self._names.place(organization.id)
        placed = write_placement(organization)
        await self._ask(command(place.slot, b"HSET", place.organization, b"plan", placed))
        await self._move()

    @lasting
    async def claim_if_unclaimed(
        self,
        organization: str,
        user: str,
        *,
        revoke: bool,
        keep_token: bool,
        seals: Reseal = UNSEALED,
        now: int | None = None,
    ) -> Account | None:
        account = await super().claim_if_unclaimed(
            organization, user, revoke=revoke, keep_token=keep_token, seals=seals, now=now
        )
        if revoke and account is not None:
            await self._move()
        return account

    @lasting
    async def remove_unclaimed(
        self, idle: int, limit: int, now: int | None = None
    ) -> tuple[str, ...]:
        removed = await super().remove_unclaimed(idle, limit, now)
        if removed:
            await self._move()
        return removed

    def reset_connections(self) -> None:
        self._lanes.here().reset_connections()

    async def close(self) -> None:
        await self._lanes.close()
        if self._blocking is not None:
            await self._blocking.close()
        for watch in self._watches:
            watch.close()

    async def _ask(self, call: Call, organization: str | None = None) -> Any:
        lane, nodes = self._lanes.here(), self._nodes
        node, trying = "", False
        if nodes.failing:
            nodes.prune(lane.nodes)
            node = lane.node(call.slot)
            trying = nodes.enter(node)
        asked_at = monotonic()
        try:
            reply = await lane.ask(call)
            if isinstance(reply, Exception):
                reply = await lane.insist(call, reply)
        except BaseException as failure:
            self._judge(lane, call, failure, asked_at, node if trying else None)
            if isinstance(failure, Exception):
                reraise(failure, organization)
            raise
        if nodes.failing:
            nodes.succeeded(node, trying)
        return reply

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
        call = invocation(script, place.slot, keys, *values, repeatable=repeatable)
        return await self._ask(call, organization)

    async def scan(self, cursor: str | None, limit: int) -> Rows:
        keys: list[ApiKey] = []
        accounts: list[Account] = []
        while True:
            places, cursor = await self._scan(cursor)
            for place in places:
                async for page in self._pages(place):
                    keys += page
                account = await self._account(place)
                accounts += [] if account is None else [account]
            if cursor is None or len(keys) + len(accounts) >= limit:
                return Rows(keys, accounts, cursor)

    async def _pages(self, place: Place) -> AsyncIterator[Page]:
        """All keys of an organization, in the order of lists."""
        after: Position | None = None
        while True:
            page = await self._newest(place, _READ_AT_ONCE, after)
            yield page
            if len(page) < _READ_AT_ONCE:
                return
            after = Position(page[-1].created_at, page[-1].id)

    async def _newest(self, place: Place, limit: int, after: Position | None) -> Page:
        start = b"-"
        if after is not None:
            start = b"(" + write_place(after._replace(instant=NEVER - after.instant))
        keys = place.organization, place.created
        values = start, number(limit)
        call = invocation(_NEWEST, place.slot, keys, *values, repeatable=True)
        try:
            fields = await self._ask(call.divisible())
        except Split:
            fields = await self._newest_by_parts(place, *values)
        return read_keys(fields)

    async def _newest_by_parts(self, place: Place, start: bytes, limit: bytes) -> Any:
        """Do what :data:`_NEWEST` does, one key at a time, while a slot is moved."""
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
        """Records and usage of live keys, in turns."""
        start = b"+" if after is None else b"(" + write_place(after)
        values = number(now), start, number(limit)
        keys = place.organization, place.live
        fields: Sequence[bytes | None] = await self._ask(
            invocation(_LIVE, place.slot, keys, *values, repeatable=True)
        )
        return fields

    async def _remove_ended(self, place: Place, until: int) -> tuple[int, bool]:
        """Remove some keys of one organization; how many, and whether more may be left.

        The handles are marked first: a removal that is cut short between is done again, and until
        then the key is in lists only.
        """
        indexes = place.organization, place.live, place.ended
        values = number(until), number(_REMOVED_AT_ONCE)
        due = read_keys(
            await self._ask(invocation(_DUE, place.slot, indexes, *values, repeatable=True))
        )
        if not due:
            return 0, False
        names = [self._names.handle(key.handle) for key in due]
        await together(self._ask(command(slot_of(n), b"SET", n, REMOVED)) for n in names)
        ids = [write(key.id) for key in due]
        removed = await self._ask(invocation(_REMOVE, place.slot, place.keys, *ids))
        return removed, len(due) == _REMOVED_AT_ONCE

    async def _counted(self, place: Place, now: int) -> AsyncIterator[Counted]:
        """Each live key of an organization and its account, as a census counts them."""
        after: Position | None = None
        while True:
            fields = await self._live(place, _READ_AT_ONCE, after, now)
            records = [record for record in fields[::2] if record is not None]
            for record in records:
                yield read_counted(record)
            if len(records) < _READ_AT_ONCE:
                break
            last = read_key(records[-1], None)
            after = Position(last.ends_at, last.id)
        if (account := await self._account(place)) is not None:
            yield counted_account(account)

    async def _account(self, place: Place) -> Account | None:
        call = command(place.slot, b"HGET", place.organization, b"account", repeatable=True)
        kept = await self._ask(call)
        return None if kept is None else read_account(kept)

    async def _scan(self, cursor: str | None) -> tuple[Sequence[Place], str | None]:
        """Some organizations, and where to go on; None: these were the last.

        A cursor is the number of a server and a cursor of its ``SCAN``.
        """
        which, start = (cursor or _START).split()
        lines = await self._lanes.here().everyone()
        if int(which) >= len(lines):
            return [], None
        match = b"MATCH", self._names.pattern, b"COUNT", _SCANNED_AT_ONCE
        answer = await lines[int(which)].ask(command(0, b"SCAN", start.encode(), *match))
        if isinstance(answer, Exception):
            reraise(answer)
        following, names = cast(tuple[bytes, list[bytes]], answer)
        places = [place_of(name) for name in dict.fromkeys(names) if name.endswith(b"}")]
        if following != b"0":
            return places, f"{which} {following.decode()}"
        return places, f"{int(which) + 1} 0" if int(which) + 1 < len(lines) else None


def _replicas(durability: str | None) -> int:
    """How many replicas have to acknowledge a change."""
    if durability is None:
        return 0
    found = _DURABILITY.fullmatch(durability)
    if found is None:
        raise ConfigurationError(f"The durability {durability!r} is not like 'replicas:1'.")
    return int(found[1])
