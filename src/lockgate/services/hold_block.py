"""The block of a hold: begun on entry, renewed while it runs, settled on exit (D41)."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Self

from ..core.plans import is_whole
from ..core.sliding_window import LARGEST
from ..errors import ConfigurationError, StoreUnavailable
from .renewed_block import BEATS, BEATS_IN_TROUBLE, RenewedBlock

if TYPE_CHECKING:
    from .holds import Holds

Used = int | Mapping[str, int] | None
"""The units that were used: a number for a single limit, or numbers by the limits' names; None, or
no number for a limit: all that were held of it."""


class Hold(RenewedBlock):
    """Context manager of a hold: begins it on entry, renews it, settles it on exit.

    On exit the units that :meth:`used` named are settled, without a call of it all that are held,
    after an exception or a cancellation too. If the process dies, or the store is away at the end,
    all are used at the deadline.

    Attributes:
        id: the id of the hold, once the block has begun.
    """

    def __init__(
        self,
        holds: "Holds",
        begin: Callable[[], Coroutine[Any, Any, str]],
        names: Collection[str],
        seconds: float,
        *,
        is_new: bool,
    ) -> None:
        super().__init__("hold", holds.pair, seconds)
        self.id = ""
        self._holds = holds
        self._begin = begin
        self._names: Final = frozenset(names)
        self._is_new = is_new
        self._used: Used = None
        self._lost = False
        self._ends = False
        """Whether it is being settled, so that a late renewal finds it ended."""

    def used(self, units: int | Mapping[str, int]) -> None:
        """Name the units that were used, to be settled at the end of the block.

        May be called again, with the sum so far: the latest call counts.

        Args:
            units: a number where one limit is held; otherwise numbers by the limits' names. A limit
                without a number is used in full.

        Raises:
            ConfigurationError: a number is not 0 to 2**53 - 1, or of a limit that is not held.
        """
        used_of(self._names, units)
        if isinstance(units, Mapping) and not self._names.issuperset(units):
            raise ConfigurationError(
                f"The hold is of {sorted(self._names)}, not of {sorted(units)}."
            )
        self._used = units

    @property
    def lost(self) -> bool:
        """Whether the hold ended before its block, so that all its units are used."""
        return self._lost

    @asynccontextmanager
    async def _await(self) -> AsyncGenerator[Self]:
        self._pair("async")
        finishing = self._holds.finishing
        await finishing.finish(self._take(), undo=self._give_back)
        beating = asyncio.get_running_loop().create_task(self._beat())
        try:
            yield self
        finally:
            beating.cancel()
            await finishing.finish(self._end())

    async def _take(self) -> None:
        self.id = await self._begin()
        if not self._is_new:
            await self._renew()

    async def _beat(self) -> None:
        pause = self._seconds / BEATS
        while self._needs_renewal():
            await asyncio.sleep(pause)
            pause = await self._renew()

    async def _renew(self) -> float:
        try:
            if not await self._holds.renew(self.id, seconds=self._seconds) and not self._ends:
                self._lose()
        except StoreUnavailable:
            return self._seconds / BEATS_IN_TROUBLE
        return self._seconds / BEATS

    def _needs_renewal(self) -> bool:
        return not self._lost

    async def _end(self) -> None:
        self._ends = True
        with suppress(StoreUnavailable):  # All is used at the deadline.
            if not await self._holds.settle(self.id, self._used):
                self._lose()

    async def _give_back(self) -> None:
        """Settle a hold whose block did not begin; another one's goes on until its deadline."""
        if self._is_new:
            with suppress(StoreUnavailable):
                await self._holds.settle(self.id, dict.fromkeys(self._names, 0))

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            self._holds.lose(self.id)


def used_of(names: Iterable[str], used: Used) -> tuple[int | None, ...]:
    """Return the units used for each of these limits' names; None: all that are held.

    Raises:
        ConfigurationError: a number is not 0 to 2**53 - 1, or one is given for several limits.
    """
    names = list(names)
    if used is None:
        return (None,) * len(names)
    if isinstance(used, Mapping):
        by_name: Mapping[str, object] = used
    elif len({*names}) > 1:
        raise ConfigurationError(
            f"The hold has several limits: say what was used of each, as {dict.fromkeys(names, 0)}."
        )
    else:
        by_name = dict.fromkeys(names, used)
    spent: dict[str, int] = {}
    for name, number in by_name.items():
        if not is_whole(number) or not 0 <= number <= LARGEST:
            raise ConfigurationError(f"{number!r} units were used of {name!r}: use 0 to 2**53 - 1.")
        spent[name] = number
    return tuple(map(spent.get, names))
