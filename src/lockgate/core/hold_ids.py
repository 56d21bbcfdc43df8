"""The id of a hold, by which any process settles it: its organization, its key, its budgets, the
limits that it was asked for and has no units of, and a random part.

A client may be given the id, as that of its job, so the id is sealed: :mod:`.sealed_texts`."""

import json
import re
from datetime import date
from secrets import token_hex
from typing import Final, NamedTuple, Self, cast

from .holds import PREFIX, Quotas
from .limit_windows import PERIOD
from .limits import NAME, WINDOWS_AT_MOST
from .periods import UNITS, Quota, Unit, read_zone
from .plans import is_id, is_whole
from .sealed_texts import TextSeal
from .sliding_window import LARGEST

_SECRET: Final = re.compile(r"[0-9a-f]{32}")
_HANDLE: Final = re.compile(r"[!-~]{1,64}")
_FIELD: Final = re.compile(rf"{NAME.pattern} [1-9][0-9]{{0,4}}( [!-~]{{1,64}})?")
_FIELD_OF_QUOTA: Final = re.compile(
    rf"{NAME.pattern}{PERIOD}({'|'.join(UNITS)}) [1-9][0-9]{{0,7}}( [!-~]{{1,64}})?"
)
_LONGEST: Final = 4096


class HoldId(NamedTuple):
    """The parts of a hold's id."""

    secret: str
    """32 hexadecimal digits, impossible to guess."""
    organization: str
    fields: tuple[str, ...]
    """The fields of its budgets."""
    quotas: Quotas = ()
    """The calendars of its budgets, so that a process that does not know the limits counts in the
    right period."""
    unbound: tuple[str, ...] = ()
    """The names of limits by key, where the caller has none: its use of them is not counted."""
    untaken: tuple[str, ...] = ()
    """The names of limits of which it took no units."""
    handle: str | None = None
    """The handle of the key whose usage the units are; None: the caller has none."""

    @classmethod
    def new(
        cls,
        organization: str,
        fields: tuple[str, ...],
        quotas: Quotas = (),
        unbound: tuple[str, ...] = (),
        untaken: tuple[str, ...] = (),
        handle: str | None = None,
    ) -> Self:
        """Return the id of a new hold."""
        return cls(token_hex(16), organization, fields, quotas, unbound, untaken, handle)

    def written(self, seal: TextSeal) -> str:
        """Return the id as one word of A-Z, a-z, 0-9, ``-`` and ``_``."""
        quotas = self.quotas or (None,) * len(self.fields)
        fields = [
            _written(field.removeprefix(PREFIX), quota)
            for field, quota in zip(self.fields, quotas, strict=True)
        ]
        fields += ([name] for name in self.unbound)
        fields += ([name, 0] for name in self.untaken)
        # Unescaped: two escaped surrogates would be read as one character.
        text = json.dumps(
            [self.secret, self.organization, self.handle, *fields], ensure_ascii=False
        )
        return seal.write(text.encode("utf-8", "surrogatepass"))

    @classmethod
    def read(cls, text: object, seal: TextSeal) -> Self:
        """Return the parts of an id.

        Raises:
            ValueError: it is malformed, or not as :meth:`written` returned it.
        """
        if not isinstance(text, str) or len(text) > _LONGEST:
            raise ValueError("A hold's id is a text of up to 4096 characters.")
        value = seal.read(text).decode("utf-8", "surrogatepass")
        try:
            parts = json.loads(value)
        except RecursionError:
            raise ValueError("A hold's id is one list.") from None
        match parts:
            case [str(secret), str(organization), str() | None as handle, *fields] if (
                _SECRET.fullmatch(secret)
                and is_id(organization)
                and (handle is None or _HANDLE.fullmatch(handle))
                and len(fields) <= WINDOWS_AT_MOST
            ):
                budgets = [_read(field) for field in fields if not _is_left_out(field)]
                left_out = [field for field in fields if _is_left_out(field)]
            case _:
                raise ValueError("A hold's id names an organization and its budgets.")
        names = tuple(f"{PREFIX}{field}" for field, _ in budgets)
        quotas = tuple(quota for _, quota in budgets)
        unbound = tuple(field[0] for field in left_out if len(field) == 1)
        untaken = tuple(field[0] for field in left_out if len(field) == 2)
        quotas = quotas if any(quotas) else ()
        return cls(secret, organization, names, quotas, unbound, untaken, handle)


def _written(field: str, quota: Quota | None) -> object:
    """Return a field for the id: a text, that of a calendar quota a list with its calendar."""
    if quota is None:
        return field
    assert isinstance(quota.starts, date), "the quota is that of the organization"
    return [field, quota.limit, quota.soft, quota.starts.isoformat(), quota.zone]


def _is_left_out(written: object) -> bool:
    """Return whether this is the name of a limit that the hold has no units of."""
    match written:
        case [str(name)] | [str(name), 0]:
            return NAME.fullmatch(name) is not None
        case _:
            return False


def _read(written: object) -> tuple[str, Quota | None]:
    """Return a field and its calendar.

    Raises:
        ValueError: it is malformed.
    """
    match written:
        case str(field) if _FIELD.fullmatch(field):
            return field, None
        case [str(field), int(limit), bool(soft), str(starts), str(zone)] if (
            is_whole(limit)
            and 1 <= limit <= LARGEST
            and (found := _FIELD_OF_QUOTA.fullmatch(field))
        ):
            read_zone(zone)
            unit = cast(Unit, found.group(1))
            return field, Quota(unit, limit, soft, date.fromisoformat(starts), zone)
        case _:
            raise ValueError("A hold's id names fields of budgets.")
