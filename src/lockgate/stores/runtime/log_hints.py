"""Log advice about servers that refuse calls, each advice once a minute."""

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from .process_hooks import own_lock

AGAIN_AFTER: Final = 60.0
"""Seconds for which the same advice is not repeated."""

logger: Final = logging.getLogger("lockgate")


class MinutelyLog:
    """Logs errors, each text at most once a minute."""

    def __init__(self) -> None:
        self._lock = own_lock()
        self._told: dict[str, float] = {}

    def error(self, text: str) -> None:
        """Log a text, unless it was logged within the last minute."""
        now = monotonic()
        with self._lock:
            if now - self._told.get(text, float("-inf")) < AGAIN_AFTER:
                return
            self._told[text] = now
        logger.error("%s", text)


class Adviser:
    """Logs how to correct failures, each advice once a minute.

    Callers of the service learn only that it is unavailable.

    Args:
        who: the server, as the start of a sentence.
        advice: returns the end of that sentence for a failure; None: no advice.
    """

    def __init__(self, who: str, advice: Callable[[BaseException], str | None]) -> None:
        self._who = who
        self._advice = advice
        self._log = MinutelyLog()

    def hint(self, failure: BaseException) -> None:
        """Log the advice about a failure, unless it was logged within the last minute."""
        what = self._advice(failure)
        if what is not None:
            self._log.error(f"{self._who} refuses: {what}.")
