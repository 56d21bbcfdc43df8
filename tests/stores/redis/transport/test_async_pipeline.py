"""A line in an event loop: each waits as long as it may, and a connection that fails is left."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import hiredis
import pytest
from redis.asyncio import Connection
from redis.exceptions import BusyLoadingError, ConnectionError, InvalidResponse, ReadOnlyError

from lockgate.stores.redis.transport.async_pipeline import AsyncPipeline
from lockgate.stores.redis.transport.commands import Call, command
from lockgate.stores.redis.transport.connection import NotSent
from lockgate.stores.resilience.deadlines import Overdue, within

GREETINGS = {b"HELLO", b"CLIENT", b"PING", b"SELECT"}
LATE = 60.0


class Server:
    """Answers each command with what the test says; greetings are answered kindly."""

    def __init__(self, answer: Callable[[list[bytes]], bytes]) -> None:
        self._answer = answer
        self.batches: list[list[bytes]] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with suppress(OSError):  # A line that is given up says no farewell.
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
async def line_to(
    answer: Callable[[list[bytes]], bytes], timeout: float = LATE
) -> AsyncIterator[tuple[AsyncPipeline, Server]]:
    server = Server(answer)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]

    async def dial() -> Any:
        return Connection(host="127.0.0.1", port=server.port, protocol=2)

    line = AsyncPipeline(dial, timeout)
    try:
        yield line, server
    finally:
        line.give_up()
        listening.close()
        for writer in server.writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        await listening.wait_closed()


def saying(word: bytes) -> Call:
    return command(0, word)


async def ask(line: AsyncPipeline, word: bytes = b"word", seconds: float = LATE) -> Any:
    with within(seconds):
        return await line.ask(saying(word))


async def test_what_waits_at_the_same_time_goes_together_and_is_answered_in_order() -> None:
    async with line_to(echo) as (line, server):
        words = [b"%d" % number for number in range(300)]
        assert await asyncio.gather(*(ask(line, word) for word in words)) == words
        assert [word for batch in server.batches for word in batch] == words
        assert len(server.batches) < len(words) / 10


@pytest.mark.parametrize(("first", "then", "halves"), [(2, 6, [4, 2]), (6, 2, [2]), (1, 1, [1])])
async def test_what_waited_for_a_pipeline_goes_in_halves(
    first: int, then: int, halves: list[int]
) -> None:
    """The first ones are being served meanwhile, and come again when the others are."""
    async with line_to(silence) as (line, server):
        early = [asyncio.ensure_future(ask(line)) for _ in range(first)]
        while not server.batches:
            await asyncio.sleep(0.001)
        late = [asyncio.ensure_future(ask(line)) for _ in range(then)]
        await asyncio.sleep(0)
        server._answer = echo
        server.writers[0].write(echo([b"word"]) * first)
        assert await asyncio.gather(*early, *late) == [b"word"] * (first + then)
        assert [len(batch) for batch in server.batches] == [first, *halves]
        assert await asyncio.gather(*(ask(line) for _ in range(9))) == [b"word"] * 9
        assert len(server.batches[-1]) == 9, "nothing was on its way"


async def test_one_that_asks_for_a_moving_slot_gets_its_own_reply() -> None:
    async with line_to(echo) as (line, _):
        calls = [saying(b"one"), saying(b"two").asking(), saying(b"three")]
        assert await asyncio.gather(*map(line.ask, calls)) == [b"one", b"two", b"three"]


async def test_d34_each_waits_until_its_own_deadline_and_no_other() -> None:
    async with line_to(silence) as (line, server):
        ended: list[float] = []

        async def wait(seconds: float) -> None:
            with pytest.raises(Overdue):
                await ask(line, seconds=seconds)
            ended.append(seconds)

        patient = asyncio.create_task(ask(line))
        await asyncio.gather(*(wait(seconds) for seconds in (0.15, 0.05, 0.1)))
        assert ended == [0.05, 0.1, 0.15]
        assert not patient.done()
        assert len(server.writers) == 1, "a late call is no reason to hang up"
        patient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await patient


async def test_who_goes_away_before_the_call_is_sent_is_not_charged() -> None:
    async with line_to(echo) as (line, server):
        await ask(line, b"first")
        gone = asyncio.create_task(ask(line, b"gone"))
        await asyncio.sleep(0)
        gone.cancel()
        assert await ask(line, b"next") == b"next"
        assert server.batches == [[b"first"], [b"next"]]


async def test_a_server_that_does_not_answer_in_time_is_left_and_dialled_again() -> None:
    async with line_to(silence, timeout=0.05) as (line, server):
        replies = await asyncio.gather(ask(line), ask(line))
        assert [type(reply) for reply in replies] == [TimeoutError, TimeoutError]
        assert not line.connected
        server._answer = echo
        assert await ask(line) == b"word"
        assert len(server.writers) == 2


async def test_what_was_sent_fails_with_its_connection_and_what_waits_goes_on_the_next() -> None:
    async with line_to(silence) as (line, server):
        sent = asyncio.create_task(ask(line, b"sent"))
        while not server.batches:
            await asyncio.sleep(0.001)
        server._answer = echo
        waiting = asyncio.create_task(ask(line, b"waiting"))
        await asyncio.sleep(0)
        server.writers[0].close()
        assert isinstance(await sent, ConnectionError)
        assert not isinstance(await sent, NotSent)
        assert await waiting == b"waiting"
        assert len(server.writers) == 2


async def test_a_failure_is_kept_by_nobody_but_who_met_it() -> None:
    """It holds the frames of all who raised it, and what these know of their requests."""
    async with line_to(silence) as (line, server):
        sent = asyncio.create_task(ask(line))
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
    async with line_to(echo) as (line, server):
        assert await ask(line) == b"word"
        server.writers[0].close()
        while line.connected:
            await asyncio.sleep(0.001)
        assert await ask(line) == b"word"


async def test_where_nobody_listens_nothing_was_sent() -> None:
    async with line_to(echo) as (line, server):
        server.port = 1
        reply = await ask(line)
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
async def test_a_connection_that_says_such_things_is_left(
    says: bytes, failure: type[Exception]
) -> None:
    async with line_to(lambda words: says) as (line, server):
        reply = await ask(line)
        assert reply == b"one" or isinstance(reply, failure)
        while line.connected:
            await asyncio.sleep(0.001)
        server._answer = echo
        assert await ask(line) == b"word"
        assert len(server.writers) == 2


async def test_an_error_is_the_reply_of_one_call_and_the_connection_stays() -> None:
    wrapped = b"-ERR Error running script (call to f_1): @user_script:1: -READONLY it is\r\n"
    answers = iter([wrapped, b"$2\r\nno\r\n"])
    async with line_to(lambda words: next(answers)) as (line, server):
        refused, answered = await asyncio.gather(ask(line), ask(line))
        assert isinstance(refused, ReadOnlyError)
        assert answered == b"no"
        assert len(server.writers) == 1


async def test_who_gives_up_tells_all_who_wait_and_dials_no_more() -> None:
    async with line_to(silence) as (line, server):
        sent = asyncio.create_task(ask(line))
        while not server.batches:
            await asyncio.sleep(0.001)
        waiting = asyncio.create_task(ask(line))
        await asyncio.sleep(0)
        line.give_up()
        for told in (sent, waiting):
            with pytest.raises(Overdue):
                await told
        await asyncio.sleep(0.01)
        assert not line.connected
        assert len(server.writers) == 1


async def test_who_gives_up_while_dialling_can_ask_again() -> None:
    async with line_to(echo) as (line, server):
        for turns in range(6):
            line.hang_up()
            given_up = line.ask(saying(b"word"))
            for _ in range(turns):
                await asyncio.sleep(0)
            line.give_up()
            with suppress(Overdue):
                await given_up
            assert await ask(line, b"again") == b"again"
        assert server.writers


@pytest.mark.parametrize("turns", range(6))
async def test_whoever_asks_is_answered_although_somebody_cancels_the_dialling(turns: int) -> None:
    """As who ends an event loop cancels every task, and some give back a slot even then."""
    async with line_to(echo) as (line, _):
        waiting = line.ask(saying(b"word"))
        for _ in range(turns):
            await asyncio.sleep(0)
        if line._reaching is not None:
            line._reaching.cancel()
        assert await asyncio.wait_for(waiting, 30) == b"word"
        assert await ask(line, b"again") == b"again"


async def test_who_hangs_up_lets_those_finish_who_are_under_way() -> None:
    async with line_to(echo) as (line, server):
        await ask(line)
        under_way = asyncio.create_task(ask(line, b"old"))
        while [b"old"] not in server.batches:
            await asyncio.sleep(0.001)
        line.hang_up()
        assert await under_way == b"old"
        assert await ask(line, b"new") == b"new"
        assert len(server.writers) == 2


async def test_closing_answers_what_waits() -> None:
    async with line_to(echo) as (line, _):
        waiting = [asyncio.create_task(ask(line)) for _ in range(3)]
        await asyncio.sleep(0)
        await line.close()
        assert await asyncio.gather(*waiting) == [b"word"] * 3
        assert not line.connected
