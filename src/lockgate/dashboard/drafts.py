"""Drafts: what was entered in a form that came without a session, until the person is back.

A draft is a signed cookie of the person's own browser. It is kept only of a form with a token of
the dashboard, from an origin of the gate's, and is shown only to the person of that token, in a
form that they have to send again: so no other site can fill in a form.
"""

import re
from typing import Final

from ..core.credentials import holds_credential
from ..core.plans import LIMITS
from ..errors import CrossSiteRequest, Header
from ..web.request import SAFE_METHODS
from ..web.sessions import reject_cross_site
from .forms import TOKEN_FIELD, Form
from .visit import Visit

COOKIE: Final = "lockgate_form"
SECONDS: Final = 1800
"""For which a draft is kept."""
_LONGEST: Final = 3800
"""Characters of a cookie that browsers keep."""
_COOKIE: Final = re.compile(rf"(?:^|;)\s*{COOKIE}=([\w.-]+)\s*(?:;|$)".encode(), re.ASCII)
_OF_KEY: Final = ("name", "expires", "days", "access", "scopes", "labels", "addresses")
_ORGANIZATION: Final = "/operator/organization"
_FIELDS: Final = {
    "/keys/new": _OF_KEY,
    "/keys/{id}/edit": _OF_KEY,
    _ORGANIZATION: ("id", "plan", *LIMITS),
    "/operator/limit": ("id", "limit", "number", "span", "until", "zone"),
}
"""The fields that are kept, by the paths of forms. None of them is a secret."""


def page_of_form(visit: Visit) -> str:
    """Return the path of the page that the sent form is on, with its query."""
    place, id = visit.place, visit.form.one("id")
    if place.startswith("/operator"):
        is_shown = id and not holds_credential(id)
        return f"{_ORGANIZATION}?id={visit.quoted(id)}" if is_shown else "/operator"
    return visit.caller.path if place.startswith("/keys") else "/keys"


def keep(visit: Visit) -> Header | None:
    """Return the header that keeps the form of a visit; None: there is nothing to keep."""
    fields = _FIELDS.get(visit.place)
    if fields is None or visit.caller.method in SAFE_METHODS:
        return None
    try:
        reject_cross_site(visit.gate, visit.caller)
    except CrossSiteRequest:
        return None
    form, redact = visit.form, visit.gate.format.redact
    entered = {name: [redact(value) for value in form.all(name)] for name in fields}
    draft = visit.site.tokens.write_draft(form.one(TOKEN_FIELD), page_of_form(visit), entered)
    return None if draft is None or len(draft) > _LONGEST else _header(visit, draft, SECONDS)


def take(visit: Visit, path: str) -> Form | None:
    """Return what the person had entered on a page before they signed in again, once.

    Args:
        visit: the visit of the page.
        path: as of :func:`page_of_form`.
    """
    for value in visit.caller.header(b"cookie"):
        if found := _COOKIE.search(value):
            draft = visit.site.tokens.read_draft(found[1].decode(), visit.signed_in, path, SECONDS)
            visit.restored = None if draft is None else _header(visit, "", 0)
            return draft
    return None


def _header(visit: Visit, value: str, seconds: int) -> Header:
    insecure = any(origin.startswith(b"http:") for origin in visit.gate.origins)
    secure = "" if insecure else "; Secure"
    kept = f"Max-Age={seconds}; Path={visit.base or '/'}; HttpOnly; SameSite=Lax{secure}"
    return b"set-cookie", f"{COOKIE}={value}; {kept}".encode()
