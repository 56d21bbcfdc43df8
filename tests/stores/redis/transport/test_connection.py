"""A blocking connection to Redis keeps the deadline of its caller, whatever the server does."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from threading import Thread
from time import monotonic

import hiredis
import pytest
from redis.asyncio import Connection
from redis.exceptions import ConnectionError

from lockgate import run
from lockgate.stores.redis.transport.commands import command
from lockgate.stores.redis.transport.config import SECONDS, Endpoint
from lockgate.stores.redis.transport.failures import NotSent
from lockgate.stores.redis.transport.pipeline import BlockingPipeline
from lockgate.stores.resilience.deadlines import within
from tests.patience import SLACK

PING = command(0, b"PING")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def pipeline_to(listener: socket.socket, *, logs_in: bool = False) -> BlockingPipeline:
    port = listener.getsockname()[1]
    password = "pw" if logs_in else None

    def dial() -> Endpoint:
        settings = {"port": port, "password": password, "socket_connect_timeout": SECONDS}
        return Endpoint(Connection(host="127.0.0.1", **settings))

    return BlockingPipeline(dial, 60.0)


def test_d34_a_login_is_abandoned_at_the_deadline_and_its_connection_is_closed(
    listener: socket.socket,
) -> None:
    pipeline = pipeline_to(listener, logs_in=True)
    with within(2.0):  # Enough to connect before.
        reply = run(pipeline.ask(PING))
    assert isinstance(reply, NotSent)
    assert isinstance(reply.__cause__, TimeoutError)
    assert not pipeline.connected
    server, _ = listener.accept()
    with server:
        server.settimeout(30)
        assert b"AUTH" in server.recv(65536)
        assert server.recv(65536) == b""


def test_d34_a_reply_is_awaited_until_the_deadline_only(listener: socket.socket) -> None:
    pipeline = pipeline_to(listener)
    started = monotonic()
    with within(2.0):  # Enough to send the call before.
        reply = run(pipeline.ask(PING))
    assert isinstance(reply, TimeoutError)
    assert monotonic() - started < 2 + SLACK
    assert not pipeline.connected


def test_abort_fails_the_call_that_another_thread_waits_for(listener: socket.socket) -> None:
    pipeline = pipeline_to(listener)
    replies: list[object] = []
    waiting = Thread(target=lambda: replies.append(run(pipeline.ask(PING))))
    waiting.start()
    server, _ = listener.accept()
    with server:
        assert server.recv(65536)
        pipeline.abort()
        waiting.join(30)
    assert [type(reply) for reply in replies] == [ConnectionError]


def test_a_connection_with_a_reply_that_no_call_asked_for_is_replaced(
    listener: socket.socket,
) -> None:
    pipeline = pipeline_to(listener)
    accepted: list[socket.socket] = []

    def serve() -> None:
        for extra in (b"+stray\r\n", b""):
            server, _ = listener.accept()
            accepted.append(server)
            commands = hiredis.Reader()
            commands.feed(server.recv(65536))
            server.sendall(b"+PONG\r\n" + extra)

    serving = Thread(target=serve)
    serving.start()
    assert run(pipeline.ask(PING)) == b"PONG" or not pipeline.connected
    second = run(pipeline.ask(PING))
    serving.join(30)
    assert second == b"PONG"
    assert len(accepted) == 2
    run(pipeline.close())
    for server in accepted:
        server.close()
