"""Keys: create, list, inspect, revoke (spec 4.1 to 4.4)."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import uuid4

from ..errors import HandleTaken, InvalidRequest, NotFound, Problem
from ..events import Events
from ..rules.credentials import KeyFormat
from ..rules.keys import ApiKey, KeyDraft, read_lifetime, read_name, read_scopes
from ..rules.scopes import Catalogue
from ..stores.contract import Store
from ..stores.local import Clock
from .asking import asking

_DRAWS_AT_MOST = 10
LONGEST_ID = 128
"""Characters of an organization's id (D36)."""


class CreatedKey(NamedTuple):
    """A key just created. ``text`` is the full key: it is shown this once and kept nowhere."""

    key: ApiKey
    text: str

    def __repr__(self) -> str:
        return f"<CreatedKey {self.key!r}>"


class Keys:
    """The keys of a gate, as ``gate.keys``."""

    def __init__(
        self,
        store: Store,
        format: KeyFormat,
        catalogue: Catalogue,
        cap: int | None,
        clock: Clock | None,
        events: Events,
    ) -> None:
        self._store = store
        self._format = format
        self._catalogue = catalogue
        self._cap = cap
        self._clock = clock
        self._events = events

    async def create(
        self,
        organization: str,
        name: str,
        scopes: Sequence[str] = ("*",),
        expires_in_days: float | None = None,
    ) -> CreatedKey:
        """Create a key for an organization.

        Args:
            organization: its id, 1 to 128 characters; it need not be known before.
            name: 1 to 100 characters for a person to know the key by (D8).
            scopes: what the key may do, 1 to 50 of the catalogue.
            expires_in_days: more than 0, at most 36,500; None never expires (D7).

        Raises:
            InvalidRequest: naming every argument that is not good.
            KeyLimitReached: the organization has as many live keys as it may (D8).
            StoreUnavailable: the store did not answer.
        """
        name, of_name = read_name(name)
        scopes, of_scopes = read_scopes(scopes, self._catalogue)
        lifetime, of_days = read_lifetime(expires_in_days)
        of_id = (
            [] if 1 <= len(organization) <= LONGEST_ID else [f"Use 1 to {LONGEST_ID} characters."]
        )
        found = {
            "organization": of_id,
            "name": of_name,
            "scopes": of_scopes,
            "expires_in_days": of_days,
        }
        if any(found.values()):
            raise InvalidRequest(Problem(f, text) for f, texts in found.items() for text in texts)
        with asking(self._events):
            for _ in range(_DRAWS_AT_MOST):
                new = self._format.generate()
                draft = KeyDraft(
                    id=str(uuid4()),
                    handle=new.handle,
                    organization=organization,
                    name=name,
                    prefix=new.prefix,
                    scopes=scopes,
                    scheme=self._format.peppers.scheme,
                    digest=self._format.digest(new).value,
                    lifetime=lifetime,
                )
                try:
                    key = await self._store.insert(draft, self._cap, self._now())
                except HandleTaken:
                    continue  # One in 10**14 draws for each key there is: draw again.
                break
            else:
                raise RuntimeError("every handle drawn is taken: is the random source random?")
        self._events.tell("key_created", organization=organization, id=key.id)
        return CreatedKey(key, new.text)

    async def list(self, organization: str) -> list[ApiKey]:
        """All keys of the organization, whichever their state: newest first (D10)."""
        with asking(self._events):
            return await self._store.list(organization)

    async def get(self, organization: str, id: str) -> ApiKey:
        """One key of the organization.

        Raises:
            NotFound: the organization has no such key; it may be another's (K6).
        """
        with asking(self._events):
            key = await self._store.get(organization, id)
        if key is None:
            raise NotFound
        return key

    async def revoke(self, organization: str, id: str) -> ApiKey:
        """Revoke a key for good; when this returns, it is accepted nowhere any more (D5).

        Revoking it again is a success that changes nothing (D4).

        Raises:
            NotFound: the organization has no such key.
        """
        with asking(self._events):
            key = await self._store.revoke_if_live(organization, id, self._now())
        if key is None:
            raise NotFound
        self._events.tell("key_revoked", organization=organization, id=id)
        return key

    async def census(self) -> dict[str, int]:
        """Live keys by digest scheme: a pepper with none left can be dropped (K9)."""
        with asking(self._events):
            return await self._store.census(self._now())

    async def now(self) -> int:
        """The instant by which the states of keys are to be judged, in microseconds."""
        now = self._now()
        if now is not None:
            return now
        with asking(self._events):
            return await self._store.now()

    def _now(self) -> int | None:
        return self._clock() if self._clock else None
