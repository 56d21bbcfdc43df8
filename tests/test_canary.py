"""Canary: known secrets go through every flow and failure, and turn up nowhere (K2).

The one place where a key may be seen is the answer that creates it.
"""

from __future__ import annotations

import copy
import json
import logging
import pickle
import traceback
import warnings
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from lockgate import PUBLIC, Event, Gate, MemoryStore, Refusal, Registration, Rule, run
from lockgate.asgi import GateMiddleware
from lockgate.core.api_keys import ApiKey, KeyDraft
from lockgate.core.key_format import KeyFormat, NewKey, Token
from lockgate.core.timestamps import DAY
from lockgate.errors import InvalidFormat, LockgateError
from lockgate.options import StoreOptions
from lockgate.sessions import Session, SignedCookie
from lockgate.starlette import error_handlers, operations
from lockgate.web.asgi_exchange import AsgiRequest
from lockgate.web.guard import Guard
from lockgate.web.operations.account_schemas import SignIn
from lockgate.web.operations.openapi import describe
from lockgate.web.operations.operation import Call, Reply
from lockgate.web.operations.schemas import KeyCreated

from .stores.making import HandClock, draft_of
from .web.driving import Answer, ask, http_scope

PEPPER = b"canary pepper, canary pepper"
OLD_PEPPER = b"the pepper before that one"
SESSION_SECRET = "canary session secret, long enough"
AGENT_SECRET = "canary secret of agents, long enough"
KEYS = "/api/v1/api-keys"
AUTH = "/api/v1/auth"


FAILING = {
    *("admit", "insert", "list", "get", "revoke_if_live", "charge", "organization"),
    *("register", "account", "account_by_token", "unclaimed_by_email", "claim_if_unclaimed"),
}


class Fragile(MemoryStore):
    """Fails on request, with all its arguments in the error, as drivers do."""

    failing = False

    def __getattribute__(self, name: str) -> Any:
        if name in FAILING and super().__getattribute__("failing"):

            async def fail(*arguments: object, **fields: object) -> object:
                raise OSError(f"INSERT ... parameters: {arguments!r} {fields!r}")

            return fail
        return super().__getattribute__(name)


