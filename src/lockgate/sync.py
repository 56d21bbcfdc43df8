"""Drive a flow that never suspends, without an event loop: for WSGI, scripts and shells."""

from collections.abc import Coroutine
from typing import Any, TypeVar

from .errors import ConfigurationError

T = TypeVar("T")


def run(flow: Coroutine[Any, Any, T]) -> T:
    """Run a flow to its end at once and give its value: ``run(gate.keys.list("org_1"))``.

    A flow over a store with ``io`` ``none`` or ``sync`` never suspends, so it needs no event
    loop: this costs less than a microsecond.

    Raises:
        ConfigurationError: the flow suspended: its store is an asynchronous one. Await the flow in
            the event loop, or give the gate a blocking store.
    """
    try:
        flow.send(None)
    except StopIteration as finished:
        value: T = finished.value
        return value
    flow.close()
    raise ConfigurationError(
        "run() was given a flow that waits for an event loop: await it there, "
        "or give the gate a store whose io is 'none' or 'sync'."
    )
