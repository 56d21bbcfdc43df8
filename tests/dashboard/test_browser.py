"""The pages in a real browser: quiet, accessible, by keyboard alone, and without scripts.

With ``LOCKGATE_SCREENSHOTS`` set to a folder, every state is photographed into it at 360, 768 and
1440 pixels, light and dark.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lockgate import Plan, run
from lockgate.sessions import Session
from tests.blackbox.browser import Browser
from tests.servers import missing

from .consoles import ADA, AT, KEY, SESSIONS, Console, make_gate, on_flask, on_starlette
from .robots import register
from .states import OPEN, ROOT, SCOPE, STATES, State, furnished, open_state, without_store

Scene = tuple[Console, dict[str, str]]
FOCUSED = (
    r"(e => e.innerText?.replace(/\s+/g, ' ').trim() || e.name || e.id)(document.activeElement)"
)
"""What a person hears."""
WIDE = "document.documentElement.scrollWidth > window.innerWidth"
LEFT_OUT = ["details:not([open]) > :not(summary)", "svg > *"]
"""What no person sees, and what is no text: axe-core would spend most of its time there."""
ALIKE = "document.querySelectorAll('tbody tr:nth-child(n+12)').forEach(row => row.remove()), true"
STALE = "document.body.innerText.includes('The service does not answer')"
SEEN = "document.activeElement.matches(':focus-visible, body')"  # At the end the body has it.

FOCUS_GIVEN = "(e => !e || e === document.activeElement)(document.querySelector('[autofocus]'))"
"""The browser gives a field the focus when it next draws the page, and complains if a key came
first."""


@cache
def axe() -> str:
    """The source of axe-core."""
    named = os.environ.get("LOCKGATE_AXE")
    if named:
        return Path(named).read_text()
    found = importlib.util.find_spec("axe_core_python")
    if found is None or found.origin is None:
        missing("axe-core")
    assert found is not None and found.origin is not None
    return Path(found.origin).with_name("axe.min.js").read_text()


def findings(browser: Browser, rules: str = "") -> list[dict[str, Any]]:
    """What axe-core finds on a page, with best practices; or by some rules alone."""
    if not browser.run("!!window.axe"):
        browser.run(f"{axe()}; true")
    options = f"{{runOnly: ['{rules}'], " if rules else "{"
    found: list[dict[str, Any]] = browser.run(
        f"axe.run({{exclude: {LEFT_OUT}}}, {options} resultTypes: ['violations']}})"
        ".then(r => r.violations.map(v => ("
        "{rule: v.id, where: v.nodes.map(n => n.html + ' ' + n.failureSummary)})))"
    )
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with furnished() as (console, ids):
        yield console, ids


def photograph(browser: Browser, state: State, width: int, *, dark: bool) -> None:
    folder = os.environ.get("LOCKGATE_SCREENSHOTS")
    if folder:
        name = f"{state.name}-{width}-{'dark' if dark else 'light'}.png"
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, name).write_bytes(browser.screenshot())


def look(browser: Browser, state: State) -> None:
    """Check a state as it is shown at each width, light and dark."""
    for width in (360, 768, 1440):
        for dark in (True, False) if os.environ.get("LOCKGATE_SCREENSHOTS") else (False,):
            browser.show_at(width, dark=dark)
            browser.run("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
            photograph(browser, state, width, dark=dark)
            assert not browser.run(WIDE), f"{state.name} scrolls sideways at {width}"
    browser.run(ALIKE)
    # A table becomes a list at 360. Only colours differ in the dark, and alike at every width.
    for width, dark, rules in ((1440, False, ""), (1440, True, "color-contrast"), (360, False, "")):
        browser.show_at(width, dark=dark)
        found = findings(browser, rules)
        assert not found, f"{state.name} at {width}: {json.dumps(found, indent=1)}"


HARMLESS = "Failed to load resource", "Autofocus processing was blocked"
"""The status of refused pages; and a key or a click that came before the page was first drawn."""


def quiet(browser: Browser) -> None:
    """Check that the browser had nothing to say."""
    told, browser.told[:] = list(browser.told), []
    assert [one for one in told if not any(text in one for text in HARMLESS)] == []


@pytest.mark.parametrize("state", STATES, ids=[state.name for state in STATES])
def test_every_state_is_accessible_and_quiet_at_every_width(
    browser: Browser, scene: Scene, state: State
) -> None:
    console, ids = scene
    browser.told.clear()
    browser.show_at(1440)
    open_state(browser, console, state, ids)
    look(browser, state)
    quiet(browser)


def test_a_store_that_is_away_is_told_on_a_page(browser: Browser) -> None:
    with without_store() as console:
        page = console.get("/keys", 503)
        page.sees("Temporarily unavailable")
        assert "Traceback" not in page.html and "redis" not in page.html.lower()
        browser.show_at(1440)
        state = State("store-away", "/keys")
        open_state(browser, console, state)
        look(browser, state)
    browser.told.clear()


def test_a_spent_budget_is_told_on_a_page(browser: Browser) -> None:
    few = Plan("anonymous", rpm=2, rph=100, rpd=100, concurrent=0)
    with on_starlette(lambda origin: make_gate(origin, anonymous=few), name="Acme") as console:
        for _ in range(2):
            console.get("/keys")
        browser.show_at(1440)
        state = State("too-many", "/keys")
        open_state(browser, console, state)
        look(browser, state)
    quiet(browser)


def test_a_field_without_its_label_is_found(browser: Browser, scene: Scene) -> None:
    console, _ = scene
    open_state(browser, console, State("new", "/keys/new"))
    browser.run("document.querySelector('label[for=name]').remove()")
    assert "label" in {found["rule"] for found in findings(browser)}


class Fingers:
    """A person with a keyboard alone."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser

    def tab_to(self, name: str) -> None:
        for _ in range(60):
            self.browser.press("Tab")
            assert self.browser.run(SEEN), "the focus cannot be seen"
            if self.browser.run(FOCUSED) == name:
                return
        raise AssertionError(f"the Tab key does not reach {name!r}")

    def follow(self, name: str, sees: str, key: str = "Enter") -> None:
        """Go to a link or button, press it, and wait for what the next page says."""
        self.tab_to(name)
        self.browser.run("window.isOld = true")
        self.browser.press(key)
        self.browser.until("!window.isOld && document.readyState === 'complete'")
        self.browser.until(FOCUS_GIVEN)
        self.browser.until(f"document.body.innerText.includes({json.dumps(sees)})")


