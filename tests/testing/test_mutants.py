"""The kit lets a right store pass, and kills every wrong one by a sentence that it breaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lockgate import MemoryStore, Store, run
from lockgate.testing import GUARANTEES, Broken, certify
from lockgate.testing.certify import checks_of, drive, hold
from lockgate.testing.checks import Check

from . import (
    mutants_between,  # noqa: F401 - imported to register their mutants
    mutants_of_accounts,  # noqa: F401
    mutants_of_changes,  # noqa: F401
    mutants_of_deaths,  # noqa: F401
    mutants_of_fields,  # noqa: F401
    mutants_of_holds,  # noqa: F401
    mutants_of_instants,  # noqa: F401
    mutants_of_limits,  # noqa: F401
    mutants_of_load,  # noqa: F401
    mutants_of_lost_replies,  # noqa: F401
    mutants_of_many,  # noqa: F401
    mutants_of_names,  # noqa: F401
    mutants_of_promises,  # noqa: F401
    mutants_of_quota_leases,  # noqa: F401
    mutants_of_resets,  # noqa: F401
    mutants_of_rows,  # noqa: F401
    mutants_of_secrets,  # noqa: F401
    mutants_of_usage,  # noqa: F401
    mutants_of_walks,  # noqa: F401
)
from .mutants import Mutant, every
from .mutants_of_texts import Loose


def leftovers(store: Store, now: int) -> int:
    assert isinstance(store, MemoryStore)
    kept = max(len(store._windows), len(store._budgets))
    return max(kept, len(store.states)) if isinstance(store, Mutant) else kept


@pytest.mark.parametrize("right", [MemoryStore, Mutant])
def test_a_correct_store_passes(right: type[Store]) -> None:
    run(certify(right, leftovers=leftovers))


async def _hold_all(mutant: type[Mutant], checks: list[Check]) -> None:
    for check in checks:
        await hold(check, mutant())


def each(mutant: type[Mutant]) -> Any:
    """A mutant as a parameter; most stores that are loose with texts run in campaigns."""
    rarely = issubclass(mutant, Loose) and not mutant.in_each_run
    return pytest.param(mutant, marks=pytest.mark.campaign if rarely else (), id=mutant.__name__)


@pytest.mark.parametrize("mutant", [each(mutant) for mutant in every()])
def test_a_mutant_fails_with_a_guarantee_that_it_breaks(
    mutant: type[Mutant], request: pytest.FixtureRequest
) -> None:
    checks = checks_of(mutant.parts, leftovers)
    if not request.config.getoption("matrix"):  # The likely ones first: it takes a third as long.
        checks.sort(key=lambda check: check.sentence not in mutant.killed_by)
    with pytest.raises(Broken) as found:
        drive(mutant.io, _hold_all(mutant, checks))
    print(f"{mutant.__name__} by {found.value}")
    assert found.value.sentence in mutant.killed_by, "by its deadline, G4, a check detects none"
    assert GUARANTEES[found.value.sentence] in str(found.value)


def test_the_page_on_own_stores_states_the_number_of_mutants() -> None:
    page = Path(__file__).parents[2] / "docs" / "own-store.md"
    assert f"tested by {len(every())} stores with one mistake each" in page.read_text()
