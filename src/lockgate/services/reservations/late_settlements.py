"""Settle holds whose blocks ended while the store did not answer (D41)."""

from time import monotonic
from typing import TYPE_CHECKING, Final

from ...errors import StoreUnavailable
from ...events import logger
from ...stores.runtime.background import BackgroundTask
from ...stores.runtime.process_hooks import after_fork_in_child, own_lock
from .hold_block import Used

if TYPE_CHECKING:
    from .holds import Holds

_LEFT: Final = (
    "The gate was closed while its store did not answer: %d holds are used in full at their "
    "deadlines, whatever their work has used."
)
AT_MOST: Final = 10_000
"""The most settlements that are kept; a further hold is used in full at its deadline."""


class LateSettlements:
    """The settlements of this process that the store has not answered yet.

    They are sent again about once a second, until the store answers or the deadline of the hold has
    passed. Settling is idempotent by id (H3): where only the reply was lost, the store finds the
    hold settled and changes nothing.

    Args:
        holds: settles holds, and reports those that are used in full at their deadline.
    """

    def __init__(self, holds: "Holds") -> None:
        self._holds: Final = holds
        self._background: Final = BackgroundTask(self._send)
        self._lock = own_lock()
        self.forked()
        after_fork_in_child(self)

    def forked(self) -> None:
        """Leave the settlements to the parent process."""
        self._late: dict[str, tuple[Used, float]] = {}
        """By id, the units used and the deadline in monotonic seconds."""

    def add(self, id: str, used: Used, seconds: float) -> None:
        """Keep a settlement until the deadline of its hold.

        Args:
            id: the id of the hold.
            used: the units to settle.
            seconds: until the deadline, at most.
        """
        with self._lock:
            fits = len(self._late) < AT_MOST
            if fits:
                self._late[id] = used, monotonic() + seconds
        if fits:
            self._background.used()
        else:
            self._holds.lose(id)

    async def flush(self) -> None:
        """Send all settlements once, and wait for the answers."""
        if self._late:
            await self._background.finish(self._send())

    async def close(self) -> None:
        """Send all settlements for the last time, and report those without an answer."""
        await self.flush()
        await self._background.close()
        with self._lock:
            left, self._late = self._late, {}
        for id in left:
            self._holds.lose(id)
        if left:
            logger.warning(_LEFT, len(left))

    async def _send(self) -> None:
        for id, (used, until) in [*self._late.items()]:
            if monotonic() < until:
                try:
                    await self._holds.settle(id, used)
                except StoreUnavailable:
                    with self._lock:  # Last, so that an unreadable state does not stop the others.
                        self._late[id] = self._late.pop(id, (used, until))
                    self._background.used()
                    return
            else:
                self._holds.lose(id)
            with self._lock:
                self._late.pop(id, None)
