"""The pipeline of an event loop: each call waits until its deadline, failed connections go."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from operator import ge
from time import monotonic
from typing import Any

import hiredis
import pytest
from redis.asyncio import Connection
from redis.exceptions import BusyLoadingError, ConnectionError, InvalidResponse, ReadOnlyError

from lockgate.stores.redis.transport.commands import Call, command
from lockgate.stores.redis.transport.config import Endpoint
from lockgate.stores.redis.transport.failures import NotSent
from lockgate.stores.redis.transport.pipeline import AsyncPipeline
from lockgate.stores.resilience.deadlines import Overdue, within
from tests.patience import SLACK

GREETINGS = {b"HELLO", b"CLIENT", b"PING", b"SELECT"}
LATE = 60.0


class Server:
    """Answers each command with the test's reply, and greetings with OK."""

    def __init__(self, answer: Callable[[list[bytes]], bytes]) -> None:
        self._answer = answer
        self.batches: list[list[bytes]] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with suppress(OSError):  # An abandoned pipeline says no farewell.
            await self._converse(reader, writer)
        writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        commands = hiredis.Reader()
        while data := await reader.read(65536):
            commands.feed(data)
            asked: list[bytes] = []
            while (words := commands.gets()) is not False:
                if words[0] in GREETINGS:
                    writer.write(b"+OK\r\n")
                else:
                    asked.append(words[0])
                    writer.write(self._answer(words))
            if asked:
                self.batches.append(asked)


def echo(words: list[bytes]) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(words[0]), words[0])


def silence(words: list[bytes]) -> bytes:
    return b""


@asynccontextmanager
async def pipeline_to(
    answer: Callable[[list[bytes]], bytes], timeout: float = LATE
) -> AsyncIterator[tuple[AsyncPipeline, Server]]:
    server = Server(answer)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]

    def dial() -> Endpoint:
        return Endpoint(Connection(host="127.0.0.1", port=server.port))

    pipeline = AsyncPipeline(dial, timeout)
    try:
        yield pipeline, server
    finally:
        pipeline.abandon()
        listening.close()
        for writer in server.writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        await listening.wait_closed()


def saying(word: bytes) -> Call:
    return command(0, word)


async def ask(pipeline: AsyncPipeline, word: bytes = b"word", seconds: float = LATE) -> Any:
    with within(seconds):
        return await pipeline.ask(saying(word))


async def test_calls_that_wait_at_the_same_time_are_sent_together_and_answered_in_order() -> None:
    async with pipeline_to(echo) as (pipeline, server):
        words = [b"%d" % number for number in range(300)]
        assert await asyncio.gather(*(ask(pipeline, word) for word in words)) == words
        assert [word for batch in server.batches for word in batch] == words
        assert len(server.batches) < len(words) / 10


async def test_a_told_call_is_sent_with_the_next_one_and_its_failure_is_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def answer(words: list[bytes]) -> bytes:
        return echo(words) if words[0] == b"asked" else b"-ERR no\r\n"

    async with pipeline_to(answer) as (pipeline, server):
        pipeline.tell(saying(b"told"))
        assert await ask(pipeline, b"asked") == b"asked"
        assert server.batches == [[b"told", b"asked"]]
        pipeline.tell(saying(b"told"))
    gc.collect()
    await asyncio.sleep(0)
    assert caplog.messages == []


@pytest.mark.parametrize(("first", "then", "parts"), [(2, 6, [4, 2]), (6, 2, [2]), (1, 1, [1])])
async def test_calls_that_waited_for_a_batch_are_sent_in_two_parts(
    first: int, then: int, parts: list[int]
) -> None:
    """The callers of the first part are served while the second part is under way."""
    async with pipeline_to(silence) as (pipeline, server):
        early = [asyncio.ensure_future(ask(pipeline)) for _ in range(first)]
        while not server.batches:
            await asyncio.sleep(0.001)
        late = [asyncio.ensure_future(ask(pipeline)) for _ in range(then)]
        await asyncio.sleep(0)
        server._answer = echo
        server.writers[0].write(echo([b"word"]) * first)
        assert await asyncio.gather(*early, *late) == [b"word"] * (first + then)
        assert [len(batch) for batch in server.batches] == [first, *parts]
        assert await asyncio.gather(*(ask(pipeline) for _ in range(9))) == [b"word"] * 9
        assert len(server.batches[-1]) == 9, "nothing was on its way"


