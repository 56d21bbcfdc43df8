"""The page behind ``dashboard_url``: over the wire, and as a browser shows it (spec 2.5, 4.5)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from .browser import Browser
from .demo import KEYS, MODELS, REGISTER, SIGN_IN, Client, Demo, random_text

SUBMIT = """(() => {{
    const form = document.getElementById({form});
    form.elements.secret.value = {secret};
    form.requestSubmit();
    return true;
}})()"""
PRESS = """(() => {{
    const found = [...document.querySelectorAll("button")].filter(b => b.textContent === {text});
    found[{index}].click();
    return true;
}})()"""
TEXT = "document.body.innerText"


def registered(client: Client, email: str, name: str = "render bot") -> dict[str, str]:
    body = {"agent_name": name, "billing_email": email}
    made: dict[str, str] = client.send("POST", REGISTER, json_body=body).is_ok(201).json()
    return made


def test_the_address_that_registration_gives_shows_a_page(client: Client) -> None:
    made = registered(client, f"{random_text(12).lower()}@example.com")
    answer = client.get(urlsplit(made["dashboard_url"]).path).is_ok()
    assert answer.is_page
    assert answer.one("cache-control") == "no-store"
    page = answer.body.decode()
    assert not re.search(r"(src|href|action)\s*=|//\w+\.", page), "it loads nothing from elsewhere"
    policy = dict(part.split(" ", 1) for part in answer.one("content-security-policy").split("; "))
    for closed in ("default-src", "base-uri", "form-action", "frame-ancestors"):
        assert policy[closed] == "'none'"
    assert answer.one("referrer-policy") == "no-referrer"
    assert answer.one("x-content-type-options") == "nosniff"
    for kind in ("script", "style"):
        (inline,) = re.findall(f"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert policy[f"{kind}-src"] == f"'sha256-{digest}'"


def test_it_is_no_operation(client: Client) -> None:
    assert "/dashboard" not in client.get("/openapi.json").json()["paths"]
    client.send("POST", "/dashboard").is_error(401, "MISSING_AUTH")


class Person:
    """A person at the dashboard."""

    def __init__(self, browser: Browser, demo: Demo) -> None:
        self.browser = browser
        browser.open(f"{demo.base_url}/dashboard")
        browser.until("!document.getElementById('outside').hidden")

    def submit(self, form: str, secret: str) -> None:
        self.browser.run(SUBMIT.format(form=json.dumps(form), secret=json.dumps(secret)))

    def press(self, text: str, index: int = 0) -> None:
        self.sees(text)
        self.browser.run(PRESS.format(text=json.dumps(text), index=index))

    def sees(self, text: str) -> None:
        self.browser.until(f"{TEXT}.includes({json.dumps(text)})")


@pytest.fixture
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


def test_an_agent_signs_in_creates_a_key_revokes_it_and_leaves(
    browser: Browser, demo: Demo, client: Client
) -> None:
    name = "<img src=x onerror=alert(1)>"
    made = registered(client, f"{random_text(12).lower()}@example.com", name)
    person = Person(browser, demo)
    person.submit("agent", "no token")
    person.sees("This dashboard token is not accepted")
    person.submit("agent", made["dashboard_token"])
    person.sees(name)
    person.sees(f"{made['api_key'][:15]}...")
    person.press("Create a key")
    person.sees("it is not shown again")
    (key,) = re.findall(r"acme_live_\w{8}_\w{43}", browser.run(TEXT))
    client.get(MODELS, key=key).is_ok()
    person.press("Revoke")
    person.sees("The key is revoked")
    client.get(MODELS, key=key).is_error(401, "KEY_REVOKED")
    client.get(MODELS, key=made["api_key"]).is_ok()
    person.press("Sign out")
    browser.until("!document.getElementById('outside').hidden")
    assert not browser.run("document.querySelector('img')")
    assert not [told for told in browser.told if "Content Security Policy" in told], browser.told


def test_d15_an_owner_claims_and_is_asked_about_the_keys(
    browser: Browser, demo: Demo, client: Client
) -> None:
    strange = registered(client, "owner@creator.example", "strange bot")
    known = registered(client, "owner@creator.example", "known bot")
    person = Person(browser, demo)
    person.submit("owner", demo["creator"].session_cookie)
    person.sees("known bot")
    person.press("No: connect, and revoke all keys")  # The oldest is shown first.
    person.sees("This workspace is connected to your login.")
    client.get(MODELS, key=strange["api_key"]).is_error(401, "KEY_REVOKED")
    token = {"dashboard_token": strange["dashboard_token"]}
    client.send("POST", SIGN_IN, json_body=token).is_error(401, "TOKEN_NOT_ACCEPTED")
    person.press("Yes: connect")
    browser.until(f"{TEXT}.split('Connected on').length === 3")
    client.get(MODELS, key=known["api_key"]).is_ok()
    person.press("Revoke")
    person.sees("The key is revoked")
    client.get(KEYS, key=known["api_key"]).is_error(401, "KEY_REVOKED")


def test_who_could_not_sign_out_is_told_so_and_stays_inside(
    browser: Browser, demo: Demo, client: Client
) -> None:
    """A page that looks signed out, with a session that goes on, is a trap on a shared machine."""
    made = registered(client, f"{random_text(12).lower()}@example.com")
    person = Person(browser, demo)
    person.submit("agent", made["dashboard_token"])
    person.sees("This agent's keys")
    while client.get(MODELS, key=made["api_key"]).status != 429:
        pass
    person.press("Sign out")
    person.sees("Too many requests")
    assert browser.run("document.getElementById('outside').hidden")
    assert not browser.run("document.getElementById('inside').hidden")
    person.press("Create a key")
    person.sees("Too many requests")
    person.sees(f"{made['api_key'][:15]}...")


def test_a_service_that_does_not_answer_is_told_as_well(browser: Browser, fresh: Demo) -> None:
    person = Person(browser, fresh)
    fresh.stop()
    person.submit("agent", "a token")
    person.sees("The service did not answer: try again.")
