"""What must hold for every answer: whichever handler ran, its own rule was charged (G1, D31)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .attack import Attack
from .handlers import Handler
from .record import ID, ORGANIZATIONS, Run
from .wire import Answer, Request

HOLDS = {"models": {"models:read"}, "jobs": {"jobs:read"}}
"""The scopes of narrow keys; the key ``full`` has all of them."""

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


def method_of(request: Request, *, any_opens: bool = False) -> str:
    """The method that the gate sees.

    Some servers take the white space around a method away. Granian makes a WebSocket scope of a
    handshake by any method; such a scope has no method, and a handshake is held to the rule of GET.
    """
    upgrade = request.header(b"upgrade") or b""
    if any_opens and upgrade.strip().lower() == b"websocket":
        return "GET"
    return request.method.decode("latin-1").strip()


def is_preflight(request: Request, *, any_opens: bool = False) -> bool:
    """Return whether a request claims to be a CORS preflight; an empty header does not."""
    origin, asks = map(request.header, (b"origin", b"access-control-request-method"))
    return method_of(request, any_opens=any_opens) == "OPTIONS" and bool(origin and asks)


def judge(
    attack: Attack,
    id: int,
    run: Run,
    answer: Answer,
    handlers: Sequence[Handler],
    *,
    any_opens: bool = False,
) -> Iterator[Violation]:
    """Return every violation in a request's record.

    Args:
        attack: the request that was sent.
        id: of the request.
        run: the record of its effects in the application.
        answer: what came back.
        handlers: those of the application.
        any_opens: whether the server opens a WebSocket by any method.
    """
    charged = run.charged[attack.credential]
    for handler in handlers:
        if times := run.handlers[handler.name]:
            yield from _ran(attack, handler, times, charged, any_opens=any_opens)
    if run.faults:
        yield Violation("fault", attack.handler.name, "no exception", "one left the gate")
    if answer.all(ID.encode()) != [b"%d" % id] or attack.request.alone:
        return  # The server answered by itself, or there was more than one answer.
    status = answer.status or 0
    if status >= 500:
        yield Violation("5xx", attack.handler.name, "no 5xx for bad input", f"{status}")
    for name in RATE_HEADERS:
        if (count := len(answer.all(name))) != 1:
            told = f"{count} times"
            yield Violation("headers", attack.handler.name, f"{name.decode()} once", told)
            break
    yield from _unnamed(attack, answer, handlers)


def judge_lost(run: Run, handlers: Sequence[Handler]) -> Iterator[Violation]:
    """Return the violations of requests that lost their headers: they may run public handlers only.

    Args:
        run: what all of them did.
        handlers: those of the application.
    """
    for handler in handlers:
        if run.handlers[handler.name] and not handler.public:
            yield Violation("entry", handler.name, "a key", "it ran without headers")


def _ran(
    attack: Attack, handler: Handler, times: int, charged: int, *, any_opens: bool
) -> Iterator[Violation]:
    """A handler that ran did so by a method that its rule names, with its scope, at its cost."""
    request = attack.request
    method = method_of(request, any_opens=any_opens)
    if is_preflight(request, any_opens=any_opens) and not handler.websocket:
        yield Violation("preflight", handler.name, "no handler runs", "it ran")
    elif not (request.alone or handler.websocket or handler.allows(method)):
        clause = "public method" if handler.public else "method"
        named = f"only {', '.join(handler.methods)} runs it"
        yield Violation(clause, handler.name, named, f"{method} ran it")
    if not may(request.credential, handler):
        needed = f"scope {handler.scope}" if handler.scope else "a key"
        yield Violation("entry", handler.name, needed, f"it ran with {request.credential}")
    elif not handler.public:
        own = handler.cost * times
        if charged < own or (charged > own and not attack.mutations):
            yield Violation("charge", handler.name, f"a charge of {own}", f"{charged}")


def _unnamed(attack: Attack, answer: Answer, handlers: Sequence[Handler]) -> Iterator[Violation]:
    """A path that rules name for some methods answers every other method with 405 (D31 b)."""
    request = attack.request
    method = method_of(request)
    here = [h for h in handlers if h.sample.encode() == request.target and h.paths]
    here = [h for h in here if h.host is None or h.host.encode() == request.host]
    # A public catch-all names every path.
    here += [h for h in handlers if here and h.name == "page" and h.public]
    if not here or not method.isupper() or any(h.allows(method) for h in here):
        return
    if request.credential not in ORGANIZATIONS or is_preflight(request):
        return
    if request.header(b"authorization") is not None:
        return  # One more than the credential's: with two, there is none (D18).
    # A server may take a handshake for a GET, and a header for a prefix of the path.
    if request.header(b"upgrade") or "prefix in a header" in attack.families:
        return
    if answer.status not in (400, 405) or (answer.status == 405 and not answer.all(b"allow")):
        found = f"{answer.status}, Allow: {answer.all(b'allow')}"
        yield Violation("405", here[0].name, f"405 with Allow for {method}", found)
