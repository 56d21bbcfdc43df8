"""A check: a guarantee of the contract, and calls that test it."""

from collections.abc import Callable, Coroutine
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast, get_args

from ...errors import ConfigurationError
from ...stores.base import PartStore, Store
from ..factories import Factory
from ..lockstep import Lockstep
from .callers import Callers

Part = Literal[
    "keys",
    "windows",
    "slots",
    "accounts",
    "admission",
    "changes",
    "limits",
    "holds",
    "quota_leases",
]
PARTS: Final[tuple[Part, ...]] = get_args(Part)
"""The parts of a store; ``admission`` is the verb that needs the others, ``Store.admit``,
``changes`` the change log of keys and accounts, ``limits`` the named limits that windows and
admissions may have, ``holds`` the budgets of holds, beside windows, and ``quota_leases`` the leases
that admissions grant, of stores with ``grants_leases``."""

Script: TypeAlias = Callable[[Store, Factory], Coroutine[Any, Any, None]]
Bustle: TypeAlias = Callable[[Callers], Coroutine[Any, Any, None]]


class Check(NamedTuple):
    """One check; :meth:`of` runs it on an empty store."""

    sentence: str
    part: Part
    name: str
    crowded: bool
    """Whether the check has concurrent callers, so that it runs in threads and in tasks."""
    of: Callable[[Store], Coroutine[Any, Any, None]]
    """Runs the check on an empty store; raises :class:`~lockgate.testing.Broken`."""

    def __str__(self) -> str:
        return f"{self.sentence}-{self.name}"


def whole(store: PartStore) -> Store:
    """Return a store with the type that checks expect; they call the verbs of its parts only.

    Raises:
        ConfigurationError: the store does not declare its I/O mode.
    """
    if not hasattr(store, "io"):
        raise ConfigurationError(
            f"{type(store).__name__} does not say whether it waits: give the class "
            "io = 'none', 'sync', 'async' or 'both'."
        )
    return cast(Store, store)


def applies(part: Part, store: PartStore) -> bool:
    """Return whether a store has a part: quota leases are those of a store that tells so."""
    return part != "quota_leases" or getattr(store, "grants_leases", False)


def alone(sentence: str, part: Part) -> Callable[[Script], Check]:
    """Make a check with one caller, whose answers must equal the model's."""

    def make(script: Script) -> Check:
        def of(store: Store) -> Coroutine[Any, Any, None]:
            return script(Lockstep.of(store, sentence), Factory())

        return Check(sentence, part, script.__name__, False, of)

    return make


def crowded(sentence: str, part: Part) -> Callable[[Bustle], Check]:
    """Make a check with concurrent callers."""

    def make(bustle: Bustle) -> Check:
        def of(store: Store) -> Coroutine[Any, Any, None]:
            return bustle(Callers(store, sentence))

        return Check(sentence, part, bustle.__name__, True, of)

    return make
