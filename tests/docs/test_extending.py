"""The pages for contributors name what the code has."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from lockgate import Limit, MemoryStore, run
from lockgate.core.holds import Take, budgets
from lockgate.core.ledger import Ledger
from lockgate.core.limits import windows_of
from lockgate.stores.key_value import RecordStore
from tests.stores.test_change_logs import DictRecords

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "extending"
CORE = ROOT / "src" / "lockgate" / "core"


def rows(page: str) -> list[str]:
    return [line for line in (PAGES / page).read_text().splitlines() if line.startswith("| ")]


def test_the_field_that_the_recipe_follows_is_in_each_file_that_it_names() -> None:
    files = re.findall(r"`(src/[\w/]+\.py)`", "\n".join(rows("field.md")))
    assert len(files) > 10
    assert [name for name in files if not re.search(r"\blabels\b", (ROOT / name).read_text())] == []


def test_the_page_of_the_ledger_lists_every_action() -> None:
    page = (ROOT / "docs" / "design" / "ledger.md").read_text()
    actions = {
        node.name
        for module in ("ledger.py", "holds.py")
        for node in ast.parse((CORE / module).read_text()).body
        if isinstance(node, ast.ClassDef) and node.name != "Action"
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "apply"
    }
    assert len(actions) > 7
    assert [name for name in sorted(actions) if f"`{name}`" not in page] == []


def test_every_module_named_in_the_recipe_for_a_framework_exists() -> None:
    modules = re.findall(r"`((?:\w+/)*\w+\.py)`", "\n".join(rows("framework.md")))
    assert len(modules) > 8
    assert [name for name in modules if not (CORE.parent / name).exists()] == []


def test_contributing_fits_five_kilobytes() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_bytes()) <= 5 * 1024


class HeldUnits(NamedTuple):
    """An action that no store knows, after the recipe."""

    fields: tuple[str, ...]

    def apply(self, ledger: Ledger, now: int) -> tuple[int, Ledger]:
        """Return the units that are held in the budgets of the fields."""
        held = [one for budget in ledger.budgets.values() for one in budget.held]
        return sum(one.units for one in held if one.deadline > now), ledger


@pytest.mark.parametrize("make", [MemoryStore, lambda: RecordStore(DictRecords())])
def test_stores_that_compute_in_the_process_apply_an_action_that_they_do_not_know(
    make: Callable[[], MemoryStore | RecordStore],
) -> None:
    store = make()
    limits = budgets(windows_of((Limit("tokens", "100/hour"),)))
    run(store.charge("org_1", Take("0" * 31 + "1", limits, (7,), 60_000_000, 10)))
    assert run(store.charge("org_1", HeldUnits(limits.fields))) == 7