class Aviary:
    """A service with known secrets, and all its output."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.caplog = caplog
        self.clock = HandClock()
        self.store = Fragile()
        self.told: list[Event] = []
        self.seen: list[str] = []
        self.pasted: list[str] = []
        self.sessions = SignedCookie([SESSION_SECRET])
        clock, page = StoreOptions(clock=self.clock), "https://console.example.com"
        old = Gate(self.store, brand="acme", peppers=[OLD_PEPPER], store_options=clock)
        self.created = run(old.keys.create("org_1", "to be rehashed"))
        self.gate = Gate(
            self.store,
            brand="acme",
            peppers=[PEPPER, OLD_PEPPER],
            sessions=self.sessions,
            features=[Registration(session_secrets=[AGENT_SECRET], dashboard_url=page)],
            store_options=clock,
            observer=self.told.append,
        )
        self.cookie = self.sessions.issue(Session("org_1", "ada", "ada@example.com"))
        assert self.gate.accounts is not None
        self.accounts = self.gate.accounts
        flow = self.accounts.register("an agent", "ada@example.com", address="192.0.2.1")
        self.registered = run(flow)
        token = self.registered.dashboard_token
        self.agent = run(self.accounts.agents.sign_in(token, address="192.0.2.1")).cookie
        other = run(self.gate.keys.create("org_2", "to be rotated"))
        rotated = run(self.gate.keys.rotate("org_2", other.key.id))
        self.seen += [repr(rotated), str(rotated)]
        self.keys = [self.created.text, self.registered.api_key, token, other.text, rotated.text]
        rules: dict[str, Rule | str] = {"GET /health": PUBLIC, "GET /jobs": "jobs:read"}
        rules |= {"GET /crash": Rule(), "GET /raises": Rule()}
        app = Starlette(
            routes=[
                Route("/health", self.page),
                Route("/jobs", self.page),
                Route("/crash", self.crash),
                Route("/raises", self.raises),
                *operations(self.gate),
            ],
            exception_handlers=error_handlers,
        )
        self.app = GateMiddleware(app, self.gate, rules)
        self.shadow = GateMiddleware(app, self.gate, rules, shadow="all")

    async def page(self, request: Request) -> Response:
        self.note(repr(request.scope.get("user")), repr(request.state.principal))
        return PlainTextResponse("ok")

    async def crash(self, _: Request) -> Response:
        raise ZeroDivisionError

    async def raises(self, request: Request) -> Response:
        request.state.principal.need("models:write")
        raise LockgateError

    def note(self, *texts: str) -> None:
        self.seen += texts

    async def ask(self, method: str, path: str, *, shadow: bool = False, **fields: Any) -> Answer:
        app = self.shadow if shadow else self.app
        try:
            answer = await ask(app, method, path, **fields)
        except Exception as failure:
            self.note(str(failure), repr(failure), traceback.format_exc())
            return Answer([])
        if answer.status != 201:
            self.note(answer.body.decode())
        headers = answer.start["headers"]
        self.note(repr([pair for pair in headers if pair[0] != b"set-cookie"]))
        return answer

    @property
    def secrets(self) -> list[str]:
        """What must not be seen: whole keys, their random parts, the cookie, peppers, secrets."""
        parts = [key.rsplit("_", 1)[1] for key in self.keys]
        cookies = [self.cookie, self.agent]
        return [
            *(*self.keys, *parts, *(part[:-6] for part in parts)),
            *(*cookies, *(cookie.rsplit(".", 1)[1] for cookie in cookies)),
            *(AGENT_SECRET, PEPPER.decode(), OLD_PEPPER.decode(), SESSION_SECRET, *self.pasted),
        ]

    def check(self) -> None:
        logged = [record.getMessage() for record in self.caplog.records]
        logged.append(self.caplog.text)
        everything = [*self.seen, *logged, repr(self.told), *map(repr, self.told)]
        records = repr(self.store._changes._rows)
        assert "key_created" in records
        everything.append(records)
        everything += [json.dumps(dict(event.fields), default=repr) for event in self.told]
        pairs = [(secret, text) for text in everything for secret in self.secrets]
        assert [(secret[:8], text[:300]) for secret, text in pairs if secret in text] == []
        assert self.seen or self.told


@pytest.fixture
def aviary(caplog: pytest.LogCaptureFixture) -> Iterator[Aviary]:
    caplog.set_level(logging.DEBUG)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = Aviary(caplog)
        yield found
        found.note(*(str(warning.message) for warning in caught))
        found.check()


async def test_every_flow(aviary: Aviary) -> None:
    body = {"name": "canary", "scopes": ["jobs:read", "account:read"], "expiresInDays": 1}
    answer = await aviary.ask("POST", KEYS, session=aviary.cookie, json_body=body)
    key, id = answer.json()["key"], answer.json()["id"]
    assert answer.body.decode().count(key) == 1
    aviary.keys.append(key)
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "/health", {"key": key}),
        ("GET", "/jobs", {"key": key}),
        ("GET", "/jobs", {"key": aviary.created.text}),
        ("GET", KEYS, {"key": key}),
        ("GET", KEYS, {"session": aviary.cookie}),
        ("GET", f"{KEYS}/{id}", {"key": key}),
        ("GET", "/api/v1/account/rate-limits", {"key": key}),
        ("DELETE", f"{KEYS}/{id}", {"session": aviary.cookie}),
        ("DELETE", f"{KEYS}/{id}", {"key": aviary.created.text}),
    ]
    for method, path, fields in calls:
        await aviary.ask(method, path, **fields)
    aviary.note(json.dumps(describe(aviary.gate, "A service")))
    assert {event.name for event in aviary.told} >= {"key_created", "key_revoked", "key_rehashed"}


async def test_every_flow_of_accounts(aviary: Aviary) -> None:
    """A token is in the answer that makes it, an agent's session in the cookie it begins."""
    body = {"agent_name": "canary", "billing_email": "ada@example.com"}
    answer = await aviary.ask("POST", f"{AUTH}/bot-register", json_body=body)
    made = answer.json()
    for secret in (made["api_key"], made["dashboard_token"]):
        assert answer.body.decode().count(secret) == 1
        aviary.keys.append(secret)
    token = {"dashboard_token": made["dashboard_token"]}
    await aviary.ask("POST", f"{AUTH}/bot-sign-in", json_body=token)
    await aviary.ask("GET", KEYS, session=aviary.agent)
    organization = {"organizationId": aviary.registered.account.organization}
    await aviary.ask("GET", f"{AUTH}/claim", session=aviary.cookie)
    await aviary.ask("POST", f"{AUTH}/bot-sign-out", session=aviary.agent)
    await aviary.ask("POST", f"{AUTH}/claim", session=aviary.cookie, json_body=organization)
    for value in (*aviary.keys, aviary.agent, aviary.cookie):
        for query in (f"{value}=1", f"cursor={value}", f"limit={value}", f"x{value}x"):
            where = f"{AUTH}/claim"
            answer = await aviary.ask("GET", where, session=aviary.cookie, query=query)
            assert answer.status == 400
    for path in ("bot-register", "bot-sign-in", "claim"):
        for session in (None, aviary.agent):  # A person's: see the test of K11 below.
            for value in (*aviary.keys, aviary.agent, aviary.cookie):
                body_of = {"dashboard_token": f"{value}x", "organizationId": value, value: value}
                await aviary.ask("POST", f"{AUTH}/{path}", session=session, json_body=body_of)
        await aviary.ask("GET", f"{AUTH}/{path}/{made['dashboard_token']}")
    aviary.store.failing = True
    for path in ("bot-register", "bot-sign-in", "claim"):
        wanted = {"bot-register": body, "bot-sign-in": token, "claim": organization}[path]
        await aviary.ask("POST", f"{AUTH}/{path}", session=aviary.cookie, json_body=wanted)
    names = {event.name for event in aviary.told}
    assert names >= {"registered", "registration_refused", "signed_in", "sign_in_refused"}
    assert names >= {"signed_out", "claimed", "claim_refused", "store_failed"}


