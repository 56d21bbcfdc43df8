"""Settings of sessions: mistakes are told when the gate is built."""

from __future__ import annotations

from typing import Any

import pytest

from lockgate import ConfigurationError, Gate, Registration
from lockgate.sessions import SessionOptions, SignedCookie

SECRET = "a session secret of the tests, long enough"
PAGE = "https://console.example.com"


def gate_with(options: Any, **fields: Any) -> Gate:
    settings = {"sessions": SignedCookie([SECRET]), "public_url": PAGE, **fields}
    return Gate(brand="acme", session_options=options, **settings)


@pytest.mark.parametrize(
    "name", ["__session", "__Host-session", "__Secure-session", "a", "id.v2", "__Host_x", "x~"]
)
def test_a_cookie_may_have_any_name_that_browsers_send(name: str) -> None:
    assert gate_with(SessionOptions(cookie=name)).session_access.cookie == name


@pytest.mark.parametrize(
    "name",
    ["", " ", "a b", "a;b", "a=b", "a,b", 'a"b', "s\u00e9ssion", "a\n", "\t"],
)
def test_a_name_that_no_browser_sends_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="The name of the session cookie is"):
        SessionOptions(cookie=name)


@pytest.mark.parametrize(
    "name", ["__host-session", "__HOST-session", "__secure-x", "__Host-", "__Secure-"]
)
def test_a_prefix_that_browsers_read_in_another_way_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="write it in this case"):
        SessionOptions(cookie=name)


def test_a_prefixed_cookie_of_agents_needs_secure() -> None:
    plain = Registration(session_secrets=[SECRET], development=True)
    for name in ("__Host-session", "__Secure-session"):
        with pytest.raises(ConfigurationError, match="without Secure"):
            gate_with(SessionOptions(cookie=name), registration=plain)
    gate_with(SessionOptions(cookie="session"), registration=plain)
    secure = Registration(session_secrets=[SECRET])
    gate_with(SessionOptions(cookie="__Host-session"), registration=secure)


def test_options_without_a_verifier_are_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match="needs a session verifier"):
        Gate(brand="acme", session_options=SessionOptions())


@pytest.mark.parametrize("given", [{}, "session", SessionOptions])
def test_options_of_another_type_are_a_mistake(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"session_options is .*: give SessionOptions"):
        gate_with(given)
