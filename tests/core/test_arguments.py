"""Values of settings classes and of the environment are refused where they are given, by name."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest
from pydantic import HttpUrl, SecretBytes, SecretStr

from lockgate import (
    Gate,
    ImportedKeyFormat,
    Limit,
    Plan,
    PlanBook,
    Registration,
    Rule,
    UsageHistory,
)
from lockgate.errors import ConfigurationError
from lockgate.options import KeyOptions, StoreOptions, WebOptions
from lockgate.services.leaks.settings import LeakReports
from lockgate.sessions import SignedCookie, StepUp
from lockgate.sessions.jwt import JwtSessions

SECRET = "q8Hd02Xb7sPz4LmNv1RtYk6WcJf9AeGu"
CLASSES: dict[Callable[..., object], dict[str, Any]] = {
    Gate: {"brand": "acme"},
    ImportedKeyFormat: {"name": "old", "pattern": "(?P<handle>a{8})b", "schemes": ["sha256"]},
    JwtSessions: {"keys": "https://id.example/jwks", "issuer": "me", "audience": "it"},
    KeyOptions: {},
    LeakReports: {"keys": dict},
    Limit: {"name": "export", "rates": "3/hour"},
    Plan: {"name": "free"},
    PlanBook: {},
    Registration: {"session_secrets": [SECRET]},
    Rule: {},
    SignedCookie: {"secrets": [SECRET]},
    StepUp: {"check": bool},
    StoreOptions: {},
    UsageHistory: {},
    WebOptions: {},
}
ARGUMENTS = [(kind, name) for kind in CLASSES for name in signature(kind).parameters]


@pytest.mark.parametrize(("kind", "name"), ARGUMENTS)
def test_each_argument_of_a_gate_and_its_options_is_refused_by_its_name(
    kind: Callable[..., object], name: str
) -> None:
    """Also within a list, and without the value in the message: it may be a secret."""
    for wrong in (SecretStr(SECRET), [SecretStr(SECRET)], HttpUrl("https://x.example/" + SECRET)):
        given: dict[str, Any] = CLASSES[kind] | {name: wrong}
        with pytest.raises(ConfigurationError) as refused:
            kind(**given)
        assert name in str(refused.value)
        assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "given", "told"),
    [
        (Gate, {"peppers": [SecretBytes(SECRET.encode())]}, r"peppers\[0\] is .* give bytes"),
        (Gate, {"peppers": SECRET.encode()}, "peppers is of the type bytes: give a list of bytes"),
        (Gate, {"peppers": [SECRET]}, r"peppers\[0\] is of the type str: give bytes"),
        (Gate, {"features": ["usage"]}, r"features\[0\] is .* give Registration or LeakReports or"),
        (Gate, {"features": UsageHistory()}, "features is of the type UsageHistory: give a list"),
        (StoreOptions, {"lease": "0.5"}, "lease is of the type str: give a number or None"),
        (UsageHistory, {"addresses": "false"}, "addresses is .* give True or False"),
        (WebOptions, {"trusted_proxies": "10.0.0.1"}, "trusted_proxies is .* give a list of text"),
        (StoreOptions, {"fleet": "8"}, "fleet is of the type str: give a whole number"),
        (StoreOptions, {"fleet": True}, "fleet is of the type bool: give a whole number"),
        (StoreOptions, {"on_failure": None}, "on_failure is None: give 'local' or 'open' or"),
        (WebOptions, {"error_body": "problem"}, "error_body is .* give a function or None"),
    ],
)
def test_the_message_tells_what_to_give(
    kind: Callable[..., object], given: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        kind(**(CLASSES[kind] | given))


def test_values_of_a_kind_that_fits_are_taken() -> None:
    class Text(str):
        pass

    KeyOptions(max_age_days=30, retention_days=2.5)
    WebOptions(prefix=Text("/v2"), allowed_origins=(f"https://{n}.example" for n in "ab"))
    Gate(
        brand="acme",
        peppers=(SECRET.encode(),),
        observer=print,
        store_options=StoreOptions(lease=None),
    )


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [
        (Gate, "public_url", r"it is in WebOptions, as Gate\(web_options=WebOptions\(public_url="),
        (Gate, "clock", r"it is in StoreOptions, as Gate\(store_options=StoreOptions\(clock="),
        (Gate, "registration", r"write Gate\(features=\[Registration\(\.\.\.\)\]\)"),
        (Gate, "leak_reports", r"write Gate\(features=\[LeakReports\("),
        (Gate, "usage_history", r"write Gate\(features=\[UsageHistory\("),
        (Gate, "per_address", r"as Gate\(features=\[Registration\(per_address="),
        (Gate, "pepers", "write 'peppers'"),
        (Gate, "session_coookie", r"write 'session_cookie', it is in WebOptions"),
        (Gate, "q", "choose from store, brand, keys, windows, peppers"),
        (KeyOptions, "public_url", r"as Gate\(web_options=WebOptions\(public_url="),
        (WebOptions, "brand", r"it is in Gate, as Gate\(brand="),
        (StoreOptions, "dead_line", "write 'deadline'"),
        (Plan, "rpmm", "write 'rpm'"),
        (Plan, "cost", r"it is in Rule, as Rule\(cost="),
        (Limit, "rate", "write 'rates'"),
        (Rule, "limit", "write 'limits'"),
        (PlanBook, "rpm", r"it is in Plan, as Plan\(rpm="),
        (Registration, "revoke", r"as Gate\(features=\[LeakReports\(revoke="),
    ],
)
def test_an_argument_in_the_wrong_place_is_told_with_the_right_one(
    kind: Callable[..., object], name: str, told: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"has no argument '{name}': .*{told}"):
        kind(**(CLASSES[kind] | {name: SECRET}))


def test_every_option_and_feature_is_told_where_it_is() -> None:
    for kind in (KeyOptions, WebOptions, StoreOptions, Registration, LeakReports, UsageHistory):
        for name in set(signature(kind).parameters) - set(signature(Gate).parameters):
            given: dict[str, Any] = {"brand": "acme", name: None}
            with pytest.raises(ConfigurationError, match=rf"it is in .*{kind.__name__}, as Gate"):
                Gate(**given)


def test_a_feature_is_given_once() -> None:
    with pytest.raises(ConfigurationError, match=r"UsageHistory.* twice"):
        Gate(brand="acme", features=[UsageHistory(), UsageHistory(addresses=False)])


def test_a_gate_has_at_most_12_keywords_besides_its_store() -> None:
    assert len(signature(Gate).parameters) - 1 <= 12
