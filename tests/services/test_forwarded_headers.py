"""A forwarded header that is ignored, or missing, is reported once: a sign of a proxy that is not
configured (D24)."""

from __future__ import annotations

import logging

import pytest

from lockgate import Event
from lockgate.events import Events
from lockgate.services.forwarded_headers import ForwardedHeaders
from tests.stores.making import at_once


class Desk:
    def __init__(self) -> None:
        self.told: list[Event] = []
        self.headers = ForwardedHeaders(Events(self.told.append), expected=True)

    @property
    def peers(self) -> list[object]:
        assert {event.name for event in self.told} <= {"forwarded_header_ignored"}
        return [event.fields["peer"] for event in self.told]


def test_the_first_ignored_header_is_reported_with_the_remedy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "lockgate")
    desk, crowded = Desk(), Desk()
    at_once(16, lambda number: crowded.headers.ignored(f"192.0.2.{number}", [b""]))
    assert len(crowded.peers) == 1
    caplog.clear()
    for number in range(3):
        assert desk.headers.unreported is (number == 0)
        desk.headers.ignored(f"192.0.2.{number}", [b"198.51.100.1"])
    assert desk.peers == ["192.0.2.0"]
    (record,) = caplog.records
    assert (record.levelname, record.name) == ("WARNING", "lockgate")
    assert "trusted_proxies=['192.0.2.0']" in record.getMessage()
    assert "198.51.100.1" not in record.getMessage(), "anybody may have written that"


@pytest.mark.parametrize("peer", [None, "", "localhost"])
def test_a_unix_socket_is_reported_by_its_configuration_name(
    peer: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk()
    desk.headers.ignored(peer, [b"198.51.100.1"])
    assert desk.peers == ["unix"]
    assert "trusted_proxies=['unix']" in caplog.text


@pytest.mark.parametrize("value", [b"192.0.2.1", b"for=192.0.2.1", b"203.0.113.9, 192.0.2.1"])
def test_a_header_that_the_server_has_read_already_is_not_reported(value: bytes) -> None:
    """As uvicorn does by default for a proxy on the same machine."""
    desk = Desk()
    desk.headers.ignored("192.0.2.1", [b"x", value])
    assert desk.peers == []
    assert desk.headers.unreported


def test_no_peer_causes_a_log_line_break_or_a_long_line(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    desk.headers.ignored("x\r\nforged\u2028" + "y" * 50_000, [b""])
    (record,) = caplog.records
    assert record.getMessage().isprintable()
    assert len(record.getMessage()) < 500


def test_a_proxy_that_names_no_client_is_reported_once_with_the_remedy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert not ForwardedHeaders(Events(None)).unproven, "no proxy is configured"
    proven, desk = Desk(), Desk()
    proven.headers.from_proxy("10.0.0.7", names_client=True)
    assert not proven.headers.unproven
    proven.headers.from_proxy("10.0.0.7", names_client=False)
    assert proven.told == []
    at_once(16, lambda _: desk.headers.from_proxy("10.0.0.7", names_client=False))
    assert [event.name for event in desk.told] == ["forwarded_header_missing"]
    assert desk.told[0].fields == {"peer": "10.0.0.7"}
    (record,) = caplog.records
    assert (record.levelname, record.name) == ("WARNING", "lockgate")
    assert "X-Forwarded-For" in record.getMessage() and "health check" in record.getMessage()
