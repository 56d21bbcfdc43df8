"""The pages of keys: the list, one key, and its revocation."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from ..core.api_keys import ApiKey, KeyState
from ..core.changes import Actor, Change
from ..core.key_format import PREFIX_LENGTH
from ..core.key_search import looks_like_key
from ..core.timestamps import SECOND
from ..core.usage_history import By, Last
from ..errors import KeyNotLive, NotFound
from ..services.keys.keys import KeyPage
from ..services.usage.reports import UsageReport
from ..web.operations.operation import Reply
from .charts import SPANS, chart_of, spans
from .key_rows import KeyRows, Marks, row_of
from .moments import moment_of
from .usage_pages import history_of, meters_of_key, span_of
from .visit import Visit

ON_A_PAGE: Final = 50
SEARCHED_FROM: Final = 1
"""Keys of a list above which there are fields to filter it."""
STATES: Final = (KeyState.ACTIVE, KeyState.EXPIRED, KeyState.REVOKED)
_STEPS_OF_LOG: Final = (24, 249, 249, 249)
"""Records of the change log that a page reads at once: most often the first are enough."""
SEARCH_LENGTH: Final = 100
"""Characters of a search, as many as a name has."""


async def list_keys(visit: Visit) -> Reply:
    """Show the live keys of the organization, newest first, and the newest ones that ended,
    folded; or the keys that match a search, live ones first."""
    label, cursor = visit.query.one("label"), visit.query.one("cursor") or None
    text = _searched(visit, visit.query.one("q"))
    name, _, value = label.partition("=")
    labels = {name: value} if label else None
    keys = visit.gate.keys
    state = _state(visit.query.one("state"))
    asked = _asked(text, label, state)
    if asked:
        await visit.charge()
    newest, now = KeyPage([], None), await keys.now()
    is_overview = not asked and cursor is None
    if is_overview:
        newest = await keys.list(visit.owner, limit=ON_A_PAGE)
    ended = [key for key in newest.keys if key.state(now) is not KeyState.ACTIVE]
    if is_overview and not (ended and newest.cursor):
        live = [key for key in newest.keys if key.state(now) is KeyState.ACTIVE]
        found = KeyPage(live, newest.cursor)
    else:
        shown = state if asked else KeyState.ACTIVE
        found = await keys.list(
            visit.owner, limit=ON_A_PAGE, cursor=cursor, labels=labels, matching=text, state=shown
        )
    many = cursor is not None or len(found.keys) + len(ended) > SEARCHED_FROM
    live_first = sorted(found.keys, key=lambda key: key.state(now) is not KeyState.ACTIVE)
    return visit.page(
        "keys.html",
        rows=KeyRows(visit, live_first, now),
        ended=KeyRows(visit, ended, now),
        has_more_ended=newest.cursor is not None,
        mark=Marks(),
        cursor=found.cursor,
        is_first=cursor is None,
        label=label,
        text=text,
        state=state,
        states=STATES,
        query=urlencode(asked),
        searches=bool(asked) or many,
        longest=SEARCH_LENGTH,
    )


async def search_keys(visit: Visit) -> Reply:
    """Lead to the list of the keys that a visitor looks for.

    The text comes in a form, since it may be a whole key: only the part of it that lists show gets
    into a URL.
    """
    form = visit.form
    text, state = _searched(visit, form.one("q")), _state(form.one("state"))
    query = _asked(text, form.one("label"), state)
    return visit.redirect(f"/keys?{urlencode(query)}" if query else "/keys")


def _searched(visit: Visit, text: str) -> str:
    """Return what to search for: a text without the secret of a key."""
    text = text.strip()
    format = visit.gate.format
    is_secret = looks_like_key(text, format) or format.holds_credential(text)
    longest = PREFIX_LENGTH if is_secret else SEARCH_LENGTH
    return text[:longest].rstrip("\N{HORIZONTAL ELLIPSIS}")


def _state(name: str) -> KeyState | None:
    return next((state for state in STATES if state.value == name), None)


def _asked(text: str, label: str, state: KeyState | None) -> dict[str, str]:
    """Return the parameters of a list that is filtered; none without a filter."""
    asked = ("q", text), ("label", label), ("state", "" if state is None else state.value)
    return {name: value for name, value in asked if value}


async def show_key(visit: Visit) -> Reply:
    """Show one key, and its usage where the gate keeps it."""
    key = await visit.gate.keys.get(visit.owner, visit.key)
    now = await visit.gate.keys.now()
    report = await history_of(visit, visit.owner, key.id, span_of(visit))
    facts = facts_of(visit, key, now, report, await past_of(visit, key), visit.actor_shown)
    named = await meters_of_key(visit, key) if facts["live"] else []
    return visit.page("key.html", named=named, **facts)


class Past(NamedTuple):
    """What the change log tells of a key."""

    revoker: Actor | None
    """The actor that revoked it; None: it is not revoked, or the record is too old."""
    predecessor: ApiKey | None
    """The key that it replaces; None: none, or the record is too old."""


async def past_of(visit: Visit, key: ApiKey) -> Past:
    """Return what the change log tells of a key, in about a thousand of its latest records."""
    gate, cursor = visit.gate, None
    revoker: Actor | None = None
    for step in _STEPS_OF_LOG:
        page = await gate.changes.list(key.organization, limit=step, cursor=cursor)
        for change in page.changes:
            if revoker is None and _revokes(change, key):
                revoker = change.actor
            if change.creates(key.id):
                return Past(revoker, await _predecessor(visit, key, change))
        cursor = page.cursor
        if cursor is None:
            break
    return Past(revoker, None)


def _revokes(change: Change, key: ApiKey) -> bool:
    """Return whether a key was revoked by a change: its own, or one to all keys."""
    if key.revoked_at is None:
        return False
    if change.key == key.id:
        ended = any(name == "revoked_at" for name, _ in change.after)
        return change.action == "key_revoked" or (change.action == "key_rotated" and ended)
    revokes_all = change.key is None and ("revoke_keys", True) in change.after
    return revokes_all and abs(change.at - key.revoked_at) < SECOND


async def _predecessor(visit: Visit, key: ApiKey, change: Change) -> ApiKey | None:
    """Return the key that a new key replaces, unless that one was removed since."""
    if change.action != "key_rotated" or change.key is None:
        return None
    with suppress(NotFound):
        return await visit.gate.keys.get(key.organization, change.key)
    return None


def facts_of(
    visit: Visit,
    key: ApiKey,
    now: int,
    report: UsageReport | None,
    past: Past,
    named: Callable[[Actor], str],
) -> dict[str, Any]:
    """Return what the page of a key shows of it, of its past, and of its usage, if that is kept.

    Args:
        visit: the visit of the page.
        key: the key that it shows.
        now: the present instant.
        report: the usage; None: none is kept.
        past: what the change log tells.
        named: returns an actor as the visitor may know it.
    """
    span = span_of(visit)
    return {
        "revoker": None if past.revoker is None else named(past.revoker),
        "predecessor": past.predecessor,
        "used": _used(visit, key, now, span),
        "key": key,
        "row": row_of(visit, key, now),
        "notices": ("updated",) if key.revoked_at is None else ("revoked",),
        "scopes": described_scopes(visit, key),
        "live": key.state(now) is KeyState.ACTIVE,
        "address": None if report is None else _shown(report.last_address),
        "revoked": None if key.revoked_at is None else moment_of(key.revoked_at),
        "report": report,
        "chart": None if report is None else chart_of(visit, report, span),
        "spans": spans(visit, span),
    }


def _used(visit: Visit, key: ApiKey, now: int, by: By) -> dict[str, Any] | None:
    """Return when a key was last used, and the first other span of a chart that shows it."""
    used = key.last_used_at
    if used is None:
        return None
    shown = (name for name, span in SPANS.items() if now - used < span.length * (span.cells - 1))
    return {"ago": visit.ago(used, now), "span": next((n for n in shown if n != by), None)}


def described_scopes(visit: Visit, key: ApiKey) -> list[tuple[str, str | None]]:
    """Return the scopes of a key with their descriptions."""
    return [(scope, visit.site.texts.find(f"scope.{scope}")) for scope in key.scopes]


async def confirm_revocation(visit: Visit) -> Reply:
    """Say what the revocation of a key stops, and ask for it."""
    key = await visit.gate.keys.get(visit.owner, visit.key)
    now = await visit.gate.keys.now()
    if key.state(now) is KeyState.REVOKED:
        return visit.redirect(f"/keys/{key.id}")
    report: UsageReport | None = await history_of(visit, visit.owner, key.id, "hour")
    return visit.page(
        "revoke.html",
        key=key,
        row=row_of(visit, key, now),
        address=None if report is None else _shown(report.last_address),
        week=None if report is None else report.admitted,
    )


async def revoke_key(visit: Visit) -> Reply:
    """Revoke a key."""
    successors = visit.form.one("successors") == "yes"
    with visit.changing():
        await visit.gate.keys.revoke(visit.owner, visit.key, successors=successors)
    return visit.redirect(f"/keys/{visit.key}?done=revoked")


async def find_live(visit: Visit) -> ApiKey:
    """Return the key of the path, if it is live.

    Raises:
        NotFound: the organization has no such key.
        KeyNotLive: it has ended.
    """
    key, now = await visit.gate.keys.get(visit.owner, visit.key), await visit.gate.keys.now()
    if key.state(now) is not KeyState.ACTIVE:
        raise KeyNotLive
    return key


def _shown(last: Last | None) -> str | None:
    return None if last is None else last.text
