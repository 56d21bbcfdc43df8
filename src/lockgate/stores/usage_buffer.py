"""Usage of keys that this process has counted and not yet written (D6)."""

from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from typing import Final

from .answers import Usage
from .key_store import KeyStore
from .runtime.process_hooks import after_fork_in_child, own_lock
from .usage_batches import BatchWriter

KEYS_AT_ONCE: Final = 250
"""The keys of a batch: a millisecond of Redis, and a short transaction."""


class UsageBuffer:
    """Counts the uses of keys until they are written."""

    def __init__(self) -> None:
        self._lock = own_lock()
        self._batches: Final = BatchWriter[Mapping[str, Usage]](self._cut)
        self.forked()
        after_fork_in_child(self)

    def forked(self) -> None:
        """Drop the counts in a child process: the parent writes them (K7)."""
        self._used: dict[str, Usage] = {}

    def __len__(self) -> int:
        pending = self._batches.pending
        return len(self._used) + (0 if pending is None else len(pending.counts))

    def add(self, handle: str, at: int, requests: int = 1) -> None:
        """Count uses, of which the last was at an instant in microseconds."""
        with self._lock:
            before = self._used.get(handle)
            if before is None:
                self._used[handle] = Usage(requests, at)
            else:
                requests += before.requests
                self._used[handle] = Usage(requests, max(before.last_used_at, at))

    async def write(self, store: KeyStore) -> None:
        """Write all counts; those that fail are written again with the next call.

        Returns once the counts of before are answered, also those of a write under way.
        """
        most = 2 + len(self._used) // KEYS_AT_ONCE
        try:
            await self._batches.write(store.add_usage, most)
        except Exception:
            return

    async def finish(self, store: KeyStore) -> None:
        """Write all counts before the process stops, and once more what fails in time."""
        most = 2 + len(self._used) // KEYS_AT_ONCE
        with suppress(Exception):  # The process stops: its caller could not handle a failure.
            await self._batches.finish(store.add_usage, most)

    def close(self) -> None:
        """Write no more: counts that are left are lost with the process."""
        self._batches.close()

    def _cut(self) -> Mapping[str, Usage] | None:
        with self._lock:
            handles = [*islice(self._used, KEYS_AT_ONCE)]
            return {handle: self._used.pop(handle) for handle in handles} or None