async def test_every_failure(aviary: Aviary) -> None:
    key = aviary.created.text
    good = {"authorization": f"Bearer {key}"}
    for headers in (
        [("authorization", key)],
        [("authorization", f"Bearer {key[:-1]}A")],
        [("authorization", f"Bearer {key} ")],
        [("authorization", f"Bearer {key}\u00e9")],
        [("authorization", f"Basic {key}")],
        [("authorization", f"Bearer {key}"), ("authorization", f"Bearer {key}")],
        [("authorization", f"Bearer {key}" + "x" * 300)],
        [("cookie", f"__session={aviary.cookie}; __session={aviary.cookie}")],
        [("cookie", f"__session={aviary.cookie}x")],
        [("cookie", f"__session={aviary.cookie}"), ("origin", "https://evil.example")],
        [("x-api-key", key)],
    ):
        for method in ("GET", "POST"):
            await aviary.ask(method, KEYS, headers=headers)
            await aviary.ask(method, "/jobs", headers=headers)
    for path in ("/crash", "/raises", "/nowhere", "/jobs"):
        await aviary.ask("GET", path, headers=list(good.items()))
        await aviary.ask("PUT", path, headers=list(good.items()))
    for _ in range(12):
        await aviary.ask("GET", "/jobs", key=key)
    aviary.store.failing = True
    await aviary.ask("GET", KEYS, key=key)
    await aviary.ask("POST", KEYS, session=aviary.cookie, json_body={"name": "x"})
    aviary.store.failing = False
    await aviary.gate.keys.revoke("org_1", aviary.created.key.id)
    await aviary.ask("GET", "/jobs", key=key)
    assert any(event.name == "refused" for event in aviary.told)
    assert any(event.name == "store_failed" for event in aviary.told)


@pytest.mark.parametrize("shadow", [False, True])
async def test_a_key_in_the_path_or_in_the_place_of_the_method(
    aviary: Aviary, shadow: bool
) -> None:
    """A key pasted into the path, or as in ``curl -X $KEY``, reaches the log and the events."""
    key = aviary.created.text
    paths = ["/{key}", "/jobs/{key}", "/jobs/x{key}", "/jobs/{key}x", "/jobs/{key}_x"]
    for path in (*paths, "/{key}/{key}", "/k_{key}_k", "/-{key}-", "/{key}{key}"):
        aviary.told.clear()
        await aviary.ask("GET", path.format(key=key), shadow=shadow)
        assert aviary.told, path
    for path in ("/jobs", KEYS):
        for credential in ({}, {"key": key}, {"session": aviary.cookie}):
            await aviary.ask(key, path, shadow=shadow, **credential)
        caller = AsgiRequest(http_scope(key, path))
        aviary.note(repr(Call(aviary.gate, caller, None, {}, b"", [])))


JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhZGEifQ.3v7Qm1Zc9Kx2Lw8Rt5Yp0Nd4Hf6Jg_Sa-Bo"
PASSWORD = "hunter2hunter2"


