"""No page repeats a credential that a person pasted anywhere (K11)."""

from __future__ import annotations

import base64
import logging
import re
from binascii import Error
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from html import unescape
from itertools import cycle, islice
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from lockgate import Event, Gate, Plan, Registration, UsageHistory
from lockgate.core.plans import LIMITS
from lockgate.dashboard import dashboard
from lockgate.dashboard.application import PAGES
from lockgate.dashboard.forms import FormTokens
from lockgate.options import WebOptions
from lockgate.sessions import Session, SignedCookie
from lockgate.starlette import protect

BASE = "https://console.example.com"
SESSIONS = SignedCookie(["the session secret of the dashboard's tests"])
ADA, ROOT = Session("org_1", "ada", "ada@example.com"), Session("org_9", "root")
NAMES = (
    *("q", "label", "state", "cursor", "id", "key", "keys", "done", "by", "new", "plan", "limit"),
    *("number", "span", "until", "zone", "replaces", "name", "expires", "days", "access"),
    *("scopes", "labels", "addresses", "organization", "successors", "overlap", "keep_token"),
    *("text", "dashboard_token", "form_token", "another", *LIMITS),
)
"""The fields of all forms and queries, and one that none has."""
IN_QUERIES = ("q", "label", "state", "cursor", "id", "key", "keys", "done", "by", "another")
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhZGEifQ.3v7Qm1Zc9Kx2Lw8Rt5Yp0Nd4Hf6Jg_Sa-Bo"


