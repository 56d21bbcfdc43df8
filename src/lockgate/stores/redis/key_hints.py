"""Key hints: this process's memory of a key, verified by ``admit.lua`` on each use."""

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
"""The arguments: EVALSHA, the digest, the number of keys, two keys, five values."""
AT_MOST: Final = 131_072
"""The maximum number of hints of one store in one process: 200 MB, at 1.6 KB each. After its hint
was dropped, a key costs two more round trips on its next use."""


Charged = tuple[PlanBook, Plan, bytes, bytes]
"""The plan book, the plan that holds, its fingerprint, and the start of each call."""


class KeyHint:
    """A key and the plan assignment of its organization, as last read.

    A process keeps many, so a value that another field can give is not stored.
    """

    __slots__ = (
        "_asked",
        "charged",
        "expires_at",
        "organization",
        "revoked",
        "sealed",
        "slot",
        "unused",
    )

    def __init__(
        self,
        place: Place,
        record: bytes,
        usage: bytes | None,
        placed: bytes | None,
        plans: PlanBook,
    ) -> None:
        key = read_key(record, usage)
        # Reading a slot takes a tenth of the time of a NamedTuple's field.
        self.slot: Final = place.slot
        self.sealed: Final = sealed_fields(key)
        """The fields that the seal covers. While they stay equal, a token stays accepted."""
        self.revoked: Final = None if key.revoked_at is None else key
        """The key with its usage if it was revoked; otherwise None."""
        self.expires_at: Final = inf if key.expires_at is None else key.expires_at
        """The instant of its expiry in microseconds, or infinity."""
        self.unused: Final = key[:-2]
        """The key without its usage."""
        self.organization: Final = read_placement(key.organization, placed)
        asked = _asking(place, key.id, record, placed)
        self._asked: Final = len(asked)
        """The number of bytes of a call before the plan's part."""
        self.charged = self._charged(plans, asked)
        """The latest result of :meth:`under`."""

    def is_still(self, place: Place, record: bytes | None, placed: bytes | None) -> bool:
        """Return whether record and assignment are unchanged, as ``admit.lua`` compares them."""
        asked = self.charged[3][: self._asked]
        return record is not None and asked == _asking(place, self.key().id, record, placed)

    def under(self, plans: PlanBook) -> Charged:
        """Return the key's plan and the start of its calls under a plan book."""
        self.charged = charged = self._charged(plans, self.charged[3][: self._asked])
        return charged

    def key(self, requests: int = 0, last_used_at: int | None = None) -> ApiKey:
        """Return the key with this usage."""
        return ApiKey(*self.unused, requests, last_used_at)

    def _charged(self, plans: PlanBook, asked: bytes) -> Charged:
        plan = plans.plan_of(self.organization)
        start, mark = charging(plan.windows)
        return plans, plan, mark, asked + start


def _asking(place: Place, id: str, record: bytes, placed: bytes | None) -> bytes:
    """Return the bytes of an admission up to the plan's part."""
    values = *fields_of(id), record, placed or b""
    return ADMIT.start(_ARGUMENTS) + arguments(b"2", place.organization, place.windows, *values)
