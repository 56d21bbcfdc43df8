"""Stores that keep or compare one text loosely: each fold of a database, in each kind of field.

A few of the combinations run with every change, so that each fold and each field is in one of
them. What columns, keys of caches and metrics make of the names of limits runs with every change.
"""

from __future__ import annotations

import html
import posixpath
import quopri
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, unquote_plus
from zlib import crc32

from lockgate.core.api_keys import KeyDetails
from lockgate.core.holds import PREFIX
from lockgate.testing.checks import Part

from .mutants import Call, How, folded, wrong
from .mutants_of_holds import HoldMutant
from .mutants_of_limits import LimitMutant
from .mutants_of_usage import for_other_owners

Fold = Callable[[str], str]


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
    "folds": str.casefold,
    "lowers": str.lower,
    "trims": str.strip,
    "pads": lambda text: text.rstrip(" "),
    "composes": lambda text: unicodedata.normalize("NFC", text),
    "normalizes": lambda text: unicodedata.normalize("NFKC", text),
    "unaccents": lambda text: "".join(
        c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c)
    ),
    "unescapes": html.unescape,
    "unquotes": unquote_plus,
    "unslashes": lambda text: text.replace("\\\\", "\\"),
    "doubles_quotes": lambda text: text.replace("''", "'"),
    "counts": _numeric,
    "cuts": lambda text: text[:60],
    "cuts_at_the_end": lambda text: text[:99],
    "loses_emoji": lambda text: "".join(c for c in text if ord(c) < 0x1_0000),
    "underscores": lambda text: text.replace(":", "_"),
    "slashes": lambda text: text.replace("\\", "/"),
    "dashes": lambda text: text.replace("-", "_"),
    "slugs": lambda text: re.sub(r"\W", "_", text),
    "drops_marks": lambda text: re.sub(r"(?<=\w)[^\w\s](?=\w)", "", text),
    "percents": lambda text: unquote(text, errors="surrogatepass"),
    "paths": posixpath.normpath,
    "decodes_mail": lambda text: quopri.decodestring(text.encode("utf-8", "surrogatepass")).decode(
        "utf-8", "surrogateescape"
    ),
    "hashes": lambda text: f"{crc32(text.encode('utf-8', 'surrogatepass')):x}",
    "hashes_as_fnv": lambda text: f"{_fnv(text):x}",
    "nulls": lambda text: "" if text.lower() in ("null", "none") else text,
}
"""What databases, drivers and templates do to texts, by name."""


Folded = Callable[[Fold], How]
"""Makes the mistake of a fold."""


def _argument(name: str) -> Folded:
    """Fold an argument."""
    return lambda fold: folded(fold, name)


def _row(row: str, *fields: str) -> Folded:
    """Fold some fields of a row, which are a text, several, or None."""

    def of(fold: Fold) -> How:
        def folded_one(value: Any) -> Any:
            if isinstance(value, str | None):
                return value and fold(value)
            return _details(value, fold) if isinstance(value, KeyDetails) else (*map(fold, value),)

        def how(call: Call) -> Any:
            given = getattr(call, row)
            changed = {field: folded_one(getattr(given, field)) for field in fields}
            return call(**{row: given._replace(**changed)})

        return how

    return of


def _details(details: KeyDetails, fold: Fold) -> KeyDetails:
    labels = tuple((fold(name), fold(value)) for name, value in details.labels)
    return details._replace(
        created_by=details.created_by and fold(details.created_by), labels=labels
    )


def _record(fold: Fold) -> How:
    def how(call: Call) -> Any:
        change = call.change
        if change is not None:
            actor = change.actor._replace(id=change.actor.id and fold(change.actor.id))
            after = tuple((fold(name), value) for name, value in change.after)
            change = change._replace(actor=actor, after=after)
        return call(change=change)

    return how


def _compared(field: str) -> Folded:
    """Compare a field of a key loosely before a change."""

    def of(fold: Fold) -> How:
        def texts(key: Any) -> list[str]:
            value = getattr(key, field)
            return [*map(fold, [value] if isinstance(value, str) else value)]

        async def how(call: Call) -> Any:
            found, old = await call.store.find(call.old.handle), call.old
            if found is not None and texts(found) == texts(old):
                old = old._replace(**{field: getattr(found, field)})
            return await call(old=old)

        return how

    return of


def _searched(fold: Fold) -> How:
    async def how(call: Call) -> Any:
        prefix = call.wanted.prefix
        if prefix is None:
            return await call()
        rows, found = await call.store.scan(call.cursor, 500), await call()
        wide = [key for key in rows.keys if fold(key.prefix) == fold(prefix)]
        return found._replace(keys=[key for key in wide if key.handle.startswith("~")])

    return how


def _histories(fold: Fold) -> How:
    return for_other_owners(lambda owner: owner._replace(organization=fold(owner.organization)))


class Field(NamedTuple):
    """A text that a store keeps or compares."""

    name: str
    part: Part
    killed_by: str
    verbs: str
    how: Folded
    folds: Sequence[str] = tuple(FOLDS)
    """Names of the folds that a valid text of this field can show."""


