"""Settings of sessions: mistakes are told when the gate is built."""

from __future__ import annotations

from typing import Any

import pytest

from lockgate import ConfigurationError, Gate, ImportedKeyFormat, Registration
from lockgate.options import WebOptions
from lockgate.sessions import Session, SignedCookie, StepUp
from lockgate.sessions.jwt import JwtSessions
from tests.gates import flat_gate

from .provider import AUDIENCE, EC, ISSUER, jwks

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


class Mute:
    """A verifier that does not say whether it waits."""

    async def verify(self, cookie: str) -> Session | None:
        raise AssertionError(cookie)


AGENTS = Registration(session_secrets=[SECRET])
TOKENS = JwtSessions(jwks(EC), issuer=ISSUER, audience=AUDIENCE)
ANY_TEXT = ImportedKeyFormat("any", r"(?P<handle>\S{5})\S+", schemes=["sha256"])


def step_up(check: Any = lambda _: True, **fields: Any) -> dict[str, Any]:
    return {"step_up": lambda: StepUp(check, **fields)}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"session_roles": {"viewer": "account:read"}}, "session_roles gives a list of scopes"),
        ({"session_roles": ["viewer"]}, "session_roles is of the type list: give a dict"),
        ({"session_roles": {"": []}}, "session_roles gives a list of scopes"),
        ({"session_roles": {1: []}}, "session_roles gives a list of scopes"),
        ({"session_role": "viewer"}, "session_role is of the type str: give a function or None"),
        ({"session_role": lambda: "viewer"}, "give a function that takes one argument"),
        ({"session_role": lambda one, two: "viewer"}, "give a function that takes one argument"),
        ({"session_roles": {"viewer": ["acount:read"]}}, "'viewer' has the scope 'acount:read'"),
        ({"session_roles": {"viewer": [7]}}, "role 'viewer' has the scope 7"),
        (step_up(None), "check is None: give a function"),
        (step_up(lambda: True), "a function that takes one argument"),
        (step_up(scopes="*"), "scopes is of the type str: give a list of text"),
        (step_up(scopes=[]), r"scopes is \[\]"),
        (step_up(max_age=-1), "max_age is -1"),
        (step_up(max_age=1.5), "max_age is of the type float"),
        (step_up(acr_values="silver"), "acr_values is of the type str"),
        (step_up(acr_values=['a", x="']), "without spaces or quotes"),
        (step_up(acr_values=["a\r\nb"]), "without spaces or quotes"),
        (step_up(scopes=["jobs:raed"]), "'jobs:raed', which does not exist"),
        ({"step_up": lambda: bool}, r"step_up is .*: give StepUp or None"),
        ({"session_bearer": True}, "SignedCookie issues cookies"),
        ({"session_bearer": SignedCookie([SECRET])}, "SignedCookie issues cookies"),
        ({"session_cookie": None}, "No request could present a session"),
        ({"session_bearer": "RS256"}, "give True or False or SessionVerifier"),
        ({"session_bearer": Mute()}, "Mute does not say whether it waits"),
        ({"session_bearer": TOKENS, "session_cookie": None}, "Agents sign in by a cookie"),
        ({"session_bearer": TOKENS}, "'any' also matches JSON Web Tokens"),
    ],
)
def test_mistakes_are_told_when_the_gate_is_built(options: Any, told: str) -> None:
    fields: dict[str, Any] = {"registration": AGENTS} if "Agents" in told else {}
    fields |= {"legacy": [ANY_TEXT]} if "'any'" in told else {}

    def build() -> Gate:
        web = {name: one() if name == "step_up" else one for name, one in options.items()}
        return gate_with(WebOptions(**web), **fields)

    with pytest.raises(ConfigurationError, match=told):
        build()
