"""Driving a flow without an event loop."""

import asyncio
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import coroutine

import pytest

from lockgate import Gate
from lockgate.errors import ConfigurationError, KeyNotFound
from lockgate.sync import run, together


async def double(number: int) -> int:
    return 2 * number


async def quadruple(number: int) -> int:
    return await double(await double(number))


async def refuse() -> int:
    raise KeyNotFound


@coroutine
def suspend() -> Generator[None, None, None]:
    yield


async def give(what: object) -> object:
    return what


def test_the_value_or_the_exception_of_a_flow_is_given_back() -> None:
    """A value may be a tuple or an exception."""
    assert run(quadruple(3)) == 12
    for what in (None, object(), (1, 2), (), KeyNotFound(), StopAsyncIteration()):
        assert run(give(what)) is what
    with pytest.raises(KeyNotFound):
        run(refuse())


def test_a_flow_that_suspends_is_closed_and_refused() -> None:
    closed = []

    async def waits() -> None:
        try:
            await suspend()
            closed.append("went on")
        finally:
            closed.append("closed")

    flow = waits()
    with pytest.raises(ConfigurationError, match="event loop"):
        run(flow)
    assert closed == ["closed"]
    with pytest.raises(RuntimeError, match="reuse"):
        run(flow)


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_flow_that_sleeps_is_refused_without_a_loop(seconds: int) -> None:
    with pytest.raises(ConfigurationError, match="waits for an event loop: await it there"):
        run(asyncio.sleep(seconds))


async def test_a_flow_that_never_suspends_runs_inside_an_event_loop() -> None:
    assert run(double(2)) == 4


def test_a_script_and_its_threads_call_a_gate_on_a_database(tmp_path: Path) -> None:
    gate = Gate(f"sqlite:///{tmp_path}/keys.db?mode=rwc", brand="acme")
    text = run(gate.keys.create("org_1", "ci")).text
    run(gate.organizations.place("org_1", "creator"))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: run(gate.authenticate(text)), range(20)))
    assert run(gate.authenticate(text)).reading.used[0] == 21
    run(gate.close())


async def test_a_call_of_a_gate_on_a_database_is_refused_inside_an_event_loop(
    tmp_path: Path,
) -> None:
    gate = Gate(f"sqlite:///{tmp_path}/keys.db?mode=rwc", brand="acme")
    with pytest.raises(ConfigurationError, match="await it there"):
        run(gate.keys.list("org_1"))
    created = await asyncio.to_thread(run, gate.keys.create("org_1", "ci"))
    assert (await gate.authenticate(created.text)).organization == "org_1"
    await gate.close()


def test_flows_after_one_that_failed_are_closed() -> None:
    """Python warns of a flow that is left without being awaited."""
    second = double(2)
    with pytest.raises(KeyNotFound):
        run(together([refuse(), second]))
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        second.send(None)
