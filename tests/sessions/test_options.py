"""Settings of sessions: mistakes are told when the gate is built."""

from __future__ import annotations

from typing import Any

import pytest

from lockgate import ConfigurationError, Gate, Registration
from lockgate.options import WebOptions
from lockgate.sessions import SignedCookie, StepUp
from tests.gates import flat_gate

SECRET = "a session secret of the tests, long enough"
PAGE = "https://console.example.com"


def gate_with(options: Any, **fields: Any) -> Gate:
    settings = {"sessions": SignedCookie([SECRET]), "public_url": PAGE, **fields}
    return flat_gate(brand="acme", web_options=options, **settings)


@pytest.mark.parametrize(
    "name", ["__session", "__Host-session", "__Secure-session", "a", "id.v2", "__Host_x", "x~"]
)
def test_a_cookie_may_have_any_name_that_browsers_send(name: str) -> None:
    assert gate_with(WebOptions(session_cookie=name)).session_access.cookie == name


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (
            ["", " ", "a b", "a;b", "a=b", "a,b", 'a"b', "s\u00e9ssion", "a\n", "\t"],
            "The name of the session cookie is",
        ),
        # Browsers read these prefixes in another way.
        (
            ["__host-session", "__HOST-session", "__secure-x", "__Host-", "__Secure-"],
            "write it in this case",
        ),
    ],
)
def test_a_name_that_no_browser_sends_is_refused(names: list[str], told: str) -> None:
    for name in names:
        with pytest.raises(ConfigurationError, match=told):
            WebOptions(session_cookie=name)


def test_a_prefixed_cookie_of_agents_needs_secure() -> None:
    plain = Registration(session_secrets=[SECRET], development=True)
    for name in ("__Host-session", "__Secure-session"):
        with pytest.raises(ConfigurationError, match="without Secure"):
            gate_with(WebOptions(session_cookie=name), registration=plain)
    gate_with(WebOptions(session_cookie="session"), registration=plain)
    secure = Registration(session_secrets=[SECRET])
    gate_with(WebOptions(session_cookie="__Host-session"), registration=secure)


@pytest.mark.parametrize(
    "given", [{"session_cookie": "id"}, {"session_free_reads": True}, {"step_up": StepUp(bool)}]
)
def test_options_of_sessions_without_a_verifier_are_a_mistake(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(given))} needs a session verifier"):
        Gate(brand="acme", web_options=WebOptions(**given))
    Gate(brand="acme", web_options=WebOptions(session_cookie="__session"))  # As by default.
