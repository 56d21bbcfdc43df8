"""Operators search, explain, change plans and read the audit log; nobody else does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import quote

import pytest

from lockgate import Gate, Limit, run
from lockgate.core.ledger import LeasesOut
from lockgate.core.reservations import Reservation
from lockgate.core.usage_history import UsageHistory
from lockgate.sessions import Session
from lockgate.stores.answers import HistoryOwner, UnreadableState
from lockgate.testing import HandClock
from lockgate.web.request import RequestView

from .consoles import ADA, AT, PLACES, Console, make_gate, on_starlette
from .robots import make_gate_with_agents

MARKUP = "\"'><script>alert(1)</script>{{7*7}}<img src=x onerror=alert(1)>"
ROOT = Session(None, "root", "root@example.com")
FORMS: dict[str, dict[str, Any]] = {
    "/operator": {"text": "org_1"},
    "/operator/organization": {"id": "org_1", "plan": "creator"},
    "/operator/limit": {"id": "org_1", "limit": "rpm", "number": "99", "span": "12h"},
    "/operator/limit/end": {"id": "org_1", "limit": "rpm"},
    "/operator/revoke": {"id": "org_1", "key": "x"},
}

ONLY_POSTED = {"/operator/limit", "/operator/limit/end", "/operator/revoke"}


def operates(session: Session, request: RequestView) -> bool:
    return session.user == "root" and request.path.startswith("/")


@pytest.fixture(scope="module", params=["starlette", "flask"])
def console(request: pytest.FixtureRequest) -> Iterator[Console]:
    with PLACES[request.param](operator=operates) as made:
        yield made


def as_operator(person: Console, path: str, fields: dict[str, Any], status: int) -> Any:
    person.sign_in(ROOT)
    token = person.get("/operator").token
    return person.post(path, fields, token=token, status=status)


def test_an_operator_finds_a_key_by_its_text_prefix_and_id(console: Console) -> None:
    console.sign_in(ADA)
    key = console.create("hers")
    id = console.id_of(key)
    for text in (key, key[:15], f"{key[:15]}...", id):
        page = as_operator(console, "/operator", {"text": text}, 200)
        page.sees("hers", "org_1")
        assert key not in page.html
    as_operator(console, "/operator", {"text": "acme_live_zzzzz"}, 200).sees("No key begins")
    for start in ("acme_live_", "acme_live_...", "acme_"):
        page = as_operator(console, "/operator", {"text": start}, 200)
        page.sees("Every key of this service begins like this: enter more characters.")
        assert "No key begins" not in page.text
    whole = as_operator(console, "/operator", {"text": key}, 200)
    whole.sees("The whole text is this key's.")
    other = key[:-1] + ("a" if key[-1] != "a" else "b")
    page = as_operator(console, "/operator", {"text": other}, 200)
    page.sees("hers", "a later character differs")
    assert "a later character differs" not in whole.text
    console.get("/operator").sees("org_1", "free")
    as_operator(console, "/operator", {"text": "org_1"}, 200).sees("Organizations", "free")


def test_an_operator_revokes_a_key_that_a_search_found(console: Console) -> None:
    console.sign_in(Session("org_many", "ada"))
    leaked = console.create("leaked", labels="team=web")
    console.status_with(leaked)
    for number in range(30):
        run(console.gate.keys.create("org_many", f"later {number:02}", ["*"]))
    found = as_operator(console, "/operator", {"text": leaked[:15]}, 200)
    (link,) = re.findall(rf'href="{AT}(/operator/key[^"]+)"', found.html)
    page = console.get(unescape(link))
    page.sees("leaked", "ada", "127.0.0.1", "team=web", "It would be admitted", "Revoke key")
    assert leaked not in page.html and f"{AT}/keys/" not in page.html
    other = re.search(r'href="(\?id=org_many&amp;key=[^"]+by=day)', page.html)
    assert other, page.html
    console.get(f"/operator/key{unescape(other[1])}").sees("leaked")
    form = {"id": "org_many", "key": console.id_of(leaked)}
    sent = as_operator(console, "/operator/revoke", form, 303)
    after = console.get(sent.answer.headers["location"].removeprefix(AT))
    after.sees("The key was revoked", "leaked", "KEY_REVOKED")
    assert "Revoke key" not in after.text
    assert console.status_with(leaked) == 401


def test_an_operator_sees_that_a_full_limit_refuses_holds_where_requests_are_admitted(
    console: Console,
) -> None:
    limit = Limit("spent-tokens", "10/day")
    key = run(console.gate.keys.create("org_spent", "hers", ["*"])).key.id
    console.sign_in(ROOT)
    pages = "/operator/organization?id=org_spent", f"/operator/key?id=org_spent&key={key}"
    sentence = "Holds and charges of spent-tokens are refused until"
    for page in pages:
        assert sentence not in console.get(page).text
    run(console.gate.charge("org_spent", {limit: 10}))
    for page in pages:
        console.get(page).sees("It would be admitted.", sentence)


def test_an_operator_pages_through_the_keys_of_an_organization_newest_first(
    console: Console,
) -> None:
    for number in range(30):
        run(console.gate.keys.create("org_pages", f"key {number:02}", ["*"]))
    keys = run(console.gate.keys.list("org_pages", limit=100)).keys
    console.sign_in(ROOT)
    shown: list[str] = []
    path = "/operator/organization?id=org_pages"
    for _ in range(3):
        page = console.get(path)
        shown += re.findall(r"<b>(key \d\d)</b>", page.html)
        following = re.findall(rf'href="{AT}(/operator/organization[^"]+keys=[^"]+)"', page.html)
        path = unescape(following[0]) if following else ""
    assert shown == [key.name for key in keys]
    assert len(shown) == 30
    assert not path


def test_an_operator_finds_and_revokes_no_key_under_another_organization(
    console: Console,
) -> None:
    console.sign_in(ADA)
    key = console.create("kept")
    id = console.id_of(key)
    as_operator(console, "/operator/revoke", {"id": "org_2", "key": id}, 404)
    assert console.status_with(key) == 200
    console.sign_in(ROOT)
    for query in (f"id=org_2&key={id}", "id=org_1&key=x", "id=org_1", ""):
        console.get(f"/operator/key?{query}", 404)


def test_an_operator_changes_a_plan_and_reads_who_did(console: Console) -> None:
    form = {"id": "org_7", "plan": "starter", "rpm": "77", "rpd": "none", "new": "org_7"}
    as_operator(console, "/operator/organization", form, 303)
    limits = run(console.gate.organizations.limits("org_7"))
    assert (limits.assigned, dict(limits.own)) == ("starter", {"rpm": 77, "rpd": None})
    page = console.get("/operator/organization?id=org_7&done=plan")
    page.sees("The plan was changed", "0 of 77", "limits changed for good", "operator root")
    page.sees(
        "Plan: starter", "Requests a minute: the plan's → 77", "Requests a day: the plan's → none"
    )
    page.sees("It would be admitted")
    for wrong in ({"rpm": "many"}, {"plan": "gold"}, {"plan": "enterprise", "rpm": "1"}):
        as_operator(console, "/operator/organization", {**form, **wrong}, 400)
    assert run(console.gate.organizations.limits("org_7")).own["rpm"] == 77


def test_the_list_of_organizations_tells_no_use_where_no_key_is_live(console: Console) -> None:
    console.sign_in(Session("org_ended", "ada"))
    key = console.create("ended")
    console.status_with(key)
    run(console.gate.flush())
    row = as_operator(console, "/operator", {"text": "org_ended"}, 200)
    row.sees("just now", "Last use of live keys")
    run(console.gate.keys.revoke("org_ended", console.id_of(key)))
    row = as_operator(console, "/operator", {"text": "org_ended"}, 200)
    assert "Never" not in row.text and "\N{EN DASH}" in row.text
    assert "No key is live: its keys tell when they were used." in row.html


def test_an_operator_finds_organizations_by_a_part_of_their_ids(console: Console) -> None:
    for name in ("Northwind-eu", "northwind-us", "southwind"):
        run(console.gate.organizations.place(name, "creator"))
    page = as_operator(console, "/operator", {"text": "NORTH"}, 200)
    page.sees("Northwind-eu", "northwind-us", "creator")
    assert "southwind" not in page.text and "No key begins" not in page.text
    page = as_operator(console, "/operator", {"text": "northwind-us"}, 200)
    assert "Northwind-eu" not in page.text
    as_operator(console, "/operator", {"text": "eastwind"}, 200).sees("No key begins like this")


def test_an_operator_sees_why_requests_are_refused_and_revokes(console: Console) -> None:
    console.sign_in(Session("org_8", "ada"))
    key = console.create("leaked")
    for _ in range(11):
        console.status_with(key)
    console.sign_in(ROOT)
    page = console.get("/operator/organization?id=org_8")
    page.sees("RATE_LIMIT_EXCEEDED", "10 of 10 units of the last minute are used", "leaked")
    form = {"id": "org_8", "key": console.id_of(key)}
    as_operator(console, "/operator/revoke", form, 303)
    assert console.status_with(key) == 401
    page = console.get("/operator/organization?id=org_8")
    page.sees("key revoked", "operator root")
    log = " ".join(page.text.partition("Audit log")[2].split())
    assert f"key revoked leaked {form['key']}" in log


def test_an_operator_sees_the_units_that_are_out_on_leases(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    console.sign_in(ROOT)
    assert "leased" not in console.get("/operator/organization?id=org_8").text
    until = 1_800_000_001_000_000

    leases = Reservation("0" * 16, 700, until, 1), Reservation("1" * 16, 800, until - 1, 1)
    monkeypatch.setattr(LeasesOut, "apply", lambda _, ledger, now: (leases, ledger))
    page = console.get("/operator/organization?id=org_8")
    page.sees("1,500 of the requests left are leased to processes until 08:00:01 UTC.")


def test_no_other_person_gets_to_an_operators_page(console: Console) -> None:
    console.sign_in(ADA)
    before = run(console.gate.organizations.limits("org_1"))
    assert "Operations" not in console.get("/keys").text
    for path, fields in FORMS.items():
        console.get(path, 405 if path in ONLY_POSTED else 404)
        console.post(path, fields, status=404)
    console.sign_in(None)
    console.get("/operator/key?id=org_1&key=x", 401)
    for path in FORMS:
        if path not in ONLY_POSTED:
            console.get(path, 401)
    assert run(console.gate.organizations.limits("org_1")) == before


def test_an_operators_form_needs_its_token_and_origin(console: Console) -> None:
    console.sign_in(ROOT)
    token = console.get("/operator").token
    for path, fields in FORMS.items():
        console.post(path, fields, token="", status=403)
        evil = {"origin": "https://evil.example"}
        console.post(path, fields, token=token, status=403, headers=evil)


def test_markup_of_customers_is_shown_to_operators_as_text(console: Console) -> None:
    id = "<img src=x onerror=alert(1)>"
    console.sign_in(Session(id, MARKUP, "mallory@example.com"))
    key = console.id_of(console.create(MARKUP[:100], labels=f"team={MARKUP}"))
    console.sign_in(ROOT)
    pages = [console.get("/operator"), console.get(f"/operator/organization?id={quote(id)}")]
    pages.append(as_operator(console, "/operator", {"text": key}, 200))
    pages.append(as_operator(console, "/operator", {"text": MARKUP}, 200))
    pages.append(as_operator(console, "/operator", {"text": id}, 200))
    wrong = {"id": id, "plan": MARKUP, "rpm": MARKUP}
    pages.append(as_operator(console, "/operator/organization", wrong, 400))
    for page in pages:
        assert "<script>alert" not in page.html and "<img src=x" not in page.html
        assert page.html.count("<script") == 1
        assert page.answer.headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in page.answer.headers["content-security-policy"]
        assert page.answer.headers["cache-control"] == "no-store"
    pages[1].sees("<script>alert(1)</script>")


def test_an_organization_of_which_nothing_is_known_is_told(console: Console) -> None:
    console.sign_in(ROOT)
    unknown = "It has no plan, key, account or usage so far"
    console.get("/operator/organization?id=org_mistyped").sees(unknown)
    run(console.gate.organizations.place("org_known", "free"))
    assert unknown not in console.get("/operator/organization?id=org_known").text
    page = as_operator(console, "/operator", {"text": "org_mistyped"}, 200)
    assert "Open this organization" not in page.text


def test_only_true_makes_an_operator_also_from_an_awaited_function() -> None:
    async def slowly(session: Session, request: RequestView) -> bool:
        return operates(session, request)

    answers: list[Any] = [1, "yes", None, 0]
    with on_starlette(operator=lambda *_: answers[-1]) as person:
        for _ in range(len(answers) - 1):
            person.get("/operator", 404)
            answers.pop()
    cases: list[tuple[dict[str, Any], int]] = [({}, 404), ({"operator": slowly}, 200)]
    for options, status in cases:
        with on_starlette(**options) as person:
            person.sign_in(ROOT)
            person.get("/operator", status)
            assert person.client.get(f"{AT}/operator/organization?id=").status_code == 404


def refused(person: Console, organization: str, times: int) -> None:
    """Have requests of an organization refused, for their scope."""
    key = run(person.gate.keys.create(organization, "lacking", ["jobs:read"])).text
    for _ in range(times):
        assert person.status_with(key) == 403


def shown(page: Any) -> list[str]:
    """The organizations of a list, in its order."""
    return re.findall(r'scope="row"><a href="[^"]+">([^<]+)</a>', page.html)


def numbers(page: Any) -> dict[str, str]:
    """The refusals of the organizations of a list, as it shows them."""
    return dict(
        re.findall(r'">(org_\w+)</a>.*?data-name="Refused in 24.h">([^<]+)<', unescape(page.html))
    )


def test_operators_see_the_refusals_of_a_day_and_the_most_refused_first() -> None:
    clock = HandClock()
    with on_starlette(lambda origin: make_gate(origin, clock=clock), operator=operates) as person:
        for id, times in (("org_few", 1), ("org_none", 0), ("org_many", 3)):
            refused(person, id, times)
        person.sign_in(ROOT)
        page = person.get("/operator")
        page.sees("Refused in 24", "Most refused")
        assert {*shown(page)} == {"org_few", "org_none", "org_many"}
        assert numbers(page) == {"org_few": "1", "org_none": "0", "org_many": "3"}
        page = person.get("/operator?sort=refused")
        assert shown(page) == ["org_many", "org_few"]
        assert page.html.count('aria-sort="descending"') == 1
        page.sees("Those of 3 organizations whose requests were refused")
        for other in ("", "id", "refused%22%3E%3Cscript%3E", "refused&sort=refused"):
            page = person.get(f"/operator?sort={other}")
            assert len(shown(page)) == 3 and "aria-sort" not in page.html
        found = as_operator(person, "/operator", {"text": "org_many"}, 200)
        assert numbers(found) == {"org_many": "3"}
        run(person.gate.flush())
        clock.move(25 * 3600)
        person.get("/operator?sort=refused").sees("No request of 3 organizations was refused")
        assert {*numbers(person.get("/operator")).values()} == {"0"}


def test_a_gate_that_keeps_no_usage_has_no_refusals_in_the_list() -> None:
    def make(origin: str) -> Gate:
        return make_gate(origin, usage_history=None)

    with on_starlette(make, operator=operates) as person:
        refused(person, "org_1", 1)
        person.sign_in(ROOT)
        for path in ("/operator", "/operator?sort=refused"):
            page = person.get(path)
            assert "Refused" not in page.text and "refused" not in page.text
            assert shown(page) == ["org_1"]


@pytest.mark.parametrize(("query", "most"), [("", 50), ("?sort=refused", 200)])
def test_a_list_of_organizations_reads_a_bounded_number_of_histories_G10(
    monkeypatch: pytest.MonkeyPatch, query: str, most: int
) -> None:
    read: list[str] = []
    with on_starlette(operator=operates) as person:
        for number in range(210):
            run(person.gate.organizations.place(f"org_{number:03}", "free"))
        history = person.gate.store.history

        async def counted(owner: HistoryOwner) -> UsageHistory:
            read.append(owner.organization)
            return await history(owner)

        monkeypatch.setattr(person.gate.store, "history", counted)
        person.sign_in(ROOT)
        page = person.get(f"/operator{query}")
        assert 0 < len(read) <= most
        (following,) = re.findall(r'rel="next" href="/settings([^"]+)"', page.html)
        assert ("sort=refused" in following) is bool(query)
        person.get(unescape(following))
        assert len({*read}) == len(read) > most


def test_an_unreadable_history_leaves_the_list_of_organizations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def unreadable(owner: HistoryOwner) -> UsageHistory:
        raise UnreadableState(owner.organization, "its history")

    with on_starlette(operator=operates) as person:
        run(person.gate.keys.create("org_1", "a key"))
        monkeypatch.setattr(person.gate.store, "history", unreadable)
        person.sign_in(ROOT)
        assert numbers(person.get("/operator")) == {"org_1": "\N{EN DASH}"}


TABS = re.compile(r'<a href="/settings/(\w+)"(?: aria-current="page")?>')


def tabs(page: Any) -> list[str]:
    (nav,) = re.findall(r'<nav aria-label="Sections">.*?</nav>', page.html, re.DOTALL)
    return TABS.findall(nav)


@pytest.mark.parametrize("make", [make_gate, make_gate_with_agents])
def test_an_operator_without_an_organization_has_no_tabs_of_one(make: Any) -> None:
    with on_starlette(make, operator=operates) as person:
        person.sign_in(ROOT)
        for path in ("/operator", "/operator/organization?id=org_1"):
            assert tabs(person.get(path)) == ["operator"]
        assert tabs(person.get("/usage", 403)) == ["operator"]
        first = person.get("/keys", 303)
        assert first.answer.headers["location"] == f"{AT}/operator"
        person.sign_in(Session("org_1", "root", "root@example.com"))
        assert tabs(person.get("/operator"))[:2] == ["keys", "usage"]
        person.sign_in(Session(None, "ada", "ada@example.com"))
        assert "operator" not in tabs(person.get("/keys", 403))
        assert "keys" not in tabs(person.get("/keys", 403))
