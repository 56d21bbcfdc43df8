"""The demo's own traffic: a busy organization, whose usage and refusals the dashboard shows."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from threading import Event, Thread
from types import MappingProxyType
from typing import Final

from ..core.api_keys import ApiKey, KeyDetails, KeyHistory
from ..core.changes import drafted_change, key_fields
from ..core.limits import Limit
from ..core.timestamps import DAY, HOUR
from ..core.usage_history import UsageHistory, kind_of_limit
from ..errors import LockgateError, StoreError
from ..gate import Gate
from ..services.keys.new_keys import draft_key
from ..stores.answers import HistoryOwner
from ..sync import loop_runs, run
from .service import EXPORTS, TOKENS

PLAN: Final = "creator"
ADDRESS: Final = "127.0.0.1"
BEAT: Final = 10.0
"""Seconds between two requests. With the bursts that is 0.2 requests a second, so that the limits
of an hour and a day are never used up."""
BURST: Final = 60
"""Requests between two bursts, each beyond the limit of a minute: ten minutes."""
HOURS: Final = 7 * 24
"""Of usage before the demo was started."""
_CREATED: Final = HOURS * HOUR + DAY
"""How long ago its keys were created, in microseconds."""
_REQUESTS: Final = (
    *(40, 30, 25, 25, 30, 45, 80, 140, 260, 390, 430, 420),
    *(350, 410, 450, 460, 430, 380, 300, 240, 190, 130, 90, 60),
)
"""In each hour of a day, in UTC."""


class Traffic:
    """Requests of one organization, while the demo runs; each is charged and recorded as such.

    Args:
        gate: with usage history.
        organization: its id; it has no keys so far.
    """

    def __init__(self, gate: Gate, organization: str) -> None:
        self._gate: Final = gate
        self.organization: Final = organization
        self._texts: Final[dict[str, str]] = {}
        """The text of each key, by its name."""
        self._beats = 0
        self._over: Final = Event()
        self._worker: asyncio.Task[None] | Thread | None = None

    async def begin(self) -> None:
        """Create three keys with a week of usage, use them up to the limit of a minute and beyond,
        and go on in the background."""
        await self._gate.organizations.place(self.organization, PLAN)
        now = await self._gate.now()
        web, nightly, laptop = _week(now)
        await self._create(now, web, "web shop", ("*",), {"env": "production"})
        await self._create(now, nightly, "nightly jobs", ("jobs:*",), days=30)
        old = await self._create(now, laptop, "old laptop", ("models:read",))
        await self._use("old laptop", "models:read", 2)
        await self._gate.keys.revoke(self.organization, old.id)
        await self._burst()
        self._worker = self._working()

    async def stop(self) -> None:
        """End the traffic."""
        self._over.set()
        if isinstance(self._worker, Thread):
            self._worker.join(1)
        elif self._worker is not None:
            self._worker.cancel()

    async def beat(self) -> None:
        """Make the next request, or a burst of them; a store that is away ends no traffic."""
        self._beats += 1
        with suppress(LockgateError, StoreError):
            await (
                self._use("web shop", "models:read", 1) if self._beats % BURST else self._burst()
            )

    def _working(self) -> asyncio.Task[None] | Thread:
        """Make requests by a task under ASGI, by a thread under WSGI."""
        if loop_runs():
            return asyncio.get_running_loop().create_task(self._beat_and_sleep())
        thread = Thread(target=self._beat_and_wait, name="lockgate-demo-traffic", daemon=True)
        thread.start()
        return thread

    async def _beat_and_sleep(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            await self.beat()

    def _beat_and_wait(self) -> None:
        while not self._over.wait(BEAT):
            run(self.beat())

    async def _burst(self) -> None:
        """Use up the limits of a minute, and have requests refused for other reasons, too."""
        await self._use("old laptop", "models:read", 3)
        await self._use("nightly jobs", "jobs:read", 6)
        await self._use("nightly jobs", "models:write", 2)
        await self._use("web shop", "jobs:read", 12, EXPORTS)
        await self._use("web shop", "models:read", 52)
        completion = await self._gate.holds.take(self.organization, {TOKENS: 900})
        await self._gate.holds.settle(completion.id, 120)

    async def _use(self, name: str, scope: str, times: int, *limits: Limit) -> None:
        for _ in range(times):
            with suppress(LockgateError):
                await self._gate.authenticate(
                    self._texts[name], scope, address=ADDRESS, limits=limits
                )

    async def _create(
        self,
        now: int,
        used: UsageHistory,
        name: str,
        scopes: tuple[str, ...],
        labels: Mapping[str, str] = MappingProxyType({}),
        days: int | None = None,
    ) -> ApiKey:
        """Create a key as of eight days ago, with its usage since then."""
        gate = self._gate
        draft, self._texts[name] = draft_key(
            gate.format,
            self.organization,
            name,
            scopes,
            None if days is None else now + days * DAY,
            KeyDetails(labels=tuple(labels.items())).or_none(),
        )
        cells = used.cells("hour", now)
        requests, last = sum(cell.admitted for cell in cells), cells[-1].start
        draft = draft._replace(history=KeyHistory(now - _CREATED, None, requests, last))
        change = drafted_change("key_created", draft.id, after=key_fields(draft))
        key = await gate.store.insert(draft, None, None, change=change)
        owners = HistoryOwner(key.organization, key.handle), HistoryOwner(key.organization, None)
        await gate.store.add_history(dict.fromkeys(owners, used))
        return key


def _week(now: int) -> tuple[UsageHistory, UsageHistory, UsageHistory]:
    """Return the usage of each key in a week that ends an hour ago."""
    web, nightly, laptop = UsageHistory(), UsageHistory(), UsageHistory()
    for ago in range(HOURS, 0, -1):
        at = now - ago * HOUR
        hour = at // HOUR % 24
        requests = _REQUESTS[hour] * (100 + ago * 37 % 41 - 20) // 100
        web.admit(at, requests)
        web.use(at, EXPORTS.name, requests // 12)
        web.use(at, TOKENS.name, requests // 4)
        if requests > 400:
            web.refuse(at, "minute", requests // 50)
            web.refuse(at, kind_of_limit(EXPORTS.name), requests // 90)
        if hour in {1, 2, 3}:
            nightly.admit(at, 180)
            nightly.refuse(at, "INSUFFICIENT_SCOPE", 4)
        if ago > HOURS // 2 and 8 <= hour <= 18:
            laptop.admit(at, ago % 9)
    return web, nightly, laptop
