"""The contract as a pytest class: subclass it and override ``make_store``.

    class TestMyStore(StoreSuite):
        def make_store(self) -> Store:
            return MyStore()

Needs pytest and Hypothesis: ``pip install 'lockgate[testing]'``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from inspect import isawaitable
from typing import Any, ClassVar

from ..core.extras import extra
from ..stores.base import IoMode, PartStore, Store
from ..sync import run
from .certify import checks_of, hold
from .checks import PARTS, Check, Part, applies, whole
from .deadline import DEADLINE, ended
from .processes import Reopen, share
from .state_machine import lockstep

with extra("testing", "lockgate[testing]", "hypothesis", "pytest"):
    import pytest
    from hypothesis import settings


class StoreSuite:
    """Every check of the contract, and random calls in lockstep with the model.

    A store that awaits runs in an asyncio event loop, a store that blocks without one. With ``io``
    ``both``, single callers run in an event loop, concurrent callers as tasks and as threads, and
    random walks without an event loop. The Hypothesis profile sets the length of a walk; select one
    with ``--hypothesis-profile``.
    """

    parts: ClassVar[tuple[Part, ...]] = PARTS
    """The parts that the store implements; default: all. Of a key store, set
    :data:`~lockgate.testing.KEY_PARTS`, and of a window store
    :data:`~lockgate.testing.WINDOW_PARTS`: checks of other parts are skipped."""

    one_walk_in: ClassVar[int] = 1
    """For slow stores: divides the number of walks of the Hypothesis profile."""

    deadline: ClassVar[float] = DEADLINE
    """Seconds for each check, after which a store that hangs is named."""

    def make_store(self) -> PartStore | Awaitable[PartStore]:
        """Return a new, empty store. May be ``async def``."""
        raise NotImplementedError("say how to make an empty store: def make_store(self) -> Store")

    def leftovers(self, store: Store, now: int) -> Awaitable[int] | int:
        """Return the number of organizations with stored windows, named limits or slots at ``now``.

        Optional: without it W10 is not checked, as the contract has no verb for it.
        """
        raise NotImplementedError

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Generate one test per check."""
        if "check" in metafunc.fixturenames:
            metafunc.parametrize("check", list(self._checks()))

    def test_contract(self, check: str) -> None:
        """Run one check on a new store."""
        chosen = self._checks()[check]
        io = self._hold(chosen, None)
        if io == "both" and chosen.crowded:
            self._hold(chosen, "sync")

    def test_lockstep(self) -> None:
        """Compare the store with the model on random calls."""
        profile = settings()
        fewer = settings(profile, max_examples=max(1, profile.max_examples // self.one_walk_in))
        lockstep(self.make_store, parts=self.parts, profile=fewer)

    def _checks(self) -> dict[str, Check]:
        counted = type(self).leftovers is not StoreSuite.leftovers
        checks = checks_of(self.parts, self.leftovers if counted else None)
        return {str(check): check for check in checks}

    def _hold(self, check: Check, io: IoMode | None) -> IoMode:
        made = self.make_store()
        if isawaitable(made):
            return asyncio.run(_held(made, check, self.deadline))
        if (io or whole(made).io) in ("async", "both"):
            return asyncio.run(_held(_itself(made), check, self.deadline))
        return run(_held(_itself(made), check, self.deadline))


class SharedStoreSuite(StoreSuite):
    """The suite for a store that processes share, with three processes on one store."""

    skew: ClassVar[float] = 0.0
    """Seconds by which the processes' clocks differ, for a store with its own clock: 300.0 proves
    that callers' clocks do not matter (W12)."""

    def reopen(self, store: Any) -> Reopen:
        """Return a picklable function that opens the same store in another process, such as
        ``functools.partial(MyStore, url)``."""
        raise NotImplementedError("say how another process opens the same store: def reopen(...)")

    def test_processes(self) -> None:
        """Check that three processes share limits and rows, and see each other's changes."""
        if not {"admission", "rows", "windows"}.intersection(self.parts):
            pytest.skip("processes share the rows of a key store, or the windows of a window store")
        made = self.make_store()
        if isawaitable(made):
            asyncio.run(self._shared(made))
        elif made.io == "async":
            asyncio.run(self._shared(_itself(made)))
        else:
            run(self._shared(_itself(made)))

    async def _shared(self, made: Awaitable[PartStore]) -> None:
        opened = await made
        store = whole(opened)
        try:
            shared = share(store, self.reopen(opened), skew=self.skew, parts=self.parts)
            await ended(shared, store, 2 * self.deadline)
        finally:
            await store.close()


async def _held(made: Awaitable[PartStore], check: Check, deadline: float) -> IoMode:
    store = await made
    io = await hold(check, store, deadline)
    if not applies(check.part, store):
        leases = "grants no quota leases: its grants_leases is false"
        reason = leases if check.part == "quota_leases" else f"does not have the part {check.part}"
        pytest.skip(f"{type(store).__name__} {reason}")
    return io


async def _itself(store: PartStore) -> PartStore:
    return store
