"""A process that dies between two calls of a record store leaves a whole change, or none."""

from __future__ import annotations

import pytest

from lockgate import run
from lockgate.core.timestamps import MINUTE
from lockgate.errors import HandleTaken
from lockgate.stores.key_value import RecordStore, storage
from lockgate.testing.checks.deaths import Died, Fuse, mortal, see_deaths
from tests.testing.test_records import Counted

from ..making import draft


class Shared(Counted):
    """Records with a clock that a test moves on."""

    later = 0

    async def now(self) -> int:
        return await super().now() + self.later


class Mortal(Counted):
    """Records as one process reads and writes them."""

    def __init__(self, shared: Counted) -> None:
        self.kept = shared.kept


def test_an_operation_that_dies_at_any_call_is_whole_and_can_be_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A claim of a handle without its key may be taken over: a minute has passed."""
    monkeypatch.setattr(storage, "_CLAIM_LASTS", -1)
    shared, fuse = Counted(), Fuse()
    records = Mortal(shared)
    with mortal(records, ("get", "put_if", "names"), fuse):
        run(see_deaths(RecordStore(records), RecordStore(shared), fuse))


def test_a_handle_whose_claimer_died_is_free_after_a_minute_D3() -> None:
    shared, fuse, key = Shared(), Fuse(), draft()
    other, records = RecordStore(shared), Mortal(shared)
    fuse.points = 1  # The claim is written.
    with mortal(records, ("put_if",), fuse), pytest.raises(Died):
        run(RecordStore(records).insert(key, None))
    with pytest.raises(HandleTaken):
        run(other.insert(draft()._replace(handle=key.handle), None))
    shared.later = MINUTE
    inserted = run(other.insert(draft()._replace(handle=key.handle), None))
    assert run(other.find(key.handle)) == inserted
    shared.later = 2 * MINUTE
    with pytest.raises(HandleTaken):
        run(other.insert(key, None))
