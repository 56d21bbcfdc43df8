"""The examples of the README and the pages run: Python unchanged, `console` blocks by a shell."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from lockgate.testing.checks import CHECKS
from tests.blackbox.demo import Demo, Face
from tests.docs.blocks import (
    OF_THE_SHELL,
    PAGES,
    ROOT,
    SERVED,
    TUTORIALS,
    blocks,
    check_console,
    run_python,
)

SOURCES = sorted([*(ROOT / "examples").glob("*.py"), *(ROOT / "src").rglob("*.py")])
GIVEN = re.compile(r"(?:peppers|session_secrets)=\[b?['\"]|SignedCookie\(\s*\[b?['\"]")


def pages_with(language: str, elsewhere: list[Path] = TUTORIALS) -> list[Any]:
    """Return the pages with blocks in a language, except for those that another test runs."""
    return [
        pytest.param(page, id=str(page.relative_to(ROOT)))
        for page in PAGES
        if page not in elsewhere and any(blocks(page.read_text(), language))
    ]


@pytest.mark.parametrize("page", pages_with("python"))
def test_the_python_of_a_page_runs(
    page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Some pages certify stores; tests/examples runs the whole kit on one of their kind.
    fewer = [one for number, one in enumerate(CHECKS) if number % 12 == 0 or one.sentence == "L5"]
    monkeypatch.setattr(sys.modules["lockgate.testing.certify"], "CHECKS", fewer)
    run_python(page, monkeypatch)
    assert "Traceback" not in capsys.readouterr().out


def test_no_page_example_or_docstring_shows_a_secret_to_copy() -> None:
    """Readers copy examples, and a published secret is not secret."""
    assert [str(path) for path in (*PAGES, *SOURCES) if GIVEN.search(path.read_text())] == []


@pytest.mark.parametrize("page", pages_with("console", TUTORIALS + OF_THE_SHELL + SERVED))
def test_the_commands_of_a_page_print_the_output_on_the_page(page: Path) -> None:
    with Demo(Face("starlette", "memory://")) as demo:
        free = demo["free"]
        variables = {"BASE": demo.base_url, "KEY": free.api_key, "SESSION": free.session_cookie}
        check_console(page.read_text(), variables)
