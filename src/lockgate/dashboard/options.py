"""The options of a dashboard, checked when it is made."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, TypedDict, Unpack
from urllib.parse import urlsplit

from ..errors import ConfigurationError
from ..sessions import Session
from ..web.request import RequestView
from .colours import Palette, palette_of
from .messages import Texts
from .names import NameOf

Operator = Callable[[Session, RequestView], bool | Awaitable[bool]]
"""Return whether a signed-in person operates the service; an ``async`` one needs an event loop."""

ACCENT: Final = "#4f46e5"
_LANGUAGE: Final = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*")
_RIGHT_TO_LEFT: Final = frozenset({"ar", "dv", "fa", "he", "ku", "ps", "sd", "ug", "ur", "yi"})


class Options(TypedDict, total=False):
    """The keyword arguments of :func:`~lockgate.dashboard.dashboard`, all optional."""

    name: str
    """The name of the service, in the header and in titles; by default the brand of its keys."""
    logo: str
    """The URL of a logo, shown 28 pixels high beside the name."""
    accent: str
    """The colour of buttons, links and charts as ``#rrggbb``; text of it is made darker or lighter
    where it would be hard to read."""
    home: str
    """The URL of the host's own pages, to which the header links."""
    sign_in: str
    """The URL of the host's sign-in page; ``{next}`` in it becomes the page to return to."""
    sign_out: str
    """The URL at which the host signs people out; a link leads there, so it must accept GET."""
    example: str
    """The URL of an operation of the service that a new key can try, for a command line."""
    language: str
    """The language of ``messages`` (BCP 47), for screen readers; by default ``en``."""
    messages: Mapping[str, str]
    """Texts in place of those of :data:`~lockgate.dashboard.MESSAGES`, by the same names; also
    ``scope.<scope>`` describes a scope, and a whole sentence of an error translates it."""
    name_of: NameOf
    """Returns the name of an organization by its id, for the header and for operators; it may be
    ``async``. Pages show the id where it returns None, raises or takes too long."""
    operator: Operator
    """Returns for a session and its request whether this person operates the service, and so may
    read every organization and change its plan; without it there are no such pages."""


class Brand(NamedTuple):
    """The checked options that pages show."""

    name: str
    logo: str | None
    palette: Palette
    home: str | None
    sign_in: str | None
    sign_out: str | None
    example: str | None
    language: str
    direction: str
    image_source: str
    """The source of the logo for the content security policy."""


def brand_of(default: str, **options: Unpack[Options]) -> Brand:
    """Return the checked options that pages show.

    Args:
        default: the name if ``options`` has none.
        options: the options of the dashboard.

    Raises:
        ConfigurationError: a URL, colour or language is malformed.
    """
    links = {
        name: _link(name, options.get(name)) for name in ("home", "sign_in", "sign_out", "example")
    }
    logo = _link("logo", options.get("logo"))
    language = options.get("language", "en")
    if not _LANGUAGE.fullmatch(language):
        raise ConfigurationError(f"language is {language!r}: write a tag such as 'en' or 'pt-BR'.")
    rtl = language.partition("-")[0].lower() in _RIGHT_TO_LEFT
    return Brand(
        options.get("name") or default,
        logo,
        palette_of(options.get("accent", ACCENT)),
        links["home"],
        links["sign_in"],
        links["sign_out"],
        links["example"],
        language,
        "rtl" if rtl else "ltr",
        _source(logo),
    )


def texts_of(**options: Unpack[Options]) -> Texts:
    """Return the texts of a dashboard.

    Raises:
        ConfigurationError: ``messages`` has a name that no page uses.
    """
    return Texts(options.get("messages", {}))


def _link(name: str, url: object) -> str | None:
    if url is None:
        return None
    if not isinstance(url, str):
        raise ConfigurationError(f"{name} is {url!r}: write a URL as text.")
    parts = urlsplit(url)
    local = url.startswith("/") and not url.startswith("//") and "\\" not in url
    if not local and not (parts.scheme in {"http", "https"} and parts.hostname):
        raise ConfigurationError(
            f"{name} is {url!r}: write a path such as '/login', or 'https://host/...'."
        )
    return url


def _source(logo: str | None) -> str:
    if logo is None:
        return "'none'"
    parts = urlsplit(logo)
    if not parts.hostname:
        return "'self'"
    if not re.fullmatch(r"[A-Za-z0-9.:\[\]-]+", parts.netloc):
        raise ConfigurationError(f"logo is {logo!r}: its host is not one of a public page.")
    return f"{parts.scheme}://{parts.netloc}"
