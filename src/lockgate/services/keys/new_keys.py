"""New keys: check the arguments, draw the key, digest its secret and seal its record (D1, D7, D8).

Two requests can draw the same handle, and only the store knows which handles are taken. So a caller
draws and inserts in one function, which :func:`retry_taken_handles` repeats with another key.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar
from uuid import uuid4

from ...core.api_keys import ApiKey, KeyDetails, KeyDraft, read_name, read_scopes
from ...core.key_format import KeyFormat
from ...core.plans import ID_MAX_LENGTH, is_id
from ...core.row_seals import sealed_draft
from ...core.scopes import Catalogue
from ...errors import HandleTaken, InvalidRequest, Problem
from ...sessions import Session
from ...stores.base import Store

T = TypeVar("T")

AGENT: Final = "agent"
"""``created_by`` of a key that an agent created, by registering or in its session."""
_DRAWS_AT_MOST: Final = 10


def creator_of(session: Session | None) -> str | None:
    """Return ``created_by`` of a key that a session creates; None: the session names no user."""
    if session is None or session.agent:
        return None if session is None else AGENT
    return None if session.user is None else f"user:{session.user}"


class CreatedKey(NamedTuple):
    """A new key. ``text`` is the full key: it is shown only here and stored nowhere."""

    key: ApiKey
    text: str

    def __repr__(self) -> str:
        return f"<CreatedKey {self.key!r}>"


def draft_key(
    format: KeyFormat,
    organization: str,
    name: str,
    scopes: tuple[str, ...] = ("*",),
    expires_at: int | None = None,
    details: KeyDetails | None = None,
    handle: str | None = None,
) -> tuple[KeyDraft, str]:
    """Draw a random key; return its sealed record, without the secret, and its full text.

    Args:
        format: draws the key, and has the peppers of its digest and seal.
        organization: the id of its organization.
        name: its display name, checked.
        scopes: its scopes, checked.
        expires_at: the instant of its expiry, in microseconds; None: it never expires.
        details: its creator, labels and addresses; None: it has none of them.
        handle: its handle; None: a random one.
    """
    new = format.generate(handle)
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
        details=details,
    )
    return sealed_draft(draft, format.peppers), new.text


async def drafted(store: Store, draft: KeyDraft) -> ApiKey | None:
    """Return the key that was made from a draft; None: it is not there."""
    found = await store.find(draft.handle)
    return found if found is not None and found.id == draft.id else None


async def retry_taken_handles(insert: Callable[[], Awaitable[T]]) -> T:
    """Insert a new key; if its random handle is taken, insert another one.

    The probability that a handle is taken is 10**-14 for each existing key.

    Args:
        insert: draws a key and inserts it; raises :class:`~lockgate.errors.HandleTaken`.
    """
    for _ in range(_DRAWS_AT_MOST):
        with suppress(HandleTaken):
            return await insert()
    raise RuntimeError("every handle drawn is taken: is the random source random?")


async def expiry(
    store: Store, lifetime: int | None, now: int | None
) -> tuple[int | None, int | None]:
    """Return the expiry of a new key, and the instant at which to insert it; None: the store's.

    The seal covers the expiry, so the store's clock is read first, and the insert uses the same
    instant.

    Args:
        store: tells the time.
        lifetime: the lifetime of the key, in microseconds; None: it never expires.
        now: the present instant; None: the store's clock.
    """
    if lifetime is None:
        return None, now
    now = await store.now() if now is None else now
    return now + lifetime, now


def check_new_key(
    organization: str,
    name: str,
    scopes: Sequence[str],
    catalogue: Catalogue,
    others: Mapping[str, Sequence[str]],
) -> tuple[str, tuple[str, ...]]:
    """Check the arguments of a new key; return its trimmed name and its distinct scopes.

    Args:
        organization: the id of its organization.
        name: 1 to 100 characters after trimming.
        scopes: 1 to 50 of the catalogue.
        catalogue: the scope catalogue.
        others: the problems of the other arguments, by their names.

    Raises:
        InvalidRequest: arguments are invalid; names all of them.
    """
    problems: dict[str, Sequence[str]] = {}
    if not is_id(organization):
        problems["organization"] = [f"Use a text of 1 to {ID_MAX_LENGTH} characters."]
    name, problems["name"] = read_name(name)
    scopes, problems["scopes"] = read_scopes(scopes, catalogue)
    refuse_problems({**problems, **others})
    return name, scopes


def refuse_problems(problems: Mapping[str, Sequence[str]]) -> None:
    """Raise if any argument has a problem.

    Args:
        problems: by the name of an argument, sentences that say what to change.

    Raises:
        InvalidRequest: with every problem.
    """
    found = [Problem(name, text) for name, texts in problems.items() for text in texts]
    if found:
        raise InvalidRequest(found)
