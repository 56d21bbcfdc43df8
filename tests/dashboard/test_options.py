"""The options of a dashboard: brand, texts and links; mistakes are found when it is made."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockgate.dashboard
from lockgate import ConfigurationError, Gate, run
from lockgate.dashboard import MESSAGES, dashboard, wsgi_dashboard
from lockgate.dashboard.colours import palette_of
from lockgate.options import WebOptions
from lockgate.stores.base import IoMode

from .consoles import SESSIONS, make_gate, on_starlette


def test_a_host_puts_its_brand_on_the_pages() -> None:
    options: dict[str, Any] = {
        "name": "Bilder & Co",
        "logo": "https://cdn.example.com/logo.svg",
        "accent": "#ffdd00",
        "home": "/console",
        "sign_out": "/logout",
    }
    with on_starlette(**options) as person:
        page = person.get("/keys")
        page.sees("Bilder & Co", "Sign out")
        assert 'href="/console"' in page.html and 'href="/logout"' in page.html
        assert "--accent:#ffdd00;--on-accent:#000000" in page.html
        policy = page.answer.headers["content-security-policy"]
        assert "img-src https://cdn.example.com;" in policy


def test_a_host_translates_the_pages() -> None:
    messages = {
        "keys.title": "API-Schlüssel",
        "created.title": "Ihr neuer Schlüssel",
        "usage.of": "{used} von {limit}",
        "scope.jobs:read": "Aufträge lesen",
        "Use 1 to 100 characters.": "1 bis 100 Zeichen.",
        "error.NOT_FOUND": "Nichts da",
    }
    with on_starlette(language="de-CH", messages=messages) as person:
        page = person.get("/keys")
        page.sees("API-Schlüssel")
        assert '<html lang="de-CH" dir="ltr">' in page.html
        person.get("/usage").sees("0 von 10")
        person.get("/keys/new").sees("Aufträge lesen")
        person.post("/keys/new", {"name": ""}, status=400).sees("1 bis 100 Zeichen.")
        person.get("/nowhere", 404).sees("Nichts da")


def test_a_language_from_right_to_left_is_written_so() -> None:
    with on_starlette(language="ar") as person:
        assert '<html lang="ar" dir="rtl">' in person.get("/keys").html


def test_the_sign_in_page_leads_to_the_host_and_back() -> None:
    with on_starlette(sign_in="https://id.example.com/login?to={next}&x=1") as person:
        person.sign_in(None)
        page = person.get("/keys?q=b%C3%BCro&label=a%3Db", 401)
        back = "%2Fsettings%2Fkeys%3Fq%3Db%25C3%25BCro%26label%3Da%253Db"
        assert f'href="https://id.example.com/login?to={back}&amp;x=1"' in page.html
        key = run(person.gate.keys.create("org_1", "pasted")).text
        assert key[:20] not in person.get(f"/keys?q={key}", 401).html
        link = "https://id.example.com/login?to=%2Fsettings%2Fkeys&amp;x=1"
        assert f'href="{link}"' in person.get("/keys", 401).html
        page = person.post("/keys/new", {"name": "x"}, token="x", status=401)
        assert f'href="{link.replace("&amp", "%2Fnew&amp")}"' in page.html


def test_every_text_is_used_by_a_page() -> None:
    here = Path(next(iter(lockgate.dashboard.__path__)))
    files = [*here.glob("templates/*.html"), *here.glob("*.py")]
    used = "".join(file.read_text() for file in files if file.name != "messages.py")
    built: tuple[str, ...] = ("operator.rp", "operator.concurrent")
    built += (
        "actor.",
        "ago.",
        "change.",
        "done.",
        "error.",
        "in.",
        "limit.",
        "nav.",
        "operator.used_up_",
        "refused.",
        "scope.",
        "span.",
        "state.",
    )
    unused = [
        name
        for name in MESSAGES
        if " " not in name  # A sentence of an error.
        and not name.startswith((*built, "usage."))
        and not re.search(rf"[\"']{name}[\"']", used)
    ]
    assert unused == []
    assert not [name for name, text in MESSAGES.items() if re.search(r"<\w|&\w+;", text)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"accent": "red"}, "#rrggbb"),
        ({"accent": "#fff}body{"}, "#rrggbb"),
        ({"logo": "javascript:alert(1)"}, "logo"),
        ({"logo": "https://evil.example;script-src/x"}, "logo"),
        ({"home": "//evil.example"}, "home"),
        ({"sign_in": "login"}, "sign_in"),
        ({"language": "deutsch, bitte"}, "language"),
        ({"messages": {"keys.tittle": "x"}}, "keys.tittle"),
        ({"messages": {"usage.of": "{used} of {most}"}}, "most"),
        ({"messages": {"usage.of": "{used.real"}}, "malformed"),
        ({"colour": "#ffffff"}, "dashboard() has no argument 'colour'"),
        ({"langauge": "de"}, "write 'language'"),
        ({"home": 3}, "home is of the type int: give text"),
        ({"operator": True}, "operator is of the type bool: give a function"),
    ],
)
def test_a_malformed_option_is_found_when_the_dashboard_is_made(
    options: dict[str, Any], says: str
) -> None:
    for make in (dashboard, wsgi_dashboard):
        with pytest.raises(ConfigurationError, match=re.escape(says)):
            make(make_gate("https://example.com"), **options)


def test_a_gate_without_sessions_has_no_dashboard() -> None:
    for make in (dashboard, wsgi_dashboard):
        with pytest.raises(ConfigurationError, match="session verifier"):
            make(Gate("memory://", brand="acme"))
        with pytest.raises(ConfigurationError, match=r"lockgate\.Gate"):
            make("acme")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - a mistake


def test_a_gate_that_takes_no_cookies_has_no_dashboard() -> None:
    options = WebOptions(session_cookie=None, session_bearer=Waiting())
    gate = make_gate("https://example.com", web_options=options)
    with pytest.raises(ConfigurationError, match="by a cookie"):
        dashboard(gate)


class Waiting:
    """A session verifier that needs an event loop."""

    io: IoMode = "async"

    async def verify(self, cookie: str) -> Any:
        return await SESSIONS.verify(cookie)


def test_a_verifier_that_does_not_suit_the_adapter_is_found_when_the_dashboard_is_made() -> None:
    gate = make_gate("https://example.com", sessions=Waiting())
    dashboard(gate)
    with pytest.raises(ConfigurationError, match="event loop"):
        wsgi_dashboard(gate)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@given(st.integers(0, 0xFFFFFF))
def test_every_accent_gives_readable_text(number: int) -> None:
    palette = palette_of(f"#{number:06x}")
    assert contrast(palette.on_accent, palette.accent) >= 4.5
    for background in ("#f6f7f9", "#ffffff"):
        assert contrast(palette.link_light, background) >= 4.5
    for background in ("#111318", "#1a1d23"):
        assert contrast(palette.link_dark, background) >= 4.5
