"""Stores that keep or compare one text loosely: each fold of a database, in each kind of field.

A few of the combinations run with every change, so that each fold and each field is in one of
them; all of them are :func:`combined`.
"""

from __future__ import annotations

import html
import posixpath
import quopri
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from urllib.parse import unquote, unquote_plus
from zlib import crc32

from lockgate.core.api_keys import ApiKey, KeyDetails
from lockgate.core.changes import ChangeDraft
from lockgate.core.key_search import KeySearch
from lockgate.stores.answers import HistoryOwner
from lockgate.testing.checks import Part

from .mutants import Mutant

Fold = Callable[[str], str]
Folds = Callable[[Fold], dict[str, Any]]


def _fnv(text: str) -> int:
    value = 2166136261
    for byte in text.encode("utf-8", "surrogatepass"):
        value = (value ^ byte) * 16777619 % 2**32
    return value


def _numeric(text: str) -> str:
    with suppress(ValueError):
        return f"{float(text):g}"
    return text


FOLDS: Final[Mapping[str, Fold]] = {
    "Folds": str.casefold,
    "Lowers": str.lower,
    "Trims": str.strip,
    "Pads": lambda text: text.rstrip(" "),
    "Composes": lambda text: unicodedata.normalize("NFC", text),
    "Normalizes": lambda text: unicodedata.normalize("NFKC", text),
    "Unaccents": lambda text: "".join(
        c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c)
    ),
    "Unescapes": html.unescape,
    "Unquotes": unquote_plus,
    "Unslashes": lambda text: text.replace("\\\\", "\\"),
    "DoublesQuotes": lambda text: text.replace("''", "'"),
    "Counts": _numeric,
    "Cuts": lambda text: text[:60],
    "CutsAtTheEnd": lambda text: text[:99],
    "LosesEmoji": lambda text: "".join(c for c in text if ord(c) < 0x1_0000),
    "Underscores": lambda text: text.replace(":", "_"),
    "Slashes": lambda text: text.replace("\\", "/"),
    "Dashes": lambda text: text.replace("-", "_"),
    "Slugs": lambda text: re.sub(r"\W", "_", text),
    "DropsMarks": lambda text: re.sub(r"(?<=\w)[^\w\s](?=\w)", "", text),
    "Percents": lambda text: unquote(text, errors="surrogatepass"),
    "Paths": posixpath.normpath,
    "DecodesMail": lambda text: quopri.decodestring(text.encode("utf-8", "surrogatepass")).decode(
        "utf-8", "surrogateescape"
    ),
    "Hashes": lambda text: f"{crc32(text.encode('utf-8', 'surrogatepass')):x}",
    "HashesAsFnv": lambda text: f"{_fnv(text):x}",
    "Nulls": lambda text: "" if text.lower() in ("null", "none") else text,
}
"""What databases, drivers and templates do to texts, by name."""


def _texts_of_details(details: KeyDetails | None, fold: Fold) -> KeyDetails | None:
    if details is None:
        return None
    labels = tuple((fold(name), fold(value)) for name, value in details.labels)
    creator = details.created_by and fold(details.created_by)
    return details._replace(created_by=creator, labels=labels)


def _above(store: Any) -> Any:
    """Return the store without its mistake."""
    return super(type(store), store)


def _argument(place: int, *verbs: str) -> Folds:
    """Fold one argument of some verbs."""

    def verb(name: str, fold: Fold) -> Any:
        async def call(self: Any, *arguments: Any, **options: Any) -> Any:
            changed = [*arguments]
            changed[place] = fold(changed[place])
            return await getattr(_above(self), name)(*changed, **options)

        return call

    return lambda fold: {name: verb(name, fold) for name in verbs}


def _row(verb: str, place: int, change: Callable[[Any, Fold], Any]) -> Folds:
    """Fold some fields of a row that a verb is given."""

    def folded(fold: Fold) -> dict[str, Any]:
        async def call(self: Any, *arguments: Any, **options: Any) -> Any:
            changed = [*arguments]
            changed[place] = change(changed[place], fold)
            return await getattr(_above(self), verb)(*changed, **options)

        return {verb: call}

    return folded


def _plan(one: Any, fold: Fold) -> Any:
    return one._replace(plan=fold(one.plan))


def _record(fold: Fold) -> dict[str, Any]:
    async def insert(self: Any, *arguments: Any, change: Any = None, **options: Any) -> Any:
        if isinstance(change, ChangeDraft):
            actor = change.actor._replace(id=change.actor.id and fold(change.actor.id))
            after = tuple((fold(name), value) for name, value in change.after)
            change = change._replace(actor=actor, after=after)
        return await _above(self).insert(*arguments, change=change, **options)

    return {"insert": insert}


def _compared(field: str) -> Folds:
    """Compare a field of a key loosely before a change."""

    def folded(fold: Fold) -> dict[str, Any]:
        def alike(one: Any, other: Any) -> bool:
            if isinstance(one, str):
                return fold(one) == fold(other)
            return [*map(fold, one)] == [*map(fold, other)]

        async def update_if(self: Any, old: ApiKey, new: ApiKey, *rest: Any, **options: Any) -> Any:
            found = await self.find(old.handle)
            if found is not None and alike(getattr(found, field), getattr(old, field)):
                old = old._replace(**{field: getattr(found, field)})
            return await _above(self).update_if(old, new, *rest, **options)

        return {"update_if": update_if}

    return folded


