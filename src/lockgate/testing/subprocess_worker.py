"""A second process with an open store, which runs the commands that it reads."""

import asyncio
import json
import pickle
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from typing import Any, Final

from ..errors import KeyLimitReached
from ..stores.base import Store
from ..sync import run
from .factories import Factory, book

TIMES: Final = 12
CALLERS: Final = 3


def work() -> None:
    """Open the store, and run commands until the input ends."""
    reopen: Callable[[], Store] = pickle.loads(b64decode(json.loads(sys.stdin.readline())[0]))  # noqa: S301 - from our own parent
    store = reopen()
    with asyncio.Runner() as runner:
        drive = runner.run if store.io == "async" else run
        _tell(True)
        for line in sys.stdin:
            what, index, *details = json.loads(line)
            _tell(drive(_DOES[what](store, index, *details)))
        drive(store.close())


async def _show(store: Store, _: int, key: str, limit: int) -> dict[str, int]:
    token = Factory().format.read([b"Bearer " + key.encode()])
    plans = book(limit)

    async def one() -> str:
        return (await store.admit(token, 1, plans)).verdict.value

    return await _by_callers(store, one)


async def _take(store: Store, index: int, limit: int, lasts: int) -> dict[str, int]:
    jobs = count()

    async def one() -> str:
        job = f"job {index} {next(jobs)}"
        lease = (await store.acquire("org_1", job, "me", limit, lasts)).lease
        return "taken" if lease else "refused"

    return await _by_callers(store, one)


async def _insert(store: Store, index: int, cap: int) -> dict[str, int]:
    factory = Factory(100 + index)

    async def one() -> str:
        try:
            await store.insert(factory.draft("org_3"), cap)
        except KeyLimitReached:
            return "refused"
        return "inserted"

    return await _by_callers(store, one)


async def _change_counter(store: Store, _: int) -> dict[str, int]:
    change_counter = await store.change_counter()
    return {} if change_counter is None else {"change_counter": change_counter}


_DOES: Final[dict[str, Callable[..., Coroutine[Any, Any, dict[str, int]]]]] = {
    "show": _show,
    "take": _take,
    "insert": _insert,
    "change_counter": _change_counter,
}


async def _by_callers(store: Store, one: Callable[[], Awaitable[str]]) -> dict[str, int]:
    """Return the outcomes of some callers that repeat a call, with their counts."""

    async def caller() -> list[str]:
        return [await one() for _ in range(TIMES)]

    if store.io == "async":
        parts = await asyncio.gather(*(caller() for _ in range(CALLERS)))
    else:
        parts = [await caller() for _ in range(CALLERS)]
    return dict(Counter(outcome for part in parts for outcome in part))


def _tell(answer: Any) -> None:
    print(json.dumps(answer), flush=True)
