"""The response of a WSGI application: its headers, its slot, its end, and the refusals instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from http import HTTPStatus
from typing import Final
from wsgiref.types import StartResponse, WSGIEnvironment

from ..core.deprecation import SUNSET_HEADERS
from ..core.rate_limit_headers import NOT_TO_STORE, RATE_HEADERS, rate_headers, rate_text, shadowed
from ..errors import Header, Refusal
from .entry import Entry, mark_rated
from .operations.operation import Reply
from .wsgi_request import WsgiRequest

_NAMES: Final = {name: name.decode() for name in RATE_HEADERS}
"""The names that every response carries, as text."""
_OURS: Final = frozenset(_NAMES.values())
_OURS_AND_CACHES: Final = _OURS | {"cache-control"}
_SUNSET: Final = frozenset(name.decode() for name in SUNSET_HEADERS)
_WHOLE: Final = (list, tuple)
_NOT_TO_STORE: Final = frozenset(map(str, NOT_TO_STORE))

_Headers = list[tuple[str, str]]
_Write = Callable[[bytes], object]


def starting(entry: Entry, start_response: StartResponse) -> StartResponse:
    """Return a function that starts a response with the rate headers (G2, D38).

    Args:
        entry: the record of the admission.
        start_response: the server's function.
    """

    # A function with two cells takes a third of the time of an object with a method.
    def start(status: str, headers: _Headers, exc_info: object = None, /) -> _Write:
        guard, measured = entry.guard, entry.measured
        entry.has_started = True
        if entry.is_rated:  # A gate inside this one has written its own.
            return start_response(status, headers, exc_info)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as it came
        if guard.shadow is not None and not entry.rule.own:
            rate = () if measured is None else shadowed(rate_headers(*measured))
            return start_response(status, [*headers, *text(rate)], exc_info)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as it came
        not_to_store = status[:3] in _NOT_TO_STORE
        replaced = _OURS_AND_CACHES if not_to_store else _OURS
        kept: _Headers = []
        for header in headers:  # A comprehension is a call of its own.
            name = header[0].lower()
            if name not in replaced:
                kept.append(header)
                if name == "content-length":
                    entry.has_length = True
        if not_to_store:
            kept.append(("cache-control", "no-store"))
        principal = entry.principal
        key = None if principal is None else principal.key
        if key is not None and key.details is not None and key.details.rotated_at is not None:
            ending = entry.ending
            if ending:
                kept = [one for one in kept if one[0].lower() not in _SUNSET]
                kept += text(ending)
        if measured is not None:
            kept += rate_text(measured[0], measured[1])  # Faster than with ``*``.
            if entry.outer is not None:
                mark_rated(entry.outer)
        return start_response(status, kept, exc_info)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as it came

    return start


def is_stream(entry: Entry, body: Iterable[bytes]) -> bool:
    """Return whether a response that has begun is to end with its key or session.

    That is one of unknown length that the server asks for part by part, unless a gate outside this
    one watches it.
    """
    principal, guard = entry.principal, entry.guard
    if entry.has_length or isinstance(body, _WHOLE) or guard.streams is None:
        return False
    if principal is None or entry.within(guard.gate) is not None:
        return False
    return principal.session is None or principal.session.agent


class Body:
    """The body of a response that begins late, holds a slot, or ends with its key or session.

    Until the response has begun, the application may raise a refusal: it is answered instead.

    Args:
        body: the body of the application; it is closed first.
        entry: the record of the admission.
        request: the request as it came; Django changes its environment.
        refuse: answers a refusal, or raises it once the response has begun.
        held: is left when the server closes the body.
    """

    def __init__(
        self,
        body: Iterable[bytes],
        entry: Entry,
        request: WsgiRequest,
        refuse: Callable[[Refusal], Iterable[bytes]],
        held: ExitStack,
    ) -> None:
        self._body = body
        self._entry = entry
        self._request = request
        self._refuse = refuse
        self._held = held
        if entry.has_started:
            self._watch()

    def __iter__(self) -> Iterator[bytes]:
        has_started = self._entry.has_started
        try:
            for part in self._body:
                if not has_started:
                    has_started = True
                    self._watch()
                if self._entry.refusal is not None:
                    raise self._entry.refusal
                yield part
        except Refusal as refusal:
            yield from self._refuse(refusal)

    def close(self) -> None:
        """Close the application's body, and free what the request held."""
        self._entry.unwatch()
        with self._held:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()

    def _watch(self) -> None:
        """Have the stream end with its key or session, if it is one."""
        if is_stream(self._entry, self._body):
            self._entry.watch(self._request)


def respond(
    reply: Reply, environ: WSGIEnvironment, start_response: StartResponse
) -> Iterable[bytes]:
    """Send a reply whole."""
    length = (b"content-length", b"%d" % len(reply.body))
    status = f"{reply.status} {HTTPStatus(reply.status).phrase}"
    start_response(status, text([*reply.headers, length]))
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [reply.body]


def text(headers: Iterable[Header]) -> list[tuple[str, str]]:
    """Headers as WSGI carries them."""
    written: list[tuple[str, str]] = []
    for name, value in headers:  # A comprehension is a call of its own.
        known = _NAMES.get(name)
        written.append((known or name.decode("latin-1"), value.decode("latin-1")))
    return written