@pytest.mark.parametrize("kind", ["key", "other brand", "token", "session", "agent", "jwt", "url"])
async def test_no_operation_repeats_a_credential_that_was_pasted_anywhere_K11(
    aviary: Aviary, kind: str
) -> None:
    """Each operation, with a credential in its path, its query, its body and its headers."""
    key = aviary.created.text
    text = {
        "key": key,
        "other brand": key.replace("acme", "other"),
        "token": aviary.registered.dashboard_token,
        "session": aviary.cookie,
        "agent": aviary.agent,
        "jwt": JWT,
        "url": f"postgresql://user:{PASSWORD}@host/database",
    }[kind]
    aviary.pasted += [JWT.rpartition(".")[2], PASSWORD, text[20:] if kind != "url" else PASSWORD]
    statuses: set[int] = set()

    async def ask(*arguments: str, **fields: Any) -> Answer:
        aviary.clock.now += DAY  # No window is full.
        answer = await aviary.ask(arguments[0], arguments[1], **fields)
        statuses.add(answer.status)
        return answer

    fields = [
        *("name", "scopes", "expiresInDays", "agent_name", "billing_email", "company_name"),
        *("account_type", "organizationId", "revokeKeys", "dashboard_token", "proof", "other"),
    ]
    good: dict[str, object] = {"name": "x", "agent_name": "x", "billing_email": "x@example.com"}
    good |= {"account_type": "company", "company_name": "x"}
    strange = {"name": f"{text}\0", "scopes": ["jobs:read", f"x {text}"]}
    callers: list[dict[str, Any]] = [{}, {"key": key}, {"session": aviary.cookie}]
    quoted = quote(text, safe="")
    for path, methods in describe(aviary.gate, "A service")["paths"].items():
        for method in (*methods, "put"):
            for caller in callers:
                for at in (path.replace("{id}", text), f"{path}/{text}", f"{path}x{text}"):
                    await ask(method.upper(), at, **caller)
                for query in (quoted, f"limit={quoted}", f"cursor={quoted}", f"{quoted}=1"):
                    await ask(method.upper(), path, query=query, **caller)
            if method != "post":
                continue
            caller = callers[-1]
            bodies: list[object] = [{text: text}, [text], text, {**good, text: 1}]
            bodies += [{**good, name: value} for name, value in strange.items()]
            for field in fields:
                bodies += [{field: text}, {**good, field: text}, {**good, field: [text]}]
            for body in bodies:
                await ask("POST", path, json_body=body, **caller)
        for header in ("authorization", "cookie", "origin", "content-type", "x-forwarded-for"):
            for value in (text, f"Bearer {text}", f"__session={text}"):
                await ask("POST", path, headers=[(header, value)])
    listed = await ask("GET", KEYS, session=aviary.cookie)
    aviary.note(listed.body.decode())
    assert statuses >= {200, 400, 401, 404, 405} and 429 not in statuses


def reachable(root: object, depth: int = 5) -> Iterator[object]:
    """What hangs on an object by its attributes and items, lockgate's own objects only."""
    seen: set[int] = set()
    level = [root]
    for _ in range(depth):
        following: list[object] = []
        for value in level:
            if id(value) in seen or isinstance(value, type):
                continue
            seen.add(id(value))
            yield value
            if isinstance(value, dict):
                following += [*value.keys(), *value.values()]
            elif isinstance(value, list | tuple | set | frozenset):
                following += value
            elif type(value).__module__.startswith(("lockgate", "tests")):
                following += vars(value).values() if hasattr(value, "__dict__") else ()
                slots = getattr(type(value), "__slots__", ())
                following += [getattr(value, n) for n in slots if n not in {"_secret"}]
        level = following


def test_no_representation_shows_a_secret(aviary: Aviary) -> None:
    key = aviary.created.text
    token = aviary.gate.format.read([b"Bearer " + key.encode()])
    principal = run(aviary.gate.authenticate(key))
    admission = run(aviary.store.admit(token, 1, aviary.gate.plans, aviary.clock.now))
    new = NewKey(key, token.handle)
    format = KeyFormat("acme", peppers=aviary.gate.format.peppers)
    draft = draft_of(new, format=format)
    caller = AsgiRequest(http_scope(headers=[("authorization", f"Bearer {key}")]))
    dashboard_token = aviary.registered.dashboard_token
    things: list[object] = [
        *(aviary.gate, aviary.store, aviary.created, aviary.sessions, aviary.app.guard),
        *(aviary.registered, aviary.registered.account, aviary.accounts),
        *(principal, admission, draft, draft.created(aviary.clock.now), token, new, caller),
        *(Session("org_1", "ada"), token.fresh_digest()),
        *(Registration(session_secrets=[AGENT_SECRET]), SignIn(dashboard_token=dashboard_token)),
        run(aviary.accounts.agents.sign_in(dashboard_token, address="a")),
    ]
    for thing in things:
        aviary.note(repr(thing), str(thing), f"{thing}")
    for root in (aviary.gate, principal, admission, aviary.app.guard):
        aviary.note(*(repr(value) for value in reachable(root) if not isinstance(value, bytes)))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:hunter2@127.0.0.1:1/keys?sslpassword=hunter2",
        "mysql://user:hunter2@127.0.0.1:1/keys",
        "redis://user:hunter2@127.0.0.1:1/0",
        "redis+cluster://user:hunter2@127.0.0.1:1,127.0.0.1:2",
        "redis+sentinel://user:hunter2@127.0.0.1:1/service",
        "postgresql://user:hunter2@127.0.0.1:1/keys redis://:hunter2@127.0.0.1:1",
    ],
)
def test_no_representation_shows_the_password_of_a_store(url: str) -> None:
    """Error trackers keep the ``repr`` of every local variable of a frame."""
    gate = Gate(url, brand="acme")
    ours = [
        thing
        for thing in reachable(gate, depth=8)
        if type(thing).__module__.startswith("lockgate") or isinstance(thing, partial)
    ]
    assert len(ours) > 20
    for thing in ours:
        assert "hunter2" not in f"{thing!r} {thing}", type(thing)