@pytest.mark.parametrize(
    ("place", "scripts"),
    [(on_starlette, False), (on_flask, True)],
    ids=["without scripts", "with scripts"],
)
def test_a_key_is_created_and_revoked_by_keyboard_alone(
    browser: Browser, place: Any, scripts: bool
) -> None:
    with place(make_gate, name="Acme", example="https://api.acme.example/v1") as console:
        browser.told.clear()
        browser.show_at(1024)
        browser.clear_cookies()
        browser.set_cookie("__session", SESSIONS.issue(ADA), console.origin)
        browser.open(f"{console.origin}{AT}/keys")
        browser.allow_scripts(scripts)
        try:
            key = _walk(Fingers(browser), console)
        finally:
            browser.allow_scripts(True)
        assert console.status_with(key) == 401
        quiet(browser)


def _walk(fingers: Fingers, console: Console) -> str:
    """Create a key, leave its page, and revoke it; return its text."""
    browser = fingers.browser
    browser.press("Tab")
    assert browser.run(FOCUSED) == "Skip to content"
    fingers.follow("Create new key", "The key is shown once")
    assert browser.run("document.activeElement.id") == "name"
    browser.type("keyboard")
    while browser.run("document.activeElement.value") != "models:read":
        fingers.tab_to("scopes")
    browser.press(" ")
    fingers.follow("Create key", "Your new key: keyboard")
    text: str = browser.run("document.getElementById('new-key').value")
    assert KEY.fullmatch(text)
    assert console.status_with(text) == 200
    fingers.follow("I have stored the key", "Key ID")
    assert text not in browser.run("document.documentElement.outerHTML")
    fingers.follow("Revoke", "Revoke this key?")
    fingers.follow("Revoke key", "The key was revoked", key=" ")
    return text


def begin(browser: Browser, scene: Scene, session: Session | None, path: str) -> Fingers:
    """Open a page for a person with a keyboard."""
    browser.told.clear()
    browser.show_at(1024)
    open_state(browser, scene[0], State("", path, session))
    browser.until(FOCUS_GIVEN)
    return Fingers(browser)