async def test_a_call_after_asking_gets_its_own_reply() -> None:
    async with pipeline_to(echo) as (pipeline, _):
        calls = [saying(b"one"), saying(b"two").asking(), saying(b"three")]
        assert await asyncio.gather(*map(pipeline.ask, calls)) == [b"one", b"two", b"three"]


async def test_d34_each_call_waits_until_its_own_deadline() -> None:
    async with pipeline_to(silence) as (pipeline, server):

        async def wait(seconds: float) -> float:
            started = monotonic()
            with pytest.raises(Overdue):
                await ask(pipeline, seconds=seconds)
            return monotonic() - started

        patient = asyncio.create_task(ask(pipeline))
        lasted = await asyncio.gather(*map(wait, (0.15, 0.05, 0.1)))
        assert all(map(ge, lasted, (0.15, 0.05, 0.1)))
        assert max(lasted) < SLACK
        assert not patient.done()
        assert len(server.writers) == 1, "a late call is no reason to hang up"
        patient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await patient


async def test_a_call_cancelled_before_it_is_sent_is_not_sent() -> None:
    async with pipeline_to(echo) as (pipeline, server):
        await ask(pipeline, b"first")
        gone = asyncio.create_task(ask(pipeline, b"gone"))
        await asyncio.sleep(0)
        gone.cancel()
        assert await ask(pipeline, b"next") == b"next"
        assert server.batches == [[b"first"], [b"next"]]


async def test_a_connection_without_an_answer_in_time_is_replaced() -> None:
    async with pipeline_to(silence, timeout=0.05) as (pipeline, server):
        replies = await asyncio.gather(ask(pipeline), ask(pipeline))
        assert [type(reply) for reply in replies] == [TimeoutError, TimeoutError]
        assert not pipeline.connected
        server._answer = echo
        pipeline._timeout = LATE
        assert await ask(pipeline) == b"word"
        assert len(server.writers) == 2


async def test_sent_calls_fail_with_their_connection_and_waiting_calls_use_the_next() -> None:
    async with pipeline_to(silence) as (pipeline, server):
        sent = asyncio.create_task(ask(pipeline, b"sent"))
        while not server.batches:
            await asyncio.sleep(0.001)
        server._answer = echo
        waiting = asyncio.create_task(ask(pipeline, b"waiting"))
        await asyncio.sleep(0)
        server.writers[0].close()
        assert isinstance(await sent, ConnectionError)
        assert not isinstance(await sent, NotSent)
        assert await waiting == b"waiting"
        assert len(server.writers) == 2


async def test_a_failure_is_referenced_by_its_receiver_only() -> None:
    """It holds the frames that raised it, and with them the data of requests."""
    async with pipeline_to(silence) as (pipeline, server):
        sent = asyncio.create_task(ask(pipeline))
        while not server.batches:
            await asyncio.sleep(0.001)
        server.writers[0].close()
        failure = weakref.ref(await sent)
        del sent
        await asyncio.sleep(0)  # The event loop lets go of the task.
        gc.collect()
        is_kept = failure() is not None
        assert not is_kept


async def test_a_connection_that_was_closed_meanwhile_is_made_anew() -> None:
    async with pipeline_to(echo) as (pipeline, server):
        assert await ask(pipeline) == b"word"
        server.writers[0].close()
        while pipeline.connected:
            await asyncio.sleep(0.001)
        assert await ask(pipeline) == b"word"


