"""Keys: create, list and find them, remove and seal rows (D8 to D10)."""

from collections.abc import Callable, Mapping, Sequence
from heapq import nsmallest
from typing import Final, Literal, NamedTuple, TypeVar

from ...core.allowed_addresses import read_addresses
from ...core.api_keys import ApiKey, KeyDetails, KeyState, Position, read_lifetime
from ...core.changes import drafted_change, key_fields
from ...core.key_format import check_handle
from ...core.key_search import matches
from ...core.labels import check_creator, has_labels, read_labels
from ...core.limits import read_own_limits
from ...core.row_seals import UNSEALED_ROWS, judge_seal, resealed_account, resealed_key, sealed_by
from ...errors import ConfigurationError
from ...stores.answers import Page
from ...stores.base import PAGE_AT_MOST, Store
from ...stores.committed import committing, made_or_raised
from ...stores.runtime.turns import turn
from ...sync import pause
from ..cursors import check_limit, read_cursor, write_cursor
from ..store_errors import asking
from .new_keys import (
    CreatedKey,
    check_new_key,
    draft_key,
    drafted,
    expiry,
    refuse_problems,
    retry_taken_handles,
)
from .overview import READ_AT_ONCE, KeyOverview, Turn, order, position
from .rotation_and_revocation import KeyChanges
from .search import KeysFound, find, of_user

T = TypeVar("T")

LISTED_BY_DEFAULT: Final = 100
_STEPS_AT_MOST: Final = 10
"""Calls of the store for one page of chosen keys."""
_SCANNED_AT_ONCE: Final = 500
_ENDING_SHOWN: Final = 10


class KeyPage(NamedTuple):
    """Some keys of an organization, newest first."""

    keys: list[ApiKey]
    cursor: str | None
    """The cursor of the next page; None: this is the last page."""


class KeyAges(NamedTuple):
    """The result of :meth:`Keys.ages`."""

    ending: int
    """Live keys without a successor that end within 14 days."""
    first: tuple[ApiKey, ...]
    """Up to ten of these, the first to end first."""
    too_old: int
    """Live keys that outlive the maximum age: they were created before there was one."""


class Sealing(NamedTuple):
    """The result of :meth:`Keys.seal`: numbers of sealed and of refused rows."""

    sealed: int
    refused: int


async def sample(store: Store, organization: str, limit: int, now: int | None) -> tuple[Page, bool]:
    """Return some keys of an organization, live ones before others, and whether there are more.

    The keys are in the order of lists. At most twice ``limit`` keys are read.
    """
    live = await store.list_live(organization, limit, None, now)
    newest = await store.list(organization, limit + 1)
    found = {key.id: key for key in [*live, *newest]}
    return sorted([*found.values()][:limit], key=order), len(found) > limit


def _part(keys: Page, limit: int, after: Position | None) -> tuple[Page, Position | None]:
    """Return the keys behind a position, and that of the last if others follow."""
    if after is not None:
        keys = [key for key in keys if order(key) > (-after.instant, after.id)]
    return keys[:limit], position(keys[limit - 1]) if len(keys) > limit else None