def test_a_key_is_edited_and_rotated_by_keyboard_alone(browser: Browser, scene: Scene) -> None:
    gate = scene[0].gate
    run(gate.keys.create("org_fingers", "old name", ["jobs:read"]))
    fingers = begin(browser, scene, Session("org_fingers", "ada"), "/keys")
    fingers.follow("old name", "Key ID")
    fingers.follow("Edit", "The key itself stays the same")
    fingers.tab_to("name")
    browser.type("new name")
    fingers.follow("Save changes", "The key was changed.")
    fingers.follow("Rotate", "The old key works for")
    fingers.follow("Rotate key", "Your new key: new name")
    browser.until("!document.body.innerText.includes(' UTC')")
    fingers.tab_to("Copy")
    fingers.follow("I have stored the key", "Key ID")
    fingers.follow("Usage", "Limits now")
    fingers.follow("Last 90 days", "Over time")
    names = [key.name for key in run(gate.keys.list("org_fingers")).keys]
    assert names == ["new name"] * 2
    quiet(browser)


@pytest.mark.parametrize(
    ("session", "path", "button", "told", "field"),
    [
        (Session("org_fingers"), "/keys/new", "Create key", "The key was not saved", "name"),
        (ROOT, "/operator/organization?id=org_full", "Set limit", "were not changed", "number"),
    ],
)
def test_the_problems_of_a_form_have_the_focus_and_lead_to_their_fields(
    browser: Browser,
    scene: Scene,
    session: Session,
    path: str,
    button: str,
    told: str,
    field: str,
) -> None:
    fingers = begin(browser, scene, session, path)
    fingers.follow(button, told)
    assert told in browser.run("document.activeElement.innerText")
    browser.press("Tab")
    browser.press("Enter")
    browser.until(f"document.activeElement.id === '{field}'")
    quiet(browser)


def test_a_workspace_is_connected_by_keyboard_alone(browser: Browser, scene: Scene) -> None:
    made = register(scene[0], "fingers@example.com", "keyboard bot")
    owner = Session(None, "fingers", "fingers@example.com")
    fingers = begin(browser, scene, owner, "/claim")
    fingers.tab_to("keys")
    browser.press(" ")
    fingers.follow("Connect", "The workspace is connected to your login.")
    fingers.follow("Open keyboard bot", made.api_key[:15])
    assert scene[0].status_with(made.api_key) == 200
    quiet(browser)


def test_an_agent_signs_in_and_out_by_keyboard_alone(browser: Browser, scene: Scene) -> None:
    made = register(scene[0], "other@example.com", "keyboard agent")
    fingers = begin(browser, scene, None, "/keys")
    fingers.tab_to("dashboard_token")
    browser.type(made.dashboard_token)
    fingers.follow("Sign in as the agent", made.api_key[:15])
    fingers.follow("Sign out", "Agents sign in with their dashboard token")
    quiet(browser)


def test_what_was_entered_is_back_after_a_new_sign_in(browser: Browser, scene: Scene) -> None:
    console, owner = scene[0], Session("org_expired", "ada")
    fingers = begin(browser, scene, owner, "/keys/new")
    fingers.tab_to("name")
    browser.type("typed before")
    browser.set_cookie("__session", "expired", console.origin)
    fingers.follow("Create key", "What you entered is kept for 30 minutes")
    browser.set_cookie("__session", SESSIONS.issue(owner), console.origin)
    back = browser.run(
        "new URL(document.querySelector('main a.button').href).searchParams.get('next')"
    )
    browser.open(f"{console.origin}{back}")
    assert browser.run("document.getElementById('name').value") == "typed before"
    fingers.tab_to("scopes")
    browser.press(" ")
    fingers.follow("Create key", "Your new key: typed before")
    open_state(browser, console, State("", "/keys/new", owner))
    assert browser.run("document.getElementById('name').value") == "", "it is shown once"
    quiet(browser)


def test_no_column_of_the_list_is_cut_off_and_the_menus_are_below_each_other(
    browser: Browser, scene: Scene
) -> None:
    ends = (
        "[...document.querySelectorAll('.menu summary')].map(e => e.getBoundingClientRect().right)"
    )
    for width in (840, 1000, 1020, 1100, 1440):
        browser.show_at(width)
        open_state(browser, scene[0], State("", "/keys"), scene[1])
        assert browser.run(
            "(card => card.scrollWidth <= card.clientWidth)(document.querySelector('.flush'))"
        ), width
        before = browser.run(ends)
        assert len(before) >= 5 and len({*before}) == 1, width
        browser.run("document.querySelector('details.menu').open = true")
        assert browser.run(ends) == before, width
    quiet(browser)


