"""The keys of all organizations that were refused most often, from the usage over time."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from heapq import nlargest
from typing import Final, Literal, NamedTuple

from ...core.api_keys import ApiKey, KeyState, Position
from ...core.timestamps import DAY, HOUR, MINUTE
from ...core.usage_history import LEVELS, By, Last, UsageHistory, by_status
from ...errors import ConfigurationError
from ...stores.answers import HistoryOwner, UnreadableState
from ...stores.base import Store
from ...sync import pause, together
from ..organizations import Organizations

Period = Literal["minute", "hour", "day"]

_PERIODS: Final[Mapping[Period, tuple[By, int]]] = {
    "minute": ("minute", MINUTE),
    "hour": ("minute", HOUR),
    "day": ("hour", DAY),
}
"""The cells that are read for each period, and its length in microseconds."""
_READ_AT_ONCE: Final = 50
"""Organizations or keys whose histories are read concurrently."""
_READ_FOR_A_PAGE: Final = 8
"""Organizations whose histories are read concurrently while requests are served."""
_KEYS_AT_MOST: Final = 5000
"""Keys of one organization that are read; the refusals of further ones are its own row."""


class RefusedKey(NamedTuple):
    """A key that was refused."""

    organization: str
    key: ApiKey | None
    """None: the sessions of the organization, and keys that were removed."""
    refused: Mapping[str, int]
    """The refusals as in :attr:`Cell.refused <lockgate.core.usage_history.Cell.refused>`."""
    last_error: Last | None
    last_address: Last | None

    @property
    def statuses(self) -> Mapping[str, int]:
        """The refusals by their status, such as ``429``; further ones are ``other``."""
        return by_status(self.refused)


class MostRefused(NamedTuple):
    """The most refused keys of a period."""

    at: int
    """The instant of the reading, in microseconds."""
    keys: list[RefusedKey]
    """The most refusals with status 429 first, then the most of any status."""
    more: int
    """The number of further keys that were refused."""


async def most_refused(
    store: Store,
    organizations: Organizations,
    now: int,
    last: Period,
    most: int,
    show: Callable[[str], object] = lambda _: None,
) -> MostRefused:
    """Read the refusals of all organizations, page by page.

    Reads one history of each organization, and those of its keys only where it was refused. One
    page and ``most`` keys are in memory.

    Args:
        store: keeps keys and histories.
        organizations: lists the organizations.
        now: the present in microseconds.
        last: the period that ends now. Its first minute, of a day its first hour, counts whole.
        most: keys to return.
        show: receives how far the work is, for people.

    Raises:
        ConfigurationError: the store keeps no usage over time.
        StoreError, StoreUnavailable: the store did not answer.
    """
    if not store.keeps_history:
        raise ConfigurationError("The store keeps no usage over time.")
    found: list[RefusedKey] = []
    seen, number, cursor = 0, 0, None
    while True:
        page = await organizations.list(limit=_READ_AT_ONCE, cursor=cursor)
        owners = [HistoryOwner(one.id, None) for one in page.organizations]
        histories = await together(store.history(owner) for owner in owners)
        for owner, history in zip(owners, histories, strict=True):
            if refused := _refused(history, last, now):
                some = await _keys(store, owner.organization, history, refused, last, now)
                seen += len(some)
                found = nlargest(most, [*found, *some], key=_rank)
        number, cursor = number + len(owners), page.cursor
        show(f"{number:,} organizations, {seen:,} refused keys")
        if cursor is None:
            return MostRefused(now, found, seen - len(found))
        await pause()


async def refusals(
    store: Store, organizations: Sequence[str], now: int, last: Period
) -> dict[str, int]:
    """Return how many requests of each organization were refused, 0 included, by its id.

    Reads one history of each organization. One that cannot be decoded is left out.

    Args:
        store: keeps the histories.
        organizations: their ids.
        now: the present in microseconds.
        last: the period that ends now, as of :func:`most_refused`.

    Raises:
        StoreError, StoreUnavailable: the store did not answer.
    """

    async def read(organization: str) -> int | None:
        try:
            history = await store.history(HistoryOwner(organization, None))
        except UnreadableState:
            return None
        return _refused(history, last, now).total()

    found: dict[str, int] = {}
    for first in range(0, len(organizations), _READ_FOR_A_PAGE):
        some = organizations[first : first + _READ_FOR_A_PAGE]
        for organization, number in zip(some, await together(map(read, some)), strict=True):
            if number is not None:
                found[organization] = number
    return found


def _rank(one: RefusedKey) -> tuple[int, int]:
    return one.statuses.get("429", 0), sum(one.refused.values())


def _refused(history: UsageHistory, last: Period, now: int) -> Counter[str]:
    """Return the refusals of the period; empty without any."""
    by, length = _PERIODS[last]
    refused = Counter[str]()
    for cell in history.cells(by, now):
        if cell.start + LEVELS[by].span > now - length:
            refused.update(cell.refused)
    return refused


async def _keys(
    store: Store,
    organization: str,
    history: UsageHistory,
    refused: Counter[str],
    last: Period,
    now: int,
) -> list[RefusedKey]:
    """Return the refused keys of an organization, and a row for its other refusals.

    Reads no more keys once those that were found account for all refusals.
    """
    found: list[RefusedKey] = []
    left = refused
    async with aclosing(_pages(store, organization, now)) as pages:
        async for keys in pages:
            owners = [HistoryOwner(organization, key.handle) for key in keys]
            histories = await together(store.history(owner) for owner in owners)
            for key, own in zip(keys, histories, strict=True):
                if mine := _refused(own, last, now):
                    found.append(RefusedKey(organization, key, dict(mine), own.error, own.address))
                    left = left - mine  # Drops what is not positive.
            if not left:
                return found
    others = RefusedKey(organization, None, dict(left), history.error, history.address)
    return [*found, others]


async def _pages(store: Store, organization: str, now: int) -> AsyncGenerator[list[ApiKey]]:
    """Yield the keys of an organization, live ones first, each once."""
    number = 0
    for live in (True, False):
        after: Position | None = None
        while number < _KEYS_AT_MOST:
            if live:
                page = await store.list_live(organization, _READ_AT_ONCE, after, now)
            else:
                page = await store.list(organization, _READ_AT_ONCE, after)
            number += len(page)
            yield [key for key in page if live or key.state(now) is not KeyState.ACTIVE]
            if len(page) < _READ_AT_ONCE:
                break
            final = page[-1]
            after = Position(final.ends_at if live else final.created_at, final.id)
