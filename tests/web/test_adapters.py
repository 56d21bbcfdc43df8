"""Each adapter has the same functions, and is in every table that lists adapters by hand."""

from __future__ import annotations

import ast
import importlib
import runpy
from collections.abc import Iterable
from pathlib import Path

import pytest

import lockgate
from lockgate.web.audit import view_of
from tests.attack.pairs import PAIRS
from tests.dashboard.consoles import PLACES

from . import applications, front_ends, test_matched_routes

ROOT = Path(__file__).parents[2]
SOURCE = Path(next(iter(lockgate.__path__)))


def is_adapter(module: Path) -> bool:
    """Whether a module defines ``protect``."""
    body = ast.parse(module.read_bytes()).body
    return any(isinstance(part, ast.FunctionDef) and part.name == "protect" for part in body)


# A server of MCP has calls and no framework's routes: see test_mcp.py and tests/attack.
ADAPTERS = sorted({path.stem for path in SOURCE.glob("*.py") if is_adapter(path)} - {"mcp"})
FRAMEWORKS = sorted({*ADAPTERS} - {"asgi", "wsgi"})


def names(entries: Iterable[str], adapter: str) -> bool:
    """Whether an entry is an adapter, or one of its kinds, as ``django-asgi`` is of ``django``."""
    return any(entry.partition("-")[0] == adapter for entry in entries)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_every_adapter_has_the_same_functions(adapter: str) -> None:
    functions = {"Caller", "audit", "operations", "protect", "requires"}
    missing = {"operations"} if adapter == "django" else set()
    assert functions - missing <= set(importlib.import_module(f"lockgate.{adapter}").__all__)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_every_adapter_is_in_the_tables_of_the_tests_and_of_the_documentation(
    adapter: str,
) -> None:
    reference = (ROOT / "docs" / "reference" / "python.md").read_text()
    guarding = (ROOT / "docs" / "guarding.md").read_text()
    tables = {
        "APPLICATIONS of tests/web/front_ends.py": names(front_ends.APPLICATIONS, adapter),
        "PAIRS of tests/attack/pairs.py": names((app for _, app in PAIRS), adapter),
        "docs/reference/python.md": f".. autofunction:: lockgate.{adapter}.protect\n" in reference,
        "the table at the top of docs/guarding.md": f".{adapter}`" in guarding.split("\n\n")[2],
    }
    assert [table for table, holds in tables.items() if not holds] == []


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_is_in_the_tables_of_the_tests_and_of_the_package(framework: str) -> None:
    view = type("View", (), {"__module__": f"{framework}.views"})
    needs = runpy.run_path(str(ROOT / "release" / "imports.py"))["NEEDS"]
    tables = {
        "_FRAMEWORKS of src/lockgate/web/audit.py": view_of(view) is None,
        "NEEDS of release/imports.py": f"lockgate.{framework}" in needs or framework == "starlette",
        "ADAPTERS of tests/web/applications.py": framework in {*applications.ADAPTERS, "django"},
        "FRAMEWORKS of tests/web/test_matched_routes.py": framework
        in test_matched_routes.FRAMEWORKS,
        "PLACES of tests/dashboard/consoles.py": framework in PLACES,
        f"examples/{framework}_service.py": (ROOT / f"examples/{framework}_service.py").exists(),
    }
    assert [table for table, holds in tables.items() if not holds] == []
