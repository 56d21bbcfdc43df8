"""Key hints: this process's memory of a key, verified by ``admit.lua`` on each use."""

from typing import Final

from ...core.api_keys import ApiKey
from ...core.limit_windows import LimitWindows
from ...core.limits import Limit, OwnLimits
from ...core.plans import Plan, PlanBook
from ...core.row_seals import sealed_fields
from .admission_codec import charging, limiting
from .codec import read_key, read_placement
from .key_names import Place, fields_of
from .transport.commands import Script, arguments

ADMIT: Final = Script("admit.lua")
_ARGUMENTS: Final = 10
"""The arguments: EVALSHA, the digest, the number of keys, two keys, five values."""
AT_MOST: Final = 131_072
"""The maximum number of hints of one store in one process: 200 MB, at 1.6 KB each. After its hint
was dropped, a key costs two more round trips on its next use."""


UNLIMITED: Final[tuple[tuple[Limit, ...], OwnLimits]] = ((), ())
"""No named limits of the plan, and none of the key."""
Charged = tuple[PlanBook | None, Plan, bytes, bytes, float, tuple[tuple[Limit, ...], OwnLimits]]
"""The plan book, the plan that holds, its fingerprint, the start of each call, the instant in
microseconds at which the key expires or a limit of the plan ends, and the named limits of the plan
and of the key. Without the plan book :meth:`KeyHint.under` is asked: a limit of the
plan has ended."""


class KeyHint:
    """A key and the plan assignment of its organization, as last read.

    A process keeps many, so a value that another field can give is not stored.
    """

    __slots__ = (
        "_asked",
        "_ended",
        "_named",
        "addresses",
        "charged",
        "fields",
        "organization",
        "revoked",
        "sealed",
        "slot",
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
        self.addresses: Final = key.addresses
        """The allow-list of the key; empty: it has none."""
        self.fields: Final = key[:-2]
        """The key without its usage."""
        self.organization: Final = read_placement(key.organization, placed)
        asked = _asking(place, key.id, record, placed)
        self._named: Final = len(_begun(place))
        """The number of bytes of a call before the values, with the names of its Redis keys."""
        self._asked: Final = len(asked)
        """The number of bytes of a call before the plan's part."""
        # If limits have ended already, the first answer says so, and :meth:`under` follows.
        self._ended: tuple[PlanBook, Charged] | None
        """The plan book and the charge if a limit of the plan has ended; otherwise None."""
        self.charged = self._charge(plans, asked, 0)
        """The latest result of :meth:`under`."""

    @property
    def id(self) -> str:
        """The id of the key."""
        return self.fields[0]

    @property
    def owner(self) -> str:
        """The id of the key's organization."""
        return self.fields[2]

    def is_still(self, place: Place, record: bytes | None, placed: bytes | None) -> bool:
        """Return whether record and assignment are unchanged, as ``admit.lua`` compares them."""
        asked = self.charged[3][: self._asked]
        return record is not None and asked == _asking(place, self.key().id, record, placed)

    def under(self, plans: PlanBook, now: int | None) -> Charged:
        """Return the key's plan at an instant and the start of its calls under a plan book.

        Args:
            plans: the plan book.
            now: the instant in microseconds; None: the latest at which a limit has ended.
        """
        _, plan, _, begun, _, _ = self.charged
        at = plan.since if now is None else now
        if self._ended is not None:
            book, charged = self._ended  # Threads replace both at once.
            if book is plans and charged[1].since <= at < charged[1].until:
                return charged
        self.charged = charged = self._charge(plans, begun[: self._asked], at)
        return charged

    def asking(
        self, place: Place, asked: bytes, limits: LimitWindows | None, begun: bytes
    ) -> bytes:
        """Return the start of its calls that ask for leases or are charged to named limits.

        Args:
            place: the names of its organization.
            asked: what is asked of quota leases, encoded.
            limits: the windows of the named limits.
            begun: the start of its calls without them.
        """
        size, limited = _ARGUMENTS + 1, b""
        if limits is None:
            names = arguments(b"2", place.organization, place.windows)
        else:
            names = arguments(b"3", place.organization, place.windows, place.limits)
            size, limited = size + 2 + len(limits.fields), limiting(limits)
        values, rest = begun[self._named : self._asked], begun[self._asked :]
        return b"".join((ADMIT.start(size), names, values, arguments(asked), limited, rest))

    def key(self, requests: int = 0, last_used_at: int | None = None) -> ApiKey:
        """Return the key with this usage."""
        return ApiKey(*self.fields, requests, last_used_at)

    def _charge(self, plans: PlanBook, asked: bytes, now: int) -> Charged:
        plan = plans.plan_of(self.organization, now)
        start, mark = charging(plan.windows, plan.kept_retries)
        key = self.key()
        expires_at, named = key.expires_at, UNLIMITED
        ends_at = plan.until if expires_at is None else min(expires_at, plan.until)
        if plan.limits or key.limits:
            named = plan.limits, key.limits
        if not plan.since:
            self._ended = None
            return plans, plan, mark, asked + start, ends_at, named
        charged = None, plan, mark, asked + start, ends_at, named
        self._ended = plans, charged
        return charged


def _asking(place: Place, id: str, record: bytes, placed: bytes | None) -> bytes:
    """Return the bytes of an admission up to the plan's part."""
    return _begun(place) + arguments(*fields_of(id), record, placed or b"")


def _begun(place: Place) -> bytes:
    return ADMIT.start(_ARGUMENTS) + arguments(b"2", place.organization, place.windows)
