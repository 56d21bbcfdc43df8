"""What a process remembers of keys: a hint that scripts compare with what is kept, and no more."""

from typing import Final

from ...rules.plans import Plan, PlanBook
from .calls import Script, arguments
from .charges import charging
from .encoding import read_key, read_placement
from .names import Place, fields_of

ADMIT: Final = Script("admit_keys", "asked", "verify", "windows", "usage")
_ARGUMENTS: Final = 10
"""EVALSHA, its digest, the number of keys, two of them, five others."""
_AT_MOST: Final = 50_000


class Sight:
    """A key and where its organization was placed, as they were last seen."""

    __slots__ = ("_charged", "_placed", "_record", "key", "organization", "place", "unused")

    def __init__(
        self, place: Place, record: bytes, usage: bytes | None, placed: bytes | None
    ) -> None:
        self.place: Final = place
        self.key: Final = read_key(record, usage)
        self.unused: Final = self.key[:-2]
        """The key without its usage."""
        self.organization: Final = read_placement(self.key.organization, placed)
        self._record = record
        self._placed = placed or b""
        self._charged: tuple[PlanBook, Plan, bytes, bytes] | None = None

    def under(self, plans: PlanBook) -> tuple[Plan, bytes, bytes]:
        """The plan that holds by these plans, its mark, and how every call that admits begins."""
        known = self._charged
        if known is not None and known[0] is plans:
            return known[1:]
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
        self._charged = plans, plan, mark, asked + start  # At once: other threads look as well.
        return self._charged[1:]


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
