"""Keys with an allow-list of addresses, behind every adapter: 403 elsewhere, and no charge."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.testclient import TestClient
from werkzeug.test import Client as WsgiClient

from lockgate import Plan, PlanBook, run
from lockgate.asgi import GateMiddleware
from lockgate.core.key_format import Token

from .applications import EVERY, bearer, gate_of, protected
from .driving import Answer, Bench, ask, say

HERE, ELSEWHERE = "192.0.2.7", "198.51.100.7"
RULES = {"GET /jobs": "jobs:read"}


class Service:
    """A gate before an application, and a key for one network."""

    def __init__(self, **fields: Any) -> None:
        self.bench = Bench(**fields)
        self.keys = self.bench.gate.keys
        created = run(self.keys.create("org_1", "a key", ["jobs:*"], addresses=["192.0.2.0/24"]))
        self.key, self.id = created.text, created.key.id
        self.app = GateMiddleware(say, self.bench.gate, RULES)
        self.bench.told.clear()

    def ask(self, peer: str, *, key: str = "", forwarded: str = "", path: str = "/jobs") -> Answer:
        more = [("x-forwarded-for", forwarded)] if forwarded else []
        asked = ask(self.app, path=path, key=key or self.key, client=(peer, 1), headers=more)
        return asyncio.run(asked)

    def statuses(self, *peers: str) -> list[int]:
        return [self.ask(peer).status for peer in peers]


@pytest.mark.parametrize("framework", EVERY)
def test_every_framework_holds_an_allow_list(framework: str) -> None:
    gate = gate_of(anonymous=Plan("anonymous", rpm=50, rph=None, rpd=None, concurrent=0))
    headers = bearer(gate, addresses=[HERE])
    served, _ = protected(framework, gate)
    statuses: list[int] = []
    for peer in (HERE, ELSEWHERE, HERE):
        if framework in {"flask", "wsgi"}:
            wsgi: Any = WsgiClient(served)
            got = wsgi.get("/models", headers=headers, environ_base={"REMOTE_ADDR": peer})
        else:
            got = TestClient(served, client=(peer, 1)).get("/models", headers=headers)
        statuses.append(got.status_code)
    assert statuses == [200, 403, 200]


def test_a_request_from_elsewhere_gets_403_and_is_not_charged() -> None:
    """Its rate-limit headers are those of the address, as with a wrong key."""
    service = Service(rpm=5, anonymous=100)
    for _ in range(3):  # The second request finds the key in caches.
        assert service.ask(HERE).one("x-ratelimit-limit") == "5"
        service.bench.told.clear()
        refused = service.ask(ELSEWHERE)
        assert (refused.status, refused.code) == (403, "INSUFFICIENT_SCOPE")
        assert refused.one("www-authenticate") == 'Bearer error="insufficient_scope"'
        assert refused.one("cache-control") == "no-store"
        assert refused.one("x-ratelimit-limit") == "100"
        assert service.key.encode() not in refused.body and b"192.0.2" not in refused.body
        (told,) = [event.fields for event in service.bench.told if event.name == "refused"]
        assert (told["code"], told["reason"]) == ("INSUFFICIENT_SCOPE", "address")
        assert (told["organization"], told["key"]) == ("org_1", service.id)
        assert told["address"] == ELSEWHERE
    assert service.bench.used() == 3
    assert run(service.keys.get("org_1", service.id)).request_count == 3
    service.ask(HERE, key="acme_live_nothing")
    assert service.bench.told[-1].fields["reason"] is None


def test_a_flood_from_elsewhere_spends_the_budget_of_its_address_and_asks_no_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = Service(anonymous=3)
    assert service.ask(HERE).status == 200
    assert service.statuses(*[ELSEWHERE] * 5) == [403, 403, 403, 429, 429]
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


def test_a_spent_address_that_is_on_the_list_is_admitted() -> None:
    """An attacker behind the same address cannot lock out a key that was admitted lately."""
    service = Service(anonymous=3)
    assert service.ask(HERE).status == 200
    wrong = service.bench.key()
    service.bench.revoke(wrong)
    for _ in range(5):
        service.ask(HERE, key=wrong)
    assert service.ask(HERE, key=wrong).status == 429
    assert service.ask(HERE).status == 200


def test_a_refusal_elsewhere_tells_nothing_that_a_wrong_key_would_not_be_told() -> None:
    service = Service(rpm=2)
    lacking = run(service.keys.create("org_1", "a", ["models:read"], addresses=[HERE])).text
    assert b"jobs:read" in service.ask(HERE, key=lacking).body
    assert b"jobs:read" not in service.ask(ELSEWHERE, key=lacking).body
    assert service.statuses(HERE, HERE, ELSEWHERE, HERE) == [200, 429, 403, 429]
    service.bench.revoke(service.key)
    assert service.ask(HERE).code == service.ask(ELSEWHERE).code == "KEY_REVOKED"
    unknown = service.bench.gate.format.generate().text
    assert service.ask(HERE, key=unknown).body == service.ask(ELSEWHERE, key=unknown).body


def test_an_update_holds_from_the_next_request_on() -> None:
    service = Service()
    assert service.ask(HERE).status == 200
    for addresses, statuses in (
        ([ELSEWHERE], [403, 200]),
        ([], [200, 200]),
        ([HERE], [200, 403]),
    ):
        run(service.keys.update("org_1", service.id, addresses=addresses))
        assert service.statuses(HERE, ELSEWHERE) == statuses


def test_the_address_is_the_one_that_trusted_proxies_report() -> None:
    service = Service(trusted_proxies=["10.0.0.0/8"])
    assert service.ask("10.0.0.1", forwarded=HERE).status == 200
    assert service.ask("10.0.0.1", forwarded=f"{HERE}, {ELSEWHERE}").status == 403
    assert service.ask("10.0.0.1").status == 403
    assert service.ask(ELSEWHERE, forwarded=HERE).status == 403


@pytest.mark.parametrize("shadow", ["limits", "all"])
def test_shadow_mode_enforces_an_allow_list_as_it_does_credentials(shadow: Any) -> None:
    service = Service()
    service.app = GateMiddleware(say, service.bench.gate, RULES, shadow=shadow)
    statuses = service.statuses(HERE, ELSEWHERE, ELSEWHERE)
    assert statuses == ([200, 403, 403] if shadow == "limits" else [200, 200, 200])
    assert service.bench.used() == 1
