"""Every state of the dashboard, to be looked at in a browser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from time import time
from typing import Any, NamedTuple

from lockgate import Gate, Limit, run
from lockgate.core.timestamps import DAY, HOUR, MINUTE, SECOND
from lockgate.errors import Refusal
from lockgate.options import StoreOptions, WebOptions
from lockgate.sessions import Session, StepUp
from tests.blackbox.browser import Browser
from tests.servers import reserved_port

from .consoles import ADA, AT, SESSIONS, Console, make_gate, on_starlette
from .robots import make_gate_with_agents, register

NAMES = (
    ("build server", ("*",), "team=infra"),
    ("image worker (production)", ("models:read", "models:write"), "env=production"),
    ("nightly jobs", ("jobs:*",), ""),
    ("Grafana", ("account:read",), ""),
    ("uploads from the warehouse, which has a very long name", ("upload:write",), "env=staging"),
    ("old laptop", ("jobs:read", "jobs:write", "models:read", "account:read"), ""),
)
EXPORT = Limit("export", "3/hour;100/day")
UPLOAD = Limit("upload", "5/15 minutes", by="key")
MANY = Session("org_1000", "ada", "ada@example.com")
OWNER = Session(None, "owner", "owner@example.com")
ROOT = Session(None, "root", "root@example.com")
NOBODY = Session(None, "nobody", "nobody@example.com")


STALE = ADA._replace(user="stale")
VIEWER = ADA._replace(role="viewer")
CLAIMED = Session(None, "claimer", "claimer@example.com")
FORGED = "a session that no verifier accepts"
ROLES = {"viewer": ("account:read",)}


class State(NamedTuple):
    """A page to be looked at."""

    name: str
    path: str
    """With the ids of keys by their names, as ``{build server}``."""
    session: Session | str | None = ADA
    """Or the value of a cookie."""
    then: str = ""
    """A script that leads from this page to the state; the next page has loaded when it is one."""


class Clock:
    """The time of a gate: moved by hand into the past first, then the real time."""

    def __init__(self) -> None:
        self.set: int | None = None

    def __call__(self) -> int:
        return self.set if self.set is not None else int(time() * SECOND)


def furnish(gate: Gate, clock: Clock) -> dict[str, str]:
    """Make keys of three weeks and traffic of nine days; return the ids of some keys by name."""
    now = clock()
    clock.set = now - 21 * DAY
    keys = run(_create(gate, clock))
    run(gate.organizations.place("org_1", "starter"))
    texts = list(keys.values())
    for hour in range(9 * 24, 0, -1):
        clock.set = now - hour * HOUR
        busy = 2 + (hour * 7919 % 11) + (9 if 8 <= -hour % 24 <= 18 else 0)
        for call in range(busy):
            with suppress(Refusal):
                run(gate.authenticate(texts[call % 4], "models:read", 1 + call % 2, "203.0.113.7"))
    for minute in range(55, 0, -1):
        clock.set = now - minute * MINUTE
        for _ in range(minute % 9):
            with suppress(Refusal):
                run(gate.authenticate(texts[0], "models:read", 1, "203.0.113.7"))
    clock.set = now - 2 * SECOND
    run(gate.authenticate(texts[4], "upload:write", address="203.0.113.7", limits=[UPLOAD]))
    for limits in [(EXPORT,)] * 4 + [()] * 30:
        with suppress(Refusal):
            run(gate.authenticate(texts[1], "models:read", 1, "203.0.113.7", limits=limits))
    full = run(gate.keys.create("org_full", "backfill"))
    run(gate.organizations.set_limits("org_full", rph=1))
    run(gate.authenticate(full.text, "models:read"))
    end = datetime.fromtimestamp(now / SECOND, UTC) + timedelta(hours=9)
    run(gate.organizations.set_limits("org_raised", rpm=500, until=end))
    ids = {name: run(gate.keys.find(text)).keys[0].id for name, text in keys.items()}
    run(gate.keys.revoke("org_1", ids["old laptop"]))
    run(gate.keys.rotate("org_1", ids["nightly jobs"], created_by="user:grace"))
    run(gate.flush())
    clock.set = None
    return ids


async def _create(gate: Gate, clock: Clock) -> dict[str, str]:
    texts: dict[str, str] = {}
    for number, (name, scopes, label) in enumerate(NAMES):
        found, _, value = label.partition("=")
        created = await gate.keys.create(
            "org_1",
            name,
            scopes,
            [None, 90, None, 22, 365, None][number],
            created_by=["user:ada", "user:grace.hopper@example.com", "agent"][number % 3],
            labels={found: value} if label else {},
            addresses=["203.0.113.0/24", "2001:db8::/32"] if number == 1 else [],
        )
        texts[name] = created.text
        assert clock.set is not None
        clock.set += 7 * HOUR
    for number in range(1000):
        await gate.keys.create("org_1000", f"worker {number:04}", labels={"fleet": "eu"})
    return texts


OPEN = "document.querySelector('details.table').open = true"
UNFOLD = "document.querySelector('details.ended').open = true"
MENU = "document.querySelector('details.menu').open = true"
SUBMIT = "document.querySelector('main form').requestSubmit(), true"
SCOPE = "document.querySelector('[name=scopes][value=\"models:read\"]').checked = true,"
FILL = f"document.getElementById('name').value = 'deploy script', {SCOPE} {SUBMIT}"
FULL = "document.querySelector('[name=access][value=full]').checked = true,"
FILL_FULL = f"document.getElementById('name').value = 'deploy script', {FULL} {SUBMIT}"
WRONG = (
    "document.querySelector('[name=access][value=some]').checked = true,"
    "document.querySelector('.advanced').open = true,"
    "document.getElementById('labels').value = 'no label', " + SUBMIT
)


NEW = Session("org_new", "ada", "ada@example.com")
"""An organization without keys, for which ``created`` creates one."""
FIND = f"document.getElementById('text').value = '{{Grafana}}', {SUBMIT}"
FIND_NONE = f"document.getElementById('text').value = 'acme_live_', {SUBMIT}"
TWICE = (
    f"document.getElementById('name').value = 'sent twice', {SCOPE}"
    "(form => fetch(form.action, {method: 'POST', body: new URLSearchParams(new FormData(form))})"
    ".then(() => form.requestSubmit()))(document.querySelector('main form')), true"
)
SEND_LIMIT = "document.getElementById('number').form.requestSubmit(), true"
WRONG_LIMIT = (
    "document.getElementById('number').value = 'many',"
    "document.getElementById('span').value = '',"
    "document.getElementById('until').value = '2020-01-01T00:00',"
    "document.getElementById('until').form.requestSubmit(), true"
)
WRONG_PLAN = (
    "document.getElementById('rpm').value = '+many',"
    "document.getElementById('rpm').form.requestSubmit(), true"
)
REPLACE = f"document.getElementById('number').value = '700', {SEND_LIMIT}"
UNCONFIRMED = f"document.getElementById('number').value = '7', {SEND_LIMIT}"
TOKEN = f"document.getElementById('dashboard_token').value = 'wrong', {SUBMIT}"
STATES = (
    State("empty", "/keys", NEW),
    State("usage-quiet", "/usage", NEW),
    State("list", "/keys"),
    State("list-ended", "/keys", ADA, UNFOLD),
    State("list-menu", "/keys", ADA, MENU),
    State("thousand", "/keys", MANY),
    State("searched", "/keys?q=WORKER+01&label=fleet%3Deu", MANY),
    State("none-found", "/keys?q=nothing", MANY),
    State("filtered", "/keys?label=env%3Dproduction"),
    State("new", "/keys/new"),
    State("problems", "/keys/new", ADA, WRONG),
    State("created", "/keys/new", NEW, FILL),
    State("created-before", "/keys/new", NEW, TWICE),
    State("one", "/keys", NEW),
    State("key", "/keys/{image worker (production)}?by=hour"),
    State("key-limits", "/keys/{uploads from the warehouse, which has a very long name}"),
    State("changed", "/keys/{build server}?done=updated&by=day"),
    State("edit", "/keys/{image worker (production)}/edit"),
    State("rotate", "/keys/{build server}/rotate"),
    State("rotated", "/keys/{nightly jobs}"),
    State("rotated-before", "/keys/{nightly jobs}/rotate"),
    State("ended", "/keys/{old laptop}/edit"),
    State("revoke", "/keys/{build server}/revoke"),
    State("revoked", "/keys/{old laptop}?done=revoked"),
    State("usage", "/usage?by=hour"),
    State("refused", "/usage?by=minute"),
    State("table", "/usage?by=day", ADA, OPEN),
    State("operator", "/operator", ROOT),
    State("operator-refused", "/operator?sort=refused", ROOT),
    State("operator-found", "/operator", ROOT, FIND),
    State("operator-none", "/operator", ROOT, FIND_NONE),
    State("organization", "/operator/organization?id=org_1", ROOT),
    State("organization-full", "/operator/organization?id=org_full", ROOT),
    State("organization-wrong", "/operator/organization?id=org_full", ROOT, WRONG_LIMIT),
    State("organization-wrong-plan", "/operator/organization?id=org_full", ROOT, WRONG_PLAN),
    State("organization-raised", "/operator/organization?id=org_raised&done=limit", ROOT),
    State("organization-replaces", "/operator/organization?id=org_raised", ROOT, REPLACE),
    State("organization-unknown", "/operator/organization?id=org_typo", ROOT, UNCONFIRMED),
    State("operator-key", "/operator/key?id=org_1&key={build server}", ROOT),
    State("claim", "/claim", OWNER),
    State("claimed", "/claim?done=claimed", CLAIMED),
    State("claim-empty", "/claim", NOBODY),
    State("sign-in", "/keys", None),
    State("wrong-token", "/keys", None, TOKEN),
    State("expired-session", "/keys", FORGED),
    State("step-up", "/keys/new", STALE, FILL_FULL),
    State("viewer", "/keys", VIEWER),
    State("viewer-key", "/keys/{build server}", VIEWER),
    State("role-refused", "/keys/new", VIEWER),
    State("no-organization", "/keys", NOBODY),
    State("not-found", "/nowhere"),
)
"""Every state of a service that was furnished, in the order in which they are opened."""


@contextmanager
def furnished(**options: Any) -> Iterator[tuple[Console, dict[str, str]]]:
    """Serve a dashboard with something on every page."""
    clock = Clock()

    def make(origin: str) -> Gate:
        asking = StepUp(lambda asked: asked.session.user != "stale")
        sessions = WebOptions(session_roles=ROLES, step_up=asking)
        return make_gate_with_agents(origin, clock=clock, web_options=sessions)

    options["operator"] = lambda session, _: session.user == "root"
    options["name_of"] = {"org_1": "Acme Images & Films", "org_full": "Northwind"}.get
    options = {"name": "Acme Images", "example": "https://api.acme.example/v1/models", **options}
    with on_starlette(make, sign_in="/login?next={next}", sign_out="/logout", **options) as console:
        ids = furnish(console.gate, clock)
        for name in ("render bot", "holiday photos"):
            register(console, "owner@example.com", name)
            register(console, "claimer@example.com", name)
        claims = console.gate.accounts.claims if console.gate.accounts else None
        assert claims is not None
        for account in run(claims.list(CLAIMED, 1)).accounts:
            run(claims.claim(CLAIMED, account.account.organization, revoke_keys=False))
        yield console, ids


@contextmanager
def without_store() -> Iterator[Console]:
    """Serve a dashboard whose store is away."""
    options = StoreOptions(deadline=1.0)
    with (
        reserved_port() as port,
        on_starlette(
            lambda origin: make_gate(
                origin, store=f"redis://127.0.0.1:{port}/0", store_options=options
            ),
            name="Acme",
        ) as console,
    ):
        yield console


def open_state(
    browser: Browser, console: Console, state: State, ids: Mapping[str, str] | None = None
) -> None:
    """Lead a browser to a state."""
    browser.clear_cookies()
    if state.session is not None:
        cookie = state.session
        if isinstance(cookie, Session):
            cookie = SESSIONS.issue(cookie)
        browser.set_cookie("__session", cookie, console.origin)
    browser.open(f"{console.origin}{AT}{state.path.format_map(ids or {})}")
    if state.then in {OPEN, UNFOLD, MENU}:
        browser.run(state.then)
    elif state.then:
        browser.run("window.isOld = true")
        then = state.then.replace("{Grafana}", (ids or {}).get("Grafana", ""))
        browser.run(f"setTimeout(() => {{ {then} }}), true")
        browser.until("!window.isOld && document.readyState === 'complete'")
