"""A person creates, edits, rotates and revokes keys on the pages, on each framework."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest

from lockgate import Actor, Catalogue, Plan, PlanBook, acting, run
from lockgate.core.timestamps import DAY
from lockgate.dashboard import key_pages
from lockgate.dashboard.key_rows import state_of
from lockgate.options import KeyOptions
from lockgate.services.keys import keys as keys_of_gate
from lockgate.sessions import Session
from lockgate.testing import HandClock

from .consoles import ADA, PLACES, Console, Page, make_gate, on_starlette
from .states import Clock


@pytest.fixture(scope="module", params=["starlette", "flask"])
def console(request: pytest.FixtureRequest) -> Iterator[Console]:
    """Awaited and in threads: what a page shows is decided above the framework."""
    with PLACES[request.param](name="Acme Images", example="https://api.acme.example/v1") as made:
        yield made


@pytest.fixture
def person(console: Console) -> Console:
    """A person of an organization without keys."""
    _number[0] += 1
    console.sign_in(Session(f"org_{_number[0]}", "ada", "ada@example.com"))
    return console


_number = [100]
ROW = re.compile(r'"rowheader" scope="row"><a [^>]+>([^<]+)<')
FULL = {"name": "a key", "access": "full", "expires": ""}


def following(page: Page) -> str:
    """The path of the next page."""
    found = re.search(r'rel="next" href="/settings([^"]+)"', page.html)
    assert found is not None
    return found[1].replace("&amp;", "&")


@pytest.mark.parametrize("place", PLACES)
def test_the_pages_work_on_each_framework(place: str) -> None:
    """Also where the catalogue has none of lockgate's scopes: its operations need a session."""

    def make(origin: str) -> Any:
        return make_gate(origin, catalogue=Catalogue.of(["images:read", "models:read"]))

    with PLACES[place](make) as person:
        answer = person.client.get("/settings", follow_redirects=True)
        assert (answer.status_code, answer.url.path) == (200, "/settings/keys")
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["x-frame-options"] == "DENY"
        assert person.client.head("/settings/keys").text == ""
        key = person.create("images", access="some", scopes=["images:read", "models:read"])
        id = person.id_of(key)
        assert person.status_with(key) == 200
        person.get("/keys?q=im%C3%A4ges&label=a%3Db").sees("There are none.")
        person.get(f"/keys/{id}").sees("images:read")
        evil = {"origin": "https://evil.example"}
        person.post(f"/keys/{id}/revoke", status=403, headers=evil)
        person.post("/keys/new", {"name": "x" * 70_000}, status=413)
        form = {"name": "Büro", "access": "some", "scopes": "models:read", "expires": "keep"}
        person.post(f"/keys/{id}/edit", form, status=303)
        new = person.post(f"/keys/{id}/rotate", {"overlap": "1"}, status=201).key
        assert person.status_with(key) == person.status_with(new) == 200
        person.post(f"/keys/{id}/revoke", {"successors": "yes"}, status=303)
        assert person.status_with(key) == person.status_with(new) == 401
        assert person.client.get("/settings/usage.json").status_code == 200
        names = [one["name"] for one in person.client.get("/api/v1/api-keys").json()["data"]]
        assert names == ["Büro", "Büro"]
        third = person.create("third", access="some", scopes="models:read")
        other = {"authorization": f"Bearer {third}"}
        person.sign_in(None)
        person.get("/keys", 401).sees("Sign in")
        refused = person.client.get("/api/v1/api-keys", headers=other)
        assert refused.json()["code"] == "INSUFFICIENT_SCOPE"
        assert person.client.get("/settings/keys", headers=other).status_code == 401
        assert person.client.get("/models").status_code == 401
        assert person.client.get("/settingsx").status_code == 401


def test_an_organization_without_keys_is_led_to_create_one(person: Console) -> None:
    page = person.get("/keys")
    page.sees("No API keys yet", "Create new key", "Acme Images")
    assert person.client.get("/settings/").headers["location"] == "/settings/keys"


