"""Keys as pages show them, and the rows of the list of keys."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any, Final, NamedTuple

from ..core.api_keys import ApiKey, KeyState, Labels
from ..core.timestamps import DAY
from .moments import Moment, distance, moment_of, split
from .site import templates
from .visit import Visit

_SOON: Final = 7 * DAY
_PART: Final = 10
"""A key expires soon in the last tenth of its life, at most in its last seven days."""


class Row(NamedTuple):
    """A key as pages show it."""

    id: str
    name: str
    prefix: str
    scopes: tuple[str, ...]
    labels: Labels
    created: Moment
    creator: str | None
    used: Moment | None
    ago: str | None
    expires: Moment | None
    state: str


def row_of(visit: Visit, key: ApiKey, now: int) -> Row:
    """Return a key as pages show it."""
    used, expires, details = key.last_used_at, key.expires_at, key.details
    return Row(
        key.id,
        key.name,
        key.prefix,
        key.scopes,
        () if details is None else details.labels,
        moment_of(key.created_at),
        None if details is None else visit.creator_shown(details.created_by),
        None if used is None else moment_of(used),
        None if used is None else visit.ago(used, now),
        None if expires is None else moment_of(expires),
        state_of(key, now),
    )


def state_of(key: ApiKey, now: int) -> str:
    """Return the state of a key as a page shows it."""
    state = key.state(now)
    if state is not KeyState.ACTIVE:
        return str(state.value)
    if key.successor is not None:
        return "rotated"
    expires_at = key.expires_at
    if expires_at is None or expires_at - now > _SOON:
        return "active"
    return "soon" if (expires_at - now) * _PART <= expires_at - key.created_at else "active"


class Marks:
    """The places of values in HTML that a template renders: ``{{ mark.name }}``."""

    def __getitem__(self, name: str) -> str:
        return f"\0{name}\0"


def fill_in(html: str, *names: str) -> Callable[[tuple[str, ...]], str]:
    """Return a function that fills in HTML with marks many times.

    It takes the values in the places of the marks, which are HTML, too. It is the formatting of a
    text alone: a call of a Python function for each cell would cost as much again.

    Args:
        html: what a template rendered with :class:`Marks`.
        names: the names of the marks, in their order in the HTML.
    """
    pieces = str(html).split("\0")
    assert (*pieces[1::2],) == names, f"the template has other marks: {pieces[1::2]}"
    return "%s".join(piece.replace("%", "%%") for piece in pieces[::2]).__mod__


class _Shared:
    """The parts that many rows of a page have in common, each rendered once."""

    def __init__(self, visit: Visit) -> None:
        self._visit: Final = visit
        self._parts: Final[Any] = templates().get_template("parts.html").module
        self.scopes: Final = cache(self._scopes)
        self.labels: Final = cache(self._labels)
        self.creator: Final = cache(self._creator)
        self.state: Final = cache(self._state)
        self.ago: Final = cache(self._ago)

    def _scopes(self, scopes: tuple[str, ...]) -> str:
        return str(self._parts.chips_of(self._visit.site.texts, scopes))

    def _labels(self, labels: Labels) -> str:
        return str(self._parts.tags_of(self._visit, labels))

    def _creator(self, creator: str | None) -> str:
        shown = self._visit.creator_shown(creator)
        return str(self._parts.creator_of(self._visit.site.texts, shown))

    def _state(self, state: str) -> str:
        return escape(self._visit.site.texts(f"state.{state}"))

    def _ago(self, name: str, number: int) -> str:
        return escape(self._visit.site.texts(name, n=number))


class KeyRows:
    """The rows of a list of keys.

    A template spends 50 us on a row, since it looks up, escapes and joins some forty pieces. So it
    renders one row with :class:`Marks`, and :meth:`write` fills it in for each key, in 9 us.

    Args:
        visit: the visit of the page.
        keys: in their order.
        now: the present instant.
    """

    def __init__(self, visit: Visit, keys: Sequence[ApiKey], now: int) -> None:
        self._visit: Final = visit
        self._keys: Final = keys
        self._now: Final = now

    def __len__(self) -> int:
        return len(self._keys)

    def write(
        self, row: str, used: str, expires: str, never: str, menu: str, menu_rotated: str
    ) -> str:
        """Return the rows as HTML, in which every value is escaped.

        Args:
            row: one row, with a mark for each value.
            used: the cell of a last use, with marks.
            expires: the cell of an expiry, with marks.
            never: the text in place of either.
            menu: the actions of a live key, with marks; empty: the visitor may change none.
            menu_rotated: those of a live key that another one replaces.
        """
        now, shared = self._now, _Shared(self._visit)
        fill_used = fill_in(used, "date", "time", "date", "time", "ago")
        fill_expires = fill_in(expires, "date", "time", "date")
        fill_row = fill_in(
            row,
            *("state", "id", "name", "labels", "prefix", "scopes", "date", "time", "date"),
            *("creator", "used", "expires", "state", "title", "menu"),
        )
        menus = _menus(menu, menu_rotated)

        def write(key: ApiKey) -> str:
            date, time = split(key.created_at)
            used_at, expires_at, details = key.last_used_at, key.expires_at, key.details
            id, name = escape(key.id), escape(key.name)
            state, last_use, expiry, labels, creator = state_of(key, now), never, never, "", ""
            if used_at is not None:
                day, minute = split(used_at)
                last_use = fill_used(
                    (day, minute, day, minute, shared.ago(*distance(used_at, now)))
                )
            if expires_at is not None:
                day, minute = split(expires_at)
                expiry = fill_expires((day, minute, day))
            if details is not None:
                labels, creator = shared.labels(details.labels), shared.creator(details.created_by)
            values = (
                *(state, id, name, labels, escape(key.prefix)),
                *(shared.scopes(key.scopes), date, time, date, creator, last_use, expiry),
                *(state, shared.state(state)),
                menus[state](name, id) if state in menus else "",
            )
            return fill_row(values)

        return "".join(map(write, self._keys))


def _menus(menu: str, menu_rotated: str) -> Mapping[str, Callable[[str, str], str]]:
    """Return functions that write the menu of a key by its name and id, by the key's state.

    None without menus.
    """
    if not menu:
        return {}
    fill = fill_in(menu, "name", "id", "id", "id")
    fill_rotated = fill_in(menu_rotated, "name", "id", "id")

    def write(name: str, id: str) -> str:
        return fill((name, id, id, id))

    def write_rotated(name: str, id: str) -> str:
        return fill_rotated((name, id, id))

    return {"active": write, "soon": write, "rotated": write_rotated}
