"""Clients of customers act on each refusal as `docs/measured.md` says (D48)."""

from __future__ import annotations

import pytest

from benchmarks.pages import DOCS
from docs.marked import parts

from .callers import CLIENTS, MODULES, RETRIES, call
from .campaign import PAGE
from .service import REFUSALS

SDKS = ("openai", "anthropic")
SHOWN = [
    line[2:-2].split(" | ")
    for line in parts((DOCS / PAGE.page).read_text())[PAGE.name].splitlines()
    if line.startswith("|")
]


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize(("client", "module"), [*zip(CLIENTS, MODULES, strict=True)])
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
