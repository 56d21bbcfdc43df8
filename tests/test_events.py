"""Events go to the log and to the observer, and neither ever decides about a request."""

from __future__ import annotations

import logging

import pytest

from lockgate import Event
from lockgate.events import Events


def test_the_observer_gets_every_event_and_the_log_those_of_its_level(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[Event] = []
    for level in (logging.DEBUG, logging.INFO):
        caplog.set_level(level, "lockgate")
        Events(told.append).emit("quiet", id="1\r\nERROR forged \x1b[31m")
        Events(None).emit("loud", logging.ERROR, error="OSError")
    assert told == [Event("quiet", {"id": "1\r\nERROR forged \x1b[31m"})] * 2
    loud = ("ERROR", "lockgate", "loud error='OSError'")
    quiet, *others = [(r.levelname, r.name, r.getMessage()) for r in caplog.records]
    assert others == [loud, loud]
    assert quiet[:2] == ("DEBUG", "lockgate")
    assert quiet[2].startswith("quiet id='1") and quiet[2].isprintable()


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
