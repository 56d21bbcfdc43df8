"""What all pages of one dashboard share: its gate, texts, templates, assets and headers."""

import json
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, Final, NamedTuple, Unpack

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from ..core.arguments import check_arguments, refuse_unknown
from ..core.timestamps import MINUTE
from ..errors import ConfigurationError, Header
from ..gate import Gate
from ..services.limits.quotas import Quota
from ..web.operations.operation import Reply
from .forms import FormTokens
from .names import Names
from .options import Operator, Options, brand_of, texts_of

CHARGED_PER_MINUTE: Final = 60
"""Forms and searches of one person; revoking a key is never refused."""
_HERE: Final = Path(__file__).parent
_TYPES: Final = {"css": b"text/css; charset=utf-8", "js": b"text/javascript; charset=utf-8"}
_COMMON: Final[tuple[Header, ...]] = (
    (b"x-content-type-options", b"nosniff"),
    # With no-referrer browsers would send "Origin: null" with our own forms.
    (b"referrer-policy", b"same-origin"),
)
_PAGE: Final[tuple[Header, ...]] = (
    (b"cache-control", b"no-store"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    *_COMMON,
)
_POLICY: Final = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src {images}; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class Asset(NamedTuple):
    """A script or a style sheet."""

    path: str
    """Below the dashboard; it names the content, so browsers may keep it."""
    reply: Reply


class Site:
    """A dashboard without its adapter.

    Args:
        gate: the gate whose keys it shows.
        options: as of :func:`~lockgate.dashboard.dashboard`.

    Raises:
        ConfigurationError: the gate has no session verifier, or an option is malformed.
    """

    def __init__(self, gate: Gate, **options: Unpack[Options]) -> None:
        if not isinstance(gate, Gate):  # pyright: ignore[reportUnnecessaryIsInstance] - from a caller
            raise ConfigurationError(
                f"dashboard(gate) takes a lockgate.Gate, not {type(gate).__name__}."
            )
        if gate.sessions is None:
            raise ConfigurationError(
                "The dashboard needs to know who has signed in: give the gate a session verifier, "
                "such as Gate(..., sessions=SignedCookie([secret]))."
            )
        if not gate.session_access.uses_cookies:
            raise ConfigurationError(
                "The pages of a dashboard are for browsers, which present sessions by a cookie: "
                "the gate accepts sessions in Authorization only."
            )
        refuse_unknown("dashboard()", tuple(Options.__annotations__), options)
        check_arguments(Options, options)
        self.gate: Final = gate
        self.brand: Final = brand_of(gate.format.brand, **options)
        self.texts: Final = texts_of(**options)
        self.tokens: Final = FormTokens(gate.format.peppers)
        self.names: Final = Names(options.get("name_of"), gate.format, gate.events)
        self.operator: Final[Operator | None] = options.get("operator")
        self.charges: Final = Quota(
            gate.store,
            peppers=gate.format.peppers,
            purpose="dashboard:user",
            name="minute",
            span=MINUTE,
            limit=CHARGED_PER_MINUTE,
            clock=gate.clock,
            events=gate.events,
        )
        self.styles: Final = _asset("dashboard.css")
        self.script: Final = _asset("dashboard.js")
        self.assets: Final = {asset.path: asset.reply for asset in (self.styles, self.script)}
        self._templates = templates()

    def page(
        self,
        template: str | Template,
        values: Mapping[str, Any],
        status: int = 200,
        headers: tuple[Header, ...] = (),
    ) -> Reply:
        """Return a page with its security headers, by a template or the name of one."""
        nonce = token_urlsafe(16)
        body = self._templates.get_template(template).render(
            values, site=self, brand=self.brand, t=self.texts, nonce=nonce
        )
        policy = _POLICY.format(nonce=nonce, images=self.brand.image_source)
        head = (
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-security-policy", policy.encode()),
            *_PAGE,
            *headers,
        )
        return Reply(status, head, body.encode("utf-8", "replace"))

    def data(self, value: object) -> Reply:
        """Return JSON for the script of a page."""
        head = (b"content-type", b"application/json"), *_PAGE
        return Reply(200, head, json.dumps(value).encode())

    def redirect(self, location: str, headers: tuple[Header, ...] = ()) -> Reply:
        """Return 303, which makes a browser open another page by GET."""
        return Reply(303, ((b"location", location.encode()), *_PAGE, *headers), b"")

    def number(self, value: int) -> str:
        """Return a whole number with its thousands apart."""
        separator = "," if self.brand.language.startswith("en") else "\u202f"
        return f"{value:,}".replace(",", separator)


@lru_cache(maxsize=1)
def templates() -> Environment:
    """Return the templates; every value in them is escaped."""
    return Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


@lru_cache(maxsize=2)
def _asset(name: str) -> Asset:
    content = (_HERE / "static" / name).read_bytes()
    kind = name.rpartition(".")[2]
    head = (
        (b"content-type", _TYPES[kind]),
        (b"cache-control", b"public, max-age=31536000, immutable"),
        *_COMMON,
    )
    path = f"/static/{sha256(content).hexdigest()[:16]}.{kind}"
    return Asset(path, Reply(200, head, content))
