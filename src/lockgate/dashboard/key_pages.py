"""The pages of keys: the list, one key, and its revocation."""

from typing import Any, Final
from urllib.parse import urlencode

from ..core.api_keys import ApiKey, KeyState
from ..core.key_format import PREFIX_LENGTH
from ..core.key_search import looks_like_key
from ..core.usage_history import Last
from ..errors import NotFound
from ..services.usage import UsageReport
from ..web.operations.operation import Reply
from .charts import chart_of, spans
from .key_rows import KeyRows, Marks, row_of
from .moments import moment_of
from .usage_pages import history_of, meters_of_key, span_of
from .visit import Visit

ON_A_PAGE: Final = 50
SEARCHED_FROM: Final = 10
"""Keys of a list above which there is a field to search it."""
SEARCH_LENGTH: Final = 100
"""Characters of a search, as many as a name has."""


async def list_keys(visit: Visit) -> Reply:
    """Show the keys of the organization, newest first: all, or the ones that match a search."""
    label, cursor = visit.query.one("label"), visit.query.one("cursor") or None
    text = _searched(visit, visit.query.one("q"))
    name, _, value = label.partition("=")
    labels = {name: value} if label else None
    keys = visit.gate.keys
    found = await keys.list(
        visit.owner, limit=ON_A_PAGE, cursor=cursor, labels=labels, matching=text
    )
    now = await keys.now()
    asked = _asked(text, label)
    many = cursor is not None or len(found.keys) > SEARCHED_FROM
    return visit.page(
        "keys.html",
        rows=KeyRows(visit, found.keys, now),
        mark=Marks(),
        cursor=found.cursor,
        is_first=cursor is None,
        label=label,
        text=text,
        query=urlencode(asked),
        searches=bool(asked) or many,
        longest=SEARCH_LENGTH,
    )


async def search_keys(visit: Visit) -> Reply:
    """Lead to the list of the keys that a visitor looks for.

    The text comes in a form, since it may be a whole key: only the part of it that lists show gets
    into a URL.
    """
    query = _asked(_searched(visit, visit.form.one("q")), visit.form.one("label"))
    return visit.redirect(f"/keys?{urlencode(query)}" if query else "/keys")


def _searched(visit: Visit, text: str) -> str:
    """Return what to search for: a text without the secret of a key."""
    text = text.strip()
    longest = PREFIX_LENGTH if looks_like_key(text, visit.gate.format) else SEARCH_LENGTH
    return text[:longest].rstrip("\N{HORIZONTAL ELLIPSIS}")


def _asked(text: str, label: str) -> dict[str, str]:
    return {name: value for name, value in (("q", text), ("label", label)) if value}


async def show_key(visit: Visit) -> Reply:
    """Show one key, and its usage where the gate keeps it."""
    key = await visit.gate.keys.get(visit.owner, visit.key)
    now = await visit.gate.keys.now()
    report = await history_of(visit, visit.owner, key.id, span_of(visit))
    facts = facts_of(visit, key, now, report)
    named = await meters_of_key(visit, key.id) if facts["live"] else []
    return visit.page("key.html", named=named, **facts)


def facts_of(visit: Visit, key: ApiKey, now: int, report: UsageReport | None) -> dict[str, Any]:
    """Return what the page of a key shows of it and of its usage, if that is kept."""
    span = span_of(visit)
    return {
        "key": key,
        "row": row_of(visit, key, now),
        "scopes": [(scope, visit.site.texts.find(f"scope.{scope}")) for scope in key.scopes],
        "live": key.state(now) is KeyState.ACTIVE,
        "address": None if report is None else _shown(report.last_address),
        "revoked": None if key.revoked_at is None else moment_of(key.revoked_at),
        "report": report,
        "chart": None if report is None else chart_of(visit, report, span),
        "spans": spans(visit, span),
    }


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


async def find_live(visit: Visit) -> tuple[ApiKey, int]:
    """Return the key of the path, if it is live, and the present instant.

    Raises:
        NotFound: the organization has no such key, or it has ended.
    """
    key, now = await visit.gate.keys.get(visit.owner, visit.key), await visit.gate.keys.now()
    if key.state(now) is not KeyState.ACTIVE:
        raise NotFound
    return key, now


def _shown(last: Last | None) -> str | None:
    return None if last is None else last.text