def test_the_table_of_a_chart_breaks_no_word_on_a_phone(browser: Browser, scene: Scene) -> None:
    browser.show_at(360)
    open_state(browser, scene[0], State("", "/usage?by=day"), scene[1])
    browser.run(OPEN)
    lines = "document.querySelector('.scroll th').firstChild"
    lines = f"(r => (r.selectNode({lines}), r.getClientRects().length))(document.createRange())"
    assert browser.run(lines) == 1
    assert not browser.run(WIDE), "a column for each named limit scrolls inside the table"
    quiet(browser)


def test_the_keys_that_ended_are_unfolded_by_keyboard_alone_without_scripts(
    browser: Browser, scene: Scene
) -> None:
    created = run(scene[0].gate.keys.create("org_folded", "ended key"))
    run(scene[0].gate.keys.create("org_folded", "live key"))
    run(scene[0].gate.keys.revoke("org_folded", created.key.id))
    fingers = begin(browser, scene, Session("org_folded", "ada"), "/keys")
    browser.allow_scripts(False)
    try:
        shown = "document.querySelector('.ended table').checkVisibility()"
        assert not browser.run(shown)
        fingers.tab_to("Revoked and expired keys (1)")
        browser.press("Enter")
        browser.until(shown)
        fingers.follow("ended key", "Key ID")
    finally:
        browser.allow_scripts(True)
    quiet(browser)


def test_a_key_is_revoked_from_the_menu_of_its_row_on_a_phone(
    browser: Browser, scene: Scene
) -> None:
    created = run(scene[0].gate.keys.create("org_phone", "in a menu"))
    fingers = begin(browser, scene, Session("org_phone", "ada"), "/keys")
    browser.show_at(360)
    fingers.tab_to("Actions : in a menu")
    browser.press("Enter")
    fingers.follow("Revoke", "Revoke this key?")
    fingers.follow("Revoke key", "The key was revoked")
    assert scene[0].status_with(created.text) == 401
    quiet(browser)


def test_an_operator_works_by_keyboard_alone(browser: Browser, scene: Scene) -> None:
    gate = scene[0].gate
    created = run(gate.keys.create("org_night", "leaked key"))
    fingers = begin(browser, scene, ROOT, "/operator")
    fingers.tab_to("text")
    browser.type(created.text)
    fingers.follow("Search", "The whole text is this key's.")
    fingers.follow("org_night", "Plan and limits")
    fingers.tab_to("rpm")
    browser.type("25")
    fingers.follow("Change plan", "The plan was changed.")
    assert run(gate.organizations.limits("org_night")).own["rpm"] == 25
    fingers.tab_to("Revoke leaked key")
    browser.press("Enter")
    fingers.follow("Revoke key", "The key was revoked.")
    assert scene[0].status_with(created.text) == 401
    quiet(browser)


def test_the_copy_buttons_put_the_key_and_the_command_on_the_clipboard(browser: Browser) -> None:
    with on_starlette(example="https://api.acme.example/v1") as console:
        fill = next(state.then for state in STATES if state.name == "created")
        open_state(browser, console, State("", "/keys/new", ADA, fill))
        browser.allow_clipboard(console.origin)
        fingers, copied = Fingers(browser), ""
        for field in ("new-key", "curl"):
            fingers.tab_to("Copy")
            browser.press("Enter")
            browser.until(f"document.getElementById('told').textContent === {json.dumps('Copied')}")
            copied = browser.run("navigator.clipboard.readText()")
            assert copied == browser.run(f"document.getElementById('{field}').value")
            assert KEY.search(copied)
            browser.run("document.getElementById('told').textContent = '', true")
        assert copied.startswith("curl https://api.acme.example/v1")
    quiet(browser)


def test_without_a_clipboard_the_key_is_selected_and_the_page_tells_to_copy_it(
    browser: Browser,
) -> None:
    with on_starlette() as console:
        fill = next(state.then for state in STATES if state.name == "created")
        open_state(browser, console, State("", "/keys/new", ADA, fill))
        browser.run("navigator.clipboard.writeText = () => Promise.reject(new Error()), true")
        fingers = Fingers(browser)
        fingers.tab_to("Copy")
        browser.press("Enter")
        browser.until("document.getElementById('told').textContent.includes('by hand')")
        assert browser.run("document.getElementById('told').offsetHeight") > 10, "it is not seen"
        assert KEY.fullmatch(browser.run("getSelection().toString()"))
    quiet(browser)


