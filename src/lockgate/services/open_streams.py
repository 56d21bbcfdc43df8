"""Streams and WebSockets that outlive their admission: each ends soon after its key does.

A request is admitted once, and a stream may last for days. So the keys of open streams are looked
at again whenever the store's change counter has moved, or a key's time is over: by one background
task of the process, twice a second while any stream is open. A stream that was opened since the
last look is always looked at, as its key may have been revoked just before that.

The session of an agent is looked at like a key. A person's session is not: its cookie may be
renewed every minute while its user is signed in, and only the identity provider knows when that
ends.
"""

from collections.abc import Sequence
from logging import INFO
from time import monotonic
from typing import Final, Protocol

from ..clock import Clock
from ..core.api_keys import ApiKey, KeyState
from ..errors import KeyExpired, KeyRevoked, SessionInvalid, StoreUnavailable, Unauthenticated
from ..events import Events
from ..stores.base import Store
from ..stores.runtime.background import BackgroundTask
from ..sync import together
from .accounts.agent_sessions import Agents, AgentSession
from .store_errors import asking

_OFTEN: Final = 2
"""Looks per second."""
_AT_ONCE: Final = 64
"""Keys that are read concurrently, where an event loop runs."""


Holder = ApiKey | AgentSession
"""A key, or the session of an agent, that admitted a stream."""


class OpenStream(Protocol):
    """A response or a WebSocket that goes on after its admission."""

    def end(self, refusal: Unauthenticated) -> None:
        """End the stream; any thread may call this. A stream that is over ignores it."""
        ...


class OpenStreams:
    """The open streams of a gate in this process.

    Attributes:
        open: the streams, each with its holder; a stream that is over has to be taken out.

    Args:
        store: keeps the keys.
        agents: verifies the sessions of agents; None: there are none.
        clock: the gate's, for tests; None: the store's.
        events: told ``streams_ended`` (``organization``, ``id`` of the key or None for a session,
            ``code``, and how many ``streams``).
    """

    def __init__(
        self, store: Store, agents: Agents | None, clock: Clock | None, events: Events
    ) -> None:
        self._store = store
        self._agents = agents
        self._clock = clock
        self._events = events
        self.open: Final[dict[OpenStream, Holder]] = {}
        self._checked: set[OpenStream] = set()
        """The streams whose holders were valid at that version of the store's keys."""
        self._version: object = None
        self._looking: Final = BackgroundTask(self.look, _OFTEN)

    def add(self, stream: OpenStream, holder: Holder) -> None:
        """Watch over a stream until it is taken out of :attr:`open`."""
        self.open[stream] = holder
        if monotonic() >= self._looking.due_by:
            self._looking.used()

    async def look(self) -> None:
        """End the streams whose keys or sessions have ended."""
        streams = self.open.copy()  # Threads add theirs meanwhile.
        self._checked.intersection_update(streams)
        try:
            if not streams:
                return
            version, now = await self._freshness()
            moved = version is None or version != self._version
            by_name: dict[str, list[OpenStream]] = {}
            for stream, holder in streams.items():
                if moved or stream not in self._checked or _is_over(holder, now):
                    by_name.setdefault(_name_of(holder), []).append(stream)
            self._version = version
            groups = list(by_name.values())
            for first in range(0, len(groups), _AT_ONCE):
                some = groups[first : first + _AT_ONCE]
                await together(self._check(streams[group[0]], group, now) for group in some)
        finally:
            if self.open or self._checked:
                self._looking.used()

    async def close(self) -> None:
        """Look no more."""
        await self._looking.close()

    async def _freshness(self) -> tuple[object, int]:
        """Return a value that changes with every change to a key, and the present."""
        version, now = self._store.local_version, 0
        if version is None:
            version, now = await self._store.freshness()
        elif self._clock is None:
            now = await self._store.now()
        return version, self._clock() if self._clock else now

    async def _check(self, holder: Holder, streams: Sequence[OpenStream], now: int) -> None:
        """End the streams of one key or session if it has ended."""
        self._checked.difference_update(streams)  # Until the store has answered.
        try:
            with asking(self._events):
                refusal = await self._refusal(holder, now)
        except StoreUnavailable:
            return
        if refusal is None:
            self._checked.update(streams)
            return
        for stream in streams:
            self.open.pop(stream, None)
            stream.end(refusal())
        self._events.emit(
            "streams_ended",
            INFO,
            organization=holder.organization,
            id=holder.id if isinstance(holder, ApiKey) else None,
            code=refusal.code,
            streams=len(streams),
        )

    async def _refusal(self, holder: Holder, now: int) -> type[Unauthenticated] | None:
        """Return why a key or a session has ended; None: it has not."""
        if isinstance(holder, ApiKey):
            key = await self._store.find(holder.handle)
            state = KeyState.REVOKED if key is None else key.state(now)
            if state is KeyState.ACTIVE:
                return None
            return KeyExpired if state is KeyState.EXPIRED else KeyRevoked
        session = None if self._agents is None else await self._agents.verify(holder.cookie)
        return SessionInvalid if session is None else None


def _name_of(holder: Holder) -> str:
    """Return what all streams of one key or session have in common."""
    return holder.handle if isinstance(holder, ApiKey) else holder.cookie


def _is_over(holder: Holder, now: int) -> bool:
    """Return whether the time of a key or a session is over."""
    if isinstance(holder, ApiKey):
        return holder.state(now) is not KeyState.ACTIVE
    return now >= holder.ends_at
