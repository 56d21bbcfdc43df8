"""Certifying a store: every check of the contract, without any test framework."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from inspect import isawaitable
from typing import Any, TypeAlias, TypeVar

from ..stores.base import IoMode, PartStore
from ..sync import run
from .checks import CHECKS, PARTS, Check, Leftovers, Part, forgets, whole

T = TypeVar("T")

MakeStore: TypeAlias = Callable[[], PartStore | Awaitable[PartStore]]
"""Makes an empty store, a new one each time. May be ``async``."""


async def certify(
    make_store: MakeStore,
    *,
    parts: Collection[Part] = PARTS,
    leftovers: Leftovers | None = None,
) -> None:
    """Check a store against the contract, each check on a new store.

    ``await`` it where the store awaits; ``lockgate.run`` it where the store blocks. Many callers at
    once are then tasks of this event loop, or threads.

    Args:
        make_store: makes an empty store.
        parts: the parts that the store keeps, if not all.
        leftovers: returns the number of organizations of which a store still keeps windows or slots
            at an instant; without it W10 cannot be checked.

    Raises:
        Broken: naming the first sentence that the store breaks, the simplest checks first.
    """
    for check in checks_of(parts, leftovers):
        await check_one(check, make_store)


def checks_of(parts: Collection[Part] = PARTS, leftovers: Leftovers | None = None) -> list[Check]:
    """The checks of these parts."""
    forgotten = [] if leftovers is None else [forgets(leftovers)]
    return [check for check in (*CHECKS, *forgotten) if check.part in parts]


async def check_one(check: Check, make_store: MakeStore) -> None:
    """Run one check on a store made for it, and close that.

    Raises:
        Broken: the store breaks the check's sentence.
    """
    made = make_store()
    store = whole(await made if isawaitable(made) else made)
    try:
        await check.of(store)
    finally:
        await store.close()


def drive(io: IoMode, flow: Coroutine[Any, Any, T]) -> T:
    """Run a flow to its end in the colour of its store, where no event loop runs."""
    return asyncio.run(flow) if io == "async" else run(flow)
