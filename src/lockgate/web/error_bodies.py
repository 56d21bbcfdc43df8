"""Choose the body of a refusal: :meth:`Refusal.body <lockgate.errors.Refusal.body>`, or the host's
``WebOptions(error_body=)``; and advise its client whether to try again (D48)."""

import re
from typing import Final, NamedTuple

from ..error_formats import ErrorBody
from ..errors import Header, RateLimitExceeded, Refusal
from ..events import logger
from ..gate import Gate
from .bodies import written
from .request import RequestView

_NO_RETRY: Final[Header] = (b"x-should-retry", b"false")
_JSON: Final[Header] = (b"content-type", b"application/json")
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")


class _Refused(NamedTuple):
    """A request, as :class:`~lockgate.error_formats.RefusedRequest` shows it."""

    caller: RequestView

    @property
    def method(self) -> str:
        return self.caller.method

    @property
    def path(self) -> str:
        return self.caller.path

    def header(self, name: str) -> str | None:
        values = self.caller.header(name.lower().encode("latin-1"))
        return values[0].decode("latin-1") if values else None


def answer_of(
    refusal: Refusal, gate: Gate | None, caller: RequestView | None
) -> tuple[tuple[Header, ...], bytes]:
    """Return the headers and the body of a refusal.

    The body is that of ``WebOptions(error_body=)``, or else lockgate's in JSON. A function that
    fails, or returns what JSON or a header cannot hold, is logged; lockgate's body is sent.

    Args:
        refusal: with its rate-limit headers.
        gate: the gate that refuses; None: it is not known, so the answer is lockgate's.
        caller: the request; None: it is not known, likewise.
    """
    headers = (*refusal.headers(), *refusal.rate)
    if gate is not None and isinstance(refusal, RateLimitExceeded):
        longest = gate.longest_retry
        if refusal.is_final or (longest is not None and refusal.retry_after > longest):
            headers += (_NO_RETRY,)
    if gate is not None and gate.error_body is not None and caller is not None:
        try:
            shown = gate.error_body(refusal, _Refused(caller))
            if not isinstance(shown, ErrorBody):
                return (_JSON, *headers), written(shown)
            own = [_header(name, value) for name, value in shown.headers.items()]
            replaced = {name for name, _ in own}
            kept = [header for header in (_JSON, *headers) if header[0] not in replaced]
            return (*kept, *own), written(shown.content)
        except Exception:
            logger.exception(
                "WebOptions(error_body=) failed for %s; sending the standard body.", refusal.code
            )
    return (_JSON, *headers), written(refusal.body())


def _header(name: str, value: str) -> Header:
    """Return a header of the host in bytes.

    Raises:
        ValueError: no response can have it.
    """
    key, content = name.lower().encode("latin-1"), value.encode("latin-1")
    if not _NAME.fullmatch(key) or not _VALUE.fullmatch(content):
        raise ValueError(f"{name!r} cannot be sent as a header")
    return key, content