def test_the_representation_of_the_answer_with_the_key_does_not_show_it(aviary: Aviary) -> None:
    """Error trackers keep the ``repr`` of every local variable of a frame."""
    key = aviary.created.text
    answer = KeyCreated(id="1", key=key, key_prefix=key[:15])
    aviary.note(repr(answer), str(answer))
    reply = Reply(201, (), answer.model_dump_json().encode())
    aviary.note(repr(reply), str(reply))
    assert key.encode() in reply.body
    caller = AsgiRequest(http_scope("POST", f"/{key}"))
    call = Call(aviary.gate, caller, None, {}, reply.body, [(b"set-cookie", key.encode())])
    aviary.note(repr(call), str(call))


def test_no_pickle_or_copy_holds_a_secret(aviary: Aviary) -> None:
    token = aviary.gate.format.read([b"Bearer " + aviary.created.text.encode()])
    key = aviary.created.key
    draft = draft_of(aviary.gate.format.generate(), format=aviary.gate.format)
    for kept in (key, draft):
        assert isinstance(kept, ApiKey | KeyDraft)
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            dump = pickle.dumps(kept, protocol)
            assert pickle.loads(dump) == kept
            aviary.note(dump.decode("latin-1"))
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError):
            pickle.dumps(token, protocol)
    for duplicate in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            duplicate(token)
    assert isinstance(token, Token)


def test_the_store_contains_no_secret(aviary: Aviary) -> None:
    run(aviary.gate.authenticate(aviary.created.text))
    dump = repr(vars(aviary.store)) + repr(run(aviary.store.list("org_1", 100))[0]._asdict())
    aviary.note(dump, repr(run(aviary.gate.keys.find(aviary.created.text))))
    assert aviary.created.key.handle in dump


def test_every_exception_and_its_traceback(aviary: Aviary) -> None:
    key = aviary.created.text
    gate = aviary.gate
    aviary.store.failing = True
    session = Session("org_1", "ada")
    flows: list[Callable[[], Coroutine[Any, Any, object]]] = [
        lambda: gate.authenticate(key),
        lambda: gate.admit_session(session),
        lambda: gate.keys.create("org_1", "x"),
        lambda: gate.keys.list("org_1"),
        lambda: gate.keys.get("org_1", "x"),
        lambda: gate.keys.revoke("org_1", "x"),
    ]
    for flow in flows:
        try:
            run(flow())
        except Refusal as refusal:
            aviary.note(str(refusal), repr(refusal), traceback.format_exc(), repr(vars(refusal)))
        else:
            raise AssertionError("it was to fail")
    aviary.store.failing = False
    for value in (key, f"Bearer {key}x", f"Bearer {key[:-1]}", f"Bearer  {key}\n"):
        try:
            gate.format.read([value.encode()])
        except InvalidFormat as refusal:
            aviary.note(str(refusal), repr(refusal), traceback.format_exc(), repr(refusal.args))
        else:
            raise AssertionError("it was to fail")
    aviary.clock.now += 2 * DAY
    guard = Guard(gate)
    for authorization in (key, f"Bearer {key[:-2]}AA"):
        caller = AsgiRequest(http_scope(headers=[("authorization", authorization)]))
        try:
            run(guard.enter(caller))
        except Refusal as refusal:
            aviary.note(str(refusal), traceback.format_exc(), repr(refusal.rate))


def test_the_search_for_leaks_finds_a_planted_leak(caplog: pytest.LogCaptureFixture) -> None:
    aviary = Aviary(caplog)
    aviary.note("a", "b", f"somewhere in here: {aviary.created.text} it was", "c")
    with pytest.raises(AssertionError):
        aviary.check()
