"""Certify a store: run every check of the contract, without a test framework."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from inspect import isawaitable
from typing import Any, TypeAlias, TypeVar

from ..stores.base import IoMode, PartStore
from ..sync import run
from .checks import (
    CHECKS,
    PARTS,
    Check,
    Leftovers,
    Part,
    applies,
    forgets,
    forgets_limits,
    whole,
)
from .deadline import DEADLINE, ended
from .guarantees import Broken

T = TypeVar("T")

MakeStore: TypeAlias = Callable[[], PartStore | Awaitable[PartStore]]
"""Returns a new, empty store. May be ``async``."""


async def certify(
    make_store: MakeStore,
    *,
    parts: Collection[Part] = PARTS,
    leftovers: Leftovers | None = None,
    deadline: float = DEADLINE,
) -> None:
    """Check a store against the contract, each check on a new store.

    Of a store that has only the methods of a key store (:data:`KEY_PARTS
    <lockgate.testing.KEY_PARTS>`), the operations on keys, accounts and plans that the directory
    composes of them are checked, too. A window store alone (:data:`WINDOW_PARTS
    <lockgate.testing.WINDOW_PARTS>`) is checked beside keys in memory.

    ``await`` it for a store that awaits, and use ``lockgate.run`` for a store that blocks.
    Concurrent callers are then tasks of this event loop, or threads.

    Args:
        make_store: returns a new, empty store.
        parts: the parts to check; default: all that the store has.
        leftovers: returns the number of organizations with stored windows or slots at an instant;
            without it W10 cannot be checked.
        deadline: seconds for each check, after which a store that hangs is named.

    Raises:
        Broken: the store breaks a guarantee; the simplest checks run first.
    """
    for check in checks_of(parts, leftovers):
        made = make_store()
        await hold(check, await made if isawaitable(made) else made, deadline)


def checks_of(parts: Collection[Part] = PARTS, leftovers: Leftovers | None = None) -> list[Check]:
    """Return the checks of these parts."""
    forgotten = [] if leftovers is None else [forgets(leftovers), forgets_limits(leftovers)]
    return [check for check in (*CHECKS, *forgotten) if check.part in parts]


async def hold(check: Check, made: PartStore, deadline: float = DEADLINE) -> IoMode:
    """Run one check on a new store, close the store, and return its I/O mode.

    A check of a part that the store does not have is left out.

    Raises:
        Broken: the store breaks the check's guarantee, or hangs.
    """
    store = whole(made)
    try:
        if applies(check.part, store):
            await ended(check.of(store), store, deadline)
    except BaseException as failure:
        if not (isinstance(failure, Broken) and failure.sentence == "G4"):
            await store.close()  # A store that hangs could hang again.
        raise
    await store.close()
    return store.io


def drive(io: IoMode, flow: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in the I/O mode of its store, outside of an event loop."""
    return asyncio.run(flow) if io == "async" else run(flow)
