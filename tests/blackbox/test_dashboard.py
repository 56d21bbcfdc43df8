"""The demo's dashboard: over the wire, and as a browser shows it (D13)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlencode, urlsplit

import pytest

from .browser import Browser
from .demo import KEYS, REGISTER, SIGN_IN, Answer, Client, Demo, random_text

TEXT = "document.body.innerText"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def registered(client: Client, email: str, name: str = "render bot") -> dict[str, str]:
    body = {"agent_name": name, "billing_email": email}
    made: dict[str, str] = client.send("POST", REGISTER, json_body=body).is_ok(201).json()
    return made


def sign_in(
    client: Client, fields: Mapping[str, str], headers: Mapping[str, str] | None = None
) -> Answer:
    content = urlencode(fields).encode()
    return client.send("POST", "/sign-in", headers={**FORM, **(headers or {})}, content=content)


def one_click(client: Client, organization: str) -> Answer:
    return sign_in(client, {"organization": organization}).is_ok(303)


def cookie_of(answer: Answer) -> str:
    value, *attributes = answer.one("set-cookie").removeprefix("__session=").split("; ")
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(attributes)
    return value


def test_the_address_that_registration_gives_shows_a_page(client: Client) -> None:
    made = registered(client, f"{random_text(12).lower()}@example.com")
    answer = client.get(urlsplit(made["dashboard_url"]).path).is_ok()
    assert answer.is_page
    page = answer.body.decode()
    links = re.findall(r'(?:src|href|action)="([^"]*)"', page)
    assert links, page
    assert all(re.match(r"/\w|#", link) for link in links), "it loads nothing from elsewhere"
    policy = dict(part.split(" ", 1) for part in answer.one("content-security-policy").split("; "))
    for closed in ("default-src", "base-uri", "frame-ancestors"):
        assert policy[closed] == "'none'"
    assert policy["form-action"] == "'self'"
    assert answer.one("x-content-type-options") == "nosniff"


def test_the_dashboard_is_not_in_the_openapi_document(client: Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert not {"/dashboard", "/sign-in", "/sign-out", "/settings"} & set(paths)
    client.send("POST", "/dashboard").is_error(401, "MISSING_AUTH")


def test_one_click_or_a_printed_session_signs_in_and_nothing_else(
    demo: Demo, client: Client
) -> None:
    for plan, organization in demo.organizations.items():
        answer = one_click(client, plan)
        assert answer.one("location") == "/settings/keys"
        page = client.get("/settings/keys", session=cookie_of(answer)).is_ok().body.decode()
        assert organization.id in page
        assert organization.api_key[:15] in page
        assert organization.api_key not in page
    printed = demo["starter"].session_cookie
    assert cookie_of(sign_in(client, {"session": printed}).is_ok(303)) == printed
    for fields in ({"session": f"{printed}x"}, {"organization": "other"}, {}):
        refused = sign_in(client, fields).is_ok(400)
        assert refused.is_page
        assert not refused.all("set-cookie")
    answer = client.get("/sign-out").is_ok(303)
    assert answer.one("location") == "/dashboard"
    assert "Max-Age=0" in answer.one("set-cookie")


def test_d11_a_page_of_another_site_signs_nobody_in(demo: Demo, client: Client) -> None:
    """Neither does a host name of another site that is made to lead to this machine."""
    for headers in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "https://evil.example"},
        {"Origin": f"http://evil.example:{demo.port}", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "null"},
    ):
        refused = sign_in(client, {"organization": "free"}, headers)
        assert not refused.is_error(403, "CROSS_SITE_REQUEST").all("set-cookie")


def test_the_demo_has_used_an_organization_up_to_its_limit(client: Client) -> None:
    cookie = cookie_of(one_click(client, "busy"))
    for by in ("minute", "hour", "day"):
        page = client.get(f"/settings/usage?by={by}", session=cookie).is_ok().body.decode()
        assert 'role="img"' in page
        text = re.sub(r"<[^>]+>|\s+", " ", page)
        for reason, least in (
            ("The limit of the minute was reached", 12),
            ("The key was revoked", 3),
            ("The key lacked the scope", 2),
        ):
            number = re.search(rf"{reason}\s+([\d,]+)\s", text)
            assert number and int(number[1].replace(",", "")) >= least, text
    page = client.get("/settings/usage?by=hour", session=cookie).is_ok().body.decode()
    assert page.count('<rect class="admitted"') >= 7 * 24 - 1
    keys = client.get("/settings/keys", session=cookie).is_ok().body.decode()
    for name in ("web shop", "nightly jobs", "old laptop"):
        assert name in keys


class Person:
    """A person at the dashboard."""

    def __init__(self, browser: Browser, demo: Demo) -> None:
        self.browser = browser
        browser.clear_cookies()
        browser.told.clear()
        browser.open(f"{demo.base_url}/dashboard")

    def press(self, text: str, sees: str) -> None:
        """Press a button or follow a link, and wait for what the next page says."""
        self.browser.until(f"[...document.querySelectorAll('a, button')].some({_is(text)})")
        self.browser.run(
            f"window.isOld = true, [...document.querySelectorAll('a, button')]"
            f".find({_is(text)}).click(), true"
        )
        self.browser.until("!window.isOld && document.readyState === 'complete'")
        self.sees(sees)

    def choose(self, field: str, value: str) -> None:
        self.browser.run(f"document.querySelector('[name={field}][value={value}]').click(), true")

    def sees(self, text: str) -> None:
        self.browser.until(f"{TEXT}.includes({json.dumps(text)})")


def _is(text: str) -> str:
    return f"e => e.innerText.trim() === {json.dumps(text)}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


def test_d15_an_owner_claims_and_is_asked_about_the_keys(
    browser: Browser, demo: Demo, client: Client
) -> None:
    name = "<img src=x onerror=alert(1)>"
    made = registered(client, "owner@creator.example", name)
    person = Person(browser, demo)
    person.press("creator", "creator demo key")
    person.press("Connect workspace", name)
    person.choose("keys", "revoke")
    person.press("Connect", "The workspace is connected to your login.")
    client.get(KEYS, key=made["api_key"]).is_error(401, "KEY_REVOKED")
    token = {"dashboard_token": made["dashboard_token"]}
    client.send("POST", SIGN_IN, json_body=token).is_error(401, "TOKEN_NOT_ACCEPTED")
    person.press("Sign out", "One click signs you in")
    browser.open(f"{demo.base_url}/settings/keys")
    person.sees("Sign in to manage the API keys of your workspace.")
    assert not [told for told in browser.told if "Content Security Policy" in told], browser.told
