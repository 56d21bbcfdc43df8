"""Asking a store, or who verifies sessions: no answer becomes one refusal, and an event."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

from ..errors import ConfigurationError, LockgateError, StoreUnavailable
from ..events import Events
from ..stores.base import IoMode
from ..stores.resilience.failures import named


@contextmanager
def asking(events: Events) -> Generator[None]:
    """Turn any failure of the store into 503 ``STORE_UNAVAILABLE`` (D28).

    The failure itself goes to the log by its type only: database errors like to print parameters.

    Raises:
        StoreUnavailable: the store raised something that is not lockgate's own.
    """
    try:
        yield
    except LockgateError:
        raise
    except Exception as failure:
        raise unavailable(events, failure) from failure


def unavailable(events: Events, failure: Exception) -> StoreUnavailable:
    """Tell that the store failed, and give the refusal to raise."""
    events.emit("store_failed", logging.ERROR, error=named(failure))
    return StoreUnavailable()


def pair(face: Literal["async", "sync"], part: object, io: IoMode) -> None:
    """See that a part suits whoever is going to ask it.

    Args:
        face: ``async`` awaits in an event loop, ``sync`` waits in a thread.
        part: a store, or a session verifier.
        io: how it waits.

    Raises:
        ConfigurationError: it would block the event loop, or needs one.
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
            "use one whose io is 'none', 'sync' or 'both', as of a store from a URL."
        )
