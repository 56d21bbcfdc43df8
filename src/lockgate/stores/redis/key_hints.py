"""Key hints: what a process remembers of keys, for scripts to compare with what is kept."""

from math import inf
from typing import Final

from ...core.api_keys import ApiKey
from ...core.plans import Plan, PlanBook
from ...core.row_seals import sealed_fields
from .admission_codec import charging
from .codec import read_key, read_placement
from .key_names import Place, fields_of
from .transport.commands import Script, arguments

ADMIT: Final = Script("admit.lua")
_ARGUMENTS: Final = 10
"""EVALSHA, its digest, the number of keys, two of them, five others."""
AT_MOST: Final = 131_072
"""Hints of one store in one process: 200 MB, at 1.6 KB each. A key in use beyond costs two more
round trips whenever its hint was forgotten."""


Charged = tuple[PlanBook, Plan, bytes, bytes]
"""Plans, the one of them that holds, its mark, and how every call that admits begins."""


class KeyHint:
    """A key and where its organization was placed, as they were last seen.

    There are many: what can be had from another field is not kept.
    """

    __slots__ = ("_asked", "charged", "organization", "revoked", "sealed", "slot", "unused", "void")

    def __init__(
        self,
        place: Place,
        record: bytes,
        usage: bytes | None,
        placed: bytes | None,
        plans: PlanBook,
    ) -> None:
        key = read_key(record, usage)
        # A slot is read ten times as fast as a NamedTuple's field.
        self.slot: Final = place.slot
        self.sealed: Final = sealed_fields(key)
        """The fields that its seal covers: a token that was accepted by the same is accepted."""
        self.revoked: Final = None if key.revoked_at is None else key
        """The key with its usage, if it was revoked."""
        self.void: Final = inf if key.expires_at is None else key.expires_at
        """From when on it admits nobody."""
        self.unused: Final = key[:-2]
        """The key without its usage."""
        self.organization: Final = read_placement(key.organization, placed)
        asked = _asking(place, key.id, record, placed)
        self._asked: Final = len(asked)
        """Of how a call begins, the bytes before the plan's."""
        self.charged = self._charged(plans, asked)
        """What :meth:`under` gave at last."""

    def is_still(self, place: Place, record: bytes | None, placed: bytes | None) -> bool:
        """Whether this is what is kept, as ``admit.lua`` compares it."""
        asked = self.charged[3][: self._asked]
        return record is not None and asked == _asking(place, self.key().id, record, placed)

    def under(self, plans: PlanBook) -> Charged:
        """How to charge for the key by these plans."""
        self.charged = charged = self._charged(plans, self.charged[3][: self._asked])
        return charged

    def key(self, requests: int = 0, last_used_at: int | None = None) -> ApiKey:
        """The key with this usage."""
        return ApiKey(*self.unused, requests, last_used_at)

    def _charged(self, plans: PlanBook, asked: bytes) -> Charged:
        plan = plans.plan_of(self.organization)
        start, mark = charging(plan.windows)
        return plans, plan, mark, asked + start


def _asking(place: Place, id: str, record: bytes, placed: bytes | None) -> bytes:
    """How a call that admits by a key begins, up to the plan's part."""
    values = *fields_of(id), record, placed or b""
    return ADMIT.start(_ARGUMENTS) + arguments(b"2", place.organization, place.windows, *values)
