"""Streams and WebSockets that outlive their admission: each ends soon after its key does.

A request is admitted once, and a stream may go on for days. So the keys of open streams are looked
at again whenever the store's change counter has moved, or a key's time is over: by one background
task of the process, twice a second while any stream is open. A stream that was opened since the
last look is always looked at, as its key may have been revoked just before that.
"""

from collections.abc import Sequence
from logging import INFO
from typing import Final

from ..core.api_keys import ApiKey, KeyState
from ..errors import KeyExpired, KeyRevoked, StoreUnavailable, Unauthenticated
from ..events import Events
from ..stores.base import Store
from ..stores.memory.windows import Clock
from ..stores.runtime.background import BackgroundTask
from ..sync import together
from .store_errors import asking

_OFTEN: Final = 2
"""Looks per second."""
_AT_ONCE: Final = 64
"""Keys that are read concurrently, where an event loop runs."""


class OpenStream:
    """A response or a WebSocket that goes on under a key.

    Attributes:
        key: admitted it.
        refusal: why it has to end; None: it may go on.
        is_new: whether its key has to be read at the next look, whatever has changed.
    """

    def __init__(self, key: ApiKey) -> None:
        self.key: Final = key
        self.refusal: Unauthenticated | None = None
        self.is_new = True

    def end(self, refusal: Unauthenticated) -> None:
        """End the stream; any thread may call this."""
        self.refusal = refusal


class OpenStreams:
    """The open streams of a gate in this process.

    Args:
        store: keeps the keys.
        clock: that of the gate, for tests; None: the store's.
        events: told ``streams_ended`` (``organization``, ``id`` of the key, ``code``, and how many
            ``streams``).
    """

    def __init__(self, store: Store, clock: Clock | None, events: Events) -> None:
        self._store = store
        self._clock = clock
        self._events = events
        self._open: set[OpenStream] = set()
        self._version: object = None
        self._looking: Final = BackgroundTask(self.look, _OFTEN)

    def add(self, stream: OpenStream) -> None:
        """Watch over a stream until it is discarded."""
        self._open.add(stream)
        self._looking.used()

    def discard(self, stream: OpenStream) -> None:
        """Forget a stream that is over."""
        self._open.discard(stream)

    async def look(self) -> None:
        """End the streams whose keys have ended."""
        if not self._open:
            return
        try:
            version, now = await self._freshness()
            moved = version is None or version != self._version
            by_handle: dict[str, list[OpenStream]] = {}
            for stream in list(self._open):  # Threads add theirs meanwhile.
                if moved or stream.is_new or stream.key.state(now) is not KeyState.ACTIVE:
                    by_handle.setdefault(stream.key.handle, []).append(stream)
            self._version = version
            of_keys = list(by_handle.values())
            for first in range(0, len(of_keys), _AT_ONCE):
                some = of_keys[first : first + _AT_ONCE]
                await together(self._check(streams, now) for streams in some)
        finally:
            if self._open:
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

    async def _check(self, streams: Sequence[OpenStream], now: int) -> None:
        """End the streams of one key if it has ended."""
        known = streams[0].key
        for stream in streams:  # Until the store has answered.
            stream.is_new = True
        try:
            with asking(self._events):
                key = await self._store.find(known.handle)
        except StoreUnavailable:
            return
        state = KeyState.REVOKED if key is None else key.state(now)
        if state is KeyState.ACTIVE:
            for stream in streams:
                stream.is_new = False
            return
        refusal = KeyExpired if state is KeyState.EXPIRED else KeyRevoked
        for stream in streams:
            self._open.discard(stream)
            stream.end(refusal())
        self._events.emit(
            "streams_ended",
            INFO,
            organization=known.organization,
            id=known.id,
            code=refusal.code,
            streams=len(streams),
        )