def test_a_created_key_works_is_shown_once_and_is_listed(person: Console) -> None:
    form = {"name": "build server", "access": "some", "scopes": ["models:read", "jobs:read"]}
    page = person.post("/keys/new", {**form, "expires": "30", "labels": "team=infra"}, status=201)
    page.sees("build server", "It is not shown again", "List models only", "jobs:read")
    assert re.search(r"Expires</dt><dd><time datetime=", page.html)
    curl = "curl https://api.acme.example/v1 \\\n  -H 'Authorization: Bearer"
    assert f"{curl} {page.key}'" in page.html
    assert person.status_with(page.key) == 200
    listed = person.get("/keys")
    listed.sees("build server", f"{page.key[:15]}…", "models:read", "jobs:read", "by you", "Active")
    listed.sees("team=infra")
    shown = person.get(f"/keys/{person.id_of(page.key)}")
    shown.sees("build server", "List models only", "Any address")
    for later in (listed, shown):
        assert page.key not in later.html
    key = run(person.gate.keys.get(f"org_{_number[0]}", person.id_of(page.key)))
    assert key.details is not None and key.details.created_by == "user:ada"
    assert key.expires_at == pytest.approx(key.created_at + 30 * DAY, abs=DAY / 100)


def test_a_wrong_form_is_shown_again_with_its_problems(person: Console) -> None:
    form = {"name": " ", "access": "some", "expires": "custom", "days": "soon", "labels": "team"}
    page = person.post("/keys/new", form, status=400)
    page.sees("The key was not saved", "Write each label once, as name=value.")
    page = person.post("/keys/new", {**form, "labels": "a=b", "addresses": "no"}, status=400)
    page.sees("Use 1 to 100 characters.", "Choose at least one, at most 50.")
    page.sees("Use a number of days greater than 0 and at most")
    assert "null" not in page.text
    assert page.html.count('aria-invalid="true"') == 4
    assert "a=b</textarea>" in page.html
    person.get("/keys").sees("No API keys yet")


def test_a_key_is_edited(person: Console) -> None:
    id = person.id_of(person.create("old name", labels="env=test"))
    page = person.get(f"/keys/{id}/edit")
    assert 'value="old name"' in page.html and "env=test</textarea>" in page.html
    form = {"name": "new name", "access": "some", "scopes": "jobs:read", "expires": "keep"}
    person.post(f"/keys/{id}/edit", {**form, "addresses": "203.0.113.0/24"}, status=303)
    page = person.get(f"/keys/{id}?done=updated")
    page.sees("The key was changed.", "new name", "203.0.113.0/24", "jobs:read", "Never")
    assert "env=test" not in page.text
    wrong = person.post(f"/keys/{id}/edit", {**form, "name": ""}, status=400)
    wrong.sees("Use 1 to 100 characters.")


def test_a_rotated_key_works_beside_its_successor(person: Console) -> None:
    old = person.create("rotated")
    id = person.id_of(old)
    asked = person.get(f"/keys/{id}/rotate")
    asked.sees("The new key does not expire.")
    assert "1 days" not in asked.text
    page = person.post(f"/keys/{id}/rotate", {"overlap": "7"}, status=201)
    page.sees("The old key works until")
    assert re.search(r'<p data-until="[0-9TZ:-]+">The old key works until', page.html)
    assert person.status_with(old) == person.status_with(page.key) == 200
    shown = person.get(f"/keys/{id}")
    shown.sees("Being replaced", "the new key")
    new = person.get(f"/keys/{person.id_of(page.key)}")
    new.sees("Replaces", f"{old[:15]}…")
    assert f'href="/settings/keys/{id}">rotated<' in new.html
    assert "Replaces" not in shown.text
    person.post(f"/keys/{id}/rotate", {"overlap": "7"}, status=409).sees("was rotated before")
    person.post(f"/keys/{id}/revoke", {"successors": "yes"}, status=303)
    assert person.status_with(page.key) == 401


def test_the_expiry_of_the_new_key_is_told_before_and_after_a_rotation(person: Console) -> None:
    id = person.id_of(person.create("rotated", expires="30"))
    asked = person.get(f"/keys/{id}/rotate")
    told = re.search(r'data-until="[^"]+">The new key expires at (\S+) ', asked.html)
    page = person.post(f"/keys/{id}/rotate", {"overlap": "7"}, status=201)
    shown = re.search(r"Expires</dt><dd><time [^>]+>(\S+)", page.html)
    assert told and shown and told[1] == shown[1]


