"""Time for a busy machine: no test may depend on an answer within seconds.

A test whose server hangs on purpose gives its gate a short deadline, and asks by :func:`answered`
while the server does answer.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import unwrap
from time import monotonic, sleep
from typing import Any, Final, TypeVar, cast

from lockgate.errors import StoreUnavailable
from lockgate.options import StoreOptions
from lockgate.stores.redis.transport import client, config
from lockgate.stores.resilience import deadlines
from lockgate.stores.sql import engines

T = TypeVar("T")

SECONDS: Final = 30
"""A whole number, as the settings of databases want."""
SHORT: Final = 0.25
"""Seconds: the deadline of a gate whose server hangs on purpose."""
SLACK: Final = 15.0
"""Seconds beyond a short deadline: a call that lacks the deadline would last for longer."""

LEISURELY: Final[dict[str, Any]] = {"open_timeout": 60, "ping_interval": None}
"""The options of a WebSocket's client: without them a handshake, and each ping, has seconds."""

_WAITS: Final[tuple[tuple[Any, str], ...]] = (
    (client, "_PATIENCE"),
    (config, "SECONDS"),
    (engines, "_SECONDS"),
)


def lengthen_waits() -> None:
    """Give the calls and connections of this process half a minute, unless a test says less."""
    for module, name in _WAITS:
        assert hasattr(module, name), f"{module.__name__} has another name for {name}"
        setattr(module, name, SECONDS)
    for name, module in list(sys.modules.items()):
        if name.startswith("lockgate.") and module is not deadlines and "STARTING" in vars(module):
            setattr(module, "STARTING", SECONDS)  # noqa: B010 - it is final
    defaults: Any = cast(Any, unwrap(StoreOptions.__init__)).__kwdefaults__
    defaults["deadline"] = float(SECONDS)


def until(reached: Callable[[], object], seconds: float = 2 * SECONDS) -> None:
    """Wait until a function returns a true value; fail after ``seconds``."""
    ends = monotonic() + seconds
    while not reached():
        assert monotonic() < ends, "it was not reached in time"
        sleep(0.02)


def answered(ask: Callable[[], T], seconds: float = 2 * SECONDS) -> T:
    """Ask again while the store is unavailable, for up to ``seconds``; return the answer."""
    ends = monotonic() + seconds
    while True:
        try:
            return ask()
        except StoreUnavailable:
            assert monotonic() < ends, "the store stays unavailable"
            sleep(0.02)


@contextmanager
def skipping() -> Iterator[Callable[[float], None]]:
    """Give a function that moves the time of the running event loop ahead, by so many seconds.

    What is due by then happens at once, however short or long a busy machine takes.
    """
    loop: Any = asyncio.get_running_loop()
    read, ahead = loop.time, [0.0]
    loop.time = lambda: read() + sum(ahead)
    try:
        yield ahead.append
    finally:
        loop.time = read
