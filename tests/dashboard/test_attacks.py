"""Attacks on the pages: markup in names, forged forms, frames, and keys of other organizations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from secrets import token_hex
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from lockgate import Plan, run
from lockgate.dashboard.application import PAGES
from lockgate.sessions import Session
from lockgate.testing import HandClock

from . import test_operators as operators
from .consoles import ADA, AT, PLACES, SESSIONS, Console, Page, make_gate, on_starlette
from .robots import make_gate_with_agents, register

MARKUP = "\"'><script>alert(1)</script>{{7*7}}<img src=x onerror=alert(1)>"
MALLORY = Session("org_2", "mallory", "mallory@example.com")


@pytest.fixture(scope="module", params=["starlette", "flask"])
def console(request: pytest.FixtureRequest) -> Iterator[Console]:
    with PLACES[request.param](make_gate_with_agents) as made:
        yield made


@pytest.fixture
def person(console: Console) -> Console:
    console.sign_in(ADA)
    return console


def forms(id: str) -> dict[str, dict[str, Any]]:
    """Every form with fields that it accepts, by its path."""
    key = {"name": "x", "access": "full", "expires": ""}
    return {
        "/keys": {"q": "x"},
        "/keys/new": key,
        f"/keys/{id}/edit": key,
        f"/keys/{id}/rotate": {"overlap": "1"},
        f"/keys/{id}/revoke": {},
        "/claim": {"organization": "org_9", "keys": "keep"},
        "/workspace": {"organization": "org_9"},
        "/sign-out": {},
    }


ONLY_POSTED = {"/workspace", "/sign-out"}


def test_every_form_is_attacked() -> None:
    """Those of operators in test_operators.py; the token of an agent is the sign-in's own."""
    posted = {path for path, page in PAGES.items() if page.post is not None}
    assert posted == {*forms("{id}"), *operators.FORMS, "/sign-in"}


def state(person: Console) -> object:
    return [
        (key.name, key.revoked_at, key.successor, key.scopes)
        for organization in ("org_1", "org_2")
        for key in run(person.gate.keys.list(organization, limit=1000)).keys
    ]


def test_markup_in_names_labels_and_queries_is_shown_as_text(person: Console) -> None:
    id = person.id_of(person.create(MARKUP[:100], labels=f"team={MARKUP}"))
    paths = ["/keys", f"/keys/{id}", f"/keys/{id}/edit", f"/keys/{id}/rotate", f"/keys/{id}/revoke"]
    again = person.post("/keys/new", {"name": MARKUP * 2, "labels": f"{MARKUP}=1"}, status=400)
    pages = [again, *(person.get(path) for path in paths)]
    pages += [person.get(f"/keys?label={quote('a=' + MARKUP)}"), person.get("/usage?by=<b>")]
    pages.append(person.get(f"/keys?q={quote(MARKUP)}&label={quote('a=' + MARKUP)}"))
    pages.append(person.get(f"/keys?cursor={quote(MARKUP)}", 400))
    for page in pages:
        assert "<script>alert" not in page.html and "<img src=x" not in page.html
        assert page.html.count("<script") == 1
    assert "&lt;script&gt;alert(1)" in pages[1].html


def test_markup_of_an_agent_is_shown_as_text_to_its_owner(person: Console) -> None:
    register(person, "ada@example.com", "<img src=x onerror=alert(1)>")
    page = person.get("/claim")
    assert "<img src=x" not in page.html
    page.sees("<img src=x onerror=alert(1)>")


def test_a_form_without_its_token_changes_nothing(person: Console) -> None:
    id = person.id_of(person.create())
    token = person.get("/keys/new").token
    before = state(person)
    person.sign_in(MALLORY)
    others = person.get("/keys/new").token
    person.sign_in(ADA)
    for path, fields in forms(id).items():
        for wrong in ("", "x", token[:-2], f"{token}x", others, token.swapcase()):
            page = person.post(path, fields, token=wrong, status=403)
            page.sees("This form is out of date")
    assert state(person) == before


