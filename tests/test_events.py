"""Events go to the log and to the observer, and neither ever decides about a request."""

from __future__ import annotations

import logging

import pytest

from lockgate import Event
from lockgate.events import Events


def test_the_observer_gets_every_event() -> None:
    told: list[Event] = []
    Events(told.append).emit("something", code="X", number=3)
    assert told == [Event("something", {"code": "X", "number": 3})]


def test_an_event_is_logged_at_its_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "lockgate")
    Events(None).emit("quiet", id="1")
    Events(None).emit("loud", logging.ERROR, error="OSError")
    assert [(r.levelname, r.name, r.getMessage()) for r in caplog.records] == [
        ("DEBUG", "lockgate", "quiet id='1'"),
        ("ERROR", "lockgate", "loud error='OSError'"),
    ]


def test_an_event_below_the_level_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lockgate")
    Events(None).emit("quiet", id="1")
    assert caplog.records == []


def test_an_observer_that_fails_is_logged_and_that_is_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(event: Event) -> None:
        raise ZeroDivisionError(event.name)

    Events(fail).emit("something", id="1")
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "something" in record.getMessage()
    assert record.exc_info is not None


@pytest.mark.parametrize("value", ["a\nb", "a\r\nERROR forged", "\x1b[31m"])
def test_no_value_causes_a_line_break_in_the_log(
    value: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "lockgate")
    Events(None).emit("something", path=value)
    (record,) = caplog.records
    assert record.getMessage().isprintable()


def test_an_observer_gets_admissions_summed_by_plan() -> None:
    told: list[Event] = []
    now = [100.0]
    events = Events(told.append, clock=lambda: now[0])
    for second in range(12):
        now[0] = 100.0 + second
        events.admit("free")
        events.admit("starter")
    assert [(e.fields["plan"], e.fields["requests"], e.fields["seconds"]) for e in told] == [
        ("free", 11, 10.0),
        ("starter", 10, 10.0),
    ]
    events.tell_admitted()
    events.tell_admitted()
    assert [(e.fields["plan"], e.fields["requests"]) for e in told[2:]] == [
        ("free", 1),
        ("starter", 2),
    ]
    assert events.metrics.admitted == {"free": 12, "starter": 12}


def test_admissions_that_no_observer_hears_of_are_only_counted() -> None:
    events = Events(None)
    assert events.admit == events.metrics.admit
    events.tell_admitted()
    assert not events.metrics.events