def _searched(fold: Fold) -> dict[str, Any]:
    async def search(self: Any, wanted: KeySearch, limit: int, cursor: str | None = None) -> Any:
        if wanted.prefix is None:
            return await _above(self).search(wanted, limit, cursor)
        rows = await self.scan(cursor, 500)
        found = await _above(self).search(wanted, limit, cursor)
        wide = [k for k in rows.keys if fold(k.prefix) == fold(wanted.prefix)]
        return found._replace(keys=[key for key in wide if key.handle.startswith("~")])

    return {"search": search}


def _histories(fold: Fold) -> dict[str, Any]:
    async def add_history(self: Any, additions: Any, batch: Any = None) -> None:
        if not self._is_new(batch):
            return
        for (organization, handle), addition in additions.items():
            owner = HistoryOwner(fold(organization), handle)
            await _above(self).add_history({owner: addition})

    async def history(self: Any, owner: HistoryOwner) -> Any:
        folded = owner._replace(organization=fold(owner.organization))
        return await _above(self).history(folded)

    return {"add_history": add_history, "history": history}


@dataclass(frozen=True)
class Field:
    """A text that a store keeps or compares."""

    name: str
    parts: tuple[Part, ...]
    killed_by: frozenset[str]
    verbs: Folds
    folds: Sequence[str] = tuple(FOLDS)
    """Names of the folds that a valid text of this field can show."""


def _of(
    name: str,
    parts: tuple[Part, ...],
    killed_by: str,
    verbs: Folds,
    folds: Sequence[str] = tuple(FOLDS),
) -> Field:
    return Field(name, parts, frozenset(killed_by.split()), verbs, folds)


KEYS: Final = ("keys",)
_SHORT: Final = tuple(name for name in FOLDS if name != "CutsAtTheEnd")
"""For texts that are shorter than a name."""
FIELDS: Final = (
    _of("Windows", ("windows",), "W8", _argument(0, "hit", "peek")),
    _of("Slots", ("slots",), "W8", _argument(0, "acquire", "renew", "release", "held")),
    _of("Jobs", ("slots",), "W8 L6 L5", _argument(1, "acquire", "renew", "release")),
    _of("LeaseOwners", ("slots",), "W8 L5 L4", _argument(2, "acquire", "renew", "release")),
    _of("Names", KEYS, "K1", _row("insert", 0, lambda d, f: d._replace(name=f(d.name)))),
    _of(
        "Prefixes",
        KEYS,
        "K1",
        _row("insert", 0, lambda d, f: d._replace(prefix=f(d.prefix))),
        _SHORT,
    ),
    _of("Scopes", KEYS, "K1", _row("insert", 0, lambda d, f: d._replace(scopes=(*map(f, d[5]),)))),
    _of(
        "Details",
        KEYS,
        "K1",
        _row("insert", 0, lambda d, f: d._replace(details=_texts_of_details(d.details, f))),
    ),
    _of("ComparedNames", KEYS, "K1 D43", _compared("name")),
    _of("ComparedScopes", KEYS, "K1 D43", _compared("scopes")),
    _of("Handles", KEYS, "D3 K1", _argument(0, "find"), ("Folds", "Lowers", "Counts")),
    _of(
        "Agents",
        ("accounts",),
        "D14 R1",
        _row("register", 0, lambda d, f: d._replace(agent_name=f(d.agent_name))),
    ),
    _of(
        "Emails",
        ("accounts",),
        "D14",
        _row("register", 0, lambda d, f: d._replace(billing_email=f(d.billing_email))),
    ),
    _of(
        "Companies",
        ("accounts",),
        "D14 R1",
        _row("register", 0, lambda d, f: d._replace(company_name=f(d.company_name or "") or None)),
    ),
    _of(
        "Users",
        ("accounts",),
        "D14 R3 W8",
        _argument(1, "claim_if_unclaimed"),
    ),
    _of("Plans", ("accounts",), "D25", _row("put_organization", 0, _plan), _SHORT),
    _of("Records", ("changes",), "D44", _record, _SHORT),
    _of("Resets", ("windows",), "W8", _argument(0, "reset"), _SHORT),
    _of("LimitWindows", ("limits",), "W8", _argument(0, "hit", "peek")),
    _of("Budgets", ("holds",), "W8", _argument(0, "hold")),
    _of("KeyOwners", KEYS, "K1 W8", _argument(0, "get", "list", "list_live", "revoke_if_live")),
    _of("AccountOwners", ("accounts",), "D14 W8 R1 D15", _argument(0, "account", "sign_in")),
    _of("PlanOwners", ("accounts",), "D25 W8", _argument(0, "organization")),
    _of("LogOwners", ("changes",), "D44 W8", _argument(0, "change_log")),
    _of("Searches", ("admission",), "K1", _searched, _SHORT),
    _of("Histories", ("admission",), "W8", _histories, _SHORT),
)


class Loose(Mutant):
    """Keeps or compares one text loosely."""

    in_each_run: ClassVar[bool] = False
    """Whether it runs with every change: each fold in the first field, and one fold, each another,
    in every other field."""
    parts: ClassVar[tuple[Part, ...]] = ()


def combined() -> Iterator[type[Loose]]:
    """Return a store for each fold in each field."""
    for place, field in enumerate(FIELDS):
        for how in field.folds:
            fold = FOLDS[how]
            own: dict[str, Any] = {
                "killed_by": field.killed_by,
                "parts": field.parts,
                "__module__": __name__,
            }
            in_each_run = place == 0 or how == field.folds[place % len(field.folds)]
            own |= {"in_each_run": in_each_run, **field.verbs(fold)}
            yield type(f"{how}{field.name}", (Loose,), own)


EVERY: Final = tuple(combined())