def test_a_form_of_another_site_changes_nothing(person: Console) -> None:
    id = person.id_of(person.create())
    token = person.get("/keys/new").token
    before = state(person)
    strange: list[dict[str, str]] = [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": person.origin, "cookie": "", "sec-fetch-site": "cross-site"},
    ]
    for path, fields in forms(id).items():
        for headers in strange[:2]:
            person.post(path, fields, token=token, status=403, headers=headers)
        data = {"form_token": token, **fields}
        sent = {"sec-fetch-site": "cross-site"}
        assert person.client.post(AT + path, data=data, headers=sent).status_code == 403
        text = {"content-type": "text/plain", "origin": person.origin}
        answer = person.client.post(AT + path, content=f"form_token={token}", headers=text)
        assert answer.status_code == 415 and " JSON" not in answer.text
    token_of_agent = {"dashboard_token": "acme_dashboard_x"}
    person.post("/sign-in", token_of_agent, token="", status=403, headers=strange[0])
    assert state(person) == before


def test_reading_a_page_never_changes_anything(person: Console) -> None:
    id = person.id_of(person.create())
    before = state(person)
    for path in forms(id):
        if path not in ONLY_POSTED:
            person.get(f"{path}?form_token=x&successors=yes")
    for path in ONLY_POSTED:
        person.get(path, 405)
    assert state(person) == before


def test_a_key_of_another_organization_does_not_exist(person: Console) -> None:
    id = person.id_of(person.create("hers"))
    person.sign_in(MALLORY)
    before = state(person)
    for path, fields in forms(id).items():
        if id in path:
            person.get(path, 404)
            person.post(path, fields, status=404)
    person.get(f"/keys/{id}", 404)
    page = person.post("/claim", {"organization": "org_1", "keys": "revoke"}, status=403)
    page.sees("not yours to claim")
    person.post("/workspace", {"organization": "org_1"}, status=403)
    assert "lockgate_workspace" not in person.client.cookies
    assert state(person) == before
    for search in ("", "?q=hers", "?q=acme_live_", "?q=", "?q=&label="):
        assert "hers" not in person.get(f"/keys{search}").text.replace("“hers”", "")


def test_a_slash_behind_a_page_leads_to_it_and_to_no_other_site(person: Console) -> None:
    id = person.id_of(person.create())
    for path in ("/keys", "/keys/new", "/usage", f"/keys/{id}", f"/keys/{id}/edit"):
        answer = person.client.get(f"{AT}{path}/?by=day")
        assert (answer.status_code, answer.headers["location"]) == (303, f"{AT}{path}?by=day")
    for path in ("/keys//", "//evil.example/", "/evil.example/", "/keys/%0d%0aX:y/", "/operator/"):
        answer = person.client.get(AT + path)
        assert answer.status_code in {400, 401, 404}, path
        assert "location" not in answer.headers and "X" not in answer.headers
    assert person.client.post(f"{AT}/keys/new/").status_code == 404
    pasted = person.client.get(f"{AT}/keys/?q={person.create()}")
    assert pasted.headers["location"] == f"{AT}/keys"


def test_what_was_entered_is_kept_for_its_person_in_a_form_that_has_to_be_sent(
    person: Console,
) -> None:
    person.sign_in(Session("org_kept", "ada", "ada@example.com"))
    token, secret = person.get("/keys/new").token, person.create("other")
    before = len(run(person.gate.keys.list("org_kept")).keys)
    form = {"name": f"kept {MARKUP}", "labels": f"a={secret}", "access": "some", "expires": "30"}
    form["scopes"] = "jobs:read"
    person.client.cookies.set("__session", "expired")
    page = person.post("/keys/new", form, token=token, status=401)
    page.sees("nothing was changed. What you entered is kept for 30 minutes")
    assert "kept &" not in page.html and secret not in page.html
    (header,) = [h for h in page.answer.headers.get_list("set-cookie") if "lockgate_form" in h]
    assert "HttpOnly" in header and "SameSite=Lax" in header and "Max-Age=1800" in header
    draft = person.client.cookies["lockgate_form"]

    def opened(session: Session, cookie: str = draft) -> Page:
        person.sign_in(session)
        person.client.cookies.set("lockgate_form", cookie)
        return person.get("/keys/new")

    for page in (opened(MALLORY), opened(ADA), opened(ADA, draft[:-1]), opened(ADA, "x.y.z")):
        assert "kept &" not in page.html and "before you signed in again" not in page.text
    page = opened(Session("org_kept", "ada", "ada@example.com"))
    page.sees("This is what you entered before you signed in again.")
    assert 'value="kept &#34;&#39;&gt;&lt;script&gt;' in page.html and secret not in page.html
    assert 'value="jobs:read" checked' in page.html
    assert page.token != token
    assert "lockgate_form=; Max-Age=0" in page.answer.headers["set-cookie"]
    assert len(run(person.gate.keys.list("org_kept")).keys) == before


