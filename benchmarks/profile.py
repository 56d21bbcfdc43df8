"""Where the time of one admitted request goes: every stage called alone, in turns.

A stage that awaits others holds their time too; the indented ones below it are parts of it.
"""

import asyncio
from collections.abc import Callable
from time import process_time_ns

from lockgate import run
from lockgate.asgi import AsgiRequest, GateMiddleware
from lockgate.core.rate_limit_headers import rate_headers

from . import contenders
from .drive import Turn
from .measure import Spread, in_turns, table
from .workload import AUTHORIZATION, EXACT, FORMAT, KEY, PLENTY

EMPTY = "an empty call"
CALLS = 2_000
"""So many in one turn."""


def main(quick: bool) -> None:
    rounds = 6 if quick else 60
    turns = stages()
    figures = in_turns(turns, rounds)
    own = Spread.of(figures.pop(EMPTY)).median
    rows = [[name, f"{Spread.of([took - own for took in figures[name]]):.2f}"] for name in figures]
    title = (
        f"The stages of one admitted request\n(process CPU time; median and quartiles of {rounds} "
        f"rounds of {CALLS} calls, in turns; {EMPTY}, {own:.2f}, is taken off)"
    )
    table(title, ["", "CPU us"], rows)


def stages() -> dict[str, Callable[[], float]]:
    guarded = contenders.lockgate(PLENTY)
    guard = guarded.guard
    gate, store = guard.gate, guard.gate.store
    Turn(guarded)()
    scope = {"type": "http", "method": "GET", "path": EXACT, "raw_path": EXACT.encode()}
    scope["headers"] = Turn(guarded).headers()
    caller = AsgiRequest(scope)
    values = [AUTHORIZATION]
    token = FORMAT.read(values)
    digest = FORMAT.digest(KEY)
    requires = guard.book.match(caller.method, caller.path, caller.raw_path).requires
    principal = run(gate.authenticate(KEY.text, requires))
    known = gate.known.find(values)
    plan, reading = principal.plan, principal.reading
    windows = store._windows  # The table alone: the store's own lock and clock are not in it.
    now = [reading.now]

    def hit():
        now[0] += 50
        windows.hit("profile", plan.windows, now[0], 1)

    silent = GateMiddleware(_answer, gate)
    template = {**scope, "client": ("127.0.0.1", 50_000)}

    return {
        EMPTY: _calls(lambda: None),
        "the middleware whole, before an application that only answers": _awaits(
            lambda: silent({**template, "state": {}}, None, _send)
        ),
        "  that application alone": _awaits(
            lambda: _answer({**template, "state": {}}, None, _send)
        ),
        "  guard.enter": _awaits(lambda: guard.enter(caller)),
        "    book.match": _calls(
            lambda: guard.book.match(caller.method, caller.path, caller.raw_path)
        ),
        "    caller.header": _calls(lambda: caller.header(b"authorization")),
        "    format.read": _calls(lambda: gate.format.read(values)),
        "    gate.admit_header": _awaits(
            lambda: gate.admit_header(values, known, requires, 1, str, "")
        ),
        "      store.admit": _awaits(lambda: store.admit(token, 1, gate.plans, None)),
        "        token.matches": _calls(lambda: token.matches(*digest[:2])),
        "        windows.hit": _calls(hit),
        "    rate_headers": _calls(lambda: rate_headers(plan, reading)),
        "  AsgiRequest": _calls(lambda: AsgiRequest(scope)),
    }


async def _answer(scope, receive, send) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


async def _send(message) -> None:
    pass


def _calls(stage: Callable[[], object]) -> Callable[[], float]:
    def turn() -> float:
        started = process_time_ns()
        for _ in range(CALLS):
            stage()
        return (process_time_ns() - started) / CALLS / 1000

    return turn


def _awaits(stage: Callable[[], object]) -> Callable[[], float]:
    async def drive() -> float:
        started = process_time_ns()
        for _ in range(CALLS):
            await stage()
        return (process_time_ns() - started) / CALLS / 1000

    return lambda: asyncio.run(drive())  # The middleware asks for its task.
