"""Searches for keys of any organization, and which texts they come from."""

import re
import unicodedata
from typing import Final, Literal, NamedTuple

from .api_keys import ApiKey
from .key_format import HANDLE_LENGTH, PREFIX_LENGTH, KeyFormat

IMPORTED: Final = "~"
"""The character that the stored handles of imported keys begin with, and no others."""
By = Literal["text", "prefix", "id"]

_LONGEST: Final = 40
"""The longest text that holds nothing but a prefix or an id, in characters."""
KEY_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Matches the id of a key, in lower case."""


class KeySearch(NamedTuple):
    """What to search keys by; one of the fields is set."""

    id: str | None = None
    """The whole id of a key."""
    handle: str | None = None
    """The first characters of a handle, 1 or more."""
    prefix: str | None = None
    """The whole displayed prefix of an imported key, whose handle is a digest."""

    def finds(self, key: ApiKey) -> bool:
        """Return whether a key is one of those searched for."""
        if self.id is not None:
            return key.id == self.id
        if self.handle is not None:
            return key.handle.startswith(self.handle)
        return key.handle.startswith(IMPORTED) and key.prefix == self.prefix


def read_search(text: str, format: KeyFormat) -> tuple[KeySearch, By]:
    """Return the search for an id, or for the beginning of a key as lists and pages show it.

    The beginning may be longer or shorter than the prefix of 15 characters, and end with the dots
    that pages add to it. Characters after the handle are not compared: a store does not have them.
    """
    text = text.strip()
    if KEY_ID.fullmatch(text.lower()):
        return KeySearch(id=text.lower()), "id"
    shown = text.removesuffix("\N{HORIZONTAL ELLIPSIS}").rstrip(".")
    found = re.match(rf"{format.brand}_{format.environment}_([0-9A-Za-z]{{1,8}})", shown)
    if found is not None:
        return KeySearch(handle=found[1]), "prefix"
    return KeySearch(prefix=shown[:PREFIX_LENGTH]), "prefix"


def matches(key: ApiKey, text: str) -> bool:
    """Return whether a key's name contains a text, in any case, or its displayed prefix begins
    with it."""
    return key.prefix.startswith(text) or _folded(text) in _folded(key.name)


def holds_secret(text: str, format: KeyFormat) -> bool:
    """Return whether a text holds characters of a key that no page shows, after its handle."""
    return len(text) > _LONGEST or looks_like_key(text, format)


def looks_like_key(text: str, format: KeyFormat) -> bool:
    """Return whether a text of any length has the shape of a key, up to a part after its handle,
    or has a word that may be the secret of one."""
    if re.search(rf"\w{{{_LONGEST}}}", text):
        return True
    start = rf"{format.brand}_[a-z][a-z0-9]{{1,19}}_"
    if re.search(rf"{start}[0-9A-Za-z]{{{HANDLE_LENGTH}}}_?[0-9A-Za-z]", text):
        return True
    rest = re.sub(start, "", text)
    return format.redact(rest) != rest  # A key of another system.


def _folded(text: str) -> str:
    """Return a text for comparisons: one spelling of each character, in one case."""
    return unicodedata.normalize("NFKC", text).casefold()
