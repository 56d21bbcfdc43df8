"""Each failure of a store becomes one refusal and one event."""

from __future__ import annotations

import asyncio

import pytest

from lockgate import Event
from lockgate.errors import KeyLimitReached, LockgateError, StoreUnavailable
from lockgate.events import Events
from lockgate.services.store_errors import asking
from lockgate.stores.answers import OutcomeUnknown, StoreError, UnreadableState


@pytest.mark.parametrize(
    ("failure", "event"),
    [
        (OSError("dsn=secret"), "store_failed"),
        (TimeoutError(), "store_failed"),
        (StoreError(), "store_failed"),
        (OutcomeUnknown(), "store_failed"),
        (RuntimeError("secret"), "internal_error"),
        (KeyError("x"), "internal_error"),
        (RecursionError(), "internal_error"),
    ],
)
def test_any_exception_becomes_503(
    failure: Exception, event: str, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Event] = []
    with pytest.raises(StoreUnavailable) as caught, asking(Events(told.append)):
        raise failure
    assert told == [Event(event, {"error": type(failure).__name__})]
    assert caught.value.__cause__ is failure
    assert "secret" not in str(caught.value) + caplog.text


def test_a_translated_failure_is_named_by_its_cause() -> None:
    told: list[Event] = []
    with pytest.raises(StoreUnavailable), asking(Events(told.append)):
        raise StoreError from ConnectionRefusedError()
    assert told == [Event("store_failed", {"error": "ConnectionRefusedError"})]


def test_g7_a_bug_is_logged_with_its_frames(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(StoreUnavailable), asking(Events(None)):
        raise LookupError from OSError("dsn=secret")
    assert "in test_g7_a_bug_is_logged_with_its_frames" in caplog.text
    assert "LookupError from OSError" in caplog.text
    assert "secret" not in caplog.text.replace('OSError("dsn=secret")', "")


def test_w8_an_unreadable_state_is_reported_with_its_organization_and_remedy() -> None:
    told: list[Event] = []
    with pytest.raises(StoreUnavailable), asking(Events(told.append)):
        raise UnreadableState("org_1", "its row") from ValueError("secret")
    ((name, fields),) = told
    assert name == "unreadable_state"
    assert fields["organization"] == "org_1"
    assert fields["error"] == "ValueError"
    assert "its row" in str(fields["remedy"])
    assert "secret" not in repr(told)


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
