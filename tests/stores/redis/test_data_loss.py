"""A Redis that lost data is reported in the log, once and with what to do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lockgate import run
from lockgate.core.timestamps import DAY
from lockgate.stores.answers import Verdict
from lockgate.stores.redis import RedisStore
from tests.servers import RedisServer, redis_server

from ..making import BOOK, draft_of, new_key, token_of

drives = pytest.mark.parametrize("drive", [run, asyncio.run], ids=["sync", "async"])


@pytest.fixture(scope="module")
def own() -> Iterator[RedisServer]:
    with redis_server() as running:
        yield running


def losses(caplog: pytest.LogCaptureFixture) -> list[str]:
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    return [record.getMessage() for record in errors if "lost data" in record.getMessage()]


@drives
def test_an_emptied_server_is_reported_once_with_the_remedy(
    own: RedisServer, drive: Callable[[Any], None], caplog: pytest.LogCaptureFixture
) -> None:
    store, made = RedisStore(own.url()), [new_key() for _ in range(3)]

    async def flow() -> None:
        for key in made:
            await store.insert(draft_of(key), None)
            assert (await store.admit(token_of(key), 1, BOOK)).verdict is Verdict.ADMITTED
        with own.client() as client:
            client.flushall()
        for key in made:
            assert (await store.admit(token_of(key), 1, BOOK)).verdict is Verdict.UNKNOWN
        await store.close()

    drive(flow())
    (message,) = losses(caplog)
    assert "FLUSHALL" in message
    assert "backup" in message


def test_a_key_that_was_removed_is_no_loss(
    own: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    store, made = RedisStore(own.url(), prefix="removed"), new_key()
    key = run(store.insert(draft_of(made), None))
    assert run(store.admit(token_of(made), 1, BOOK)).verdict is Verdict.ADMITTED
    run(store.revoke_if_live(key.organization, key.id))
    assert run(store.remove_ended(-DAY)).removed == 1
    assert run(store.admit(token_of(made), 1, BOOK)).verdict is Verdict.UNKNOWN
    run(store.close())
    assert losses(caplog) == []


@pytest.mark.parametrize("loss", ["vanished", "went back"])
def test_a_change_counter_that_vanished_or_went_back_is_reported(
    own: RedisServer, loss: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = RedisStore(own.url(), prefix=loss[:4])
    counter = run(store.change_counter())
    assert counter is not None
    assert run(store.change_counter()) == counter
    assert losses(caplog) == []
    with own.client() as client:
        if loss == "vanished":
            client.flushall()
        else:
            client.set(store._names.change_counter, counter - (60_000_000 << 10))
    run(store.change_counter())
    run(store.close())
    assert len(losses(caplog)) == 1


def test_a_change_counter_that_expired_is_no_loss(
    own: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RedisStore(own.url(), prefix="expired")
    counter = run(store.change_counter())
    assert counter is not None
    monkeypatch.setattr(store, "_latest_counter", counter - (DAY << 10))
    with own.client() as client:
        client.delete("expired:change_counter")
    run(store.change_counter())
    run(store.close())
    assert losses(caplog) == []


@drives
def test_each_loss_is_reported_once(
    own: RedisServer,
    drive: Callable[[Any], None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, moment = RedisStore(own.url(), prefix="again"), 1000.0
    monkeypatch.setattr("lockgate.stores.redis.error_hints.monotonic", lambda: moment)

    async def flow() -> None:
        nonlocal moment
        for number in (1, 2):
            made = [new_key() for _ in range(3)]
            for key in made:
                await store.insert(draft_of(key), None)
                assert (await store.admit(token_of(key), 1, BOOK)).verdict is Verdict.ADMITTED
            await store.change_counter()
            with own.client() as client:
                client.flushall()
            for key in made:  # Later ones than a minute belong to the same loss.
                assert (await store.admit(token_of(key), 1, BOOK)).verdict is Verdict.UNKNOWN
                await store.change_counter()
                moment += 61.0
            assert len(losses(caplog)) == number
        await store.close()

    drive(flow())


def test_a_cache_that_lost_its_data_is_a_warning_about_counts(
    own: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = 1000.0
    monkeypatch.setattr("lockgate.stores.redis.error_hints.monotonic", lambda: moment)
    store = RedisStore(own.url(), prefix="copies")
    store.hold_copies()
    run(store.caught_up())
    with own.client() as client:
        for number in (1, 2):
            client.flushall()
            for _ in range(3):
                run(store.caught_up())
            warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
            assert len(warned) == number
            assert "counts of the present windows begin anew" in warned[0]
            moment += 61.0
    run(store.close())
    assert losses(caplog) == []
