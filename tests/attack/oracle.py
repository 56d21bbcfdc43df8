"""What must hold for every answer: whichever handler ran, its own rule was charged (G1, D31)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .handlers import NAMES, Handler
from .mutations import Attack
from .record import ORGANIZATIONS, State
from .wire import Answer, Request

HOLDS = {"models": {"models:read"}, "jobs": {"jobs:read"}}
"""The scopes of narrow keys; that of ``full`` holds every one."""

RATE_HEADERS = (b"x-ratelimit-limit", b"x-ratelimit-remaining", b"x-ratelimit-reset")


class Violation(NamedTuple):
    """One thing that an answer shows and must not."""

    clause: str
    """Which sentence is broken, in a word."""
    handler: str
    expected: str
    found: str


def may(credential: str, handler: Handler) -> bool:
    """Whether a credential satisfies a handler's own rule."""
    if handler.public:
        return True
    if credential not in ORGANIZATIONS:
        return False
    return handler.scope is None or credential == "full" or handler.scope in HOLDS.get(
        credential, ()
    )  # fmt: skip


def is_preflight(request: Request) -> bool:
    """Whether a request claims to be a CORS preflight."""
    asks = request.header(b"access-control-request-method")
    return request.method == b"OPTIONS" and None not in (request.header(b"origin"), asks)


def judge(
    attack: Attack, before: State, after: State, answer: Answer, handlers: Sequence[Handler]
) -> Iterator[Violation]:
    """Everything that is wrong with what a request did.

    Args:
        attack: what was sent.
        before: the counters before it.
        after: the counters after it.
        answer: what came back.
        handlers: those of the application.
    """
    request = attack.request
    ran = {
        handler: after.runs[place] - before.runs[place]
        for place, name in enumerate(NAMES)
        for handler in handlers
        if handler.name == name and after.runs[place] != before.runs[place]
    }
    charged = 0
    if request.credential in ORGANIZATIONS:
        place = ORGANIZATIONS.index(request.credential)
        charged = after.used[place] - before.used[place]
    method = request.method.decode("latin-1")
    for handler, times in ran.items():
        if is_preflight(request):
            yield Violation("preflight", handler.name, "no handler runs", "it ran")
        elif not (request.alone or handler.websocket or handler.allows(method)):
            named = ", ".join(handler.methods)
            clause = "public method" if handler.public else "method"
            yield Violation(clause, handler.name, f"only {named} runs it", f"{method} ran it")
        if not may(request.credential, handler):
            needed = f"scope {handler.scope}" if handler.scope else "a key"
            yield Violation("entry", handler.name, needed, f"it ran with {request.credential}")
        elif not handler.public:
            own = handler.cost * times
            if charged < own or (charged > own and not attack.mutations):
                yield Violation("charge", handler.name, f"a charge of {own}", f"{charged}")
    if after.faults > before.faults:
        yield Violation("fault", attack.handler.name, "no exception", "one left the gate")
    came = after.entered > before.entered
    if came and after.status >= 500 and answer.status == after.status:
        yield Violation("5xx", attack.handler.name, "no 5xx for bad input", f"{after.status}")
    told = (
        answer.headers and answer.status == after.status != 101
    )  # Not every server lets headers go with a 101.
    if came and told and not request.alone:
        for name in RATE_HEADERS:
            if len(answer.all(name)) != 1:
                times_ = f"{len(answer.all(name))} times"
                yield Violation("headers", attack.handler.name, f"{name.decode()} once", times_)
                break


def judge_unnamed_method(
    request: Request, answer: Answer, handlers: Sequence[Handler]
) -> Violation | None:
    """A path that rules name for some methods answers every other method with 405 (D31 b).

    Args:
        request: for a path that is spelt as the rules spell it.
        answer: what came back.
        handlers: those of the application.
    """
    method = request.method.decode("latin-1")
    here = [h for h in handlers if h.sample.encode() == request.target and h.paths]
    if not here or not method.isupper() or any(h.allows(method) for h in here):
        return None
    if request.credential not in ORGANIZATIONS or is_preflight(request):
        return None
    if answer.status == 405 and answer.all(b"allow"):
        return None
    if answer.status in (None, 400, 501):
        return None  # The server knows no such method.
    found = f"{answer.status}, Allow: {answer.all(b'allow')}"
    return Violation("405", here[0].name, f"405 with Allow for {method}", found)