def test_a_form_that_is_sent_twice_creates_one_key(person: Console) -> None:
    token = person.get("/keys/new").token
    form = {"name": "twice", "access": "some", "scopes": ["jobs:read", "jobs:write"]}
    first = person.post("/keys/new", form, token=token, status=201)
    again = person.post("/keys/new", form, token=token, status=409)
    again.sees("This key was created already: twice", "rotate the key", f"{first.key[:15]}…")
    id = person.id_of(first.key)
    assert f'href="/settings/keys/{id}/rotate"' in again.html and first.key not in again.html
    other = person.post("/keys/new", {**form, "name": "thrice"}, token=token, status=201)
    fresh = person.post("/keys/new", form, status=201)
    assert len({first.key, other.key, fresh.key}) == 3
    assert len({key[:15] for key in (first.key, other.key, fresh.key)}) == 3
    person.post(f"/keys/{id}/revoke", status=303)
    person.post("/keys/new", form, token=token, status=409).sees("created already")
    keys = run(person.gate.keys.list(f"org_{_number[0]}")).keys
    assert sorted(key.name for key in keys) == ["thrice", "twice", "twice"]


def test_a_form_that_is_sent_twice_at_the_same_time_creates_one_key(person: Console) -> None:
    token = person.get("/keys/new").token
    data = {"form_token": token, "name": "twice", "access": "full", "expires": ""}
    headers = {"origin": person.origin}

    def send(_: int) -> int:
        return person.client.post("/settings/keys/new", data=data, headers=headers).status_code

    with ThreadPoolExecutor(6) as threads:
        assert sorted(threads.map(send, range(6))) == [201, *[409] * 5]
    assert len(run(person.gate.keys.list(f"org_{_number[0]}")).keys) == 1


def test_the_key_limit_of_the_organization_is_told() -> None:
    assert KeyOptions().cap == 1_000, "D8"
    with on_starlette(lambda origin: make_gate(origin, key_options=KeyOptions(cap=1))) as person:
        token = person.get("/keys/new").token
        person.post("/keys/new", FULL, token=token, status=201)
        person.post("/keys/new", FULL, token=token, status=409).sees("created already: a key")
        page = person.post("/keys/new", {**FULL, "name": "one more"}, status=409)
        page.sees("has 1 live API keys, the most it may")
        assert 'value="one more"' in page.html


def test_a_rotation_that_is_sent_twice_leads_to_the_one_new_key(person: Console) -> None:
    id = ""
    for overlap in ("7", "0"):
        id = person.id_of(person.create("rotated"))
        token = person.get(f"/keys/{id}/rotate").token
        made = person.post(f"/keys/{id}/rotate", {"overlap": overlap}, token=token, status=201)
        again = person.post(f"/keys/{id}/rotate", {"overlap": overlap}, token=token, status=409)
        again.sees("This key was rotated before", "Show the new key")
        assert f'href="/settings/keys/{person.id_of(made.key)}"' in again.html
    shown = person.get(f"/keys/{id}")
    shown.sees("Revoked", "by you")


def test_a_key_expires_soon_in_the_last_tenth_of_its_life_or_its_last_week() -> None:
    clock = Clock()
    with on_starlette(lambda origin: make_gate(origin, clock=clock)) as person:
        ids = {days: person.id_of(person.create(expires=days)) for days in ("7", "30", "365")}
        created = clock()

        def states(day: float) -> list[str]:
            clock.set = created + int(day * DAY)
            keys = [run(person.gate.keys.get("org_1", id)) for id in ids.values()]
            return [state_of(key, clock.set) for key in keys]

        assert states(0) == states(6) == ["active"] * 3
        assert states(6.5) == ["soon", "active", "active"]
        assert states(26.5)[1] == "active" and states(27.5)[1] == "soon"
        assert states(357.5)[2] == "active" and states(358.5)[2] == "soon"


def test_a_chart_without_requests_tells_where_the_last_one_is() -> None:
    clock = Clock()
    with on_starlette(lambda origin: make_gate(origin, clock=clock)) as person:
        key = person.create("quiet")
        assert person.status_with(key) == 200
        run(person.gate.flush())
        person.sign_in(Session("org_1", "ada"))
        id = person.id_of(key)
        clock.set = clock() + 3 * DAY
        page = person.get(f"/keys/{id}?by=minute")
        page.sees("No requests in this time. The key was last used 3 d ago.")
        assert 'href="?by=hour#history">Last 7 days</a></p>' in page.html
        clock.set += 30 * DAY
        page = person.get(f"/keys/{id}?by=hour")
        page.sees("last used 33 d ago.")
        assert 'href="?by=day#history">Last 90 days</a></p>' in page.html
        assert "No requests" not in person.get(f"/keys/{id}?by=day").text


