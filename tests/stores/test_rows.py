"""Random rows of the memory store are read in the order of each index."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lockgate import MemoryStore, run
from lockgate.core.timestamps import DAY
from lockgate.stores.rows import KEYS_BY_CREATION, KEYS_BY_END, Commit, Write
from lockgate.testing.factories import NOW

from .making import draft


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.none() | st.integers(0, 3)), max_size=8
    ),
    st.integers(1, 4),
    st.none() | st.integers(0, 7),
)
def test_a_page_of_an_index_follows_its_order(
    keys: list[tuple[int, int, int | None]], limit: int, after: int | None
) -> None:
    store = MemoryStore()
    for created, expires, ended in keys:
        at = NOW + created * DAY
        key = draft().created(at)._replace(expires_at=NOW + (expires + 4) * DAY)
        if ended is not None:
            key = key._replace(revoked_at=at + ended)
        run(store.commit(Commit("org_1", f"{key.handle}", (Write(None, None, key),)), at))
    rows = run(store.list("org_1", 100))
    for index in (KEYS_BY_CREATION, KEYS_BY_END):
        place = index.place
        assert place is not None
        held = index.page(rows, 100, None)
        start = None if after is None or after >= len(held) else place(held[after])
        read = run(store.read(index, ("org_1",), limit, start))
        assert read.rows == index.page(rows, limit, start)
