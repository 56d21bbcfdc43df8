"""Clients of customers act on each refusal as `docs/measured.md` says (D48)."""

from __future__ import annotations

import pytest

from benchmarks.pages import DOCS
from docs.marked import parts

from .callers import CLIENTS, MODULES, RETRIES, call
from .campaign import PAGE
from .service import REFUSALS

SDKS = ("openai", "anthropic")
FEW = ("the minute is full, for 42 s", "a malformed key")
SHOWN = [
    line[2:-2].split(" | ")
    for line in parts((DOCS / PAGE.page).read_text())[PAGE.name].splitlines()
    if line.startswith("|")
]


CALLS = [
    pytest.param(
        *(client, module, refusal),
        # A client of HTTP reads the header that the first refusals have, or has no retry.
        marks=() if client in SDKS or refusal in FEW else pytest.mark.matrix,
        id=f"{client}-{refusal}",
    )
    for client, module in zip(CLIENTS, MODULES, strict=True)
    for refusal in REFUSALS
]


@pytest.mark.parametrize(("client", "module", "refusal"), CALLS)
def test_a_client_does_what_the_page_says(client: str, module: str, refusal: str) -> None:
    pytest.importorskip(module)
    done = call(client, REFUSALS[refusal])
    column = SHOWN[0].index(client)
    (row,) = (cells for cells in SHOWN[2:] if cells[0] == refusal)
    assert str(done) == row[column]
    assert done.calls <= RETRIES + 1
    if done.raised:
        assert done.told, "the error shows the sentence of the refusal"
    if client in SDKS and "no advice" not in refusal:
        assert sum(done.slept) <= 2 * 120
