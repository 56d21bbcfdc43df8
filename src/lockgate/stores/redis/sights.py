"""What a process remembers of keys: a hint that scripts compare with what is kept, and no more."""

from math import inf
from typing import Final

from ...rules.plans import Plan, PlanBook
from ...rules.seals import sealed_fields
from .calls import Script, arguments
from .charges import charging
from .encoding import read_key, read_placement
from .names import Place, fields_of

ADMIT: Final = Script("admit_keys", "asked", "verify", "windows", "usage")
_ARGUMENTS: Final = 10
"""EVALSHA, its digest, the number of keys, two of them, five others."""
_AT_MOST: Final = 50_000


Charged = tuple[PlanBook, Plan, bytes, bytes]
"""Plans, the one of them that holds, its mark, and how every call that admits begins."""


class Sight:
    """A key and where its organization was placed, as they were last seen."""

    __slots__ = (
        "_placed",
        "_record",
        "charged",
        "key",
        "organization",
        "place",
        "revoked",
        "sealed",
        "slot",
        "unused",
        "void",
    )

    def __init__(
        self, place: Place, record: bytes, usage: bytes | None, placed: bytes | None
    ) -> None:
        self.place: Final = place
        self.key: Final = read_key(record, usage)
        # A slot is read ten times as fast as a NamedTuple's field.
        self.slot: Final = place.slot
        self.sealed: Final = sealed_fields(self.key)
        """The fields that its seal covers: a token that was accepted by the same is accepted."""
        self.revoked: Final = self.key.revoked_at is not None
        expires_at = self.key.expires_at
        self.void: Final = inf if expires_at is None else expires_at
        """From when on it admits nobody."""
        self.unused: Final = self.key[:-2]
        """The key without its usage."""
        self.organization: Final = read_placement(self.key.organization, placed)
        self._record = record
        self._placed = placed or b""
        self.charged: Charged | None = None
        """What :meth:`under` gave at last."""

    def is_still(self, record: bytes | None, placed: bytes | None) -> bool:
        """Whether this is what is kept, as ``verify.lua`` compares it."""
        return record == self._record and (placed or b"") == self._placed

    def under(self, plans: PlanBook) -> Charged:
        """How to charge for the key by these plans."""
        plan = plans.plan_of(self.organization)
        asked = ADMIT.start(_ARGUMENTS) + arguments(
            b"2",
            self.place.organization,
            self.place.windows,
            *fields_of(self.key.id),
            self._record,
            self._placed,
        )
        start, mark = charging(plan.windows)
        self.charged = charged = plans, plan, mark, asked + start
        return charged


class Sights:
    """The keys that were seen lately, by their handles."""

    def __init__(self) -> None:
        self._by_handle: dict[str, Sight] = {}
        self.find = self._by_handle.get

    def keep(self, handle: str, sight: Sight) -> None:
        """Remember a key; at so many, all others are forgotten."""
        if len(self._by_handle) >= _AT_MOST:
            self._by_handle.clear()
        self._by_handle[handle] = sight

    def drop(self, handle: str) -> None:
        """Forget a key."""
        self._by_handle.pop(handle, None)
