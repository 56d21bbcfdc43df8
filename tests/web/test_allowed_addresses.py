"""Keys with an allow-list of addresses, behind every adapter: 403 elsewhere, and no charge."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send
from werkzeug.test import Client as WsgiClient

from lockgate import Plan, PlanBook, run
from lockgate.asgi import GateMiddleware as AsgiGate
from lockgate.core.key_format import Token
from lockgate.wsgi import GateMiddleware as WsgiGate
from tests.test_wsgi import ask as ask_wsgi
from tests.test_wsgi import environ

from .driving import Bench, ask
from .test_protect import ADAPTERS, gate_of

HERE, ELSEWHERE = "192.0.2.7", "198.51.100.7"
RULES = {"GET /jobs": "jobs:read"}


async def asgi_application(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def wsgi_application(_: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [])
    return [b""]


class Answer:
    """The status, headers and body of an answer."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.body = body


class Service:
    """A gate before an ASGI or WSGI application, and a key for one network."""

    def __init__(
        self, server: str, *, addresses: tuple[str, ...] = ("192.0.2.0/24",), **fields: Any
    ):
        self.bench = Bench(**fields)
        self.keys = self.bench.gate.keys
        created = run(self.keys.create("org_1", "a key", ["jobs:*"], addresses=addresses))
        self.key, self.id = created.text, created.key.id
        self.server = server
        self.asgi = AsgiGate(asgi_application, self.bench.gate, RULES)
        self.wsgi = WsgiGate(wsgi_application, self.bench.gate, RULES)
        self.bench.told.clear()

    def ask(self, peer: str, *, key: str = "", forwarded: str = "", path: str = "/jobs") -> Answer:
        key = key or self.key
        more = {"x-forwarded-for": forwarded} if forwarded else {}
        if self.server == "asgi":
            sent = asyncio.run(
                ask(self.asgi, path=path, key=key, client=(peer, 1), headers=more.items())
            )
            return Answer(sent.status, dict(sent.headers), sent.body)
        fields = {"HTTP_AUTHORIZATION": f"Bearer {key}", "REMOTE_ADDR": peer}
        if forwarded:
            fields["HTTP_X_FORWARDED_FOR"] = forwarded
        got = ask_wsgi(self.wsgi, environ(path=path, **fields))
        return Answer(int(got.status[:3]), dict(got.headers.items()), got.body)


