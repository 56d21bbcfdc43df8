"""What the tests put into stores, and ways to let many callers loose on one."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar
from uuid import UUID

from lockgate import Plan, PlanBook, Store, run
from lockgate.rules.credentials import KeyFormat, NewKey, Token
from lockgate.rules.instants import DAY, SECOND
from lockgate.rules.keys import KeyDraft

T = TypeVar("T")

NOW = 20_000 * DAY + 12_345 * SECOND + 678_901
"""An instant to start from; not a whole millisecond."""

FORMAT = KeyFormat("acme")
BOOK = PlanBook()
WIDE = PlanBook([Plan("free", rpm=None, rph=None, rpd=None, concurrent=None)])
"""Nobody is ever limited."""

HOSTILE = [
    "{org}",
    "a}b{c",
    "nul\0nul",
    "line\nline\r\n",
    "' OR 1=1 --",
    "%s%(x)s{0}",
    "*?[a-z]",
    "a:b",
    "a::b",
    " ",
    "Org",
    "org",
    "o" * 128,
    "o" * 127 + "p",
    "\U0001f511" * 128,
    "\u00e9",
    "e\u0301",
    "\u202e",
    "..",
    "/",
]
"""Ids that stores may trip over; all different, some nearly alike."""

_numbers = count(1)


class HandClock:
    """A clock that a test moves by hand."""

    def __init__(self, now: int = NOW) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def new_key(format: KeyFormat = FORMAT) -> NewKey:
    return format.generate()


def token_of(key: NewKey, format: KeyFormat = FORMAT) -> Token:
    return format.read([b"Bearer " + key.text.encode()])


def draft_of(
    key: NewKey,
    organization: str = "org_1",
    *,
    name: str = "a key",
    scopes: tuple[str, ...] = ("*",),
    lifetime: int | None = None,
    format: KeyFormat = FORMAT,
) -> KeyDraft:
    digest = format.digest(key)
    return KeyDraft(
        id=str(UUID(int=next(_numbers))),
        handle=key.handle,
        organization=organization,
        name=name,
        prefix=key.prefix,
        scopes=scopes,
        scheme=digest.scheme,
        digest=digest.value,
        lifetime=lifetime,
    )


def draft(
    organization: str = "org_1", *, lifetime: int | None = None, name: str = "a key"
) -> KeyDraft:
    return draft_of(new_key(), organization, name=name, lifetime=lifetime)


def drive(store: Store, flow: Coroutine[Any, Any, T]) -> T:
    """Run a verb in a thread that has no event loop, in the colour of the store."""
    return asyncio.run(flow) if store.io == "async" else run(flow)


@contextmanager
def restless() -> Iterator[None]:
    """Let threads change places far more often than usual, to give races a chance."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def at_once(number: int, work: Callable[[int], T]) -> list[T]:
    """``work(0)``, ``work(1)``, ... each in a thread of its own, let go at the same instant."""
    barrier = threading.Barrier(number)

    def start(index: int) -> T:
        barrier.wait(timeout=30)
        return work(index)

    with restless(), ThreadPoolExecutor(number) as pool:
        return list(pool.map(start, range(number)))
