"""CPU time that a request costs in this process, without a server."""

from collections.abc import Callable
from itertools import count

from lockgate import MemoryStore, run
from lockgate.core.key_format import KeyFormat

from . import contenders
from .drive import REQUESTS, Headers, Turn
from .measure import Spread, added, in_turns, ratio, table
from .workload import (
    EXACT,
    FORMAT,
    HEADERS,
    ORGANIZATION,
    PARAMETRISED,
    PLENTY,
    SPENT,
    draft,
)

BARE, LOCKGATE, SLOWAPI = "bare Starlette", "lockgate", "slowapi, decorator"
EVERYBODY = {
    BARE: contenders.nothing,
    "floor, inlined by hand": contenders.floor,
    LOCKGATE: contenders.lockgate,
    "mix: dict + limits": contenders.mix,
    SLOWAPI: contenders.slowapi,
    "slowapi, ASGI middleware": contenders.slowapi_middleware,
}
DAY = 86_400_000_000
BUSY = 20_000
"""Requests a day of an organization that is busy all day."""


def main(quick: bool) -> None:
    rounds = 6 if quick else 80
    admitted(rounds)
    refused(rounds)
    routes(rounds)
    fullness(rounds)


def admitted(rounds: int) -> None:
    figures = in_turns({name: Turn(make(PLENTY)) for name, make in EVERYBODY.items()}, rounds)
    theirs = added(figures, SLOWAPI, BARE).median
    rows = []
    for name in figures:
        more = added(figures, name, BARE)
        best = min(figures[name]) - min(figures[BARE])
        beside = [f"{more:.1f}", f"{best:.1f}", f"{more.median / theirs:.2f}"]
        if name == BARE:
            beside = ["", "", ""]
        rows.append(
            [name, f"{Spread.of(figures[name]):.1f}", f"{ratio(figures, name, BARE):.2f}", *beside]
        )
    # What else runs on the machine only ever adds: the fastest turns are the least disturbed.
    columns = ["", "CPU us", "times bare", "added us", "at best", "of slowapi's"]
    table(_title("A request that is admitted", rounds), columns, rows)


def refused(rounds: int) -> None:
    turns = {BARE: Turn(contenders.nothing(PLENTY))}
    for name, make in EVERYBODY.items():
        if name != BARE:
            turns[name] = Turn(make(SPENT), status=429)
    figures = in_turns(turns, rounds)
    rows = [
        [name, f"{Spread.of(figures[name]):.1f}", f"{ratio(figures, name, BARE):.2f}"]
        for name in figures
    ]
    title = "A request that is refused (429), beside one that the bare application serves"
    table(_title(title, rounds), ["", "CPU us", "times bare"], rows)


def routes(rounds: int) -> None:
    kinds = {"exact": EXACT, "parametrised": PARAMETRISED}
    turns = {
        f"{name}, {kind}": Turn(EVERYBODY[name](PLENTY), path)
        for kind, path in kinds.items()
        for name in (BARE, LOCKGATE)
    }
    figures = in_turns(turns, rounds)
    rows = []
    for kind, path in kinds.items():
        base = f"{BARE}, {kind}"
        more = added(figures, f"{LOCKGATE}, {kind}", base)
        rows.append([f"{kind}: {path}", f"{Spread.of(figures[base]):.1f}", f"{more:.1f}"])
    columns = ["", "bare CPU us", "added us"]
    table(_title("lockgate, by the kind of route", rounds), columns, rows)


def fullness(rounds: int) -> None:
    pace = DAY // BUSY
    ticks = count(2 * DAY, pace)
    # The day has room for some more: a window that is busy gives capacity back a little late.
    busy = Turn(contenders.lockgate((60, 1_500, BUSY * 21 // 20), clock=lambda: next(ticks)))
    for _ in range(BUSY // REQUESTS + 1):
        busy()
    store = MemoryStore()
    turns = {
        BARE: Turn(contenders.nothing(PLENTY)),
        "an organization's first request": Turn(
            contenders.lockgate(PLENTY, store=store),
            headers=_strangers(store, (rounds + 1) * REQUESTS + 1),
        ),
        "as fast as it goes": Turn(contenders.lockgate(PLENTY)),
        f"{BUSY:,} a day, one each {pace / 1e6:.2f} s": busy,
    }
    figures = in_turns(turns, rounds)
    rows = [[name, f"{added(figures, name, BARE):.1f}"] for name in figures if name != BARE]
    table(_title("lockgate, by what the windows hold", rounds), ["", "added us"], rows)


def _strangers(store: MemoryStore, so_many: int) -> Callable[[], Headers]:
    """Headers with another organization's key each time."""
    numbers = count()
    format = KeyFormat(
        FORMAT.brand, peppers=FORMAT.peppers, draw=lambda length: f"{next(numbers):0{length}d}"
    )
    keys = [format.generate() for _ in range(so_many)]
    for key in keys:
        run(store.insert(draft(format, f"{ORGANIZATION}_{key.handle}", key), None))
    values = iter([b"Bearer " + key.text.encode() for key in keys])
    others = [header for header in HEADERS if header[0] != b"authorization"]
    return lambda: [*others, (b"authorization", next(values))]


def _title(what: str, rounds: int) -> str:
    return (
        f"{what}\n(process CPU time; median and quartiles of {rounds} rounds "
        f"of {REQUESTS} requests, in turns)"
    )
