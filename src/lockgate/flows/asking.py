"""Asking a store, or who verifies sessions: no answer becomes one refusal, and an event."""

import logging
from collections.abc import Generator
from contextlib import contextmanager

from ..errors import LockgateError, StoreUnavailable
from ..events import Events


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
    events.tell("store_failed", logging.ERROR, error=type(failure).__qualname__)
    return StoreUnavailable()
