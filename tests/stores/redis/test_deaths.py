"""A process that dies between two calls to Redis leaves a whole change, or none."""

from __future__ import annotations

import pytest

from lockgate import run
from lockgate.stores.redis import RedisStore, rows
from lockgate.testing.checks.deaths import Fuse, mortal, see_deaths

from .backends import server


@pytest.mark.parametrize("kind", ["single", "cluster"])
def test_an_operation_that_dies_at_any_call_is_whole_and_can_be_repeated(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim of a handle without its key may be taken over: a minute has passed."""
    monkeypatch.setattr(rows, "_CLAIM_LASTS", -1)
    dying, other = (RedisStore(server(kind).url(), prefix="deaths") for _ in range(2))
    fuse = Fuse()
    with mortal(dying, ("_ask",), fuse):
        run(see_deaths(dying, other, fuse))
    for store in (dying, other):
        run(store.close())
