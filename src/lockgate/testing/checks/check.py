"""A check: a guarantee of the contract, and calls that test it."""

from collections.abc import Callable, Coroutine
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast, get_args

from ...errors import ConfigurationError
from ...stores.base import KeyStore, PartStore, Store, WindowStore
from ...stores.combined import CombinedStore, OverRows
from ...stores.directory import Directory
from ...stores.memory.store import MemoryStore
from ..factories import Factory
from ..lockstep import Lockstep
from .callers import Callers

Part = Literal[
    "rows",
    "keys",
    "usage",
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
"""The parts of a store; ``rows`` are the methods of a key store, of which ``keys``, ``accounts``
and ``changes``, the change log, are composed. ``usage`` is that of keys, ``admission`` the verb
that needs the others, ``Store.admit``, ``limits`` the named limits that windows and admissions may
have, ``holds`` the budgets of holds, beside windows, and ``quota_leases`` the leases that
admissions grant, of stores with ``grants_leases``."""
KEY_PARTS: Final[tuple[Part, ...]] = ("rows", "keys", "usage", "accounts", "changes")
"""The parts of a store that has the methods of a key store alone."""
WINDOW_PARTS: Final[tuple[Part, ...]] = ("windows", "slots", "limits", "holds")
"""The parts of a store that has the methods of a window store alone."""

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


class BesideKeys(CombinedStore):
    """A window store beside keys in memory, for the checks that charge windows by a key."""

    def __init__(self, windows: WindowStore) -> None:
        super().__init__(MemoryStore(), windows)


def whole(store: PartStore) -> Store:
    """Return a store with the type that checks expect; they call the verbs of its parts only.

    A key store gets the operations of the directory, and a window store keys in memory beside it.

    Raises:
        ConfigurationError: the store does not declare its I/O mode.
    """
    if not hasattr(store, "io"):
        raise ConfigurationError(
            f"{type(store).__name__} does not say whether it waits: give the class "
            "io = 'none', 'sync', 'async' or 'both'."
        )
    if isinstance(store, KeyStore) and not isinstance(store, Directory):
        store = OverRows(store)
    if isinstance(store, WindowStore) and not isinstance(store, KeyStore):
        store = BesideKeys(store)
    return cast(Store, store)


def applies(part: Part, store: PartStore) -> bool:
    """Return whether a store has a part, as far as its class tells: a key store has no window, a
    window store no key, and quota leases are those of a store with ``grants_leases``."""
    if isinstance(store, BesideKeys):
        return part in WINDOW_PARTS
    if isinstance(store, KeyStore) and not isinstance(store, WindowStore):
        return part in KEY_PARTS
    if part == "rows":
        return isinstance(store, KeyStore)
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