@pytest.fixture(params=["asgi", "wsgi"])
def server(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_request_from_elsewhere_gets_403_and_is_not_charged(server: str) -> None:
    service = Service(server)
    for _ in range(3):  # The second request finds the key in caches.
        assert service.ask(HERE).status == 200
        refused = service.ask(ELSEWHERE)
        assert refused.status == 403
        assert b'"code":"INSUFFICIENT_SCOPE"' in refused.body
        assert refused.headers["www-authenticate"] == 'Bearer error="insufficient_scope"'
        assert refused.headers["cache-control"] == "no-store"
    assert service.bench.used() == 3
    assert run(service.keys.get("org_1", service.id)).request_count == 3


def test_a_refusal_elsewhere_tells_nothing_of_the_organization(server: str) -> None:
    """Its rate-limit headers are those of the address, as with a wrong key."""
    service = Service(server, rpm=5, anonymous=100)
    assert service.ask(HERE).headers["x-ratelimit-limit"] == "5"
    refused = service.ask(ELSEWHERE)
    assert refused.headers["x-ratelimit-limit"] == "100"
    assert service.key.encode() not in refused.body
    assert HERE.encode() not in refused.body
    assert b"192.0.2" not in refused.body


def test_a_refusal_elsewhere_is_an_event_with_the_key_and_a_reason(server: str) -> None:
    service = Service(server)
    service.ask(ELSEWHERE)
    (told,) = [event.fields for event in service.bench.told if event.name == "refused"]
    assert (told["code"], told["reason"]) == ("INSUFFICIENT_SCOPE", "address")
    assert (told["organization"], told["key"]) == ("org_1", service.id)
    assert told["address"] == ELSEWHERE
    service.ask(HERE, path="/nothing")
    service.ask(HERE, key="acme_live_nothing")
    assert all(
        event.fields["reason"] is None
        for event in service.bench.told[-1:]
        if event.name == "refused"
    )


def test_a_flood_from_elsewhere_spends_the_budget_of_its_address_and_asks_no_store(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(server, anonymous=3)
    assert service.ask(HERE).status == 200
    assert [service.ask(ELSEWHERE).status for _ in range(5)] == [403, 403, 403, 429, 429]
    asked: list[str | None] = []
    store, admit = service.bench.gate.store, service.bench.gate.store.admit

    async def counted(
        token: Token, cost: int, plans: PlanBook, now: int | None, address: str | None, *more: Any
    ) -> Any:
        asked.append(address)
        return await admit(token, cost, plans, now, address, *more)

    monkeypatch.setattr(store, "admit", counted)
    assert service.ask(ELSEWHERE).status == 429
    assert [address for address in asked if address is not None] == []
    assert service.ask(HERE).status == 200


def test_a_spent_address_that_is_on_the_list_is_admitted(server: str) -> None:
    """An attacker behind the same address cannot lock out a key that was admitted lately."""
    service = Service(server, anonymous=3)
    assert service.ask(HERE).status == 200
    wrong = service.bench.key()
    service.bench.revoke(wrong)
    for _ in range(5):
        service.ask(HERE, key=wrong)
    assert service.ask(HERE, key=wrong).status == 429
    assert service.ask(HERE).status == 200


def test_a_revoked_key_and_a_wrong_key_look_alike_everywhere(server: str) -> None:
    service = Service(server)
    service.bench.revoke(service.key)
    assert b"KEY_REVOKED" in service.ask(HERE).body
    assert b"KEY_REVOKED" in service.ask(ELSEWHERE).body
    draw = service.bench.gate.format.generate()
    assert service.ask(HERE, key=draw.text).body == service.ask(ELSEWHERE, key=draw.text).body


def test_a_full_window_is_told_to_clients_on_the_list_only(server: str) -> None:
    service = Service(server, rpm=2)
    assert [service.ask(HERE).status for _ in range(5)] == [200, 200, 429, 429, 429]
    assert service.ask(ELSEWHERE).status == 403
    assert service.ask(HERE).status == 429


def test_an_update_holds_from_the_next_request_on(server: str) -> None:
    service = Service(server)
    assert service.ask(HERE).status == 200
    run(service.keys.update("org_1", service.id, addresses=[ELSEWHERE]))
    assert (service.ask(HERE).status, service.ask(ELSEWHERE).status) == (403, 200)
    run(service.keys.update("org_1", service.id, addresses=[]))
    assert (service.ask(HERE).status, service.ask(ELSEWHERE).status) == (200, 200)
    run(service.keys.update("org_1", service.id, addresses=[HERE]))
    assert (service.ask(HERE).status, service.ask(ELSEWHERE).status) == (200, 403)


def test_the_address_is_the_one_that_trusted_proxies_report(server: str) -> None:
    service = Service(server, trusted_proxies=["10.0.0.0/8"])
    assert service.ask("10.0.0.1", forwarded=HERE).status == 200
    assert service.ask("10.0.0.1", forwarded=f"{HERE}, {ELSEWHERE}").status == 403
    assert service.ask("10.0.0.1").status == 403
    assert service.ask(ELSEWHERE, forwarded=HERE).status == 403


def test_an_ipv6_client_is_compared_whole(server: str) -> None:
    """Budgets count its /64; an allow-list may name one address."""
    service = Service(server, addresses=("2001:db8::7",))
    assert service.ask("2001:db8::7").status == 200
    assert service.ask("2001:db8::8").status == 403
    assert service.ask("2001:0db8:0:0:0:0:0:7").status == 200


def test_a_scope_that_is_missing_is_told_to_clients_on_the_list_only(server: str) -> None:
    service = Service(server)
    created = run(service.keys.create("org_1", "a", ["models:read"], addresses=[HERE]))
    lacking = service.ask(HERE, key=created.text)
    assert b"jobs:read" in lacking.body
    assert b"jobs:read" not in service.ask(ELSEWHERE, key=created.text).body


@pytest.mark.parametrize("shadow", ["limits", "all"])
def test_shadow_mode_enforces_an_allow_list_as_it_does_credentials(shadow: Any) -> None:
    service = Service("asgi")
    service.asgi = AsgiGate(asgi_application, service.bench.gate, RULES, shadow=shadow)
    statuses = [service.ask(peer).status for peer in (HERE, ELSEWHERE, ELSEWHERE)]
    assert statuses == ([200, 403, 403] if shadow == "limits" else [200, 200, 200])
    assert service.bench.used() == 1


@pytest.mark.parametrize("framework", ADAPTERS)
def test_every_framework_holds_an_allow_list(framework: str) -> None:
    adapter, make = ADAPTERS[framework]
    gate = gate_of(anonymous=Plan("anonymous", rpm=50, rph=None, rpd=None, concurrent=0))
    created = run(gate.keys.create("org_1", "a key", addresses=[HERE]))
    served = adapter.protect(make(), gate, public=["GET /health"])
    headers = {"Authorization": f"Bearer {created.text}"}
    statuses: list[int] = []
    for peer in (HERE, ELSEWHERE, HERE):
        if framework == "flask":
            wsgi: Any = WsgiClient(served)
            got = wsgi.get("/models", headers=headers, environ_base={"REMOTE_ADDR": peer})
        else:
            got = TestClient(served, client=(peer, 1)).get("/models", headers=headers)
        statuses.append(got.status_code)
    assert statuses == [200, 403, 200]