def test_a_reload_after_the_creation_creates_no_second_key(browser: Browser) -> None:
    with on_starlette() as console:
        state = State(
            "",
            "/keys/new",
            ADA,
            f"document.getElementById('name').value = 'one', {SCOPE}"
            "document.querySelector('main form').requestSubmit(), true",
        )
        open_state(browser, console, state)
        browser.until("location.pathname.startsWith('/settings/keys/')")
        browser.until("!location.pathname.endsWith('/new')")
        browser.run("window.isOld = true")
        browser.run("location.reload(), true")
        browser.until("!window.isOld && document.readyState === 'complete'")
        browser.until("document.body.innerText.includes('Key ID')")
        assert len(run(console.gate.keys.list("org_1")).keys) == 1


def test_a_form_that_is_clicked_twice_shows_the_one_key(browser: Browser) -> None:
    with on_starlette() as console:
        twice = (
            f"document.getElementById('name').value = 'one', {SCOPE}"
            "(form => (form.requestSubmit(), form.requestSubmit()))"
            "(document.querySelector('main form')), true"
        )
        open_state(browser, console, State("", "/keys/new", ADA, twice))
        browser.until("document.body.innerText.includes('Your new key: one')")
        assert len(run(console.gate.keys.list("org_1")).keys) == 1


def test_scopes_stay_on_their_lines_and_a_date_is_asked_for_only_if_chosen(
    browser: Browser, scene: Scene
) -> None:
    scopes = ["models:read", "models:write", "account:read", "upload:write"]
    run(scene[0].gate.keys.create("org_scopes", "w" * 100, scopes, created_by="user:" + "g" * 60))
    begin(browser, scene, Session("org_scopes", "ada"), "/keys")
    for width in (360, 768, 834, 1024, 1440):
        browser.show_at(width)
        lines = (
            "[...document.querySelectorAll('.chip')].map(chip => {"
            "const range = document.createRange(); range.selectNodeContents(chip);"
            "return range.getClientRects().length})"
        )
        assert {*browser.run(lines)} == {1}, width
        assert not browser.run(WIDE)
    begin(browser, scene, ROOT, "/operator/organization?id=org_full")
    height = "document.querySelector('.end').offsetHeight"
    assert browser.run(height) == 0
    browser.run("document.getElementById('span').value = '', true")
    assert browser.run(height) > 10
    browser.run(
        "document.getElementById('until').value = '2030-07-01T09:30',"
        "document.getElementById('until').dispatchEvent(new Event('input')), true"
    )
    zone = browser.run("document.getElementById('until-zone').value")
    assert len(zone) == 6 and zone[0] in "+-" and zone[3] == ":"
    quiet(browser)


def test_the_limits_on_the_page_follow_the_traffic(browser: Browser) -> None:
    with on_starlette() as console:
        key = console.create()
        open_state(browser, console, State("", "/usage"))
        shown = "document.querySelector('[data-meter=minute] .text').textContent"
        assert browser.run(shown) == "0 of 10"
        assert console.status_with(key) == 200
        # As when the person comes back to the page; it asks every five seconds besides.
        browser.run("document.dispatchEvent(new Event('visibilitychange')), true")
        browser.until(f"{shown} === '1 of 10'")
        bar = "document.querySelector('[data-meter=minute] [role=meter]')"
        assert browser.run(f"{bar}.getAttribute('aria-valuenow')") == "1"


def test_live_numbers_tell_that_the_service_does_not_answer(browser: Browser) -> None:
    with on_starlette() as console:
        open_state(browser, console, State("", "/usage"))
        assert not browser.run(STALE)
    browser.run("document.dispatchEvent(new Event('visibilitychange')), true")
    browser.until(STALE)


def test_live_numbers_tell_that_the_session_has_ended_and_ask_no_more(
    browser: Browser, scene: Scene
) -> None:
    open_state(browser, scene[0], State("", "/usage"))
    browser.set_cookie("__session", "ended", scene[0].origin)
    browser.run("window.asked = 0, (f => window.fetch = (...a) => (asked++, f(...a)))(fetch), true")
    again = "document.dispatchEvent(new Event('visibilitychange')), true"
    browser.run(again)
    browser.until("document.body.innerText.includes('Your session has ended: these numbers may')")
    assert not browser.run(STALE)
    before = browser.run("asked")
    assert browser.run(f"{again} && asked") == before
    browser.run("document.querySelector('#ended a').click()")
    browser.until("document.title.startsWith('Sign in')")
    browser.told.clear()
