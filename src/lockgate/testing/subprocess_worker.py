"""A second process with an open store, which runs the commands that it reads."""

import asyncio
import json
import pickle
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from itertools import count
from time import sleep
from traceback import format_exception
from typing import Any, Final

from ..core.leases import to_acquire
from ..core.limits import Limit
from ..core.plans import PlanBook
from ..errors import HandleTaken, KeyLimitReached
from ..stores.base import PartStore, Store
from ..sync import run
from .board import Board
from .calls import as_call
from .checks import whole
from .factories import OPEN, Factory, book
from .races import RACERS, RACES, RAISED, ROUNDS, Rows
from .writers import TURNS, TURNS_AT_MOST, Owner, Subject, Writer, told

TIMES: Final = 12
CALLERS: Final = 3
_PAUSE: Final = 0.0002
"""Seconds between reads, in which the changing process runs."""


def work() -> None:
    """Open the store, and run commands until the input ends.

    The answer to each is written as a line: the value, and what was raised instead.
    """
    place, path, pickled = json.loads(sys.stdin.readline())
    try:
        reopen: Callable[[], PartStore] = pickle.loads(b64decode(pickled))  # noqa: S301 - from our own parent
        store = whole(reopen())
    except Exception as failure:
        _tell_raised(failure)
        return
    board = Board(path, place)
    with asyncio.Runner() as runner:
        drive = runner.run if store.io == "async" else run
        _tell(True)
        for line in sys.stdin:
            what, index, *details = json.loads(line)
            try:
                answer = drive(_DOES[what](store, board, index, *details))
            except Exception as failure:
                _tell_raised(failure)
            else:
                _tell(answer)
        drive(store.close())
        board.close()


async def _show(store: Store, _: Board, __: int, key: str, limit: int) -> dict[str, int]:
    token = Factory().format.read([b"Bearer " + key.encode()])
    plans = book(limit)

    async def one() -> str:
        return (await store.admit(token, 1, plans)).verdict.value

    return await _by_callers(store, one)


async def _limited(
    store: Store, _: Board, __: int, key: str, limit: int, rates: str | None
) -> dict[str, int]:
    """Show a key of a plan with a named limit, to a rule with these rates."""
    token = Factory().format.read([b"Bearer " + key.encode()])
    rule = () if rates is None else (Limit("of-the-rule", rates),)
    plan = Limit("of-the-plan", f"{limit}/hour")
    plans = PlanBook([replace(OPEN, limits=(plan,))], custom=(), default=OPEN.name)

    async def one() -> str:
        return (await store.admit(token, 1, plans, None, None, rule)).verdict.value

    return await _by_callers(store, one)


async def _take(
    store: Store, _: Board, index: int, organization: str, limit: int, lasts: int
) -> dict[str, int]:
    jobs = count()

    async def one() -> str:
        job = f"job {index} {next(jobs)}"
        lease = (await store.charge(organization, to_acquire(job, "me", limit, lasts))).slot
        return "taken" if lease else "refused"

    return await _by_callers(store, one)


async def _insert(store: Store, _: Board, index: int, cap: int) -> dict[str, int]:
    factory = Factory(100 + index)

    async def one() -> str:
        try:
            await store.insert(factory.draft("org_3"), cap)
        except KeyLimitReached:
            return "refused"
        return "inserted"

    return await _by_callers(store, one)


async def _change_counter(store: Store, _: Board, __: int) -> dict[str, int]:
    change_counter = (await store.freshness()).change_counter
    return {} if change_counter is None else {"change_counter": change_counter}


async def _race(
    store: Store, board: Board, index: int, verb: str, now: int, start: int
) -> list[Any]:
    """Call a verb in each turn at the instant at which all processes call it."""
    race, rows = next(race for race in RACES if race.verb == verb), Rows(verb, now)
    outcomes: list[Any] = []
    for turn in range(ROUNDS):
        board.set(start + turn)
        board.wait(range(RACERS), start + turn)
        try:
            outcomes.append(await race.step(store, rows, turn, index))
        except (HandleTaken, KeyLimitReached) as error:
            outcomes.append(f"{RAISED}{type(error).__name__}")
    return outcomes


async def _write(
    store: Store, board: Board, index: int, now: int, owners: list[Owner], start: int
) -> tuple[int, str | None, str | None]:
    """Change some fields that no other process changes, until the others have changed theirs."""
    writers = Subject(1, now).writers(owners)[index::RACERS]
    board.set(start)
    board.wait(range(RACERS), start)
    turn, others = 0, [place for place in range(RACERS) if place != index]
    while turn < TURNS_AT_MOST and any(
        board.of(place) <= start + TURNS for place in (*others, index)
    ):
        for writer in writers:
            if turn and (said := await _unlike(store, writer, turn)):
                board.set(start + TURNS + 1)
                return said
            await writer.write(store, turn + 1)
        turn += 1
        board.set(start + turn)
    board.set(start + TURNS + 1)
    return turn, None, None


async def _unlike(store: Store, writer: Writer, turn: int) -> tuple[int, str, str] | None:
    """Return the mistake in a field, as the answer to the parent; None: the field is right."""
    found = await writer.reads[turn % len(writer.reads)](store)
    if found == writer.expected(turn):
        return None
    return turn, writer.sentence, told(writer, turn, found)


async def _watch(
    store: Store,
    board: Board,
    _: int,
    now: int,
    owners: list[Owner],
    which: int,
    turns: int,
    start: int,
) -> str | None:
    """Read a field all the time by each verb that shows it; describe the first stale answer.

    The parent's counter tells that the change of a turn was answered.
    """
    writer = Subject(2, now).writers(owners)[which]
    said: str | None = None
    for turn in range(1, turns + 1):
        answered = False
        while not answered:
            answered = board.of(RACERS) >= start + turn
            for read in writer.reads:
                found = await read(store)
                if answered and found != writer.expected(turn):
                    said = said or f"{as_call(read.verb)} found {found!r} after turn {turn}"
            board.set(start + turn)
            sleep(_PAUSE)
    return said


_DOES: Final[dict[str, Callable[..., Coroutine[Any, Any, Any]]]] = {
    "show": _show,
    "limited": _limited,
    "take": _take,
    "insert": _insert,
    "change_counter": _change_counter,
    "race": _race,
    "write": _write,
    "watch": _watch,
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
    print(json.dumps((answer, None, None)), flush=True)


def _tell_raised(failure: Exception) -> None:
    said = f"{type(failure).__name__}: {failure}"
    print(json.dumps((None, said, "".join(format_exception(failure)))), flush=True)
