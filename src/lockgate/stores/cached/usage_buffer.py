"""Counts: how often keys were used, where that is only known in this process so far (D6)."""

from collections.abc import Mapping

from ..base import OutcomeUnknown, Usage
from ..resilience.deadlines import Overdue
from ..runtime.process_hooks import after_fork_in_child, own_lock
from .base import PrimaryStore


class UsageBuffer:
    """Uses of keys that are not written yet."""

    def __init__(self) -> None:
        self._lock = own_lock()
        self.forked()
        after_fork_in_child(self)

    def forked(self) -> None:
        """Leave what was counted before to the parent, which writes it itself (K7)."""
        self._used: dict[str, Usage] = {}

    def add(self, handle: str, at: int) -> None:
        """Count one use."""
        with self._lock:
            self._add(handle, Usage(1, at))

    def take(self) -> dict[str, Usage]:
        """What was counted; it is whoever takes it who has to write it."""
        with self._lock:
            used, self._used = self._used, {}
        return used

    async def write(self, used: Mapping[str, Usage], truth: PrimaryStore) -> None:
        """Write what was taken.

        What was not written is kept for the next time, unless nobody knows: then it counts once or
        not at all (D33).
        """
        try:
            await truth.add_usage(used)
        except (OutcomeUnknown, Overdue):
            return
        except Exception:
            with self._lock:
                for handle, usage in used.items():
                    self._add(handle, usage)

    def _add(self, handle: str, usage: Usage) -> None:
        before = self._used.get(handle)
        if before is not None:
            last = max(before.last_used_at, usage.last_used_at)
            usage = Usage(before.requests + usage.requests, last)
        self._used[handle] = usage
