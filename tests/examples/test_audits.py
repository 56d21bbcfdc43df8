"""Every example, and the pages about frameworks, start only where no route is left undecided."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / name for name in ("guarding.md", "frameworks.md")]
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BY_ITSELF = re.compile(r"from lockgate\.(asgi|wsgi) import")
"""An application without a framework has no routes that the audit could list."""


def calls(source: str) -> Iterator[ast.Call]:
    """The calls of ``protect`` that are not about shadow mode."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    for call in calls:
        shadow = any(keyword.arg == "shadow" for keyword in call.keywords)
        if ast.unparse(call.func).endswith("protect") and not shadow:
            yield call


def strict(call: ast.Call) -> bool:
    return any(k.arg == "strict" and ast.unparse(k.value) == "True" for k in call.keywords)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_every_example_is_audited_strictly(path: Path) -> None:
    source = path.read_text()
    if not BY_ITSELF.search(source):
        assert [call.lineno for call in calls(source) if not strict(call)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_the_first_application_of_a_page_is_audited_strictly(page: Path) -> None:
    found = [call for block in PYTHON.findall(page.read_text()) for call in calls(block)]
    assert strict(found[0])
