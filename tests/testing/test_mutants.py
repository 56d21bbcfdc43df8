"""The kit lets a right store pass, and kills every wrong one by a sentence that it breaks."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lockgate import MemoryStore, Store, run
from lockgate.testing import GUARANTEES, Broken, certify

from . import (
    mutants_between,  # noqa: F401 - imported to register their mutants
    mutants_of_accounts,  # noqa: F401
)
from .mutants import Mutant, every


def leftovers(store: Store, now: int) -> int:
    assert isinstance(store, MemoryStore)
    kept = max(len(store._windows), len(store._leases))
    return max(kept, len(store.states)) if isinstance(store, Mutant) else kept


@pytest.mark.parametrize("right", [MemoryStore, Mutant])
def test_a_correct_store_passes(right: type[Store]) -> None:
    run(certify(right, leftovers=leftovers))


@pytest.mark.parametrize("mutant", every(), ids=lambda mutant: mutant.__name__)
def test_a_mutant_fails_with_a_guarantee_that_it_breaks(mutant: type[Mutant]) -> None:
    started = time.monotonic()
    with pytest.raises(Broken) as found:
        run(certify(mutant, leftovers=leftovers))
    print(f"{mutant.__name__} by {found.value}")
    assert found.value.sentence in mutant.killed_by
    assert GUARANTEES[found.value.sentence] in str(found.value)
    assert time.monotonic() - started < 60


def test_the_testing_page_states_the_number_of_mutants() -> None:
    page = Path(__file__).parents[2] / "docs" / "testing.md"
    assert f"tested by {len(every())} stores with one mistake each" in page.read_text()
