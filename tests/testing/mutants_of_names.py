"""Stores that keep the counts of two limits as one, by what they make of the fields' names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final
from zlib import crc32

from lockgate.core.holds import PREFIX

from .mutants import Mutant
from .mutants_of_holds import HoldMutant
from .mutants_of_limits import LimitMutant

Fold = Callable[[str], str]


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


FOLDS: Final[Mapping[str, Fold]] = {
    "TakesDashesForUnderscores": lambda field: field.replace("-", "_"),
    "DropsDashes": _of_names(lambda name: re.sub("[-_]", "", name)),
    "JoinsDashes": _of_names(lambda name: re.sub("([-_])+", r"\1", name)),
    "StripsDashes": _of_names(lambda name: name.rstrip("-_")),
    "CutsAt64": lambda field: field[:64],
    "CutsAt100": lambda field: field[:100],
    "CutsNamesAt63": _of_names(lambda name: name[:63]),
    "CutsNamesAt32": _of_names(lambda name: name[:32]),
    "KeepsTheLast64": lambda field: field[-64:],
    "CutsKeysAt8": lambda field: re.sub(r" ([0-9a-f]{8})-\S+", r" \1", field),
    "KeepsTheLastOfKeys": lambda field: re.sub(r" [0-9a-f]{8}-\S+-", " ", field),
    "RunsPartsTogether": lambda field: field.replace(" ", ""),
    "DropsDigits": _of_names(lambda name: name.rstrip("0123456789")),
    "ReadsNumbers": _of_names(lambda name: re.sub(r"0+(?=\d)", "", name)),
    "TakesOwnLimitsForThoseOfRules": lambda field: field.removesuffix(" own"),
    "ForgetsNames": _of_names(lambda name: ""),
    "HashesNames": _of_names(lambda name: f"{crc32(name.encode())}"),
    "HashesNamesAsJavaDoes": _of_names(_java),
    "SortsLetters": _of_names(lambda name: "".join(sorted(name))),
    "KeepsInitials": _of_names(lambda name: re.sub(r"([a-z])[a-z]*", r"\1", name)),
}
"""What columns, keys of caches and metrics make of names, by what it is called."""


class AlikeLimits(LimitMutant):
    """Counts some named limits together."""

    fold: ClassVar[Any] = staticmethod(str)

    def name(self, organization: str, field: str, window: Any) -> tuple[str, str]:
        return organization, self.fold(field)


class AlikeBudgets(HoldMutant):
    """Counts some budgets together."""

    fold: ClassVar[Any] = staticmethod(str)

    def name(self, organization: str, field: str) -> tuple[str, str]:
        return organization, PREFIX + self.fold(field.removeprefix(PREFIX))


def combined() -> Iterator[type[Mutant]]:
    """Return two stores for each fold."""
    bases: tuple[type[AlikeLimits | AlikeBudgets], ...] = (AlikeLimits, AlikeBudgets)
    for base in bases:
        for how, fold in FOLDS.items():
            if base is AlikeLimits or "Own" not in how:  # A key has no budgets of its own.
                # The limits of a key are seen by its admissions.
                killed_by = frozenset({"W9" if "Own" in how else "W8"})
                own: dict[str, Any] = {"killed_by": killed_by, "fold": staticmethod(fold)}
                own["__module__"] = __name__
                what = base.__name__.removeprefix("Alike")
                made: Any = type(f"{how}Of{what}", (base,), own)
                yield made


EVERY: Final = tuple(combined())
