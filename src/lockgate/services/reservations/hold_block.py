"""The block of a hold: begun on entry, renewed while it runs, settled on exit (D41)."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Self

from ...errors import ConfigurationError, StoreUnavailable
from .renewed_block import BEATS, BEATS_IN_TROUBLE, RenewedBlock
from .settlements import HoldNames, Settlements, Units, Used, used_of


class Hold(RenewedBlock):
    """Context manager of a hold: begins it on entry, renews it, settles it on exit.

    On exit the units that the last call of :meth:`used` named are settled, after an exception or a
    cancellation too. Without a call, or if the last one raised, all units held are settled. If the
    store is away at the end, the units are settled in the background until the deadline. If the
    process dies, all are used at the deadline.

    Attributes:
        id: the id of the hold, once the block has begun.
    """

    def __init__(
        self,
        holds: Settlements,
        begin: Callable[[], Coroutine[Any, Any, str]],
        seconds: float,
        *,
        is_new: bool,
    ) -> None:
        super().__init__("hold", holds.pair, seconds)
        self.id = ""
        self._holds = holds
        self._begin = begin
        self._names: HoldNames | None = None
        self._is_new = is_new
        self._used: Used = None
        self._lost = False
        self._ends = False
        """Whether it is being settled, so that a late renewal finds it ended."""

    def used(self, units: Units) -> None:
        """Name the units that were used, to be settled at the end of the block.

        May be called again, with the sum so far: the latest call counts. A call that raises makes
        the sum unknown, so that all units held are settled unless a later call names it.

        Args:
            units: a number where one limit is held; otherwise numbers by the limits or their names.
                A limit without a number is used in full.

        Raises:
            ConfigurationError: a number is not 0 to 2**53 - 1, or of a limit that the hold has no
                units of; or the block has not begun.
        """
        if self._names is None:
            raise ConfigurationError("The units that a hold used are named inside its block.")
        try:
            if units is None:  # pyright: ignore[reportUnnecessaryComparison] - from a caller
                raise ConfigurationError(
                    "hold.used(None) names no units: give a number, or numbers by limit. Without a "
                    "call all units that are held count as used."
                )
            used_of(self._names, units)
        except Exception:  # Else a misspelled limit settles the 0 that a stream begins with.
            self._used = None
            raise
        self._used = units if isinstance(units, int) else dict(units.items())

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
        self._names = HoldNames.of(self._holds.read(self.id))
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
        await self._settle(self._used)

    async def _give_back(self) -> None:
        """Settle a hold whose block did not begin; another one's goes on until its deadline."""
        if self._is_new:
            assert self._names is not None, "it was taken"
            await self._settle(dict.fromkeys(self._names.of_fields, 0))

    async def _settle(self, used: Used) -> None:
        try:
            if not await self._holds.settle(self.id, used):
                self._lose()
        except StoreUnavailable:
            if not self._lost:
                self._holds.late.add(self.id, used, self._seconds)

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            self._holds.lose(self.id)