def test_nothing_is_kept_of_a_form_of_another_site_or_person_or_of_a_secret(
    person: Console,
) -> None:
    token = person.get("/keys/new").token
    person.sign_in(None)
    evil = {"origin": "https://evil.example"}
    pages = [person.post("/keys/new", {"name": "x"}, token=token, status=401, headers=evil)]
    pages += [person.post("/keys/new", {"name": "x"}, token=t, status=401) for t in ("", "x")]
    pages.append(person.post("/keys", {"q": "acme_live_x"}, token=token, status=401))
    pages.append(person.post("/keys/new", {"name": token_hex(5000)}, token=token, status=401))
    for page in pages:
        assert "is kept" not in page.text and "set-cookie" not in page.answer.headers


def test_no_page_can_be_framed_cached_or_extended(person: Console) -> None:
    person.sign_in(Session("org_3", "grace", "grace@example.com"))
    id = person.id_of(person.create())
    nonces: set[str] = set()
    pages = [person.get(f"/keys/{id}{path}") for path in ("", "/edit", "/rotate", "/revoke")]
    pages += [person.get(path) for path in ("/keys", "/keys/new", "/usage", "/claim")]
    pages += [person.get("/nowhere", 404), person.post("/keys/new", {"name": ""}, status=400)]
    pages.append(person.post("/keys/new", {"name": "x", "access": "full"}, status=201))
    person.sign_in(None)
    pages.append(person.get("/keys", 401))
    for page in pages:
        headers = page.answer.headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert "set-cookie" not in headers or page.status == 401
        policy = dict(p.split(" ", 1) for p in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["style-src"]
        (nonce,) = re.findall(r"'nonce-([\w-]{20,})'", policy["script-src"])
        nonces.add(nonce)
        assert set(re.findall(r'nonce="([^"]*)"', page.html)) == {nonce}
        assert not re.search(r"\son\w+=|\sstyle=|javascript:", page.html)
        assert not re.search(r'(src|href|action)="(https?:)?//', page.html)
    assert len(nonces) == len(pages)


def test_pages_need_a_session_that_is_accepted(person: Console) -> None:
    id = person.id_of(person.create())
    person.sign_in(None)
    for path in ["/keys", f"/keys/{id}", "/usage", "/usage.json", "/claim", "/keys/new"]:
        person.get(path, 401).sees("Sign in")
    person.client.cookies.set("__session", "forged")
    person.get("/keys", 401).sees("Your session has ended")
    person.post("/keys/new", {"name": "x"}, token="x", status=401).sees("nothing was changed")
    answer = person.client.get(f"{AT}/keys", headers={"cookie": "__session=a; __session=b"})
    assert answer.status_code == 401


def test_too_many_forms_are_refused_and_a_key_can_still_be_revoked() -> None:
    with on_starlette() as person:
        key = person.create()
        token = person.get("/keys/new").token
        for _ in range(59):
            person.post("/keys/new", {"name": ""}, token=token, status=400)
        page = person.post("/keys/new", {"name": ""}, token=token, status=429)
        page.sees("Too many requests")
        assert int(page.answer.headers["retry-after"]) >= 1
        person.post(f"/keys/{person.id_of(key)}/revoke", token=token, status=303)
        assert person.status_with(key) == 401


@pytest.mark.parametrize("place", ["flask", "litestar"])
def test_the_spent_budget_of_an_address_is_told_to_a_browser_on_a_page(place: str) -> None:
    few = Plan("anonymous", rpm=5, rph=100, rpd=100, concurrent=0)
    with PLACES[place](lambda origin: make_gate(origin, anonymous=few)) as person:
        style = re.findall(r'href="/settings(/static/[^"]+)"', person.get("/keys").html)[0]
        for _ in range(4):
            person.get("/keys")
        browser = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
        for _ in range(2):
            page = Page(person.client.get(f"{AT}/keys", headers=browser))
            page.sees("Too many requests", "Try again")
            assert page.status == 429
            assert int(page.answer.headers["retry-after"]) >= 1
            assert page.answer.headers["x-ratelimit-limit"] == "5"
            assert page.answer.headers["content-type"] == "text/html; charset=utf-8"
        program = person.client.get(f"{AT}/usage.json", headers={"accept": "*/*"})
        assert (program.status_code, program.json()["code"]) == (429, "RATE_LIMIT_EXCEEDED")
        assert person.client.get(AT + style).status_code == 200


@pytest.mark.parametrize("place", ["starlette", "flask"])
def test_a_key_is_revoked_at_an_address_whose_budget_others_have_spent_D24(place: str) -> None:
    few = Plan("anonymous", rpm=8, rph=100, rpd=100, concurrent=0)
    clock = HandClock()
    with PLACES[place](lambda origin: make_gate(origin, anonymous=few, clock=clock)) as person:
        key = person.create()
        id = person.id_of(key)
        token = person.get(f"/keys/{id}/revoke").token
        neighbour = httpx.Client(base_url=person.origin, trust_env=False)
        statuses = [neighbour.get(f"{AT}/").status_code for _ in range(9)]
        assert statuses[-1] == 429
        for cookie in (SESSIONS.issue(ADA)[:-3], "x"):
            forged = neighbour.get(f"{AT}/keys", headers={"cookie": f"__session={cookie}"})
            assert forged.status_code == 429
        neighbour.close()
        person.get("/", status=303)
        person.get("/keys").sees("a key")
        person.get(f"/keys/{id}/revoke")
        person.post(f"/keys/{id}/revoke", token=token, status=303)
        assert person.status_with(key) == 401


def test_a_person_spends_a_budget_of_their_own_and_can_still_revoke_a_key_G10() -> None:
    few = Plan("anonymous", rpm=6, rph=100, rpd=100, concurrent=0)
    clock = HandClock()
    with on_starlette(lambda origin: make_gate(origin, anonymous=few, clock=clock)) as person:
        key = person.create()
        id = person.id_of(key)
        token = person.get(f"/keys/{id}/revoke").token
        for _ in range(3):
            person.get("/keys")
        person.get("/keys", status=429)
        person.get("/none", status=429)
        person.sign_in(ADA._replace(organization="org_2"))  # Another user with the same id (W8).
        person.get("/keys")
        person.sign_in(ADA)
        person.get("/keys", status=429)
        person.post(f"/keys/{id}/revoke", token=token, status=303)
        assert run(person.gate.keys.get("org_1", id)).revoked_at is not None


def test_searches_are_charged_to_the_person_like_forms_G10() -> None:
    clock = HandClock()
    with on_starlette(lambda origin: make_gate(origin, clock=clock)) as person:
        key = person.create()
        token = person.get("/keys/new").token
        paths = ("/keys?q=a", "/keys?label=a%3Db", "/keys?state=active")
        for path in paths * 19:
            person.get(path)
        person.post("/keys", {"q": "a"}, token=token, status=303)
        for _ in range(2):
            person.post("/keys/new", {"name": ""}, token=token, status=400)
        for path in paths:
            person.get(path, status=429).sees("Too many requests")
        person.post("/keys/new", {"name": "b"}, token=token, status=429)
        person.get("/keys").sees("a key")
        person.post(f"/keys/{person.id_of(key)}/revoke", token=token, status=303)
        assert person.status_with(key) == 401


def test_an_odd_body_or_path_is_refused_with_a_page(person: Console) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded", "origin": person.origin}
    for body in (
        b"name=" + b"x" * 70_000,
        b"&".join(b"a=1" for _ in range(201)),
        b"name=%ff",
        b"\xff\xfe",
        b"name=%00&form_token=%0d%0a",
        b"form_token=a&form_token=b",
    ):
        answer = person.client.post(f"{AT}/keys/new", content=body, headers=headers)
        assert answer.status_code in {400, 403, 413}
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
    for path in ("keys/%2e%2e/keys", "keys/x", "keys/{id}", "static/%2e%2e/site.py"):
        assert person.client.get(f"{AT}/{path}").status_code in {400, 401, 404}