async def test_a_refused_connection_means_that_no_call_was_sent() -> None:
    async with pipeline_to(echo) as (pipeline, server):
        server.port = 1
        reply = await ask(pipeline)
        assert isinstance(reply, NotSent)
        assert isinstance(reply.__cause__, ConnectionError)


@pytest.mark.parametrize(
    ("says", "failure"),
    [
        (b"?what\r\n", InvalidResponse),
        (b"-LOADING it takes time\r\n", BusyLoadingError),
        (b"+one\r\n+too many\r\n", ConnectionError),
    ],
    ids=["nonsense", "loading", "too much"],
)
async def test_a_connection_with_a_broken_protocol_is_replaced(
    says: bytes, failure: type[Exception]
) -> None:
    async with pipeline_to(lambda words: says) as (pipeline, server):
        reply = await ask(pipeline)
        assert reply == b"one" or isinstance(reply, failure)
        while pipeline.connected:
            await asyncio.sleep(0.001)
        server._answer = echo
        assert await ask(pipeline) == b"word"
        assert len(server.writers) == 2


async def test_an_error_reply_concerns_one_call_and_the_connection_stays() -> None:
    wrapped = b"-ERR Error running script (call to f_1): @user_script:1: -READONLY it is\r\n"
    answers = iter([wrapped, b"$2\r\nno\r\n"])
    async with pipeline_to(lambda words: next(answers)) as (pipeline, server):
        refused, answered = await asyncio.gather(ask(pipeline), ask(pipeline))
        assert isinstance(refused, ReadOnlyError)
        assert answered == b"no"
        assert len(server.writers) == 1


async def test_an_abandoned_pipeline_fails_its_calls_and_connects_no_more() -> None:
    async with pipeline_to(silence) as (pipeline, server):
        sent = asyncio.create_task(ask(pipeline))
        while not server.batches:
            await asyncio.sleep(0.001)
        waiting = asyncio.create_task(ask(pipeline))
        await asyncio.sleep(0)
        pipeline.abandon()
        for told in (sent, waiting):
            with pytest.raises(Overdue):
                await told
        await asyncio.sleep(0.01)
        assert not pipeline.connected
        assert len(server.writers) == 1


async def test_a_pipeline_abandoned_while_it_connects_can_be_used_again() -> None:
    async with pipeline_to(echo) as (pipeline, server):
        for turns in range(6):
            pipeline.reconnect()
            given_up = pipeline.ask(saying(b"word"))
            for _ in range(turns):
                await asyncio.sleep(0)
            pipeline.abandon()
            with suppress(Overdue):
                await given_up
            assert await ask(pipeline, b"again") == b"again"
        assert server.writers


@pytest.mark.parametrize("turns", range(6))
async def test_calls_are_answered_although_the_task_that_connects_is_cancelled(turns: int) -> None:
    """asyncio cancels every task before an event loop ends, and some release a slot even then."""
    async with pipeline_to(echo) as (pipeline, _):
        waiting = pipeline.ask(saying(b"word"))
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if "AsyncPipeline" in repr(task.get_coro()):
                task.cancel()
        assert await asyncio.wait_for(waiting, 30) == b"word"
        assert await ask(pipeline, b"again") == b"again"


async def test_reconnecting_lets_calls_under_way_finish() -> None:
    async with pipeline_to(echo) as (pipeline, server):
        await ask(pipeline)
        under_way = asyncio.create_task(ask(pipeline, b"old"))
        while [b"old"] not in server.batches:
            await asyncio.sleep(0.001)
        pipeline.reconnect()
        assert await under_way == b"old"
        assert await ask(pipeline, b"new") == b"new"
        assert len(server.writers) == 2


async def test_closing_answers_the_calls_that_wait() -> None:
    async with pipeline_to(echo) as (pipeline, _):
        waiting = [asyncio.create_task(ask(pipeline)) for _ in range(3)]
        await asyncio.sleep(0)
        await pipeline.close()
        assert await asyncio.gather(*waiting) == [b"word"] * 3
        assert not pipeline.connected
