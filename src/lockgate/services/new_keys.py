"""New keys: check their arguments, then draw, digest and seal them (D1, D7, D8)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar
from uuid import uuid4

from ..core.api_keys import ApiKey, KeyDraft, read_name, read_scopes
from ..core.key_format import KeyFormat
from ..core.plans import ID_MAX_LENGTH, is_id
from ..core.row_seals import sealed_draft
from ..core.scopes import Catalogue
from ..errors import HandleTaken, InvalidRequest, Problem

T = TypeVar("T")

_DRAWS_AT_MOST: Final = 10


class CreatedKey(NamedTuple):
    """A new key. ``text`` is the full key: it is shown only here and stored nowhere."""

    key: ApiKey
    text: str

    def __repr__(self) -> str:
        return f"<CreatedKey {self.key!r}>"


def drafted(
    format: KeyFormat,
    organization: str,
    name: str,
    scopes: tuple[str, ...] = ("*",),
    expires_at: int | None = None,
) -> tuple[KeyDraft, str]:
    """Draw a key for an organization; return its record and its text."""
    new = format.generate()
    digest = format.digest(new)
    draft = KeyDraft(
        id=str(uuid4()),
        handle=new.handle,
        organization=organization,
        name=name,
        prefix=new.prefix,
        scopes=scopes,
        scheme=digest.scheme,
        digest=digest.value,
        seal=None,
        expires_at=expires_at,
    )
    return sealed_draft(draft, format.peppers), new.text


async def drawn(attempt: Callable[[], Awaitable[T]]) -> T:
    """Repeat an attempt until its random handle is free.

    The probability that a handle is taken is 10**-14 for each existing key.
    """
    for _ in range(_DRAWS_AT_MOST):
        with suppress(HandleTaken):
            return await attempt()
    raise RuntimeError("every handle drawn is taken: is the random source random?")


def checked(
    organization: str,
    name: str,
    scopes: Sequence[str],
    catalogue: Catalogue,
    others: Mapping[str, Sequence[str]],
) -> tuple[str, tuple[str, ...]]:
    """Return the trimmed name and the distinct scopes of a new key.

    Args:
        organization: the id of its organization.
        name: 1 to 100 characters after trimming.
        scopes: 1 to 50 of the catalogue.
        catalogue: the scope catalogue.
        others: the problems of the other arguments, by their names.

    Raises:
        InvalidRequest: arguments are invalid; names all of them.
    """
    name, of_name = read_name(name)
    scopes, of_scopes = read_scopes(scopes, catalogue)
    of_id = [] if is_id(organization) else [f"Use a text of 1 to {ID_MAX_LENGTH} characters."]
    found = {"organization": of_id, "name": of_name, "scopes": of_scopes, **others}
    if any(found.values()):
        raise InvalidRequest(Problem(f, text) for f, texts in found.items() for text in texts)
    return name, scopes
