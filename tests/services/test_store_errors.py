"""What a store cannot answer becomes one refusal and one event."""

from __future__ import annotations

import asyncio

import pytest

from lockgate import Event
from lockgate.errors import KeyLimitReached, LockgateError, StoreUnavailable
from lockgate.events import Events
from lockgate.services.store_errors import asking


@pytest.mark.parametrize(
    "failure",
    [OSError("dsn=secret"), TimeoutError(), RuntimeError(), KeyError("x"), RecursionError()],
)
def test_any_exception_becomes_503(failure: Exception) -> None:
    told: list[Event] = []
    with pytest.raises(StoreUnavailable) as caught, asking(Events(told.append)):
        raise failure
    assert told == [Event("store_failed", {"error": type(failure).__name__})]
    assert caught.value.__cause__ is failure
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("failure", [KeyLimitReached(3), LockgateError()])
def test_lockgates_own_errors_pass(failure: LockgateError) -> None:
    told: list[Event] = []
    with pytest.raises(type(failure)) as caught, asking(Events(told.append)):
        raise failure
    assert caught.value is failure
    assert told == []


@pytest.mark.parametrize("ending", [asyncio.CancelledError, KeyboardInterrupt, GeneratorExit])
def test_cancellation_passes(ending: type[BaseException]) -> None:
    told: list[Event] = []
    with pytest.raises(ending), asking(Events(told.append)):
        raise ending
    assert told == []