_SHORT: Final = tuple(name for name in FOLDS if name != "cuts_at_the_end")
"""For texts that are shorter than a name."""
_SLOTS: Final = "acquire renew release"
FIELDS: Final = (
    Field("windows", "windows", "W8", "hit peek", _argument("organization")),
    Field("slots", "slots", "W8", f"{_SLOTS} held", _argument("organization")),
    Field("jobs", "slots", "W8 L6 L5", _SLOTS, _argument("job")),
    Field("lease_owners", "slots", "W8 L5 L4", _SLOTS, _argument("owner")),
    Field("names", "keys", "K1", "insert", _row("draft", "name")),
    Field("prefixes", "keys", "K1", "insert", _row("draft", "prefix"), _SHORT),
    Field("scopes", "keys", "K1", "insert", _row("draft", "scopes")),
    Field("details", "keys", "K1", "insert", _row("draft", "details")),
    Field("compared_names", "keys", "K1 D43", "update_if", _compared("name")),
    Field("compared_scopes", "keys", "K1 D43", "update_if", _compared("scopes")),
    Field("handles", "keys", "D3 K1", "find", _argument("handle"), ("folds", "lowers", "counts")),
    Field("agents", "accounts", "D14 R1", "register", _row("account", "agent_name")),
    Field("emails", "accounts", "D14", "register", _row("account", "billing_email")),
    Field("companies", "accounts", "D14 R1", "register", _row("account", "company_name")),
    Field("users", "accounts", "D14 R3 W8", "claim_if_unclaimed", _argument("user")),
    Field("plans", "accounts", "D25", "put_organization", _row("organization", "plan"), _SHORT),
    Field("records", "changes", "D44", "insert", _record, _SHORT),
    Field("resets", "windows", "W8", "reset", _argument("organization"), _SHORT),
    Field("limit_windows", "limits", "W8", "hit peek", _argument("organization")),
    Field("budgets", "holds", "W8", "hold", _argument("organization")),
    Field(
        "key_owners",
        "keys",
        "K1 W8",
        "get list list_live revoke_if_live",
        _argument("organization"),
    ),
    Field(
        "account_owners", "accounts", "D14 W8 R1 D15", "account sign_in", _argument("organization")
    ),
    Field("plan_owners", "accounts", "D25 W8", "organization", _argument("id")),
    Field("log_owners", "changes", "D44 W8", "change_log", _argument("organization")),
    Field("searches", "admission", "K1", "search", _searched, _SHORT),
    Field("histories", "admission", "W8", "add_history history", _histories, _SHORT),
)

for place, (field, part, killed_by, verbs, made, folds) in enumerate(FIELDS):
    for number, fold in enumerate(folds):
        is_quick = place == 0 or number == place % len(folds)
        own: dict[str, Any] = {"parts": (part,), "in_each_run": is_quick}
        wrong(killed_by, *verbs.split(), name=f"{fold}_{field}", **own)(made(FOLDS[fold]))


# Names of limits and budgets.
def _of_names(fold: Fold) -> Fold:
    """Fold the name of the limit only."""

    def folded(field: str) -> str:
        name, space, rest = field.partition(" ")
        return fold(name) + space + rest

    return folded


def _java(text: str) -> str:
    value = 0
    for character in text:
        value = (31 * value + ord(character)) % 2**32
    return str(value)


NAME_FOLDS: Final[Mapping[str, Fold]] = {
    "takes_dashes_for_underscores": lambda field: field.replace("-", "_"),
    "drops_dashes": _of_names(lambda name: re.sub("[-_]", "", name)),
    "joins_dashes": _of_names(lambda name: re.sub("([-_])+", r"\1", name)),
    "strips_dashes": _of_names(lambda name: name.rstrip("-_")),
    "cuts_at64": lambda field: field[:64],
    "cuts_at100": lambda field: field[:100],
    "cuts_names_at63": _of_names(lambda name: name[:63]),
    "cuts_names_at32": _of_names(lambda name: name[:32]),
    "keeps_the_last64": lambda field: field[-64:],
    "cuts_keys_at8": lambda field: re.sub(r" ([0-9a-f]{8})-\S+", r" \1", field),
    "keeps_the_last_of_keys": lambda field: re.sub(r" [0-9a-f]{8}-\S+-", " ", field),
    "runs_parts_together": lambda field: field.replace(" ", ""),
    "drops_digits": _of_names(lambda name: name.rstrip("0123456789")),
    "reads_numbers": _of_names(lambda name: re.sub(r"0+(?=\d)", "", name)),
    "takes_own_limits_for_those_of_rules": lambda field: field.removesuffix(" own"),
    "forgets_names": _of_names(lambda name: ""),
    "hashes_names": _of_names(lambda name: f"{crc32(name.encode())}"),
    "hashes_names_as_java_does": _of_names(_java),
    "sorts_letters": _of_names(lambda name: "".join(sorted(name))),
    "keeps_initials": _of_names(lambda name: re.sub(r"([a-z])[a-z]*", r"\1", name)),
}
"""What columns, keys of caches and metrics make of names, by what it is called."""


def _fields(fold: Fold, prefix: str = "") -> How:
    """Count limits together whose fields are alike."""
    return lambda call: (call.organization, prefix + fold(call.field.removeprefix(prefix)))


for _name, _fold in NAME_FOLDS.items():
    # The limits of a key are seen by its admissions. A key has no budgets of its own.
    of_rules = "own" not in _name
    named = f"{_name}_of_limits"
    wrong("W8" if of_rules else "W9", "name", of=LimitMutant, name=named)(_fields(_fold))
    if of_rules:
        named = f"{_name}_of_budgets"
        wrong("W8", "name", of=HoldMutant, name=named)(_fields(_fold, PREFIX))