def test_customers_are_told_who_revoked_a_key_and_no_operators_name() -> None:
    def operates(session: Session, _: object) -> bool:
        return session.user == "olga"

    with on_starlette(make_gate, operator=operates) as person:
        ids = [person.id_of(person.create(f"key {number}")) for number in range(6)]
        person.sign_in(Session("org_1", "olga", "olga@example.com"))
        form = {"id": "org_1", "key": ids[0]}
        person.post("/operator/revoke", form, status=303)
        person.post(f"/keys/{ids[1]}/revoke", status=303)
        for id, actor in zip(
            ids[2:],
            (
                Actor("user", "grace"),
                Actor("operator", "hank"),
                Actor("host"),
                Actor("scanner", "x"),
            ),
            strict=True,
        ):
            with acting(actor):
                run(person.gate.keys.revoke("org_1", id))
        person.get(f"/operator/key?id=org_1&key={ids[0]}").sees("by operator olga")
        person.sign_in(ADA)
        told = [" ".join(person.get(f"/keys/{id}").text.split()) for id in ids]
        operator = "UTC by the service's operator"
        leak = "UTC by a report that the key was leaked"
        wanted = [operator, operator, "UTC by grace", operator, "UTC by the service", leak]
        for text, by in zip(told, wanted, strict=True):
            assert by in text.partition("Revoked 20")[2], text
            assert "olga" not in text and "hank" not in text and "127.0.0.1" not in text


def test_a_number_of_days_that_can_be_read_in_two_ways_is_refused(person: Console) -> None:
    form = {**FULL, "expires": "custom"}
    for days in ("1,000", "1,5", "1e2", "+5", "\N{ARABIC-INDIC DIGIT THREE}", "nan"):
        person.post("/keys/new", {**form, "days": days}, status=400)
    person.get("/keys").sees("No API keys yet")
    person.post("/keys/new", {**form, "days": "1.5"}, status=201)


def test_a_key_is_revoked_behind_a_page_that_says_what_stops(person: Console) -> None:
    key = person.create("doomed")
    id = person.id_of(key)
    person.get(f"/keys/{id}/revoke").sees("never used", "doomed")
    for place in (f"/keys/{id}", "/keys"):
        assert "was revoked" not in person.get(f"{place}?done=revoked").text, "it is not"
    assert person.status_with(key) == 200
    run(person.gate.flush())
    page = person.get(f"/keys/{id}/revoke")
    page.sees("It was last used just now from 127.0.0.1", "Requests counted in the last 7 days: 1.")
    assert person.status_with(key) == 200, "a GET revokes nothing"
    person.post(f"/keys/{id}/revoke", status=303)
    assert person.status_with(key) == 401
    person.get(f"/keys/{id}?done=revoked").sees("Revoked", "The key was revoked.")
    person.get("/keys").sees("doomed", "Revoked")
    person.get(f"/keys/{id}?done=revoked").sees("by you")
    form = {"name": "doomed", "access": "full", "expires": "keep", "overlap": "7"}
    for page in (
        *(person.get(f"/keys/{id}/{path}", 409) for path in ("edit", "rotate")),
        *(person.post(f"/keys/{id}/{path}", form, status=409) for path in ("edit", "rotate")),
    ):
        page.sees("This key has ended", "Show the key")
        assert f'href="/settings/keys/{id}"' in page.html


def test_a_new_key_asks_for_scopes_and_suggests_an_expiry(person: Console) -> None:
    page = person.get("/keys/new")
    checked = re.findall(r'name="(\w+)" value="([^"]+)"[^>]* checked', page.html)
    assert checked == [("access", "some")]
    assert re.findall(r'<option value="(\w*)" selected>', page.html) == ["90"]
    page.sees("90 days (suggested)", "No expiration")
    form = {"name": "a key", "access": "some", "expires": "90"}
    refused = person.post("/keys/new", form, status=400)
    refused.sees("Choose at least one, at most 50.")
    key = run(
        person.gate.keys.get(
            f"org_{_number[0]}",
            person.id_of(person.post("/keys/new", {**form, "scopes": "jobs:read"}, status=201).key),
        )
    )
    assert key.expires_at == pytest.approx(key.created_at + 90 * DAY, abs=DAY / 100)
    assert key.scopes == ("jobs:read",)


def test_a_maximum_age_is_the_longest_choice_and_bounds_the_suggested_one() -> None:
    for longest, chosen in ((400, "90"), (90, "90"), (60, "maximum")):
        made = partial(make_gate, key_options=KeyOptions(max_age_days=longest))
        with on_starlette(made) as person:
            page = person.get("/keys/new")
            assert re.findall(r'<option value="(\w*)" selected>', page.html) == [chosen]
            if chosen == "maximum":
                page.sees("The maximum: 60 days", "30 days")
                assert "90 days" not in page.text and "No expiration" not in page.text
                id = person.id_of(person.create(expires="maximum"))
                key = run(person.gate.keys.get("org_1", id))
                assert key.expires_at is not None and key.expires_at - key.created_at >= 60 * DAY


