"""Tells the log what to do about servers that refuse, each advice once in a while."""

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from .process_hooks import own_lock

AGAIN_AFTER: Final = 60.0
"""Seconds for which what was said is not repeated."""

logger: Final = logging.getLogger("lockgate")


class Adviser:
    """Tells the log what to do about failures, each advice once a minute.

    Whoever calls the service is told no more than that it is unavailable.

    Args:
        who: the server, as a sentence begins.
        advice: gives the end of that sentence for a failure, or None where nothing is known of it.
    """

    def __init__(self, who: str, advice: Callable[[BaseException], str | None]) -> None:
        self._who = who
        self._advice = advice
        self._lock = own_lock()
        self._told: dict[str, float] = {}

    def hint(self, failure: BaseException) -> None:
        """Tell what to do, if it is known and was not told just now."""
        what = self._advice(failure)
        if what is None:
            return
        now = monotonic()
        with self._lock:
            if now - self._told.get(what, float("-inf")) < AGAIN_AFTER:
                return
            self._told[what] = now
        logger.error("%s refuses: %s.", self._who, what)