class Console:
    """A dashboard with operators, and everything that it says."""

    def __init__(self) -> None:
        self.told: list[Event] = []
        self.gate = Gate(
            brand="acme",
            peppers=[b"the pepper of the dashboard's tests"],
            sessions=SESSIONS,
            web_options=WebOptions(
                public_url=BASE,
                anonymous=Plan("anonymous", None, None, None, None),
            ),
            features=[
                UsageHistory(),
                Registration(session_secrets=["the secret of the agents of these tests"]),
            ],
            observer=self.told.append,
        )
        pages = dashboard(
            self.gate,
            name="Acme",
            sign_in="/login?next={next}",
            operator=lambda session, request: (session.user or "").startswith("root"),
        )
        self.tokens = FormTokens(self.gate.format.peppers)
        self.app = protect(Starlette(routes=[Mount("/settings", pages)]), self.gate)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        transport = httpx.ASGITransport(app=self.app, client=("192.0.2.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
            yield client


def headers_of(session: Session | None) -> dict[str, str]:
    cookie = {} if session is None else {"cookie": f"__session={SESSIONS.issue(session)}"}
    return {"origin": BASE, **cookie}


def said(answer: httpx.Response) -> str:
    """The body, the headers, and the words of the headers decoded."""
    headers = "".join(f"{name}: {value}\n" for name, value in answer.headers.multi_items())
    decoded: list[str] = []
    for word in re.findall(r"[\w-]{8,}", headers):
        try:
            decoded.append(
                base64.urlsafe_b64decode(word + "=" * (-len(word) % 4)).decode("latin-1")
            )
        except Error:
            continue
    return "\n".join([answer.text, headers, *decoded])


@pytest.mark.parametrize("session", [None, ADA, ROOT], ids=["stranger", "customer", "operator"])
async def test_no_page_repeats_a_credential_that_was_pasted_anywhere_K11(
    caplog: pytest.LogCaptureFixture, session: Session | None
) -> None:
    caplog.set_level(logging.DEBUG, "lockgate")
    console = Console()
    key = (await console.gate.keys.create("org_1", "ci")).text
    pasted = cycle(
        [
            key,
            key.replace("acme", "other"),
            key.replace("_live_", "_dashboard_"),
            SESSIONS.issue(Session("org_1", "eve")),
            JWT,
        ]
    )
    secrets = {key[20:], *(text.rpartition(".")[2] for text in islice(pasted, 3, 5))}
    leaks: list[object] = []
    async with console.client() as client:
        for number, (method, path, fields) in enumerate(requests(pasted)):
            person = session and session._replace(user=f"{session.user}{number}")
            form = fields.get("data")
            if form is not None and person is not None and "form_token" not in form:
                fields["data"] = {**form, "form_token": console.tokens.write(person)}
            headers = {**headers_of(person), **fields.pop("headers", {})}
            client.cookies.clear()
            answer = await client.request(method, path, headers=headers, **fields)
            if any(secret in said(answer) for secret in secrets):
                leaks.append((method, path, form, answer.status_code))
            assert answer.status_code < 500
    logged = [one.getMessage() for one in caplog.records if one.name.startswith("lockgate")]
    told = repr(console.told) + repr([dict(event.fields) for event in console.told]) + repr(logged)
    changes = repr(await console.gate.changes.list("org_1", limit=1000))
    assert leaks == []
    assert not [secret for secret in secrets if secret in told + changes]
    assert "key_created" in told


@pytest.mark.parametrize("kind", ["live", "dashboard"])
async def test_the_fields_for_a_whole_key_still_find_it_K11(kind: str) -> None:
    console = Console()
    created = await console.gate.keys.create("org_1", "the key that was found")
    async with console.client() as client:
        headers = headers_of(ADA)
        query = {"q": created.text.replace("_live_", f"_{kind}_")}
        page = await client.get(f"/settings/keys?{urlencode(query)}", headers=headers)
        assert ("the key that was found" in page.text) is (kind == "live")
        form = {"form_token": console.tokens.write(ADA), **query}
        answer = await client.post("/settings/keys", headers=headers, data=form)
        assert answer.status_code == 303 and created.text[20:] not in answer.headers["location"]
        if kind == "live":
            form = {"form_token": console.tokens.write(ROOT), "text": created.text}
            page = await client.post("/settings/operator", headers=headers_of(ROOT), data=form)
            assert "the key that was found" in page.text


async def test_no_organization_is_created_under_the_text_of_a_key_K11() -> None:
    console = Console()
    created = await console.gate.keys.create("org_1", "ci")
    form = {"form_token": console.tokens.write(ROOT), "plan": "creator"}
    form |= {"id": created.text, "new": created.text}
    async with console.client() as client:
        path = "/settings/operator/organization"
        answer = await client.post(path, headers=headers_of(ROOT), data=form)
    assert answer.status_code == 400
    assert "does not belong here" in unescape(answer.text)
    assert not await console.gate.organizations.is_known(created.text)


def requests(pasted: Iterator[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each page with a credential in its path, its query, its form or its headers."""
    id = "7e8b1ad6-0f0e-4c5b-9d0e-0c1a1f0f4f1e"
    for place in (*PAGES, "/"):
        path = f"/settings{place.replace('{id}', id)}"
        for method in ("GET", "POST"):
            yield method, f"{path}/{quote(next(pasted), safe='')}", {}
            yield method, f"{path}/?next={quote(next(pasted), safe='')}", {}
            yield method, f"{path}?{quote(next(pasted), safe='')}", {}
            for header in ("referer", "accept-language", "x-forwarded-for", "authorization"):
                yield method, path, {"headers": {header: next(pasted)}}
        yield next(pasted), path, {}
        yield "POST", path, {"content": (text := next(pasted)), "headers": {"content-type": text}}
        cookie = f"__session={next(pasted)}; lockgate_workspace={next(pasted)}"
        yield "GET", path, {"headers": {"cookie": cookie}}
        for name in IN_QUERIES:
            yield "GET", f"{path}?{name}={quote(next(pasted), safe='')}", {}
            spelled = quote(next(pasted), safe="").replace("_", "%5F").replace(".", "%2E")
            yield "GET", f"{path}/?{name}=team%3D{spelled}", {}
        for name in NAMES:
            yield "POST", path, {"data": {name: next(pasted)}}
        text = next(pasted)
        yield "POST", path, {"data": {"labels": f"team={text}", "name": "ci", "access": "full"}}
        yield "POST", path, {"data": {"id": text, "new": text, "plan": "creator"}}
        yield "POST", path, {"data": {text: "x"}}
