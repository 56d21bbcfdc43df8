"""The page of usage, and the usage of a key on its page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

import pytest

from lockgate import Gate, Limit, Plan, PlanBook, run
from lockgate.errors import Refusal
from lockgate.options import StoreOptions

from .consoles import Console, make_gate, on_flask, on_starlette


@pytest.fixture
def person() -> Iterator[Console]:
    with on_flask() as made:
        yield made


def test_the_page_shows_the_limits_and_what_was_refused(person: Console) -> None:
    for _ in range(3):
        person.get("/usage").sees("0 of 10")
    key = person.create(access="some", scopes=["models:read", "jobs:read"])
    lacking = person.create(access="some", scopes=["jobs:read"])
    assert person.status_with(lacking) == 403
    statuses = [person.status_with(key) for _ in range(12)]
    assert statuses.count(429) == 3
    page = person.get("/usage?by=minute")
    page.sees("10 of 10", "10 of 100", "Full until", "0 of 2", "plan free")
    page.sees("The limit of the minute was reached", "The key lacked the scope")
    assert page.html.count('role="meter"') == 4
    pictures = re.findall(r'<svg viewBox="0 0 720.*?</svg>', page.html, re.DOTALL)
    kinds = [{*re.findall(r'<rect class="(\w+)"', picture)} for picture in pictures]
    assert kinds == [{"admitted"}, {"refused"}], "units and requests are different things"
    assert ["Requests counted: 10." in one for one in pictures] == [True, False]
    assert ["Requests refused: 4." in one for one in pictures] == [False, True]
    (minute, hour, *_) = person.client.get("/settings/usage.json").json()
    assert (minute["used"], minute["limit"], minute["level"]) == (10, 10, "full")
    assert (hour["text"], hour["percent"]) == ("10 of 100", 10.0)
    shown = person.get(f"/keys/{person.id_of(key)}?by=minute")
    shown.sees("from 127.0.0.1", "The limit of the minute was reached")
    assert "The key lacked the scope" not in shown.text


def test_units_are_told_apart_from_requests() -> None:
    with on_starlette() as person:
        key = person.create()
        id = person.id_of(key)
        for _ in range(3):
            run(person.gate.authenticate(key, cost=2))
        run(person.gate.flush())
        text = " ".join(person.get(f"/keys/{id}?by=minute").text.split())
        assert "Requests 3" in text and "Requests counted 6" in text and "costs" in text
        person.get(f"/keys/{id}/revoke").sees("Requests counted in the last 7 days: 6.")


def meters(person: Console, path: str = "/usage") -> list[str]:
    """The titles of the limits on a page."""
    return re.findall(r'<span id="meter-[^"]+">([^<]+)</span>', person.get(path).html)


REQUESTS = ["Requests, last minute", "Requests, last hour", "Requests, last 24 hours"]


def test_a_plan_without_a_limit_or_jobs_has_no_meter_for_it(person: Console) -> None:
    assert meters(person) == [*REQUESTS, "Jobs now"]
    person.get("/keys/new").sees("10 requests a minute", "2 jobs at a time")
    for concurrent in (None, 0):
        run(person.gate.organizations.place("org_1", "free", rpd=None, concurrent=concurrent))
        assert meters(person) == REQUESTS[:2]
        for path in ("/usage", "/keys/new"):
            text = person.get(path).text.lower()
            assert "jobs" not in text.replace("jobs:", "") or path == "/keys/new"
            assert "jobs at a time" not in text and "credits" not in text
        live = person.client.get("/settings/usage.json").json()
        assert [meter["name"] for meter in live] == ["minute", "hour"]


def test_a_plan_without_any_limit_says_so() -> None:
    book = PlanBook([Plan("open")])
    with on_starlette(lambda origin: make_gate(origin, plans=book)) as person:
        assert not meters(person)
        person.get("/usage").sees("This plan has no limit.")
        run(person.gate.slots.acquire("org_1", "job_1"))
        assert meters(person) == ["Jobs now"]
        person.get("/usage").sees("1, no limit")


def test_budgets_are_credits_and_other_limits_are_not() -> None:
    monthly = Limit("images", "1000/month")
    book = PlanBook([Plan("pro", rpm=9, limits=(monthly, Limit("burst", "5/second")))])
    budget = StoreOptions(hold_limits=[Limit("tokens", "900/day")])

    def make(origin: str) -> Gate:
        return make_gate(origin, plans=book, store_options=budget)

    with on_starlette(make, operator=lambda *_: True) as person:
        for path in ("/usage", "/operator/organization?id=org_1"):
            html = person.get(path).html
            credits, _, others = html.partition("<h3>Credits</h3>")[2].partition(
                "<h3>Other limits</h3>"
            )
            assert "tokens, last day" in credits and "images, this month" in credits
            assert "burst, last second" in others and "burst" not in credits
            assert "tokens, last" not in others


def test_a_gate_that_keeps_no_usage_shows_none() -> None:
    with on_starlette(lambda origin: make_gate(origin, usage_history=None)) as person:
        person.get("/usage").sees("This service keeps no usage over time.", "0 of 10")
        id = person.id_of(person.create())
        person.get(f"/keys/{id}").sees("This service keeps no usage over time.")
        person.get(f"/keys/{id}/revoke").sees("never used")


EXPORT = Limit("export", "3/hour;50/15 minutes")
HEAVY = Limit("heavy", "2/minute", by="key")


def test_named_limits_are_shown_beside_the_plan_and_on_the_page_of_their_key() -> None:
    with on_starlette(operator=lambda *_: True) as person:
        texts = [person.create("exporter"), person.create("other")]
        for _ in range(4):
            with suppress(Refusal):
                run(person.gate.authenticate(texts[0], limits=[EXPORT]))
        for _ in range(3):
            with suppress(Refusal):
                run(person.gate.authenticate(texts[1], limits=[HEAVY]))
        page = person.get("/usage?by=minute")
        page.sees("Other limits", "export, last hour", "3 of 3", "Full until")
        page.sees("export, last 15 minutes", "3 of 50", "The limit export was reached")
        page.sees("The limit heavy was reached")
        assert "heavy, last" not in page.text
        assert page.html.count('role="meter"') == 6
        live = {meter["name"]: meter for meter in person.client.get("/settings/usage.json").json()}
        assert (live["export-hour"]["level"], live["export-hour"]["percent"]) == ("full", 100.0)
        assert all(f'data-meter="{name}"' in page.html for name in live)
        shown, other = (person.get(f"/keys/{person.id_of(text)}") for text in texts)
        shown.sees("Limits of this key", "heavy, last minute", "0 of 2")
        other.sees("2 of 2")
        assert "export, last" not in other.text
        person.get("/operator/organization?id=org_1").sees("export, last hour", "3 of 3")


def test_units_of_named_limits_have_bars_and_columns_of_their_own() -> None:
    with on_starlette() as person:
        text = person.create()
        caller = run(person.gate.authenticate(text, limits=[EXPORT]))
        taken = run(person.gate.holds.take(caller, {Limit("tokens", "9000/day"): 4096}))
        run(person.gate.holds.settle(taken.id, 2812))
        run(person.gate.flush())
        for path in ("/usage?by=minute", f"/keys/{person.id_of(text)}?by=minute"):
            page = person.get(path)
            page.sees("export", "tokens", "2,812")
            pictures = re.findall(r'<svg viewBox="0 0 720.*?</svg>', page.html, re.DOTALL)
            kinds = [{*re.findall(r'<rect class="(\w+)"', picture)} for picture in pictures]
            assert kinds == [{"admitted"}, {"used"}, {"used"}]
            assert "tokens: 2,812. The highest bar: 2,812." in pictures[2]
            (head,) = re.findall(r"<thead>.*?</thead>", page.html, re.DOTALL)
            titles = re.findall(r">([^<>]+)</th>", head)
            assert titles[1:-1] == ["Requests counted", "export", "tokens"]
            assert re.search(
                r'">1</td><td class="number">1</td><td class="number">2,812<', page.html
            )


def test_the_limits_of_a_key_alone_are_shown_on_its_page() -> None:
    with on_starlette() as person:
        text = person.create()
        id = person.id_of(text)
        run(person.gate.keys.update("org_1", id, limits={"credits": "5/year"}))
        run(person.gate.authenticate(text, cost=2))
        person.get(f"/keys/{id}").sees("Limits of this key", "credits, this year", "2 of 5")


def test_a_soft_quota_is_never_shown_as_full() -> None:
    soft = Limit("units", "5/year", soft=True)
    metered = Plan("metered", rpm=None, rph=None, rpd=None, concurrent=None, limits=(soft,))
    book = PlanBook([metered], custom=[], default="metered")
    with on_starlette(lambda origin: make_gate(origin, plans=book)) as person:
        run(person.gate.authenticate(person.create(), cost=7))
        page = person.get("/usage")
        page.sees("units, this year", "7 of 5")
        assert "Full until" not in page.text
        live = {meter["name"]: meter for meter in person.client.get("/settings/usage.json").json()}
        assert live["units-year"]["level"] == "high"


def test_units_that_are_held_are_told_beside_those_that_are_used() -> None:
    tokens = Limit("tokens", "1000/minute")
    with on_starlette() as person:
        run(person.gate.holds.take("org_1", {tokens: 300}))
        hold = run(person.gate.holds.take("org_1", {tokens: 50}))
        run(person.gate.holds.settle(hold.id, 40))
        person.get("/usage").sees("tokens, last minute", "340 of 1,000, 300 reserved")
        live = {meter["name"]: meter for meter in person.client.get("/settings/usage.json").json()}
        assert (live["tokens-minute"]["used"], live["tokens-minute"]["level"]) == (340, "low")
