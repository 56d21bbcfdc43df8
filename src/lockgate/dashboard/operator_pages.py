"""The pages of operators: find organizations and keys, explain refusals, change plans, audit."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ..core.key_search import holds_secret
from ..core.plans import LIMITS, is_id
from ..core.timestamps import iso8601
from ..errors import NotFound, RateLimitExceeded
from ..services.explain.findings import Explanation
from ..services.organizations import ListedOrganization
from ..services.store_errors import asking
from ..services.usage.most_refused import refusals
from ..web.operations.operation import Reply
from . import drafts, operator_limits
from .change_rows import change_rows, operator_actor
from .forms import Form
from .key_pages import facts_of, past_of
from .key_rows import row_of
from .moments import moment_of
from .operator_limits import Problems
from .usage_pages import history_of, keeps_history, meters_of, named_meters, span_of
from .visit import Visit

ON_A_PAGE: Final = 50
_CHANGES: Final = 10
_KEYS: Final = 10
_WALKED_AT_ONCE: Final = 200
_STEPS_AT_MOST: Final = 5
"""Pages of organizations that a search reads."""


class Row(NamedTuple):
    """An organization in a list."""

    organization: ListedOrganization
    ago: str | None
    """About how long ago it was used; None: never, or no key is live."""
    refused: int | None
    """Its requests that were refused in 24 hours; None: they are not known."""


async def search(visit: Visit) -> Reply:
    """Show organizations, and the field to search.

    In the order of their refusals a page shows those with refusals among 200 organizations, since
    a store has no index of refusals (G10).
    """
    cursor = visit.query.one("cursor") or None
    by_refusals = keeps_history(visit) and visit.query.one("sort") == "refused"
    if by_refusals:
        await visit.charge()
    limit = _WALKED_AT_ONCE if by_refusals else ON_A_PAGE
    page = await visit.gate.organizations.list(limit=limit, cursor=cursor)
    rows = await _rows(visit, page.organizations)
    if by_refusals:
        rows = sorted((row for row in rows if row.refused), key=lambda row: -(row.refused or 0))
    await visit.learn_names(row.organization.id for row in rows)
    return visit.page(
        "operator.html",
        rows=rows,
        number=len(page.organizations),
        by_refusals=by_refusals,
        has_refusals=keeps_history(visit),
        cursor=page.cursor,
        is_first=cursor is None,
        found=None,
    )


async def find(visit: Visit) -> Reply:
    """Show the keys that a text leads to, or the organizations whose names or ids contain it.

    The text comes in a form and not in a URL, since it may be a whole key.
    """
    text = visit.form.one("text").strip()
    if not text:
        return visit.redirect("/operator")
    found = await visit.gate.keys.find(text, limit=ON_A_PAGE)
    now = await visit.gate.keys.now()
    named = is_id(text) and visit.gate.format.redact(text) == text
    known = named and await visit.gate.organizations.is_known(text)
    some, is_cut = await _containing(visit, text) if named and not found.keys else ([], False)
    owners = [key.organization for key in found.keys]
    await visit.learn_names([*owners, text] if known else owners)
    return visit.page(
        "operator.html",
        rows=await _rows(visit, some),
        by_refusals=False,
        has_refusals=keeps_history(visit),
        is_cut=is_cut,
        cursor=None,
        is_first=True,
        found=[(row_of(visit, key, now), key.organization) for key in found.keys],
        by=found.by,
        differs=found.by == "prefix" and holds_secret(text, visit.gate.format),
        is_short=_is_start(visit, text),
        organization=text if known and text not in {one.id for one in some} else None,
    )


def _is_start(visit: Visit, text: str) -> bool:
    """Return whether a text is only what all keys of the gate begin with, or a part of that."""
    start = f"{visit.gate.format.brand}_{visit.gate.format.environment}_"
    return start.startswith(text.rstrip(".\N{HORIZONTAL ELLIPSIS}"))


async def _containing(visit: Visit, text: str) -> tuple[list[ListedOrganization], bool]:
    """Return organizations whose names or ids contain a text, and whether more were left
    unread."""
    part, cursor = text.casefold(), None
    found: dict[str, ListedOrganization] = {}
    for _ in range(_STEPS_AT_MOST):
        page = await visit.gate.organizations.list(limit=_WALKED_AT_ONCE, cursor=cursor)
        await visit.learn_names(one.id for one in page.organizations)
        found.update(
            (one.id, one)
            for one in page.organizations
            if part in one.id.casefold() or part in visit.named(one.id).casefold()
        )
        cursor = page.cursor
        if cursor is None or len(found) >= ON_A_PAGE:
            break
    shown = [*found.values()][:ON_A_PAGE]
    return shown, cursor is not None or len(found) > len(shown)


async def _rows(visit: Visit, organizations: Sequence[ListedOrganization]) -> list[Row]:
    """Return organizations with about how long ago each was used, and how often refused."""
    gate, refused = visit.gate, dict[str, int]()
    now = await gate.keys.now()
    if gate.recorder is not None and keeps_history(visit):
        with asking(gate.events):
            await gate.recorder.write()
            refused = await refusals(gate.store, [one.id for one in organizations], now, "day")
    return [
        Row(
            one,
            None if one.last_used_at is None else visit.ago(one.last_used_at, now),
            refused.get(one.id),
        )
        for one in organizations
    ]


async def show_organization(visit: Visit) -> Reply:
    """Show an organization: its plan, its usage, its keys, and what changed it."""
    return await _organization_page(visit, _organization(visit.query.one("id")))


async def _organization_page(visit: Visit, id: str, problems: Problems | None = None) -> Reply:
    """Return the page of an organization; with problems, the values that were entered."""
    await visit.learn_names([id])
    cursor = visit.query.one("cursor") or None
    gate, after = visit.gate, visit.query.one("keys") or None
    keys = await gate.keys.list(id, limit=_KEYS, cursor=after)
    explained = await gate.explain(id)
    changes = await gate.changes.list(id, limit=_CHANGES, cursor=cursor)
    limits = await gate.organizations.limits(id)
    refused, known = _refused(explained), await gate.organizations.is_known(id)
    # At first the values that hold; then those that were entered before a refusal or a sign-in.
    entered = visit.form
    if not problems:
        entered = drafts.take(visit, f"/operator/organization?id={visit.quoted(id)}") or Form()
    return visit.page(
        "organization.html",
        400 if problems else 200,
        notices=("plan", "limit", "ended") if refused is None else ("ended",),
        id=id,
        known=known,
        possible=known or operator_limits.can_be_id(id),
        explained=explained,
        refused=refused,
        unread=explained.unread,
        used_up=_used_up(visit, explained),
        still=refused is not None and visit.query.one("done") in {"plan", "limit"},
        values={**operator_limits.values_of(limits, explained), **operator_limits.entered(entered)},
        present=operator_limits.present_of(limits.plan),
        lasting=operator_limits.present_of(limits.lasting),
        **operator_limits.shown_of(visit, problems or {}),
        meters=meters_of(visit, explained),
        leased=_leased(visit, explained),
        credits=named_meters(visit, explained, credits=True),
        named=named_meters(visit, explained, credits=False),
        keys=[row_of(visit, key, explained.at) for key in keys.keys],
        keys_cursor=keys.cursor,
        is_first_of_keys=after is None,
        limits=limits,
        temporary=operator_limits.temporary_of(limits),
        spans=operator_limits.spans(visit),
        plans=gate.plans.names,
        names=LIMITS,
        changes=await change_rows(visit, id, changes.changes, keys.keys),
        cursor=changes.cursor,
        is_first=cursor is None,
    )


async def show_key(visit: Visit) -> Reply:
    """Show one key of any organization, and why its next request would be refused."""
    id = _organization(visit.query.one("id"))
    key = await visit.gate.keys.get(id, visit.query.one("key"))
    await visit.learn_names([id])
    explained = await visit.gate.explain(id, key.id)
    report = await history_of(visit, id, key.id, span_of(visit))
    past = await past_of(visit, key)
    facts = facts_of(visit, key, explained.at, report, past, operator_actor)
    named = named_meters(visit, explained, "key")
    refused = _refused(explained)
    return visit.page(
        "operator_key.html",
        id=id,
        refused=refused,
        unread=explained.unread,
        used_up=_used_up(visit, explained),
        named=named,
        **facts,
    )


async def change_plan(visit: Visit) -> Reply:
    """Put an organization on a plan, with its own limits as they were entered."""
    id = _organization(visit.form.one("id"))
    if problems := await operator_limits.change_plan(visit, id):
        return await _organization_page(visit, id, problems)
    return visit.redirect(f"/operator/organization?id={visit.quoted(id)}&done=plan")


async def set_limit(visit: Visit) -> Reply:
    """Give an organization its own limit until an instant."""
    id = _organization(visit.form.one("id"))
    if problems := await operator_limits.set_limit(visit, id):
        return await _organization_page(visit, id, problems)
    return visit.redirect(f"/operator/organization?id={visit.quoted(id)}&done=limit")


async def end_limit(visit: Visit) -> Reply:
    """End a temporary limit of an organization before its time."""
    id, name = _organization(visit.form.one("id")), visit.form.one("limit")
    if name not in LIMITS:
        raise NotFound
    with visit.changing():
        await visit.gate.organizations.end_temporary_limits(id, name)
    return visit.redirect(f"/operator/organization?id={visit.quoted(id)}&done=ended")


async def revoke(visit: Visit) -> Reply:
    """Revoke a key of any organization."""
    id, key = _organization(visit.form.one("id")), visit.form.one("key")
    with visit.changing():
        await visit.gate.keys.revoke(id, key)
    place = f"id={visit.quoted(id)}&key={visit.quoted(key)}"
    return visit.redirect(f"/operator/key?{place}&done=revoked")


def _organization(id: str) -> str:
    if not is_id(id):
        raise NotFound
    return id


def _leased(visit: Visit, explained: Explanation) -> str:
    """Return a sentence about the quota leases that are out; an empty text: there is none."""
    leased = explained.leased
    if leased is None:
        return ""
    # To the second, since a lease lasts two at most.
    time = f"{iso8601(leased.until)[11:19]} UTC"
    return visit.site.texts("operator.leased", units=visit.site.number(leased.units), time=time)


def _used_up(visit: Visit, explained: Explanation) -> list[str]:
    """Return a sentence for each full limit that refuses other calls than the next request."""
    t = visit.site.texts

    def end(until: int | None) -> str:
        return t("operator.until_changed") if until is None else moment_of(until).time

    return [
        t(f"operator.used_up_{one.source}", limit=one.limit.name, time=end(one.until))
        for one in explained.used_up
    ]


def _refused(explained: Explanation) -> dict[str, Any] | None:
    """Return why the next request would be refused; None: it would be admitted."""
    reason = explained.refused
    if reason is None:
        return None
    full = any(one.left is not None and one.left < explained.cost for one in explained.windows)
    return {
        "code": reason.code,
        "cause": reason.cause,
        "until": None if reason.until is None else moment_of(reason.until),
        "is_full": full and reason.code == RateLimitExceeded.code,
    }
