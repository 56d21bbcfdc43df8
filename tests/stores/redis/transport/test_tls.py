"""Redis by TLS: a server with a wrong certificate gets no data, and callers get 503, never 500."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from ssl import SSLCertVerificationError
from time import monotonic, sleep
from typing import Any

import pytest
from redis.exceptions import ConnectionError

from lockgate import Event, Gate, Plan, PlanBook, run
from lockgate.core.ledger import Hit
from lockgate.errors import StoreUnavailable
from lockgate.options import StoreOptions
from lockgate.stores.redis import RedisStore

from ...failing import store_fails
from ...tls import Certificate, SecureProxy, certificate
from ..backends import server

BOOK = PlanBook([Plan("free", 10**6, None, None, None)])
WINDOWS = BOOK.default.windows
WRONG: dict[str, Callable[[Path], Certificate]] = {
    "of somebody else": certificate,
    "for another host": lambda folder: certificate(folder, "127.0.0.2"),
    "expired": lambda folder: certificate(folder, days=-1),
}
awaiting = pytest.mark.parametrize("awaiting", [False, True], ids=["sync", "awaiting"])


def do(flow: Any, awaiting: bool) -> Any:
    return asyncio.run(flow) if awaiting else run(flow)


@pytest.fixture
def right(tmp_path: Path) -> Certificate:
    return certificate(tmp_path)


@pytest.fixture
def secured(right: Certificate) -> Iterator[SecureProxy]:
    with SecureProxy(server("single").port, right) as proxy:
        yield proxy


def url(proxy: SecureProxy, trusted: Certificate) -> str:
    return f"rediss://127.0.0.1:{proxy.port}?ssl_ca_certs={trusted.file}"


@awaiting
@pytest.mark.parametrize("wrong", list(WRONG))
def test_a_wrong_certificate_is_named_as_the_reason(
    secured: SecureProxy, right: Certificate, tmp_path: Path, wrong: str, awaiting: bool
) -> None:
    secured.shows = WRONG[wrong](tmp_path)
    # The certificate itself is invalid: without that fault, all but the first would be trusted.
    trusted = right if wrong == "of somebody else" else secured.shows
    store = RedisStore(url(secured, trusted))

    async def hit() -> None:
        try:
            await store.charge("org_1", Hit(WINDOWS, 1))
        finally:
            await store.close()

    with store_fails(ConnectionError, "CERTIFICATE_VERIFY_FAILED") as failed:
        do(hit(), awaiting)
    refused = failed.value.__cause__
    causes = refused.__cause__, refused.__context__
    assert any(isinstance(cause, SSLCertVerificationError) for cause in causes)


@awaiting
@pytest.mark.usefixtures("soon_tried")
def test_requests_get_503_until_the_certificate_is_right_again(
    secured: SecureProxy, right: Certificate, tmp_path: Path, awaiting: bool
) -> None:
    told: list[Event] = []
    # A handshake may take long on a busy machine; its duration is not tested.
    gate = Gate(
        url(secured, right),
        brand="acme",
        plans=BOOK,
        observer=told.append,
        store_options=StoreOptions(deadline=20.0),
    )

    async def all_of_it() -> None:
        made = await gate.keys.create("org_1", "a key")
        token = made.text
        await gate.authenticate(token)

        async def counted() -> int | None:
            try:
                key = (await gate.authenticate(token)).key
            except StoreUnavailable:
                return None
            return None if key is None else key.request_count

        secured.shows = certificate(tmp_path)
        secured.drop_all()
        assert [await counted() for _ in range(5)] == [None] * 5
        secured.shows = right
        until = monotonic() + 60
        while (count := await counted()) is None:
            assert monotonic() < until
            await asyncio.sleep(0.01) if awaiting else sleep(0.01)
        assert count == 2
        await gate.close()

    do(all_of_it(), awaiting)
    errors = {event.fields["error"] for event in told if event.name == "breaker_opened"}
    assert errors == {"ConnectionError from SSLCertVerificationError"}