class Keys(KeyChanges):
    """The keys of a gate, as ``gate.keys``."""

    @committing
    async def create(
        self,
        organization: str,
        name: str,
        scopes: Sequence[str] = ("*",),
        expires_in_days: float | None = None,
        *,
        created_by: str | None = None,
        labels: Mapping[str, str] | None = None,
        addresses: Sequence[str] = (),
        limits: Mapping[str, str] | None = None,
        handle: str | None = None,
    ) -> CreatedKey:
        """Create a key for an organization.

        Args:
            organization: its id, 1 to 128 characters; it need not be known before.
            name: 1 to 100 characters for a person to know the key by (D8).
            scopes: what the key may do, 1 to 50 of the catalogue.
            expires_in_days: at least 1/1440 (a minute), at most 36,500 and the gate's
                ``max_age_days``; None: that maximum, or without one it never expires (D7).
            created_by: the creator, for people: 1 to 300 characters; the operation of a session
                writes ``user:<id>`` or ``agent``. It never changes.
            labels: up to 16 names with values, to find the key by.
            addresses: up to 32 IPv4 or IPv6 addresses and networks that may use the key; none:
                any address may.
            limits: up to 4 named limits that each request of the key is charged for, beside the
                plan of its organization: their rates by name, as ``{"export": "3/hour"}``, in the
                grammar of :class:`~lockgate.Limit` (D40).
            handle: the public part of the key by which its row is found, 8 letters and digits;
                None: a random one. A caller that derives it from a request creates one key,
                however often the request is repeated.

        Raises:
            InvalidRequest: arguments are invalid; names all of them.
            HandleTaken: a key has the given ``handle``, or had it.
            KeyLimitReached: the organization already has its maximum of live keys (D8).
            StoreUnavailable: the store did not answer.
        """
        problems: dict[str, list[str]] = {}
        lifetime, problems["expires_in_days"] = read_lifetime(expires_in_days, self.max_age)
        problems["created_by"] = check_creator(created_by)
        sorted_labels, problems["labels"] = read_labels(labels or {})
        networks, problems["addresses"] = read_addresses(addresses)
        own_limits, problems["limits"] = read_own_limits(limits or {})
        problems["handle"] = check_handle(handle)
        name, scopes = check_new_key(organization, name, scopes, self._catalogue, problems)
        details = KeyDetails(None, None, created_by, sorted_labels, networks, own_limits).or_none()

        now = self._now()
        with asking(self._events):
            expires_at, now = await expiry(self._store, lifetime, now)

            async def insert() -> CreatedKey:
                draft, text = draft_key(
                    self._format, organization, name, scopes, expires_at, details, handle
                )
                change = drafted_change("key_created", draft.id, after=key_fields(draft))
                inserted = self._store.insert(draft, self._cap, now, change=change)
                key = await made_or_raised(inserted, lambda: drafted(self._store, draft))
                return CreatedKey(key, text)

            created = await (retry_taken_handles(insert) if handle is None else insert())
        self._events.emit("key_created", organization=organization, id=created.key.id)
        self._retention.used()
        return created

    async def list(
        self,
        organization: str,
        *,
        limit: int = LISTED_BY_DEFAULT,
        cursor: str | None = None,
        labels: Mapping[str, str] | None = None,
        matching: str = "",
        state: KeyState | Literal["active", "revoked", "expired"] | None = None,
    ) -> KeyPage:
        """Return a page of the organization's keys in any state, newest first (D10).

        A page of chosen keys is the result of reading at most 1,000 keys, chosen or not (G10): so
        it may have fewer than ``limit``, or none, although it is not the last. Up to 99 live keys
        are found by reading no others.

        Args:
            organization: its id.
            limit: the number of keys, 1 to 1,000.
            cursor: the ``cursor`` of the previous page; None: the first page.
            labels: only keys with all of these labels.
            matching: only keys whose name contains this text, in any case, or whose displayed
                prefix begins with it.
            state: only keys in this state.

        Raises:
            InvalidRequest: the limit is out of range, the cursor or a label is malformed, or there
                is no such state.
            StoreUnavailable: the store did not answer.
        """
        check_limit(limit)
        seal, of = self._format.peppers.cursors, f"keys {organization}"
        wanted, problems = read_labels(labels or {})
        states = [one.value for one in KeyState]
        known = state is None or isinstance(state, KeyState) or state in states
        refuse_problems(
            {"labels": problems, "state": [] if known else [f"Use one of {', '.join(states)}."]}
        )
        state = None if state is None else KeyState(state)
        after = None if cursor is None else read_cursor(cursor, seal, of)
        now = 0 if state is None else await self.now()

        def is_wanted(key: ApiKey) -> bool:
            return (
                has_labels(key, wanted)
                and matches(key, matching)
                and (state is None or key.state(now) is state)
            )

        with asking(self._events):
            live = await self._all_live(organization, now) if state is KeyState.ACTIVE else None
            if live is not None:
                keys, rest = _part([*filter(is_wanted, live)], limit, after)
            elif wanted or matching or state:
                steps = _STEPS_AT_MOST - (state is KeyState.ACTIVE)  # One has read live keys.
                keys, rest = await self._choose(organization, limit, after, is_wanted, steps)
            else:
                keys, rest = await self._page(organization, limit, after)
        self._retention.used()
        return KeyPage(keys, None if rest is None else write_cursor(rest, seal, of))

    async def _page(
        self, organization: str, limit: int, after: Position | None
    ) -> tuple[Page, Position | None]:
        """Return keys, and the position of the last if others follow."""
        keys: Page = []
        while len(keys) <= limit:  # The extra key shows whether there is another page.
            asked = min(limit + 1 - len(keys), PAGE_AT_MOST)
            page = await self._store.list(organization, asked, after)
            keys += page
            if len(page) < asked:
                return keys, None
            after = position(page[-1])
        return keys[:limit], position(keys[limit - 1])

    async def _all_live(self, organization: str, now: int) -> Page | None:
        """Return all live keys in the order of lists, however many newer ones ended; None: there
        are more than one read returns."""
        page = await self._store.list_live(organization, READ_AT_ONCE, None, now)
        return sorted(page, key=order) if len(page) < READ_AT_ONCE else None

    async def _choose(
        self,
        organization: str,
        limit: int,
        after: Position | None,
        is_wanted: Callable[[ApiKey], bool],
        steps: int,
    ) -> tuple[Page, Position | None]:
        """Return some of the next keys, and the position to continue from; None: none follows."""
        keys: Page = []
        for _ in range(steps):
            async with turn():
                page = await self._store.list(organization, READ_AT_ONCE, after)
                keys += filter(is_wanted, page)
            if len(keys) > limit:
                return keys[:limit], position(keys[limit - 1])
            if len(page) < READ_AT_ONCE:
                return keys, None
            after = position(page[-1])
        return keys, after

    async def find(
        self, text: str, *, limit: int = LISTED_BY_DEFAULT, cursor: str | None = None
    ) -> KeysFound:
        """Find keys of any organization and state, for an operator (never for a caller) (K6).

        Counts nothing. One call does a bounded part of the search, so a page may be empty although
        it is not the last.

        Args:
            text: the id of a key; or its beginning, as lists and pages show it
                (``acme_live_51c0a...``), shorter, but beyond its environment, or longer; or its
                whole text, alone or within another text, which is verified.
            limit: about the number of keys, 1 to 1,000.
            cursor: the ``cursor`` of the previous page; None: the first page.

        Raises:
            InvalidRequest: the limit is out of range, or the cursor is malformed.
            StoreUnavailable: the store did not answer.
        """
        with asking(self._events):
            return await find(self._store, self._format, text, limit, cursor)

    async def of_user(
        self, user: str, *, limit: int = LISTED_BY_DEFAULT, cursor: str | None = None
    ) -> KeysFound:
        """Return keys, in any state, of the organizations whose accounts a user has claimed.

        One call reads the keys of at most 100 accounts (G10), so a page may have fewer than
        ``limit``, or none, although it is not the last.

        Args:
            user: the id of the user, as the identity provider's sessions have it.
            limit: the number of keys, 1 to 1,000.
            cursor: the ``cursor`` of the previous page; None: the first page.

        Raises:
            InvalidRequest: the limit is out of range, or the cursor is malformed.
            StoreUnavailable: the store did not answer.
        """
        with asking(self._events):
            return await of_user(self._store, self._format, user, limit, cursor)

    async def overview(self, organization: str) -> Page:
        """Return all live keys and the newest 1,000 that ended: newest first, then by id (D45).

        Args:
            organization: its id.

        Raises:
            StoreUnavailable: the store did not answer.
        """
        return [*await self.write_overview(organization, lambda key, _: key)]

    async def write_overview(
        self,
        organization: str,
        write: Callable[[ApiKey, int], T],
        turn: Turn = turn,
    ) -> Sequence[T]:
        """Return what a function makes of each key of :meth:`overview`, in that order.

        Args:
            organization: its id.
            write: called with each key and the present in microseconds. At most 100 keys are in
                memory at once.
            turn: each step is made within one, so that the event loop can serve other tasks.

        Raises:
            StoreUnavailable: the store did not answer.
        """
        now = await self.now()
        with asking(self._events):
            reader = KeyOverview(self._store, now, lambda key: write(key, now), turn)
            shown = await reader.read(organization)
        self._retention.used()
        return shown

    @committing
    async def remove_ended(self) -> int:
        """Remove all keys that ended before the gate's retention; return their number (D45).

        Removes them in bounded steps. Processes that create, list or revoke keys do the same in the
        background; this method is for scripts.

        Raises:
            StoreUnavailable: the store did not answer.
        """
        return await self._retention.walk()

    async def census(self, progress: Callable[[int], object] | None = None) -> dict[str, int]:
        """Return the number of live keys by digest scheme.

        A pepper without keys can be dropped (K9). ``seal:<pepper id>`` counts keys whose seal needs
        another pepper than their digest does, and ``unsealed`` keys without a seal.

        Args:
            progress: called after each step with the number of keys and tokens so far.
        """
        counts: dict[str, int] = {}
        cursor = None
        while True:
            with asking(self._events):
                step = await self._store.census(self._now(), cursor)
            for scheme, number in step.counts.items():
                counts[scheme] = counts.get(scheme, 0) + number
            if progress is not None:
                progress(sum(counts.values()))
            if (cursor := step.cursor) is None:
                if not self._format.peppers.seals:
                    counts.pop(UNSEALED_ROWS, None)
                return counts
            await pause()

    async def ages(self) -> KeyAges:
        """Return the live keys of all organizations that end soon, and those past the maximum age.

        Reads every key once, in steps.

        Raises:
            StoreUnavailable: the store did not answer.
        """
        now, cursor, max_age = await self.now(), None, self.max_age
        ending: dict[str, ApiKey] = {}  # A scan may return a key twice.
        too_old: set[str] = set()
        while True:
            with asking(self._events):
                step = await self._store.scan(cursor, _SCANNED_AT_ONCE)
            for key in step.keys:
                if key.ends_soon(now):
                    ending[key.id] = key
                lives = key.state(now) is KeyState.ACTIVE
                if lives and max_age is not None and key.outlives(max_age):
                    too_old.add(key.id)
            if (cursor := step.cursor) is None:
                first = nsmallest(_ENDING_SHOWN, ending.values(), key=lambda key: key.ends_at)
                return KeyAges(len(ending), tuple(first), len(too_old))
            await pause()

    @committing
    async def seal(self, *, at_once: int = 500) -> Sealing:
        """Seal, with the newest pepper, all rows of keys and accounts that are not sealed with it.

        Rows without a seal are sealed, with their present content, only if the gate accepts them
        (``KeyOptions(accept_unsealed=True)``). Rows under an older pepper are sealed if their seal
        verifies. Idempotent; any process may call it while others serve. Rows in use are sealed
        without this call.

        Args:
            at_once: approximate number of rows that one call of the store reads.

        Raises:
            ConfigurationError: the gate has no pepper to seal with.
            StoreUnavailable: the store did not answer; rows that were sealed remain sealed.
        """
        peppers = self._format.peppers
        if not peppers.seals:
            raise ConfigurationError("There is no pepper to seal with: give Gate(peppers=[...]).")
        sealed, refused, cursor = 0, 0, None
        with asking(self._events):
            while True:
                step = await self._store.scan(cursor, at_once)
                for key in step.keys:
                    if sealed_by(key) in peppers.current_seals:
                        continue
                    if judge_seal(key, peppers) is None:
                        new = resealed_key(key, peppers).kept
                        sealed += await self._store.rehash_if(key.handle, key.kept, new, known=key)
                    else:
                        refused += 1
                for account in step.accounts:
                    if sealed_by(account) in peppers.current_seals:
                        continue
                    if judge_seal(account, peppers) is None:
                        old, new = account.kept, resealed_account(account, peppers).kept
                        sealed += await self._store.rehash_token_if(account.handle, old, new)
                    else:
                        refused += 1
                cursor = step.cursor
                if cursor is None:
                    break
        self._events.emit("rows_sealed", sealed=sealed, refused=refused)
        return Sealing(sealed, refused)
