"""``Gate(key_header=)``: clients of an earlier system go on."""

from __future__ import annotations

import pytest

from lockgate import ConfigurationError, run
from lockgate.options import WebOptions

from .applications import EVERY, bearer, gate_of, protected

HEADER = "X-API-Key"
EVERYWHERE = pytest.mark.parametrize("framework", EVERY)
NAMED = WebOptions(key_header=HEADER)


@EVERYWHERE
def test_a_key_in_the_named_header_is_admitted_on_every_adapter(framework: str) -> None:
    gate = gate_of(web_options=NAMED)
    _, ask = protected(framework, gate)
    made, other = (run(gate.keys.create("org_1", s, [s])) for s in ("models:read", "jobs:read"))
    text = made.text
    for _ in range(2):  # The second time the key is known.
        assert ask("/models", {HEADER: text}).status == 200
        assert ask("/models", {"authorization": f"Bearer {text}"}).status == 200
        assert ask("/models", {HEADER: other.text}).code == "INSUFFICIENT_SCOPE"
    assert ask("/models").code == "MISSING_AUTH"
    for wrong in ("", "x", f"Bearer {text}", f"{text}, {text}", text + "a", "a" * 5000):
        answer = ask("/models", {HEADER: wrong})
        assert (answer.status, answer.code) == (401, "INVALID_FORMAT")
    for both in (f"Bearer {text}", "Basic YTpi", ""):
        answer = ask("/models", {HEADER: text, "authorization": both})
        assert (answer.status, answer.code) == (401, "INVALID_FORMAT")
    run(gate.keys.revoke("org_1", made.key.id))
    assert ask("/models", {HEADER: text}).code == "KEY_REVOKED"


@EVERYWHERE
def test_the_header_is_not_read_unless_the_gate_names_it_and_no_query_ever(framework: str) -> None:
    for gate in (gate_of(), gate_of(web_options=NAMED)):
        _, ask = protected(framework, gate)
        good = bearer(gate, "models:read")
        text = good["Authorization"].removeprefix("Bearer ")
        assert ask(f"/models?{HEADER}={text}&api_key={text}").code == "MISSING_AUTH"
        if gate.key_header is None:
            assert ask("/models", {HEADER: text}).code == "MISSING_AUTH"
            assert ask("/models", {HEADER: "anything", **good}).status == 200


def test_a_missing_or_malformed_key_is_told_of_both_headers() -> None:
    _, ask = protected("asgi", gate_of(web_options=NAMED))
    for headers in (None, {HEADER: "nonsense"}):
        told = ask("/models", headers).body["error"]
        assert "'Authorization: Bearer <API key>'" in told or "'Bearer <API key>'" in told
        assert told.endswith("Or send the key alone as 'X-Api-Key: <API key>'.")
    _, ask = protected("asgi", gate_of())
    assert "X-Api-Key" not in ask("/models").body["error"]


def test_the_openapi_documents_offer_both_headers() -> None:
    app, _ = protected("fastapi", gate_of(web_options=NAMED))
    schemes = app.openapi()["components"]["securitySchemes"]
    assert schemes["keyHeader"] == {"type": "apiKey", "in": "header", "name": "X-Api-Key"}
    security = app.openapi()["paths"]["/models"]["get"]["security"]
    assert [*map(list, security)] == [["key"], ["keyHeader"]]
    assert security[0]["key"] == security[1]["keyHeader"]
    assert "keyHeader" not in str(protected("fastapi", gate_of())[0].openapi())


@pytest.mark.parametrize("name", ["", "x api", "X_Key", "Authorization", "cookie", "Host", "a:b"])
def test_a_header_that_cannot_hold_keys_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(ConfigurationError, match="key_header"):
        gate_of(web_options=WebOptions(key_header=name))