def test_keys_are_listed_page_by_page_and_found_by_a_part_of_their_name_or_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_pages, "ON_A_PAGE", 7)
    with on_starlette() as person:
        for number in range(1, 41):
            labels = {"tier": "gold"} if number % 5 == 0 else {}
            run(person.gate.keys.create("org_1", f"Worker {number:03}", labels=labels))
        names: list[str] = []
        path: str | None = "/keys"
        while path is not None:
            page = person.get(path)
            names += ROW.findall(page.html)
            path = following(page) if 'rel="next"' in page.html else None
        assert sorted(names) == [f"Worker {number:03}" for number in range(1, 41)]
        page = person.get("/keys?q=WORKER&label=tier%3Dgold")
        page.sees("Keys with the label tier=gold that match “WORKER”", "Worker 040", "Next page")
        assert "Worker 039" not in page.text and 'value="WORKER"' in page.html
        found = ROW.findall(page.html)
        while 'rel="next"' in page.html:  # A search ends a page early when it takes long.
            page = person.get(following(page))
            found += ROW.findall(page.html)
        page.sees("match “WORKER”")
        assert found == [f"Worker {number:03}" for number in range(40, 0, -5)]
        text = person.create("Caf\N{LATIN SMALL LETTER E WITH ACUTE} Zürich 100 %")
        decomposed = "cafe\N{COMBINING ACUTE ACCENT}"
        for wanted in ("zürich", decomposed, " 100 % ", text, f"{text[:15]}…"):
            page = person.get(f"/keys?q={quote(wanted)}")
            assert ROW.findall(page.html) == ["Café Zürich 100 %"]
            assert text not in page.html
        person.get("/keys?q=none+such").sees("There are none.", "Show all keys", "Create new key")


def test_a_search_continues_where_the_keys_of_one_page_end_G10(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keys_of_gate, "_STEPS_AT_MOST", 1)
    monkeypatch.setattr(keys_of_gate, "READ_AT_ONCE", 3)
    clock = HandClock()
    with on_starlette(lambda origin: make_gate(origin, clock=clock)) as person:
        for name in ("wanted", "b", "c", "d"):
            run(person.gate.keys.create("org_1", name))
            clock.move(1)
        page = person.get("/keys?q=wanted")
        page.sees("There are none among the keys that were searched so far.", "Next page")
        page = person.get(following(page))
        assert ROW.findall(page.html) == ["wanted"]
        assert "Next page" not in page.text and "First page" in page.text


def test_a_search_takes_a_whole_name_and_no_whole_key(person: Console) -> None:
    name = "payments service of the warehouse in Rotterdam, second machine"
    key = person.create(name)
    person.create("payments service of the warehouse in Rotterdam, first machine")
    sent = person.post("/keys", {"q": name}, status=303)
    page = person.get(sent.answer.headers["location"].removeprefix("/settings"))
    page.sees(f"Keys that match “{name}”")
    assert "first machine" not in page.text
    for pasted in (key, f"key {key}", key[:-30], key[15:], key.partition("live_")[2]):
        sent = person.post("/keys", {"q": pasted, "label": "a=b"}, status=303)
        path = sent.answer.headers["location"]
        assert len(path) < len("/settings/keys?q=&label=a%3Db") + 20
        shown = person.get(f"/keys?q={quote(pasted)}")
        assert pasted[:30] not in shown.text
    person.get(f"/keys?q={key}").sees(name)
    assert person.post("/keys", {"q": ""}, status=303).answer.headers["location"].endswith("/keys")


def folded(page: Page) -> tuple[list[str], list[str]]:
    """The names of the keys in view, and of those in the folded part."""
    shown, _, ended = page.html.partition('<details class="ended">')
    return ROW.findall(shown), ROW.findall(ended)


