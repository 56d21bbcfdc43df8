"""Translate the failures of stores and session verifiers into one refusal and an event."""

import logging
from typing import Literal

from ..errors import ConfigurationError, LockgateError, StoreUnavailable
from ..events import Events, logger
from ..stores.answers import UnreadableState
from ..stores.base import IoMode
from ..stores.committed import unreported
from ..stores.resilience.failures import is_outage, kind_of, traceback_of
from ..stores.runtime.per_loop import WITHOUT_LOOP


class asking:
    """A context that turns any failure into 503 ``STORE_UNAVAILABLE`` (D28) and emits its event.

    A failure after a committed change (D52) has an event, too, and is not raised.

    A generator in its place takes 6,000 instructions more, of an admission of 150,000 and more.

    Raises:
        StoreUnavailable: for any exception that is not lockgate's own.
    """

    __slots__ = ("_events",)

    def __init__(self, events: Events) -> None:
        self._events = events

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, failure: BaseException | None, __: object) -> None:
        if failure is not None:
            if isinstance(failure, LockgateError) or not isinstance(failure, Exception):
                return
            raise unavailable(self._events, failure) from failure
        for after in unreported():
            if not isinstance(after, LockgateError):
                unavailable(self._events, after)


def unavailable(events: Events, failure: Exception) -> StoreUnavailable:
    """Emit the event that fits a failure, and return the refusal to raise.

    ``store_failed`` for an outage, ``unreadable_state`` for unreadable state of one organization,
    ``internal_error`` for a bug of lockgate or of the host, with its traceback in the log (G7).
    Events name failures by class only: database drivers put parameters into messages.
    """
    error = kind_of(failure)
    if isinstance(failure, UnreadableState):
        owner, remedy = failure.organization, failure.remedy
        told = {"organization": owner, "error": error, "remedy": remedy}
        events.emit("unreadable_state", logging.ERROR, **told)
    elif is_outage(failure):
        events.emit("store_failed", logging.ERROR, error=error)
    else:
        logger.error("%s", traceback_of(failure))
        events.emit("internal_error", logging.ERROR, error=error)
    return StoreUnavailable()


def pair(face: Literal["async", "sync"], part: object, io: IoMode) -> None:
    """Check the I/O mode of a store or session verifier against an adapter's.

    Args:
        face: ``async``: the adapter awaits in an event loop; ``sync``: it waits in a thread.
        part: the store or session verifier.
        io: the I/O mode of ``part``.

    Raises:
        ConfigurationError: ``part`` would block the event loop, or needs one.
    """
    name = type(part).__name__
    if face == "async" and io == "sync":
        raise ConfigurationError(
            f"{name} waits in the calling thread here, and would block the event loop: "
            "use one whose io is 'none', 'async' or 'both', as of a store from a URL."
        )
    if face == "sync" and io == "async":
        raise ConfigurationError(
            f"{name} needs an event loop here, and there is none: "
            f"use one whose io is 'none', 'sync' or 'both': of a store, {WITHOUT_LOOP}."
        )
