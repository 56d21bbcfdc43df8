"""The demo as a process: one line, then service, then a quick and quiet end."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from .demo import FULL_KEY, KEYS, MODELS, PLANS, STATUS, Demo, Face, at_once, wire


@pytest.fixture
def fresh(face: Face) -> Iterator[Demo]:
    """The command itself."""
    with Demo(face, forked=False) as running:
        yield running


def test_the_demo_prints_one_line_of_json_and_stops_without_waiting_for_slow_callers(
    fresh: Demo,
) -> None:
    said = fresh.announcement
    assert fresh.base_url == f"http://127.0.0.1:{fresh.port}", "a path may follow at once"
    assert said.keys() == {"base_url", "organizations"}
    assert said["organizations"].keys() == PLANS.keys()
    for entry in said["organizations"].values():
        assert entry.keys() == {"id", "session_cookie", "api_key"}
        assert all(isinstance(value, str) and value for value in entry.values())
        assert FULL_KEY.fullmatch(entry["api_key"])
        assert not set(entry["session_cookie"]) & set(' ",;\\\t')  # RFC 6265 cookie-octet
    assert len({entry["id"] for entry in said["organizations"].values()}) == len(PLANS)
    with fresh.client() as client:
        client.get("/health").is_ok()
        for plan in PLANS:
            status = client.get(STATUS, key=fresh[plan].api_key).is_ok().json()
            assert (status["plan"], status["limits"]) == (plan, PLANS[plan])
            listed = client.get(KEYS, session=fresh[plan].session_cookie).is_ok().json()["data"]
            assert [entry["keyPrefix"] for entry in listed] == [fresh[plan].api_key[:15]]
            assert listed[0]["scopes"] == ["*"]
            detail = client.read(fresh[plan], listed[0]["id"])
            assert detail["organizationId"] == fresh[plan].id
    with ExitStack() as slow:
        key = ("Authorization", f"Bearer {fresh['enterprise'].api_key}")
        for sent in (
            b"",
            b"GET /health HT",
            b"GET /health HTTP/1.1\r\nHost: x\r\n",
            # This one is in, and waited for: the server has to give it up.
            wire("POST", "/api/v1/images", [key, ("Content-Length", "100")], b"{"),
            b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
        ):
            caller = socket.create_connection((fresh.host, fresh.port), 60)
            slow.enter_context(caller).sendall(sent)
        with fresh.client() as client:
            client.get("/health").is_ok()
        assert fresh.stop() == 0, fresh.stderr
    assert len(fresh.stdout) == 1
    assert json.loads(fresh.stdout[0]) == said


def test_the_demo_stops_under_load(fresh: Demo) -> None:
    def load(index: int) -> int:
        if index == 0:
            time.sleep(0.1)
            return fresh.stop(signal.SIGINT)
        with fresh.client() as client:
            for _ in range(10_000):
                try:
                    client.get(MODELS, key=fresh["enterprise"].api_key).is_ok()
                except httpx.TransportError:
                    return 0
        return 0

    assert at_once(5, load)[0] == 0, fresh.stderr
    assert "Traceback" not in fresh.stderr
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((fresh.host, fresh.port), 60).close()


def test_two_demos_share_no_organization_unless_they_share_a_store(demo: Demo, face: Face) -> None:
    one = demo
    with Demo(face) as two:
        assert one.port != two.port
        ids = [org.id for demo in (one, two) for org in demo.organizations.values()]
        assert len(set(ids)) == len(ids)
        if face.shares_store:
            return
        with two.client() as client:
            answer = client.get(MODELS, key=one["enterprise"].api_key)
            answer.is_error(401, "KEY_NOT_FOUND")


def test_a_connection_serves_many_requests(demo: Demo) -> None:
    """Refusals do not spoil a connection that is kept open."""
    asked = [
        (b"/health", 200),
        (b"/nope", 401),
        (b"/api/v1/models", 401),
        (b"/capabilities", 200),
    ] * 5
    with socket.create_connection((demo.host, demo.port), 60) as sock:
        stream = sock.makefile("rb")
        for path, status in asked:
            sock.sendall(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path)
            line = stream.readline()
            assert line.startswith(b"HTTP/1.1 %d " % status), line
            length = 0
            while (header := stream.readline()) != b"\r\n":
                name, _, value = header.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            stream.read(length)