def test_live_keys_come_first_and_those_that_ended_are_folded(person: Console) -> None:
    ids = {name: person.id_of(person.create(name)) for name in ("one", "two", "three", "four")}
    for name in ("two", "four"):
        person.post(f"/keys/{ids[name]}/revoke", status=303)
    page = person.get("/keys")
    assert folded(page) == (["three", "one"], ["four", "two"])
    page.sees("Revoked and expired keys (2)")
    found = person.get("/keys?q=o")
    assert folded(found) == (["one", "four", "two"], [])
    for name in ("one", "three"):
        person.post(f"/keys/{ids[name]}/revoke", status=303)
    page = person.get("/keys")
    page.sees("No key is live", "Create new key")
    assert '<details class="ended" open>' in page.html


def test_live_keys_come_first_however_many_newer_ones_ended_G10(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_pages, "ON_A_PAGE", 3)
    clock = HandClock()
    with on_starlette(lambda origin: make_gate(origin, clock=clock)) as person:
        names = [f"live {number}" for number in range(4)]
        for name in names:
            run(person.gate.keys.create("org_1", name))
            clock.move(1)
        for number in range(1100):
            created = run(person.gate.keys.create("org_1", f"ended {number:04}"))
            run(person.gate.keys.revoke("org_1", created.key.id))
            clock.move(1)
        page = person.get("/keys")
        newest = [f"ended {number}" for number in (1099, 1098, 1097)]
        assert folded(page) == (["live 3", "live 2", "live 1"], newest)
        page.sees("All revoked keys", "All expired keys")
        last = person.get(following(page))
        assert folded(last) == (["live 0"], []) and "Next page" not in last.text


def test_keys_are_filtered_by_their_state(person: Console) -> None:
    ids = [person.id_of(person.create(name)) for name in ("one", "two", "three", "four")]
    person.post(f"/keys/{ids[0]}/revoke", status=303)
    page = person.get("/keys")
    page.sees("Any state")

    def names(path: str) -> list[str]:
        return ROW.findall(person.get(path).html)

    assert names("/keys?state=revoked") == ["one"]
    assert names("/keys?state=active") == ["four", "three", "two"]
    assert names("/keys?state=active&q=t") == ["three", "two"]
    assert names("/keys?state=expired") == []
    assert len(names("/keys?state=any")) == 4
    sent = person.post("/keys", {"q": "t", "state": "active", "label": ""}, status=303)
    assert sent.answer.headers["location"] == "/settings/keys?q=t&state=active"
    assert '<option value="revoked" selected>' in person.get("/keys?state=revoked").html


def test_a_row_has_the_actions_that_its_key_may_have(person: Console) -> None:
    live, ended, old = (person.id_of(person.create(name)) for name in ("live <one>", "two", "old"))
    person.post(f"/keys/{ended}/revoke", status=303)
    person.post(f"/keys/{old}/rotate", {"overlap": "7"}, status=201)
    listed = person.get("/keys")
    for id, shown, offered in (
        (live, listed, ["edit", "rotate", "revoke"]),
        (ended, listed, []),
        (old, listed, ["edit", "revoke"]),
        (old, person.get(f"/keys/{old}"), ["edit", "revoke"]),
    ):
        actions = ("edit", "rotate", "revoke")
        assert [a for a in actions if f'"/settings/keys/{id}/{a}"' in shown.html] == offered
    assert 'Actions<span class="sr">: live &lt;one&gt;</span>' in listed.html


def test_a_short_list_of_plain_names_is_ascii_and_has_no_field_to_search_it(
    person: Console,
) -> None:
    """One other character doubles the memory of the page, and 1,000 rows take 5 ms longer."""
    person.create("plain", labels="team=infra", expires="30")
    page = person.get("/keys")
    assert page.answer.content.isascii() and 'name="q"' not in page.html
    person.get("/keys?q=only").sees("There are none.")
    person.get("/keys?q=%F0%9F%94%91").sees("There are none.")


def test_percent_signs_of_names_and_texts_are_shown_as_they_are() -> None:
    with on_starlette(messages={"column.key": "Key %s 100 %"}) as person:
        person.create("50%(id)s of %d", labels="rate=%s")
        page = person.get("/keys")
        page.sees("50%(id)s of %d", "Key %s 100 %", "rate=%s")
        assert "\0" not in page.html


def test_forms_count_nothing_in_the_windows_of_the_organization() -> None:
    plans = PlanBook([Plan("free", rpm=1, rph=1, rpd=1, concurrent=1)])
    with on_starlette(lambda origin: make_gate(origin, plans=plans)) as person:
        key = person.create()
        assert person.status_with(key) == 200
        assert person.status_with(key) == 429
        person.get("/usage").sees("1 of 1", "Full until")
        person.post(f"/keys/{person.id_of(key)}/revoke", status=303)
