"""Usage of keys that this process has counted and not yet written (D6)."""

from collections.abc import Mapping

from .answers import OutcomeUnknown, Usage
from .base import KeyStore
from .resilience.deadlines import Overdue
from .runtime.process_hooks import after_fork_in_child, own_lock


class UsageBuffer:
    """Counts the uses of keys until they are written."""

    def __init__(self) -> None:
        self._lock = own_lock()
        self.forked()
        after_fork_in_child(self)

    def forked(self) -> None:
        """Drop the counts in a child process: the parent writes them (K7)."""
        self._used: dict[str, Usage] = {}

    def __len__(self) -> int:
        return len(self._used)

    def add(self, handle: str, at: int, requests: int = 1) -> None:
        """Count uses, of which the last was at an instant in microseconds."""
        with self._lock:
            before = self._used.get(handle)
            if before is None:
                self._used[handle] = Usage(requests, at)
            else:
                requests += before.requests
                self._used[handle] = Usage(requests, max(before.last_used_at, at))

    def take(self) -> dict[str, Usage]:
        """Return the counts and start anew; the caller has to write them."""
        with self._lock:
            used, self._used = self._used, {}
        return used

    async def write(self, used: Mapping[str, Usage], store: KeyStore) -> None:
        """Write counts from :meth:`take`.

        Failed ones are counted again, unless the outcome is unknown: those count once or not at
        all (D33).
        """
        try:
            await store.add_usage(used)
        except (OutcomeUnknown, Overdue):
            return
        except Exception:
            with self._lock:
                for handle, (requests, at) in used.items():
                    before = self._used.get(handle, Usage(0, at))
                    last = max(before.last_used_at, at)
                    self._used[handle] = Usage(before.requests + requests, last)
