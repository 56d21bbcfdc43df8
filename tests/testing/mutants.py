"""Stores with one mistake each, most of them seen in the wild; the kit must kill every one.

A mistake is a function that gets a :class:`Call` of a method and returns its answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from inspect import signature
from typing import Any, ClassVar, Final, TypeAlias

from lockgate import Store
from lockgate.core.budgets import SLOTS, UNUSED, Budget
from lockgate.core.reservations import Reservations
from lockgate.core.sliding_window import Reading, State, Window, empty_state, hit, peek
from lockgate.core.timestamps import MINUTE
from lockgate.testing.checks import PARTS, Part
from tests.by_verbs import MemoryByVerbs

Windows: TypeAlias = tuple[Window, ...]
How: TypeAlias = Callable[["Call"], Any]
"""Returns the answer to a call; awaitable, if the method is."""
Table: TypeAlias = Mapping[str, tuple[str, str, How]]
"""By the name of a mutant: the sentences by which it may be found out first, the methods that have
the mistake, and the mistake."""
AHEAD: Final = 5 * MINUTE


def gap() -> None:
    """As long as a round trip to a server: time for another caller to interleave."""
    time.sleep(0.002)


class Call:
    """A call of a method of a wrong store, which :meth:`__call__` makes as the right one does.

    Its arguments are attributes, by the names of the method.
    """

    def __init__(
        self, store: Any, right: Any, named: Mapping[str, Any], defaults: Mapping[str, Any]
    ) -> None:
        self.store: Final = store
        self.verb: Final = str(right.__name__)
        self._right: Final = right
        self._named: Final = named
        self._defaults: Final = defaults

    def __getattr__(self, name: str) -> Any:
        return self._named[name] if name in self._named else self._defaults[name]

    def __contains__(self, name: object) -> bool:
        """Return whether the caller gave an argument."""
        return name in self._named

    def __call__(self, **changed: Any) -> Any:
        return self._right(self.store, **{**self._named, **changed})

    async def then(self, change: Callable[[Any], Any]) -> Any:
        """Make the call, and change its answer."""
        return change(await self())

    @property
    def at(self) -> int:
        """The instant of the call."""
        return int(self.store.at(self.now))


class Mutant(MemoryByVerbs):
    """Right until a subclass makes its mistake; admits verb by verb, so that each one shows."""

    killed_by: ClassVar[Collection[str]] = frozenset()
    """The sentences by which it may be found out first; none: it makes no mistake."""
    parts: ClassVar[tuple[Part, ...]] = PARTS
    """The parts of the contract of which the kit makes the checks."""
    in_each_run: ClassVar[bool] = True
    every: ClassVar[list[type[Mutant]]] = []

    def __init_subclass__(cls) -> None:
        if cls.killed_by:
            cls.every.append(cls)

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[str, State] = {}
        self.seen: dict[Any, Any] = {}
        """What a mistake remembers."""

    admit = Store.admit
    grants_leases = False

    async def reset(self, organization: str, now: int | None = None, *, change: Any = None) -> None:
        self.states.pop(organization, None)
        await super().reset(organization, now, change=change)

    def remove_keys(self, organization: str) -> None:
        """Remove all keys of an organization, under the lock."""
        for key in self._keys.all(organization):
            self._keys.remove(key)

    def slots(self, organization: str) -> Reservations:
        return self._budgets._budgets.get((organization, SLOTS), UNUSED).held

    def put_slots(self, organization: str, slots: Reservations) -> None:
        self._budgets._budgets[organization, SLOTS] = Budget(held=slots)

    def forget_log(self, organization: str) -> None:
        self._changes._rows.pop(organization, None)
        self._changes._oldest = [one for one in self._changes._oldest if one[1] != organization]

    def at(self, now: int | None) -> int:
        return self._clock() if now is None else now


def wrong(
    killed_by: str, *verbs: str, of: type[Mutant] = Mutant, name: str = "", **own: Any
) -> Callable[[How], type[Mutant]]:
    """Return what makes a mistake a store of which some methods have it.

    Args:
        killed_by: the sentences by which it may be found out first.
        verbs: the methods.
        of: the store that is right.
        name: of the mutant; default: that of the mistake.
        own: other attributes of its class.
    """

    def make(how: How) -> type[Mutant]:
        own["killed_by"] = frozenset(killed_by.split())
        methods = {verb: changed(of, verb, how) for verb in verbs}
        return type(name or how.__name__, (of,), {**methods, **own})

    return make


def named(name: str) -> type[Mutant]:
    """Return a mutant."""
    (found,) = [mutant for mutant in Mutant.every if mutant.__name__ == name]
    return found


def several(table: Table, of: type[Mutant] = Mutant, **own: Any) -> None:
    """Make a store for each mistake of a table."""
    for name, (killed_by, verbs, how) in table.items():
        wrong(killed_by, *verbs.split(), of=of, name=name, **own)(how)


def changed(of: type[Mutant], verb: str, how: How) -> Callable[..., Any]:
    """Return a method of a store with a mistake."""
    right = getattr(of, verb)
    asked = signature(right)
    defaults = {one.name: one.default for one in asked.parameters.values()}
    _, *names = defaults

    def method(self: Any, *arguments: Any, **options: Any) -> Any:
        named = dict(zip(names, arguments, strict=False)) | options
        return how(Call(self, right, named, defaults))

    method.__dict__.update({**right.__dict__, "__signature__": asked})
    return method


class ByStates(Mutant):
    """Keeps the states of windows itself; right until a subclass spoils them."""

    def state(self, organization: str, windows: Windows, at: int) -> State:
        return self.states.get(organization) or empty_state(windows)

    def keep(self, organization: str, state: State) -> None:
        self.states[organization] = state

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: Any = None,
    ) -> Reading:
        with self._lock:
            at = self.at(now)
            reading, state = hit(self.state(organization, windows, at), windows, at, cost)
            self.keep(organization, state)
            return reading

    async def peek(
        self, organization: str, windows: Windows, now: int | None = None, limits: Any = None
    ) -> Reading:
        return peek(self.states.get(organization) or empty_state(windows), windows, self.at(now))


def unheard() -> How:
    """Return a mistake: answers of before stay valid in other processes."""

    async def how(call: Call) -> Any:
        before = call.store.local_version
        answer = await call()
        call.store.local_version = before
        return answer

    return how


def folded(fold: Callable[[Any], Any], *names: str) -> How:
    """Return a mistake: some arguments are taken for others."""
    return lambda call: call(**{name: fold(getattr(call, name)) for name in names})


def by_host(skew: int = AHEAD) -> How:
    """Return a mistake: the clock of the host decides, which is so much ahead."""
    return lambda call: call(now=call.store.at(None) + skew if call.now is None else call.now)
