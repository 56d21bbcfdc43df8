"""What every contender serves, and the one key that comes with every request."""

from random import Random

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from lockgate.core.api_keys import KeyDraft
from lockgate.core.digests import Peppers
from lockgate.core.key_format import BASE62, KeyFormat
from lockgate.core.row_seals import sealed_draft

BRAND = "acme"
PEPPER = b"a pepper of the benchmarks, known to all"
ORGANIZATION = "org_benchmarks"

EXACT = "/models"
PARAMETRISED = "/models/7d2f41c0"
TEMPLATES = ("/models", "/models/{id}", "/jobs", "/jobs/{id}", "/images", "/uploads/{name:path}")

PLENTY = (10_000_000, 100_000_000, 1_000_000_000)
"""Requests per minute, hour and day: never reached here, yet counted all the same."""
SPENT = (10_000_000, 100_000_000, 1)
"""The same, with a day that the first request has used up."""

FORMAT = KeyFormat(BRAND, peppers=Peppers([PEPPER]), draw=lambda length: "k" * length)
KEY = FORMAT.generate()
AUTHORIZATION = b"Bearer " + KEY.text.encode()

HEADERS = [
    (b"host", b"api.example.com"),
    (b"user-agent", b"python-httpx/0.28.1"),
    (b"accept", b"*/*"),
    (b"accept-encoding", b"gzip, deflate"),
    (b"connection", b"keep-alive"),
    (b"authorization", AUTHORIZATION),
    (b"x-request-id", b"0b0f0a3e-2f0c-4a53-8d3f-6a1d7c3c9b1e"),
    (b"traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
]


async def endpoint(request: Request) -> Response:
    return PlainTextResponse("ok")


def bare(handler=endpoint) -> Starlette:
    """The application that every contender guards."""
    return Starlette(routes=[Route(path, handler) for path in TEMPLATES])


def draft(format: KeyFormat = FORMAT, organization: str = ORGANIZATION, key=KEY) -> KeyDraft:
    """A key as a store is given it; its id is its handle, which is as unique."""
    kept = key.handle, key.handle, organization, "bench", key.prefix, ("*",), *format.digest(key)
    return sealed_draft(KeyDraft(*kept, None), format.peppers)


def random_keys(numbers: Random) -> KeyFormat:
    """Keys drawn quickly: not for secrets."""
    return KeyFormat(
        BRAND,
        peppers=FORMAT.peppers,
        draw=lambda length: "".join(numbers.choices(BASE62, k=length)),
    )
