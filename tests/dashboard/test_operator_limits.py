"""Operators change plans and limits: for good, for some time, and of new organizations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest

from lockgate import run
from lockgate.core.timestamps import HOUR, SECOND
from lockgate.sessions import Session

from .consoles import AT, Console, on_flask
from .test_operators import ROOT, as_operator, operates


@pytest.fixture(scope="module")
def console() -> Iterator[Console]:
    with on_flask(operator=operates) as made:
        yield made


def test_an_operator_raises_a_limit_for_some_hours(console: Console) -> None:
    form = {"id": "org_9", "limit": "rpm", "number": "500", "span": "12h", "new": "org_9"}
    as_operator(console, "/operator/limit", form, 303)
    limits = run(console.gate.organizations.limits("org_9"))
    assert (limits.plan.rpm, dict(limits.own)) == (500, {})
    hours = (limits.temporary["rpm"].until - run(console.gate.keys.now())) / HOUR
    assert hours == pytest.approx(12, abs=0.2)
    page = console.get("/operator/organization?id=org_9&done=limit")
    page.sees("The limit was changed", "Requests a minute: 500 until", "0 of 500", "operator root")
    page.sees("temporary limit set")
    assert re.search(r'<span data-until="[^"]+">Requests a minute: 500 until 20', page.html)
    assert str(limits.temporary["rpm"].until) not in page.html
    for wrong in ({"number": "many"}, {"number": ""}, {"span": "1000"}, {"limit": "plan"}):
        as_operator(console, "/operator/limit", {**form, **wrong}, 400)
    assert run(console.gate.organizations.limits("org_9")) == limits


def test_what_is_added_for_good_is_not_added_to_a_temporary_limit(console: Console) -> None:
    run(console.gate.organizations.place("org_raised", "starter"))
    form = {"id": "org_raised", "limit": "rpm", "number": "+500", "span": "1h"}
    as_operator(console, "/operator/limit", form, 303)
    assert run(console.gate.organizations.limits("org_raised")).plan.rpm == 530
    form = {"id": "org_raised", "plan": "starter", "rpm": "+10", "present_rpm": "30"}
    as_operator(console, "/operator/organization", form, 303)
    assert run(console.gate.organizations.limits("org_raised")).plan.rpm == 40


def test_a_plus_adds_to_the_present_limit_once_however_often_the_form_is_sent(
    console: Console,
) -> None:
    id = f"org_plus_{console.origin[-5:]}"
    run(console.gate.organizations.place(id, "free"))
    console.sign_in(ROOT)
    page = console.get(f"/operator/organization?id={id}")
    shown = dict(re.findall(r'name="(present_\w+)" value="(\w+)"', page.html))
    form = {"id": id, "limit": "rpm", "number": "+500", "span": "12h", **shown}
    console.post("/operator/limit", form, token=page.token, status=303)
    again = console.post("/operator/limit", form, token=page.token, status=400)
    again.sees("The limit is 510 by now, and was 10 when this page was opened")
    assert run(console.gate.organizations.limits(id)).plan.rpm == 510
    own = {"id": id, "plan": "free", "rph": "+50", **shown}
    present = run(console.gate.organizations.limits(id)).plan.rph
    console.post("/operator/organization", own, token=page.token, status=303)
    console.post("/operator/organization", own, token=page.token, status=400)
    assert present is not None
    assert run(console.gate.organizations.limits(id)).plan.rph == present + 50


@pytest.mark.parametrize("zone", ["", "+01:00"])
def test_a_temporary_limit_ends_at_a_date_and_time(console: Console, zone: str) -> None:
    id = f"org_until{zone[1:3]}"
    end = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(days=2)
    ahead = timedelta(hours=1 if zone else 0)
    until = (end + ahead).strftime("%Y-%m-%dT%H:%M")
    form = {"id": id, "limit": "rpd", "number": "none", "span": "", "until": until, "zone": zone}
    form["new"] = id
    as_operator(console, "/operator/limit", form, 303)
    temporary = run(console.gate.organizations.limits(id)).temporary["rpd"]
    assert (temporary.limit, temporary.until) == (None, int(end.timestamp()) * SECOND)
    page = console.get(f"/operator/organization?id={id}")
    page.sees(f"Requests a day: none until {end:%Y-%m-%d %H:%M} UTC")


def test_a_wrong_limit_is_told_at_its_field_and_what_was_entered_is_kept(console: Console) -> None:
    console.sign_in(ROOT)
    run(console.gate.organizations.set_limits("org_wrong", rpd=None))
    before = run(console.gate.organizations.limits("org_wrong"))
    form = {"id": "org_wrong", "limit": "rph", "number": "many", "span": "", "until": "2020-01-01"}
    page = as_operator(console, "/operator/limit", form, 400)
    page.sees("The limits were not changed", "Use a number, +number or none.", "This end is past")
    assert page.html.count('aria-invalid="true"') == 2
    assert '<a href="#number">Number: Use a number' in page.html and 'id="number"' in page.html
    assert 'value="many" aria-describedby="number-hint number-problem1"' in " ".join(
        page.html.split()
    )
    assert '<option value="rph" selected>' in page.html and 'value="2020-01-01"' in page.html
    assert '<option value="" selected>' in page.html
    assert '<input id="rpd" name="rpd" type="text"' in page.html and 'value="none"' in page.html
    for fields, told in (
        ({"limit": "rpd", "number": "+500"}, "There is no limit to add to."),
        ({"until": "soon"}, "Choose how long the limit lasts"),
        ({"until": ""}, "Choose how long the limit lasts"),
        ({"limit": "plan"}, "Choose a limit."),
        ({"number": "9" * 16}, "Use a number up to 9007199254740991."),
    ):
        as_operator(console, "/operator/limit", {**form, **fields}, 400).sees(told)
    own = {"id": "org_wrong", "plan": "enterprise", "rpm": "1", "rph": "2"}
    page = as_operator(console, "/operator/organization", own, 400)
    missing = "The plan enterprise has no numbers: enter a number, or “none”."
    page.sees(f"Requests a day: {missing}", f"Jobs at a time: {missing}")
    assert page.html.count('aria-invalid="true"') == 2
    assert "<option selected>enterprise" in page.html
    assert 'value="1"' in page.html and 'value="2"' in page.html
    for plan in ("", "gold"):
        page = as_operator(console, "/operator/organization", {**own, "plan": plan}, 400)
        page.sees("Plan: Choose a plan.")
    page = as_operator(console, "/operator/organization", {**own, "rph": "lots"}, 400)
    page.sees("Requests an hour: Use a number, +number or none.")
    assert 'value="lots"' in page.html
    assert run(console.gate.organizations.limits("org_wrong")) == before


def test_after_a_refusal_the_full_window_is_chosen_and_the_page_tells_what_to_do(
    console: Console,
) -> None:
    console.sign_in(Session("org_full", "ada"))
    key = console.create("busy")
    run(console.gate.organizations.set_limits("org_full", rph=3))
    for _ in range(4):
        console.status_with(key)
    console.sign_in(ROOT)
    place = "/operator/organization?id=org_full"
    page = console.get(place)
    assert '<option value="rph" selected>' in page.html
    page.sees("RATE_LIMIT_EXCEEDED", "3 of 3 units of the last hour are used.")
    assert re.search(r'data-until="[^"]+">This ends by itself at \d{4}-', page.html)
    assert 'href="#temporary">Give the organization more' in page.html
    of_key = console.get(f"/operator/key?id=org_full&key={console.id_of(key)}")
    of_key.sees("3 of 3 units of the last hour are used.")
    assert f'href="{AT}{place}#temporary">Give the organization more' in of_key.html
    for shown in (page, of_key):
        assert "lockgate " not in shown.text and "ORGANIZATION" not in shown.text
    run(console.gate.keys.revoke("org_full", console.id_of(key)))
    ended = console.get(f"/operator/key?id=org_full&key={console.id_of(key)}")
    ended.sees("KEY_REVOKED", "The key is revoked for good.")
    assert "Give the organization more" not in ended.text


def test_a_temporary_limit_of_0_is_told_with_its_end(console: Console) -> None:
    run(console.gate.organizations.place("org_zero", "free"))
    form = {"id": "org_zero", "limit": "rpm", "number": "0", "span": "4h"}
    as_operator(console, "/operator/limit", form, 303)
    until = run(console.gate.organizations.limits("org_zero")).temporary["rpm"].until
    page = console.get("/operator/organization?id=org_zero")
    page.sees("A temporary limit admits no request: the limit of the minute is 0.")
    page.sees(
        f"This ends by itself at {datetime.fromtimestamp(until / SECOND, UTC):%Y-%m-%d %H:%M}"
    )
    assert "The plan admits" not in page.text


def test_a_second_temporary_limit_replaces_the_first_only_if_the_operator_says_so(
    console: Console,
) -> None:
    limits = console.gate.organizations.limits
    run(console.gate.organizations.place("org_twice", "free"))
    form = {"id": "org_twice", "limit": "rpm", "number": "500", "span": "1h"}
    as_operator(console, "/operator/limit", form, 303)
    first = run(limits("org_twice"))
    page = as_operator(console, "/operator/limit", {**form, "number": "600", "span": "3d"}, 400)
    page.sees("Temporary limit: Requests a minute: 500 until 20", "in force already")
    assert run(limits("org_twice")) == first
    assert 'value="600"' in page.html and '<option value="3d" selected>3 days' in page.html
    (box,) = re.findall(r'name="replaces" value="([^"]+)"', page.html)
    other = {**form, "limit": "rpd", "number": "900"}
    as_operator(console, "/operator/limit", other, 303)
    assert run(limits("org_twice")).plan.rpm == 500, "each limit has a temporary one of its own"
    as_operator(console, "/operator/limit", {**form, "number": "600", "replaces": box}, 303)
    assert run(limits("org_twice")).plan.rpm == 600
    as_operator(console, "/operator/limit", {**form, "number": "700", "replaces": box}, 400)


def test_a_temporary_limit_is_ended_at_once(console: Console) -> None:
    run(console.gate.organizations.set_limits("org_ends", rpm=40))
    form = {"id": "org_ends", "limit": "rpm", "number": "500", "span": "1h"}
    as_operator(console, "/operator/limit", form, 303)
    console.get("/operator/organization?id=org_ends").sees("End it now", ": Requests a minute")
    sent = as_operator(console, "/operator/limit/end", {"id": "org_ends", "limit": "rpm"}, 303)
    page = console.get(sent.answer.headers["location"].removeprefix(AT))
    page.sees("The temporary limit has ended.", "0 of 40", "temporary limit ended early")
    assert "End it now" not in page.text
    found = run(console.gate.organizations.limits("org_ends"))
    assert (found.temporary, dict(found.own)) == ({}, {"rpm": 40})
    as_operator(console, "/operator/limit/end", {"id": "org_ends", "limit": "rpm"}, 303)
    as_operator(console, "/operator/limit/end", {"id": "org_ends", "limit": "plan"}, 404)


def test_a_window_that_stays_full_is_told_before_and_after_another_is_raised(
    console: Console,
) -> None:
    console.sign_in(Session("org_both", "ada"))
    key = console.create("busy")
    run(console.gate.organizations.set_limits("org_both", rpm=3, rph=3))
    for _ in range(4):
        console.status_with(key)
    console.sign_in(ROOT)
    page = console.get("/operator/organization?id=org_both")
    page.sees("The limits of the minute and hour have no room: raising one of them is not enough.")
    form = {"id": "org_both", "limit": "rph", "number": "500", "span": "1h"}
    sent = as_operator(console, "/operator/limit", form, 303)
    page = console.get(sent.answer.headers["location"].removeprefix(AT))
    page.sees("The limit was changed, but the next request would still be refused.")
    page.sees("3 of 3 units of the last minute are used.")
    assert "It applies from the next request on." not in page.text


def test_an_organization_of_which_nothing_is_known_is_changed_only_if_it_is_confirmed(
    console: Console,
) -> None:
    is_known = console.gate.organizations.is_known
    forms = {
        "/operator/organization": {"plan": "creator"},
        "/operator/limit": {"limit": "rpm", "number": "5", "span": "1h"},
    }
    for number, (path, fields) in enumerate(forms.items()):
        id = f"org_mistyped_{number}"
        for confirmed in ("", "org_other", "yes"):
            page = as_operator(console, path, {"id": id, **fields, "new": confirmed}, 400)
            page.sees(f"Nothing is known of {id}.", f"{id} is a new organization")
        for impossible in ("org 1", "org_1\n", " org_1", "\u202eorg", "\N{NO-BREAK SPACE}"):
            form = {"id": impossible, **fields, "new": impossible}
            as_operator(console, path, form, 400).sees("This is no ID of an organization")
            assert not run(is_known(impossible))
            shown = console.get(f"/operator/organization?id={quote(impossible)}")
            assert 'name="plan"' not in shown.html
        assert not run(is_known(id))
        as_operator(console, path, {"id": id, **fields, "new": id}, 303)
        assert run(is_known(id))
    named = "Acme Images GmbH"
    run(console.gate.organizations.place(named, "free"))
    form = {"id": named, "limit": "rpm", "number": "5", "span": "1h"}
    as_operator(console, "/operator/limit", form, 303)


def test_what_an_operator_entered_is_back_after_a_new_sign_in(console: Console) -> None:
    run(console.gate.organizations.place("org_back", "free"))
    console.sign_in(ROOT)
    token = console.get("/operator").token
    console.sign_in(None)
    form = {"id": "org_back", "limit": "rpd", "number": "+700", "span": "4h", "until": ""}
    console.post("/operator/limit", form, token=token, status=401).sees("kept for 30 minutes")
    draft = console.client.cookies["lockgate_form"]
    console.sign_in(ROOT)
    console.client.cookies.set("lockgate_form", draft)
    other = console.get("/operator/organization?id=org_1")
    assert "+700" not in other.html
    page = console.get("/operator/organization?id=org_back")
    page.sees("This is what you entered before you signed in again.")
    assert 'value="+700"' in page.html and '<option value="rpd" selected>' in page.html
    assert run(console.gate.organizations.limits("org_back")).temporary == {}
