"""The forms of keys: create, edit and rotate them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..core.api_keys import OVERLAP_AT_MOST, ApiKey
from ..core.plans import Plan
from ..core.timestamps import DAY
from ..errors import (
    HandleTaken,
    InvalidRequest,
    KeyLimitReached,
    KeyRotated,
    Problem,
    Refusal,
    SessionInvalid,
)
from ..services.keys.rotation_and_revocation import (
    OVERLAP_DAYS,
    UNCHANGED,
    Unchanged,
    successor_expiry,
)
from ..services.store_errors import asking
from ..web.operations.operation import Reply
from . import drafts
from .forms import Form, FormOutdated
from .key_pages import described_scopes, find_live
from .moments import moment_of
from .visit import Visit

DAYS: Final = (7, 30, 60, 90, 180, 365)
SUGGESTED: Final = 90
"""The days after which a new key expires, unless the person chooses otherwise."""
OVERLAPS: Final = (0, 1, 7, 30, OVERLAP_AT_MOST)
_NAMES: Final = {
    "name": "field.name",
    "expires_in_days": "field.expires",
    "scopes": "field.access",
    "labels": "field.labels",
    "addresses": "field.addresses",
}
"""The texts of the labels of fields, by the names of fields in problems."""
_NUMBER: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_NOT_A_NUMBER: Final = -1.0
"""No lifetime: the service says which there are."""


async def new_key(visit: Visit) -> Reply:
    """Show the form for a new key: it asks for the scopes, and suggests an expiry."""
    longest = _longest(visit)
    within = longest is None or longest >= SUGGESTED
    draft = drafts.take(visit, visit.caller.path)
    first = {"access": "some", "expires": str(SUGGESTED) if within else "maximum"}
    return await _form(visit, None, first if draft is None else _values(draft))


async def create_key(visit: Visit) -> Reply:
    """Create a key and show it, once.

    A form that is sent twice creates one key: its handle follows from the form. The second answer
    cannot show the text of the key, which is stored nowhere.

    Raises:
        FormOutdated: the person has opened another workspace since the form was shown.
    """
    form, gate = visit.form, visit.gate
    if form.one("organization", visit.owner) != visit.owner:
        raise FormOutdated
    handle = visit.site.tokens.handle(form, visit.owner)
    try:
        await visit.check_key(form.one("name"), _scopes(form))
        with visit.changing():
            created = await gate.keys.create(
                visit.owner,
                form.one("name"),
                _scopes(form),
                _days(form),
                created_by=visit.creator,
                labels=_labels(form),
                addresses=form.lines("addresses"),
                handle=handle,
            )
    except InvalidRequest as refusal:
        return await _form(visit, None, _values(form), refusal)
    except (HandleTaken, KeyLimitReached) as refusal:
        # If both apply, a store may raise either.
        key = await _created_before(visit, handle)
        if key is None and isinstance(refusal, KeyLimitReached):
            return await _form(visit, None, _values(form), refusal)
        return visit.page("created_before.html", 409, key=key)
    await _check_agent(visit, created.key.id)
    return _created(visit, created.key, created.text)


async def edit_key(visit: Visit) -> Reply:
    """Show the form to change a key."""
    key = await find_live(visit)
    if (draft := drafts.take(visit, visit.caller.path)) is not None:
        return await _form(visit, key, _values(draft))
    details = key.details
    labels = () if details is None else details.labels
    values = {
        "name": key.name,
        "expires": "keep",
        "access": "full" if "*" in key.scopes else "some",
        "scopes": key.scopes,
        "labels": "\n".join(map("=".join, labels)),
        "addresses": "\n".join(key.addresses),
    }
    return await _form(visit, key, values)


async def update_key(visit: Visit) -> Reply:
    """Change a key."""
    key = await find_live(visit)
    form = visit.form
    days: float | Unchanged | None = UNCHANGED
    if form.one("expires") != "keep":
        days = _days(form)
    try:
        await visit.check_key(form.one("name"), _scopes(form))
        with visit.changing():
            await visit.gate.keys.update(
                visit.owner,
                key.id,
                name=form.one("name"),
                scopes=_scopes(form),
                expires_in_days=days,
                labels=_labels(form),
                addresses=form.lines("addresses"),
            )
    except InvalidRequest as refusal:
        return await _form(visit, key, _values(form), refusal)
    return visit.redirect(f"/keys/{key.id}?done=updated")


async def _created_before(visit: Visit, handle: str) -> ApiKey | None:
    """Return the key that this form has created before; None: it was removed, or there is none."""
    with asking(visit.gate.events):
        key = await visit.gate.store.find(handle)
    return key if key is not None and key.organization == visit.owner else None


async def confirm_rotation(visit: Visit) -> Reply:
    """Ask how long a key works beside its successor."""
    key = await find_live(visit)
    if key.successor is not None:
        raise KeyRotated(key.successor)
    expires_at = successor_expiry(key, await visit.gate.keys.now(), visit.gate.keys.max_age)
    return visit.page(
        "rotate.html",
        key=key,
        overlaps=OVERLAPS,
        chosen=int(OVERLAP_DAYS),
        expires=None if expires_at is None else moment_of(expires_at),
    )


async def rotate_key(visit: Visit) -> Reply:
    """Replace a key and show its successor, once."""
    key = await visit.gate.keys.get(visit.owner, visit.key)
    if key.successor is not None:  # The form was sent twice, perhaps without an overlap.
        raise KeyRotated(key.successor)
    await visit.check_key(key.name, key.scopes)
    with visit.changing():
        rotated = await visit.gate.keys.rotate(
            visit.owner,
            visit.key,
            overlap_days=_number(visit.form.one("overlap")),
            created_by=visit.creator,
        )
    await _check_agent(visit, rotated.successor.id)
    return _created(visit, rotated.successor, rotated.text, rotated.old)


async def _check_agent(visit: Visit, id: str) -> None:
    """Revoke a key that an agent created while a claim ended its session (D46).

    Raises:
        SessionInvalid: a claim did.
    """
    accounts = visit.gate.accounts
    if accounts is not None and visit.signed_in.agent:
        try:
            await accounts.agents.still(visit.owner)
        except SessionInvalid:
            await visit.gate.keys.revoke(visit.owner, id)
            raise


def _created(visit: Visit, key: ApiKey, text: str, old: ApiKey | None = None) -> Reply:
    ends = None if old is None or old.expires_at is None else moment_of(old.expires_at)
    if old is not None and old.revoked_at is not None:
        ends = None
    return visit.page(
        "created.html",
        201,
        key=key,
        text=text,
        expires=None if key.expires_at is None else moment_of(key.expires_at),
        scopes=described_scopes(visit, key),
        old=old,
        old_ends=ends,
    )


async def _form(
    visit: Visit,
    key: ApiKey | None,
    values: Mapping[str, Any],
    refusal: InvalidRequest | KeyLimitReached | None = None,
) -> Reply:
    """Return the form to create or to edit a key, with what was wrong with it."""
    plan = await visit.gate.organizations.plan(visit.owner)
    longest = _longest(visit)
    empty = dict.fromkeys(("name", "expires", "days", "labels", "addresses"), "")
    return visit.page(
        "key_form.html",
        200 if refusal is None else refusal.status,
        key=key,
        values={**empty, "access": "some", "scopes": (), **values},
        problems=_problems(visit, refusal),
        names=_NAMES,
        notice=_notice(visit, refusal),
        plan=plan,
        limits=_limits(visit, plan),
        areas=_areas(visit),
        days=[number for number in DAYS if longest is None or number <= longest],
        suggested=SUGGESTED,
        longest=longest,
        expires=None if key is None or key.expires_at is None else moment_of(key.expires_at),
    )


def _limits(visit: Visit, plan: Plan) -> list[str]:
    """Return the limits of a plan as texts, such as ``10 requests a minute``."""
    limits = [(window.name, window.limit) for window in plan.windows]
    return [
        visit.site.texts(f"limit.{name}", n=visit.site.number(limit))
        for name, limit in (*limits, ("concurrent", plan.concurrent or None))
        if limit is not None
    ]


def _problems(visit: Visit, refusal: Refusal | None) -> dict[str, list[str]]:
    """Return the problems of a form by field; those of scopes by index under their field."""
    problems: dict[str, list[str]] = {}
    if isinstance(refusal, InvalidRequest):
        for field, text in refusal.problems:
            named = field.partition(".")[0]
            place = named if named in _NAMES else "name"
            problems.setdefault(place, []).append(visit.site.texts.sentence(text))
    return problems


def _notice(visit: Visit, refusal: Refusal | None) -> str | None:
    if refusal is None or isinstance(refusal, InvalidRequest):
        return None
    return visit.site.texts.sentence(refusal.message)


def _areas(visit: Visit) -> list[list[tuple[str, str | None]]]:
    """Return the scopes of the catalogue with their descriptions, those of one area together."""
    areas: dict[str, list[tuple[str, str | None]]] = {}
    for scope in sorted(visit.gate.catalogue.scopes - {"*"}):
        described = scope, visit.site.texts.find(f"scope.{scope}")
        areas.setdefault(scope.partition(":")[0], []).append(described)
    return [*areas.values()]


def _longest(visit: Visit) -> int | None:
    max_age = visit.gate.keys.max_age
    return None if max_age is None else max_age // DAY


def _values(form: Form) -> dict[str, Any]:
    """Return the entered values, to show them again."""
    names = "name", "expires", "days", "access", "labels", "addresses"
    return {**{name: form.one(name) for name in names}, "scopes": form.all("scopes")}


def _scopes(form: Form) -> Sequence[str]:
    return ("*",) if form.one("access") == "full" else form.all("scopes")


def _days(form: Form) -> float | None:
    chosen = form.one("expires")
    if chosen in {"", "maximum"}:
        return None
    return _number(form.one("days") if chosen == "custom" else chosen)


def _number(text: str) -> float:
    # Not every text that float() reads: "1,000" and "1e3" may mean another number than it says.
    return float(text) if _NUMBER.fullmatch(text.strip()) else _NOT_A_NUMBER


def _labels(form: Form) -> dict[str, str]:
    """Return the labels that were entered.

    Raises:
        InvalidRequest: a line is no label, or a name comes twice.
    """
    labels: dict[str, str] = {}
    for line in form.lines("labels"):
        name, found, value = line.partition("=")
        name = name.strip()
        if not found or name in labels:
            raise InvalidRequest([Problem("labels", "Write each label once, as name=value.")])
        labels[name] = value
    return labels
